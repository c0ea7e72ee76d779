package zoo

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// deviceAndInode returns the numbers that name an open file on this machine.
func deviceAndInode(f *os.File, _ fs.FileInfo) (device, inode uint64, err error) {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return 0, 0, err
	}
	return uint64(info.VolumeSerialNumber), uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow), nil
}

// isShared reports whether a file has further names.
func isShared(file string, _ fs.FileInfo) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return false, err
	}
	return info.NumberOfLinks > 1, nil
}
