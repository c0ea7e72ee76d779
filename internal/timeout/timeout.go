// Package timeout waits for a time in slices. A machine that stands still for a while, as
// a virtual one does now and then, then takes one slice of the time and not all of it:
// those who are waited for stood still, too.
package timeout

import (
	"sync"
	"time"
)

// slices is how many pieces a time is cut into.
const slices = 10

// Within reports whether done is closed within d.
func Within(done <-chan struct{}, d time.Duration) bool {
	for range slices {
		select {
		case <-done:
			return true
		case <-time.After(d / slices):
		}
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Deadline calls late once d has passed, unless the function that it returns is called
// before, which reports whether that was so. Late has then returned. That function is to
// be called; it may be called again.
func Deadline(d time.Duration, late func()) (met func() bool) {
	done, ended := make(chan struct{}), make(chan bool, 1)
	go func() {
		in := Within(done, d)
		if !in {
			late()
		}
		ended <- in
	}()
	return sync.OnceValue(func() bool {
		close(done)
		return <-ended
	})
}
