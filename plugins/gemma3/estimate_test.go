package gemma3_test

import (
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/plugins/gemma3"
	"github.com/zoo-sdk/zoo/zoo"
)

// id is what packs of these tests carry.
var id = zoo.PluginID{Name: gemma3.Name, Version: gemma3.Version}

// likeFile gives tensors the types that llama.cpp gives those of a file. Layers 2, 5 and 6 of
// seven are those that have more bits.
func likeFile(list []tensor, file gemma3.FileType) []tensor {
	list = slices.Clone(list)
	for i, w := range list {
		kind := gguf.Q4_0
		if file == gemma3.FileQ4_K_M {
			kind = gguf.Q4_K
			if slices.Contains([]string{
				"blk.2.attn_v.weight", "blk.5.attn_v.weight", "blk.6.attn_v.weight", "blk.2.ffn_down.weight", "blk.5.ffn_down.weight", "blk.6.ffn_down.weight",
			}, w.name) {
				kind = gguf.Q6_K
			}
		}
		if w.name == "token_embd.weight" {
			kind = gguf.Q6_K
		}
		if len(w.shape) > 1 {
			list[i] = random(w.name, kind, w.shape...)
		}
	}
	return list
}

// checkpointOf is a checkpoint with the shapes that its pack follows from.
type checkpointOf struct {
	name   string
	files  map[string][]byte
	shapes gemma3.Shapes
}

// checkpoints are of every kind.
func checkpoints(t *testing.T) []checkpointOf {
	t.Helper()
	list := tensors(gguf.BF16)
	tied, floats := changed(t, nil), safetensors(t, list, config())
	c := config()
	c["tie_word_embeddings"] = false
	untied := safetensors(t, append(list, random("output.weight", gguf.BF16, vocab(), hidden)), c)
	recipe := func(grid string) map[string]string { return map[string]string{"grid": grid} }
	packed := func(file gemma3.FileType) map[string][]byte {
		return map[string][]byte{"model.gguf": encode(keys(), likeFile(list, file))}
	}
	return []checkpointOf{
		{"as it is", floats, gemma3.Shapes{Config: tied, Recipe: recipe("none")}},
		{"default", floats, gemma3.Shapes{Config: tied}},
		{"absmax7", floats, gemma3.Shapes{Config: tied, Recipe: recipe("absmax7")}},
		{"head of its own", untied, gemma3.Shapes{Config: encodeJSON(t, c), Recipe: recipe("q4_0")}},
		{"Q4_0", packed(gemma3.FileQ4_0), gemma3.Shapes{Config: tied, File: gemma3.FileQ4_0}},
		{"Q4_K_M", packed(gemma3.FileQ4_K_M), gemma3.Shapes{Config: tied, File: gemma3.FileQ4_K_M}},
	}
}

// TestEstimateLikeConvert holds what is told of packs beforehand against the packs.
func TestEstimateLikeConvert(t *testing.T) {
	t.Parallel()
	for _, c := range checkpoints(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, c.files)
			pack := converted(t, dir, c.shapes.Recipe["grid"])
			got, err := gemma3.EstimatePack(t.Context(), id, c.shapes, zoo.EstimateRequest{Sources: sources(t, dir)})
			if err != nil {
				t.Fatal(err)
			}
			if off := math.Abs(float64(got.PackBytes)/float64(pack.SizeBytes()) - 1); off > 0.01 {
				t.Errorf("%d bytes, the pack has %d", got.PackBytes, pack.SizeBytes())
			}
			want, err := gemma3.New().Run(t.Context(), zoo.RunRequest{Pack: pack.Info()})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Program); diff != "" {
				t.Errorf("program (-real +estimate):\n%s", diff)
			}
			assumptions := 0
			if c.shapes.File != "" || c.name == "head of its own" {
				assumptions = 1
			}
			if len(got.Assumptions) != assumptions {
				t.Errorf("it assumes %q", got.Assumptions)
			}
		})
	}
}

// TestEstimateKnown asks for the models of the built-in catalog. The pack of the file with all
// types of Gemma 3 270M, which has been converted, is a fact to hold against.
func TestEstimateKnown(t *testing.T) {
	t.Parallel()
	var p zoo.Estimator = gemma3.New()
	ask := func(model string, file catalog.File) (zoo.Estimate, error) {
		r := catalog.Release{Model: model, Source: catalog.Source{Files: []catalog.File{file}}}
		if file.Path == "" {
			r.Source.Files, r.Recipe = nil, map[string]string{"grid": "none"}
		}
		return p.Estimate(t.Context(), zoo.EstimateRequest{Release: r, Sources: r.Source.Files})
	}
	embed270M, embed1B := int64(262144*640), int64(262144*1152)
	layers270M, layers1B := int64(18*5570560), int64(26*26836992)
	for model, c := range map[string]struct {
		file catalog.File
		// weights is about what the matrices take.
		weights int64
	}{
		"gemma-3-270m":      {catalog.File{}, 2 * (embed270M + layers270M)},
		"gemma-3-1b":        {catalog.File{}, 2 * (embed1B + layers1B)},
		"gemma-3-270m-q4_0": {catalog.File{Path: "any.gguf", SizeBytes: 241410624}, embed270M*34/32 + layers270M*18/32},
		// Codes of 5 and 6 bits are kept in 8, and scales of K-quants in float32.
		"gemma-3-1b-q4_k_m": {catalog.File{Path: "any.gguf"}, embed1B*34/32 + layers1B},
	} {
		e, err := ask(model, c.file)
		if err != nil {
			t.Errorf("%s: %v", model, err)
			continue
		}
		small := int64(262144 * 60) // the tokenizer, norms and the rest
		if e.PackBytes < c.weights || e.PackBytes > c.weights+c.weights/20+small {
			t.Errorf("%s: %d bytes, and the weights alone have about %d", model, e.PackBytes, c.weights)
		}
		if read := backends.StepBytes(e.Program); read < e.PackBytes*8/10 || read > e.PackBytes {
			t.Errorf("%s: a token reads %d of %d bytes", model, read, e.PackBytes)
		}
	}

	config, err := os.ReadFile("shapes/270m.json")
	if err != nil {
		t.Fatal(err)
	}
	const converted = 294483510
	e, err := gemma3.EstimatePack(t.Context(), id, gemma3.Shapes{Config: config, File: gemma3.FileQ4_K_M}, zoo.EstimateRequest{})
	if err != nil || math.Abs(float64(e.PackBytes)/converted-1) > 0.001 {
		t.Errorf("the pack of gemma-3-270m-q4_k_m.gguf has %d bytes, the estimate is %d, %v", converted, e.PackBytes, err)
	}
}

// TestEstimateRefused asks for what is not known.
func TestEstimateRefused(t *testing.T) {
	t.Parallel()
	model := []catalog.File{{Path: "model.gguf", SizeBytes: 1000}}
	for name, c := range map[string]struct {
		release catalog.Release
		config  []byte
		want    error
	}{
		"unknown shapes":             {catalog.Release{Model: "other"}, nil, zoo.ErrNotFound},
		"safetensors of a file":      {catalog.Release{Model: "gemma-3-270m-q4_0"}, nil, zoo.ErrNotFound},
		"a file of other types":      {catalog.Release{Model: "gemma-3-270m", Source: catalog.Source{Files: model}}, nil, zoo.ErrNotFound},
		"an unknown file":            {catalog.Release{Model: "other", Source: catalog.Source{Files: model}}, changed(t, nil), zoo.ErrNotFound},
		"a file of another size":     {catalog.Release{Model: "gemma-3-270m-q4_0", Source: catalog.Source{Files: model}}, nil, zoo.ErrNotFound},
		"several files":              {catalog.Release{Model: "other", Source: catalog.Source{Files: append([]catalog.File{{Path: "a.gguf"}}, model...)}}, nil, zoo.ErrUsage},
		"a config that says little":  {catalog.Release{Model: "gemma-3-270m"}, []byte(`{}`), zoo.ErrUsage},
		"a broken config":            {catalog.Release{Model: "gemma-3-270m"}, []byte(`{`), zoo.ErrIntegrity},
		"an unknown grid":            {catalog.Release{Model: "gemma-3-270m", Recipe: map[string]string{"grid": "q9"}}, nil, zoo.ErrUsage},
		"a grid for codes":           {catalog.Release{Model: "gemma-3-270m-q4_0", Recipe: map[string]string{"grid": "q4_0"}, Source: catalog.Source{Files: []catalog.File{{Path: "a.gguf"}}}}, nil, zoo.ErrUsage},
		"columns that fill no block": {catalog.Release{Model: "other"}, changed(t, map[string]any{"intermediate_size": 500}), zoo.ErrIntegrity},
	} {
		_, err := gemma3.New().Estimate(t.Context(), zoo.EstimateRequest{Release: c.release, Sources: c.release.Source.Files, Config: c.config})
		if !errors.Is(err, c.want) || c.want == zoo.ErrNotFound && !strings.Contains(zoo.Hint(err), "gemma-3-270m") {
			t.Errorf("%s: %v, hint %q", name, err, zoo.Hint(err))
		}
	}
}
