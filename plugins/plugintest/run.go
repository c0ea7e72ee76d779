package plugintest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// record asks for the program of a pack.
func (s *suite) record(ctx context.Context, call string, info zoo.PackInfo) (*program.Program, error) {
	p, err := ask(ctx, s, call, func(ctx context.Context) (*program.Program, error) {
		return s.callRun(ctx, s.plugin, call, zoo.RunRequest{Pack: info})
	})
	if err == nil && p == nil {
		s.find(RuleRun, call, "neither a program nor an error came back")
		return nil, errFaulty
	}
	return p, err
}

// runProgram asks for the program of the pack and runs it.
func (s *suite) runProgram(ctx context.Context) error {
	if s.pack == nil {
		return nil
	}
	const call = "Run"
	p := s.validProgram(ctx, RuleRun, call, s.info)
	if p == nil {
		return nil
	}
	s.program = p
	first, err := program.Encode(p)
	if err != nil {
		return err
	}
	again, err := s.record(ctx, call, s.info)
	if s.works(RuleRunSame, call, err) {
		if second, err := program.Encode(again); err != nil || !bytes.Equal(first, second) {
			s.find(RuleRunSame, call, "the program was another one when it was asked for again")
		}
	}
	if err := backends.CheckWeights(p, s.pack); err != nil {
		s.find(RuleRunWeights, call, "%w", err)
		return nil
	}
	if s.o.Backend == nil {
		return nil
	}
	if err := s.feed(ctx, p, s.pack); err != nil {
		if context.Cause(ctx) != nil {
			return err
		}
		s.find(RuleRunLogits, call, "on backend %q: %w", s.o.Backend.Name(), err)
	}
	return nil
}

// validProgram asks for a program and checks it; it returns nil if there is none that is valid.
func (s *suite) validProgram(ctx context.Context, rule Rule, call string, info zoo.PackInfo) *program.Program {
	p, err := s.record(ctx, call, info)
	if !s.works(rule, call, err) {
		return nil
	}
	if p.Version != s.about.Operations {
		s.find(rule, call, "the program is of version %d of the operations, Describe says %d", p.Version, s.about.Operations)
	}
	if err := p.Validate(); err != nil {
		s.find(rule, call, "%w", err)
		return nil
	}
	return p
}

// feed runs a program over a few tokens.
func (s *suite) feed(ctx context.Context, p *program.Program, w backends.Weights) (err error) {
	model, err := engine.Load(ctx, p, w, s.o.Backend, backends.Options{Context: min(p.Context, 64), MaxRows: 8})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	session, err := model.NewSession()
	if err != nil {
		return err
	}
	defer session.Close()
	var ids []int32
	for i := range min(p.Context, 5) {
		ids = append(ids, int32(i*37%p.TokenLimit))
	}
	if err := session.Feed(ctx, ids, len(ids)); err != nil {
		return err
	}
	for i := range ids {
		for token, l := range session.Logits(i) {
			if math.IsNaN(float64(l)) || math.IsInf(float64(l), 0) {
				return fmt.Errorf("after %d tokens the logit of token %d is %v", i+1, token, l)
			}
		}
	}
	return nil
}
