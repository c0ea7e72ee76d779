//go:build unix

package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// TestInstallStarts checks that a plugin is installed only if it starts where it then lies.
func TestInstallStarts(t *testing.T) {
	long(t)
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script")
	text := fmt.Sprintf("#!/bin/sh\ncase $0 in */plugins/*) exit 7;; esac\nexec %s\n", buildPlugin(t, "1.0.0"))
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	z, err := sdk.New(sdk.WithHome(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.InstallPluginFile(t.Context(), script); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("installed: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(z.Home(), "plugins", "tinyfam")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestStartInterrupted checks that nothing is said of a plugin whose start was interrupted.
func TestStartInterrupted(t *testing.T) {
	t.Parallel()
	home, log := t.TempDir(), &journal{}
	begun := filepath.Join(t.TempDir(), "begun")
	s, err := zoo.OpenStore(home, nil)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := s.LockPlugin(t.Context(), "tinyfam", nil)
	if err != nil {
		t.Fatal(err)
	}
	// It waits for the end of its input, which comes with its own.
	text := []byte("#!/bin/sh\n: > " + begun + "\nread line\n")
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	r := zoo.PluginRecord{
		Name: "tinyfam", Version: "1.0.0", Title: "t", Operations: 1, Protocol: 1, OS: runtime.GOOS, Arch: runtime.GOARCH,
		SHA256: catalog.DigestOf(text).Hex(), SizeBytes: int64(len(text)), Origin: "a test",
	}
	if _, err := lock.Install(t.Context(), file, r, func(string, *zoo.PluginRecord) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	// The error of this one, which is not started, would come first.
	pretend(t, home, "1.1.0", func(r *zoo.PluginRecord) { r.Protocol = 99 })
	z, err := sdk.New(sdk.WithHome(home), sdk.WithOffline(), sdk.WithCatalog(tinyCatalog(t, "")), sdk.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	stop := errors.New("stopped by the test")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(begun); err == nil {
				cancel(stop)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := z.Pull(ctx, "tiny"); !errors.Is(err, stop) {
		t.Errorf("pulled: %v", err)
	}
	if log.has("passing over") {
		t.Errorf("logged\n%s", &log.b)
	}
}
