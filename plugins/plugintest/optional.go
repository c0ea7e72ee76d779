package plugintest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// unknownModel is the name of a model that no plugin has shapes of.
const unknownModel = "no-model-of-this-name"

// synthesize makes packs of random weights, if the plugin can.
func (s *suite) synthesize(ctx context.Context) error {
	maker, ok := s.plugin.(zoo.Synthesizer)
	if !ok {
		return nil
	}
	synthesize := func(call, model string, progress func(done, total int64)) (string, error) {
		dir, around, err := s.folder()
		if err != nil {
			return "", err
		}
		_, err = ask(ctx, s, call, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, maker.Synthesize(ctx, zoo.SynthesizeRequest{Model: model, Dir: dir, Progress: progress})
		})
		around(call)
		return dir, err
	}
	call := "Synthesize, an unknown model"
	dir, err := synthesize(call, unknownModel, nil)
	s.refused(RuleSynthesize, call, err)
	if err != nil && !errors.Is(err, errFaulty) {
		if !errors.Is(err, fault.ErrUsage) {
			s.find(RuleSynthesize, call, "the error is not zoo.ErrUsage: %w", err)
		}
		s.noPack(RuleSynthesize, call, dir)
	}
	if s.o.Synthetic == "" {
		return nil
	}
	call = "Synthesize"
	var digests []catalog.Digest
	for range 2 {
		m := s.meter(call)
		dir, err := synthesize(call, s.o.Synthetic, m.report)
		if !s.works(RuleSynthesize, call, err) {
			return nil
		}
		m.check(s)
		pack := s.openPack(ctx, RuleSynthesize, call, dir)
		if pack == nil {
			return nil
		}
		digests = append(digests, pack.Digest())
		if !pack.Manifest().Synthetic() {
			s.find(RuleSynthesize, call, "the recipe does not say that the weights are random")
		}
		if p := s.validProgram(ctx, RuleSynthesize, "Run, a synthetic pack", pack.Info()); p != nil && s.o.Backend != nil {
			if err := s.feed(ctx, p, pack); err != nil {
				s.find(RuleSynthesize, call, "on backend %q: %w", s.o.Backend.Name(), err)
			}
		}
		if err := errors.Join(pack.Close(), os.RemoveAll(filepath.Dir(dir))); err != nil {
			return err
		}
	}
	if digests[0] != digests[1] {
		s.find(RuleSynthesize, call, "the pack has the digest %s, and then %s", digests[0], digests[1])
	}
	return nil
}

// slackBytes is how far off an estimate may be beside a quarter of the pack's small files.
const slackBytes = 64 << 10

// estimate compares an estimate with the pack, if the plugin makes any.
func (s *suite) estimate(ctx context.Context) error {
	estimator, ok := s.plugin.(zoo.Estimator)
	if !ok {
		return nil
	}
	estimate := func(call string, req zoo.EstimateRequest) (zoo.Estimate, error) {
		return ask(ctx, s, call, func(ctx context.Context) (zoo.Estimate, error) { return s.callEstimate(ctx, estimator, call, req) })
	}
	call := "Estimate, an unknown model without its configuration"
	unknown := s.release(s.sources)
	unknown.Model = unknownModel
	_, err := estimate(call, zoo.EstimateRequest{Release: unknown})
	s.refused(RuleEstimate, call, err)
	if err != nil && !errors.Is(err, errFaulty) && !errors.Is(err, fault.ErrNotFound) {
		s.find(RuleEstimate, call, "the error is not zoo.ErrNotFound: %w", err)
	}
	call = "Estimate, garbage as a configuration"
	_, err = estimate(call, zoo.EstimateRequest{Release: unknown, Config: garbage(1000)})
	s.refused(RuleEstimate, call, err)
	if s.pack == nil || s.program == nil {
		return nil
	}
	call = "Estimate"
	config, err := s.config()
	if err != nil {
		return err
	}
	e, err := estimate(call, zoo.EstimateRequest{Release: s.release(s.sources), Sources: s.sources, Config: config})
	if config == nil && errors.Is(err, fault.ErrNotFound) || !s.works(RuleEstimate, call, err) {
		return nil
	}
	rest := s.pack.SizeBytes()
	for _, f := range s.pack.Manifest().Files {
		if f.Path == zoo.WeightsFile {
			rest -= f.SizeBytes
		}
	}
	if off := e.PackBytes - s.pack.SizeBytes(); max(off, -off) > rest/4+slackBytes {
		s.find(RuleEstimate, call, "the pack has %d bytes, the estimate is %d", s.pack.SizeBytes(), e.PackBytes)
	}
	switch {
	case e.Program == nil:
		s.find(RuleEstimate, call, "there is no program")
	case e.Program.Validate() != nil:
		s.find(RuleEstimate, call, "the program: %w", e.Program.Validate())
	case !alike(e.Program, s.program):
		s.find(RuleEstimate, call, "the program is not the one that Run returns, constants aside")
	}
	return nil
}

// config returns the config.json of the checkpoint, or nil if it has none.
func (s *suite) config() ([]byte, error) {
	if _, ok := byPath(s.sources)[zoo.ConfigFile]; !ok {
		return nil, nil
	}
	return os.ReadFile(filepath.Join(s.o.Checkpoint, zoo.ConfigFile))
}

// alike reports whether two programs do the same but for the values of constants.
func alike(a, b *program.Program) bool {
	caches := func(p *program.Program) []program.Cache {
		all := slices.Clone(p.Caches)
		for i := range all {
			all[i].KeyScale, all[i].ValueScale = 0, 0
		}
		return all
	}
	return a.Vocab == b.Vocab && a.TokenLimit == b.TokenLimit && a.Context == b.Context &&
		slices.Equal(a.Weights, b.Weights) && slices.Equal(a.Buffers, b.Buffers) && slices.Equal(caches(a), caches(b)) &&
		slices.EqualFunc(a.Ops, b.Ops, func(x, y program.Op) bool {
			return slices.Equal(x.Reads(), y.Reads()) && slices.Equal(x.Writes(), y.Writes()) && slices.Equal(x.Weights(), y.Weights())
		})
}
