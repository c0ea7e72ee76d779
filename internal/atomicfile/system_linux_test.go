package atomicfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// asNobody runs the rest of the test's goroutine with the file permissions of an
// ordinary user, also when the test runs as root.
func asNobody(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	runtime.LockOSThread()
	if err := syscall.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setfsuid(0); err != nil {
			t.Fatal(err)
		}
		runtime.UnlockOSThread()
	})
}

func TestReadOnlyFolder(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, map[string]string{"a": "old", "tmp/x": "new", atomicfile.TempPrefix + "x": "stale"})
	before := tree(t, dir)
	// The folder above is closed to others, else they would not get this far.
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o555)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	operations := map[string]func() error{
		"write": func() error {
			return atomicfile.WriteFile(t.Context(), filepath.Join(dir, "a"), []byte("x"), atomicfile.Options{})
		},
		"temporary folder": func() error { _, err := atomicfile.MkdirTemp(dir); return err },
		"commit folder": func() error {
			return atomicfile.CommitDir(filepath.Join(dir, "tmp"), filepath.Join(dir, "final"), atomicfile.DirOptions{})
		},
		"clean": func() error { _, err := atomicfile.CleanTemps(dir, 0); return err },
	}
	asNobody(t)
	for name, operation := range operations {
		err := operation()
		var refused *atomicfile.PermissionError
		if !errors.Is(err, fault.ErrNotPermitted) || !errors.As(err, &refused) || fault.Hint(err) == "" {
			t.Errorf("%s: error %v, want fault.ErrNotPermitted with a hint", name, err)
		}
	}
	if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
		t.Errorf("folder (-want +got):\n%s", diff)
	}
}

func TestFullDevice(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full:", err)
	}
	defer f.Close()
	_, err = f.Write([]byte("x"))
	if err := atomicfile.MapError("/dev/full", err); !errors.Is(err, fault.ErrNoSpace) {
		t.Errorf("error %v, want fault.ErrNoSpace", err)
	}
}

func TestWindowsCodes(t *testing.T) {
	tests := []struct {
		code syscall.Errno
		want error
	}{
		{112, fault.ErrNoSpace}, // disk full
		{39, fault.ErrNoSpace},  // handle disk full
		{1295, fault.ErrNoSpace},
		{19, fault.ErrNotPermitted}, // write protected
	}
	for _, test := range tests {
		err := &os.PathError{Op: "write", Path: "p", Err: test.code}
		if got := atomicfile.MapErrorAs("p", err, true); !errors.Is(got, test.want) {
			t.Errorf("code %d on windows: %v, want %v", test.code, got, test.want)
		}
		if got := atomicfile.MapErrorAs("p", err, false); got != error(err) {
			t.Errorf("code %d elsewhere: %v", test.code, got)
		}
	}
}
