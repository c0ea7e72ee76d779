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

// Convert makes a pack in req.Dir out of a checkpoint in the layout of the
// official mobile ones, under the name and version of the plugin. The same
// checkpoint gives the same bytes everywhere. The recipe's only key is "grid",
// which must be "none": the codes of the checkpoint are taken over as they are.
//
// It holds some megabytes in memory whatever the size of the checkpoint, and uses
// all processors. Errors are *ConfigError, *UnsupportedError, *TensorError,
// *TokenizerError and those of packages checkpoint and zoo; the folder then holds
// no pack.
func Convert(ctx context.Context, id zoo.PluginID, req zoo.ConvertRequest) error {
	recipe, err := checkRecipe(req.Recipe)
	if err != nil {
		return err
	}
	ckpt, err := checkpoint.Open(req.Checkpoint)
	if err != nil {
		return err
	}
	defer ckpt.Close()
	files, err := readFiles(ckpt)
	if err != nil {
		return err
	}
	cfg, err := ParseConfig(files[zoo.ConfigFile])
	if err != nil {
		return err
	}
	src, err := newMobile(ckpt, cfg)
	if err != nil {
		return err
	}
	plan, err := newPlan(ctx, cfg, src)
	if err != nil {
		return err
	}
	if files[zoo.TokenizerFile], err = compileTokenizer(ckpt, cfg); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	w, err := zoo.NewPackWriter(req.Dir, id, recipe, usedSources(req.Sources, src))
	if err != nil {
		return err
	}
	err = writePack(ctx, w, plan, files, req.Progress)
	return errors.Join(err, w.Close())
}

// checkRecipe returns the recipe as the pack's identity has it: without settings
// that say what goes without saying.
func checkRecipe(recipe map[string]string) (map[string]string, error) {
	for _, key := range slices.Sorted(maps.Keys(recipe)) {
		if key != "grid" {
			return nil, fmt.Errorf("recipe: %q is not a setting of this conversion: %w", shorten(key), fault.ErrUsage)
		}
		if v := recipe[key]; v != "" && v != "none" {
			return nil, fmt.Errorf("recipe: grid %q is for checkpoints of floats; this one holds codes already, so it must be \"none\": %w", shorten(v), fault.ErrUsage)
		}
	}
	return nil, nil
}

// readFiles reads the small files that go into the pack as they are.
func readFiles(ckpt *checkpoint.Checkpoint) (map[string][]byte, error) {
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
func compileTokenizer(ckpt *checkpoint.Checkpoint, cfg *Config) ([]byte, error) {
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
// others in the same folder do not change the pack.
func usedSources(given []catalog.File, src source) []catalog.File {
	used := append(slices.Clone(copiedFiles[:]), tokenizerSource)
	weights := src.files()
	used = append(used, weights...)
	if !slices.Equal(weights, []string{weightsSource}) {
		used = append(used, indexSource)
	}
	var sources []catalog.File
	for _, f := range given {
		if slices.Contains(used, f.Path) {
			sources = append(sources, f)
		}
	}
	return sources
}

// writePack writes everything that the pack consists of.
func writePack(ctx context.Context, w *zoo.PackWriter, plan *packPlan, files map[string][]byte, progress func(done, total int64)) error {
	planned := make([]zoo.PlannedTensor, len(plan.tensors))
	var total int64
	for i, t := range plan.tensors {
		planned[i] = t.PlannedTensor
		total += t.sourceBytes()
	}
	if err := w.Plan(planned); err != nil {
		return err
	}
	p := newPacker(total, progress)
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
