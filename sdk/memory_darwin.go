package sdk

import "golang.org/x/sys/unix"

// totalMemory returns the bytes of memory of this machine, or 0 if that is not known.
func totalMemory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}
