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
	// Pace, if set, is told at the same time how the tokens were computed.
	Pace *Pace
}

// Pace tells how the tokens of a generation were computed. The first one, which
// comes from the logits of the prompt, does not count.
type Pace struct {
	// Submissions is how often the backend was asked to go on, and Steps how many
	// tokens it fed for that which were of use.
	Submissions, Steps int
	// Single says why every submission was of one token, such as "repeat penalty",
	// and is "" where the backend could go on by itself.
	Single string
}

// Generate gives one token after the other, the first from the logits of the
// last Feed, which must have wanted those of its last token: else the error is ErrNoLogits.
//
// A token is fed only when the next one is wanted. So in and after the loop the
// session holds every token given, but for the last one in the loop and where the
// caller broke off or the length ended it; [Session.Tokens] tells, and
// [Session.Resume] goes on from any state. A stop id is never fed. The session has
// no logits in and after the loop, and is not fed or rewound in it.
//
// A backend may go on by itself for several tokens; see [backends.Generator]. They
// are the same, and so is what the sampler and the session hold, wherever the loop
// is left: the session is shortened to that. Where a backend breaks its word and
// cannot do so, the session is empty.
//
// The context is checked before each token. An error comes once, last, with
// token 0. The sequence is used once; it keeps nothing when it is broken off.
func (s *Session) Generate(ctx context.Context, opts GenerateOptions) iter.Seq2[int32, error] {
	return func(yield func(int32, error) bool) {
		g := generation{Session: s, GenerateOptions: opts, give: func(id int32) bool { return yield(id, nil) }}
		finish, err := g.run(ctx)
		if opts.Finish != nil {
			*opts.Finish = finish
		}
		if opts.Pace != nil {
			*opts.Pace = g.pace
		}
		if err != nil {
			yield(0, err)
		}
	}
}

// generation is one that is under way.
type generation struct {
	*Session
	GenerateOptions
	give   func(int32) bool // returns whether to go on
	given  int
	last   [1]int32 // the token given last, which has not been fed
	most   int      // steps of a burst
	random []uint64 // of a burst
	pace   Pace
}

// run is the loop of Generate.
func (g *generation) run(ctx context.Context) (Finish, error) {
	switch {
	case g.closed:
		return FinishError, ErrClosed
	case len(g.tokens) == 0:
		return FinishError, ErrEmpty
	case g.wanted == 0:
		return FinishError, ErrNoLogits
	case g.MaxTokens < 0:
		return FinishError, fmt.Errorf("%w: at most %d tokens", fault.ErrUsage, g.MaxTokens)
	}
	if err := context.Cause(ctx); err != nil {
		return FinishError, err
	}
	g.most, g.pace.Single = g.bursts()
	finish, err := g.pick()
	for finish == "" {
		left := g.model.opts.Context - len(g.tokens)
		if g.MaxTokens > 0 {
			left = min(left, g.MaxTokens-g.given)
		}
		if left == 0 {
			return FinishLength, nil
		}
		if err := context.Cause(ctx); err != nil {
			return FinishError, err
		}
		if n := min(left, g.most); n > 1 && g.batch.Trace == nil {
			finish, err = g.burst(ctx, n)
		} else {
			finish, err = g.next(ctx)
		}
	}
	return finish, err
}

// next feeds the last token and gives the next, unless that ends the generation.
func (g *generation) next(ctx context.Context) (Finish, error) {
	if err := g.Feed(ctx, g.last[:], 1); err != nil {
		return FinishError, err
	}
	g.pace.Submissions++
	g.pace.Steps++
	return g.pick()
}

// pick gives the token that follows from the logits at hand, unless that ends the generation.
func (g *generation) pick() (Finish, error) {
	logits, peaks := g.Logits(g.wanted-1), g.Peaks(g.wanted-1)
	g.wanted = 0
	id, err := g.Sampler.Next(logits, peaks, g.tokens)
	switch {
	case err != nil:
		return FinishError, g.unusable(err)
	case slices.Contains(g.StopIDs, id):
		return FinishStop, nil
	}
	return g.deliver(id), nil
}

// unusable says where no token could be picked.
func (g *generation) unusable(err error) error {
	return fmt.Errorf("pick token %d: %w", len(g.tokens), err)
}

// deliver gives a token, and returns how that ends the generation or "".
func (g *generation) deliver(id int32) Finish {
	g.last[0] = id
	g.given++
	if !g.give(id) {
		return FinishBreak
	}
	return ""
}
