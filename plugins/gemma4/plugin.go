package gemma4

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// Plugin is this package under a name and a version, which makes it a zoo.Plugin and a
// zoo.Synthesizer. It is read-only and safe for concurrent use.
type Plugin struct {
	about  zoo.Description
	shapes map[string]Shapes
}

var (
	_ zoo.Plugin      = (*Plugin)(nil)
	_ zoo.Synthesizer = (*Plugin)(nil)
)

// NewPlugin returns the plugin of a name, version and title. The version is part of the
// identity of every pack: it rises with every change of what [Convert] writes. shapes
// has those of the models that it can make up, by their names in the catalog; it must not
// be changed afterwards.
func NewPlugin(name, version, title string, shapes map[string]Shapes) *Plugin {
	return &Plugin{zoo.Description{Name: name, Version: version, Title: title, Operations: program.Version}, shapes}
}

// id is what packs carry.
func (p *Plugin) id() zoo.PluginID { return zoo.PluginID{Name: p.about.Name, Version: p.about.Version} }

// Describe implements zoo.Plugin.
func (p *Plugin) Describe(ctx context.Context) (zoo.Description, error) {
	return p.about, context.Cause(ctx)
}

// Fetch implements zoo.Plugin; see [Fetch].
func (*Plugin) Fetch(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
	return Fetch(ctx, req)
}

// Convert implements zoo.Plugin; see [Convert].
func (p *Plugin) Convert(ctx context.Context, req zoo.ConvertRequest) (zoo.Conversion, error) {
	return Convert(ctx, p.id(), req)
}

// Gate implements zoo.Plugin; see [Gate].
func (*Plugin) Gate(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error) {
	return Gate(ctx, req)
}

// Run implements zoo.Plugin; see [Record].
func (*Plugin) Run(ctx context.Context, req zoo.RunRequest) (*program.Program, error) {
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
func (p *Plugin) Synthesize(ctx context.Context, req zoo.SynthesizeRequest) error {
	shapes, ok := p.shapes[req.Model]
	if !ok {
		return fault.WithHint(fmt.Errorf("%w: there are no shapes to make random weights of %q", fault.ErrUsage, req.Model),
			"this plugin has those of "+strings.Join(slices.Sorted(maps.Keys(p.shapes)), ", "))
	}
	return Synthesize(ctx, p.id(), shapes, req)
}
