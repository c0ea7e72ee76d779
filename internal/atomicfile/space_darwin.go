package atomicfile

import (
	"math"
	"math/bits"

	"golang.org/x/sys/unix"
)

// freeBytes returns the bytes of dir's file system that an ordinary user may still use.
func freeBytes(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	if hi, lo := bits.Mul64(s.Bavail, uint64(s.Bsize)); hi == 0 {
		return lo, nil
	}
	return math.MaxUint64, nil
}
