package filelock_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/filelock"
)

func TestReadOnlyFolder(t *testing.T) {
	dir := t.TempDir()
	// The folder above is closed to others, else they would not get this far.
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o555)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := syscall.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Setfsuid(0); err != nil {
				t.Fatal(err)
			}
		}()
	}
	_, err := filelock.Acquire(t.Context(), filepath.Join(dir, "lock"), nil)
	if !errors.Is(err, fault.ErrNotPermitted) || fault.Hint(err) == "" {
		t.Errorf("error %v, want fault.ErrNotPermitted with a hint", err)
	}
}
