package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/gate"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// GateReport is what a gate has measured.
type GateReport = gate.Report

// quickQuestions is about how many questions the gate of a pull asks.
const quickQuestions = 32

// GateOptions says how a pack is put to its gate. The zero value takes the
// reference values that are published for the model, if there are any, and asks
// all questions.
type GateOptions struct {
	// Reference is a folder with golden.json, golden.safetensors and perhaps questions.jsonl.
	Reference string
	// ForkMargin is the largest reference margin at which a token may differ; 0
	// takes the default for the kind of arithmetic.
	ForkMargin float64
	// Quick asks a sample of the questions only.
	Quick bool
}

// Gate puts the pack of a name or folder to its gate and writes a receipt, which
// decides whether [Zoo.Open] opens it. A gate with a fork margin of one's own leaves
// none, and one with another cache or other activations than the pack's defaults
// only if the pack passes. The model must be installed.
//
// When the pack does not pass, both the report and an error that matches
// zoo.ErrGateFailed are returned.
func (z *Zoo) Gate(ctx context.Context, name string, how GateOptions, opts ...Option) (*GateReport, error) {
	set, err := z.refine(opts)
	if err != nil {
		return nil, err
	}
	if err := set.check(z.backends); err != nil {
		return nil, err
	}
	z.passedOver(set)
	t, err := z.locate(name)
	if err != nil {
		return nil, err
	}
	if t.release != nil {
		return nil, &zoo.NotInstalledError{Model: t.release.Model}
	}
	s, err := z.openTarget(ctx, set, name, t)
	if err != nil {
		return nil, err
	}
	defer s.pack.Close()
	if how.Reference != "" {
		if info, err := os.Stat(how.Reference); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%w: no folder %q of reference values", fault.ErrNotFound, how.Reference)
		}
	} else if s.record != nil && s.record.Release.Reference != nil {
		dir, release, err := z.keptReference(ctx, set, s.record)
		if err != nil {
			return nil, err
		}
		defer release()
		how.Reference = dir
	}
	return z.gate(ctx, set, s, how)
}

// keptReference returns the folder of an installed model's reference values,
// beside its checkpoint or, where the store cannot be written, a temporary one.
// release must be called when they are no longer needed.
func (z *Zoo) keptReference(ctx context.Context, set settings, r *zoo.Record) (dir string, release func(), err error) {
	source := *r.Release.Reference
	lock, err := z.store.Lock(ctx, r.Name(), r.Version(), func() { set.events.Waiting(r.Name(), r.Version()) })
	if errors.Is(err, fault.ErrNotPermitted) {
		if dir, err = os.MkdirTemp("", "zoo-reference-"); err != nil {
			return "", nil, atomicfile.MapError(os.TempDir(), err)
		}
		release = func() { _ = os.RemoveAll(dir) }
		if err := z.fetchReference(ctx, set, source, dir); err != nil {
			release()
			return "", nil, err
		}
		return dir, release, nil
	}
	if err != nil {
		return "", nil, err
	}
	release = func() { _ = lock.Unlock() }
	if dir, err = lock.CheckpointDir(); err == nil {
		dir = filepath.Join(dir, referenceDir)
		err = z.fetchReference(ctx, set, source, dir)
	}
	if err != nil {
		release()
		return "", nil, err
	}
	return dir, release, nil
}

// gate puts an open pack to its gate and writes the receipt.
func (z *Zoo) gate(ctx context.Context, set settings, s subject, how GateOptions) (*GateReport, error) {
	c, err := chooseBackend(z.backends, set.backend)
	if err != nil {
		return nil, err
	}
	r, err := z.prepare(ctx, set, c, s)
	if err != nil {
		return nil, err
	}
	reference, err := s.plugin.Gate(ctx, zoo.GateRequest{Pack: s.pack.Info(), Dir: how.Reference})
	if err != nil {
		return nil, fmt.Errorf("%s: reference values: %w", s.name, err)
	}
	step := 1
	if how.Quick {
		step = max(1, len(reference.Questions)/quickQuestions)
	}
	request := gate.Request{
		Pack:      s.pack,
		Plugin:    pluginID(s.about),
		Program:   r.program,
		Text:      gateText{r.text},
		Reference: reference,
		Options: gate.Options{
			Threads:      r.opts.Threads,
			Cache:        r.opts.Cache,
			Activations:  r.opts.Activations,
			ForkMargin:   how.ForkMargin,
			QuestionStep: step,
			Progress:     set.events.Gate,
			Zoo:          Version(),
		},
	}
	var report *GateReport
	var outcome error // of the gate, where the program could be compiled
	err = c.compile(ctx, set.events, func(b backends.Backend) error {
		watched := &watchedCompiler{Backend: b}
		request.Backend = watched
		report, outcome = gate.Run(ctx, request)
		return watched.err
	})
	if err != nil {
		return nil, fmt.Errorf("gate of %s on backend %q: %w", s.name, c.device.Name(), err)
	}
	err = outcome
	if report == nil {
		return nil, fmt.Errorf("gate of %s: %w", s.name, err)
	}
	defaults, optsErr := engineOptions(r.program, settings{})
	usual := optsErr == nil && r.opts.Cache == defaults.Cache && r.opts.Activations == defaults.Activations
	if how.ForkMargin != 0 || !usual && !report.Pass {
		set.events.Notice(fmt.Sprintf("no receipt is written, since %s was not gated as it is opened by default", s.name))
		return report, err
	}
	if werr := z.store.WriteReceipt(ctx, s.pack, report.Receipt()); werr != nil {
		return report, errors.Join(err, fmt.Errorf("receipt of %s: %w", s.name, werr))
	}
	return report, err
}

// gateText is a model's text as a gate uses it.
type gateText struct{ text *text }

// Prompt returns the tokens of a conversation of one question.
func (g gateText) Prompt(ctx context.Context, question string) ([]int32, error) {
	return g.text.prompt(ctx, call{}, call{}.messages(question), question)
}

// Encode returns the tokens of plain text.
func (g gateText) Encode(text string) []int32 { return g.text.encode(text) }

// Decode returns the text of tokens.
func (g gateText) Decode(ids []int32) string { return g.text.decode(ids) }

// StopIDs returns the tokens that end an answer.
func (g gateText) StopIDs() []int32 { return g.text.defaults.StopIDs }
