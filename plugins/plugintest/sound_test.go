package plugintest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/plugins/plugintest"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/golden"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

const (
	vocab    int = gemma4test.MinVocab
	cols         = 32
	tokenCap     = 128 // positions
)

// sound is a small plugin that obeys all rules: a table and a head, and nothing between them.
type sound struct{}

// id is what its packs carry.
var id = zoo.PluginID{Name: "sound", Version: "1.2.3"}

// config is the config.json of its checkpoints.
type config struct {
	Vocab int `json:"vocab"`
	Cols  int `json:"cols"`
}

// tensors are the names of its tensors.
var tensors = []string{"head", "table"}

// parseConfig reads a config.json.
func parseConfig(data []byte) (c config, err error) {
	err = json.Unmarshal(data, &c)
	if err == nil && (c.Vocab < 1 || c.Vocab > 1<<20 || c.Cols < 1 || c.Cols > 1<<12) {
		err = errors.New("a size is out of range")
	}
	if err != nil {
		err = fault.WithHint(fmt.Errorf("%w: %s: %w", fault.ErrIntegrity, zoo.ConfigFile, err), "download the checkpoint again")
	}
	return c, err
}

// Describe implements zoo.Plugin.
func (sound) Describe(ctx context.Context) (zoo.Description, error) {
	return zoo.Description{Name: id.Name, Version: id.Version, Title: "A table and a head", Operations: program.Version}, context.Cause(ctx)
}

// Fetch implements zoo.Plugin.
func (sound) Fetch(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
	return req.PlanSafetensors(ctx, zoo.ConfigFile, packing.TokenizerSource)
}

// Convert implements zoo.Plugin.
func (sound) Convert(ctx context.Context, req zoo.ConvertRequest) (zoo.Conversion, error) {
	if err := context.Cause(ctx); err != nil {
		return zoo.Conversion{}, err
	}
	return zoo.Conversion{}, convert(ctx, id, req, nil)
}

// convert makes a pack under a name, with constants.
func convert(ctx context.Context, id zoo.PluginID, req zoo.ConvertRequest, constants map[string]float32) (err error) {
	ckpt, err := checkpoint.Open(req.Checkpoint)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ckpt.Close()) }()
	pack := packing.Pack{Plugin: id, Recipe: req.Recipe, Constants: constants}
	if pack.Files, err = packing.ReadFiles(ckpt, []string{zoo.ConfigFile}, nil); err != nil {
		return err
	}
	c, err := parseConfig(pack.Files[zoo.ConfigFile])
	if err != nil {
		return err
	}
	if pack.Files[zoo.TokenizerFile], err = packing.Tokenizer(ckpt, c.Vocab); err != nil {
		return err
	}
	if pack.Sources, err = packing.Sources(req.Sources, zoo.ConfigFile, packing.TokenizerSource, checkpoint.IndexFile, shard(0), shard(1)); err != nil {
		return err
	}
	for _, name := range tensors {
		t, ok := ckpt.Tensor(name)
		if !ok || !slices.Equal(t.Shape, []int{c.Vocab, c.Cols}) {
			return &checkpoint.TensorError{Tensor: name, Problem: "not what the configuration says", Want: fmt.Sprint(c), Got: fmt.Sprint(t.Shape)}
		}
		m, err := packing.BF16(name, t)
		if err != nil {
			return err
		}
		tensor, err := packing.NewMatrix(m)
		if err != nil {
			return err
		}
		pack.Tensors = append(pack.Tensors, tensor)
	}
	m := packing.NewMeter(req.Progress)
	m.Expect(pack.SourceBytes())
	return pack.Write(ctx, req.Dir, m)
}

// Gate implements zoo.Plugin.
func (sound) Gate(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error) {
	ref := &zoo.Reference{}
	if req.Dir != "" {
		c, err := parseConfig(req.Pack.Config)
		if err != nil {
			return nil, err
		}
		if ref, err = golden.Read(ctx, req.Dir, golden.Model{Vocab: c.Vocab, TokenLimit: c.Vocab, Context: tokenCap}); err != nil {
			return nil, err
		}
	}
	ref.Prompts = append(ref.Prompts, "Why?")
	return ref, context.Cause(ctx)
}

// Run implements zoo.Plugin.
func (sound) Run(ctx context.Context, req zoo.RunRequest) (*program.Program, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	c, err := parseConfig(req.Pack.Config)
	if err != nil {
		return nil, err
	}
	if req.Pack.Manifest == nil {
		return nil, fmt.Errorf("%w: there is no manifest", fault.ErrIntegrity)
	}
	p := record(c)
	for _, w := range p.Weights {
		if !slices.ContainsFunc(req.Pack.Manifest.Tensors, func(t zoo.Tensor) bool { return t.Name == w.Name && t.Matrix == w.Matrix }) {
			return nil, fmt.Errorf("%w: the pack has no tensor %q of %+v", fault.ErrIntegrity, w.Name, w.Matrix)
		}
	}
	return p, nil
}

// record returns the program of a model.
func record(c config) *program.Program {
	m := quant.Matrix{Format: quant.BF16, Layout: quant.Rows, Rows: c.Vocab, Cols: c.Cols}
	return &program.Program{
		Version: program.Version, Vocab: c.Vocab, TokenLimit: c.Vocab, Context: tokenCap, Logits: 1,
		Weights: []program.Weight{{Name: "table", Matrix: m}, {Name: "head", Matrix: m}},
		Buffers: []program.Buffer{{Name: "state", Cols: c.Cols}, {Name: "logits", Cols: c.Vocab}},
		Ops: []program.Op{
			{Embed: &program.Embed{Table: 0, Out: 0, Mul: 1}},
			{Softcap: &program.Softcap{Buffer: 0, Cap: 30}},
			{Select: &program.Select{Buffers: []program.BufferID{0}}},
			{Linear: &program.Linear{Weight: 1, In: 0, Parts: []program.Part{{Rows: c.Vocab, Out: 1}}}},
		},
		Layers: []program.Layer{{First: 1, End: 2}},
	}
}

// synthetic is the name of the model whose shapes the plugin has.
const synthetic = "sound-tiny"

// Synthesize implements zoo.Synthesizer.
func (sound) Synthesize(ctx context.Context, req zoo.SynthesizeRequest) error {
	if req.Model != synthetic {
		return fmt.Errorf("%w: there are no shapes of %q", fault.ErrUsage, req.Model)
	}
	return synthesize(ctx, req, nil)
}

// synthesize makes a pack of made-up weights, with constants.
func synthesize(ctx context.Context, req zoo.SynthesizeRequest, constants map[string]float32) error {
	text, err := json.Marshal(config{vocab, cols})
	if err != nil {
		return err
	}
	source, err := gemma4test.Tokenizer(vocab)
	if err != nil {
		return err
	}
	pack := packing.Pack{Plugin: id, Recipe: map[string]string{zoo.RecipeWeights: zoo.RandomWeights}, Constants: constants, Files: map[string][]byte{zoo.ConfigFile: text}}
	if pack.Files[zoo.TokenizerFile], err = packing.Tokenizer(files{packing.TokenizerSource: source}, vocab); err != nil {
		return err
	}
	for _, name := range tensors {
		t, err := packing.NewMatrix(&packing.Matrix{
			Name: name, Format: quant.BF16, Rows: vocab, Cols: cols, RowBytes: 2 * cols,
			Read: func(row int, to *packing.Row) error { copy(to.Codes, numbers(name, row)); return nil },
		})
		if err != nil {
			return err
		}
		pack.Tensors = append(pack.Tensors, t)
	}
	m := packing.NewMeter(req.Progress)
	m.Expect(pack.SourceBytes())
	return pack.Write(ctx, req.Dir, m)
}

// files are the small files of a checkpoint. They implement packing.Files.
type files map[string][]byte

// File implements packing.Files.
func (f files) File(name string) ([]byte, error) { return f[name], nil }

// Estimate implements zoo.Estimator.
func (sound) Estimate(ctx context.Context, req zoo.EstimateRequest) (zoo.Estimate, error) {
	if req.Config == nil {
		return zoo.Estimate{}, fmt.Errorf("%w: there are no shapes of %q", fault.ErrNotFound, req.Release.Model)
	}
	c, err := parseConfig(req.Config)
	if err != nil {
		return zoo.Estimate{}, err
	}
	e := zoo.Estimate{Program: record(c)}
	var planned []zoo.PlannedTensor
	for _, w := range e.Program.Weights {
		planned = append(planned, zoo.PlannedTensor{Name: w.Name, Matrix: w.Matrix})
	}
	e.PackBytes, err = zoo.PlannedBytes(id, req.Release.Recipe, req.Sources, []catalog.File{{Path: zoo.TokenizerFile, SizeBytes: int64(56 * c.Vocab)}}, planned, nil)
	return e, errors.Join(err, context.Cause(ctx))
}

// shard is the name of a file of weights.
func shard(i int) string { return gemma4test.ShardName(i, 2) }

// numbers returns a row of bfloat16 numbers around 1, which differ from row to row.
func numbers(name string, row int) []byte {
	data := make([]byte, 2*cols)
	x := uint32(row*2+len(name)) | 1
	for i := 0; i < len(data); i += 2 {
		x = x*1664525 + 1013904223
		data[i], data[i+1] = byte(x>>16), 0x3e|byte(x>>24&0x80)
	}
	return data
}

// writeTensors writes a file of tensors.
func writeTensors(t testing.TB, path string, specs []checkpoint.Spec, fill func(name string, w io.Writer) error) {
	t.Helper()
	layout, err := checkpoint.NewLayout(specs, checkpoint.LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := checkpoint.NewWriter(&b, layout)
	for _, s := range specs {
		if err == nil {
			err = w.WriteTensor(s.Name, func(w io.Writer) error { return fill(s.Name, w) })
		}
	}
	if err := errors.Join(err, w.Close(), os.WriteFile(path, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// soundOptions are those that sound is tried with: a checkpoint and reference values.
func soundOptions(t testing.TB) plugintest.Options {
	t.Helper()
	dir := t.TempDir()
	source, err := gemma4test.Tokenizer(vocab)
	if err != nil {
		t.Fatal(err)
	}
	index := map[string]string{}
	for i, name := range tensors {
		index[name] = shard(i)
		writeTensors(t, filepath.Join(dir, shard(i)), []checkpoint.Spec{{Name: name, DType: checkpoint.BF16, Shape: []int{vocab, cols}}}, func(name string, w io.Writer) error {
			for row := range vocab {
				if _, err := w.Write(numbers(name, row)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for name, value := range map[string]any{
		zoo.ConfigFile: config{vocab, cols}, packing.TokenizerSource: json.RawMessage(source),
		checkpoint.IndexFile: map[string]any{"metadata": map[string]int{"total_size": 4 * vocab * cols}, "weight_map": index},
		"notes.json":         "of no use",
	} {
		text, err := json.Marshal(value)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	o := plugintest.Options{Checkpoint: dir, Reference: t.TempDir(), Synthetic: synthetic, Recipe: map[string]string{"way": "plain"}, Backend: cpu.New(""), Dir: t.TempDir()}
	writeReference(t, o)
	return o
}

// sourcesOf lists the files of a folder.
func sourcesOf(t testing.TB, dir string) (list []catalog.File) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, catalog.File{Path: e.Name(), SizeBytes: int64(len(data)), SHA256: catalog.DigestOf(data).Hex()})
	}
	return list
}

// writeReference writes what the model says.
func writeReference(t testing.TB, o plugintest.Options) {
	t.Helper()
	dir := t.TempDir()
	if _, err := (sound{}).Convert(t.Context(), zoo.ConvertRequest{Checkpoint: o.Checkpoint, Sources: sourcesOf(t, o.Checkpoint), Dir: dir}); err != nil {
		t.Fatal(err)
	}
	pack, err := zoo.OpenPack(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer pack.Close()
	model, err := engine.Load(t.Context(), record(config{vocab, cols}), pack, o.Backend, backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	session, err := model.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	run := zoo.ReferenceRun{Prompt: []int32{2, 300, 301}}
	ids := run.Prompt
	for range 6 {
		if err := session.Feed(t.Context(), ids, 1); err != nil {
			t.Fatal(err)
		}
		run.LastLogits = slices.Clone(session.Logits(0))
		sorted := slices.Sorted(slices.Values(run.LastLogits))
		ids = []int32{int32(slices.Index(run.LastLogits, sorted[vocab-1]))}
		run.Greedy, run.Margin = append(run.Greedy, ids[0]), append(run.Margin, sorted[vocab-1]-sorted[vocab-2])
	}
	if err := session.Feed(t.Context(), ids, 1); err != nil {
		t.Fatal(err)
	}
	run.LastLogits = slices.Clone(session.Logits(0))
	text, err := json.Marshal(map[string]any{"runs": []any{map[string]any{"prompt": run.Prompt, "greedy": run.Greedy, "margin": run.Margin}}})
	questions := []byte(`{"question":"Why?","expected":"So."}` + "\n")
	err = errors.Join(err, os.WriteFile(filepath.Join(o.Reference, zoo.GoldenFile), text, 0o600), os.WriteFile(filepath.Join(o.Reference, zoo.QuestionsFile), questions, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	writeTensors(t, filepath.Join(o.Reference, zoo.GoldenTensorsFile), []checkpoint.Spec{{Name: "last_logits.0", DType: checkpoint.F32, Shape: []int{vocab}}}, func(_ string, w io.Writer) error {
		_, err := w.Write(floats(run.LastLogits))
		return err
	})
}

// TestSound holds the sound plugin to all rules.
func TestSound(t *testing.T) {
	var parts []string
	o := soundOptions(t)
	o.Part = func(part string) bool { parts = append(parts, part); return true }
	if err := plugintest.Test(t.Context(), sound{}, o); err != nil {
		t.Error(err)
	}
	if len(parts) == 0 {
		t.Error("no part was told")
	}
	left, err := os.ReadDir(o.Dir)
	if err != nil || len(left) != 0 {
		t.Errorf("the suite left %v, %v", left, err)
	}
	// Of a plugin without a checkpoint little can be checked, but that.
	if err := plugintest.Test(t.Context(), sound{}, plugintest.Options{Dir: o.Dir}); err != nil {
		t.Error(err)
	}
}

// floats returns the bytes of numbers.
func floats(list []float32) []byte {
	var data []byte
	for _, f := range list {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(f))
	}
	return data
}
