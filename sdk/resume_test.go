package sdk_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// programHub serves the program of a plugin, as a hub does, whole or up to its middle.
type programHub struct {
	mu      sync.Mutex
	program []byte
	cut     bool
	// ranges are the ranges that were asked for, and sent counts the bytes of the program.
	ranges []string
	sent   int64
}

// set changes what the hub does, and forgets what it has done.
func (h *programHub) set(program []byte, cut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.program, h.cut, h.ranges, h.sent = program, cut, nil, 0
}

// done returns the ranges that were asked for, and the bytes that were sent.
func (h *programHub) done() ([]string, int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ranges, h.sent
}

// Write counts bytes that are sent.
func (h *programHub) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent += int64(len(p))
	return len(p), nil
}

// counted is an answer whose bytes are counted.
type counted struct {
	http.ResponseWriter
	hub *programHub
}

// Write implements io.Writer.
func (c counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	_, _ = c.hub.Write(p[:n]) // it counts
	return n, err
}

// ServeHTTP implements http.Handler.
func (h *programHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.ranges = append(h.ranges, r.Header.Get("Range"))
	program, cut, first := h.program, h.cut, len(h.ranges) == 1
	h.mu.Unlock()
	w = counted{w, h}
	if cut && !first {
		w.Header().Set("Retry-After", "86400")
		http.Error(w, "gateway timeout", http.StatusGatewayTimeout)
		return
	}
	w.Header().Set("X-Repo-Commit", strings.Repeat("a", 40))
	w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(program)))
	if cut {
		w.Header().Set("Content-Length", fmt.Sprint(len(program)))
		_, _ = w.Write(program[:len(program)/2])
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, "program", time.Time{}, bytes.NewReader(program))
}

// resumeCatalog writes a signed catalog with a program as version 1.0.0 of the plugin of
// tests, and returns the options that take it.
func resumeCatalog(t *testing.T, program []byte) []sdk.Option {
	t.Helper()
	file := tinyCatalog(t, fmt.Sprintf(`plugins:
  - name: tinyfam
    title: A family of tests
    licence: {spdx: MIT, url: "https://example.org/licence"}
    versions:
      - version: 1.0.0
        protocol: 1
        operations: 1
        binaries:
          - os: %s
            arch: %s
            source: {kind: hub, repository: makers/tinyfam, revision: main, files: [{path: bin/tinyfam, size: %d, sha256: "%x"}]}
`, runtime.GOOS, runtime.GOARCH, len(program), sha256.Sum256(program)))
	return []sdk.Option{sdk.WithCatalog(file), signed(t, file)}
}

// TestInstallResumed cuts the download of a plugin, and checks that the next installation
// fetches what is missing.
func TestInstallResumed(t *testing.T) {
	long(t)
	t.Parallel()
	program, err := os.ReadFile(buildPlugin(t, "1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(buildPlugin(t, "1.0.0 -X main.title=Another"))
	if err != nil {
		t.Fatal(err)
	}
	half := int64(len(program) / 2)
	rest := fmt.Sprintf("bytes=%d-", half)
	tests := map[string]struct {
		// between is done between the cut and the second installation, of want.
		between func(t *testing.T, z *sdk.Zoo, part string)
		want    []byte
		ranges  []string
		sent    int64
	}{
		"cut": {func(*testing.T, *sdk.Zoo, string) {}, program, []string{rest}, int64(len(program)) - half},
		"damaged": {func(t *testing.T, _ *sdk.Zoo, part string) { invert(t, part) }, program,
			[]string{rest, ""}, 2*int64(len(program)) - half},
		"complete, and not installed": {func(t *testing.T, _ *sdk.Zoo, part string) {
			if err := errors.Join(os.WriteFile(strings.TrimSuffix(part, ".part"), program, 0o600), os.Remove(part)); err != nil {
				t.Fatal(err)
			}
		}, program, nil, 0},
		"another program of the version": {func(*testing.T, *sdk.Zoo, string) {}, other, []string{""}, int64(len(other))},
		"removed": {func(t *testing.T, z *sdk.Zoo, part string) {
			if c, err := z.RemovePlugin(t.Context(), "tinyfam"); err != nil || c.Plugin.Name != "tinyfam" || c.Plugin.Version != "1.0.0" || c.Moves != nil {
				t.Errorf("removed %+v, %v", c, err)
			}
			if _, err := os.Stat(filepath.Join(z.Home(), "plugins", "tinyfam")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("left after the removal: %v", err)
			}
			if _, err := z.RemovePlugin(t.Context(), "tinyfam"); !errors.Is(err, zoo.ErrNotFound) {
				t.Errorf("removed twice: %v", err)
			}
		}, program, []string{""}, int64(len(program))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := &programHub{}
			server := httptest.NewServer(hub)
			defer server.Close()
			home := t.TempDir()
			open := func(program []byte) *sdk.Zoo {
				z, err := sdk.New(append(resumeCatalog(t, program), sdk.WithHome(home), sdk.WithEndpoint(server.URL))...)
				if err != nil {
					t.Fatal(err)
				}
				return z
			}
			z := open(program)
			hub.set(program, true)
			if _, err := z.InstallPlugin(t.Context(), "tinyfam"); !errors.Is(err, zoo.ErrNetwork) {
				t.Fatalf("cut: %v", err)
			}
			if e := findPlugin(t, z, "1.0.0"); e.State != sdk.PluginAvailable {
				t.Errorf("after the cut: %+v", e)
			}
			versions := filepath.Join(home, "plugins", "tinyfam")
			part := filepath.Join(versions, ".fetched", "1.0.0", fmt.Sprintf("%x", sha256.Sum256(program)), "bin", "tinyfam.part")
			if info, err := os.Stat(part); err != nil || info.Size() != half {
				t.Fatalf("the part: %v", err)
			}

			test.between(t, z, part)
			hub.set(test.want, false)
			z = open(test.want)
			p, err := z.InstallPlugin(t.Context(), "tinyfam")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(p.Plugin.Path); err != nil || !bytes.Equal(got, test.want) {
				t.Errorf("the program has %d bytes, want %d: %v", len(got), len(test.want), err)
			}
			ranges, sent := hub.done()
			if fmt.Sprintf("%q", ranges) != fmt.Sprintf("%q", test.ranges) || sent != test.sent {
				t.Errorf("asked for %q and was sent %d bytes, want %q and %d", ranges, sent, test.ranges, test.sent)
			}
			if left, err := os.ReadDir(versions); err != nil || len(left) != 1 || left[0].Name() != "1.0.0" {
				t.Errorf("left behind: %v, %v", left, err)
			}

			// What a killed process has left of the same version goes, too.
			if err := os.MkdirAll(filepath.Dir(part), 0o700); err != nil {
				t.Fatal(err)
			}
			if again, err := z.InstallPlugin(t.Context(), "tinyfam"); err != nil || !p.Fresh || again.Fresh {
				t.Errorf("installed %+v, then %+v: %v", p, again, err)
			}
			if left, err := os.ReadDir(versions); err != nil || len(left) != 1 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			if err := z.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
