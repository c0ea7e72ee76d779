package download_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
)

func TestManyFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hub{commit: commitA, files: map[string][]byte{}, linked: map[string]bool{}}
		src := hubSource(commitA)
		for i := range 20 {
			name := fmt.Sprintf("sub%d/f%02d", i%3, i)
			h.files[name] = content(byte(i), 10_000*i)
			h.linked[name] = i%2 == 0
			src.Files = append(src.Files, catalog.File{Path: name})
		}
		var now, most atomic.Int32
		h.before = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
			if strings.HasPrefix(r.URL.Path, "/cdn/") {
				return false
			}
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return false
		}
		dir := t.TempDir()
		rec := &recorder{t: t}
		slowly := func(e download.Event) {
			if !rec.busy.TryLock() {
				t.Error("two progress calls at once")
				return
			}
			for range 50 { // let another call begin
				runtime.Gosched()
			}
			rec.busy.Unlock()
			rec.add(e)
		}
		got, err := download.Fetch(t.Context(), download.Request{Source: src, Origins: []download.Origin{h.origin()}, Dir: dir, Progress: slowly, Concurrency: 3})
		if err != nil {
			t.Fatal(err)
		}
		expectTree(t, dir, h.files)
		for i, f := range got.Files {
			if diff := cmp.Diff(pin(src.Files[i].Path, h.files[f.Path]), f); diff != "" {
				t.Errorf("file %d (-want +got):\n%s", i, diff)
			}
			if len(rec.of(f.Path, download.StageDone)) != 1 {
				t.Errorf("%q: no end", f.Path)
			}
		}
		if most.Load() != 3 {
			t.Errorf("%d files at once, want 3", most.Load())
		}
	})
}

// TestFailureStopsOthers checks that one bad file ends the whole, and that the part of
// another is kept.
func TestFailureStopsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, files := newHub()
		h.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			switch {
			case strings.HasPrefix(r.URL.Path, "/cdn/"):
				w.Header().Set("Content-Length", fmt.Sprint(bigSize))
				_, _ = w.Write(files["m.safetensors"][:400_000])
				<-r.Context().Done()
				return true
			case strings.HasSuffix(r.URL.Path, "config.json"):
				time.Sleep(time.Second)
			}
			return false
		}
		bad := pin("config.json", files["config.json"])
		bad.SHA256 = sha256Hex(nil)
		dir := t.TempDir()
		start := time.Now()
		_, err := fetchHub(t.Context(), h, dir, nil, hubSource(commitA, pin("m.safetensors", files["m.safetensors"]), bad))
		checkFailure(t, err, &download.DigestError{File: "config.json", Want: bad.SHA256, Got: sha256Hex(files["config.json"])})
		if d := time.Since(start); d != time.Second {
			t.Errorf("it took %s", d)
		}
		if got := readTree(t, dir); len(got["m.safetensors.part"]) != 400_000 || got["config.json"] != nil || got["config.json.part"] != nil {
			t.Errorf("folder has %d files", len(got))
		}
	})
}

func TestFallback(t *testing.T) {
	data := content(1, 70_000)
	good := download.FS("good", fstest.MapFS{"a": {Data: data}})
	empty := download.FS("empty", fstest.MapFS{})
	wrong := download.FS("wrong", fstest.MapFS{"a": {Data: content(2, 70_000)}})
	short := download.FS("short", fstest.MapFS{"a": {Data: data[:5]}})
	down := &download.Hub{Endpoint: "https://down.example", Client: &http.Client{Transport: memoryTransport{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	})}}}
	closed := &download.Hub{Endpoint: "https://closed.example", Client: &http.Client{Transport: memoryTransport{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	})}}}
	tests := []struct {
		name    string
		origins []download.Origin
		want    error
	}{
		{"second has it", []download.Origin{empty, good}, nil},
		{"first is wrong", []download.Origin{wrong, good}, nil},
		{"first is short", []download.Origin{short, good}, nil},
		{"first is down", []download.Origin{down, good}, nil},
		{"first refuses", []download.Origin{closed, good}, nil},
		{"nobody has it", []download.Origin{empty, empty}, fault.ErrNotFound},
		{"wrong, then nobody", []download.Origin{wrong, empty}, fault.ErrIntegrity},
		{"nobody, then down", []download.Origin{empty, down}, fault.ErrNetwork},
		{"nobody, then refused", []download.Origin{empty, closed}, fault.ErrNotPermitted},
		{"wrong, then down", []download.Origin{wrong, down}, fault.ErrNetwork},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				_, err := download.Fetch(t.Context(), download.Request{Source: hubSource(commitA, pin("a", data)), Origins: test.origins, Dir: dir})
				if !errors.Is(err, test.want) {
					t.Errorf("error %v, want %v", err, test.want)
				}
				if err == nil {
					expectTree(t, dir, map[string][]byte{"a": data})
				} else {
					expectTree(t, dir, nil)
				}
			})
		})
	}
}

// TestOtherOriginResumes checks that what one origin began another may end, if the
// digest is known.
func TestOtherOriginResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, files := newHub()
		dir := t.TempDir()
		file := pin("m.safetensors", files["m.safetensors"])
		interrupt(t, h, dir, file)
		half := int64(len(readTree(t, dir)["m.safetensors.part"]))
		rec := &recorder{t: t}
		origin := download.FS("folder", os.DirFS(hubFolder(t, files)))
		if _, err := download.Fetch(t.Context(), download.Request{Source: hubSource(commitA, file), Origins: []download.Origin{origin}, Dir: dir, Progress: rec.add}); err != nil {
			t.Fatal(err)
		}
		expectTree(t, dir, map[string][]byte{"m.safetensors": files["m.safetensors"]})
		if first := rec.of("m.safetensors", download.StageFetch)[0]; first.DoneBytes != half {
			t.Errorf("first event %+v with %d bytes there", first, half)
		}
	})
}

// TestPartSurvivesOtherOrigins checks that an origin which is asked first and does
// not have the file leaves what the hub began, even where no digest is known.
func TestPartSurvivesOtherOrigins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, files := newHub()
		dir := t.TempDir()
		file := catalog.File{Path: "m.safetensors"}
		interrupt(t, h, dir, file)
		half := int64(len(readTree(t, dir)["m.safetensors.part"]))
		h.forget(h.before)
		rec := &recorder{t: t}
		origins := []download.Origin{download.Dir(t.TempDir()), download.FS("folder", os.DirFS(t.TempDir())), h.origin()}
		if _, err := download.Fetch(t.Context(), download.Request{Source: hubSource(commitA, file), Origins: origins, Dir: dir, Progress: rec.add}); err != nil {
			t.Fatal(err)
		}
		expectTree(t, dir, map[string][]byte{"m.safetensors": files["m.safetensors"]})
		if first := rec.of("m.safetensors", download.StageFetch)[0]; half == 0 || first.DoneBytes != half || first.ResumedBytes != half {
			t.Errorf("first event %+v with %d bytes there", first, half)
		}
	})
}

// hubFolder writes files to a folder.
func hubFolder(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, files)
	return dir
}

func TestMovingBranch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHub()
		h.before = func(_ http.ResponseWriter, _ *http.Request, n int) bool {
			if n == 2 {
				h.commit = commitB // somebody pushes
			}
			return false
		}
		src := hubSource("main", catalog.File{Path: "config.json"}, catalog.File{Path: "m.safetensors"})
		_, err := fetchHub(t.Context(), h, t.TempDir(), nil, src)
		// The hub of this test forgets old commits, so that asking for the first one is
		// what shows.
		var missing *download.MissingError
		if !errors.As(err, &missing) || missing.Source.Revision != commitA {
			t.Errorf("error %v, want one about commit %s", err, commitA)
		}
	})
}

func TestNoSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, files := newHub()
		small, big := pin("config.json", files["config.json"]), pin("m.safetensors", files["m.safetensors"])
		unknown := catalog.File{Path: "m.safetensors"}
		tests := []struct {
			name  string
			files []catalog.File
			free  int64
			need  int64
			after []string // requests made before it was noticed
		}{
			{"known sizes, checked before starting", []catalog.File{small, big}, bigSize + 699, bigSize + 700, nil},
			{"size known from the hub, checked before writing", []catalog.File{unknown}, bigSize - 1, bigSize, []string{"/owner/name/resolve/" + commitA + "/m.safetensors", "/cdn/m.safetensors"}},
			{"just enough", []catalog.File{small, big}, bigSize + 700, 0, nil},
		}
		for _, test := range tests {
			h.forget(h.before)
			dir := t.TempDir()
			req := download.Request{Source: hubSource(commitA, test.files...), Origins: []download.Origin{h.origin()}, Dir: dir}
			req.FreeBytes = func(string) (int64, error) {
				left := test.free
				for _, data := range readTree(t, dir) {
					left -= int64(len(data))
				}
				return left, nil
			}
			_, err := download.Fetch(t.Context(), req)
			if test.need == 0 {
				if err != nil {
					t.Errorf("%s: %v", test.name, err)
				}
				continue
			}
			var space *atomicfile.SpaceError
			if !errors.As(err, &space) || !errors.Is(err, fault.ErrNoSpace) || space.NeedBytes != test.need || space.FreeBytes != test.free || fault.Hint(err) == "" {
				t.Errorf("%s: %v, want a SpaceError of %d bytes with %d free", test.name, err, test.need, test.free)
			}
			var asked []string
			for _, r := range h.asked() {
				asked = append(asked, r.URL.Path)
			}
			if diff := cmp.Diff(test.after, asked); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", test.name, diff)
			}
			expectTree(t, dir, nil)
		}
	})
}

// TestSpaceShared checks that files of unknown size that are fetched one after the other
// need room for what is left only, and that those fetched at once need it together.
func TestSpaceShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hub{commit: commitA, files: map[string][]byte{"a": content(1, 300_000), "b": content(2, 500_000)}}
		for _, atOnce := range []bool{false, true} {
			h.forget(func(w http.ResponseWriter, r *http.Request, _ int) bool {
				if strings.HasSuffix(r.URL.Path, "/b") {
					time.Sleep(time.Second)
				} else if atOnce {
					w.Header().Set("Content-Length", "300000")
					_, _ = w.Write(h.files["a"][:100_000])
					time.Sleep(2 * time.Second)
					_, _ = w.Write(h.files["a"][100_000:])
					return true
				}
				return false
			})
			dir := t.TempDir()
			written := func() (n int64) {
				for name, data := range readTree(t, dir) {
					if !strings.HasSuffix(name, ".json") {
						n += int64(len(data))
					}
				}
				return n
			}
			room := int64(800_000)
			if atOnce {
				room-- // enough for either of them
			}
			_, err := download.Fetch(t.Context(), download.Request{
				Source: hubSource(commitA, catalog.File{Path: "a"}, catalog.File{Path: "b"}), Origins: []download.Origin{h.origin()}, Dir: dir,
				FreeBytes: func(string) (int64, error) { return room - written(), nil },
			})
			time.Sleep(5 * time.Second) // until the server has noticed
			var space *atomicfile.SpaceError
			if !atOnce && err != nil || atOnce && (!errors.As(err, &space) || space.NeedBytes != 700_000 || space.FreeBytes != 699_999) {
				t.Errorf("at once: %v: error %v", atOnce, err)
			}
		}
	})
}

// TestSpaceOfPart checks that what a part holds already is not asked for again, and
// that what lies in a local folder needs no room.
func TestSpaceOfPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, files := newHub()
		dir := t.TempDir()
		interrupt(t, h, dir, pin("m.safetensors", files["m.safetensors"]))
		half := int64(len(readTree(t, dir)["m.safetensors.part"]))
		req := download.Request{
			Source: hubSource(commitA, pin("config.json", files["config.json"]), pin("m.safetensors", files["m.safetensors"])), Dir: dir,
			Origins:   []download.Origin{download.Dir(hubFolder(t, map[string][]byte{"config.json": files["config.json"]})), h.origin()},
			FreeBytes: func(string) (int64, error) { return bigSize - half, nil },
		}
		if _, err := download.Fetch(t.Context(), req); err != nil {
			t.Error(err)
		}
		expectTree(t, dir, files)
	})
}

func TestTargetIsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := download.Fetch(t.Context(), download.Request{Source: hubSource(commitA, catalog.File{Path: "a"}), Dir: path}); err == nil {
		t.Error("a file was taken for a folder")
	}
}

// TestStaleTemps checks that what a killed call left behind is swept away.
func TestStaleTemps(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, atomicfile.TempPrefix+"old")
	if err := os.WriteFile(old, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	origin := download.FS("memory", fstest.MapFS{"a": {Data: []byte("x")}})
	if _, err := download.Fetch(t.Context(), download.Request{Source: hubSource(commitA, catalog.File{Path: "a"}), Origins: []download.Origin{origin}, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	expectTree(t, dir, map[string][]byte{"a": []byte("x")})
}

// greedy is a network origin that delivers more than it announces.
type greedy struct{}

func (greedy) Name() string  { return "greedy" }
func (greedy) Network() bool { return true }
func (greedy) Open(context.Context, catalog.Source, catalog.File, download.Position) (io.ReadCloser, download.Info, error) {
	return io.NopCloser(strings.NewReader("0123456789")), download.Info{SizeBytes: 5}, nil
}

func TestMoreThanAnnounced(t *testing.T) {
	dir := t.TempDir()
	_, err := download.Fetch(t.Context(), download.Request{Source: hubSource(commitA, catalog.File{Path: "a"}), Origins: []download.Origin{greedy{}}, Dir: dir})
	var size *download.SizeError
	if !errors.As(err, &size) || size.Want != 5 || size.Got != 10 {
		t.Errorf("error %v, want a SizeError", err)
	}
	expectTree(t, dir, nil)
}

// FuzzHub answers with anything: nothing may panic, and what is accepted is right.
func FuzzHub(f *testing.F) {
	data := content(1, 64)
	f.Add(200, "Content-Length: 64\nETag: \"x\"", data)
	f.Add(206, "Content-Range: bytes 0-63/64\nX-Linked-Etag: \"x\"\nX-Linked-Size: 64", data)
	f.Add(302, "Location: /x\nX-Repo-Commit: "+commitA, []byte{})
	f.Add(416, "Content-Range: bytes */10", []byte{})
	f.Add(403, "Content-Type: application/json", []byte(`{"error": "no"}`))
	f.Add(429, "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT", []byte("x"))
	f.Fuzz(func(t *testing.T, status int, headers string, body []byte) {
		if status < 200 || status > 599 {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			h := &hub{before: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				for line := range strings.SplitSeq(headers, "\n") {
					if name, value, ok := strings.Cut(line, ": "); ok {
						w.Header().Add(name, value)
					}
				}
				w.WriteHeader(status)
				_, _ = w.Write(body)
				return true
			}}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "a.part"), data[:10], 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := fetchHub(t.Context(), h, dir, nil, hubSource(commitA, pin("a", data)))
			got, whole := readTree(t, dir)["a"]
			if whole != (err == nil) || whole && sha256Hex(got) != sha256Hex(data) {
				t.Errorf("error %v, %d bytes", err, len(got))
			}
			if err != nil && fault.Hint(err) == "" {
				t.Errorf("no hint with %v", err)
			}
		})
	})
}
