package gemma3

import (
	"context"

	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/golden"
)

// Name and Version identify the plugin in catalogs and packs. The version rises with every
// change of what [Convert] writes.
const (
	Name    = "gemma3"
	Version = "1.0.0"
)

// Plugin is the family's zoo.Plugin, which also is a zoo.Synthesizer and a zoo.Estimator. It is
// read-only and safe for concurrent use.
type Plugin struct{}

var (
	_ zoo.Plugin      = Plugin{}
	_ zoo.Synthesizer = Plugin{}
	_ zoo.Estimator   = Plugin{}
)

// New returns the plugin.
func New() Plugin { return Plugin{} }

// Describe implements zoo.Plugin.
func (Plugin) Describe(ctx context.Context) (zoo.Description, error) {
	return zoo.Description{Name: Name, Version: Version, Title: "Gemma 3 text models, from GGUF files or bfloat16", Operations: program.Version}, context.Cause(ctx)
}

// Fetch implements zoo.Plugin; see the function [Fetch].
func (Plugin) Fetch(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
	return Fetch(ctx, req)
}

// Convert implements zoo.Plugin; see the function [Convert].
func (Plugin) Convert(ctx context.Context, req zoo.ConvertRequest) (zoo.Conversion, error) {
	return Convert(ctx, zoo.PluginID{Name: Name, Version: Version}, req)
}

// prompts are the texts of the checks that need no reference values. They read well to base models, too.
func prompts() []string {
	return []string{"The capital of France is", "Why is the sky blue?", "Once upon a time, in a village by the sea,"}
}

// Gate implements zoo.Plugin: it returns the reference values in the folder, see package
// golden, and texts that need none.
func (Plugin) Gate(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error) {
	ref := &zoo.Reference{}
	if req.Dir != "" {
		cfg, err := ParseConfig(req.Pack.Config)
		if err != nil {
			return nil, err
		}
		model := golden.Model{Vocab: cfg.VocabSize, TokenLimit: cfg.VocabSize, Context: cfg.MaxPositionEmbeddings}
		if ref, err = golden.Read(ctx, req.Dir, model); err != nil {
			return nil, err
		}
	}
	ref.Prompts = append(ref.Prompts, prompts()...)
	return ref, context.Cause(ctx)
}

// Run implements zoo.Plugin; see [Record].
func (Plugin) Run(ctx context.Context, req zoo.RunRequest) (*program.Program, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	cfg, err := ParseConfig(req.Pack.Config)
	if err != nil {
		return nil, err
	}
	return Record(req.Pack.Manifest, cfg)
}

// Synthesize implements zoo.Synthesizer; see the function [Synthesize].
func (Plugin) Synthesize(ctx context.Context, req zoo.SynthesizeRequest) error {
	shapes, ok := models()[req.Model]
	if !ok {
		return usage(known(), "there are no shapes to make random weights of %q", shorten(req.Model))
	}
	return Synthesize(ctx, zoo.PluginID{Name: Name, Version: Version}, shapes, req)
}

// Estimate implements zoo.Estimator; see [EstimatePack].
func (Plugin) Estimate(ctx context.Context, req zoo.EstimateRequest) (zoo.Estimate, error) {
	shapes, err := shapesOf(req)
	if err != nil {
		return zoo.Estimate{}, err
	}
	return EstimatePack(ctx, zoo.PluginID{Name: Name, Version: Version}, shapes, req)
}
