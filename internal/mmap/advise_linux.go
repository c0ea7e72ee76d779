package mmap

import "golang.org/x/sys/unix"

// advise asks for huge pages where the file is not in memory yet: reading
// through small ones takes a nested walk of page tables every 4 KiB, which in a
// virtual machine costs half of the bandwidth. It is a wish: a system that has
// none goes on as it is.
func advise(data []byte) { _ = unix.Madvise(data, unix.MADV_HUGEPAGE) }
