package download_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// survey surveys the two files of a hub, and one that it does not have.
func survey(t *testing.T, h *hub, dir string, more ...download.Origin) ([]download.Found, string) {
	t.Helper()
	list, revision, err := download.Survey(t.Context(), download.Request{
		Source:  hubSource("main", catalog.File{Path: "config.json"}, catalog.File{Path: "m.safetensors"}, catalog.File{Path: "index.json", Optional: true}),
		Origins: append(more, h.origin()), Dir: dir, StallTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return list, revision
}

// errorsAs compares errors by the kind that both are of.
var errorsAs = cmp.Comparer(func(a, b error) bool { return errors.Is(a, b) || errors.Is(b, a) })

// The hub is asked for headers only, and not even for those of the host that it redirects to.
func TestSurveyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHub()
		dir := filepath.Join(t.TempDir(), "new")
		name := h.origin().Name()
		want := []download.Found{
			{File: catalog.File{Path: "config.json", SizeBytes: 700}, Origin: name, Network: true},
			{File: catalog.File{Path: "m.safetensors", SizeBytes: bigSize}, Origin: name, Network: true},
			{File: catalog.File{Path: "index.json", Optional: true}, Err: fault.ErrNotFound},
		}
		got, revision := survey(t, h, dir)
		if diff := cmp.Diff(want, got, errorsAs); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if revision != commitA {
			t.Errorf("revision %q", revision)
		}
		asked := map[string]string{}
		for _, r := range h.asked() {
			asked[r.URL.Path] += r.Method
		}
		if diff := cmp.Diff(map[string]string{
			"/owner/name/resolve/main/config.json":              "HEAD",
			"/owner/name/resolve/" + commitA + "/m.safetensors": "HEAD",
			"/owner/name/resolve/" + commitA + "/index.json":    "HEAD",
		}, asked); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Error("the folder was made")
		}
	})
}

// What lies in the folder, in whole or in part, and what is near need not be asked for.
func TestSurveyNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, files := newHub()
		dir, near := t.TempDir(), t.TempDir()
		for path, data := range map[string][]byte{
			filepath.Join(dir, "m.safetensors.part"): files["m.safetensors"][:1000],
			filepath.Join(near, "config.json"):       files["config.json"],
		} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		local := download.Dir(near)
		got, _ := survey(t, h, dir, local)
		want := []download.Found{
			{File: catalog.File{Path: "config.json", SizeBytes: 700}, Origin: local.Name(), Linked: true},
			{File: catalog.File{Path: "m.safetensors", SizeBytes: bigSize}, HaveBytes: 1000, Origin: h.origin().Name(), Network: true},
		}
		if diff := cmp.Diff(want, got[:2], errorsAs); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if _, err := fetchHub(t.Context(), h, dir, nil, hubSource("main", catalog.File{Path: "config.json"}, catalog.File{Path: "m.safetensors"})); err != nil {
			t.Fatal(err)
		}
		got, _ = survey(t, h, dir)
		for i, f := range got[:2] {
			if !f.Whole() || f.HaveBytes != f.File.SizeBytes {
				t.Errorf("file %d: %+v", i, f)
			}
		}
	})
}

// Nobody is asked about a file whose size is pinned, nor, once that has failed, about any other.
func TestSurveyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			before func(w http.ResponseWriter, r *http.Request, n int) bool
			kind   error
			asks   int
		}{
			"refused": {func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				w.WriteHeader(http.StatusForbidden)
				return true
			}, fault.ErrNotPermitted, 1},
			"down": {func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				w.WriteHeader(http.StatusBadGateway)
				return true
			}, fault.ErrNetwork, 1},
			"silent": {func(_ http.ResponseWriter, r *http.Request, _ int) bool {
				<-r.Context().Done()
				return true
			}, fault.ErrNetwork, 1},
			"no length": {func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				w.Header().Set("Transfer-Encoding", "chunked")
				w.WriteHeader(http.StatusOK)
				return true
			}, fault.ErrNetwork, 1},
			"none": {func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				w.WriteHeader(http.StatusNotFound)
				return true
			}, fault.ErrNotFound, 3},
		} {
			h, _ := newHub()
			h.before = test.before
			got, revision := survey(t, h, t.TempDir())
			for _, f := range got {
				if !errors.Is(f.Err, test.kind) || f.Whole() || f.File.SizeBytes != 0 {
					t.Errorf("%s: %+v", name, f)
				}
			}
			if n := len(h.asked()); n != test.asks || revision != "main" {
				t.Errorf("%s: asked %d times, want %d; revision %q", name, n, test.asks, revision)
			}
			pinned := hubSource("main", catalog.File{Path: "m.safetensors", SizeBytes: bigSize})
			h.forget(test.before)
			list, _, err := download.Survey(t.Context(), download.Request{Source: pinned, Origins: []download.Origin{h.origin()}, Dir: t.TempDir()})
			if err != nil || list[0].Err != nil || !list[0].Network || len(h.asked()) != 0 {
				t.Errorf("%s: pinned size: %+v, %v, asked %d times", name, list, err, len(h.asked()))
			}
		}
	})
	list, _, err := download.Survey(t.Context(), download.Request{Source: hubSource("main", catalog.File{Path: "a"}), Dir: t.TempDir()})
	if err != nil || !errors.Is(list[0].Err, fault.ErrNotFound) {
		t.Errorf("no origin: %+v, %v", list, err)
	}
	if _, _, err := download.Survey(t.Context(), download.Request{Source: hubSource("main"), Files: []catalog.File{{Path: "../a"}}, Dir: t.TempDir()}); err == nil {
		t.Error("a path that leads out of the folder is surveyed")
	}
}
