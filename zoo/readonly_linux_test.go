package zoo_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// A store that cannot be written can be read, and says what it cannot do.
func TestReadOnlyStore(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs a second user")
	}
	const nobody = 65534
	s, _ := newStore(t)
	p, err := pull(t.Context(), s, testRelease("tiny", "1.0.0"), packSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WriteReceipt(t.Context(), p, testReceipt()); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(s.Home(), "state", "stamps")); err != nil {
		t.Fatal(err)
	}
	// The other user must get at the store, at a store of its own, and at this binary.
	parent := filepath.Dir(s.Home())
	for _, dir := range []string{parent, filepath.Dir(parent)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(parent, "own"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(parent, "own"), nobody, nobody); err != nil {
		t.Skip(err)
	}
	cmd := taskCommand(t.Context(), t, "read only", s.Home(), "")
	exe := filepath.Join(parent, "zoo.test")
	// Copied by another process: a file that this one writes stays open in what
	// it starts meanwhile, and cannot be run until that has begun.
	if err := exec.Command("cp", cmd.Path, exe).Run(); err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args[0], cmd.Dir = exe, exe, parent
	cmd.Env = append(cmd.Env, "GOCOVERDIR="+filepath.Join(parent, "own")) // where coverage is measured
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, os.ErrPermission) {
		t.Skip(err)
	}
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// A full device is told from other failures, before the work where that can be foreseen.
func TestNoSpace(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	writer := func(name string) *zoo.PackWriter {
		stage := filepath.Join(dir, name)
		if err := os.Mkdir(stage, 0o755); err != nil {
			t.Fatal(err)
		}
		w, err := zoo.NewPackWriter(stage, testPlugin, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		return w
	}
	tensor := zoo.PlannedTensor{Name: "a", Matrix: quant.Matrix{Format: quant.F32, Layout: quant.Rows, Rows: 1, Cols: 2 << 20}}
	if err := writer("foreseen").Plan([]zoo.PlannedTensor{tensor}); !errors.Is(err, zoo.ErrNoSpace) || zoo.Hint(err) == "" {
		t.Errorf("plan: %v", err)
	}
	tensor.Cols = 1 << 20
	w := writer("sudden")
	if err := w.Plan([]zoo.PlannedTensor{tensor}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	err := w.WriteTensor("a", func(out io.Writer) error { _, err := out.Write(make([]byte, tensor.SizeBytes())); return err })
	if !errors.Is(err, zoo.ErrNoSpace) || zoo.Hint(err) == "" {
		t.Errorf("write: %v", err)
	}
	if _, ferr := w.Finish(t.Context()); !errors.Is(ferr, zoo.ErrNoSpace) {
		t.Errorf("finish: %v", ferr)
	}
	if err := writer("file").WriteFile("big", make([]byte, 3<<20)); !errors.Is(err, zoo.ErrNoSpace) {
		t.Errorf("file: %v", err)
	}
	// A pack that is sound opens from a device without room for stamps.
	s, log := storeAt(t, filepath.Join(dir, "home"))
	pack, _ := buildPack(t, packSpec{})
	if read, err := opened(t, s, pack); !read || err != nil || !strings.Contains(log(), "verified again each time") {
		t.Errorf("open: %v, %v, %s", read, err, log())
	}
}
