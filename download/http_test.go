package download_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// bigSize spans several buffers, so that a cut can fall in the middle.
const bigSize = 1_000_003

// newHub is a hub with a small file and a large, linked one.
func newHub() (*hub, map[string][]byte) {
	files := map[string][]byte{"config.json": content(1, 700), "m.safetensors": content(2, bigSize)}
	return &hub{commit: commitA, files: files, linked: map[string]bool{"m.safetensors": true}}, files
}

// fetchHub fetches files of a hub into dir.
func fetchHub(ctx context.Context, h *hub, dir string, progress func(download.Event), src catalog.Source) (*download.Result, error) {
	return download.Fetch(ctx, download.Request{Source: src, Origins: []download.Origin{h.origin()}, Dir: dir, Progress: progress})
}

func TestHubLearns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, files := newHub()
		dir := t.TempDir()
		src := hubSource("main", catalog.File{Path: "config.json"}, catalog.File{Path: "m.safetensors"})
		got, err := fetchHub(t.Context(), h, dir, nil, src)
		if err != nil {
			t.Fatal(err)
		}
		want := &download.Result{Revision: commitA, Files: []catalog.File{pin("config.json", files["config.json"]), pin("m.safetensors", files["m.safetensors"])}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		expectTree(t, dir, files)
		// The first file asks for the branch, the others for the commit it stands for.
		var asked []string
		for _, r := range h.asked() {
			asked = append(asked, r.URL.Path)
		}
		if diff := cmp.Diff([]string{"/owner/name/resolve/main/config.json", "/owner/name/resolve/" + commitA + "/m.safetensors", "/cdn/m.safetensors"}, asked); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		for _, r := range h.asked() {
			if r.Header.Get("Accept-Encoding") != "identity" || r.Header.Get("User-Agent") != "zoo" || r.Header.Get("Range") != "" {
				t.Errorf("request headers %v", r.Header)
			}
		}
		// Again with nothing recorded: the hub's digests show that the files are right.
		rec := &recorder{t: t}
		if got, err = fetchHub(t.Context(), h, dir, rec.add, src); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("second result (-want +got):\n%s", diff)
		}
		for name := range files {
			if len(rec.of(name, download.StageFetch)) != 0 || len(rec.of(name, download.StageDone)) != 1 {
				t.Errorf("%q was fetched again: %+v", name, rec.events)
			}
		}
		expectTree(t, dir, files)
	})
}

func TestHubRefuses(t *testing.T) {
	_, files := newHub()
	small, big := files["config.json"], files["m.safetensors"]
	wrong := pin("m.safetensors", big)
	wrong.SHA256 = sha256Hex(small)
	short := pin("m.safetensors", big)
	short.SizeBytes--
	tests := []struct {
		name   string
		file   catalog.File
		before func(w http.ResponseWriter, r *http.Request, n int) bool
		want   error // a pointer for errors.As by type, see below
	}{
		{"pin of another digest, known before a byte arrives", wrong, nil, &download.DigestError{File: "m.safetensors", Want: wrong.SHA256, Got: sha256Hex(big)}},
		{"pin of another size", short, nil, &download.SizeError{File: "m.safetensors", Want: bigSize - 1, Got: bigSize}},
		{"pin of another digest of a small file", catalog.File{Path: "config.json", SHA256: wrong.SHA256[1:] + "0"}, nil, &download.DigestError{File: "config.json", Want: wrong.SHA256[1:] + "0", Got: sha256Hex(small)}},
		{"other bytes than announced", catalog.File{Path: "m.safetensors"}, func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if !strings.HasPrefix(r.URL.Path, "/cdn/") {
				return false
			}
			serveBytes(w, r, content(3, bigSize), `"x"`)
			return true
		}, &download.DigestError{File: "m.safetensors", Want: sha256Hex(big), Got: sha256Hex(content(3, bigSize))}},
		{"other bytes of a small file", catalog.File{Path: "config.json"}, func(w http.ResponseWriter, r *http.Request, _ int) bool {
			serveBytes(w, r, content(3, 700), strconv.Quote(gitBlob(small)))
			return true
		}, &download.DigestError{File: "config.json", Want: gitBlob(small), Got: gitBlob(content(3, 700))}},
		{"other length than announced", catalog.File{Path: "m.safetensors"}, func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if !strings.HasPrefix(r.URL.Path, "/cdn/") {
				return false
			}
			serveBytes(w, r, big[:bigSize-1], `"x"`)
			return true
		}, &download.SizeError{File: "m.safetensors", Want: bigSize, Got: bigSize - 1}},
		{"more bytes than pinned, length not announced", catalog.File{Path: "x", SizeBytes: 10}, func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			_, _ = w.Write(small)
			return true
		}, &download.SizeError{File: "x", Want: 10, Got: 700}},
		{"no length at all", catalog.File{Path: "x"}, func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			_, _ = w.Write(small)
			return true
		}, &download.NetworkError{}},
		{"absurd length", catalog.File{Path: "x"}, func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Content-Length", "9000000000000000000")
			_, _ = w.Write(small)
			return true
		}, &download.NetworkError{}},
		{"web page", catalog.File{Path: "config.json"}, func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Content-Length", "13")
			_, _ = w.Write([]byte("<html></html>"))
			return true
		}, &download.NetworkError{Status: 200}},
		{"compressed", catalog.File{Path: "config.json"}, func(w http.ResponseWriter, r *http.Request, _ int) bool {
			w.Header().Set("Content-Encoding", "gzip")
			serveBytes(w, r, small, "")
			return true
		}, &download.NetworkError{Status: 200}},
		{"other commit", catalog.File{Path: "config.json"}, func(w http.ResponseWriter, r *http.Request, _ int) bool {
			w.Header().Set("X-Repo-Commit", commitB)
			serveBytes(w, r, small, "")
			return true
		}, &download.RevisionError{File: "config.json", Want: commitA, Got: commitB}},
		{"redirect in a circle", catalog.File{Path: "config.json"}, func(w http.ResponseWriter, r *http.Request, _ int) bool {
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
			return true
		}, &download.NetworkError{}},
		{"redirect to nowhere", catalog.File{Path: "config.json"}, func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.WriteHeader(http.StatusFound)
			return true
		}, &download.NetworkError{Status: 302}},
		{"redirect to another scheme", catalog.File{Path: "config.json"}, func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
			return true
		}, &download.NetworkError{Status: 302}},
		{"redirect away from https", catalog.File{Path: "config.json"}, func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Location", "http://hub.example/x")
			w.WriteHeader(http.StatusFound)
			return true
		}, &download.NetworkError{Status: 302}},
		{"no content", catalog.File{Path: "config.json"}, func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.WriteHeader(http.StatusNoContent)
			return true
		}, &download.NetworkError{Status: 204}},
		{"range that was not asked for", catalog.File{Path: "config.json"}, func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Content-Range", "bytes 5-9/10")
			w.WriteHeader(http.StatusPartialContent)
			return true
		}, &download.NetworkError{Status: 206}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHub()
				h.before = test.before
				dir := t.TempDir()
				start := time.Now()
				rec := &recorder{t: t}
				_, err := fetchHub(t.Context(), h, dir, rec.add, hubSource(commitA, test.file))
				checkFailure(t, err, test.want)
				if strings.Contains(test.name, "known before a byte arrives") && len(rec.events) != 0 {
					t.Errorf("bytes were taken all the same: %+v", rec.events)
				}
				expectTree(t, dir, nil)
				if d := time.Since(start); d != 0 {
					t.Errorf("it was tried again, for %s", d)
				}
			})
		})
	}
}

// checkFailure holds an error against the wanted one: its type, its exit code, and the
// facts that want gives.
func checkFailure(t *testing.T, err, want error) {
	t.Helper()
	switch want := want.(type) {
	case *download.DigestError:
		var got *download.DigestError
		if !errors.As(err, &got) || got.File != want.File || got.Want != want.Want || got.Got != want.Got || got.Origin != "hub https://hub.example" || !errors.Is(err, fault.ErrIntegrity) {
			t.Errorf("error %v, want %v", err, want)
		}
	case *download.SizeError:
		var got *download.SizeError
		if !errors.As(err, &got) || got.File != want.File || got.Want != want.Want || got.Got != want.Got || !errors.Is(err, fault.ErrIntegrity) {
			t.Errorf("error %v, want %v", err, want)
		}
	case *download.RevisionError:
		var got *download.RevisionError
		if !errors.As(err, &got) || got.Want != want.Want || got.Got != want.Got || !errors.Is(err, fault.ErrIntegrity) {
			t.Errorf("error %v, want %v", err, want)
		}
	case *download.NetworkError:
		var got *download.NetworkError
		if !errors.As(err, &got) || got.Status != want.Status || !errors.Is(err, fault.ErrNetwork) {
			t.Errorf("error %v, want a NetworkError of status %d", err, want.Status)
		}
	default:
		t.Fatalf("no check for %T", want)
	}
	if fault.Hint(err) == "" {
		t.Errorf("no hint with %v", err)
	}
}

func TestStatus(t *testing.T) {
	tests := []struct {
		status int
		token  download.Token
		want   error
		tries  int
		hint   string
	}{
		{401, "", fault.ErrNotPermitted, 1, "set HF_TOKEN"},
		{403, "", fault.ErrNotPermitted, 1, "set HF_TOKEN"},
		{401, "hf_secret", fault.ErrNotPermitted, 1, "token is not valid"},
		{403, "hf_secret", fault.ErrNotPermitted, 1, "accept the licence at https://hub.example/owner/name"},
		{404, "", fault.ErrNotFound, 1, "check the name"},
		{410, "", fault.ErrNotFound, 1, "check the name"},
		{400, "", fault.ErrNetwork, 1, "HF_ENDPOINT"},
		{416, "", fault.ErrNetwork, 1, "HF_ENDPOINT"},
		{408, "", fault.ErrNetwork, 6, ""},
		{429, "", fault.ErrNetwork, 6, "pause"},
		{500, "", fault.ErrNetwork, 6, "run the same again"},
		{501, "", fault.ErrNetwork, 1, ""},
		{503, "", fault.ErrNetwork, 6, ""},
		{504, "", fault.ErrNetwork, 6, ""},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%d%s", test.status, test.token), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hub{before: func(w http.ResponseWriter, r *http.Request, _ int) bool {
					w.Header().Set("Content-Type", "text/plain")
					w.WriteHeader(test.status)
					fmt.Fprintf(w, "no \x1b[31mluck with %s\nmore", r.Header.Get("Authorization"))
					return true
				}}
				origin := h.origin()
				origin.Token = test.token
				rec := &recorder{t: t}
				dir := t.TempDir()
				_, err := download.Fetch(t.Context(), download.Request{Source: hubSource("main", catalog.File{Path: "a"}), Origins: []download.Origin{origin}, Dir: dir, Progress: rec.add})
				if !errors.Is(err, test.want) {
					t.Fatalf("error %v, want %v", err, test.want)
				}
				for _, sentinel := range []error{fault.ErrNotPermitted, fault.ErrNotFound, fault.ErrNetwork, fault.ErrIntegrity} {
					if sentinel != test.want && errors.Is(err, sentinel) {
						t.Errorf("error %v is also %v", err, sentinel)
					}
				}
				if hint := fault.Hint(err); hint == "" || !strings.Contains(hint, test.hint) {
					t.Errorf("hint %q lacks %q", hint, test.hint)
				}
				if text := err.Error(); strings.Contains(text, "hf_secret") || strings.ContainsRune(text, '\x1b') || !strings.Contains(text, "luck") || strings.Contains(text, "more") {
					t.Errorf("error %q", text)
				}
				if len(h.asked()) != test.tries || len(rec.of("a", download.StageRetry)) != test.tries-1 {
					t.Errorf("%d requests, %d retry events, want %d tries", len(h.asked()), len(rec.events), test.tries)
				}
				var access *download.AccessError
				if errors.As(err, &access) && access.HaveToken != (test.token != "") {
					t.Errorf("HaveToken = %v", access.HaveToken)
				}
				expectTree(t, dir, nil)
			})
		})
	}
}

func TestRetryAfter(t *testing.T) {
	tests := []struct {
		name, header string
		wait         time.Duration
		ok           bool
	}{
		{"seconds", "17", 17 * time.Second, true},
		{"date", time.Date(2000, 1, 1, 0, 0, 42, 0, time.UTC).Format(http.TimeFormat), 42 * time.Second, true},
		{"too long", "100000", 0, false},
		{"absurd", "99999999999999999999", time.Second, true}, // not understood: the usual pause
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, files := newHub()
				h.before = func(w http.ResponseWriter, _ *http.Request, n int) bool {
					if n > 1 {
						return false
					}
					w.Header().Set("Retry-After", test.header)
					w.WriteHeader(http.StatusTooManyRequests)
					return true
				}
				start := time.Now()
				_, err := fetchHub(t.Context(), h, t.TempDir(), nil, hubSource(commitA, pin("config.json", files["config.json"])))
				if (err == nil) != test.ok {
					t.Fatalf("error %v", err)
				}
				if d := time.Since(start); d > test.wait || test.wait >= 10*time.Second && d != test.wait {
					t.Errorf("waited %s, want %s", d, test.wait)
				}
			})
		})
	}
}

func TestResumeAfterCut(t *testing.T) {
	for _, unpinned := range []bool{false, true} {
		t.Run(fmt.Sprintf("unpinned=%v", unpinned), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, files := newHub()
				big := files["m.safetensors"]
				cuts := 0
				h.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
					if !strings.HasPrefix(r.URL.Path, "/cdn/") || cuts == 8 {
						return false
					}
					cuts++
					from := 0
					if s, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok {
						from, _ = strconv.Atoi(strings.TrimSuffix(s, "-"))
						w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(big)-1, len(big)))
						w.Header().Set("Content-Length", strconv.Itoa(len(big)-from))
						w.WriteHeader(http.StatusPartialContent)
						_, _ = w.Write(big[from : from+100_000])
						panic(http.ErrAbortHandler)
					}
					cut(w, big, 100_000, strconv.Quote("cdn-"+sha256Hex(big)[:8]))
					return true
				}
				file := pin("m.safetensors", big)
				if unpinned {
					file = catalog.File{Path: "m.safetensors"}
				}
				rec := &recorder{t: t}
				dir := t.TempDir()
				// Eight cuts are more than the tries without progress: each brought something.
				if _, err := fetchHub(t.Context(), h, dir, rec.add, hubSource(commitA, file)); err != nil {
					t.Fatal(err)
				}
				expectTree(t, dir, map[string][]byte{"m.safetensors": big})
				want := []string{""}
				for i := range 8 {
					want = append(want, fmt.Sprintf("bytes=%d-", (i+1)*100_000))
				}
				if diff := cmp.Diff(want, h.ranges()); diff != "" {
					t.Errorf("ranges (-want +got):\n%s", diff)
				}
				last := h.asked()[len(h.asked())-1]
				if got := last.Header.Get("If-Range"); got != strconv.Quote("cdn-"+sha256Hex(big)[:8]) && got != "" || unpinned && got == "" && !strings.Contains(last.URL.Path, "cdn") {
					t.Errorf("If-Range %q", got)
				}
				if n := len(rec.of("m.safetensors", download.StageRetry)); n != 8 {
					t.Errorf("%d retry events", n)
				}
				previous := int64(-1)
				for _, e := range rec.of("m.safetensors", download.StageFetch) {
					if e.DoneBytes < previous || e.TotalBytes != bigSize {
						t.Errorf("event %+v after %d bytes", e, previous)
					}
					previous = e.DoneBytes
				}
			})
		})
	}
}

// interrupt fetches until about half of the large file is there, and cancels.
func interrupt(t *testing.T, h *hub, dir string, file catalog.File) {
	t.Helper()
	errCause := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := fetchHub(ctx, h, dir, func(e download.Event) {
		if e.DoneBytes > bigSize/2 {
			cancel(errCause)
		}
	}, hubSource(commitA, file))
	if !errors.Is(err, errCause) {
		t.Fatalf("error %v, want the context's cause", err)
	}
	got := readTree(t, dir)
	part := got["m.safetensors.part"]
	if _, whole := got["m.safetensors"]; whole || len(part) < bigSize/2 || len(part) == bigSize || !bytes.HasPrefix(h.files["m.safetensors"], part) {
		t.Fatalf("after the cancellation: %d bytes in the part, whole file: %v", len(part), whole)
	}
}

func TestResumeLater(t *testing.T) {
	other := content(9, bigSize)
	tests := []struct {
		name   string
		pinned bool
		weak   bool
		// change happens between the two calls.
		change  func(t *testing.T, h *hub, dir string)
		resumed bool
	}{
		{"pinned", true, false, nil, true},
		{"pinned, no note", true, false, func(t *testing.T, _ *hub, dir string) {
			if err := os.Remove(filepath.Join(dir, "m.safetensors.part.json")); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"learnt", false, false, nil, true},
		{"learnt, no note", false, false, func(t *testing.T, _ *hub, dir string) {
			if err := os.Remove(filepath.Join(dir, "m.safetensors.part.json")); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"learnt, note damaged", false, false, func(t *testing.T, _ *hub, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "m.safetensors.part.json"), []byte("{"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"learnt, the file has changed", false, false, func(_ *testing.T, h *hub, _ string) { h.files["m.safetensors"] = other }, false},
		{"learnt, no longer linked", false, false, func(_ *testing.T, h *hub, _ string) { h.linked = nil }, false},
		{"learnt, weak ETag", false, true, nil, true},
		{"learnt, weak ETag, the file has changed", false, true, func(_ *testing.T, h *hub, _ string) { h.files["m.safetensors"] = other }, false},
		{"learnt, weak ETag, no longer linked", false, true, func(_ *testing.T, h *hub, _ string) { h.linked = nil }, false},
		{"pinned, part damaged", true, false, func(t *testing.T, _ *hub, dir string) {
			path := filepath.Join(dir, "m.safetensors.part")
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			data[77] ^= 1
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"pinned, part too long", true, false, func(t *testing.T, _ *hub, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "m.safetensors.part"), content(4, bigSize+1), 0o644); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"pinned, part full but wrong", true, false, func(t *testing.T, _ *hub, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "m.safetensors.part"), content(4, bigSize), 0o644); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"range ignored", true, false, func(_ *testing.T, h *hub, _ string) {
			h.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
				if !strings.HasPrefix(r.URL.Path, "/cdn/") {
					return false
				}
				r.Header.Del("Range")
				serveBytes(w, r, h.files["m.safetensors"], `"x"`)
				return true
			}
		}, false},
		{"range refused", true, false, func(_ *testing.T, h *hub, _ string) {
			h.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
				if r.Header.Get("Range") == "" {
					return false
				}
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				return true
			}
		}, false},
		{"another range than asked for", true, false, func(_ *testing.T, h *hub, _ string) {
			h.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
				if r.Header.Get("Range") == "" {
					return false
				}
				w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", bigSize-1, bigSize))
				w.WriteHeader(http.StatusPartialContent)
				return true
			}
		}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, files := newHub()
				h.weak = test.weak
				dir := t.TempDir()
				file := catalog.File{Path: "m.safetensors"}
				if test.pinned {
					file = pin("m.safetensors", files["m.safetensors"])
				}
				interrupt(t, h, dir, file)
				if test.change != nil {
					test.change(t, h, dir)
				}
				half := len(readTree(t, dir)["m.safetensors.part"])
				h.forget(h.before)
				rec := &recorder{t: t}
				got, err := fetchHub(t.Context(), h, dir, rec.add, hubSource(commitA, file))
				if err != nil {
					t.Fatal(err)
				}
				expectTree(t, dir, map[string][]byte{"m.safetensors": h.files["m.safetensors"]})
				if diff := cmp.Diff([]catalog.File{pin("m.safetensors", h.files["m.safetensors"])}, got.Files); diff != "" {
					t.Errorf("files (-want +got):\n%s", diff)
				}
				first := rec.of("m.safetensors", download.StageFetch)[0]
				if resumed := first.DoneBytes == int64(half) && first.ResumedBytes == int64(half); resumed != test.resumed {
					t.Errorf("first event %+v with %d bytes there: resumed = %v, want %v", first, half, resumed, test.resumed)
				}
			})
		})
	}
}

// TestPartComplete kills, so to speak, after the last byte and before the rename.
func TestPartComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, pinned := range []bool{true, false} {
			h, files := newHub()
			dir := t.TempDir()
			file := catalog.File{Path: "m.safetensors"}
			if pinned {
				file = pin("m.safetensors", files["m.safetensors"])
			}
			interrupt(t, h, dir, file)
			if err := os.WriteFile(filepath.Join(dir, "m.safetensors.part"), files["m.safetensors"], 0o644); err != nil {
				t.Fatal(err)
			}
			rec := &recorder{t: t}
			if _, err := fetchHub(t.Context(), h, dir, rec.add, hubSource(commitA, file)); err != nil {
				t.Fatal(err)
			}
			expectTree(t, dir, map[string][]byte{"m.safetensors": files["m.safetensors"]})
			for _, e := range rec.of("m.safetensors", download.StageFetch) {
				if e.DoneBytes != bigSize {
					t.Errorf("pinned=%v: event %+v", pinned, e)
				}
			}
		}
	})
}
