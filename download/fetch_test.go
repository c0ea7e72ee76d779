package download_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
)

const (
	commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	commitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// content is n bytes that depend on a seed and repeat with no short period.
func content(seed byte, n int) []byte {
	b := make([]byte, n)
	x := uint32(seed) + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func gitBlob(b []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...))
	return hex.EncodeToString(sum[:])
}

// pin is a file with everything known.
func pin(path string, b []byte) catalog.File {
	return catalog.File{Path: path, SizeBytes: int64(len(b)), SHA256: sha256Hex(b)}
}

func hubSource(revision string, files ...catalog.File) catalog.Source {
	return catalog.Source{Kind: catalog.KindHub, Repository: "owner/name", Revision: revision, Files: files}
}

// readTree returns the files below dir by path.
func readTree(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	got := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		got[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return got
}

// expectTree checks that dir holds exactly the given files.
func expectTree(t *testing.T, dir string, want map[string][]byte) {
	t.Helper()
	got := readTree(t, dir)
	for name, data := range want {
		if !bytes.Equal(got[name], data) {
			t.Errorf("file %q has %d bytes, which are not the wanted %d", name, len(got[name]), len(data))
		}
	}
	for name, data := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("unexpected file %q of %d bytes", name, len(data))
		}
	}
}

// recorder collects events and checks that they do not overlap.
type recorder struct {
	t      *testing.T
	busy   sync.Mutex
	events []download.Event
}

func (r *recorder) add(e download.Event) {
	if !r.busy.TryLock() {
		r.t.Error("two progress calls at once")
		return
	}
	defer r.busy.Unlock()
	r.events = append(r.events, e)
}

// of returns the events of one file and stage.
func (r *recorder) of(file string, stage download.Stage) []download.Event {
	var found []download.Event
	for _, e := range r.events {
		if e.File == file && e.Stage == stage {
			found = append(found, e)
		}
	}
	return found
}

// hub is a small hub in memory. It is an http.Handler.
type hub struct {
	commit string            // what any revision stands for
	files  map[string][]byte // by path
	// linked says which files are announced by sha256 and served from /cdn.
	linked map[string]bool
	// weak says that /cdn gives ETags that cannot resume a range.
	weak bool
	// before, unless nil, may answer in place of the hub.
	before func(w http.ResponseWriter, r *http.Request, n int) (done bool)

	mu       sync.Mutex
	requests []*http.Request
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.requests = append(h.requests, r)
	n, before := len(h.requests), h.before
	h.mu.Unlock()
	if before != nil && before(w, r, n) {
		return
	}
	if path, ok := strings.CutPrefix(r.URL.Path, "/cdn/"); ok {
		etag := strconv.Quote("cdn-" + sha256Hex(h.files[path])[:8])
		if h.weak {
			etag = `W/"x"`
		}
		serveBytes(w, r, h.files[path], etag)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/owner/name/resolve/")
	revision, path, ok2 := strings.Cut(rest, "/")
	data, ok3 := h.files[path]
	if !ok || !ok2 || !ok3 || (len(revision) == 40 && revision != h.commit) {
		w.Header().Set("X-Error-Code", "EntryNotFound")
		w.Header().Set("X-Error-Message", "Entry not found")
		http.Error(w, "Entry not found", http.StatusNotFound)
		return
	}
	w.Header().Set("X-Repo-Commit", h.commit)
	if h.linked[path] {
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(data)))
		w.Header().Set("X-Linked-Etag", strconv.Quote(sha256Hex(data)))
		w.Header().Set("ETag", strconv.Quote("other"))
		w.Header().Set("Location", "/cdn/"+path+"?signature=secret-signature")
		w.WriteHeader(http.StatusFound)
		return
	}
	serveBytes(w, r, data, strconv.Quote(gitBlob(data)))
}

// serveBytes serves a file with ranges, as a real server does.
func serveBytes(w http.ResponseWriter, r *http.Request, data []byte, etag string) {
	w.Header().Set("ETag", etag)
	w.Header().Set("Content-Type", "application/octet-stream")
	from := 0
	if s, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok {
		if cond := r.Header.Get("If-Range"); cond == "" || cond == etag {
			from, _ = strconv.Atoi(strings.TrimSuffix(s, "-"))
			if from >= len(data) {
				w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", len(data)))
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				return
			}
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
			w.Header().Set("Content-Length", strconv.Itoa(len(data)-from))
			w.WriteHeader(http.StatusPartialContent)
		}
	}
	if from == 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	}
	_, _ = w.Write(data[from:])
}

// asked returns the requests so far.
func (h *hub) asked() []*http.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.requests)
}

// forget forgets the requests so far and sets what answers the next ones.
func (h *hub) forget(before func(w http.ResponseWriter, r *http.Request, n int) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests, h.before = nil, before
}

// ranges returns the Range headers of the requests that got to the files themselves.
func (h *hub) ranges() []string {
	var got []string
	for _, r := range h.asked() {
		if path, ok := strings.CutPrefix(r.URL.Path, "/owner/name/resolve/"); ok {
			_, file, _ := strings.Cut(path, "/")
			if h.linked[file] {
				continue
			}
		}
		got = append(got, r.Header.Get("Range"))
	}
	return got
}

// memoryTransport answers requests by a handler, without sockets, so that it can be
// used where time is simulated.
type memoryTransport struct{ handler http.Handler }

func (m memoryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, pipe := io.Pipe()
	w := &memoryWriter{header: http.Header{}, pipe: pipe, ready: make(chan *http.Response, 1), request: r, body: body}
	ctx := r.Context()
	stop := context.AfterFunc(ctx, func() { _ = pipe.CloseWithError(ctx.Err()) })
	go func() {
		defer stop()
		defer func() {
			if v := recover(); v != nil {
				w.fail(io.ErrUnexpectedEOF)
				return
			}
			w.WriteHeader(http.StatusOK)
			_ = pipe.Close()
		}()
		m.handler.ServeHTTP(w, r)
	}()
	select {
	case resp := <-w.ready:
		if resp == nil {
			return nil, io.ErrUnexpectedEOF
		}
		return resp, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// memoryWriter is the server's side of a memoryTransport.
type memoryWriter struct {
	header  http.Header
	pipe    *io.PipeWriter
	body    *io.PipeReader
	request *http.Request
	sent    bool
	ready   chan *http.Response
}

func (w *memoryWriter) Header() http.Header { return w.header }

func (w *memoryWriter) WriteHeader(status int) {
	if w.sent {
		return
	}
	w.sent = true
	length := int64(-1)
	if n, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64); err == nil {
		length = n
	}
	w.ready <- &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header.Clone(), Body: w.body, ContentLength: length, Request: w.request,
	}
}

func (w *memoryWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pipe.Write(b)
}

// fail breaks the connection.
func (w *memoryWriter) fail(err error) {
	if !w.sent {
		w.sent = true
		w.ready <- nil
	}
	_ = w.pipe.CloseWithError(err)
}

// cut sends the first n bytes of an answer and breaks the connection.
func cut(w http.ResponseWriter, data []byte, n int, etag string) {
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.Header().Set("ETag", etag)
	_, _ = w.Write(data[:n])
	panic(http.ErrAbortHandler)
}

// origin is the hub as an origin.
func (h *hub) origin() *download.Hub {
	return &download.Hub{Endpoint: "https://hub.example", Client: &http.Client{Transport: memoryTransport{h}}}
}

func TestFetchEmbedded(t *testing.T) {
	c, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Resolve(catalog.Ref{Name: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	for _, src := range []catalog.Source{r.Source, *r.Reference} {
		dir := filepath.Join(t.TempDir(), "new", "folder")
		rec := &recorder{t: t}
		req := download.Request{Source: src, Origins: []download.Origin{download.Embedded()}, Dir: dir, Progress: rec.add}
		got, err := download.Fetch(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&download.Result{Files: src.Files}, got); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		fsys, err := catalog.Embedded(src.Repository)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string][]byte{}
		for _, f := range src.Files {
			if want[f.Path], err = fs.ReadFile(fsys, f.Path); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(filepath.Join(dir, f.Path))
			if err != nil || info.Mode().Perm()&0o222 != 0 {
				t.Errorf("%q may be written: %v, %v", f.Path, info.Mode(), err)
			}
			done := rec.of(f.Path, download.StageDone)
			if len(done) != 1 || done[0].DoneBytes != f.SizeBytes || done[0].TotalBytes != f.SizeBytes || done[0].Origin != "embedded files" {
				t.Errorf("%q: done events %+v", f.Path, done)
			}
			if len(rec.of(f.Path, download.StageFetch)) < 2 {
				t.Errorf("%q: too few events", f.Path)
			}
		}
		expectTree(t, dir, want)

		// Again, from nowhere: the files are there, and are hashed.
		rec.events = nil
		req.Origins = nil
		if got, err = download.Fetch(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&download.Result{Files: src.Files}, got); diff != "" {
			t.Errorf("second result (-want +got):\n%s", diff)
		}
		for _, f := range src.Files {
			done := rec.of(f.Path, download.StageDone)
			if len(done) != 1 || done[0].Origin != "" || done[0].ResumedBytes != f.SizeBytes || len(rec.of(f.Path, download.StageVerify)) == 0 || len(rec.of(f.Path, download.StageFetch)) != 0 {
				t.Errorf("second time, %q: events %+v", f.Path, rec.events)
			}
		}
	}
}

func TestFetchRepairs(t *testing.T) {
	a, b := content(1, 1000), content(2, 2000)
	dir := t.TempDir()
	bad := bytes.Clone(b)
	bad[1234] ^= 4
	for name, data := range map[string][]byte{"a": a, "b": bad} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	origin := download.FS("test files", fstest.MapFS{"b": {Data: b}})
	_, err := download.Fetch(t.Context(), download.Request{Source: hubSource(commitA, pin("a", a), pin("b", b)), Origins: []download.Origin{origin}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	expectTree(t, dir, map[string][]byte{"a": a, "b": b})
}

func TestTrust(t *testing.T) {
	a := content(1, 1000)
	dir := t.TempDir()
	// The file is wrong, but vouched for; the one of another length is not asked about.
	for name, n := range map[string]int{"a": 1000, "b": 999} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, n), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	var asked []string
	req := download.Request{
		Source: hubSource(commitA, pin("a", a), pin("b", a)), Dir: dir, Concurrency: 1,
		Origins: []download.Origin{download.FS("test files", fstest.MapFS{"b": {Data: a}})},
		Trust: func(f catalog.File, info fs.FileInfo) bool {
			asked = append(asked, f.Path)
			return f.SHA256 == sha256Hex(a) && info.Size() == 1000
		},
	}
	got, err := download.Fetch(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a"}, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(req.Source.Files, got.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	expectTree(t, dir, map[string][]byte{"a": make([]byte, 1000), "b": a})
}
