package metaltest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
)

// TestCache keeps what is compiled, and not for ever.
func TestCache(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	// list returns when the files of the cache were last used.
	list := func() map[string]time.Time {
		all := map[string]time.Time{}
		paths, err := filepath.Glob(filepath.Join(dir, "zoo-metaltest", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			info, err := os.Stat(p)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Ext(p) != ".lock" {
				all[p] = info.ModTime()
			}
		}
		return all
	}
	b := load(t, metaltest.Options{}, helpers, "add")
	first := list()
	if len(first) != 4 {
		t.Fatalf("the cache has %v, and not the runner, the kernel, the program and that the source is in order", first)
	}
	// All are used again, however old they are.
	old := time.Now().Add(-30 * 24 * time.Hour)
	for p := range first {
		if err := os.Chtimes(p, old, old); err != nil {
			t.Fatal(err)
		}
	}
	load(t, metaltest.Options{}, helpers, "add")
	for p, used := range list() {
		if time.Since(used) > time.Hour {
			t.Errorf("%s was not used", p)
		}
		if _, ok := first[p]; !ok {
			t.Errorf("%s is new", p)
		}
	}
	// What is new drives out what is old.
	stale := filepath.Join(dir, "zoo-metaltest", "stale")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(stale, old, old); err != nil {
		t.Fatal(err)
	}
	load(t, metaltest.Options{}, helpers, "copy")
	if _, err := os.Stat(stale); err == nil {
		t.Error("what is old is kept")
	}
	if got := len(list()); got != 6 {
		t.Errorf("the cache has %d files", got)
	}
	// A device does not need the cache any more.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := b.run(add(b.buffer(64))); err != nil {
		t.Error(err)
	}
}

// TestCacheFolder keeps what is compiled among temporary files where it cannot lie among
// the user's, and nowhere where others could put a program in its place.
func TestCacheFolder(t *testing.T) {
	for name, c := range map[string]struct {
		perm   fs.FileMode // of the folder among temporary files, 0 for none yet
		danger bool
	}{
		"none yet":  {0, false},
		"its own":   {0o700, false},
		"of others": {0o777, true},
	} {
		t.Run(name, func(t *testing.T) {
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			blocked := filepath.Join(temp, "blocked")
			if err := os.WriteFile(blocked, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("XDG_CACHE_HOME", blocked)
			dir := filepath.Join(temp, fmt.Sprintf("zoo-metaltest-%d", os.Getuid()))
			if c.perm != 0 {
				if err := errors.Join(os.Mkdir(dir, c.perm), os.Chmod(dir, c.perm)); err != nil {
					t.Fatal(err)
				}
			}
			err := open(t, metaltest.Options{}).device.Load(t.Context(), head+helpers, []string{"add"})
			made, _ := os.ReadDir(dir)
			if c.danger && (!errors.Is(err, fs.ErrPermission) || len(made) > 0) || !c.danger && (err != nil || len(made) == 0) {
				t.Errorf("%v, with %d files", err, len(made))
			}
		})
	}
}

// TestRequire runs itself where there is no compiler.
func TestRequire(t *testing.T) {
	if os.Getenv("METALTEST_NO_COMPILER") != "" {
		metaltest.Require(t)
		t.Fatal("there is a compiler")
	}
	for _, c := range []struct {
		require, want string
		fails         bool
	}{
		{"", "SKIP: TestRequire", false},
		{"1", "FAIL: TestRequire", true},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRequire$", "-test.v")
		cmd.Env = []string{"METALTEST_NO_COMPILER=1", "PATH=", "ZOO_REQUIRE_CLANG=" + c.require, "HOME=" + t.TempDir()}
		out, err := cmd.CombinedOutput()
		if (err != nil) != c.fails || !strings.Contains(string(out), c.want) || !strings.Contains(string(out), "no clang++ of version 16 or later") {
			t.Errorf("ZOO_REQUIRE_CLANG=%s: %v\n%s", c.require, err, out)
		}
	}
}
