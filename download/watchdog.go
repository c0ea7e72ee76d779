package download

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errStalled is the cause with which a watchdog cancels.
var errStalled = errors.New("nothing arrived")

// watchdog cancels a context when a wait takes too long. Only waits for the origin
// count: it is armed around them, not while the disk is written.
type watchdog struct {
	timer   *time.Timer // nil: never
	timeout time.Duration
	cancel  context.CancelCauseFunc
}

// newWatchdog returns a context that the watchdog cancels, and the watchdog, not armed
// yet. A timeout of 0 never cancels. The caller calls stop.
func newWatchdog(ctx context.Context, timeout time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{timeout: timeout, cancel: cancel}
	if timeout > 0 {
		w.timer = time.AfterFunc(timeout, func() {
			cancel(fmt.Errorf("%w for %s", errStalled, timeout))
		})
		w.timer.Stop()
	}
	return ctx, w
}

// arm starts a wait.
func (w *watchdog) arm() {
	if w.timer != nil {
		w.timer.Reset(w.timeout)
	}
}

// disarm ends a wait.
func (w *watchdog) disarm() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// stop ends the watch and releases the context.
func (w *watchdog) stop() {
	w.disarm()
	w.cancel(context.Canceled)
}
