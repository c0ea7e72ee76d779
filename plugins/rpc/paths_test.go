package rpc_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/plugins/rpc"
	"github.com/zoo-sdk/zoo/zoo"
)

// TestRelativePath names a program in the folder of the host. Another one of that name,
// which a shell would find, is not run, nor one in the folder that the host goes to.
func TestRelativePath(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("programs have another name there")
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	here, elsewhere := t.TempDir(), t.TempDir()
	if err := os.Symlink(path, filepath.Join(here, "plugin")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(elsewhere, "plugin"), []byte("#!/bin/sh\necho another program >&2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", elsewhere)
	t.Chdir(here)
	c, _ := start(t, "plain", func(o *rpc.Options) { o.Path, o.SHA256 = "plugin", hex.EncodeToString(sum[:]) })
	above, _ := start(t, "plain", func(o *rpc.Options) { o.Path = filepath.Join("..", filepath.Base(here), "plugin") })
	none, _ := start(t, "plain", func(o *rpc.Options) { o.Path = "" })
	t.Chdir(elsewhere)
	works(t, c)
	works(t, above)
	if _, err := none.Describe(t.Context()); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("no path: %v", err)
	}
}

// shortDir is t.TempDir for folders that sockets are put into: their paths must be short,
// and on macOS that of the system's temporary folder is long.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "z")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestTempDir names the folder for temporary files in other ways than that in which it is
// compared.
func TestTempDir(t *testing.T) {
	temp := shortDir(t)
	t.Chdir(filepath.Dir(temp))
	t.Setenv("TMPDIR", temp+"//.")
	for name, dir := range map[string]string{"of the system": "", "not clean": temp + "/./", "relative": filepath.Base(temp)} {
		c, _ := start(t, "plain", func(o *rpc.Options) { o.TempDir = dir })
		if _, err := c.Describe(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := filepath.Join(temp, strings.Repeat("x", 60))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	c, _ := start(t, "plain", func(o *rpc.Options) { o.TempDir = long })
	if _, err := c.Describe(t.Context()); !errors.Is(err, zoo.ErrUsage) || !strings.Contains(zoo.Hint(err), "TMPDIR") {
		t.Errorf("a long path: %v", err)
	}
	if left, err := os.ReadDir(long); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
