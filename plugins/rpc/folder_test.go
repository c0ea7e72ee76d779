package rpc

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// TestSweep removes what killed hosts have left, and nothing else.
func TestSweep(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	folder := func(name string, parts ...string) string {
		dir := filepath.Join(temp, name)
		err := os.Mkdir(dir, 0o700)
		for _, part := range parts {
			if part == folderLock {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, part), nil, 0o600))
			} else {
				err = errors.Join(err, os.Mkdir(filepath.Join(dir, part), 0o700))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	left := folder("plugin-dir1", folderLock, folderFiles)
	if err := os.WriteFile(filepath.Join(left, folderFiles, "large"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	folder("plugin-dir2")             // of another program
	folder("plugin-dir3", folderLock) // about to be claimed
	folder("other-dir4", folderLock, folderFiles)
	if runtime.GOOS != "windows" {
		aim := folder("aim", folderLock, folderFiles)
		if err := os.Symlink(aim, filepath.Join(temp, "plugin-dir5")); err != nil {
			t.Fatal(err)
		}
	}
	held, err := claim(folder("plugin-dir6"))
	if err != nil {
		t.Fatal(err)
	}
	sweep(temp)
	list, err := filepath.Glob(filepath.Join(temp, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		list[i] = filepath.Base(list[i])
	}
	for _, name := range []string{"plugin-dir2", "plugin-dir3", "other-dir4", "plugin-dir6"} {
		if !slices.Contains(list, name) {
			t.Errorf("%s is gone", name)
		}
	}
	if runtime.GOOS != "windows" && (!slices.Contains(list, "plugin-dir5") || !slices.Contains(list, "aim")) {
		t.Error("a link was followed")
	}
	if slices.Contains(list, "plugin-dir1") {
		t.Error("the folder of a host that is gone was left")
	}
	held.remove()
	if _, err := os.Stat(held.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that was removed is still there: %v", err)
	}
}
