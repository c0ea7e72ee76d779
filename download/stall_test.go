package download_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
)

func TestStall(t *testing.T) {
	tests := []struct {
		name string
		// stall is how a request hangs.
		stall func(w http.ResponseWriter, r *http.Request, h *hub)
	}{
		{"before the answer", func(_ http.ResponseWriter, r *http.Request, _ *hub) { <-r.Context().Done() }},
		{"in the middle", func(w http.ResponseWriter, r *http.Request, h *hub) {
			data := h.files["config.json"]
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
			_, _ = w.Write(data[:300])
			<-r.Context().Done()
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, files := newHub()
				h.before = func(w http.ResponseWriter, r *http.Request, n int) bool {
					if n > 2 {
						return false
					}
					test.stall(w, r, h)
					return true
				}
				dir := t.TempDir()
				start := time.Now()
				if _, err := fetchHub(t.Context(), h, dir, nil, hubSource(commitA, pin("config.json", files["config.json"]))); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(start); d < 2*download.DefaultStallTimeout || d > 2*download.DefaultStallTimeout+10*time.Second {
					t.Errorf("it took %s", d)
				}
				expectTree(t, dir, map[string][]byte{"config.json": files["config.json"]})

				// A server that always hangs is given up in the end.
				h.forget(func(w http.ResponseWriter, r *http.Request, _ int) bool { test.stall(w, r, h); return true })
				dir = t.TempDir()
				_, err := fetchHub(t.Context(), h, dir, nil, hubSource(commitA, pin("config.json", files["config.json"])))
				checkFailure(t, err, &download.NetworkError{})
				if !strings.Contains(err.Error(), "nothing arrived for 30s") || len(h.asked()) != download.DefaultMaxTries {
					t.Errorf("error %v after %d tries", err, len(h.asked()))
				}
			})
		})
	}
}

// TestSlow checks that a slow but steady server, and a slow reader of events, are no
// stall.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, files := newHub()
		h.before = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			data := files["config.json"]
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
			for i := range data {
				_, _ = w.Write(data[i : i+1])
				time.Sleep(download.DefaultStallTimeout - time.Second)
			}
			return true
		}
		_, err := fetchHub(t.Context(), h, t.TempDir(), func(download.Event) { time.Sleep(2 * download.DefaultStallTimeout) }, hubSource(commitA, pin("config.json", files["config.json"])))
		if err != nil || len(h.asked()) != 1 {
			t.Errorf("error %v after %d requests", err, len(h.asked()))
		}
	})
}

// TestTrickle checks that a server that sends a little and breaks off, again and again
// from the start, is given up.
func TestTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, files := newHub()
		h.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if strings.HasPrefix(r.URL.Path, "/cdn/") {
				cut(w, files["m.safetensors"], 200_000, "")
			}
			return false
		}
		dir := t.TempDir()
		_, err := fetchHub(t.Context(), h, dir, nil, hubSource(commitA, pin("m.safetensors", files["m.safetensors"])))
		checkFailure(t, err, &download.NetworkError{})
		if n := len(h.ranges()); n != download.DefaultMaxTries {
			t.Errorf("%d tries", n)
		}
		if n := len(readTree(t, dir)["m.safetensors.part"]); n != 200_000 {
			t.Errorf("%d bytes are kept", n)
		}
	})
}

func TestCancelInPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hub{before: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Retry-After", "100")
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}}
		errCause := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errCause)
		defer cancel()
		start := time.Now()
		_, err := fetchHub(ctx, h, t.TempDir(), nil, hubSource(commitA, catalog.File{Path: "a"}))
		if !errors.Is(err, errCause) || time.Since(start) != 10*time.Second {
			t.Errorf("error %v after %s", err, time.Since(start))
		}
	})
}
