package gemma3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/tokenizer"
	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// requiredFiles are the small files of safetensors that a pack holds as they are; it has the
// optional ones if the checkpoint has them: base models come without a chat template, and
// older checkpoints have theirs in tokenizer_config.json.
var (
	requiredFiles = []string{zoo.ConfigFile, zoo.GenerationFile, zoo.TokenizerConfigFile}
	optionalFiles = []string{zoo.TemplateFile}
)

// Fetch names the files of a release that [Convert] reads: a single GGUF file if the release
// lists one and no safetensors, else safetensors and the small files that belong to them.
func Fetch(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
	name, err := releasedFile(req.Release)
	if err != nil {
		return zoo.FetchPlan{}, err
	}
	if name != "" {
		return req.Plan(name), context.Cause(ctx)
	}
	plan, err := req.PlanSafetensors(ctx, slices.Concat(requiredFiles, []string{packing.TokenizerSource}, optionalFiles)...)
	for i, f := range plan.Files {
		if slices.Contains(optionalFiles, f.Path) && !req.Lists(f.Path) {
			plan.Files[i].Optional = true
		}
	}
	return plan, err
}

// releasedFile returns the name of the GGUF file that a release lists, "" if it is one of safetensors.
func releasedFile(r catalog.Release) (string, error) {
	var names []string
	for _, f := range r.Source.Files {
		names = append(names, f.Path)
	}
	return ggufFile(names, "list only the one that is to be converted among the files of the release; a projector (mmproj) is not needed")
}

// Convert makes a pack in req.Dir out of a checkpoint, under the name and version of the
// plugin. The same checkpoint gives the same bytes everywhere.
//
// The recipe's only key is "grid", for safetensors: "q4_0", which is taken if it is left
// out, "absmax7" (see package quant), or "none", which keeps the weights as they are, in
// bfloat16. The numbers of a GGUF file are kept as package packing says.
//
// Errors are those of [ParseConfig], [Describe] and packages checkpoint, gguf, tokenizer,
// packing and zoo; the folder then holds no pack.
func Convert(ctx context.Context, id zoo.PluginID, req zoo.ConvertRequest) (zoo.Conversion, error) {
	names, err := checkpoint.Files(req.Checkpoint)
	if err != nil {
		return zoo.Conversion{}, err
	}
	name, err := ggufFile(names, "keep only the one that is to be converted in the folder; a projector (mmproj) is not needed")
	if err != nil {
		return zoo.Conversion{}, err
	}
	if name != "" {
		return zoo.Conversion{}, convertGGUF(ctx, id, req, name)
	}
	return convertFloats(ctx, id, req)
}

// convertFloats converts safetensors.
func convertFloats(ctx context.Context, id zoo.PluginID, req zoo.ConvertRequest) (made zoo.Conversion, err error) {
	ckpt, err := checkpoint.Open(req.Checkpoint)
	if err != nil {
		return made, err
	}
	defer func() { err = errors.Join(err, ckpt.Close()) }()
	recipe, grid, err := packing.ParseGrid(req.Recipe)
	if err != nil {
		return made, err
	}
	pack := &packing.Pack{Plugin: id, Recipe: recipe}
	if pack.Files, err = packing.ReadFiles(ckpt, requiredFiles, optionalFiles); err != nil {
		return made, err
	}
	cfg, err := ParseConfig(pack.Files[zoo.ConfigFile])
	if err != nil {
		return made, err
	}
	src := &floats{ckpt: ckpt, grid: grid, asked: map[string]bool{}}
	if pack.Tensors, err = plan(ctx, cfg, src); err != nil {
		return made, err
	}
	if err := checkRuns(pack, cfg); err != nil {
		return made, err
	}
	used := slices.Concat(requiredFiles, []string{packing.TokenizerSource}, src.files())
	for _, name := range optionalFiles {
		if _, ok := pack.Files[name]; ok {
			used = append(used, name)
		}
	}
	if err := addTemplate(pack.Files); err != nil {
		return made, err
	}
	if pack.Files[zoo.TokenizerFile], err = packing.Tokenizer(ckpt, cfg.VocabSize); err != nil {
		return made, err
	}
	if pack.Sources, err = packing.Sources(req.Sources, used...); err != nil {
		return made, err
	}
	m := packing.NewMeter(req.Progress)
	m.Expect(pack.SourceBytes())
	if req.Report && grid != "" {
		for _, w := range src.plain {
			m.Expect(w.SourceBytes())
		}
		if made.Rounding, err = packing.Report(ctx, src.plain, m); err != nil {
			return made, err
		}
	}
	return made, pack.Write(ctx, req.Dir, m)
}

// checkRuns reports a pack of which no program can be recorded, before its weights are written.
func checkRuns(pack *packing.Pack, cfg *Config) error {
	if _, err := Record(pack.Manifest(), cfg); err != nil {
		return zoo.WithHint(fmt.Errorf("no program can run this model: %w", err), "choose another checkpoint: the sizes of this one are beyond what programs may have")
	}
	return nil
}

// addTemplate gives a pack without a chat template the one in its tokenizer_config.json,
// where older checkpoints have it.
func addTemplate(files map[string][]byte) error {
	if _, ok := files[zoo.TemplateFile]; ok {
		return nil
	}
	var config struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(files[zoo.TokenizerConfigFile], &config); err != nil {
		return &checkpoint.FormatError{File: zoo.TokenizerConfigFile, Problem: "not the JSON it should be", Err: err}
	}
	if len(config.Template) == 0 {
		return nil
	}
	var template *string
	if err := json.Unmarshal(config.Template, &template); err != nil {
		return usage(fmt.Sprintf("put the template that is meant into %q", zoo.TemplateFile), "%q: chat_template is no text", zoo.TokenizerConfigFile)
	}
	if template != nil && *template != "" {
		files[zoo.TemplateFile] = []byte(*template)
	}
	return nil
}

// convertGGUF converts the GGUF file of that name.
func convertGGUF(ctx context.Context, id zoo.PluginID, req zoo.ConvertRequest, name string) (err error) {
	if err := packing.CheckNoGrid(req.Recipe); err != nil {
		return err
	}
	file, err := gguf.Open(req.Checkpoint, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	about, err := Describe(file)
	if err != nil {
		return err
	}
	cfg, err := ParseConfig(about.Files[zoo.ConfigFile])
	if err != nil {
		return fmt.Errorf("%q, its metadata as %w", shorten(name), err)
	}
	pack := &packing.Pack{Plugin: id, Files: about.Files}
	if pack.Tensors, err = plan(ctx, cfg, &packed{file: file, asked: map[string]bool{}}); err != nil {
		return fmt.Errorf("%q: %w", shorten(name), err)
	}
	if err := checkRuns(pack, cfg); err != nil {
		return fmt.Errorf("%q: %w", shorten(name), err)
	}
	compiled, err := tokenizer.CompilePieces(about.Pieces)
	if err == nil {
		err = packing.CheckTokenizer(compiled, cfg.VocabSize)
	}
	if err != nil {
		return fmt.Errorf("%q: vocabulary: %w", shorten(name), err)
	}
	pack.Files[zoo.TokenizerFile] = compiled
	if pack.Sources, err = packing.Sources(req.Sources, name); err != nil {
		return err
	}
	pack.Sources = renamed(pack.Sources)
	m := packing.NewMeter(req.Progress)
	m.Expect(pack.SourceBytes())
	return pack.Write(ctx, req.Dir, m)
}

// renamed gives a GGUF file the name under which sources list it.
func renamed(sources []catalog.File) []catalog.File {
	for i, f := range sources {
		if strings.HasSuffix(f.Path, ggufSuffix) {
			sources[i].Path = ggufSource
		}
	}
	return sources
}
