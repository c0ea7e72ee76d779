package mmap

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// advise tells the kernel of pages.
func advise(region []byte, a Advice) {
	_ = unix.Madvise(region, [...]int{Stream: unix.MADV_HUGEPAGE, Soon: unix.MADV_WILLNEED, random: unix.MADV_RANDOM, normal: unix.MADV_NORMAL}[a])
}

// populate reads pages. Kernels before 5.14 do not know how, and read what is touched.
func populate(region []byte) error {
	for {
		err := unix.Madvise(region, unix.MADV_POPULATE_READ)
		switch {
		case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS):
			touch(region)
			return nil
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
}

// lock keeps pages in memory.
func lock(region []byte) error { return unix.Mlock(region) }

// unlock lets pages go.
func unlock(region []byte) { _ = unix.Munlock(region) }

// resident sets the lowest bit of held[i] where page i is in memory.
func resident(region, held []byte) bool {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&region[0])), uintptr(len(region)), uintptr(unsafe.Pointer(&held[0])))
	return errno == 0
}
