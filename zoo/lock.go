package zoo

import (
	"context"
	"errors"
)

// Lock is the right to fetch, convert and install one release, held by one goroutine
// of one process at a time. The work goes
//
//	lock, err := store.Lock(ctx, model, version, waiting)
//	defer lock.Unlock()
//	record, err := store.Record(model, version) // somebody else may have been faster
//	dir, err := lock.CheckpointDir()            // fetch into it
//	stage, err := lock.Stage()                  // convert into it
//	pack, err := lock.Commit(ctx, stage, record, progress)
//
// Its methods are not safe for concurrent use.
type Lock struct{}

// Lock takes the lock of a release. While somebody else holds it, waiting, unless
// nil, is called once, and the call blocks until ctx ends. Then it removes what
// killed processes have left behind anywhere in the store. Errors are [ErrUsage] for
// a name or version that breaks the rules, [ErrNotPermitted] for a store that cannot
// be written, and the cause of ctx.
func (s *Store) Lock(ctx context.Context, model, version string, waiting func()) (*Lock, error) {
	return nil, errors.ErrUnsupported
}

// CheckpointDir returns the folder for the release's source files, which it creates.
// What is in it stays from one pull to the next, so that a fetch can be resumed.
func (l *Lock) CheckpointDir() (string, error) { return "", errors.ErrUnsupported }

// RemoveCheckpoint deletes the release's source files, if there are any.
func (l *Lock) RemoveCheckpoint() error { return errors.ErrUnsupported }

// Stage creates an empty folder for a pack in the making. It is gone, with all in
// it, after [Lock.Unlock].
func (l *Lock) Stage() (string, error) { return "", errors.ErrUnsupported }

// Commit verifies the pack in a folder that [Lock.Stage] has made, moves it into the
// store with all files read-only, writes the record and returns the pack, open. A
// pack of the same digest that is in the store already stays, if it is undamaged.
//
// The record's Release must be the lock's; Pack, Plugin and Installed are filled in.
// When the release pins a pack digest, or the release was installed before from the
// same sources by the same plugin version, another digest is a [*PackDigestError]. On
// error the store is as it was.
func (l *Lock) Commit(ctx context.Context, stage string, r Record, progress Progress) (*Pack, error) {
	return nil, errors.ErrUnsupported
}

// Unlock removes the lock's staging folders and gives the lock up. A second call
// does nothing.
func (l *Lock) Unlock() error { return nil }
