//go:build linux

package metaltest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// backing opens the file that memory is a mapping of, and returns where in it the memory begins.
func backing(memory []byte, pageBytes int) (file int, offset int64, err error) {
	from := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
	to := from + uint64(len(memory))
	if from%uint64(pageBytes) != 0 || to%uint64(pageBytes) != 0 {
		return 0, 0, fmt.Errorf("memory to map does not begin and end at multiples of %d bytes", pageBytes)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, 0, err
	}
	// A mapping may be split into several; those of one file must follow each other.
	path, reached := "", from
	for line := range strings.Lines(string(maps)) {
		var low, high, at, inode uint64
		var major, minor uint32
		var access string
		if _, err := fmt.Sscanf(line, "%x-%x %s %x %x:%x %d", &low, &high, &access, &at, &major, &minor, &inode); err != nil || high <= reached {
			continue
		}
		start := strings.IndexByte(line, '/')
		if low > reached || inode == 0 || start < 0 {
			break
		}
		name := strings.TrimSuffix(line[start:], "\n")
		at += reached - low
		switch {
		case path == "":
			path, offset = name, int64(at)
			file, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return 0, 0, fmt.Errorf("open %q, which memory is a mapping of: %w", path, err)
			}
			var stat unix.Stat_t
			if err := unix.Fstat(file, &stat); err != nil || stat.Ino != inode {
				return 0, 0, errors.Join(fmt.Errorf("%q is no longer the file that memory is a mapping of", path), unix.Close(file))
			}
		case path != name || offset+int64(reached-from) != int64(at):
			return 0, 0, errors.Join(errors.New("memory to map is of several files"), unix.Close(file))
		}
		if reached = high; reached >= to {
			return file, offset, nil
		}
	}
	if path != "" {
		_ = unix.Close(file) // it was only read
	}
	return 0, 0, errors.New("memory to map is no mapping of a file")
}
