// Package gemma4e2b is the plugin for checkpoints of Gemma 4 E2B in the layout of
// the official mobile ones: codes of 2, 4 and 8 bits with static activation scales.
// It gives package gemma4 a name and a version.
package gemma4e2b

import (
	"context"

	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

const (
	// Name is the plugin's name in catalogs.
	Name = "gemma4e2b"
	// Version is part of the identity of every pack: it rises with every change of
	// what [Plugin.Convert] writes.
	Version = "1.0.0"
)

// Plugin implements zoo.Plugin. It holds no state and is safe for concurrent use.
type Plugin struct{}

var _ zoo.Plugin = (*Plugin)(nil)

// New returns the plugin.
func New() *Plugin { return &Plugin{} }

// Describe implements zoo.Plugin.
func (*Plugin) Describe(ctx context.Context) (zoo.Description, error) {
	return zoo.Description{Name: Name, Version: Version, Title: "Gemma 4 E2B, mixed 2, 4 and 8 bits", Operations: program.Version}, context.Cause(ctx)
}

// Fetch implements zoo.Plugin; see [gemma4.Fetch].
func (*Plugin) Fetch(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
	return gemma4.Fetch(ctx, req)
}

// Convert implements zoo.Plugin; see [gemma4.Convert].
func (*Plugin) Convert(ctx context.Context, req zoo.ConvertRequest) error {
	return gemma4.Convert(ctx, zoo.PluginID{Name: Name, Version: Version}, req)
}

// Gate implements zoo.Plugin; see [gemma4.Gate].
func (*Plugin) Gate(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error) {
	return gemma4.Gate(ctx, req)
}

// Run implements zoo.Plugin; see [gemma4.Record].
func (*Plugin) Run(ctx context.Context, req zoo.RunRequest) (*program.Program, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	cfg, err := gemma4.ParseConfig(req.Pack.Config)
	if err != nil {
		return nil, err
	}
	return gemma4.Record(req.Pack.Manifest, cfg)
}
