package zoo_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/zoo-sdk/zoo/zoo"
)

// TestPluginFetchedStays checks that what was fetched and cannot be removed keeps nothing
// from being installed.
func TestPluginFetchedStays(t *testing.T) {
	var log strings.Builder
	s, err := zoo.OpenStore(t.TempDir(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	busy := filepath.Join(s.Home(), "plugins", "fam", ".fetched", "1.0.0", "busy")
	if err := os.MkdirAll(busy, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", busy, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(busy, 0); err != nil {
			t.Error(err)
		}
	})
	for range 2 { // the second finds it installed
		log.Reset()
		if _, err := installPlugin(s, t.TempDir(), "fam", "1.0.0", "program"); err != nil || !strings.Contains(log.String(), "cannot remove what was fetched") {
			t.Errorf("%v, logged %q", err, log.String())
		}
	}
}
