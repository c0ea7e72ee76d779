package backendtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// burstPrompt is the number of tokens before most bursts: past a block of
// attention, and past the end of a ring.
const burstPrompt = 300

// TestGenerator is the part of [Test] that is about bursts, if the executors of b
// offer any: it holds them against single steps of the same executor.
func TestGenerator(ctx context.Context, b backends.Backend) error {
	shape := Shape{
		Seed: 9, Format: quant.Int4, Hidden: 52, FFN: 40, HeadDim: 20, Heads: 4, KVHeads: 2,
		Vocab: 2*backends.PeakRun + 88, Window: 12, Context: 2*burstPrompt + 10, Static: true,
	}
	opts := backends.Options{Threads: 2, MaxRows: 8, MaxLogits: 3, Context: shape.Context, Activations: backends.ActivationsStatic}
	most, err := maxBurst(ctx, b, shape, opts)
	if most == 0 || err != nil {
		return err
	}
	// As large as the ring allows, so that a burst leaves no position to spare.
	shape.Window = backends.BlockPositions - max(opts.MaxRows, most)
	var errs []error
	for _, rule := range []struct {
		name  string
		make  func() (*program.Program, backends.Weights, backends.Options)
		check func(t *burstTest) error
	}{
		{"bursts", func() (*program.Program, backends.Weights, backends.Options) {
			p, w := Decoder(shape)
			return p, w, opts
		}, (*burstTest).rounds},
		{"bursts over equal logits", func() (*program.Program, backends.Weights, backends.Options) {
			p, w := Decoder(shape)
			return p, altered{w, p.Weights[p.Ops[0].Embed.Table].Name, repeatBlock}, opts
		}, (*burstTest).picks},
		{"refused bursts", func() (*program.Program, backends.Weights, backends.Options) {
			p, w := Decoder(shape)
			return p, w, opts
		}, (*burstTest).refused},
		{"bursts to unusable logits", func() (*program.Program, backends.Weights, backends.Options) {
			p, w := Decoder(shape)
			o := opts
			o.Activations = backends.ActivationsFloat // what is not a number stays so
			return p, altered{w, p.Weights[p.Ops[1].Embed.Table].Name, spoilRows}, o
		}, (*burstTest).unusable},
		{"bursts to a token that cannot be fed", func() (*program.Program, backends.Weights, backends.Options) {
			p, w := Decoder(shape)
			p.TokenLimit = p.Vocab / 2
			return p, w, opts
		}, (*burstTest).limited},
	} {
		p, w, o := rule.make()
		e, err := b.Compile(ctx, p, w, o)
		if err == nil {
			t := &burstTest{ctx: ctx, e: e, p: p, o: o, most: most, prompt: burstPrompt, rng: rand.New(rand.NewPCG(shape.Seed, 3))}
			t.g, _ = e.(backends.Generator)
			err = errors.Join(rule.check(t), e.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", rule.name, err))
		}
	}
	return errors.Join(errs...)
}

// maxBurst returns the most steps of a burst, 0 where there are none.
func maxBurst(ctx context.Context, b backends.Backend, shape Shape, opts backends.Options) (int, error) {
	p, w := Decoder(shape)
	e, err := b.Compile(ctx, p, w, opts)
	if err != nil {
		return 0, fmt.Errorf("bursts: %w", err)
	}
	defer e.Close()
	g, ok := e.(backends.Generator)
	if !ok {
		return 0, nil
	}
	most := g.MaxBurst()
	if most < 1 || most > backends.BlockPositions/2 {
		return 0, fmt.Errorf("bursts of %d steps, want some, and few", most)
	}
	return most, nil
}

// repeatBlock makes all blocks of a table as the first: sixteen rows are all that differ.
func repeatBlock(data []byte, m quant.Matrix) ([]byte, quant.Matrix, bool) {
	data = slices.Clone(data)
	for b := range m.NumBlocks() {
		copy(data[b*m.BlockBytes():][:m.BlockBytes()], data)
	}
	return data, m, true
}

// spoilRows makes every third row of a table something that is not a number.
func spoilRows(data []byte, m quant.Matrix) ([]byte, quant.Matrix, bool) {
	data = slices.Clone(data)
	for r := 0; r < m.Rows; r += 3 {
		binary.LittleEndian.PutUint32(data[r*m.RowBytes()+m.CodeBytes():], math.Float32bits(float32(math.NaN())))
	}
	return data, m, true
}

// burstTest runs bursts in one slot and single steps in another, which hold the same tokens.
type burstTest struct {
	ctx    context.Context
	e      backends.Executor
	g      backends.Generator
	p      *program.Program
	o      backends.Options
	most   int
	prompt int // tokens before a burst, unless bursts went before
	rng    *rand.Rand
	picker backends.Picker

	bursts, steps backends.Slot
	next          int32 // the token to feed
}

// reset brings both slots to the length of the prompt.
func (t *burstTest) reset() error {
	n := t.prompt
	if t.bursts == t.steps {
		var err, also error
		t.bursts, err = t.e.NewSlot()
		t.steps, also = t.e.NewSlot()
		if err = errors.Join(err, also); err != nil {
			return err
		}
	}
	tokens := make([]int32, n+1)
	for i := range tokens {
		tokens[i] = t.token()
	}
	for _, s := range []backends.Slot{t.bursts, t.steps} {
		if err := t.e.Truncate(s, 0); err != nil {
			return err
		}
		for at := 0; at < n; at += t.o.MaxRows {
			var rows []backends.Row
			for i := at; i < min(n, at+t.o.MaxRows); i++ {
				rows = append(rows, backends.Row{Token: tokens[i], Slot: s, Pos: i})
			}
			if err := t.e.Step(t.ctx, &backends.Batch{Rows: rows}); err != nil {
				return err
			}
		}
	}
	t.next = tokens[n]
	return nil
}

// feed takes a single step and returns the logits.
func (t *burstTest) feed(s backends.Slot, token int32) ([]float32, error) {
	row := backends.Row{Token: token, Slot: s, Pos: t.e.Len(s), Logits: true}
	if err := t.e.Step(t.ctx, &backends.Batch{Rows: []backends.Row{row}}); err != nil {
		return nil, err
	}
	return slices.Clone(t.e.Logits(0)), nil
}

// token returns a random token, which spoilRows leaves alone.
func (t *burstTest) token() int32 { return t.rng.Int32N(int32(t.p.TokenLimit)/3)*3 + 1 }

// stepwise is what single steps give.
type stepwise struct {
	tokens []int32     // picked
	logits [][]float32 // that they were picked from, and perhaps unusable ones
	err    error       // of the pick from the last of these
}

// follow takes n single steps, fewer where a token cannot be picked or fed.
func (t *burstTest) follow(p backends.Pick, random []uint64, n int) (w stepwise, err error) {
	next := t.next
	for i := range n {
		if int(next) >= t.p.TokenLimit {
			break
		}
		logits, err := t.feed(t.steps, next)
		if err != nil {
			return w, fmt.Errorf("single step: %w", err)
		}
		w.logits = append(w.logits, logits)
		var r uint64
		if len(random) > i {
			r = random[i]
		}
		if next, w.err = t.picker.Pick(p, logits, nil, r); w.err != nil {
			break
		}
		w.tokens = append(w.tokens, next)
	}
	return w, nil
}

// burstRound is one burst. What ends it but its steps is counted in tokens emitted, 0 is never.
type burstRound struct {
	pick  backends.Pick
	steps int
	// stop is the token that becomes a stop id.
	stop int
	// refuse and cancel are where Emit returns false and the context ends.
	refuse, cancel int
	// randoms are taken in place of drawn ones.
	randoms []uint64
}

// errBurst is why a context ends.
var errBurst = errors.New("cancelled by the test")

// run runs a burst and compares it with single steps, which go on from where it ends.
func (t *burstTest) run(r burstRound) error {
	at := t.e.Len(t.bursts)
	if at+r.steps+1 > t.o.Context {
		if err := t.reset(); err != nil {
			return err
		}
		at = t.prompt
	}
	b := &backends.Burst{Row: backends.Row{Token: t.next, Slot: t.bursts, Pos: at}, Steps: r.steps, Pick: r.pick}
	// One number more than the burst gets, to go on with.
	random := slices.Clone(r.randoms)
	for len(random) <= r.steps {
		random = append(random, t.rng.Uint64())
	}
	if !r.pick.Greedy() {
		b.Random = random[:r.steps]
	}
	want, err := t.follow(r.pick, random, r.steps+1)
	if err != nil {
		return err
	}
	// What a burst may emit, and how much of it is fed.
	emitted := want.tokens[:min(r.steps, len(want.tokens))]
	fed := min(r.steps, len(want.logits))
	stopped := false
	if r.stop > 0 && r.stop <= len(emitted) {
		b.Stop = []int32{int32(t.p.Vocab) - 1, emitted[r.stop-1]}
		cut := slices.IndexFunc(emitted, func(id int32) bool { return slices.Contains(b.Stop, id) })
		emitted, fed, stopped = emitted[:cut], cut+1, true
	}
	ctx, cancel := context.WithCancelCause(t.ctx)
	defer cancel(nil)
	var got []int32
	over := false
	b.Emit = func(token int32) bool {
		if over {
			token = -1 // which nothing expects
		}
		got = append(got, token)
		if len(got) == r.cancel {
			cancel(errBurst)
		}
		over = len(got) == r.refuse || len(got) == r.cancel
		return len(got) != r.refuse
	}
	result, err := t.g.Generate(ctx, b)
	length := t.e.Len(t.bursts)
	if length != at+result.Fed {
		return fmt.Errorf("the slot has %d positions more after %d were fed", length-at, result.Fed)
	}
	broken := 0
	all := len(emitted)
	if over {
		broken = len(got)
		emitted = emitted[:min(broken, all)]
	}
	switch {
	case !slices.Equal(got, emitted):
		return fmt.Errorf("tokens %v, want %v", got, emitted)
	case broken > 0 && (result.Fed < broken || result.Fed > fed):
		return fmt.Errorf("%d tokens fed, of which %d were wanted and %d might be", result.Fed, broken, fed)
	case broken == 0 && (result.Fed != fed || result.Stopped != stopped):
		return fmt.Errorf("%d tokens fed and stopped %t, want %d and %t", result.Fed, result.Stopped, fed, stopped)
	case broken == 0 && want.err != nil && fed == len(want.logits) && !stopped:
		if !errors.Is(err, backends.ErrLogits) {
			return fmt.Errorf("error %v, want one about unusable logits", err)
		}
	case r.cancel > 0 && broken > 0 && !errors.Is(err, errBurst) && (err != nil || broken < all): // the last may come too late to be cancelled
		return fmt.Errorf("cancelled: %v, want the cause", err)
	case r.cancel == 0 && err != nil:
		return err
	}
	return t.goOn(at, len(got), broken, want)
}

// goOn shortens the slot of a burst to where its tokens were taken, compares
// what follows there with single steps, and brings both slots to the same end.
func (t *burstTest) goOn(at, got, broken int, want stepwise) error {
	fed := t.e.Len(t.bursts) - at
	if broken > 0 {
		for n := fed - 1; n >= broken; n-- {
			if err := t.e.Truncate(t.bursts, at+n); err != nil {
				return fmt.Errorf("shortening %d tokens to %d: %w", fed, n, err)
			}
		}
		fed = broken
	}
	if got < fed { // the last token fed gave a stop id, or unusable logits
		if err := t.e.Truncate(t.bursts, at+got); err != nil {
			return fmt.Errorf("shortening %d tokens to %d: %w", fed, got, err)
		}
	}
	next := t.next
	if got > 0 {
		next = want.tokens[got-1]
	}
	if int(next) >= t.p.TokenLimit || want.err != nil {
		return t.reset()
	}
	logits, err := t.feed(t.bursts, next)
	if err != nil {
		return err
	}
	if err := same("logits", at+got, logits, want.logits[got]); err != nil {
		return fmt.Errorf("after a burst: %w", err)
	}
	if err := t.e.Truncate(t.steps, at+got+1); err != nil {
		return fmt.Errorf("shortening single steps: %w", err)
	}
	if t.next = want.tokens[got]; int(t.next) >= t.p.TokenLimit {
		return t.reset()
	}
	if t.rng.IntN(2) == 0 { // any token may be next, and greedy picks soon go in circles
		t.next = t.token()
	}
	return nil
}
