package filelock

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gofrs/flock"

	"github.com/zoo-sdk/zoo/internal/atomicfile"
)

// pollInterval is how often a taken lock is tried again.
const pollInterval = 50 * time.Millisecond

// Lock is a held lock.
type Lock struct {
	f *flock.Flock
}

// Acquire takes the exclusive lock on the file at path, creating the file when it
// is missing; its folder must exist. While somebody else holds it, waiting, unless
// nil, is called once, and the lock is tried again until ctx ends, whose cause is
// then returned. A folder or file that may not be written is
// fault.ErrNotPermitted.
func Acquire(ctx context.Context, path string, waiting func()) (*Lock, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	// Opened for writing, so that who may not write to the folder cannot hold up those who may.
	f := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o644))
	got, err := f.TryLock()
	if err == nil && !got {
		if waiting != nil {
			waiting()
		}
		got, err = f.TryLockContext(ctx, pollInterval)
	}
	if err == nil && got {
		return &Lock{f}, nil
	}
	_ = f.Close()
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	return nil, atomicfile.MapError(path, fmt.Errorf("lock %q: %w", path, err))
}

// Path returns the path of the lock file.
func (l *Lock) Path() string { return l.f.Path() }

// Release gives the lock up. The file stays, since removing it would let two
// processes lock two different files of the same name. A second call does nothing.
func (l *Lock) Release() error {
	if err := l.f.Unlock(); err != nil {
		return fmt.Errorf("unlock %q: %w", l.f.Path(), err)
	}
	return nil
}
