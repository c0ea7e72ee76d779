package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"

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
// reference values that were adopted for the model (see [Zoo.AdoptReference]) or
// else those that are published for it, if there are any, and asks all questions.
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
	if how.Reference != "" {
		if err := checkReferenceDir(how.Reference); err != nil {
			return nil, err
		}
	}
	if t.record == nil {
		s, err := z.openTarget(ctx, set, name, t)
		if err != nil {
			return nil, err
		}
		defer s.pack.Close()
		return z.gate(ctx, set, s, how)
	}
	// Even a gate without reference values keeps the lock until its receipt is
	// written: it must not take the place of one that an adoption has left meanwhile.
	s, lock, err := z.openLocked(ctx, set, name, t.record)
	if errors.Is(err, fault.ErrNotPermitted) {
		return z.gateReadOnly(ctx, set, name, t, how)
	}
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	defer s.pack.Close()
	if how.Reference == "" {
		if how.Reference, err = z.reference(ctx, set, lock, s.record); err != nil {
			return nil, err
		}
	}
	return z.gate(ctx, set, s, how)
}

// gateReadOnly gates an installed model in a store that cannot be written, where
// there is no lock to be had, and nobody to be kept out.
func (z *Zoo) gateReadOnly(ctx context.Context, set settings, name string, t target, how GateOptions) (*GateReport, error) {
	s, err := z.openTarget(ctx, set, name, t)
	if err != nil {
		return nil, err
	}
	defer s.pack.Close()
	if how.Reference == "" {
		dir, release, err := z.readReference(ctx, set, s.record)
		if err != nil {
			return nil, err
		}
		defer release()
		how.Reference = dir
	}
	return z.gate(ctx, set, s, how)
}

// openLocked takes the lock of an installed model and opens its pack.
func (z *Zoo) openLocked(ctx context.Context, set settings, name string, record *zoo.Record) (s subject, lock *zoo.Lock, err error) {
	lock, err = z.store.Lock(ctx, record.Name(), record.Version(), func() { set.events.Waiting(record.Name(), record.Version()) })
	if err != nil {
		return s, nil, err
	}
	// Whoever held the lock may have made another pack.
	if record, err = z.store.Record(record.Name(), record.Version()); err == nil {
		s, err = z.openTarget(ctx, set, name, target{record: record})
	}
	if err != nil {
		return s, nil, errors.Join(err, lock.Unlock())
	}
	return s, lock, nil
}

// checkReferenceDir makes sure that there is a folder where reference values should be.
func checkReferenceDir(dir string) error {
	if exists(dir) {
		return nil
	}
	return fault.WithHint(fmt.Errorf("%w: no folder %q of reference values", fault.ErrNotFound, dir),
		fmt.Sprintf("give a folder with %s, %s and perhaps %s, such as tools/oracle makes", zoo.GoldenFile, zoo.GoldenTensorsFile, zoo.QuestionsFile))
}

// readReference returns the folder of the reference values of an installed model in a
// store that cannot be written: the adopted ones, or else the published ones, which it
// fetches into a temporary folder. It is "" where there are none. release must be
// called when they are no longer needed.
func (z *Zoo) readReference(ctx context.Context, set settings, r *zoo.Record) (dir string, release func(), err error) {
	release = func() {}
	adopted, err := z.adopted(set, r)
	switch {
	case err != nil:
		return "", nil, err
	case adopted != nil:
		dir, err = z.store.VerifyReference(ctx, adopted)
		return dir, release, err
	case r.Release.Reference == nil:
		return "", release, nil
	}
	if dir, err = os.MkdirTemp("", "zoo-reference-"); err != nil {
		return "", nil, atomicfile.MapError(os.TempDir(), err)
	}
	release = func() { _ = os.RemoveAll(dir) }
	if err := z.fetchSource(ctx, set, *r.Release.Reference, dir); err != nil {
		release()
		return "", nil, err
	}
	return dir, release, nil
}

// gating is a gate that is ready to be run.
type gating struct {
	choice  *choice
	request gate.Request
	// usual says that the pack is run as it is opened by default.
	usual bool
}

// gating prepares the gate of an open pack.
func (z *Zoo) gating(ctx context.Context, set settings, s subject, how GateOptions) (*gating, error) {
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
	defaults, err := engineOptions(r.program, settings{})
	return &gating{
		choice: c,
		request: gate.Request{
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
		},
		usual: err == nil && r.opts.Cache == defaults.Cache && r.opts.Activations == defaults.Activations,
	}, nil
}

// run takes the measurements. The report is nil unless the error is nil or tells
// that the pack did not pass.
func (g *gating) run(ctx context.Context, events Events, name string) (*GateReport, error) {
	var report *GateReport
	var outcome error // of the gate, where the program could be compiled
	err := g.choice.compile(ctx, events, func(b backends.Backend) error {
		watched := &watchedCompiler{Backend: b}
		g.request.Backend = watched
		report, outcome = gate.Run(ctx, g.request)
		return watched.err
	})
	if err != nil {
		return nil, fmt.Errorf("gate of %s on backend %q: %w", name, g.choice.device.Name(), err)
	}
	if report == nil {
		return nil, fmt.Errorf("gate of %s: %w", name, outcome)
	}
	return report, outcome
}

// gate puts an open pack to its gate and writes the receipt.
func (z *Zoo) gate(ctx context.Context, set settings, s subject, how GateOptions) (*GateReport, error) {
	g, err := z.gating(ctx, set, s, how)
	if err != nil {
		return nil, err
	}
	report, err := g.run(ctx, set.events, s.name)
	if report == nil {
		return nil, err
	}
	if how.ForkMargin != 0 || !g.usual && !report.Pass {
		set.events.Notice(fmt.Sprintf("no receipt is written, since %s was not gated as it is opened by default", s.name))
		return report, err
	}
	if werr := z.writeReceipt(ctx, s, report); werr != nil {
		return report, errors.Join(err, werr)
	}
	return report, err
}

// writeReceipt keeps what a gate has found.
func (z *Zoo) writeReceipt(ctx context.Context, s subject, report *GateReport) error {
	if err := z.store.WriteReceipt(ctx, s.pack, report.Receipt()); err != nil {
		return fmt.Errorf("receipt of %s: %w", s.name, err)
	}
	return nil
}

// gateText is a model's text as a gate uses it.
type gateText struct{ text *text }

// Prompt returns the tokens of a conversation of one question, or of the question alone where there is no template.
func (g gateText) Prompt(ctx context.Context, question string) ([]int32, error) {
	return g.text.ask(ctx, question)
}

// Encode returns the tokens of plain text.
func (g gateText) Encode(text string) []int32 { return g.text.encode(text) }

// Decode returns the text of tokens.
func (g gateText) Decode(ids []int32) string { return g.text.decode(ids) }

// StopIDs returns the tokens that end an answer.
func (g gateText) StopIDs() []int32 { return g.text.defaults.StopIDs }
