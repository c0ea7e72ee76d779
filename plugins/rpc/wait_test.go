package rpc

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestDeadline meets one deadline, and misses another.
func TestDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		after := time.Duration(0)
		met := deadline(time.Second, func() { after = time.Since(begin) })
		time.Sleep(999 * time.Millisecond)
		for range 2 {
			if !met() || after != 0 {
				t.Errorf("a deadline that was met was late after %v", after)
			}
		}
		begin = time.Now()
		met = deadline(time.Second, func() { after = time.Since(begin) })
		time.Sleep(time.Minute)
		for range 2 {
			if met() || after != time.Second {
				t.Errorf("a deadline of a second was late after %v", after)
			}
		}
	})
}
