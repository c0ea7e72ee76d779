package packing_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/tokenizer"
	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// TestNoise looks at random matrices in every format: rows have the length they should have,
// lie around 0, and are not all the same.
func TestNoise(t *testing.T) {
	const rows, cols, span = 48, 512, 256
	for _, f := range append(quant.MultipliedFormats(), quant.BF16) {
		t.Run(f.String(), func(t *testing.T) {
			w, err := packing.NewMatrix(packing.NewNoise("seed").Matrix("w", f, rows, cols, span))
			if err != nil {
				t.Fatal(err)
			}
			pack := write(t, w)
			var sum, squares float64
			seen := map[string]bool{}
			for r := range rows {
				row := values(t, pack, "w", r)
				seen[fmt.Sprint(row)] = true
				for _, v := range row {
					sum += float64(v)
					squares += float64(v) * float64(v)
				}
			}
			want := 1 / math.Sqrt(span)
			if !f.Codes() {
				want = 0.08 // from 1/32 to 1/8
			}
			typical := math.Sqrt(squares / (rows * cols))
			if typical < want*0.9 || typical > want*1.15 || math.Abs(sum)/(rows*cols) > want/2 { // codes of 2 bits lie around -1/2
				t.Errorf("numbers are %g in size and %g on average, not %g and 0", typical, sum/(rows*cols), want)
			}
			if len(seen) != rows {
				t.Errorf("%d of %d rows differ", len(seen), rows)
			}
		})
	}
	for _, v := range packing.NewNoise("norm").Vector(1000) {
		if v < 0.5 || v > 1 {
			t.Errorf("a vector has %g", v)
		}
	}
	if x := packing.NewNoise("a").Around(8); x < 4 || x > 12 || x == packing.NewNoise("b").Around(8) || x != packing.NewNoise("a").Around(8) {
		t.Errorf("around 8 is %g", x)
	}
}

// synthetic is a pack of random tensors.
func synthetic(t *testing.T) *packing.Pack {
	t.Helper()
	w, err := packing.NewMatrix(packing.NewNoise("w").Matrix("w", quant.Int4x32, 400, 64, 64))
	if err != nil {
		t.Fatal(err)
	}
	norm, err := packing.NewVector("norm", packing.NewNoise("norm").Vector(64))
	if err != nil {
		t.Fatal(err)
	}
	return &packing.Pack{
		Plugin: zoo.PluginID{Name: "test", Version: "1.0.0"}, Recipe: map[string]string{"grid": "q4_0"},
		Tensors: []*packing.Tensor{w, norm}, Constants: map[string]float32{"c": 0.5},
	}
}

// TestWriteSynthetic reads a pack of random weights back, and holds it against a digest:
// the bytes are the same on every machine.
func TestWriteSynthetic(t *testing.T) {
	const want = catalog.Digest("sha256:674fa19598236e8f744ef760d9f033ee5ae8f5797bebd7ae9259d2475ce9caac")
	p, dir := synthetic(t), t.TempDir()
	var done, total int64
	if err := p.WriteSynthetic(t.Context(), zoo.SynthesizeRequest{Dir: dir, Progress: func(d, all int64) { done, total = d, all }}, []byte(`{"a":1}`), 400); err != nil {
		t.Fatal(err)
	}
	if done == 0 || done != total {
		t.Errorf("%d of %d bytes are told", done, total)
	}
	pack, err := zoo.OpenPack(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer pack.Close()
	if err := pack.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if got := pack.Digest(); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
	if diff := cmp.Diff(map[string]string{"grid": "q4_0", zoo.RecipeWeights: zoo.RandomWeights}, pack.Manifest().Recipe); diff != "" || !pack.Manifest().Synthetic() {
		t.Errorf("recipe (-want +got):\n%s", diff)
	}
	if len(p.Recipe) != 1 || p.Files != nil {
		t.Errorf("the pack that was given has changed: %v, %d files", p.Recipe, len(p.Files))
	}
	for name, want := range map[string]string{
		zoo.ConfigFile: `{"a":1}`, zoo.GenerationFile: `{"bos_token_id":2,"eos_token_id":1,"pad_token_id":0}`, zoo.TokenizerConfigFile: `{"bos_token":"<bos>","eos_token":"<eos>"}`,
	} {
		if got, err := pack.File(name); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	compiled, err := pack.File(zoo.TokenizerFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := packing.CheckTokenizer(compiled, 400); err != nil {
		t.Error(err)
	}
	tok, err := tokenizer.Open(compiled)
	if err != nil {
		t.Fatal(err)
	}
	const text = "How fast? ~12"
	if got := tok.Decode(tok.Encode(nil, text, 0)); got != text {
		t.Errorf("%q comes back as %q", text, got)
	}

	ctx, cancel := context.WithCancel(t.Context())
	left := t.TempDir()
	err = p.WriteSynthetic(ctx, zoo.SynthesizeRequest{Dir: left, Progress: func(_, _ int64) { cancel() }}, []byte(`{}`), 400)
	if _, there := os.Stat(filepath.Join(left, zoo.ManifestFile)); !errors.Is(err, context.Canceled) || there == nil {
		t.Errorf("cancelled: %v, and the pack is %v", err, there)
	}
}

// TestEstimateBytes holds the size that is told beforehand against that of the pack.
func TestEstimateBytes(t *testing.T) {
	p, dir := synthetic(t), t.TempDir()
	if err := p.WriteSynthetic(t.Context(), zoo.SynthesizeRequest{Dir: dir}, []byte(`{"a":1}`), 400); err != nil {
		t.Fatal(err)
	}
	pack, err := zoo.OpenPack(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer pack.Close()
	compiled, err := pack.File(zoo.TokenizerFile)
	if err != nil {
		t.Fatal(err)
	}
	tokens := int64(len(compiled))
	small := []string{zoo.ConfigFile, zoo.GenerationFile, zoo.TokenizerConfigFile}
	sources := []catalog.File{{Path: zoo.ConfigFile, SizeBytes: 1000}, {Path: "model.safetensors", SizeBytes: 12345}}
	for name, c := range map[string]struct {
		sources []catalog.File
		want    int64
	}{
		"nothing known":     {nil, pack.SizeBytes() + 400*56 - tokens},
		"a config.json":     {sources, pack.SizeBytes() + 400*56 - tokens + 1000},
		"a tokenizer, too":  {append(sources, catalog.File{Path: packing.TokenizerSource, SizeBytes: 2 * tokens}), pack.SizeBytes() + 1000},
		"an empty template": {append(sources, catalog.File{Path: zoo.TemplateFile}), pack.SizeBytes() + 400*56 - tokens + 1000},
	} {
		got, err := p.EstimateBytes(zoo.EstimateRequest{Sources: c.sources}, small, 400)
		// The manifest has some more or less of entries and digits.
		if off := got - c.want; err != nil || off < -600 || off > 600 {
			t.Errorf("%s: %d bytes, not %d, %v", name, got, c.want, err)
		}
	}
	p.Tensors = append(p.Tensors, p.Tensors[0])
	if _, err := p.EstimateBytes(zoo.EstimateRequest{}, small, 400); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a tensor twice: %v", err)
	}
}

// TestGGUFFormat holds formats that are told of types against those of matrices.
func TestGGUFFormat(t *testing.T) {
	for _, kind := range gguf.Decoded() {
		m, err := packing.GGUF("w", gguf.Tensor{Name: "w", Type: kind, Shape: []int{1, 256}})
		if f, ok := packing.GGUFFormat(kind); err != nil || !ok || f != m.Format {
			t.Errorf("%v: %v, %t; the matrix has %v, %v", kind, f, ok, m.Format, err)
		}
	}
	if f, ok := packing.GGUFFormat(gguf.Type(20)); ok {
		t.Errorf("IQ4_NL is %v", f)
	}
}
