package rpc

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

// TestHungUpBefore hangs up before the program has started, as between two tries while it is
// busy: it is not started any more.
func TestHungUpBefore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := newChild(Options{Path: filepath.Join(dir, "missing")}, &folder{files: dir}, nil, &logbook{})
	c.hangUp()
	if err := c.Start(t.Context()); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is started: %v", err)
	}
	<-c.exited
	<-c.drained
}
