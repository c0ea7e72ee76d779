package mmap

import "golang.org/x/sys/unix"

// advise tells the kernel of pages. It chooses their size itself.
func advise(region []byte, a Advice) {
	switch a {
	case Soon:
		_ = unix.Madvise(region, unix.MADV_WILLNEED)
	case random:
		_ = unix.Madvise(region, unix.MADV_RANDOM)
	case normal:
		_ = unix.Madvise(region, unix.MADV_NORMAL)
	}
}

// populate reads pages.
func populate(region []byte) error {
	touch(region)
	return nil
}

// lock keeps pages in memory.
func lock(region []byte) error { return unix.Mlock(region) }

// unlock lets pages go.
func unlock(region []byte) { _ = unix.Munlock(region) }

// resident is not known: asking takes cgo, which this package does without.
func resident(_, _ []byte) bool { return false }
