package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/zoo-sdk/zoo/backends"
)

// bursts returns the most steps that the backend takes by itself, or 1 and why it takes no more.
func (g *generation) bursts() (most int, why string) {
	const one = "the backend takes one step at a time"
	switch {
	case g.model.generator == nil:
		return 1, one
	case g.batch.Trace != nil:
		return 1, "a trace of the layers"
	case !g.Sampler.plain():
		return 1, "repeat penalty"
	}
	g.model.mu.Lock()
	defer g.model.mu.Unlock()
	if err := g.model.generator.CanPick(g.Sampler.pick(), g.StopIDs); err != nil {
		return 1, err.Error()
	}
	if most = g.model.generator.MaxBurst(); most > 1 {
		return most, ""
	}
	return 1, one
}

// burst has the backend feed the last token and take further steps, n at most,
// and gives the tokens, unless one of them ends the generation.
//
// The burst has a goroutine of its own, which never waits for whoever takes the
// tokens: they may use the model in the meantime, and wait no longer than for the
// burst to end.
func (g *generation) burst(ctx context.Context, n int) (Finish, error) {
	if g.closed {
		return FinishError, ErrClosed
	}
	var leave atomic.Bool
	var result backends.BurstResult
	var failed error
	tokens := make(chan int32, n)
	g.random = g.Sampler.ahead(g.random[:0], n)
	b := backends.Burst{
		Row:   backends.Row{Token: g.last[0], Slot: g.slot, Pos: len(g.tokens)},
		Steps: n, Pick: g.Sampler.pick(), Random: g.random, Stop: g.StopIDs,
		Emit: func(id int32) bool {
			if leave.Load() {
				return false
			}
			tokens <- id
			return true
		},
	}
	go func() {
		defer close(tokens)
		g.model.mu.Lock()
		defer g.model.mu.Unlock()
		result, failed = g.model.generator.Generate(ctx, &b)
	}()
	defer func() { // in a panic of the loop, too
		leave.Store(true)
		for range tokens {
		}
		g.settle()
	}()
	before := g.given
	g.pace.Submissions++
	for id := range tokens {
		if err := g.ended(ctx); err != nil {
			return FinishError, err
		}
		g.fed()
		if finish := g.deliver(id); finish != "" {
			return finish, nil
		}
	}
	if g.ended(ctx) != nil {
		return "", nil // the loop says so, unless no more tokens were to be given
	}
	switch {
	case errors.Is(failed, ErrLogits):
		g.fed()
		return FinishError, g.unusable(failed)
	case failed != nil:
		return FinishError, failed
	case result.Stopped:
		g.fed()
		return FinishStop, nil
	case g.given == before:
		return FinishError, fmt.Errorf("a burst of %d steps gave nothing", n)
	}
	return "", nil
}

// ended returns why no more tokens are to be given, or nil.
func (g *generation) ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if g.closed {
		return ErrClosed
	}
	return nil
}

// fed notes that a burst has fed the last token and picked from what followed.
func (g *generation) fed() {
	g.tokens = append(g.tokens, g.last[0])
	g.Sampler.skip()
	g.pace.Steps++
}

// settle brings session and slot together after a burst, which may have gone
// further than its tokens were taken, or have failed.
func (s *Session) settle() {
	if s.closed {
		return
	}
	s.model.mu.Lock()
	defer s.model.mu.Unlock()
	exec := s.model.exec
	n := min(len(s.tokens), exec.Len(s.slot))
	if n < exec.Len(s.slot) && exec.Truncate(s.slot, n) != nil {
		n = 0
		_ = exec.Truncate(s.slot, n) // which is always possible, and else the next Feed says what is wrong
	}
	s.tokens = s.tokens[:n]
}
