package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// copied returns a copy of the shared store that a test may change.
func copied(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(installed(t))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// plainCatalog adds a model "plain" to the catalog.
func plainCatalog(t *testing.T) sdk.Option {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plain.yaml")
	if err := os.WriteFile(file, []byte(plainModels("plain")), 0o644); err != nil {
		t.Fatal(err)
	}
	return sdk.WithCatalog(file)
}

// client returns a zoo on a store.
func client(t *testing.T, dir string, opts ...sdk.Option) *sdk.Zoo {
	t.Helper()
	z, err := sdk.New(append(opts, sdk.WithHome(dir), sdk.WithOffline())...)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// checkpoint writes the demo's source files into a folder.
func checkpoint(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkpoint")
	files, err := catalog.Embedded("demo")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}

// find returns the one file below dir whose path ends in a suffix.
func find(t *testing.T, dir, suffix string) string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(filepath.ToSlash(path), suffix) {
			found = append(found, path)
		}
		return err
	})
	if err != nil || len(found) != 1 {
		t.Fatalf("files that end in %q: %q, %v", suffix, found, err)
	}
	return found[0]
}

// flip inverts a bit of a file at an offset, from its end if negative.
func flip(t *testing.T, file string, offset int64) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if offset < 0 {
		offset += int64(len(data))
	}
	data[offset] ^= 4
	if err := errors.Join(os.Chmod(file, 0o644), os.WriteFile(file, data, 0o644), os.Chmod(file, 0o444)); err != nil {
		t.Fatal(err)
	}
}

// Two pulls at once do the work once, and a third finds it done.
func TestPullAtOnce(t *testing.T) {
	t.Parallel()
	dir, models := t.TempDir(), plainCatalog(t)
	var mu sync.Mutex
	var fetched []string
	fresh, waited := 0, 0
	var wg sync.WaitGroup
	for range 2 {
		z := client(t, dir, models, sdk.WithProgress(sdk.Events{
			Waiting: func(string, string) { mu.Lock(); waited++; mu.Unlock() },
			Download: func(e download.Event) {
				if mu.Lock(); e.Stage == download.StageDone {
					fetched = append(fetched, e.File)
				}
				mu.Unlock()
			},
		}))
		wg.Go(func() {
			done, err := z.Pull(t.Context(), "plain@^1")
			if err != nil {
				t.Error(err)
				return
			}
			if r := done.Receipt; !r.Passed || r.Level != zoo.LevelSelf || done.PackBytes == 0 {
				t.Errorf("receipt %+v", r)
			}
			if mu.Lock(); done.Fresh {
				fresh++
			}
			mu.Unlock()
		})
	}
	wg.Wait()
	if fresh != 1 || waited > 1 {
		t.Errorf("%d pulls did the work, %d waited", fresh, waited)
	}
	slices.Sort(fetched)
	want := []string{
		"chat_template.jinja", "config.json", "generation_config.json",
		"model.safetensors", "tokenizer.json", "tokenizer_config.json",
	}
	if diff := cmp.Diff(want, fetched); diff != "" {
		t.Error(diff)
	}
	if done, err := client(t, dir, models).Pull(t.Context(), "plain"); err != nil || done.Fresh {
		t.Errorf("a third pull: %+v, %v", done, err)
	}
}

// What is damaged is named, is not opened, and is made anew from the files that are kept.
func TestDamage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		file   string
		offset int64
		named  string
	}{
		{"weights", "weights.safetensors", 300_000, "tensor "},
		{"tokenizer", "tokenizer.bin", -5, "tokenizer.bin"},
		{"manifest", "pack.json", 40, "pack.json"},
		{"template", "/packs/*/chat_template.jinja", 3, "chat_template.jinja"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := copied(t)
			packs := filepath.Join(dir, "packs")
			file := find(t, packs, filepath.Base(test.file))
			flip(t, file, test.offset)
			z := client(t, dir)
			_, err := z.Open(t.Context(), "demo")
			if !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(fmt.Sprint(err), test.named) {
				t.Errorf("Open: %v, want one of integrity that names %q", err, test.named)
			}
			if !strings.Contains(zoo.Hint(err), "zoo pull demo") {
				t.Errorf("hint %q", zoo.Hint(err))
			}
			_, err = z.Verify(t.Context(), "demo")
			if !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(fmt.Sprint(err), test.named) {
				t.Errorf("Verify: %v, want one of integrity that names %q", err, test.named)
			}
			if !strings.Contains(zoo.Hint(err), "zoo pull demo") {
				t.Errorf("hint %q", zoo.Hint(err))
			}
		})
	}
}

func TestPullRepairs(t *testing.T) {
	t.Parallel()
	long(t)
	dir := t.TempDir()
	var notices []string
	z := client(t, dir, plainCatalog(t), sdk.WithProgress(sdk.Events{Notice: func(text string) { notices = append(notices, text) }}))
	if _, err := z.Pull(t.Context(), "plain"); err != nil {
		t.Fatal(err)
	}
	flip(t, find(t, filepath.Join(dir, "packs"), "weights.safetensors"), 300_000)
	done, err := z.Pull(t.Context(), "plain")
	if err != nil || !done.Fresh {
		t.Fatalf("%+v, %v", done, err)
	}
	if len(notices) == 0 || !strings.Contains(notices[0], "damaged") {
		t.Errorf("notices %q", notices)
	}
	m, err := z.Open(t.Context(), "plain")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got, err := m.Respond(t.Context(), askParis); got != paris || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestVerifyCheckpoint(t *testing.T) {
	t.Parallel()
	dir := copied(t)
	z := client(t, dir)
	v, err := z.Verify(t.Context(), "demo")
	if err != nil || !v.Checkpoint || v.CheckpointFiles != 6 || v.PackBytes == 0 {
		t.Fatalf("%+v, %v", v, err)
	}
	checkpoints := filepath.Join(dir, "checkpoints", "demo", "1.0.0")
	flip(t, filepath.Join(checkpoints, "model.safetensors"), -100)
	if err := os.Remove(filepath.Join(checkpoints, "config.json")); err != nil {
		t.Fatal(err)
	}
	_, err = z.Verify(t.Context(), "demo")
	for _, name := range []string{"model.safetensors", "config.json"} {
		if !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("error %v does not name %q", err, name)
		}
	}
	// The pack does not need them.
	if _, err := z.RemoveCheckpoint(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	if v, err := z.Verify(t.Context(), "demo"); err != nil || v.Checkpoint {
		t.Errorf("%+v, %v", v, err)
	}
}

// A pack of one's own is refused until it has passed its gate.
func TestOwnPack(t *testing.T) {
	t.Parallel()
	long(t)
	dir := t.TempDir()
	pack := filepath.Join(t.TempDir(), "pack")
	notice := ""
	z := client(t, dir, sdk.WithProgress(sdk.Events{Notice: func(text string) { notice = text }}))
	made, err := z.Convert(t.Context(), sdk.ConvertOptions{Checkpoint: checkpoint(t), Plugin: "gemma4e2b", Output: pack})
	if err != nil {
		t.Fatal(err)
	}
	original := open(t)
	if made.Digest != original.Info().Pack || made.Dir != pack || len(made.Tensors) == 0 {
		t.Errorf("made %+v, installed is %s", made, original.Info().Pack)
	}
	if _, err := z.Open(t.Context(), pack); !errors.Is(err, zoo.ErrGateFailed) {
		t.Errorf("without a gate: %v", err)
	}
	m, err := z.Open(t.Context(), pack, sdk.AllowUngated())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}

	// Without reference values the level is self, and a notice says so.
	report, err := z.Gate(t.Context(), pack, sdk.GateOptions{})
	if err != nil || !report.Pass || report.Level != zoo.LevelSelf {
		t.Fatalf("%+v, %v", report, err)
	}
	m, err = z.Open(t.Context(), pack)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(notice, "not held against reference values") {
		t.Errorf("notice %q", notice)
	}

	// With them it opens silently, and how it is run may differ.
	reference := filepath.Join(installed(t), "checkpoints", "demo", "1.0.0", ".reference")
	report, err = z.Gate(t.Context(), pack, sdk.GateOptions{Reference: reference, Quick: true})
	if err != nil || !report.Pass || report.Level != zoo.LevelOracle {
		t.Fatalf("%+v, %v", report, err)
	}
	notice = ""
	m, err = z.Open(t.Context(), pack, sdk.WithThreads(1), sdk.WithContext(256))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if notice != "" || m.Info().Name != pack || m.Info().Context != 256 || m.Info().Threads != 1 {
		t.Errorf("notice %q, %+v", notice, m.Info())
	}
	if got, err := m.Respond(t.Context(), askParis); got != paris || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if c, err := z.Compare(t.Context(), pack, pack, sdk.CompareOptions{}); err != nil || !c.Equal || len(c.Facts) != 0 {
		t.Errorf("compared with itself: %+v, %v", c, err)
	}
}

// What a gate with other settings finds is kept only if the pack passes, and is told
// when the pack runs otherwise.
func TestGateWithOtherSettings(t *testing.T) {
	t.Parallel()
	long(t)
	var notices []string
	z := client(t, t.TempDir(), plainCatalog(t), sdk.WithProgress(sdk.Events{Notice: func(text string) { notices = append(notices, text) }}))
	if _, err := z.Pull(t.Context(), "plain"); err != nil {
		t.Fatal(err)
	}
	receipt := func() zoo.Receipt {
		t.Helper()
		d, err := z.Show(t.Context(), "plain")
		if err != nil {
			t.Fatal(err)
		}
		return *d.Pack.Receipt
	}
	told := func(text string) bool {
		t.Helper()
		said := strings.Join(notices, "\n")
		notices = nil
		return strings.Contains(said, text)
	}
	before := receipt()
	if before.Cache != "int8" {
		t.Errorf("by default the cache is %s", before.Cache)
	}
	for name, test := range map[string]struct {
		how  sdk.GateOptions
		opts []sdk.Option
	}{
		"a fork margin": {sdk.GateOptions{ForkMargin: 5}, nil},
		"a failure":     {sdk.GateOptions{Reference: wrongReference(t)}, []sdk.Option{sdk.WithCache("float")}},
	} {
		report, err := z.Gate(t.Context(), "plain", test.how, test.opts...)
		if report == nil || report.Pass != (err == nil) || report.Pass != (name == "a fork margin") {
			t.Fatalf("%s: %+v, %v", name, report, err)
		}
		if !told("no receipt") {
			t.Errorf("%s: not told that there is no receipt", name)
		}
		if diff := cmp.Diff(before, receipt()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	report, err := z.Gate(t.Context(), "plain", sdk.GateOptions{}, sdk.WithCache("float"))
	if err != nil || !report.Pass || told("no receipt") || receipt().Cache != "float" {
		t.Fatalf("%+v, %v, receipt %+v", report, err, receipt())
	}
	for _, test := range []struct {
		opts []sdk.Option
		told bool
	}{{nil, true}, {[]sdk.Option{sdk.WithCache("float")}, false}, {[]sdk.Option{sdk.WithCache("int8")}, false}} {
		m, err := z.Open(t.Context(), "plain", append(test.opts, sdk.WithProgress(sdk.Events{Notice: func(text string) { notices = append(notices, text) }}))...)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if told("passed its gate with static activations and a float cache") != test.told {
			t.Errorf("with %d options: told %v", len(test.opts), !test.told)
		}
	}
	if _, err := z.Gate(t.Context(), "plain", sdk.GateOptions{Reference: filepath.Join(t.TempDir(), "none")}); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("no folder: %v", err)
	}
	if _, err := z.Gate(t.Context(), "gemma-4-e2b", sdk.GateOptions{}); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("not installed: %v", err)
	}
}

// wrongReference writes reference values of which one token is wrong.
func wrongReference(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files, err := catalog.Embedded("demo/reference")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "golden.json")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Runs []struct {
			Prompt []int32   `json:"prompt"`
			Greedy []int32   `json:"greedy"`
			Margin []float64 `json:"margin"`
		} `json:"runs"`
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	golden.Runs[0].Greedy[0]++
	if data, err = json.Marshal(golden); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(file), os.WriteFile(file, data, 0o644), os.Remove(filepath.Join(dir, "questions.jsonl"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestConvertRefusals(t *testing.T) {
	t.Parallel()
	z := client(t, t.TempDir())
	source := checkpoint(t)
	out := func(name string) string { return filepath.Join(t.TempDir(), name) }
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	damaged := checkpoint(t)
	if err := os.Truncate(filepath.Join(damaged, "model.safetensors"), 1000); err != nil {
		t.Fatal(err)
	}
	partial := checkpoint(t)
	if err := os.Remove(filepath.Join(partial, "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		o    sdk.ConvertOptions
		want error
	}{
		{"plugin", sdk.ConvertOptions{Checkpoint: source, Plugin: "gemma9", Output: out("a")}, zoo.ErrNotFound},
		{"plugin version", sdk.ConvertOptions{Checkpoint: source, Plugin: "gemma4e2b@^9", Output: out("a")}, zoo.ErrNotFound},
		{"plugin constraint", sdk.ConvertOptions{Checkpoint: source, Plugin: "gemma4e2b@one", Output: out("a")}, zoo.ErrUsage},
		{"no plugin", sdk.ConvertOptions{Checkpoint: source, Output: out("a")}, zoo.ErrUsage},
		{"no output", sdk.ConvertOptions{Checkpoint: source, Plugin: "gemma4e2b"}, zoo.ErrUsage},
		{"full output", sdk.ConvertOptions{Checkpoint: source, Plugin: "gemma4e2b", Output: full}, zoo.ErrUsage},
		{"no parent", sdk.ConvertOptions{Checkpoint: source, Plugin: "gemma4e2b", Output: filepath.Join(out("a"), "b")}, zoo.ErrNotFound},
		{"no checkpoint", sdk.ConvertOptions{Checkpoint: out("none"), Plugin: "gemma4e2b", Output: out("a")}, zoo.ErrNotFound},
		{"empty checkpoint", sdk.ConvertOptions{Checkpoint: t.TempDir(), Plugin: "gemma4e2b", Output: out("a")}, zoo.ErrNotFound},
		{"truncated", sdk.ConvertOptions{Checkpoint: damaged, Plugin: "gemma4e2b", Output: out("a")}, zoo.ErrIntegrity},
		{"a file short", sdk.ConvertOptions{Checkpoint: partial, Plugin: "gemma4e2b", Output: out("a")}, zoo.ErrNotFound},
		{"recipe", sdk.ConvertOptions{Checkpoint: source, Plugin: "gemma4e2b", Output: out("a"), Recipe: map[string]string{"grid": "q9"}}, zoo.ErrUsage},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := z.Convert(t.Context(), test.o)
			if !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			if zoo.Hint(err) == "" {
				t.Errorf("no hint with %v", err)
			}
			// Nothing half-made is left.
			if test.o.Output != "" && test.o.Output != full {
				if left, err := os.ReadDir(filepath.Dir(test.o.Output)); err == nil && len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			}
		})
	}
}

func TestListShowRemove(t *testing.T) {
	t.Parallel()
	long(t)
	dir := copied(t)
	z := client(t, dir, sdk.WithCatalog(unsupported(t)))
	list, err := z.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 4 || list[0].Name != "demo" || !list[0].Installed || list[0].Gate != "oracle" || list[0].Time == nil || list[0].PackBytes == 0 {
		t.Errorf("list %+v", list)
	}
	for _, e := range list[1:] {
		if e.Installed || e.Title == "" || (e.Problem != "") != (e.Name == "unsupported") {
			t.Errorf("entry %+v", e)
		}
	}
	d, err := z.Show(t.Context(), "demo@1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if m := d.Model; m == nil || !m.Installed || !m.Checkpoint || m.Reference == nil || m.Reference.From != sdk.FromCatalog || m.Kind != "embedded" || len(m.Files) != 6 {
		t.Errorf("model %+v", m)
	}
	if p := d.Pack; p == nil || p.Layers == 0 || p.Hidden == 0 || p.Context != 4096 || p.Receipt == nil || p.Gate != "oracle" {
		t.Errorf("pack %+v", p)
	}
	if d, err := z.Show(t.Context(), "e2b"); err != nil || d.Name != "gemma-4-e2b" || d.Model.Installed || d.Pack != nil || d.Problem != "" {
		t.Errorf("by an alias: %+v, %v", d, err)
	}
	if name, version, err := z.Remove(t.Context(), "demo"); err != nil || name != "demo" || version != "1.0.0" {
		t.Errorf("%s@%s, %v", name, version, err)
	}
	if _, _, err := z.Remove(t.Context(), "demo"); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	for _, name := range []string{"packs", "checkpoints/demo/1.0.0", "models/demo/1.0.0.json"} {
		if left, err := os.ReadDir(filepath.Join(dir, name)); err == nil && len(left) > 0 {
			t.Errorf("left in %s: %v", name, left)
		}
	}
}

// builtin returns the catalog in the binary.
func builtin(t *testing.T) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	z := client(t, installed(t), sdk.WithToken("hf_secret"), sdk.WithEndpoint("http://user:password@hub.example"))
	d, err := z.Doctor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !d.Exists || !d.Writable || !d.Offline || !d.Token || d.Used.PackBytes == 0 || d.Models != len(builtin(t).Models) || len(d.Problems) != 0 {
		t.Errorf("%+v", d)
	}
	if len(d.Backends) != 2 || d.Backends[0].Name != "metal" || d.Backends[1].Name != "cpu" || len(d.Plugins) != 3 {
		t.Errorf("%+v", d)
	}
	first := true // that is available, which is taken
	for _, b := range d.Backends {
		if chosen := b.Available && first; b.Chosen != chosen || (b.Why != "") != chosen || b.About == "" {
			t.Errorf("%+v", b)
		}
		first = first && !b.Available
	}
	if !d.Backends[1].Available {
		t.Errorf("%+v", d.Backends)
	}
	if text := fmt.Sprintf("%+v", d); strings.Contains(text, "secret") || strings.Contains(text, "password") {
		t.Errorf("a secret is told: %s", text)
	}
}

// A catalog of one's own goes before the built-in one.
func TestCatalogFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "catalog.yaml")
	text := `
schema: 1
models:
  - name: mine
    title: My own
    aliases: [e2b]
    releases:
      - version: 2.0.0
        plugin: {name: gemma4e2b, constraint: ^1}
        licence: {spdx: MIT, url: "https://example.org/licence"}
        source: {kind: hub, repository: me/mine, revision: main, files: [{path: config.json}]}
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	z := client(t, t.TempDir(), sdk.WithCatalog(file))
	models, err := z.Models(t.Context())
	if want := len(builtin(t).Models) + 1; err != nil || len(models) != want {
		t.Fatalf("%d models, %v", len(models), err)
	}
	for ref, want := range map[string]string{"mine": "mine", "e2b": "mine", "gemma4-e2b": "gemma-4-e2b", "demo": "demo"} {
		if d, err := z.Show(t.Context(), ref); err != nil || d.Name != want {
			t.Errorf("%q is %+v, %v, want %q", ref, d, err, want)
		}
	}
	if _, err := z.Pull(t.Context(), "mine"); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("offline: %v", err)
	}
	for name, text := range map[string]string{"no YAML": "a: [", "no schema": "models: []", "field": text + "    colour: red\n"} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := client(t, t.TempDir(), sdk.WithCatalog(file)).List(t.Context()); !errors.Is(err, zoo.ErrIntegrity) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSettingsOfTheStore(t *testing.T) {
	t.Parallel()
	z := client(t, installed(t))
	if _, err := z.Open(t.Context(), "demo", sdk.WithHome(t.TempDir())); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("another store: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client(t, t.TempDir()).Pull(ctx, "demo"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
