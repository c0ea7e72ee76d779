package gemma3

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// The sizes of the official checkpoints. They are no model's configuration.
var (
	//go:embed shapes/270m.json
	config270M []byte
	//go:embed shapes/1b.json
	config1B []byte
)

// models returns the shapes of the models of the built-in catalog, by their names in it.
func models() map[string]Shapes {
	unrounded := map[string]string{packing.GridKey: packing.GridNone}
	return map[string]Shapes{
		"gemma-3-270m":      {Config: config270M, Recipe: unrounded},
		"gemma-3-270m-q4_0": {Config: config270M, File: FileQ4_0, FileBytes: 241410624},
		"gemma-3-1b":        {Config: config1B, Recipe: unrounded},
		"gemma-3-1b-q4_k_m": {Config: config1B, File: FileQ4_K_M, FileBytes: 806058240},
	}
}

// known says which models those are, for hints.
func known() string {
	return "this plugin has those of " + strings.Join(slices.Sorted(maps.Keys(models())), ", ")
}

// Shapes are those of a model whose weights can be made up.
type Shapes struct {
	// Config is a config.json.
	Config []byte
	// Recipe is that of [Convert].
	Recipe map[string]string
	// File is set if the model is a GGUF file, whose number types it gives.
	File FileType
	// FileBytes is the size of that file, or 0 if any may be meant.
	FileBytes int64
}

// FileType says which number types the matrices of a GGUF file have, as llama.cpp names and chooses them.
type FileType string

// The types of files whose matrices' types are known.
const (
	FileQ4_0   FileType = "Q4_0"
	FileQ4_K_M FileType = "Q4_K_M"
)

// kQuantCols is the number of columns in a block of a K-quant. A matrix whose rows do not
// consist of such blocks has the type that stands for it.
const kQuantCols = 256

// kind returns the number type of a matrix in a model of so many layers.
func (f FileType) kind(m module, layers int) (gguf.Type, error) {
	var kind gguf.Type
	switch f {
	case FileQ4_0:
		kind = gguf.Q4_0
	case FileQ4_K_M:
		kind = gguf.Q4_K
	default:
		return 0, usage("choose "+string(FileQ4_0)+" or "+string(FileQ4_K_M), "the number types in a GGUF file of type %q are not known", shorten(string(f)))
	}
	var layer int
	var name string
	// A name that is none of a layer's leaves the name empty, too.
	_, _ = fmt.Sscanf(m.gguf, "blk.%d.%s", &layer, &name)
	finer := name == "attn_v" || name == "ffn_down"
	switch {
	case m.name == embedName || m.name == headName:
		kind = gguf.Q6_K
	case f == FileQ4_K_M && finer && (layer < layers/8 || layer >= 7*layers/8 || (layer-layers/8)%3 == 2):
		kind = gguf.Q6_K
	}
	if m.cols%kQuantCols != 0 {
		switch kind {
		case gguf.Q4_K:
			kind = gguf.Q5_0
		case gguf.Q6_K:
			kind = gguf.Q8_0
		}
	}
	return kind, nil
}

// source returns a source of random weights in the shapes, their configuration, and the
// recipe that a conversion would give a pack.
func (s Shapes) source() (*synthetic, map[string]string, error) {
	cfg, err := ParseConfig(s.Config)
	if err != nil {
		return nil, nil, err
	}
	src := &synthetic{cfg: cfg, file: s.File}
	if s.File != "" {
		return src, nil, packing.CheckNoGrid(s.Recipe)
	}
	recipe, grid, err := packing.ParseGrid(s.Recipe)
	src.grid = grid
	return src, recipe, err
}

// Synthesize writes a pack of random weights into req.Dir, under the name and version of a
// plugin, in the formats that the recipe or the type of the file gives. It goes the way of
// [Convert] but for the checkpoint, so that such a pack always is as one of the real weights
// would be. The same shapes give the same bytes everywhere; req.Model does not matter.
func Synthesize(ctx context.Context, id zoo.PluginID, shapes Shapes, req zoo.SynthesizeRequest) error {
	src, recipe, err := shapes.source()
	if err != nil {
		return err
	}
	pack := &packing.Pack{Plugin: id, Recipe: recipe}
	if pack.Tensors, err = plan(ctx, src.cfg, src); err != nil {
		return err
	}
	return pack.WriteSynthetic(ctx, req, shapes.Config, src.cfg.VocabSize)
}

// synthetic is a source of random numbers, which follow from the names of modules.
type synthetic struct {
	cfg *Config
	// grid is what matrices are rounded to, "" to leave them in bfloat16, where file is "".
	grid quant.Grid
	file FileType
}

// format returns the format of a matrix.
func (s *synthetic) format(m module) (quant.Format, error) {
	switch {
	case s.file != "":
		kind, err := s.file.kind(m, s.cfg.NumHiddenLayers)
		f, _ := packing.GGUFFormat(kind)
		return f, err
	case s.grid != "":
		return quant.Int4x32, nil
	}
	return quant.BF16, nil
}

// matrix implements source.
func (s *synthetic) matrix(m module) (*packing.Matrix, error) {
	if m.name == headName && s.cfg.TieWordEmbeddings {
		return nil, nil
	}
	f, err := s.format(m)
	if err != nil {
		return nil, err
	}
	return packing.NewNoise(m.name).Matrix(m.name, f, m.rows, m.cols, m.cols), nil
}

// vector implements source.
func (s *synthetic) vector(m module) ([]float32, error) {
	return packing.NewNoise(m.name).Vector(m.cols), nil
}

// name implements source.
func (s *synthetic) name(m module) string { return m.name }

// finish implements source: there is nothing to be left over.
func (s *synthetic) finish() error { return nil }
