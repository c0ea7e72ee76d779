package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/gate"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/tokenizer"
	"github.com/zoo-sdk/zoo/zoo"
)

// packText is the tokenizer of a reference checkpoint and the turns of its chat template.
type packText struct {
	*tokenizer.Tokenizer
	stops []int32
}

func (t packText) Prompt(_ context.Context, question string) ([]int32, error) {
	return t.EncodeParts(nil, []tokenizer.Part{
		{Text: "<bos><|turn>user\n", Markers: tokenizer.MarkersAreTokens},
		{Text: question},
		{Text: "<turn|>\n<|turn>model\n", Markers: tokenizer.MarkersAreTokens},
	}), nil
}

func (t packText) Encode(text string) []int32 {
	return t.Tokenizer.Encode(nil, text, tokenizer.MarkersAreText)
}

func (t packText) StopIDs() []int32 { return t.stops }

// request converts a checkpoint and returns a request to hold it against golden files.
func request(t testing.TB, name, suffix string) gate.Request {
	t.Helper()
	dir := t.TempDir()
	if name == "demo" {
		for _, repository := range []string{"demo", "demo/reference"} {
			files, err := catalog.Embedded(repository)
			if err != nil {
				t.Fatal(err)
			}
			copyFiles(t, files, dir)
		}
	} else {
		copyFiles(t, os.DirFS(filepath.Join("..", "plugins", "gemma4", "testdata", name)), dir)
	}
	for _, ext := range []string{".json", ".safetensors"} {
		if suffix != "" {
			if err := os.Rename(filepath.Join(dir, "golden"+suffix+ext), filepath.Join(dir, "golden"+ext)); err != nil {
				t.Fatal(err)
			}
		}
	}

	plugin := gemma4e2b.New()
	packDir := t.TempDir()
	if _, err := plugin.Convert(t.Context(), zoo.ConvertRequest{Checkpoint: dir, Sources: sources(t, dir), Dir: packDir}); err != nil {
		t.Fatal(err)
	}
	pack, err := zoo.OpenPack(packDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pack.Close() })
	p, err := plugin.Run(t.Context(), zoo.RunRequest{Pack: pack.Info()})
	if err != nil {
		t.Fatal(err)
	}
	reference, err := plugin.Gate(t.Context(), zoo.GateRequest{Pack: pack.Info(), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := pack.File(zoo.TokenizerFile)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Open(compiled)
	if err != nil {
		t.Fatal(err)
	}
	text, err := pack.File(zoo.GenerationFile)
	if err != nil {
		t.Fatal(err)
	}
	var generation struct {
		Stops []int32 `json:"eos_token_id"`
	}
	if err := json.Unmarshal(text, &generation); err != nil {
		t.Fatal(err)
	}
	about, err := plugin.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return gate.Request{
		Pack: pack, Program: p, Backend: cpu.New(""), Text: packText{tok, generation.Stops}, Reference: reference,
		Plugin: zoo.PluginID{Name: about.Name, Version: about.Version},
	}
}

// copyFiles copies the files of a folder.
func copyFiles(t testing.TB, from fs.FS, dir string) {
	t.Helper()
	entries, err := fs.ReadDir(from, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := fs.ReadFile(from, e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// sources lists the files of a checkpoint.
func sources(t testing.TB, dir string) []catalog.File {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []catalog.File
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(e.Name(), "golden") {
			files = append(files, catalog.File{Path: e.Name(), SizeBytes: int64(len(data)), SHA256: catalog.DigestOf(data).Hex()})
		}
	}
	return files
}

// damaged is a pack of which one tensor is read wrongly.
type damaged struct {
	gate.Pack
	name   string
	damage func(data []byte, m quant.Matrix)
}

func (d damaged) Tensor(name string) ([]byte, quant.Matrix, bool) {
	data, m, ok := d.Pack.Tensor(name)
	if ok && name == d.name {
		data = slices.Clone(data)
		d.damage(data, m)
	}
	return data, m, ok
}

// transposeTableScales reads the scales [rows, groups] of a table as if they lay [groups, rows].
func transposeTableScales(data []byte, m quant.Matrix) {
	groups := m.Groups()
	at := func(row, group int) []byte { return data[row*m.RowBytes()+m.CodeBytes()+4*group:][:4] }
	var flat []byte
	for r := range m.Rows {
		for g := range groups {
			flat = append(flat, at(r, g)...)
		}
	}
	for r := range m.Rows {
		for g := range groups {
			copy(at(r, g), flat[4*(g*m.Rows+r):])
		}
	}
}

// transposeBlockScales reads the scales of the rows as if blocks and rows in a block were exchanged.
func transposeBlockScales(data []byte, m quant.Matrix) {
	at := func(block, row int) []byte { return data[block*m.BlockBytes()+m.BlockCodeBytes()+4*row:][:4] }
	var flat []byte
	for b := range m.NumBlocks() {
		for r := range quant.BlockRows {
			flat = append(flat, at(b, r)...)
		}
	}
	for b := range m.NumBlocks() {
		for r := range quant.BlockRows {
			copy(at(b, r), flat[4*(r*m.NumBlocks()+b):])
		}
	}
}

// swapBlocks exchanges neighbouring blocks: gate and up.
func swapBlocks(data []byte, m quant.Matrix) {
	n := m.BlockBytes()
	for at := 0; at+2*n <= len(data); at += 2 * n {
		first := slices.Clone(data[at : at+n])
		copy(data[at:], data[at+n:at+2*n])
		copy(data[at+n:], first)
	}
}

// without returns a program without one of its layers.
func without(p *program.Program, layer int) *program.Program {
	q := *p
	l := p.Layers[layer]
	q.Ops = slices.Delete(slices.Clone(p.Ops), l.First, l.End)
	q.Layers = nil
	for i, k := range p.Layers {
		if i > layer {
			k.First, k.End = k.First-(l.End-l.First), k.End-(l.End-l.First)
		}
		if i != layer {
			q.Layers = append(q.Layers, k)
		}
	}
	return &q
}

// opts are options with a cache and activations.
func opts(cache backends.CacheType, activations backends.Activations) gate.Options {
	return gate.Options{Cache: cache, Activations: activations, QuestionStep: 100, Threads: 1}
}

// TestReferences puts sound packs to their gates, in every arithmetic that their reference values are for.
func TestReferences(t *testing.T) {
	for _, tc := range []struct {
		name, suffix string
		options      gate.Options
		matched, of  int
		logitError   float64
	}{
		{"e2b-tiny", "", opts(backends.CacheFloat, backends.ActivationsFloat), 160, 160, 7e-4},
		{"e2b-tiny", "", opts(backends.CacheFloat, backends.ActivationsStatic), 160, 160, 7e-4},
		{"e2b-tiny", "_int8kv", opts(backends.CacheInt8, backends.ActivationsStatic), 140, 160, 2},
		{"e2b-tiny-srq", "", opts(backends.CacheFloat, backends.ActivationsStatic), 100, 160, 2},
		{"e2b-tiny-srq", "_int8kv", opts(backends.CacheInt8, backends.ActivationsStatic), 130, 160, 2},
		{"demo", "", opts(backends.CacheFloat, backends.ActivationsStatic), 315, 320, 1},
		{"demo", "", opts(backends.CacheInt8, backends.ActivationsStatic), 315, 320, 1},
		{"demo", "", opts(backends.CacheFloat, backends.ActivationsFloat), 315, 320, 1.5},
	} {
		t.Run(tc.name+tc.suffix+" "+string(tc.options.Cache)+" "+string(tc.options.Activations), func(t *testing.T) {
			t.Parallel() // one thread each
			req := request(t, tc.name, tc.suffix)
			req.Options = tc.options
			report, err := gate.Run(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			r := report.Receipt()
			t.Logf("%d of %d tokens, logits within %.3g, in %v", r.Matched, r.Of, *r.MaxLogitError, report.Elapsed)
			if r.Matched < tc.matched || r.Of != tc.of || *r.MaxLogitError > tc.logitError {
				t.Errorf("%d of %d tokens, logits within %g; want at least %d of %d, within %g", r.Matched, r.Of, *r.MaxLogitError, tc.matched, tc.of, tc.logitError)
			}
			if r.Level != zoo.LevelOracle || (r.Score != nil) != (tc.name == "demo") {
				t.Errorf("level %q with score %v", r.Level, r.Score)
			}
		})
	}
}

// TestPlantedFaults damages packs and programs; every gate must notice.
func TestPlantedFaults(t *testing.T) {
	faults := []struct {
		name  string
		plant func(*gate.Request)
	}{
		{"a scale of the per-layer table transposed", func(r *gate.Request) {
			r.Pack = damaged{r.Pack, "embed_tokens_per_layer", transposeTableScales}
		}},
		{"the scales of the head transposed", func(r *gate.Request) {
			r.Pack = damaged{r.Pack, "embed_tokens", transposeBlockScales}
		}},
		{"gate and up swapped in the first layer", func(r *gate.Request) {
			r.Pack = damaged{r.Pack, "layers.0.mlp.gate_up_proj", swapBlocks}
		}},
		{"gate and up swapped in the last layer", func(r *gate.Request) {
			r.Pack = damaged{r.Pack, "layers.9.mlp.gate_up_proj", swapBlocks}
		}},
		{"an early layer skipped", func(r *gate.Request) { r.Program = without(r.Program, 1) }},
		{"a late layer skipped", func(r *gate.Request) { r.Program = without(r.Program, 7) }},
	}
	for _, model := range []struct {
		name, suffix string
		cache        backends.CacheType
	}{
		{"demo", "", backends.CacheInt8},
		{"e2b-tiny", "", backends.CacheFloat},
		{"e2b-tiny-srq", "_int8kv", backends.CacheInt8},
	} {
		sound := request(t, model.name, model.suffix)
		sound.Options = gate.Options{Cache: model.cache, QuestionStep: 1000, Threads: 1}
		for _, f := range faults {
			t.Run(model.name+model.suffix+": "+f.name, func(t *testing.T) {
				t.Parallel()
				req := sound
				f.plant(&req)
				report, err := gate.Run(t.Context(), req)
				if !errors.Is(err, fault.ErrGateFailed) {
					t.Fatalf("error %v, report %+v", err, report)
				}
				// The pack is consistent with itself: only the reference tells.
				for _, c := range report.Checks {
					if c.Problem != "" {
						t.Errorf("%s: %s", c.Name, c.Problem)
					}
				}
				t.Logf("%q", report.Failures)
			})
		}
	}
}

// TestDemoScore asks the demo all of its questions, of which transformers
// answers 926 exactly; with a float cache it asks some.
func TestDemoScore(t *testing.T) {
	if testing.Short() {
		t.Skip("asks 939 questions")
	}
	for _, tc := range []struct {
		name        string
		cache       backends.CacheType
		first, end  int // of the questions
		step        int
		right, asks int
	}{
		// In two halves, since each runs on one thread: together 926 of 939.
		{"int8, first half", backends.CacheInt8, 0, 470, 1, 461, 470},
		{"int8, second half", backends.CacheInt8, 470, 939, 1, 465, 469},
		{"float, every tenth", backends.CacheFloat, 0, 939, 10, 94, 94},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			req := request(t, "demo", "")
			req.Reference.Questions = req.Reference.Questions[tc.first:tc.end]
			req.Options = gate.Options{Cache: tc.cache, QuestionStep: tc.step, Threads: 1}
			report, err := gate.Run(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d of %d in %v", report.Score.Right, report.Score.Of, report.Elapsed)
			if report.ReferenceRight != tc.right || report.Score.Of != tc.asks || report.Score.Right < tc.right {
				t.Errorf("score %+v with %d right in the reference; want at least %d of %d", *report.Score, report.ReferenceRight, tc.right, tc.asks)
			}
		})
	}
}

// TestPrompt checks that questions are put as the reference runs were.
func TestPrompt(t *testing.T) {
	req := request(t, "demo", "")
	for i, question := range []string{"What is the capital of France?", "Why is the sky blue?", "Explain photosynthesis in one sentence."} {
		got, err := req.Text.Prompt(t.Context(), question)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(req.Reference.Runs[i].Prompt, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", question, diff)
		}
	}
}
