package gate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// Pack is what a gate needs of a pack; *zoo.Pack is one.
type Pack interface {
	backends.Weights
	// Digest names the pack in the report.
	Digest() catalog.Digest
}

// Text is how a pack's tokenizer and chat template turn text into tokens and back.
type Text interface {
	// Prompt returns the tokens of a conversation in which a person has asked
	// one question, up to where the answer starts.
	Prompt(ctx context.Context, question string) ([]int32, error)
	// Encode returns the tokens of plain text.
	Encode(text string) []int32
	// Decode returns the text of tokens.
	Decode(ids []int32) string
	// StopIDs returns the tokens that end an answer.
	StopIDs() []int32
}

// Request is a pack with everything it takes to put it to its gate.
type Request struct {
	// Pack holds the weights. They are read until Run returns.
	Pack Pack
	// Plugin made the program.
	Plugin zoo.PluginID
	// Program is what the backend runs over the weights.
	Program *program.Program
	// Backend runs it.
	Backend backends.Backend
	// Text reads and writes.
	Text Text
	// Reference is what the pack is held against; nil or without runs there is only the level self.
	Reference *zoo.Reference
	// Options says how.
	Options Options
}

// Options says how a gate is run. The zero value is the default of each.
type Options struct {
	// Threads, Cache and Activations are those of backends.Options.
	Threads     int
	Cache       backends.CacheType
	Activations backends.Activations
	// ForkMargin is the largest reference margin at which a token may differ; 0
	// means ExactForkMargin or RoundedForkMargin, whichever applies.
	ForkMargin float64
	// QuestionStep asks only every so many questions, the first included; 0 and 1 ask all.
	QuestionStep int
	// Progress, if set, is told how far the gate has come, in steps of the named stage.
	Progress func(stage string, done, total int)
	// Zoo is the version of this program, for the receipt.
	Zoo string
}

// maxLogits is the number of rows of a step that may want logits: enough to
// share the reading of weights, few enough for a vocabulary of 262,144.
const maxLogits = 16

// gate is a gate under way.
type gate struct {
	Request
	model  *engine.Model
	report *Report
}

// Run puts a pack to its gate. When it does not pass, both the report and a
// *FailedError are returned; with any other error, such as a reference that
// does not fit the program (fault.ErrIntegrity), the report is nil. The context
// is checked for each token.
func Run(ctx context.Context, req Request) (*Report, error) {
	if req.Reference == nil {
		req.Reference = &zoo.Reference{}
	}
	if err := req.check(); err != nil {
		return nil, err
	}
	o := &req.Options
	if o.Activations == "" {
		o.Activations = backends.ActivationsStatic
	}
	if o.Cache == "" {
		o.Cache = backends.CacheFloat
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	g := &gate{Request: req}
	var err error
	if g.model, err = g.load(ctx, g.Backend, o.Threads); err != nil {
		return nil, err
	}
	g.report = &Report{
		Pack:        req.Pack.Digest().String(),
		Backend:     req.Backend.Name(),
		Runs:        []RunReport{},
		Plugin:      req.Plugin,
		Kernels:     req.Backend.Describe(),
		Activations: o.Activations,
		Cache:       o.Cache,
		Threads:     g.model.Stats().Threads,
		Level:       zoo.LevelSelf,
		Limits:      limits(req),
		Zoo:         o.Zoo,
	}
	if len(req.Reference.Runs) > 0 {
		g.report.Level = zoo.LevelOracle
	}
	start := time.Now()
	err = g.run(ctx)
	g.report.Elapsed = time.Since(start)
	g.report.Time = time.Now()
	if err := errors.Join(err, g.model.Close()); err != nil {
		return nil, err
	}
	g.report.judge()
	if !g.report.Pass {
		return g.report, &FailedError{Report: g.report}
	}
	return g.report, nil
}

// load compiles the program.
func (g *gate) load(ctx context.Context, b backends.Backend, threads int) (*engine.Model, error) {
	m, err := engine.Load(ctx, g.Program, g.Pack, b, backends.Options{
		Threads:     threads,
		MaxRows:     engine.DefaultRows,
		MaxLogits:   maxLogits,
		Cache:       g.Options.Cache,
		Activations: g.Options.Activations,
	})
	if err != nil {
		return nil, fmt.Errorf("gate on backend %q: %w", b.Name(), err)
	}
	return m, nil
}

// run takes every measurement.
func (g *gate) run(ctx context.Context) error {
	if err := g.oracle(ctx); err != nil {
		return err
	}
	if err := g.score(ctx); err != nil {
		return err
	}
	return g.self(ctx)
}

// check refuses what cannot be run or compared.
func (r *Request) check() error {
	switch {
	case r.Pack == nil || r.Program == nil || r.Backend == nil || r.Text == nil:
		return fmt.Errorf("%w: a gate needs a pack, a program, a backend and the pack's text", fault.ErrUsage)
	case !(r.Options.ForkMargin >= 0): // NaN too
		return fmt.Errorf("%w: fork margin of %g", fault.ErrUsage, r.Options.ForkMargin)
	case r.Options.QuestionStep < 0:
		return fmt.Errorf("%w: every %d. question", fault.ErrUsage, r.Options.QuestionStep)
	}
	for i, run := range r.Reference.Runs {
		if err := checkRun(run, r.Program); err != nil {
			return fmt.Errorf("%w: reference run %d: %w", fault.ErrIntegrity, i, err)
		}
	}
	return nil
}

// checkRun reports what does not fit in a reference run.
func checkRun(run zoo.ReferenceRun, p *program.Program) error {
	switch {
	case len(run.Prompt) == 0:
		return errors.New("the prompt is empty")
	case len(run.Greedy) == 0:
		return errors.New("there is no token to compare")
	case len(run.Prompt)+len(run.Greedy) > p.Context:
		return fmt.Errorf("%d tokens do not fit in a context of %d", len(run.Prompt)+len(run.Greedy), p.Context)
	case len(run.Margin) != len(run.Greedy):
		return fmt.Errorf("%d margins for %d tokens", len(run.Margin), len(run.Greedy))
	case len(run.PromptLogits) != 0 && len(run.PromptLogits) != len(run.Prompt):
		return fmt.Errorf("logits at %d positions for a prompt of %d tokens", len(run.PromptLogits), len(run.Prompt))
	}
	for _, id := range run.Prompt {
		if id < 0 || int(id) >= p.TokenLimit {
			return fmt.Errorf("token %d is not in a vocabulary of %d", id, p.TokenLimit)
		}
	}
	for i, id := range run.Greedy {
		if id < 0 || int(id) >= min(p.Vocab, p.TokenLimit) {
			return fmt.Errorf("token %d is not in a vocabulary of %d", id, min(p.Vocab, p.TokenLimit))
		}
		if m := float64(run.Margin[i]); !(m >= 0) || math.IsInf(m, 0) {
			return fmt.Errorf("margin %d is %g", i, m)
		}
	}
	for i := range len(run.PromptLogits) + 1 {
		logits := run.LastLogits
		if i < len(run.PromptLogits) {
			logits = run.PromptLogits[i]
		} else if len(logits) == 0 {
			continue
		}
		if len(logits) != p.Vocab {
			return fmt.Errorf("%d logits for a vocabulary of %d", len(logits), p.Vocab)
		}
		if !finite(logits) {
			return errors.New("there are logits that are not finite")
		}
	}
	return nil
}

// finite reports whether all numbers are finite.
func finite(logits []float32) bool {
	for _, l := range logits {
		if l-l != 0 {
			return false
		}
	}
	return true
}
