package gemma3

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// shapesOf returns what is known of the shapes of a release: the config.json of the request,
// or what the plugin has of the model. Of a GGUF file no request tells anything.
func shapesOf(req zoo.EstimateRequest) (Shapes, error) {
	name, err := releasedFile(req.Release)
	if err != nil {
		return Shapes{}, err
	}
	shapes := models()[req.Release.Model]
	switch {
	case name != "" && shapes.File == "":
		return Shapes{}, zoo.WithHint(fmt.Errorf("%w: the number types in a GGUF file of %q are known only once it is there", zoo.ErrNotFound, shorten(req.Release.Model)), known())
	case name == "" && req.Config != nil:
		shapes = Shapes{Config: req.Config}
	case name == "" && (shapes.Config == nil || shapes.File != ""):
		return Shapes{}, zoo.WithHint(fmt.Errorf("%w: no shapes of %q are known before its config.json is there", zoo.ErrNotFound, shorten(req.Release.Model)), known())
	}
	shapes.Recipe = req.Release.Recipe
	return shapes, nil
}

// EstimatePack describes the pack that [Convert] would make, under the name and version of
// a plugin, of a checkpoint of these shapes. Errors are those of [ParseConfig], zoo.ErrUsage
// for a recipe, and zoo.ErrNotFound for a GGUF file of another size than the shapes'.
func EstimatePack(ctx context.Context, id zoo.PluginID, shapes Shapes, req zoo.EstimateRequest) (zoo.Estimate, error) {
	src, recipe, err := shapes.source()
	if err != nil {
		return zoo.Estimate{}, err
	}
	for _, f := range req.Sources {
		if strings.HasSuffix(f.Path, ggufSuffix) && f.SizeBytes != 0 && shapes.FileBytes != 0 && f.SizeBytes != shapes.FileBytes {
			return zoo.Estimate{}, zoo.WithHint(fmt.Errorf("%w: %q has %d bytes, and the file of that model whose number types are known has %d", zoo.ErrNotFound, shorten(f.Path), f.SizeBytes, shapes.FileBytes), known())
		}
	}
	pack := &packing.Pack{Plugin: id, Recipe: recipe}
	if pack.Tensors, err = plan(ctx, src.cfg, src); err != nil {
		return zoo.Estimate{}, err
	}
	e := zoo.Estimate{}
	if e.PackBytes, err = pack.EstimateBytes(req, slices.Concat(requiredFiles, optionalFiles), src.cfg.VocabSize); err != nil {
		return zoo.Estimate{}, err
	}
	if shapes.File != "" {
		e.Assumptions = append(e.Assumptions, fmt.Sprintf("the matrices of the file have the number types that llama.cpp gives them in a file of type %s", shapes.File))
	}
	if !src.cfg.TieWordEmbeddings {
		e.Assumptions = append(e.Assumptions, "the head differs from the embedding, so that the pack holds both")
	}
	e.Program, err = Record(pack.Manifest(), src.cfg)
	return e, err
}
