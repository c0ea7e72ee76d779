package zoo

import (
	"io/fs"
	"os"
	"syscall"
)

// deviceAndInode returns the numbers that name an open file on this machine.
func deviceAndInode(_ *os.File, info fs.FileInfo) (device, inode uint64, err error) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), st.Ino, nil
	}
	return 0, 0, nil
}

// isShared reports whether a file has further names.
func isShared(_ string, info fs.FileInfo) (bool, error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1, nil
}
