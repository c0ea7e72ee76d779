package backends

import (
	"context"
	"fmt"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
)

// Generator is what an Executor also implements if its device can go on by
// itself from one token to the next. Like the others, its methods may be called
// by one goroutine at a time.
type Generator interface {
	// MaxBurst is the most steps of a burst: few enough that other sequences,
	// which wait for it, need not wait long.
	MaxBurst() int
	// CanPick returns nil, or why there is no burst with this pick and these
	// stop ids, or none at all: in few words, such as "top-k 0".
	CanPick(p Pick, stop []int32) error
	// Generate runs a burst. It gives the same tokens, and leaves the slot with
	// the same contents, as single steps would with a Picker for the logits.
	//
	// Whatever ends it, the slot is longer by as many positions as the result
	// says, and can be shortened again to any length that it had during the
	// burst: rings are large enough for that. Logits, peaks and hidden states are
	// not to be had afterwards.
	//
	// A token that is picked but may not be fed is emitted and ends the burst.
	// Logits that nothing can be picked from are an error that matches ErrLogits,
	// after the tokens before have been emitted. When ctx ends the device is told
	// to stop, nothing more is emitted, and the error is the cause, unless nothing
	// more was to come. A burst that cannot be run changes nothing; its error
	// matches fault.ErrUsage.
	Generate(ctx context.Context, b *Burst) (BurstResult, error)
}

// Burst is a run of steps that a device takes for one sequence: it feeds a
// token, picks the next from its logits, feeds that, and so on.
type Burst struct {
	// Row is the first token to feed, where its slot ends. Logits is not looked at.
	Row Row
	// Steps is how many tokens are picked at most: 1 to MaxBurst.
	Steps int
	// Pick says how.
	Pick Pick
	// Random holds a random number for each step, and nothing where Pick is greedy.
	Random []uint64
	// Stop are ids that end the burst. They are not emitted.
	Stop []int32
	// Emit is called with each token once it is known, in order, by the goroutine
	// that called Generate. Once it returns false it is not called any more, and
	// the device is asked to stop, which may have gone further meanwhile.
	Emit func(token int32) bool
}

// BurstResult says how a burst ended.
type BurstResult struct {
	// Fed is how many tokens were fed: that of Row and then those picked, in
	// turn. It is the number of steps unless something else ended the burst. Stop
	// ids and unusable logits come from the last token fed.
	Fed int
	// Stopped says that a stop id was picked.
	Stopped bool
}

// CheckBurst reports whether a burst may be run by a device that takes so many
// steps at most, whatever it can pick. It changes nothing.
func (s *Slots) CheckBurst(b *Burst, most int, p *program.Program, o Options) error {
	if b.Steps < 1 || b.Steps > most {
		return fmt.Errorf("%w: a burst of %d steps, 1 to %d are possible", fault.ErrUsage, b.Steps, most)
	}
	if err := b.Pick.Validate(); err != nil {
		return err
	}
	numbers := b.Steps
	if b.Pick.Greedy() {
		numbers = 0
	}
	if len(b.Random) != numbers {
		return fmt.Errorf("%w: %d random numbers for a burst that takes %d", fault.ErrUsage, len(b.Random), numbers)
	}
	row := b.Row
	row.Logits = true
	if _, err := s.Check([]Row{row}, p, o); err != nil {
		return err
	}
	if end := row.Pos + b.Steps; end > o.Context {
		return &ContextError{Need: end, Context: o.Context}
	}
	return nil
}
