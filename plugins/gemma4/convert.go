package gemma4

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/tokenizer"
	"github.com/zoo-sdk/zoo/zoo"
)

// Names of files in a checkpoint that a pack does not hold under the same name.
const (
	tokenizerSource = "tokenizer.json"
	weightsSource   = checkpoint.WeightsFile
	indexSource     = checkpoint.IndexFile
)

// copiedFiles are the files of a checkpoint that a pack holds as they are.
var copiedFiles = [...]string{zoo.ConfigFile, zoo.GenerationFile, zoo.TokenizerConfigFile, zoo.TemplateFile}

// maxSpareTokens is how many rows the embedding may have beyond the tokenizer's
// pieces: some models round the number of rows up. With more, the tokenizer is
// that of another model.
const maxSpareTokens = 1024

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
// all processors. Errors are *ConfigError, *UnsupportedError, *TensorError,
// *TokenizerError and those of packages checkpoint, litertlm and zoo; the folder then
// holds no pack.
func Convert(ctx context.Context, id zoo.PluginID, req zoo.ConvertRequest) (zoo.Conversion, error) {
	in, err := openInput(ctx, req)
	if err != nil {
		return zoo.Conversion{}, err
	}
	made, err := in.convert(ctx, id, req)
	return made, errors.Join(err, in.close())
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

// smallFiles gives the content of small files of a checkpoint.
type smallFiles interface {
	File(name string) ([]byte, error)
}

// read reads the small files of a checkpoint, and returns the grid that the recipe asks for.
func (in *input) read(ckpt smallFiles, recipe map[string]string) (grid quant.Grid, err error) {
	if in.files, err = readFiles(ckpt); err != nil {
		return "", err
	}
	if in.cfg, err = ParseConfig(in.files[zoo.ConfigFile]); err != nil {
		return "", err
	}
	if in.recipe, grid, err = checkRecipe(in.cfg, recipe); err != nil {
		return "", err
	}
	in.files[zoo.TokenizerFile], err = compileTokenizer(ckpt, in.cfg)
	return grid, err
}

// convert makes the pack.
func (in *input) convert(ctx context.Context, id zoo.PluginID, req zoo.ConvertRequest) (zoo.Conversion, error) {
	var made zoo.Conversion
	plan, err := newPlan(ctx, in.cfg, in.src)
	if err != nil {
		return made, err
	}
	sources, err := usedSources(req.Sources, in.src)
	if err != nil {
		return made, err
	}
	m := &meter{progress: req.Progress, total: plan.sourceBytes()}
	if unrounded, ok := in.src.(*floats); ok && req.Report { // what holds codes is not rounded
		matrices, err := unrounded.roundable()
		if err != nil {
			return made, err
		}
		for _, w := range matrices {
			m.total += int64(w.rows) * w.rowBytes
		}
		if made.Rounding, err = unrounded.report(ctx, matrices, m); err != nil {
			return made, err
		}
	}
	if err := ctx.Err(); err != nil {
		return made, context.Cause(ctx)
	}
	w, err := zoo.NewPackWriter(req.Dir, id, in.recipe, sources)
	if err != nil {
		return made, err
	}
	err = writePack(ctx, w, plan, in.files, m)
	return made, errors.Join(err, w.Close())
}

// recipeGrid is the key of the recipe, and gridNone its value for weights that stay as they are.
const (
	recipeGrid = "grid"
	gridNone   = "none"
)

// checkRecipe returns the recipe as the pack's identity has it, and the grid to
// round to: of codes, which nothing rounds, it has nothing, and of floats the grid.
func checkRecipe(cfg *Config, recipe map[string]string) (map[string]string, quant.Grid, error) {
	for _, key := range slices.Sorted(maps.Keys(recipe)) {
		if key != recipeGrid {
			return nil, "", fault.WithHint(fmt.Errorf("recipe: %q is not a setting of this conversion: %w", shorten(key), fault.ErrUsage), `the only one is "grid"`)
		}
	}
	name := recipe[recipeGrid]
	if cfg.Quantization != nil {
		if name != "" && name != gridNone {
			return nil, "", fault.WithHint(fmt.Errorf("recipe: grid %q is for checkpoints of floats; this one holds codes already: %w", shorten(name), fault.ErrUsage),
				`leave the grid out, or give "none"`)
		}
		return nil, "", nil
	}
	switch name {
	case gridNone:
		return map[string]string{recipeGrid: gridNone}, "", nil
	case "":
		name = string(quant.GridQ4_0)
	}
	grid, err := quant.ParseGrid(name)
	if err != nil {
		return nil, "", fault.WithHint(fmt.Errorf("recipe: there is no grid %q: %w", shorten(name), fault.ErrUsage), "choose q4_0, absmax7 or none")
	}
	return map[string]string{recipeGrid: name}, grid, nil
}

// readFiles reads the small files that go into the pack as they are.
func readFiles(ckpt smallFiles) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range copiedFiles {
		data, err := ckpt.File(name)
		if err != nil {
			return nil, err
		}
		if name != zoo.TemplateFile && !json.Valid(data) {
			return nil, &checkpoint.FormatError{File: name, Problem: "not JSON"}
		}
		files[name] = data
	}
	return files, nil
}

// compileTokenizer compiles the checkpoint's tokenizer.json and checks that it is the model's.
func compileTokenizer(ckpt smallFiles, cfg *Config) ([]byte, error) {
	source, err := ckpt.File(tokenizerSource)
	if err != nil {
		return nil, err
	}
	compiled, err := tokenizer.Compile(source)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", tokenizerSource, err)
	}
	t, err := tokenizer.Open(compiled)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", tokenizerSource, err)
	}
	limit := cfg.TokenLimit()
	// Markers for what is not text, such as images, may lie beyond the tables.
	for id := limit; id < t.VocabSize(); id++ {
		if t.Piece(int32(id)) != "" && !t.IsAdded(int32(id)) {
			return nil, &TokenizerError{Pieces: t.VocabSize(), Rows: limit}
		}
	}
	if t.VocabSize()+maxSpareTokens < limit {
		return nil, &TokenizerError{Pieces: t.VocabSize(), Rows: limit}
	}
	return compiled, nil
}

// usedSources returns those of the given files that the conversion reads, so that
// others in the same folder do not change the pack. That all of them are given is
// what makes the pack's identity tell what it was made of.
func usedSources(given []catalog.File, src source) ([]catalog.File, error) {
	used := append(slices.Clone(copiedFiles[:]), tokenizerSource)
	used = append(used, src.files()...)
	var sources []catalog.File
	for _, name := range used {
		i := slices.IndexFunc(given, func(f catalog.File) bool { return f.Path == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: the conversion reads %q, which is not among the sources it was given", fault.ErrUsage, name)
		}
		f := given[i]
		f.Path = sourceName(name)
		sources = append(sources, f)
	}
	return sources, nil
}

// writePack writes everything that the pack consists of.
func writePack(ctx context.Context, w *zoo.PackWriter, plan *packPlan, files map[string][]byte, m *meter) error {
	planned := make([]zoo.PlannedTensor, len(plan.tensors))
	for i, t := range plan.tensors {
		planned[i] = t.PlannedTensor
	}
	if err := w.Plan(planned); err != nil {
		return err
	}
	p := newPacker(m)
	for _, t := range plan.tensors {
		if err := w.WriteTensor(t.Name, func(out io.Writer) error { return p.write(ctx, t, out) }); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteFile(name, files[name]); err != nil {
			return err
		}
	}
	if err := w.SetConstants(plan.constants); err != nil {
		return err
	}
	_, err := w.Finish(ctx)
	return err
}
