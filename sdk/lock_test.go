package sdk_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// TestLockedPlugin pins the program of a plugin: neither a newer version nor another
// program of the same version takes its place.
func TestLockedPlugin(t *testing.T) {
	long(t)
	t.Parallel()
	home, models := t.TempDir(), tinyCatalog(t, "")
	file := filepath.Join(t.TempDir(), catalog.LockFile)
	open := func(opts ...sdk.Option) *sdk.Zoo {
		t.Helper()
		z, err := sdk.New(append(opts, sdk.WithHome(home), sdk.WithOffline(), sdk.WithCatalog(models))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = z.Close() })
		return z
	}
	refuses := func(what string, err error) {
		t.Helper()
		var locked *catalog.LockError
		if !errors.As(err, &locked) || !errors.Is(err, zoo.ErrIntegrity) || zoo.Hint(err) == "" {
			t.Errorf("%s: %v, want a LockError", what, err)
		}
	}
	free, bound := open(), open(sdk.WithLock(file))
	program := buildPlugin(t, "1.0.0")
	if _, err := free.InstallPluginFile(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	var lock catalog.Lock
	m, err := free.Lock(t.Context(), &lock, "tiny")
	if err != nil {
		t.Fatal(err)
	}
	want := catalog.LockedVersion{Name: "tinyfam", Version: "1.0.0"}
	if p := lock.Plugin("tinyfam", "1.0.0"); m.Plugin != want || p == nil || len(p.Programs) != 1 || p.Programs[0].OS != runtime.GOOS {
		t.Fatalf("locked %+v with plugins %+v", m, lock.Plugins)
	}
	if err := sdk.WriteLock(t.Context(), file, &lock); err != nil {
		t.Fatal(err)
	}
	if _, err := bound.Lock(t.Context(), &lock, "tiny"); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("to lock what is bound to a lock: %v, want zoo.ErrUsage", err)
	}

	// A newer version is for those who are not bound.
	newer := buildPlugin(t, "1.1.0")
	if _, err := free.InstallPluginFile(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	runner := func(z *sdk.Zoo) string {
		t.Helper()
		model, err := z.Open(t.Context(), "tiny", sdk.AllowUngated())
		if err != nil {
			t.Fatal(err)
		}
		defer model.Close()
		return model.Info().Plugin.Version
	}
	if a, b := runner(bound), runner(free); a != "1.0.0" || b != "1.1.0" {
		t.Errorf("run by %s under the lock and by %s without", a, b)
	}

	// What is installed has been made by the newer one since: the locked pack is made again.
	if _, err := free.Pull(t.Context(), "tiny"); err != nil {
		t.Fatal(err)
	}
	if _, err := bound.Verify(t.Context(), "tiny"); err == nil {
		t.Error("another pack than the locked one is found in order")
	} else {
		refuses("verify", err)
	}
	if v := runner(bound); v != "1.0.0" {
		t.Errorf("run by %s under the lock", v)
	}
	if v, err := bound.Verify(t.Context(), "tiny"); err != nil || v.Pack != m.Pack {
		t.Errorf("after it was opened: %+v, %v", v, err)
	}

	// Another program of the same version.
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), filepath.Base(program))
	if err := os.WriteFile(other, append(data, "more"...), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = bound.InstallPluginFile(t.Context(), other)
	refuses("install", err)
	if _, err := free.InstallPluginFile(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	_, err = bound.Open(t.Context(), "tiny")
	refuses("open", err)
	if e := findPlugin(t, bound, "1.0.0"); e.State != sdk.PluginUnusable || !strings.Contains(e.Why, catalog.LockFile) {
		t.Errorf("the other program is %+v", e)
	}
	if _, err := bound.InstallPluginFile(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	if v := runner(bound); v != "1.0.0" {
		t.Errorf("run by %s under the lock", v)
	}

	// A pack that another program of the same version has made is not locked with this one.
	var mixed catalog.Lock
	if _, err := free.RemovePlugin(t.Context(), "tinyfam@1.1.0"); err != nil {
		t.Fatal(err)
	}
	if _, err := free.InstallPluginFile(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if _, err := free.Lock(t.Context(), &mixed, "tiny"); !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(zoo.Hint(err), "zoo rm tiny") || len(mixed.Models) != 0 {
		t.Errorf("locked with another program: %v, %+v", err, mixed)
	}

	// The same version of another build.
	if _, err := free.RemovePlugin(t.Context(), "tinyfam@1.0.0"); err != nil {
		t.Fatal(err)
	}
	if _, err := free.InstallPluginFile(t.Context(), buildPlugin(t, "1.0.0+mine")); err != nil {
		t.Fatal(err)
	}
	_, err = bound.Open(t.Context(), "tiny")
	if !errors.Is(err, zoo.ErrNotFound) || !strings.Contains(zoo.Hint(err), "lock file") {
		t.Errorf("another build: %v, hint %q, want zoo.ErrNotFound", err, zoo.Hint(err))
	}
	if _, err := free.InstallPluginFile(t.Context(), program); err != nil {
		t.Fatal(err)
	}

	// A lock on a program for other machines says nothing about this one.
	lock.Plugins[0].Programs[0].OS = "plan9"
	if err := sdk.WriteLock(t.Context(), file, &lock); err != nil {
		t.Fatal(err)
	}
	_, err = open(sdk.WithLock(file)).Open(t.Context(), "tiny")
	refuses("another machine", err)
}

// TestUpdateLock has many processes' worth of writers change one file.
func TestUpdateLock(t *testing.T) {
	t.Parallel()
	home, dir := t.TempDir(), t.TempDir()
	kept := filepath.Join(dir, "kept.lock")
	file := filepath.Join(dir, catalog.LockFile)
	if err := sdk.WriteLock(t.Context(), kept, &catalog.Lock{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(kept, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kept, file); err != nil {
		t.Skip("no links here:", err)
	}
	const writers = 8
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			z, err := sdk.New(sdk.WithHome(home))
			if err == nil {
				err = z.UpdateLock(t.Context(), file, func(l *catalog.Lock) error {
					v := catalog.LockedVersion{Name: "p", Version: "1.0.0"}
					sum := strings.Repeat("0", 64)
					l.Set(catalog.LockedModel{
						Name: fmt.Sprintf("m%d", i), Version: "1.0.0", Plugin: v, Pack: catalog.Digest("sha256:" + sum),
						Source: catalog.LockedSource{Kind: catalog.KindEmbedded, Repository: "demo", Files: []catalog.File{{Path: "f", SHA256: sum}}},
					}, catalog.LockedPlugin{LockedVersion: v})
					return nil
				})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	l, err := sdk.ReadLock(file)
	if err != nil || len(l.Models) != writers {
		t.Errorf("%d writers have left %+v, %v", writers, l, err)
	}
	if info, err := os.Lstat(file); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}
	if info, err := os.Stat(kept); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file is now %v, %v", info, err)
	}
	failed := errors.New("not now")
	z, err := sdk.New(sdk.WithHome(home))
	if err != nil {
		t.Fatal(err)
	}
	if err := z.UpdateLock(t.Context(), file, func(l *catalog.Lock) error { l.Remove("m0"); return failed }); !errors.Is(err, failed) {
		t.Errorf("a change that fails: %v", err)
	}
	if l, err := sdk.ReadLock(file); err != nil || l.Model("m0") == nil {
		t.Errorf("after a change that failed: %+v, %v", l, err)
	}
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
	if got := sdk.FindLock(dir); got != file {
		t.Errorf("a link that leads nowhere is %q, want %q", got, file)
	}
	if err := sdk.WriteLock(t.Context(), file, &catalog.Lock{}); err == nil {
		t.Error("a link that leads nowhere is written through")
	}
}

func TestFindLock(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b", "c")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if file := sdk.FindLock(deep); strings.HasPrefix(file, root) {
		t.Errorf("without one: %q", file)
	}
	for _, dir := range []string{root, filepath.Join(root, "a", "b")} {
		file := filepath.Join(dir, catalog.LockFile)
		if err := sdk.WriteLock(t.Context(), file, &catalog.Lock{}); err != nil {
			t.Fatal(err)
		}
		if got := sdk.FindLock(deep); got != file {
			t.Errorf("got %q, want %q", got, file)
		}
	}
	if _, err := sdk.ReadLock(filepath.Join(root, "none")); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("no file: %v", err)
	}
	if _, err := sdk.ReadLock(root); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a folder: %v", err)
	}
}
