package sdk

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// memoryLimits are the files in which control groups of version 2 and 1 tell how
// much memory this process may use.
var memoryLimits = [...]string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// totalMemory returns the bytes of memory that this process may use, or 0 if that is not known.
func totalMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	total := int64(info.Totalram) * int64(info.Unit)
	for _, file := range memoryLimits {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// No limit is the word "max", or a number larger than any memory.
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64); err == nil && n > 0 {
			total = min(total, n)
		}
	}
	return total
}
