package gemma4

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// Names of files in a checkpoint that a pack does not hold under the same name.
const (
	weightsSource = checkpoint.WeightsFile
	indexSource   = checkpoint.IndexFile
)

// copiedFiles are the files of a checkpoint that a pack holds as they are.
var copiedFiles = [...]string{zoo.ConfigFile, zoo.GenerationFile, zoo.TokenizerConfigFile, zoo.TemplateFile}

// Convert makes a pack in req.Dir out of a checkpoint, under the name and version of
// the plugin. The same checkpoint gives the same bytes everywhere. Its layout is told
// by what it holds: that of the official mobile checkpoints, whose codes are taken
// over as they are, by its quantization_config; one of bfloat16 weights by the lack of it;
// and that of LiteRT-LM by a single .litertlm file in place of safetensors, beside which
// lie the small files of the mobile checkpoint of the same model.
//
// The recipe's only key is "grid". For a checkpoint of codes it must be "none", or is
// left out. For one of floats it is "q4_0", which is taken if it is left out, or
// "absmax7" (see package quant), or "none", which keeps the weights as they are.
//
// It holds some megabytes in memory whatever the size of the checkpoint, and uses
// all processors. Errors are *checkpoint.ConfigError, *checkpoint.UnsupportedError, *checkpoint.TensorError,
// *checkpoint.TokenizerError and those of packages checkpoint, litertlm and zoo; the folder then
// holds no pack.
func Convert(ctx context.Context, id zoo.PluginID, req zoo.ConvertRequest) (made zoo.Conversion, err error) {
	in, err := openInput(ctx, req)
	if err != nil {
		return made, err
	}
	defer func() { err = errors.Join(err, in.close()) }() // in a panic of the progress, too
	return in.convert(ctx, id, req)
}

// input is an open checkpoint.
type input struct {
	cfg *Config
	// recipe is how it is converted, as the pack's identity has it.
	recipe map[string]string
	// files are the small ones that go into the pack.
	files map[string][]byte
	src   source
	close func() error
}

// openInput opens the checkpoint of a request.
func openInput(ctx context.Context, req zoo.ConvertRequest) (*input, error) {
	lite, err := findLiteRT(req.Checkpoint)
	if err != nil {
		return nil, err
	}
	if lite != "" {
		return openLiteRT(ctx, req, lite)
	}
	ckpt, err := checkpoint.Open(req.Checkpoint)
	if err != nil {
		return nil, err
	}
	in := &input{close: ckpt.Close}
	grid, err := in.read(ckpt, req.Recipe)
	if err != nil {
		return nil, errors.Join(err, ckpt.Close())
	}
	if in.cfg.Quantization != nil {
		in.src = newMobile(ckpt, in.cfg)
	} else {
		in.src = newFloats(ckpt, in.cfg, grid)
	}
	return in, nil
}

// openLiteRT opens a checkpoint whose weights are in the .litertlm file of that name.
func openLiteRT(ctx context.Context, req zoo.ConvertRequest, name string) (*input, error) {
	in := &input{}
	if _, err := in.read(liteFolder(req.Checkpoint), req.Recipe); err != nil {
		return nil, err
	}
	src, err := newLiteRT(ctx, req.Checkpoint, name, in.cfg)
	if err != nil {
		return nil, err
	}
	in.src, in.close = src, src.Close
	return in, nil
}

// read reads the small files of a checkpoint, and returns the grid that the recipe asks for.
func (in *input) read(ckpt packing.Files, recipe map[string]string) (grid quant.Grid, err error) {
	if in.files, err = packing.ReadFiles(ckpt, copiedFiles[:], nil); err != nil {
		return "", err
	}
	if in.cfg, err = ParseConfig(in.files[zoo.ConfigFile]); err != nil {
		return "", err
	}
	if in.recipe, grid, err = checkRecipe(in.cfg, recipe); err != nil {
		return "", err
	}
	in.files[zoo.TokenizerFile], err = packing.Tokenizer(ckpt, in.cfg.TokenLimit())
	return grid, err
}

// convert makes the pack.
func (in *input) convert(ctx context.Context, id zoo.PluginID, req zoo.ConvertRequest) (zoo.Conversion, error) {
	var made zoo.Conversion
	pack, err := newPlan(ctx, in.cfg, in.src)
	if err != nil {
		return made, err
	}
	pack.Plugin, pack.Recipe, pack.Files = id, in.recipe, in.files
	if pack.Sources, err = in.sources(req.Sources); err != nil {
		return made, err
	}
	m := packing.NewMeter(req.Progress)
	m.Expect(pack.SourceBytes())
	if unrounded, ok := in.src.(*floats); ok && req.Report { // what holds codes is not rounded
		matrices, err := unrounded.roundable()
		if err != nil {
			return made, err
		}
		for _, w := range matrices {
			m.Expect(w.SourceBytes())
		}
		if made.Rounding, err = packing.Report(ctx, matrices, m); err != nil {
			return made, err
		}
	}
	if err := ctx.Err(); err != nil {
		return made, context.Cause(ctx)
	}
	return made, pack.Write(ctx, req.Dir, m)
}

// checkRecipe returns the recipe as the pack's identity has it, and the grid to
// round to: of codes, which nothing rounds, it has nothing, and of floats the grid.
func checkRecipe(cfg *Config, recipe map[string]string) (map[string]string, quant.Grid, error) {
	if cfg.Quantization != nil {
		return nil, "", packing.CheckNoGrid(recipe)
	}
	return packing.ParseGrid(recipe)
}

// sources returns those of the given files that the conversion reads. A .litertlm file
// is listed under a name that is always the same.
func (in *input) sources(given []catalog.File) ([]catalog.File, error) {
	used := append(slices.Clone(copiedFiles[:]), packing.TokenizerSource)
	sources, err := packing.Sources(given, append(used, in.src.files()...)...)
	for i, f := range sources {
		if strings.HasSuffix(f.Path, liteSuffix) {
			sources[i].Path = liteSource
		}
	}
	return sources, err
}
