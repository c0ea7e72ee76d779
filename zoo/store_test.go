package zoo_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/zoo"
)

// testRelease is a release as a catalog has it.
func testRelease(model, version string) catalog.Release {
	return catalog.Release{
		Model: model, Version: version,
		Plugin:    catalog.PluginRef{Name: testPlugin.Name, Constraint: "^1"},
		Source:    catalog.Source{Kind: catalog.KindHub, Repository: "owner/name", Revision: "main", Files: []catalog.File{{Path: "config.json"}, {Path: "model.safetensors", SizeBytes: 4096, Optional: true}}},
		Licence:   catalog.Licence{SPDX: "Apache-2.0", URL: "https://example.org/<licence>?a&b"},
		Reference: &catalog.Source{Kind: catalog.KindEmbedded, Repository: "demo/reference", Files: []catalog.File{{Path: "golden.json"}}},
		Recipe:    map[string]string{"grid": "none"},
	}
}

// newStore opens a store in a new folder. What it logs is returned by the function.
func newStore(t testing.TB) (s *zoo.Store, log func() string) {
	t.Helper()
	return storeAt(t, filepath.Join(t.TempDir(), "home"))
}

func storeAt(t testing.TB, home string) (*zoo.Store, func() string) {
	t.Helper()
	var b lockedBuffer
	s, err := zoo.OpenStore(home, slog.New(slog.NewTextHandler(&b, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return s, b.String
}

// lockedBuffer is a buffer for many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// pull installs a release with a pack, as the SDK does.
func pull(ctx context.Context, s *zoo.Store, rel catalog.Release, spec packSpec) (*zoo.Pack, error) {
	lock, err := s.Lock(ctx, rel.Model, rel.Version, nil)
	if err != nil {
		return nil, err
	}
	p, err := pullLocked(ctx, lock, rel, spec)
	return p, errors.Join(err, lock.Unlock())
}

func pullLocked(ctx context.Context, lock *zoo.Lock, rel catalog.Release, spec packSpec) (*zoo.Pack, error) {
	dir, err := lock.CheckpointDir()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o644); err != nil {
		return nil, err
	}
	stage, err := lock.Stage()
	if err != nil {
		return nil, err
	}
	if _, err := spec.write(stage); err != nil {
		return nil, err
	}
	return lock.Commit(ctx, stage, zoo.Record{Release: rel, Sources: testSources()}, nil)
}

// mustPull pulls and closes the pack.
func mustPull(t testing.TB, s *zoo.Store, rel catalog.Release, spec packSpec) catalog.Digest {
	t.Helper()
	p, err := pull(t.Context(), s, rel, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return p.Digest()
}

func TestStoreInstalls(t *testing.T) {
	s, log := newStore(t)
	rel := testRelease("tiny", "1.0.0")
	p, err := pull(t.Context(), s, rel, packSpec{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if data, _, ok := p.Tensor("norm"); !ok || len(data) == 0 {
		t.Error("the committed pack has no tensor")
	}
	want := &zoo.Record{Release: rel, Sources: testSources(), Pack: p.Digest(), Plugin: testPlugin}
	for name, find := range map[string]func() (*zoo.Record, error){
		"record":    func() (*zoo.Record, error) { return s.Record("tiny", "1.0.0") },
		"find":      func() (*zoo.Record, error) { return s.Find(catalog.Ref{Name: "tiny"}) },
		"installed": func() (*zoo.Record, error) { all, err := s.Installed(t.Context()); return &all[0], err },
	} {
		got, err := find()
		if err != nil {
			t.Fatal(name, err)
		}
		if age := time.Since(got.Installed); age < 0 || age > time.Minute {
			t.Errorf("%s: installed %v ago", name, age)
		}
		got.Installed = time.Time{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(name, diff)
		}
	}
	if dir, err := s.CheckpointDir("tiny", "1.0.0"); err != nil || string(readFile(t, dir, "config.json")) != "{}" {
		t.Errorf("checkpoint in %q, %v", dir, err)
	}
	if p.Dir() != s.PackDir(p.Digest()) {
		t.Errorf("the pack is in %q, not in %q", p.Dir(), s.PackDir(p.Digest()))
	}
	again, err := s.Open(t.Context(), want, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for _, path := range allFiles(t, again.Dir()) {
		info, err := os.Stat(filepath.Join(again.Dir(), path))
		if err != nil {
			t.Fatal(err)
		}
		if runtime.GOOS != "windows" && info.Mode().Perm()&0o222 != 0 {
			t.Errorf("%q may be written: %v", path, info.Mode())
		}
	}
	usage, err := s.Usage(t.Context())
	if err != nil || usage.PackBytes != p.SizeBytes() || usage.CheckpointBytes != 2 || usage.OtherBytes == 0 || usage.TotalBytes() <= usage.PackBytes {
		t.Errorf("usage %+v, %v", usage, err)
	}
	if dirs := entries(t, s, "tmp"); len(dirs) != 0 {
		t.Errorf("left in tmp: %v", dirs)
	}
	if got := log(); got != "" {
		t.Errorf("logged: %s", got)
	}
}

// entries lists a folder of a store.
func entries(t testing.TB, s *zoo.Store, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(s.Home(), dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// A store that does not exist is empty, and reading does not create it.
func TestEmptyStore(t *testing.T) {
	s, _ := newStore(t)
	if all, err := s.Installed(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("installed: %v, %v", all, err)
	}
	if u, err := s.Usage(t.Context()); err != nil || u != (zoo.Usage{}) {
		t.Errorf("usage: %v, %v", u, err)
	}
	for name, err := range map[string]error{
		"find":   second(s.Find(catalog.Ref{Name: "tiny", Constraint: "^1"})),
		"record": second(s.Record("tiny", "1.0.0")),
		"remove": s.Remove(t.Context(), "tiny", "1.0.0"),
	} {
		if _, ok := errors.AsType[*zoo.NotInstalledError](err); !ok || !errors.Is(err, zoo.ErrNotFound) || !strings.Contains(zoo.Hint(err), "zoo pull") {
			t.Errorf("%s: %v, hint %q", name, err, zoo.Hint(err))
		}
	}
	if _, err := os.Stat(s.Home()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the store was created: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestOpenStore(t *testing.T) {
	s, err := zoo.OpenStore("", nil)
	if err != nil || s.Home() != zoo.DefaultHome() || filepath.Base(s.Home()) != "zoo" || !filepath.IsAbs(s.Home()) {
		t.Errorf("default store: %v, %v", s, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := zoo.OpenStore(file, nil); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a file as a store: %v", err)
	}
}

func TestStoreFind(t *testing.T) {
	s, _ := newStore(t)
	for i, v := range []string{"1.9.0", "1.10.0", "2.0.0-rc.1"} {
		mustPull(t, s, testRelease("tiny", v), packSpec{seed: uint64(i)})
	}
	mustPull(t, s, testRelease("alpha", "0.1.0"), packSpec{seed: 9})
	for constraint, want := range map[string]string{"": "1.10.0", "^1": "1.10.0", "<1.10": "1.9.0", "2.0.0-rc.1": "2.0.0-rc.1", "^2": "", "^3": ""} {
		r, err := s.Find(catalog.Ref{Name: "tiny", Constraint: constraint})
		if err != nil {
			missing, ok := errors.AsType[*zoo.NotInstalledError](err)
			if want != "" || !ok || cmp.Diff([]string{"2.0.0-rc.1", "1.10.0", "1.9.0"}, missing.Have) != "" {
				t.Errorf("%q: %v", constraint, err)
			}
			continue
		}
		if r.Version() != want || r.Name() != "tiny" {
			t.Errorf("%q: found %s@%s, want %s", constraint, r.Name(), r.Version(), want)
		}
	}
	if _, err := s.Find(catalog.Ref{Name: "tiny", Constraint: "one"}); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a constraint that is none: %v", err)
	}
	all, err := s.Installed(t.Context())
	var got []string
	for _, r := range all {
		got = append(got, r.Name()+"@"+r.Version())
	}
	if diff := cmp.Diff([]string{"alpha@0.1.0", "tiny@2.0.0-rc.1", "tiny@1.10.0", "tiny@1.9.0"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// Names and versions never become paths out of the store.
func TestStoreRefusesNames(t *testing.T) {
	s, _ := newStore(t)
	mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{})
	for _, name := range [][2]string{
		{"../tiny", "1.0.0"}, {"", "1.0.0"}, {".", "1.0.0"}, {"..", "1.0.0"}, {"a/b", "1.0.0"}, {`a\b`, "1.0.0"}, {"Tiny", "1.0.0"}, {"nul", "1.0.0"},
		{"tiny", ""}, {"tiny", ".."}, {"tiny", "1.0"}, {"tiny", "v1.0.0"}, {"tiny", "1.0.0/.."}, {"tiny", "1.0.0-" + strings.Repeat("a", 100)}, {"tiny", "1.0.0-a.part"},
	} {
		_, err1 := s.Lock(t.Context(), name[0], name[1], nil)
		_, err2 := s.Record(name[0], name[1])
		err3 := s.Remove(t.Context(), name[0], name[1])
		_, err4 := s.CheckpointDir(name[0], name[1])
		for _, err := range []error{err1, err2, err3, err4} {
			if !errors.Is(err, zoo.ErrUsage) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}

func TestStoreRemove(t *testing.T) {
	s, _ := newStore(t)
	one := mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{seed: 1})
	if two := mustPull(t, s, testRelease("twin", "1.0.0"), packSpec{seed: 1}); two != one {
		t.Fatal("the packs differ")
	}
	outside := filepath.Join(filepath.Dir(s.Home()), "outside")
	if err := os.WriteFile(outside, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "tiny", "1.0.0"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Record("tiny", "1.0.0"); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("removed, but %v", err)
	}
	r, err := s.Record("twin", "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Open(t.Context(), r, nil)
	if err != nil {
		t.Fatalf("the pack that twin needs: %v", err)
	}
	// An open pack outlives its removal where the system allows that.
	if runtime.GOOS == "windows" {
		p.Close()
	}
	if err := s.Remove(t.Context(), "twin", "1.0.0"); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" {
		if err := p.Verify(t.Context(), nil); err == nil {
			t.Error("the manifest of a removed pack is still there")
		}
		if data, _, ok := p.Tensor("norm"); !ok || !bytes.Equal(data, packSpec{seed: 1}.data(testTensors()[3])) {
			t.Error("an open pack lost its tensors")
		}
		p.Close()
	}
	for _, dir := range []string{"packs", "models", "checkpoints", "tmp", "state/stamps"} {
		if left := entries(t, s, dir); len(left) != 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	if err := s.Remove(t.Context(), "twin", "1.0.0"); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
}

// A link in the store that leads out of it is not followed when things are deleted.
func TestStoreRemoveStaysInside(t *testing.T) {
	s, _ := newStore(t)
	mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{})
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "precious"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ckpt := filepath.Join(s.Home(), "checkpoints", "tiny", "1.0.0")
	if err := os.RemoveAll(ckpt); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, ckpt); err != nil {
		t.Skip(err)
	}
	if err := s.Remove(t.Context(), "tiny", "1.0.0"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
		t.Error(err)
	}
}

// A damaged record hides neither the others nor its pack, and can be removed.
func TestDamagedRecord(t *testing.T) {
	for name, damage := range map[string]func(good string) string{
		"empty":         func(string) string { return "" },
		"not JSON":      func(string) string { return "record" },
		"cut":           func(s string) string { return s[:len(s)/2] },
		"other model":   func(s string) string { return strings.Replace(s, `"Model": "tiny"`, `"Model": "other"`, 1) },
		"other version": func(s string) string { return strings.Replace(s, `"Version": "1.0.0"`, `"Version": "1.0.1"`, 1) },
		"odd digest":    func(s string) string { return strings.Replace(s, `"pack": "sha256:`, `"pack": "../`, 1) },
		"odd path": func(s string) string {
			return strings.Replace(s, `"path": "model.safetensors",`+"\n"+`      "size": 4096,`+"\n"+`      "sha256"`, `"path": "../../x", "size": 4096, "sha256"`, 1)
		},
		"huge": func(s string) string { return s + strings.Repeat(" ", 9<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			s, log := newStore(t)
			mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{seed: 1})
			mustPull(t, s, testRelease("other", "1.0.0"), packSpec{seed: 2})
			mustPull(t, s, testRelease("third", "1.0.0"), packSpec{seed: 3})
			file := filepath.Join("models", "tiny", "1.0.0.json")
			good := string(readFile(t, s.Home(), file))
			bad := damage(good)
			if bad == good {
				t.Fatal("nothing was changed")
			}
			writeFile(t, s.Home(), file, []byte(bad))
			for _, err := range []error{second(s.Record("tiny", "1.0.0")), second(s.Find(catalog.Ref{Name: "tiny"}))} {
				if _, ok := errors.AsType[*zoo.RecordError](err); !ok || !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(zoo.Hint(err), "zoo rm tiny") {
					t.Errorf("got %v", err)
				}
			}
			all, err := s.Installed(t.Context())
			if err != nil || len(all) != 2 || !strings.Contains(log(), "damaged record") {
				t.Errorf("installed: %v, %v, logged %s", all, err, log())
			}
			// While it is not known which pack the record means, none may go.
			if err := s.Remove(t.Context(), "third", "1.0.0"); err != nil {
				t.Error(err)
			}
			if packs := entries(t, s, "packs"); len(packs) != 3 {
				t.Errorf("packs: %v", packs)
			}
			if err := s.Remove(t.Context(), "tiny", "1.0.0"); err != nil {
				t.Error(err)
			}
			// The next one that takes a lock finds two packs that are nobody's.
			lock, err := s.Lock(t.Context(), "other", "1.0.0", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := lock.Unlock(); err != nil {
				t.Error(err)
			}
			if packs := entries(t, s, "packs"); len(packs) != 1 {
				t.Errorf("packs: %v", packs)
			}
		})
	}
}

func TestLockIsExclusive(t *testing.T) {
	s, _ := newStore(t)
	lock, err := s.Lock(t.Context(), "tiny", "1.0.0", func() { t.Error("waited for a free lock") })
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Lock(t.Context(), "tiny", "1.0.1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Unlock(); err != nil {
		t.Error(err)
	}
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	waited := 0
	if _, err := s.Lock(ctx, "tiny", "1.0.0", func() { waited++; cancel(stop) }); !errors.Is(err, stop) || waited != 1 {
		t.Errorf("got %v after waiting %d times", err, waited)
	}
	stage, err := lock.Stage()
	if err != nil {
		t.Fatal(err)
	}
	// Another release's lock does not sweep what is in use.
	if other, err = s.Lock(t.Context(), "tiny", "1.0.1", nil); err != nil {
		t.Fatal(err)
	}
	if err := other.Unlock(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(stage); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(stage); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stage is still there: %v", err)
	}
	_, err1 := lock.Stage()
	_, err2 := lock.CheckpointDir()
	_, err3 := lock.Commit(t.Context(), stage, zoo.Record{}, nil)
	for _, err := range []error{err1, err2, err3, lock.RemoveCheckpoint()} {
		if !errors.Is(err, zoo.ErrUsage) {
			t.Errorf("used after Unlock: %v", err)
		}
	}
}

// What killed processes have left is swept: the folders of any release whose lock is
// free, trash, packs without a record, old temporary files. The rest stays.
func TestSweep(t *testing.T) {
	s, _ := newStore(t)
	mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{})
	orphan, digest := buildPack(t, packSpec{seed: 5})
	old := time.Now().Add(-2 * time.Hour)
	plant := func(path string, when time.Time) {
		name := filepath.Join(s.Home(), path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o444); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, when, when); err != nil {
			t.Fatal(err)
		}
	}
	plant("tmp/tiny@1.0.0@AAAA/weights.safetensors", time.Now())
	plant("tmp/other@1.0.0-rc.1+b@BBBB/extra/x", time.Now())
	plant("tmp/.trash-CCCC/pack.json", time.Now())
	plant("tmp/users-own/x", time.Now())
	plant("models/tiny/.zoo-tmp-DDDD", old)
	plant("models/tiny/.zoo-tmp-EEEE", time.Now())
	plant("state/.zoo-tmp-FFFF", old)
	plant("packs/README", old)
	if err := os.CopyFS(filepath.Join(s.Home(), "packs", digest.Hex()), os.DirFS(orphan)); err != nil {
		t.Fatal(err)
	}
	lock, err := s.Lock(t.Context(), "tiny", "1.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	got := map[string][]string{}
	for _, dir := range []string{"tmp", "models/tiny", "state"} {
		got[dir] = entries(t, s, dir)
	}
	want := map[string][]string{"tmp": {"users-own"}, "models/tiny": {".zoo-tmp-EEEE", "1.0.0.json"}, "state": {"stamps"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if packs := entries(t, s, "packs"); len(packs) != 2 { // the installed one and README
		t.Errorf("packs: %v", packs)
	}
}

// Goroutines that pull, list and remove at once never see anything half done.
func TestStoreConcurrently(t *testing.T) {
	s, log := newStore(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			rel := testRelease("tiny", "1.0.0")
			if i%2 == 1 {
				rel = testRelease("twin", "1.0.0")
			}
			for range 5 {
				p, err := pull(t.Context(), s, rel, packSpec{seed: 1})
				if err != nil {
					t.Error(err)
					return
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
				if err := s.Remove(t.Context(), rel.Model, rel.Version); err != nil && !errors.Is(err, zoo.ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			if _, err := s.Installed(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := s.Usage(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	for _, dir := range []string{"packs", "models", "tmp"} {
		if left := entries(t, s, dir); len(left) != 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
	if strings.Contains(log(), "damaged record") {
		t.Error(log())
	}
}
