package download_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// writeFiles makes files below dir.
func writeFiles(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// sameFile reports whether two paths are one file.
func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return os.SameFile(x, y)
}

func TestFetchDirLinks(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	files := map[string][]byte{"a": content(1, 1000), "sub/b": content(2, 300_000), "empty": {}}
	writeFiles(t, from, files)
	src := hubSource("main", pin("a", files["a"]), catalog.File{Path: "sub/b"}, catalog.File{Path: "empty"})
	req := download.Request{Source: src, Origins: []download.Origin{download.Dir(from)}, Dir: to}
	for range 2 { // the second time every file is there, and partly the same one
		got, err := download.Fetch(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		want := []catalog.File{pin("a", files["a"]), pin("sub/b", files["sub/b"]), pin("empty", nil)}
		if diff := cmp.Diff(want, got.Files); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		if got.Revision != "main" {
			t.Errorf("revision %q: a folder does not know one", got.Revision)
		}
		expectTree(t, to, files)
	}
	for name := range files {
		if !sameFile(t, filepath.Join(from, name), filepath.Join(to, name)) {
			t.Errorf("%q was copied", name)
		}
		// Somebody else's file keeps its mode.
		if info, err := os.Stat(filepath.Join(from, name)); err != nil || info.Mode().Perm()&0o200 == 0 {
			t.Errorf("%q: mode %v, %v", name, info.Mode(), err)
		}
	}
}

// TestFetchDirCopies fetches from a folder on another device, where one is at hand.
func TestFetchDirCopies(t *testing.T) {
	from, err := os.MkdirTemp("/dev/shm", "zoo-test-")
	if err != nil {
		t.Skip("no second file system:", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(from) })
	to := t.TempDir()
	files := map[string][]byte{"a": content(1, 1000), "sub/b": content(2, 700_000)}
	writeFiles(t, from, files)
	if os.Link(filepath.Join(from, "a"), filepath.Join(to, "probe")) == nil {
		t.Skip("no second file system")
	}
	src := hubSource(commitA, pin("a", files["a"]), catalog.File{Path: "sub/b"})
	if _, err := download.Fetch(t.Context(), download.Request{Source: src, Origins: []download.Origin{download.Dir(from)}, Dir: to}); err != nil {
		t.Fatal(err)
	}
	expectTree(t, to, files)
}

func TestFetchLocalRefuses(t *testing.T) {
	data := content(1, 1000)
	bad := bytes.Clone(data)
	bad[500] ^= 1
	tests := []struct {
		name  string
		files map[string][]byte
		file  catalog.File
		check func(t *testing.T, err error)
	}{
		{"wrong digest", map[string][]byte{"a": bad}, pin("a", data), func(t *testing.T, err error) {
			var digest *download.DigestError
			if !errors.As(err, &digest) || digest.File != "a" || digest.Want != sha256Hex(data) || digest.Got != sha256Hex(bad) || digest.Origin == "" || !errors.Is(err, fault.ErrIntegrity) {
				t.Errorf("error %v, want a DigestError", err)
			}
		}},
		{"too long", map[string][]byte{"a": append(bytes.Clone(data), 0)}, pin("a", data), func(t *testing.T, err error) {
			var size *download.SizeError
			if !errors.As(err, &size) || size.Want != 1000 || size.Got != 1001 || !errors.Is(err, fault.ErrIntegrity) {
				t.Errorf("error %v, want a SizeError", err)
			}
		}},
		{"too short", map[string][]byte{"a": data[:999]}, pin("a", data), func(t *testing.T, err error) {
			var size *download.SizeError
			if !errors.As(err, &size) || size.Want != 1000 || size.Got != 999 {
				t.Errorf("error %v, want a SizeError", err)
			}
		}},
		{"missing", map[string][]byte{"b": data}, pin("a", data), func(t *testing.T, err error) {
			var missing *download.MissingError
			if !errors.As(err, &missing) || missing.File != "a" || len(missing.Origins) != 1 || missing.Network || !errors.Is(err, fault.ErrNotFound) {
				t.Errorf("error %v, want a MissingError", err)
			}
			if hint := fault.Hint(err); !strings.Contains(hint, "--offline") {
				t.Errorf("hint %q", hint)
			}
		}},
		{"a folder of that name", map[string][]byte{"a/b": data}, pin("a", data), func(t *testing.T, err error) {
			if err == nil || errors.Is(err, fault.ErrNotFound) {
				t.Errorf("error %v", err)
			}
		}},
	}
	for _, test := range tests {
		for _, kind := range []string{"folder", "memory"} {
			t.Run(test.name+", "+kind, func(t *testing.T) {
				from, to := t.TempDir(), t.TempDir()
				writeFiles(t, from, test.files)
				origin := download.Origin(download.Dir(from))
				if kind == "memory" {
					memory := fstest.MapFS{}
					for name, data := range test.files {
						memory[name] = &fstest.MapFile{Data: data}
					}
					origin = download.FS("memory", memory)
				}
				_, err := download.Fetch(t.Context(), download.Request{Source: hubSource(commitA, test.file), Origins: []download.Origin{origin}, Dir: to})
				test.check(t, err)
				if fault.Hint(err) == "" && test.name != "a folder of that name" {
					t.Errorf("no hint with %v", err)
				}
				expectTree(t, to, nil)
			})
		}
	}
}

func TestOptional(t *testing.T) {
	data := content(1, 10)
	origin := download.FS("memory", fstest.MapFS{"a": {Data: data}})
	src := hubSource(commitA, catalog.File{Path: "none", Optional: true}, pin("a", data))
	got, err := download.Fetch(t.Context(), download.Request{Source: src, Origins: []download.Origin{origin}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]catalog.File{pin("a", data)}, got.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestNoOrigin(t *testing.T) {
	for _, src := range []catalog.Source{hubSource("main", catalog.File{Path: "a"}), {Kind: catalog.KindEmbedded, Repository: "demo", Files: []catalog.File{{Path: "a"}}}} {
		_, err := download.Fetch(t.Context(), download.Request{Source: src, Dir: t.TempDir()})
		if !errors.Is(err, fault.ErrNotFound) || fault.Hint(err) == "" {
			t.Errorf("error %v", err)
		}
	}
}

func TestBadRequest(t *testing.T) {
	good := hubSource(commitA, catalog.File{Path: "a"})
	tests := map[string]download.Request{
		"no folder":     {Source: good},
		"no files":      {Source: hubSource(commitA), Dir: t.TempDir()},
		"no source":     {Files: []catalog.File{{Path: "a"}}, Dir: t.TempDir()},
		"path leaves":   {Source: hubSource(commitA, catalog.File{Path: "../a"}), Dir: t.TempDir()},
		"path of files": {Source: good, Files: []catalog.File{{Path: "/etc/passwd"}}, Dir: t.TempDir()},
		"part":          {Source: hubSource(commitA, catalog.File{Path: "a"}, catalog.File{Path: "a.part"}), Dir: t.TempDir()},
	}
	for name, req := range tests {
		if _, err := download.Fetch(t.Context(), req); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("%s: %v, want fault.ErrUsage", name, err)
		}
	}
}

// TestLinkOutside checks that a symbolic link in the target folder does not lead a
// download out of it.
func TestLinkOutside(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "sub")); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	origin := download.FS("memory", fstest.MapFS{"sub/a": {Data: []byte("x")}})
	_, err := download.Fetch(t.Context(), download.Request{Source: hubSource(commitA, catalog.File{Path: "sub/a"}), Origins: []download.Origin{origin}, Dir: dir})
	if err == nil {
		t.Error("the link was followed")
	}
	expectTree(t, outside, nil)
}

// hubCache makes the cache of the hub's own tools with one repository: blobs, and
// snapshots that link to them.
func hubCache(t *testing.T, commit string, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	repo := filepath.Join(dir, "models--owner--name")
	writeFiles(t, repo, map[string][]byte{"refs/main": []byte(commit)})
	for name, data := range files {
		blob := gitBlob(data)
		if strings.HasSuffix(name, ".safetensors") {
			blob = sha256Hex(data)
		}
		writeFiles(t, repo, map[string][]byte{"blobs/" + blob: data})
		link := filepath.Join(repo, "snapshots", commit, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(repo, "blobs", blob), link); err != nil {
			t.Skip("no symbolic links here:", err)
		}
	}
	return dir
}

func TestHubCache(t *testing.T) {
	files := map[string][]byte{"config.json": content(1, 500), "sub/m.safetensors": content(2, 5000)}
	cache := hubCache(t, commitA, files)
	for _, revision := range []string{"main", commitA} {
		dir := t.TempDir()
		src := hubSource(revision, catalog.File{Path: "config.json"}, catalog.File{Path: "sub/m.safetensors"})
		got, err := download.Fetch(t.Context(), download.Request{Source: src, Origins: []download.Origin{download.HubCache(cache)}, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		want := &download.Result{Revision: commitA, Files: []catalog.File{pin("config.json", files["config.json"]), pin("sub/m.safetensors", files["sub/m.safetensors"])}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", revision, diff)
		}
		expectTree(t, dir, files)
		if runtime.GOOS != "windows" && !sameFile(t, filepath.Join(cache, "models--owner--name", "blobs", sha256Hex(files["sub/m.safetensors"])), filepath.Join(dir, "sub", "m.safetensors")) {
			t.Error("the blob was copied")
		}
		if info, err := os.Lstat(filepath.Join(dir, "config.json")); err != nil || !info.Mode().IsRegular() {
			t.Errorf("config.json is %v, %v", info.Mode(), err)
		}
	}
	for name, src := range map[string]catalog.Source{
		"other commit":     hubSource(commitB, catalog.File{Path: "config.json"}),
		"other branch":     hubSource("dev", catalog.File{Path: "config.json"}),
		"other file":       hubSource("main", catalog.File{Path: "none"}),
		"other repository": {Kind: catalog.KindHub, Repository: "owner/other", Revision: "main", Files: []catalog.File{{Path: "config.json"}}},
		"embedded":         {Kind: catalog.KindEmbedded, Repository: "owner", Files: []catalog.File{{Path: "config.json"}}},
	} {
		_, err := download.Fetch(t.Context(), download.Request{Source: src, Origins: []download.Origin{download.HubCache(cache)}, Dir: t.TempDir()})
		if !errors.Is(err, fault.ErrNotFound) {
			t.Errorf("%s: %v, want fault.ErrNotFound", name, err)
		}
	}
}

// TestHubCacheCorrupt checks that a blob is held against its own name, also where the
// catalog knows nothing.
func TestHubCacheCorrupt(t *testing.T) {
	for _, name := range []string{"config.json", "m.safetensors"} {
		data := content(1, 500)
		cache := hubCache(t, commitA, map[string][]byte{name: data})
		path, err := filepath.EvalSymlinks(filepath.Join(cache, "models--owner--name", "snapshots", commitA, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content(2, 500), 0o644); err != nil {
			t.Fatal(err)
		}
		req := download.Request{Source: hubSource("main", catalog.File{Path: name}), Origins: []download.Origin{download.HubCache(cache)}, Dir: t.TempDir()}
		_, err = download.Fetch(t.Context(), req)
		var digest *download.DigestError
		if !errors.As(err, &digest) {
			t.Errorf("%s: %v, want a DigestError", name, err)
		}
		expectTree(t, req.Dir, nil)
		// With another origin behind it, that one is taken.
		req.Origins = append(req.Origins, download.FS("memory", fstest.MapFS{name: {Data: data}}))
		if _, err := download.Fetch(t.Context(), req); err != nil {
			t.Errorf("%s, with a second origin: %v", name, err)
		}
		expectTree(t, req.Dir, map[string][]byte{name: data})
	}
}

func TestHubCacheBadRef(t *testing.T) {
	cache := hubCache(t, commitA, map[string][]byte{"a": content(1, 5)})
	ref := filepath.Join(cache, "models--owner--name", "refs", "main")
	for _, text := range []string{"", "../../..", strings.Repeat("a", 39), strings.Repeat("a", 1<<20)} {
		if err := os.WriteFile(ref, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		body, _, err := download.HubCache(cache).Open(t.Context(), hubSource("main"), catalog.File{Path: "a"}, download.Position{})
		if err == nil {
			_ = body.Close()
			t.Errorf("ref %.50q was accepted", text)
		}
	}
}

// TestLocalOffset checks that local origins start where they are asked to.
func TestLocalOffset(t *testing.T) {
	data := content(1, 100)
	dir := t.TempDir()
	writeFiles(t, dir, map[string][]byte{"a": data})
	origins := []download.Origin{download.Dir(dir), download.FS("memory", fstest.MapFS{"a": {Data: data}}), download.FS("folder", os.DirFS(dir))}
	for _, o := range origins {
		for _, offset := range []int64{0, 1, 99, 100, 101} {
			body, info, err := o.Open(t.Context(), hubSource(commitA), catalog.File{Path: "a"}, download.Position{Offset: offset})
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(body)
			if err != nil || info.SizeBytes != 100 || info.From != 0 && info.From != offset || !bytes.Equal(got, data[info.From:]) {
				t.Errorf("%s at %d: %d bytes, %+v, %v", o.Name(), offset, len(got), info, err)
			}
			if err := body.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
