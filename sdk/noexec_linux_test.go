package sdk_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// TestInstallNoExec checks what is said where programs of the store cannot be started.
func TestInstallNoExec(t *testing.T) {
	long(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	remount := func(flags uintptr) {
		t.Helper()
		if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	z, err := sdk.New(sdk.WithHome(filepath.Join(dir, "home")), sdk.WithOffline(), sdk.WithCatalog(tinyCatalog(t, "")))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	program := buildPlugin(t, "1.0.0")
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, zoo.ErrNotPermitted) || !strings.Contains(zoo.Hint(err), "noexec") {
			t.Errorf("%s: %v, hint %q", what, err, zoo.Hint(err))
		}
	}
	remount(syscall.MS_NOEXEC)
	_, err = z.InstallPluginFile(t.Context(), program)
	refused("install", err)
	if left, err := os.ReadDir(filepath.Join(dir, "home", "plugins", "tinyfam")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	remount(0)
	if _, err := z.InstallPluginFile(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	remount(syscall.MS_NOEXEC)
	_, err = z.InstallPluginFile(t.Context(), program)
	refused("install again", err)
	_, err = z.Pull(t.Context(), "tiny")
	refused("pull", err)
}
