package zoo_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/zoo"
)

// A commit that breaks a promise changes nothing.
func TestCommitRefuses(t *testing.T) {
	s, _ := newStore(t)
	first := mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{seed: 1})
	type work struct {
		rel     catalog.Release
		sources []catalog.File
		stage   string
		spec    packSpec
		damage  bool
	}
	tests := []struct {
		name   string
		change func(w *work)
		want   error // nil if it is to succeed
		typed  string
	}{
		{name: "the same again", change: func(*work) {}},
		{name: "pinned", change: func(w *work) { w.rel.Pack = first }},
		{name: "newer plugin", change: func(w *work) {
			w.spec = packSpec{seed: 1, plugin: zoo.PluginID{Name: testPlugin.Name, Version: "1.3.0"}}
		}},
		{name: "the catalog moved on", change: func(w *work) {
			w.rel.Source.Revision = "next"
			w.sources[0].SHA256 = strings.Repeat("cd", 32)
			w.spec.seed = 2
		}},
		{name: "pinned otherwise", change: func(w *work) { w.rel.Pack = catalog.DigestOf(nil) }, want: zoo.ErrIntegrity, typed: "*zoo.PackDigestError"},
		{name: "not reproducible", change: func(w *work) { w.spec.seed = 2 }, want: zoo.ErrIntegrity, typed: "*zoo.PackDigestError"},
		{name: "a source changed", change: func(w *work) { w.sources[0].SHA256 = strings.Repeat("cd", 32) }, want: zoo.ErrIntegrity, typed: "*zoo.SourceChangedError"},
		{name: "damaged on the way", change: func(w *work) { w.damage = true }, want: zoo.ErrIntegrity, typed: "*zoo.DamageError"},
		{name: "another release", change: func(w *work) { w.rel.Version = "1.0.1" }, want: zoo.ErrUsage},
		{name: "another folder", change: func(w *work) { w.stage = t.TempDir() }, want: zoo.ErrUsage},
		{name: "source without digest", change: func(w *work) { w.sources[0].SHA256 = "" }, want: zoo.ErrUsage},
		{name: "source twice", change: func(w *work) { w.sources = append(w.sources, w.sources[0]) }, want: zoo.ErrUsage},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := newStore(t)
			mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{seed: 1})
			before, err := s.Record("tiny", "1.0.0")
			if err != nil {
				t.Fatal(err)
			}
			lock, err := s.Lock(t.Context(), "tiny", "1.0.0", nil)
			if err != nil {
				t.Fatal(err)
			}
			stage, err := lock.Stage()
			if err != nil {
				t.Fatal(err)
			}
			w := work{rel: testRelease("tiny", "1.0.0"), sources: testSources(), stage: stage, spec: packSpec{seed: 1}}
			tt.change(&w)
			if _, err := w.spec.write(w.stage); err != nil {
				t.Fatal(err)
			}
			if w.damage {
				data := readFile(t, w.stage, zoo.WeightsFile)
				data[len(data)/2] ^= 8
				writeFile(t, w.stage, zoo.WeightsFile, data)
			}
			p, err := lock.Commit(t.Context(), w.stage, zoo.Record{Release: w.rel, Sources: w.sources}, nil)
			if uerr := lock.Unlock(); uerr != nil {
				t.Error(uerr)
			}
			if left := entries(t, s, "tmp"); len(left) != 0 {
				t.Errorf("left in tmp: %v", left)
			}
			if tt.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				p.Close()
				return
			}
			if !errors.Is(err, tt.want) || tt.typed != "" && (typeOf(err) != tt.typed || zoo.Hint(err) == "") {
				t.Errorf("got %T %v, want %v as %s", err, err, tt.want, tt.typed)
			}
			after, err := s.Record("tiny", "1.0.0")
			if diff := cmp.Diff(before, after); diff != "" || err != nil {
				t.Error(diff, err)
			}
			if packs := entries(t, s, "packs"); len(packs) != 1 {
				t.Errorf("packs: %v", packs)
			}
		})
	}
}

// typeOf names the type of an error.
func typeOf(err error) string {
	return fmt.Sprintf("%T", err)
}

// A damaged pack in the store is replaced by the next commit, and only by a sound one.
func TestCommitReplacesDamage(t *testing.T) {
	s, log := newStore(t)
	rel := testRelease("tiny", "1.0.0")
	mustPull(t, s, rel, packSpec{})
	r, err := s.Record("tiny", "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.Home(), "packs", r.Pack.Hex())
	data := readFile(t, dir, zoo.WeightsFile)
	data[16_500] ^= 4
	writeFile(t, dir, zoo.WeightsFile, data)
	_, err = s.Open(t.Context(), r, nil)
	damage, ok := errors.AsType[*zoo.DamageError](err)
	if !ok || damage.Tensor == "" || !strings.Contains(damage.Hint(), "zoo rm tiny") || !strings.Contains(damage.Hint(), "zoo pull tiny") {
		t.Fatalf("open: %v", err)
	}
	mustPull(t, s, rel, packSpec{})
	p, err := s.Open(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if !strings.Contains(log(), "replacing a damaged pack") {
		t.Errorf("logged: %s", log())
	}
	// A pack that is gone, and one that is another.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), r, nil); !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(zoo.Hint(err), "zoo pull tiny") {
		t.Errorf("gone: %v", err)
	}
	other, _ := buildPack(t, packSpec{seed: 99})
	if err := os.CopyFS(dir, os.DirFS(other)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), r, nil); !errors.Is(err, zoo.ErrIntegrity) {
		t.Errorf("another pack in its place: %v", err)
	}
}
