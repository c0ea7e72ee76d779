package rpc

import (
	"sync"
	"time"
)

// waitSlices is how many pieces a wait is cut into.
const waitSlices = 10

// within reports whether done is closed within d. It waits in slices, so that a machine
// that stands still for a while, as a virtual one does now and then, takes one slice of the
// time and not all of it: those who are waited for stood still, too.
func within(done <-chan struct{}, d time.Duration) bool {
	for range waitSlices {
		select {
		case <-done:
			return true
		case <-time.After(d / waitSlices):
		}
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// deadline calls late once d has passed, as [within] counts it, unless the function that it
// returns is called before, which reports whether that was so. Late has then returned.
func deadline(d time.Duration, late func()) (met func() bool) {
	done, ended := make(chan struct{}), make(chan bool, 1)
	go func() {
		in := within(done, d)
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
