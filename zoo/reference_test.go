package zoo_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/zoo"
)

// goldens writes a folder of reference values, in name only.
func goldens(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{zoo.GoldenFile, zoo.GoldenTensorsFile} {
		writeFile(t, dir, name, []byte(name+" "+text))
	}
	return dir
}

// adopt adopts the values in a folder for tiny@1.0.0.
func adopt(ctx context.Context, s *zoo.Store, dir string) error {
	lock, err := s.Lock(ctx, "tiny", "1.0.0", nil)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	r, err := s.Record("tiny", "1.0.0")
	if err != nil {
		return err
	}
	stage, files, err := lock.StageReference(ctx, dir)
	if err != nil {
		return err
	}
	return lock.CommitReference(ctx, stage, zoo.AdoptedReference{Model: "tiny", Version: "1.0.0", Sources: r.Sources, Recipe: r.Release.Recipe, Files: files})
}

// adoptedText returns what is adopted for tiny@1.0.0, "none", or an error.
func adoptedText(t testing.TB, s *zoo.Store) string {
	t.Helper()
	r, err := s.Reference("tiny", "1.0.0")
	if errors.Is(err, zoo.ErrNotFound) {
		return "none"
	}
	if err != nil {
		return err.Error()
	}
	dir, err := s.VerifyReference(t.Context(), r)
	if err != nil {
		return err.Error()
	}
	return string(readFile(t, dir, zoo.GoldenFile))
}

// Values are adopted, take each other's place, and go with the model.
func TestAdoptReference(t *testing.T) {
	s, _ := newStore(t)
	mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{seed: 1})
	if got := adoptedText(t, s); got != "none" {
		t.Errorf("before: %s", got)
	}
	for _, text := range []string{"first", "second"} {
		dir := goldens(t, text)
		if text == "second" {
			writeFile(t, dir, zoo.QuestionsFile, []byte("{}"))
		}
		if err := adopt(t.Context(), s, dir); err != nil {
			t.Fatal(err)
		}
		if got := adoptedText(t, s); got != "golden.json "+text {
			t.Errorf("adopted: %s", got)
		}
		if kept := entries(t, s, "references/tiny/1.0.0"); len(kept) != 2 {
			t.Errorf("kept: %v", kept)
		}
	}
	r, err := s.Reference("tiny", "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Files) != 3 || r.SizeBytes() != int64(len("golden.json second")+len("golden.safetensors second")+2) || r.Adopted.IsZero() {
		t.Errorf("%+v", r)
	}
	if err := s.Remove(t.Context(), "tiny", "1.0.0"); err != nil {
		t.Fatal(err)
	}
	if got := adoptedText(t, s); got != "none" {
		t.Errorf("after removal: %s", got)
	}
	if left := entries(t, s, "references"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Values belong to source files and a recipe.
func TestReferenceFits(t *testing.T) {
	record := func(change func(*zoo.Record)) *zoo.Record {
		r := &zoo.Record{Release: testRelease("tiny", "1.0.0"), Sources: testSources()}
		r.Release.Recipe = map[string]string{"grid": "q4_0"}
		change(r)
		return r
	}
	of := record(func(*zoo.Record) {})
	r := zoo.AdoptedReference{Model: "tiny", Version: "1.0.0", Sources: of.Sources, Recipe: of.Release.Recipe}
	for name, test := range map[string]struct {
		change func(*zoo.Record)
		want   bool
	}{
		"the same":       {func(*zoo.Record) {}, true},
		"another plugin": {func(r *zoo.Record) { r.Plugin.Version, r.Pack = "9.9.9", catalog.DigestOf(nil) }, true},
		"another file":   {func(r *zoo.Record) { r.Sources[0].SHA256 = catalog.DigestOf(nil).Hex() }, false},
		"a file less":    {func(r *zoo.Record) { r.Sources = r.Sources[1:] }, false},
		"another grid":   {func(r *zoo.Record) { r.Release.Recipe["grid"] = "absmax7" }, false},
		"no recipe":      {func(r *zoo.Record) { r.Release.Recipe = nil }, false},
		"another model":  {func(r *zoo.Record) { r.Release.Model = "small" }, false},
	} {
		if got := r.Fits(record(test.change)); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What cannot be adopted changes nothing.
func TestAdoptReferenceRefuses(t *testing.T) {
	s, _ := newStore(t)
	mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{seed: 1})
	if err := adopt(t.Context(), s, goldens(t, "first")); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx    context.Context
		change func(dir string) error
		want   error
	}{
		"no json":      {nil, func(dir string) error { return os.Remove(filepath.Join(dir, zoo.GoldenFile)) }, zoo.ErrNotFound},
		"no tensors":   {nil, func(dir string) error { return os.Remove(filepath.Join(dir, zoo.GoldenTensorsFile)) }, zoo.ErrNotFound},
		"a folder":     {nil, func(dir string) error { return os.Mkdir(filepath.Join(dir, zoo.QuestionsFile), 0o755) }, zoo.ErrIntegrity},
		"no room":      {nil, func(dir string) error { return os.Truncate(filepath.Join(dir, zoo.GoldenTensorsFile), 1<<43) }, zoo.ErrNoSpace},
		"cut short":    {cancelled, func(string) error { return nil }, context.Canceled},
		"no such file": {nil, os.RemoveAll, zoo.ErrNotFound},
	} {
		dir := goldens(t, "second")
		if err := test.change(dir); err != nil {
			t.Logf("%s: cannot be tried here: %v", name, err)
			continue
		}
		ctx := t.Context()
		if test.ctx != nil {
			ctx = test.ctx
		}
		if err := adopt(ctx, s, dir); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if got := adoptedText(t, s); got != "golden.json first" {
			t.Errorf("%s: afterwards %s", name, got)
		}
		if left := entries(t, s, "tmp"); len(left) != 0 {
			t.Errorf("%s: left in tmp: %v", name, left)
		}
	}
	lock, err := s.Lock(t.Context(), "tiny", "1.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.CommitReference(t.Context(), t.TempDir(), zoo.AdoptedReference{}); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a folder of one's own: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := lock.RemoveReference(); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("without the lock: %v", err)
	}
}

// Damage is named, and goes with what replaces or removes the values.
func TestDamagedReference(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, dir string){
		"a byte":      func(t *testing.T, dir string) { writeFile(t, dir, "F/golden.json", []byte("golden.json firsT")) },
		"a file":      func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "F", zoo.GoldenTensorsFile)) },
		"all files":   func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "F")) },
		"description": func(t *testing.T, dir string) { writeFile(t, dir, "reference.json", []byte("{")) },
		"its folder": func(t *testing.T, dir string) {
			writeFile(t, dir, "reference.json", []byte(`{"model":"tiny","version":"1.0.0","folder":"../../..","files":[]}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newStore(t)
			mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{seed: 1})
			if err := adopt(t.Context(), s, goldens(t, "first")); err != nil {
				t.Fatal(err)
			}
			r, err := s.Reference("tiny", "1.0.0")
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(s.Home(), "references", "tiny", "1.0.0")
			// A short name for the cases above.
			if err := os.Symlink(r.Folder, filepath.Join(dir, "F")); err != nil {
				t.Skip("no symbolic links here:", err)
			}
			damage(t, dir)
			if r, err = s.Reference("tiny", "1.0.0"); err == nil {
				_, err = s.VerifyReference(t.Context(), r)
			}
			damaged, ok := errors.AsType[*zoo.ReferenceDamageError](err)
			if !ok || !errors.Is(err, zoo.ErrIntegrity) || damaged.Model != "tiny" || zoo.Hint(err) == "" {
				t.Fatalf("%T %v", err, err)
			}
			if err := adopt(t.Context(), s, goldens(t, "second")); err != nil {
				t.Fatal(err)
			}
			if got := adoptedText(t, s); got != "golden.json second" {
				t.Errorf("afterwards: %s", got)
			}
		})
	}
}

// remove removes a file, or the folder that a link leads to.
func remove(t *testing.T, path string) {
	t.Helper()
	path, err := filepath.EvalSymlinks(path)
	if err == nil {
		err = os.RemoveAll(path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A process that is killed at any step leaves the old values or the new ones; the
// next one cleans up.
func TestKilledWhileAdopting(t *testing.T) {
	const first, second = "golden.json first", "golden.json second"
	// swept is what there is after somebody has taken a lock.
	for _, tt := range []struct{ task, step, before, want, swept string }{
		{"adopt", "copy golden.safetensors", "", "none", "none"},
		{"adopt", "reference", "", "none", "none"},
		{"adopt", "reference record", "", "none", "none"},
		{"adopt", "old reference", "", second, second},
		{"adopt", "copy golden.safetensors", "first", first, first},
		{"adopt", "reference", "first", first, first},
		{"adopt", "reference record", "first", first, first},
		{"adopt", "old reference", "first", second, second},
		{"forget", "remove reference", "first", first, first},
		{"forget", "remove reference files", "first", "none", "none"},
		{"remove", "remove record", "first", first, first},
		{"remove", "remove pack", "first", first, "none"},
		{"remove", "remove checkpoint", "first", first, "none"},
		{"remove", "remove reference", "first", first, "none"},
		{"remove", "remove reference files", "first", "none", "none"},
	} {
		t.Run(tt.task+" at "+tt.step+" to "+tt.want, func(t *testing.T) {
			s, _ := newStore(t)
			mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{seed: 1})
			if tt.before != "" {
				if err := adopt(t.Context(), s, goldens(t, tt.before)); err != nil {
					t.Fatal(err)
				}
			}
			cmd := taskCommand(t.Context(), t, tt.task, s.Home(), tt.step)
			cmd.Env = append(cmd.Env, envDir+"="+goldens(t, "second"))
			out, err := cmd.CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Success() || len(out) > 0 {
				t.Fatalf("the process was not killed: %v: %s", err, out)
			}
			if got := adoptedText(t, s); got != tt.want {
				t.Errorf("afterwards: %s", got)
			}
			lock, err := s.Lock(t.Context(), "tiny", "1.0.0", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := lock.Unlock(); err != nil {
				t.Error(err)
			}
			if got := adoptedText(t, s); got != tt.swept {
				t.Errorf("after the next one: %s", got)
			}
			kept := 2 // the description and a folder
			if tt.swept == "none" {
				kept = 0
			}
			if left := entries(t, s, "references/tiny/1.0.0"); len(left) != kept {
				t.Errorf("kept: %v", left)
			}
			if left := entries(t, s, "tmp"); len(left) != 0 {
				t.Errorf("left in tmp: %v", left)
			}
			if err := s.Remove(t.Context(), "tiny", "1.0.0"); err != nil && !errors.Is(err, zoo.ErrNotFound) {
				t.Error(err)
			}
			if left := entries(t, s, "references"); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// Values without a record go with whoever takes the lock of any release, unless
// somebody works on theirs.
func TestSweepReferences(t *testing.T) {
	s, _ := newStore(t)
	mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{seed: 1})
	if err := adopt(t.Context(), s, goldens(t, "first")); err != nil {
		t.Fatal(err)
	}
	lock := func(model string) *zoo.Lock {
		t.Helper()
		l, err := s.Lock(t.Context(), model, "1.0.0", nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	unlock := func(locks ...*zoo.Lock) {
		t.Helper()
		for _, l := range locks {
			if err := l.Unlock(); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect := func(when, want string) {
		t.Helper()
		if got := adoptedText(t, s); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	unlock(lock("other"))
	expect("while it is installed", "golden.json first")
	record := filepath.Join(s.Home(), "models", "tiny", "1.0.0.json")
	if err := errors.Join(os.Chmod(record, 0o644), os.WriteFile(record, []byte("{"), 0o644)); err != nil {
		t.Fatal(err)
	}
	unlock(lock("other"), lock("tiny"))
	expect("with a damaged record", "golden.json first")
	tiny := lock("tiny")
	remove(t, record)
	unlock(lock("other"))
	expect("while somebody holds its lock", "golden.json first")
	unlock(tiny)
	unlock(lock("other"))
	expect("without a record", "none")
	if left := entries(t, s, "references"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Of several that adopt at once, the last one's values stand, whole.
func TestAdoptingAtOnce(t *testing.T) {
	s, _ := newStore(t)
	mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{seed: 1})
	texts := []string{"golden.json 1", "golden.json 2", "golden.json 3"}
	var wg sync.WaitGroup
	for _, text := range texts {
		dir := goldens(t, strings.TrimPrefix(text, zoo.GoldenFile+" "))
		wg.Go(func() {
			if err := adopt(t.Context(), s, dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := adoptedText(t, s); !slices.Contains(texts, got) {
		t.Error(got)
	}
	if kept := entries(t, s, "references/tiny/1.0.0"); len(kept) != 2 {
		t.Errorf("kept: %v", kept)
	}
}
