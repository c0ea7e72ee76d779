package engine

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// Finish says why a generation ended.
type Finish string

const (
	// FinishStop means that the model gave a stop id.
	FinishStop Finish = "stop"
	// FinishLength means that MaxTokens were given or the context is full.
	FinishLength Finish = "length"
	// FinishBreak means that the caller left the loop.
	FinishBreak Finish = "break"
	// FinishError means that the loop ended with an error.
	FinishError Finish = "error"
)

// GenerateOptions says how a session goes on.
type GenerateOptions struct {
	// Sampler picks the tokens; nil is greedy.
	Sampler *Sampler
	// MaxTokens is the most tokens to give; 0 means as many as the context holds.
	MaxTokens int
	// StopIDs end the generation. They are not given.
	StopIDs []int32
	// Finish, if set, is told why the generation ended, before the loop is left.
	Finish *Finish
}

// Generate gives one token after the other, the first from the logits of the
// last Feed, which must have wanted those of its last token: else the error is ErrNoLogits.
//
// A token is fed only when the next one is wanted. So after the loop the
// session holds every token given, but for the last one where the caller broke
// off or the length ended it; [Session.Tokens] tells, and [Session.Resume] goes
// on from any state. A stop id is never fed.
//
// The context is checked before each token. An error comes once, last, with
// token 0. The sequence is used once; it keeps nothing when it is broken off.
func (s *Session) Generate(ctx context.Context, opts GenerateOptions) iter.Seq2[int32, error] {
	return func(yield func(int32, error) bool) {
		finish, err := s.generate(ctx, opts, func(id int32) bool { return yield(id, nil) })
		if opts.Finish != nil {
			*opts.Finish = finish
		}
		if err != nil {
			yield(0, err)
		}
	}
}

// generate is the loop of Generate; give returns whether to go on.
func (s *Session) generate(ctx context.Context, opts GenerateOptions, give func(int32) bool) (Finish, error) {
	switch {
	case s.closed:
		return FinishError, ErrClosed
	case len(s.tokens) == 0:
		return FinishError, ErrEmpty
	case s.wanted == 0:
		return FinishError, ErrNoLogits
	case opts.MaxTokens < 0:
		return FinishError, fmt.Errorf("%w: at most %d tokens", fault.ErrUsage, opts.MaxTokens)
	}
	var last [1]int32
	for given := 0; ; given++ {
		if given > 0 && (given == opts.MaxTokens || len(s.tokens) == s.model.opts.Context) {
			return FinishLength, nil
		}
		if err := context.Cause(ctx); err != nil {
			return FinishError, err
		}
		if given > 0 {
			if err := s.Feed(ctx, last[:], 1); err != nil {
				return FinishError, err
			}
		}
		id, err := opts.Sampler.Next(s.Logits(s.wanted-1), s.Peaks(s.wanted-1), s.tokens)
		switch {
		case err != nil:
			return FinishError, fmt.Errorf("pick token %d: %w", len(s.tokens), err)
		case slices.Contains(opts.StopIDs, id):
			return FinishStop, nil
		}
		last[0] = id
		if !give(id) {
			return FinishBreak, nil
		}
	}
}
