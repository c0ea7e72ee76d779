package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// burstPicks lists picks of all kinds.
func burstPicks() []backends.Pick {
	return []backends.Pick{
		{},
		{Temperature: 1, TopK: 40, TopP: 0.95},
		{Temperature: 0.7, TopK: 64},
		{Temperature: 3, TopK: 50, MinP: 0.1},
		{Temperature: 2, TopK: 17, TopP: 0.5, MinP: 0.01},
		{Temperature: 1.5, TopK: 256, TopP: 0.8},
		{Temperature: 1, TopK: 1},
		{Temperature: 1, TopK: 64, TopP: 1e-30},
		{Temperature: 5, TopK: 64, TopP: math.Nextafter32(1, 0)},
		{Temperature: 1, TopK: 64, MinP: 1},
		{Temperature: 0.01, TopK: 64},
		{Temperature: 1},
		{Temperature: 1, TopP: 0.9},
		{Temperature: 1, TopK: 1 << 20},
	}
}

// can reports whether bursts with a pick are offered; where they are not they must be refused.
func (t *burstTest) can(p backends.Pick) (bool, error) {
	err := t.g.CanPick(p, []int32{1, 2})
	if err == nil {
		return true, nil
	}
	if err.Error() == "" {
		return false, fmt.Errorf("%+v is refused without a reason", p)
	}
	b := t.plain(1)
	b.Pick, b.Stop = p, []int32{1, 2}
	if !p.Greedy() {
		b.Random = []uint64{1}
	}
	return false, t.refuses(fmt.Sprintf("%+v, which cannot be picked", p), b)
}

// picks runs whole bursts with every pick, and with extreme random numbers.
func (t *burstTest) picks() error {
	if err := t.reset(); err != nil {
		return err
	}
	for _, p := range burstPicks() {
		ok, err := t.can(p)
		if err != nil {
			return err
		}
		for i := range 2 {
			if !ok {
				break
			}
			r := burstRound{pick: p, steps: t.most}
			if i == 0 && !p.Greedy() {
				r.randoms = []uint64{0, math.MaxUint64, 1, math.MaxUint64 - 1}
			}
			if err := t.run(r); err != nil {
				return fmt.Errorf("%+v: %w", r, err)
			}
		}
	}
	return nil
}

// rounds runs whole bursts with every pick and, with some, bursts that end in every way at every place.
func (t *burstTest) rounds() error {
	t.prompt = 0
	if err := t.reset(); err != nil {
		return err
	}
	if err := t.run(burstRound{steps: t.most}); err != nil {
		return fmt.Errorf("from nothing: %w", err)
	}
	t.prompt = burstPrompt
	if err := t.picks(); err != nil {
		return err
	}
	for _, p := range burstPicks()[:2] {
		if ok, err := t.can(p); !ok || err != nil {
			if err == nil && p.Greedy() {
				err = errors.New("no bursts that are greedy")
			}
			if err != nil {
				return err
			}
			continue
		}
		n := min(t.most, 8)
		list := []burstRound{
			{pick: p, steps: t.most, stop: t.most},
			{pick: p, steps: n, stop: 5, refuse: 3}, {pick: p, steps: n, stop: 3, refuse: 5}, {pick: p, steps: n, stop: 3, refuse: 2},
			{pick: p, steps: n, stop: 5, cancel: 3}, {pick: p, steps: n, stop: 3, cancel: 5}, {pick: p, steps: n, stop: 3, cancel: 2},
		}
		for k := 1; k <= n; k++ {
			list = append(list,
				burstRound{pick: p, steps: k},
				burstRound{pick: p, steps: n, stop: k},
				burstRound{pick: p, steps: n, refuse: k},
				burstRound{pick: p, steps: n, cancel: k},
			)
		}
		for _, r := range list {
			if err := t.run(r); err != nil {
				return fmt.Errorf("%+v: %w", r, err)
			}
		}
	}
	return nil
}

// unusable runs into logits that nothing can be picked from.
func (t *burstTest) unusable() error {
	return t.until("unusable logits", func(w stepwise) bool { return w.err != nil })
}

// limited runs into tokens that cannot be fed.
func (t *burstTest) limited() error {
	return t.until("tokens that cannot be fed", func(w stepwise) bool {
		return len(w.tokens) > 0 && int(w.tokens[len(w.tokens)-1]) >= t.p.TokenLimit
	})
}

// until runs bursts until some have come upon what is looked for at different places.
func (t *burstTest) until(what string, met func(w stepwise) bool) error {
	t.prompt = t.o.MaxRows // short, since it is fed often
	if err := t.reset(); err != nil {
		return err
	}
	found := map[int]bool{}
	for i := range 24 {
		p := burstPicks()[i%2]
		if ok, err := t.can(p); !ok || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		random := make([]uint64, t.most+1)
		for i := range random {
			random[i] = t.rng.Uint64()
		}
		at := t.e.Len(t.steps)
		w, err := t.follow(p, random, t.most)
		if err == nil {
			err = t.e.Truncate(t.steps, at)
		}
		if err != nil {
			return err
		}
		if met(w) {
			found[len(w.tokens)] = true
		}
		if err := t.run(burstRound{pick: p, steps: t.most, randoms: random}); err != nil {
			return fmt.Errorf("%+v: %w", p, err)
		}
	}
	if len(found) < 2 && t.most > 1 {
		return fmt.Errorf("%s were met at %d places: the test has no bite", what, len(found))
	}
	return nil
}

// plain returns a greedy burst that may be run.
func (t *burstTest) plain(steps int) *backends.Burst {
	return &backends.Burst{
		Row: backends.Row{Token: t.next, Slot: t.bursts, Pos: t.e.Len(t.bursts)}, Steps: steps,
		Emit: func(int32) bool { return true },
	}
}

// refuses has a burst refused, which changes nothing.
func (t *burstTest) refuses(name string, b *backends.Burst) error {
	at := t.e.Len(t.bursts)
	emitted := 0
	b.Emit = func(int32) bool {
		emitted++
		return true
	}
	result, err := t.g.Generate(t.ctx, b)
	if !errors.Is(err, fault.ErrUsage) || result != (backends.BurstResult{}) || t.e.Len(t.bursts) != at || emitted > 0 {
		return fmt.Errorf("%s: %d tokens, %+v, %v and %d positions, want a usage error and the %d there were", name, emitted, result, err, t.e.Len(t.bursts), at)
	}
	return nil
}

// refused makes calls that must fail and leave the slot as it is.
func (t *burstTest) refused() error {
	if err := t.reset(); err != nil {
		return err
	}
	gone, err := t.e.NewSlot()
	if err != nil {
		return err
	}
	t.e.FreeSlot(gone)
	n := min(2, t.most)
	for _, c := range []struct {
		name   string
		change func(b *backends.Burst)
	}{
		{"no step", func(b *backends.Burst) { b.Steps = 0 }},
		{"a negative number of steps", func(b *backends.Burst) { b.Steps = -1 }},
		{"too many steps", func(b *backends.Burst) { b.Steps = t.most + 1 }},
		{"random numbers for a greedy burst", func(b *backends.Burst) { b.Random = make([]uint64, n) }},
		{"no random numbers", func(b *backends.Burst) { b.Pick = backends.Pick{Temperature: 1, TopK: 40} }},
		{"too few random numbers", func(b *backends.Burst) {
			b.Pick, b.Random = backends.Pick{Temperature: 1, TopK: 40}, make([]uint64, n-1)
		}},
		{"a negative temperature", func(b *backends.Burst) {
			b.Pick, b.Random = backends.Pick{Temperature: -1, TopK: 40}, make([]uint64, n)
		}},
		{"a negative slot", func(b *backends.Burst) { b.Row.Slot = -1 }},
		{"a slot that never was", func(b *backends.Burst) { b.Row.Slot = 99 }},
		{"a slot that was given back", func(b *backends.Burst) { b.Row.Slot, b.Row.Pos = gone, 0 }},
		{"a gap", func(b *backends.Burst) { b.Row.Pos++ }},
		{"a position that is there", func(b *backends.Burst) { b.Row.Pos-- }},
		{"a negative token", func(b *backends.Burst) { b.Row.Token = -1 }},
		{"a token past the last", func(b *backends.Burst) { b.Row.Token = int32(t.p.TokenLimit) }},
	} {
		b := t.plain(n)
		c.change(b)
		if err := t.refuses(c.name, b); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(t.ctx)
	cancel(errBurst)
	at := t.e.Len(t.bursts)
	b := t.plain(n)
	emitted := 0
	b.Emit = func(int32) bool {
		emitted++
		return true
	}
	if result, err := t.g.Generate(ctx, b); !errors.Is(err, errBurst) || t.e.Len(t.bursts) != at+result.Fed || emitted > 0 {
		return fmt.Errorf("in a cancelled context: %d tokens, %+v, %v and %d positions more, want the cause alone", emitted, result, err, t.e.Len(t.bursts)-at)
	}
	if err := t.e.Truncate(t.bursts, at); err != nil {
		return err
	}
	return t.toTheEnd()
}

// toTheEnd fills the context and asks for more.
func (t *burstTest) toTheEnd() error {
	for left := t.o.Context - t.e.Len(t.bursts); left > 0; left = t.o.Context - t.e.Len(t.bursts) {
		if left < t.most {
			if err := t.tooLong(t.most, t.o.Context-left+t.most); err != nil {
				return err
			}
		}
		b := t.plain(min(left, t.most))
		b.Emit = func(id int32) bool {
			t.next = id
			return true
		}
		if _, err := t.g.Generate(t.ctx, b); err != nil {
			return fmt.Errorf("%d steps before the end of the context: %w", left, err)
		}
	}
	return t.tooLong(1, t.o.Context+1)
}

// tooLong asks for more steps than fit.
func (t *burstTest) tooLong(steps, need int) error {
	var full *backends.ContextError
	b := t.plain(steps)
	err := t.refuses("more steps than fit", b)
	if _, also := t.g.Generate(t.ctx, b); err == nil && (!errors.As(also, &full) || full.Context != t.o.Context || full.Need > need) {
		err = fmt.Errorf("more steps than fit: %v, want a ContextError about at most %d positions", also, need)
	}
	return err
}
