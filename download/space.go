package download

import (
	"sync"

	"github.com/zoo-sdk/zoo/internal/atomicfile"
)

// ledger keeps account of the bytes that are still to be written by all files of one
// Fetch, so that together they do not promise more than the device has left.
type ledger struct {
	dir  string
	free func(dir string) (int64, error)

	mu          sync.Mutex
	outstanding int64
}

// reservation is the part of a ledger that belongs to one file. It is used by one
// goroutine at a time.
type reservation struct {
	ledger *ledger
	left   int64
}

// plan reserves room for several files at once, or returns a SpaceError with the sum.
func (l *ledger) plan(needs []int64) ([]*reservation, error) {
	sum := int64(0)
	for _, n := range needs {
		sum += n
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(sum); err != nil {
		return nil, err
	}
	l.outstanding += sum
	reservations := make([]*reservation, len(needs))
	for i, n := range needs {
		reservations[i] = &reservation{l, n}
	}
	return reservations, nil
}

// check compares what is free with what is outstanding and more. A device that does
// not tell passes: writing will show.
func (l *ledger) check(more int64) error {
	if l.outstanding+more <= 0 {
		return nil
	}
	free, err := l.free(l.dir)
	if err != nil || free >= l.outstanding+more {
		return nil
	}
	return &atomicfile.SpaceError{Path: l.dir, NeedBytes: l.outstanding + more, FreeBytes: free}
}

// set changes the reservation to the bytes that are now still to be written.
func (r *reservation) set(need int64) error {
	l := r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if more := need - r.left; more > 0 {
		if err := l.check(more); err != nil {
			return err
		}
	}
	l.outstanding += need - r.left
	r.left = need
	return nil
}

// spend notes that n bytes have been written.
func (r *reservation) spend(n int64) {
	n = min(n, r.left)
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.ledger.outstanding -= n
	r.left -= n
}
