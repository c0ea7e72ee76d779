package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// planOfDemo is the plan of the demo for an empty store, without what differs from
// machine to machine: the store, its free space, the memory, and what the backend says.
const planOfDemo = `{
 "name": "demo",
 "version": "1.0.0",
 "title": "5M-parameter demonstration model",
 "installed": false,
 "source": {"kind": "embedded", "repository": "demo", "pinned": true},
 "plugin": {"name": "gemma4e2b", "constraint": "^1", "version": "1.0.0"},
 "recipe": {},
 "licence": {"spdx": "Apache-2.0 AND WordNet", "url": "https://wordnet.princeton.edu/license-and-commercial-use", "gated": false},
 "token": {"needed": false, "set": false},
 "files": [
  {"path": "config.json", "size": 2586, "have": 0, "from": "embedded files"},
  {"path": "generation_config.json", "size": 107, "have": 0, "from": "embedded files"},
  {"path": "tokenizer_config.json", "size": 250, "have": 0, "from": "embedded files"},
  {"path": "chat_template.jinja", "size": 226, "have": 0, "from": "embedded files"},
  {"path": "tokenizer.json", "size": 137459, "have": 0, "from": "embedded files"},
  {"path": "model.safetensors", "size": 2655188, "have": 0, "from": "embedded files"},
  {"path": "golden.json", "reference": true, "size": 7058, "have": 0, "from": "embedded files"},
  {"path": "golden.safetensors", "reference": true, "size": 1554736, "have": 0, "from": "embedded files"},
  {"path": "questions.jsonl", "reference": true, "size": 162081, "have": 0, "from": "embedded files"}
 ],
 "fetch": {"network": 0, "local": 4519691, "unknown_files": 0},
 "pack": {
  "size": 2664633, "estimated": true, "from": "its config.json from embedded files",
  "assumptions": [
   "the head repeats the embedding, so that the pack holds it once",
   "the checkpoint has static scales for activations and for an int8 cache"
  ],
  "digest": "sha256:3a493d1f4e2d2e0864564a0019cd165b2a996f37c02ca038fe52038bc79c6b31"
 },
 "disk": {"dir": "", "peak": 7184324, "linkable": 0, "kept": 7184324, "without_checkpoint": 2664633, "complete": true, "free": null, "enough": "yes"},
 "memory": {
  "backend": "cpu", "weights": 2007936, "tables": 524288, "tables_resident": false, "buffers": 1710080,
  "context": 4096, "cache": "int8", "cache_bytes": 589824,
  "caches": [
   {"type": "float", "bytes_per_position": 512, "rings": 262144},
   {"type": "half", "bytes_per_position": 512, "rings": 262144},
   {"type": "int8", "bytes_per_position": 128, "rings": 65536}
  ],
  "bytes_per_token": 1966636, "total": 4307840, "machine": 0, "enough": "yes"
 },
 "unknown": []
}`

// TestPlanOfDemo holds a plan against its JSON, and against what then comes about.
func TestPlanOfDemo(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "new")
	p, err := client(t, home).Plan(t.Context(), "demo@^1", sdk.WithBackend("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(home); err == nil {
		t.Error("a plan made the store")
	}
	if p.Disk.Dir != home || p.Disk.FreeBytes == nil || *p.Disk.FreeBytes <= 0 {
		t.Errorf("disk %+v", p.Disk)
	}
	estimated, memory := *p.Pack, *p.Memory
	p.Disk.Dir, p.Disk.FreeBytes, p.Memory.MachineBytes = "", nil, 0
	if memory.MachineBytes == 0 { // on Windows
		p.Memory.Enough, p.Unknown = sdk.Yes, []string{}
	}
	got, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if err := errors.Join(json.Unmarshal([]byte(planOfDemo), &a), json.Unmarshal(got, &b)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	p, err = client(t, installed(t)).Plan(t.Context(), "demo", sdk.WithBackend("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	if off := math.Abs(float64(estimated.SizeBytes)/float64(p.Pack.SizeBytes) - 1); off > 0.01 {
		t.Errorf("estimated %d bytes, the pack has %d", estimated.SizeBytes, p.Pack.SizeBytes)
	}
	if diff := cmp.Diff(&memory, p.Memory); diff != "" {
		t.Errorf("memory (-estimated +of the pack):\n%s", diff)
	}
	if !p.Installed || p.Pack.Estimated || p.Disk.PeakBytes != 0 || p.Disk.KeptBytes <= p.Pack.SizeBytes || p.Fetch != (sdk.PlanFetch{}) {
		t.Errorf("installed: %+v, %+v, %+v", p.Pack, p.Disk, p.Fetch)
	}
	for _, f := range p.Files {
		if f.SizeBytes == nil || f.HaveBytes != *f.SizeBytes {
			t.Errorf("%s: %d bytes are there", f.Path, f.HaveBytes)
		}
	}
}

// TestPlanMemory holds what a model is said to take against what it takes.
func TestPlanMemory(t *testing.T) {
	t.Parallel()
	z := client(t, installed(t), sdk.WithBackend("cpu"))
	for _, kind := range []string{"float", "half", "int8"} {
		const context = 512
		p, err := z.Plan(t.Context(), "demo", sdk.WithCache(kind), sdk.WithContext(context))
		if err != nil {
			t.Fatal(err)
		}
		r, err := z.Bench(t.Context(), "demo", sdk.BenchOptions{Prompt: context - 1, Generate: 1, Rounds: 1}, sdk.WithCache(kind), sdk.WithContext(context))
		if err != nil {
			t.Fatal(err)
		}
		m := p.Memory
		if m.Cache != kind || m.CacheBytes != r.Memory.Caches || m.StepBytes != r.StepBytes {
			t.Errorf("%s cache of %d bytes, %d bytes a token; measured %d and %d", m.Cache, m.CacheBytes, m.StepBytes, r.Memory.Caches, r.StepBytes)
		}
		if share := float64(m.BufferBytes) / float64(r.Memory.Buffers); share < 0.5 || share > 1 {
			t.Errorf("buffers of %d bytes, measured %d", m.BufferBytes, r.Memory.Buffers)
		}
	}
	if _, err := z.Plan(t.Context(), "demo", sdk.WithBackend("abacus")); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("an unknown backend: %v", err)
	}
	for _, n := range []int{1 << 20, -3} {
		if p, err := z.Plan(t.Context(), "demo", sdk.WithContext(n)); p != nil || !errors.Is(err, zoo.ErrUsage) || zoo.Hint(err) == "" {
			t.Errorf("a context of %d: %+v, %v", n, p, err)
		}
	}
}

// TestPlanLeft counts what an earlier pull has left as done, and what binds since then.
func TestPlanLeft(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	dir := filepath.Join(home, "checkpoints", "demo", "1.0.0")
	if err := os.CopyFS(dir, os.DirFS(checkpoint(t))); err != nil {
		t.Fatal(err)
	}
	weights := filepath.Join(dir, "model.safetensors")
	if err := errors.Join(os.Rename(weights, weights+".part"), os.Truncate(weights+".part", 1_000_000)); err != nil {
		t.Fatal(err)
	}
	p, err := client(t, home).Plan(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range p.Files {
		switch {
		case f.Path == "model.safetensors" && f.HaveBytes != 1_000_000, f.Path == "config.json" && (f.HaveBytes != *f.SizeBytes || f.From != ""):
			t.Errorf("%+v", f)
		}
	}
	if want := int64(4519691 - 1_000_000 - 2586 - 107 - 250 - 226 - 137459); p.Fetch.LocalBytes != want {
		t.Errorf("%d bytes are left, want %d", p.Fetch.LocalBytes, want)
	}
	if !strings.HasSuffix(p.Pack.From, "in the store") {
		t.Errorf("shapes from %s", p.Pack.From)
	}
}

// referenceBytes is the size of the demo's reference values.
const referenceBytes = 7058 + 1554736 + 162081

// TestPlanReference counts what the gate will compare with: nothing that is adopted has
// to be fetched, and what is published has, if the pack has yet to pass.
func TestPlanReference(t *testing.T) {
	t.Parallel()
	long(t) // the store of short runs has no reference values
	plan := func(z *sdk.Zoo) *sdk.Plan {
		t.Helper()
		p, err := z.Plan(t.Context(), "demo")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	home := copied(t)
	z := client(t, home)
	if err := errors.Join(os.Remove(find(t, home, "/gate.json")), os.RemoveAll(filepath.Join(home, "checkpoints"))); err != nil {
		t.Fatal(err)
	}
	p := plan(z)
	if !p.Installed || p.Fetch.LocalBytes != referenceBytes || p.Disk.PeakBytes != referenceBytes || p.Disk.KeptBytes != p.Pack.SizeBytes+referenceBytes || p.Disk.WithoutCheckpointBytes != p.Pack.SizeBytes {
		t.Errorf("ungated: %+v, %+v", p.Fetch, p.Disk)
	}
	// Then they lie where source files would, and are none.
	if err := os.CopyFS(filepath.Join(home, "checkpoints", "demo", "1.0.0", ".reference"), os.DirFS(filepath.Join(installed(t), "checkpoints", "demo", "1.0.0", ".reference"))); err != nil {
		t.Fatal(err)
	}
	if d, err := z.Show(t.Context(), "demo"); err != nil || d.Model.Checkpoint {
		t.Errorf("show: %+v, %v", d.Model, err)
	}
	if v, err := z.Verify(t.Context(), "demo"); err != nil || v.Checkpoint {
		t.Errorf("verify: %+v, %v", v, err)
	}
	if p = plan(z); p.Fetch.LocalBytes != 0 || p.Disk.PeakBytes != 0 || p.Disk.KeptBytes != p.Pack.SizeBytes+referenceBytes {
		t.Errorf("ungated, with the values: %+v, %+v", p.Fetch, p.Disk)
	}

	home = copied(t)
	z = client(t, home)
	if _, err := z.AdoptReference(t.Context(), "demo", reference(t, nil)); err != nil {
		t.Fatal(err)
	}
	const adoptedBytes, sourceBytes = 7058 + 1554736, 2795816
	adopted := func(p *sdk.Plan) (n int) {
		for _, f := range p.Files {
			if f.Adopted && f.Reference && f.HaveBytes == *f.SizeBytes {
				n++
			}
		}
		return n
	}
	p = plan(z)
	if adopted(p) != 2 || p.Fetch != (sdk.PlanFetch{}) || p.Disk.WithoutCheckpointBytes != p.Pack.SizeBytes+adoptedBytes || p.Disk.KeptBytes != p.Pack.SizeBytes+sourceBytes+referenceBytes+adoptedBytes {
		t.Errorf("adopted: %+v, %+v", p.Fetch, p.Disk)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(home, "packs")), os.RemoveAll(filepath.Join(home, "checkpoints"))); err != nil {
		t.Fatal(err)
	}
	p = plan(z)
	if p.Installed || adopted(p) != 2 || p.Fetch.LocalBytes != sourceBytes || p.Disk.KeptBytes != p.Pack.SizeBytes+sourceBytes+adoptedBytes {
		t.Errorf("adopted, to be made anew: %+v, %+v", p.Fetch, p.Disk)
	}
	// A pull would end at values that are damaged.
	rewrite(t, filepath.Join(home, "references", "demo", "1.0.0", "reference.json"), []byte("{}"))
	if p = plan(z); !strings.Contains(p.Problem, "damaged") {
		t.Errorf("damaged: %+v", p)
	}
}

// TestPlanLinks leaves open whether there is room for files that may be linked.
func TestPlanLinks(t *testing.T) {
	t.Parallel()
	source := checkpoint(t)
	z := client(t, t.TempDir(), plainCatalog(t), sdk.WithCheckpoint(source))
	p, err := z.Plan(t.Context(), "plain")
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Disk; d.LinkableBytes != 2795816 || d.PeakBytes != p.Pack.SizeBytes+d.LinkableBytes || d.Enough != sdk.Yes {
		t.Errorf("%+v", d)
	}
	if err := os.Truncate(filepath.Join(source, "model.safetensors"), *p.Disk.FreeBytes*2); err != nil {
		t.Skipf("there are no files with holes: %v", err)
	}
	if p, err = z.Plan(t.Context(), "plain"); err != nil || p.Disk.Enough != sdk.Unknown || len(p.Unknown) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestPlanShards finds the files that an index names, wherever on this machine it is.
func TestPlanShards(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	const commit = "0123456789abcdef0123456789abcdef01234567"
	repo := filepath.Join(cache, "models--google--gemma-4-E4B-it-qat-q4_0-unquantized")
	blobs, snapshot := filepath.Join(repo, "blobs"), filepath.Join(repo, "snapshots", commit)
	tiny := filepath.Join("..", "plugins", "gemma4", "testdata", "e4b-tiny")
	err := errors.Join(os.MkdirAll(filepath.Join(repo, "refs"), 0o755), os.MkdirAll(snapshot, 0o755),
		os.WriteFile(filepath.Join(repo, "refs", "main"), []byte(commit), 0o644), os.CopyFS(blobs, os.DirFS(tiny)))
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	entries, err := os.ReadDir(blobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "golden") {
			continue
		}
		info, err := e.Info()
		if err := errors.Join(err, os.Symlink(filepath.Join("..", "..", "blobs", e.Name()), filepath.Join(snapshot, e.Name()))); err != nil {
			t.Skip(err)
		}
		total += info.Size()
	}
	p, err := client(t, t.TempDir()).Plan(t.Context(), "gemma-4-e4b")
	if err != nil || p.Fetch.LocalBytes != total || p.Fetch.UnknownFiles != 0 || !p.Disk.Complete || len(p.Unknown) != 0 || p.Source.Commit != commit {
		t.Errorf("%d bytes: %+v, %v", total, p, err)
	}
}

// TestPlanOfNothing refuses what is no model, and ends with its context.
func TestPlanOfNothing(t *testing.T) {
	t.Parallel()
	z := client(t, t.TempDir())
	if _, err := z.Plan(t.Context(), "nothing"); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("an unknown name: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := z.Plan(ctx, "demo"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	// Without a network nobody tells which files hold the weights of a release that leaves it open.
	open, err := z.Plan(t.Context(), "gemma-4-e4b")
	if err != nil || open.Fetch.UnknownFiles != 6 || len(open.Unknown) < 2 || open.Pack == nil || open.Pack.SizeBytes < 4e9 || open.Disk.Complete || open.Memory.Cache != "float" {
		t.Errorf("%+v, %v", open, err)
	}
	// An index names the files with the weights, which are not known before it is there.
	source := checkpoint(t)
	file := filepath.Join(t.TempDir(), "split.yaml")
	index := filepath.Join(source, "model.safetensors.index.json")
	err = errors.Join(
		os.WriteFile(file, []byte(strings.ReplaceAll(plainModels("split"), "model.safetensors", "model.safetensors.index.json")), 0o644),
		os.WriteFile(index, []byte(`{"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}`), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	z = client(t, t.TempDir(), sdk.WithCatalog(file), sdk.WithCheckpoint(source))
	p, err := z.Plan(t.Context(), "split")
	if err != nil || p.Disk.Complete || p.Fetch.UnknownFiles != 2 || p.Disk.Enough == sdk.Yes || len(p.Unknown) == 0 {
		t.Errorf("%+v, %v", p, err)
	}
}
