package rpc_test

import (
	"errors"
	"os"
	"testing"
)

// TestSignal kills a process through its client.
func TestSignal(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain")
	if c.Running() {
		t.Error("it runs before the first call")
	}
	if err := c.Signal(os.Kill); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("before the first call: %v", err)
	}
	works(t, c)
	if !c.Running() {
		t.Error("it does not run after a call")
	}
	if err := c.Signal(os.Kill); err != nil {
		t.Error(err)
	}
	works(t, c)
	_ = c.Close()
	if c.Running() {
		t.Error("it runs after Close")
	}
	if err := c.Signal(os.Kill); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("after Close: %v", err)
	}
}
