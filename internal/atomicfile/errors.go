package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/dustin/go-humanize"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// SpaceError reports a device without enough room. It matches fault.ErrNoSpace.
type SpaceError struct {
	// Path is the file or folder that was to be written.
	Path string
	// NeedBytes is what was still to be written, or 0 when that is not known.
	NeedBytes int64
	// FreeBytes is what the device had left, or -1 when that is not known.
	FreeBytes int64
	// Err is the error of the operating system, or nil when the lack was
	// foreseen before anything was written.
	Err error
}

// Error says which path lacks room, and how much where that is known.
func (e *SpaceError) Error() string {
	s := fmt.Sprintf("no space left for %q", e.Path)
	if e.NeedBytes > 0 {
		s += fmt.Sprintf(": %s (%d bytes) needed", humanize.Bytes(uint64(e.NeedBytes)), e.NeedBytes)
		if e.FreeBytes >= 0 {
			s += fmt.Sprintf(", %s (%d bytes) free", humanize.Bytes(uint64(e.FreeBytes)), e.FreeBytes)
		}
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the error of the operating system, if any.
func (e *SpaceError) Unwrap() error { return e.Err }

// Is reports whether target is fault.ErrNoSpace.
func (e *SpaceError) Is(target error) bool { return target == fault.ErrNoSpace }

// Hint says how much to free, and where.
func (e *SpaceError) Hint() string {
	where := "on the device that holds " + filepath.Dir(e.Path)
	if short := e.NeedBytes - e.FreeBytes; e.NeedBytes > 0 && e.FreeBytes >= 0 && short > 0 {
		return fmt.Sprintf("free at least %s %s, or point ZOO_HOME at a larger one", humanize.Bytes(uint64(short)), where)
	}
	return fmt.Sprintf("free some space %s, or point ZOO_HOME at a larger one", where)
}

// PermissionError reports a file operation that the system refused. It matches
// fault.ErrNotPermitted.
type PermissionError struct {
	// Path is the file or folder in question.
	Path string
	// ReadOnly says that the whole file system is mounted read-only.
	ReadOnly bool
	// Err is the error of the operating system.
	Err error
}

// Error gives the path and the system's reason.
func (e *PermissionError) Error() string {
	return fmt.Sprintf("%q: %v", e.Path, e.Err)
}

// Unwrap returns the error of the operating system.
func (e *PermissionError) Unwrap() error { return e.Err }

// Is reports whether target is fault.ErrNotPermitted.
func (e *PermissionError) Is(target error) bool { return target == fault.ErrNotPermitted }

// Hint says how to get at a folder that may be written.
func (e *PermissionError) Hint() string {
	if e.ReadOnly {
		return fmt.Sprintf("the file system of %s is read-only: point ZOO_HOME, or the output path, at one that is not", e.Path)
	}
	return fmt.Sprintf("check the owner and the permissions of %s, or point ZOO_HOME, or the output path, elsewhere", e.Path)
}

// ExistError reports that the target of [CommitDir] exists already. It matches
// fs.ErrExist and stands for no exit code: the caller decides what an existing
// target means.
type ExistError struct {
	Path string
}

// Error gives the path.
func (e *ExistError) Error() string { return fmt.Sprintf("%q exists already", e.Path) }

// Is reports whether target is fs.ErrExist.
func (e *ExistError) Is(target error) bool { return target == fs.ErrExist }

// Codes of Windows that package syscall does not name on every system.
const (
	windowsWriteProtect   = syscall.Errno(19)
	windowsHandleDiskFull = syscall.Errno(39)
	windowsDiskFull       = syscall.Errno(112)
	windowsDiskQuota      = syscall.Errno(1295)
)

// MapError classifies an error of a file operation on path: a full device or an
// exhausted quota becomes a [*SpaceError], a refusal or a read-only file system a
// [*PermissionError], and any other error, nil included, comes back as it is. An
// error that is classified already is not wrapped twice. The original error stays
// in the chain.
func MapError(path string, err error) error {
	return mapError(path, err, runtime.GOOS == "windows")
}

func mapError(path string, err error, windows bool) error {
	if err == nil || errors.Is(err, fault.ErrNoSpace) || errors.Is(err, fault.ErrNotPermitted) {
		return err
	}
	switch {
	case anyIs(err, syscall.ENOSPC, syscall.EDQUOT), windows && anyIs(err, windowsDiskFull, windowsHandleDiskFull, windowsDiskQuota):
		return &SpaceError{Path: path, FreeBytes: -1, Err: err}
	case errors.Is(err, syscall.EROFS), windows && errors.Is(err, windowsWriteProtect):
		return &PermissionError{Path: path, ReadOnly: true, Err: err}
	case errors.Is(err, fs.ErrPermission):
		return &PermissionError{Path: path, Err: err}
	}
	return err
}

// anyIs reports whether err matches one of the codes.
func anyIs(err error, codes ...syscall.Errno) bool {
	for _, code := range codes {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}
