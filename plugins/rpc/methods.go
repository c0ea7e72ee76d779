package rpc

import (
	"context"
	"fmt"
	"path/filepath"
	"unicode/utf8"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/rpc/pluginpb"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

var _ zoo.Resolver = (*Client)(nil)

// wrong reports an answer that is refused.
func (c *Client) wrong(err error) error { return &AnswerError{Plugin: c.opts.Path, Problem: err} }

// otherwise reports a last frame of another call.
func (c *Client) otherwise(frame *pluginpb.PluginFrame) error {
	return c.wrong(fmt.Errorf("the last frame is of another call: %T", frame.GetFrame()))
}

// absolute makes a folder's path one that the process understands, which runs in
// another folder; "" stays "".
func absolute(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	if !utf8.ValidString(dir) {
		return "", fmt.Errorf("%w: the path %q is not UTF-8", fault.ErrUsage, dir)
	}
	return filepath.Abs(dir)
}

// Describe implements zoo.Plugin. A plugin that does not answer within
// [Options.StartTimeout] is a [StartError].
func (c *Client) Describe(ctx context.Context) (zoo.Description, error) {
	about, _, err := c.describe(ctx)
	return about, err
}

// describe returns what the plugin says of itself, and the message that it came in.
func (c *Client) describe(ctx context.Context) (zoo.Description, *pluginpb.Description, error) {
	last, err := c.ask(ctx, &call{brief: true, request: &pluginpb.HostFrame{Request: &pluginpb.HostFrame_Describe{Describe: &pluginpb.Describe{}}}})
	if err != nil {
		return zoo.Description{}, nil, err
	}
	d := last.GetDescription()
	if d == nil {
		return zoo.Description{}, nil, c.otherwise(last)
	}
	about, err := decodeDescription(d)
	if err != nil {
		return zoo.Description{}, nil, c.wrong(err)
	}
	return about, d, nil
}

// Resolve implements zoo.Resolver: it returns the client as a value that is a
// zoo.Synthesizer and a zoo.Estimator where the plugin is one. It is bounded like
// [Client.Describe].
func (c *Client) Resolve(ctx context.Context) (zoo.Plugin, error) {
	_, d, err := c.describe(ctx)
	switch {
	case err != nil:
		return nil, err
	case d.GetSynthesizes() && d.GetEstimates():
		return struct {
			*Client
			synthesizer
			estimator
		}{c, synthesizer{c}, estimator{c}}, nil
	case d.GetSynthesizes():
		return struct {
			*Client
			synthesizer
		}{c, synthesizer{c}}, nil
	case d.GetEstimates():
		return struct {
			*Client
			estimator
		}{c, estimator{c}}, nil
	}
	return c, nil
}

// Fetch implements zoo.Plugin.
func (c *Client) Fetch(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
	dir, err := absolute(req.Dir)
	if err != nil {
		return zoo.FetchPlan{}, err
	}
	last, err := c.ask(ctx, &call{request: &pluginpb.HostFrame{Request: &pluginpb.HostFrame_Fetch{Fetch: &pluginpb.Fetch{
		Release: encodeRelease(req.Release), Dir: dir,
	}}}})
	if err != nil {
		return zoo.FetchPlan{}, err
	}
	if last.GetPlan() == nil {
		return zoo.FetchPlan{}, c.otherwise(last)
	}
	plan, err := decodePlan(last.GetPlan())
	if err != nil {
		return zoo.FetchPlan{}, c.wrong(err)
	}
	return plan, nil
}

// Convert implements zoo.Plugin.
func (c *Client) Convert(ctx context.Context, req zoo.ConvertRequest) (zoo.Conversion, error) {
	checkpoint, err := absolute(req.Checkpoint)
	if err != nil {
		return zoo.Conversion{}, err
	}
	dir, err := absolute(req.Dir)
	if err != nil {
		return zoo.Conversion{}, err
	}
	last, err := c.ask(ctx, &call{
		progress: req.Progress,
		request: &pluginpb.HostFrame{Request: &pluginpb.HostFrame_Convert{Convert: &pluginpb.Convert{
			Checkpoint: checkpoint, Dir: dir, Sources: encodeFiles(req.Sources), Recipe: req.Recipe,
			Progress: req.Progress != nil, Report: req.Report,
		}}},
	})
	if err != nil {
		return zoo.Conversion{}, err
	}
	if last.GetConversion() == nil {
		return zoo.Conversion{}, c.otherwise(last)
	}
	done, err := decodeConversion(last.GetConversion())
	if err != nil {
		return zoo.Conversion{}, c.wrong(err)
	}
	return done, nil
}

// Gate implements zoo.Plugin.
func (c *Client) Gate(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error) {
	dir, err := absolute(req.Dir)
	if err != nil {
		return nil, err
	}
	pack, err := encodePack(req.Pack)
	if err != nil {
		return nil, err
	}
	g := &gathering{left: c.opts.Limits.ReferenceBytes}
	last, err := c.ask(ctx, &call{
		gathering: g,
		request:   &pluginpb.HostFrame{Request: &pluginpb.HostFrame_Gate{Gate: &pluginpb.Gate{Pack: pack, Dir: dir}}},
	})
	if err != nil {
		return nil, err
	}
	if last.GetDone() == nil {
		return nil, c.otherwise(last)
	}
	ref, err := g.whole()
	if err != nil {
		return nil, c.wrong(err)
	}
	return ref, nil
}

// Run implements zoo.Plugin.
func (c *Client) Run(ctx context.Context, req zoo.RunRequest) (*program.Program, error) {
	pack, err := encodePack(req.Pack)
	if err != nil {
		return nil, err
	}
	last, err := c.ask(ctx, &call{request: &pluginpb.HostFrame{Request: &pluginpb.HostFrame_Run{Run: &pluginpb.Run{Pack: pack}}}})
	if err != nil {
		return nil, err
	}
	if last.GetProgram() == nil {
		return nil, c.otherwise(last)
	}
	p, err := program.Decode(last.GetProgram().GetProgram())
	if err != nil {
		return nil, c.wrong(err)
	}
	return p, nil
}

// synthesizer is what a client is, too, if the plugin is a zoo.Synthesizer.
type synthesizer struct{ client *Client }

var _ zoo.Synthesizer = synthesizer{}

// Synthesize implements zoo.Synthesizer.
func (s synthesizer) Synthesize(ctx context.Context, req zoo.SynthesizeRequest) error {
	dir, err := absolute(req.Dir)
	if err != nil {
		return err
	}
	last, err := s.client.ask(ctx, &call{
		progress: req.Progress,
		request: &pluginpb.HostFrame{Request: &pluginpb.HostFrame_Synthesize{Synthesize: &pluginpb.Synthesize{
			Model: req.Model, Dir: dir, Progress: req.Progress != nil,
		}}},
	})
	if err == nil && last.GetDone() == nil {
		err = s.client.otherwise(last)
	}
	return err
}

// estimator is what a client is, too, if the plugin is a zoo.Estimator.
type estimator struct{ client *Client }

var _ zoo.Estimator = estimator{}

// Estimate implements zoo.Estimator.
func (e estimator) Estimate(ctx context.Context, req zoo.EstimateRequest) (zoo.Estimate, error) {
	last, err := e.client.ask(ctx, &call{request: &pluginpb.HostFrame{Request: &pluginpb.HostFrame_Estimate{Estimate: &pluginpb.Estimate{
		Release: encodeRelease(req.Release), Sources: encodeFiles(req.Sources), Config: req.Config,
	}}}})
	if err != nil {
		return zoo.Estimate{}, err
	}
	if last.GetEstimation() == nil {
		return zoo.Estimate{}, e.client.otherwise(last)
	}
	estimate, err := decodeEstimate(last.GetEstimation())
	if err != nil {
		return zoo.Estimate{}, e.client.wrong(err)
	}
	return estimate, nil
}
