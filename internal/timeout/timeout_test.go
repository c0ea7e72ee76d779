package timeout_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/zoo-sdk/zoo/internal/timeout"
)

// TestDeadline meets one deadline, and misses another.
func TestDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		after := time.Duration(0)
		met := timeout.Deadline(time.Second, func() { after = time.Since(begin) })
		time.Sleep(999 * time.Millisecond)
		for range 2 {
			if !met() || after != 0 {
				t.Errorf("a deadline that was met was late after %v", after)
			}
		}
		begin = time.Now()
		met = timeout.Deadline(time.Second, func() { after = time.Since(begin) })
		time.Sleep(time.Minute)
		for range 2 {
			if met() || after != time.Second {
				t.Errorf("a deadline of a second was late after %v", after)
			}
		}
	})
}

// TestWithin waits for what comes in time, comes too late, and was there before.
func TestWithin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after time.Duration // of which done is closed
		want  bool
		waits time.Duration
	}{
		"before":   {0, true, 0},
		"in time":  {950 * time.Millisecond, true, 950 * time.Millisecond},
		"too late": {1100 * time.Millisecond, false, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				done := make(chan struct{})
				if c.after == 0 {
					close(done)
				} else {
					time.AfterFunc(c.after, func() { close(done) })
				}
				begin := time.Now()
				if got := timeout.Within(done, time.Second); got != c.want || time.Since(begin) != c.waits {
					t.Errorf("%t after %v, want %t after %v", got, time.Since(begin), c.want, c.waits)
				}
				time.Sleep(c.after) // for the timer, which would be left
			})
		})
	}
}
