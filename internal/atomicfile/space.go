package atomicfile

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// FreeBytes returns how many bytes this user may still write on the device that
// holds dir. If dir does not exist yet, its nearest existing parent counts.
func FreeBytes(dir string) (int64, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return 0, fmt.Errorf("free space: %w", err)
	}
	for {
		if _, err := os.Stat(dir); !os.IsNotExist(err) || filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	free, err := freeBytes(dir)
	if err != nil {
		return 0, fmt.Errorf("free space of %q: %w", dir, err)
	}
	return int64(min(free, math.MaxInt64)), nil
}

// CheckSpace returns a [*SpaceError] if fewer than needBytes bytes are free on the
// device that holds path, which need not exist yet. A device that does not tell
// how much is free passes: writing will show.
func CheckSpace(path string, needBytes int64) error {
	free, err := FreeBytes(path)
	if err != nil || free >= needBytes {
		return nil
	}
	return &SpaceError{Path: path, NeedBytes: needBytes, FreeBytes: free}
}
