package sdk

import (
	"sync"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
)

// Events are callbacks that are told what a long call is doing. Each may be nil.
// They are called one at a time and should return quickly: the work waits.
type Events struct {
	// Resolved tells which release a name stands for, once it is clear that
	// something has to be done for it.
	Resolved func(r catalog.Release)
	// Waiting tells that another process works on the same release, and that this
	// call goes on when that one has finished.
	Waiting func(model, version string)
	// Download tells of one file that is being fetched.
	Download func(e download.Event)
	// Convert tells how many source bytes have been converted.
	Convert func(doneBytes, totalBytes int64)
	// Verify tells how many bytes of what, such as "pack", have been read and checked.
	Verify func(what string, doneBytes, totalBytes int64)
	// Gate tells how far a gate has come, in steps of the named stage.
	Gate func(stage string, done, total int)
	// Synthesize tells how many bytes of random weights have been made.
	Synthesize func(doneBytes, totalBytes int64)
	// Bench tells how far a benchmark has come, in rounds of the named stage. None
	// of its calls falls into a time that is measured.
	Bench func(stage string, done, total int)
	// Notice passes on one sentence that the user should see.
	Notice func(text string)
}

// serial returns events of which none is nil and no two run at once.
func (e Events) serial() Events {
	mu := new(sync.Mutex)
	return Events{
		Resolved:   serial1(mu, e.Resolved),
		Waiting:    serial2(mu, e.Waiting),
		Download:   serial1(mu, e.Download),
		Convert:    serial2(mu, e.Convert),
		Verify:     serial3(mu, e.Verify),
		Gate:       serial3(mu, e.Gate),
		Synthesize: serial2(mu, e.Synthesize),
		Bench:      serial3(mu, e.Bench),
		Notice:     serial1(mu, e.Notice),
	}
}

func serial1[A any](mu *sync.Mutex, f func(A)) func(A) {
	if f == nil {
		return func(A) {}
	}
	return func(a A) {
		mu.Lock()
		defer mu.Unlock()
		f(a)
	}
}

func serial2[A, B any](mu *sync.Mutex, f func(A, B)) func(A, B) {
	if f == nil {
		return func(A, B) {}
	}
	return func(a A, b B) {
		mu.Lock()
		defer mu.Unlock()
		f(a, b)
	}
}

func serial3[A, B, C any](mu *sync.Mutex, f func(A, B, C)) func(A, B, C) {
	if f == nil {
		return func(A, B, C) {}
	}
	return func(a A, b B, c C) {
		mu.Lock()
		defer mu.Unlock()
		f(a, b, c)
	}
}

// isZero reports whether no callback is set.
func (e Events) isZero() bool {
	return e.Resolved == nil && e.Waiting == nil && e.Download == nil && e.Convert == nil &&
		e.Verify == nil && e.Gate == nil && e.Synthesize == nil && e.Bench == nil && e.Notice == nil
}
