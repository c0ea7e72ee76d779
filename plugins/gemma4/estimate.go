package gemma4

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

var _ zoo.Estimator = (*Plugin)(nil)

// Estimate implements zoo.Estimator; see the function [EstimatePack].
func (p *Plugin) Estimate(ctx context.Context, req zoo.EstimateRequest) (zoo.Estimate, error) {
	if req.Config == nil {
		shapes, ok := p.shapes[req.Release.Model]
		if !ok {
			return zoo.Estimate{}, fault.WithHint(fmt.Errorf("%w: no shapes of %q are known before its config.json is there", fault.ErrNotFound, req.Release.Model),
				"this plugin has those of "+strings.Join(slices.Sorted(maps.Keys(p.shapes)), ", "))
		}
		req.Config = shapes.Config
	}
	return EstimatePack(ctx, p.id(), req)
}

// EstimatePack describes the pack that [Convert] would make, under the name and version of
// a plugin, of a checkpoint with the config.json of the request, by the recipe of its
// release. Nothing but the shapes is known of the weights. Errors are those of [ParseConfig]
// and, for a recipe, fault.ErrUsage.
func EstimatePack(ctx context.Context, id zoo.PluginID, req zoo.EstimateRequest) (zoo.Estimate, error) {
	cfg, err := ParseConfig(req.Config)
	if err != nil {
		return zoo.Estimate{}, err
	}
	recipe, grid, err := checkRecipe(cfg, req.Release.Recipe)
	if err != nil {
		return zoo.Estimate{}, err
	}
	pack, err := newPlan(ctx, cfg, synthetic{cfg, grid})
	if err != nil {
		return zoo.Estimate{}, err
	}
	pack.Plugin, pack.Recipe = id, recipe
	e := zoo.Estimate{}
	if e.PackBytes, err = pack.EstimateBytes(req, copiedFiles[:], cfg.Text.VocabSize); err != nil {
		return zoo.Estimate{}, err
	}
	if !cfg.TieWordEmbeddings {
		e.Assumptions = append(e.Assumptions, "the head repeats the embedding, so that the pack holds it once")
	}
	if cfg.Quantization != nil {
		e.Assumptions = append(e.Assumptions, "the checkpoint has static scales for activations and for an int8 cache")
	}
	e.Program, err = Record(pack.Manifest(), cfg)
	return e, err
}
