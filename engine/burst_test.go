package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// bursts says how a scripted generator behaves.
type bursts struct {
	most int
	// lag is how many steps the device is ahead of what it emits.
	lag int
	// lossy devices emit nothing more when they fail, and forgetful ones lose what they fed in the burst.
	lossy, forgetful bool
	// refuse is what CanPick says.
	refuse error
	// rigid slots cannot be shortened, but to nothing.
	rigid bool
	// idle bursts do nothing.
	idle bool
	// lingering bursts do not return before their context ends.
	lingering bool
	// at, if set, is called before each step of a burst.
	at func(step int)
	// sizes are those of all bursts.
	sizes []int
}

// generator is a scripted executor that goes on by itself.
type generator struct {
	*scriptedExecutor
	*bursts
}

func (g *generator) MaxBurst() int                            { return g.most }
func (g *generator) CanPick(_ backends.Pick, _ []int32) error { return g.refuse }

func (g *generator) Truncate(s backends.Slot, n int) error {
	if g.rigid && n > 0 && n < len(g.slots[s]) {
		return backends.ErrTruncate
	}
	return g.scriptedExecutor.Truncate(s, n)
}

func (g *generator) Generate(ctx context.Context, b *backends.Burst) (result backends.BurstResult, err error) {
	g.sizes = append(g.sizes, b.Steps)
	numbers := b.Steps
	if b.Pick.Greedy() {
		numbers = 0
	}
	switch {
	case b.Steps < 1 || b.Steps > g.most || len(b.Random) != numbers || b.Row.Pos != len(g.slots[b.Row.Slot]) || b.Row.Pos+b.Steps > g.backend.context:
		return result, fmt.Errorf("%w: a burst of %d steps and %d random numbers from %d of %d", fault.ErrUsage, b.Steps, len(b.Random), b.Row.Pos, len(g.slots[b.Row.Slot]))
	case g.idle:
		return result, nil
	}
	var picker backends.Picker
	var pending []int32
	logits := make([]float32, g.backend.vocab)
	// emit emits what is pending but for the last keep, and reports whether to go on.
	emit := func(keep int) bool {
		for len(pending) > keep {
			if context.Cause(ctx) != nil || !b.Emit(pending[0]) {
				return false
			}
			pending = pending[1:]
		}
		return true
	}
	next := b.Row.Token
	for i := range b.Steps {
		if g.at != nil {
			g.at(i)
		}
		if err := g.count(); err != nil {
			if !g.lossy {
				emit(0)
			}
			if g.forgetful {
				g.slots[b.Row.Slot] = g.slots[b.Row.Slot][:b.Row.Pos]
				result.Fed = 0
			}
			return result, err
		}
		g.slots[b.Row.Slot] = append(g.slots[b.Row.Slot], next)
		result.Fed++
		clear(logits)
		g.backend.logits(g.slots[b.Row.Slot], logits)
		var random uint64
		if len(b.Random) > 0 {
			random = b.Random[i]
		}
		if next, err = picker.Pick(b.Pick, logits, nil, random); err != nil {
			emit(0)
			return result, err
		}
		if slices.Contains(b.Stop, next) {
			result.Stopped = emit(0)
			return result, context.Cause(ctx)
		}
		pending = append(pending, next)
		if !emit(g.lag) {
			return result, context.Cause(ctx)
		}
	}
	emit(0)
	if g.lingering {
		<-ctx.Done()
	}
	return result, context.Cause(ctx)
}

// scene is a generation with something that ends it.
type scene struct {
	sampling  engine.Sampling
	maxTokens int
	stops     []int32
	context   int
	// Counted in tokens given, from 1, or 0 for never: the loop is left, the
	// context or the session ends in it, it panics.
	leave, cancel, end, panics int
	// Counted in steps and positions.
	fail, nan int
}

var (
	errFailed = errors.New("device lost")
	errEnough = errors.New("stopped by the user")
)

// outcome is everything that a generation leaves.
type outcome struct {
	Given, Tokens, Slot []int32
	Held                []int // tokens of the session as each token is given
	Finish              engine.Finish
	Err                 string
	Next                []int32 // what the sampler picks next
	Again               []int32 // what follows after a resume
	Steps               int
}

// play runs a scene on a backend that is given as it is without the scene.
func play(t *testing.T, b *scripted, sc scene, seed uint64) (o outcome, pace engine.Pace) {
	t.Helper()
	prompt := []int32{1, 2, 3}
	b.vocab, b.context = 24, sc.context
	b.logits = func(tokens []int32, dst []float32) {
		h := seed
		for _, id := range tokens {
			h = (h ^ uint64(id)) * 0x9e3779b97f4a7c15
		}
		r := rand.New(rand.NewPCG(h, 1))
		for i := range dst {
			dst[i] = float32(r.NormFloat64())
		}
		if sc.nan > 0 && len(tokens) == len(prompt)+sc.nan {
			dst[7] = float32(math.NaN())
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	s := b.session(t)
	if err := s.Feed(ctx, prompt, 1); err != nil {
		t.Fatal(err)
	}
	b.steps = 0
	b.fail = func(step int) error {
		if step == sc.fail {
			return errFailed
		}
		return nil
	}
	sampler := newSampler(t, sc.sampling)
	opts := engine.GenerateOptions{Sampler: sampler, MaxTokens: sc.maxTokens, StopIDs: sc.stops, Finish: &o.Finish, Pace: &pace}
	func() {
		defer func() {
			if r := recover(); r != nil {
				o.Err = fmt.Sprint(r)
			}
		}()
		for id, err := range s.Generate(ctx, opts) {
			if err != nil {
				o.Err = err.Error()
				continue
			}
			o.Given = append(o.Given, id)
			o.Held = append(o.Held, len(s.Tokens()))
			switch len(o.Given) {
			case sc.leave:
				return
			case sc.cancel:
				cancel(errEnough)
			case sc.end:
				s.Close()
			case sc.panics:
				panic("in the loop")
			}
		}
	}()
	b.fail = nil
	o.Steps = pace.Steps
	o.Tokens = slices.Clone(s.Tokens())
	for _, slot := range b.executor.slots {
		o.Slot = slices.Clone(slot)
	}
	for range 3 {
		o.Next = append(o.Next, pick(t, sampler, []float32{1, 2, 3, 2, 1}, nil))
	}
	if sc.end > 0 {
		return o, pace
	}
	sc.nan = 0
	all := slices.Concat(prompt, o.Given)
	rest, err := s.Resume(all[:min(len(all), sc.context-2)])
	if err == nil {
		err = s.Feed(t.Context(), rest, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	for id, err := range s.Generate(t.Context(), engine.GenerateOptions{MaxTokens: 5}) {
		if err != nil {
			t.Fatal(err)
		}
		o.Again = append(o.Again, id)
	}
	return o, pace
}

// scenes lists what may end a generation, at each place.
func scenes() map[string]scene {
	base := scene{context: 100, maxTokens: 20}
	all := map[string]scene{"maximum": base}
	for n := range 22 {
		sc := base
		sc.maxTokens = n + 1
		all[fmt.Sprintf("maximum of %d", n+1)] = sc
		sc.maxTokens, sc.context = 0, 4+n
		all[fmt.Sprintf("context of %d", 4+n)] = sc
	}
	for at := 1; at <= 20; at++ {
		for name, change := range map[string]func(sc *scene){
			"left":     func(sc *scene) { sc.leave = at },
			"cancel":   func(sc *scene) { sc.cancel = at },
			"close":    func(sc *scene) { sc.end = at },
			"panic":    func(sc *scene) { sc.panics = at },
			"failure":  func(sc *scene) { sc.fail = at },
			"unusable": func(sc *scene) { sc.nan = at },
		} {
			sc := base
			change(&sc)
			all[fmt.Sprintf("%s at %d", name, at)] = sc
		}
	}
	for id := range int32(24) {
		sc := base
		sc.stops = []int32{id, 99}
		all[fmt.Sprintf("stop id %d", id)] = sc
		sc.stops, sc.cancel = []int32{id, id / 2}, int(id%7)+1
		all[fmt.Sprintf("stop id %d and cancel", id)] = sc
		sc.cancel, sc.leave = 0, int(id%7)+1
		all[fmt.Sprintf("stop id %d and left", id)] = sc
	}
	return all
}

// TestBursts compares generations in bursts with those in single steps: what is
// given, how it ends, what session, slot and sampler hold then and how they go on.
func TestBursts(t *testing.T) {
	t.Parallel()
	for _, pick := range []backends.Pick{{}, {Temperature: 1}, {Temperature: 2, TopK: 8, TopP: 0.9, MinP: 0.05}} {
		for name, sc := range scenes() {
			sc.sampling = engine.Sampling{Pick: pick, Seed: 5}
			for seed := range uint64(2) {
				want, pace := play(t, &scripted{}, sc, seed)
				if sc.panics == 0 && (pace.Submissions != pace.Steps || pace.Single == "") {
					t.Errorf("%s, single steps: %+v", name, pace)
				}
				for most := 2; most <= 8; most++ {
					how := &bursts{most: most, lag: (most + int(seed)) % 4}
					got, pace := play(t, &scripted{bursts: how}, sc, seed)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("%s %+v, seed %d, bursts of %d with %d ahead (-single +bursts):\n%s", name, pick, seed, most, how.lag, diff)
					}
					if least := (pace.Steps + most - 1) / most; sc.panics == 0 && (pace.Single != "" || pace.Submissions < least || pace.Submissions > least+1) {
						t.Errorf("%s, bursts of %d: %+v", name, most, pace)
					}
				}
			}
		}
	}
}

// TestBurstSizes asks for no more than may be given and fits.
func TestBurstSizes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		sc      scene
		want    []int // and single steps for what is left
		steps   int
		singles int
	}{
		{"maximum", scene{context: 100, maxTokens: 18}, []int{8, 8}, 17, 1},
		{"maximum within a burst", scene{context: 100, maxTokens: 6}, []int{5}, 5, 0},
		{"context", scene{context: 3 + 13}, []int{8, 5}, 13, 0},
		{"both", scene{context: 3 + 13, maxTokens: 12}, []int{8, 3}, 11, 0},
		{"two tokens", scene{context: 100, maxTokens: 2}, nil, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			how := &bursts{most: 8}
			_, pace := play(t, &scripted{bursts: how}, tc.sc, 1)
			want := engine.Pace{Submissions: len(tc.want) + tc.singles, Steps: tc.steps}
			if diff := cmp.Diff(want, pace); diff != "" {
				t.Errorf("pace (-want +got):\n%s", diff)
			}
			if !slices.Equal(how.sizes[:len(tc.want)], tc.want) {
				t.Errorf("bursts of %v, want %v first", how.sizes, tc.want)
			}
		})
	}
}

// TestNoBursts says why there are none.
func TestNoBursts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		how      *bursts
		sampling engine.Sampling
		traced   bool
		want     string
	}{
		{name: "bursts", how: &bursts{most: 4}},
		{name: "another executor", want: "the backend takes one step at a time"},
		{name: "one step", how: &bursts{most: 1}, want: "the backend takes one step at a time"},
		{name: "pick", how: &bursts{most: 4, refuse: errors.New("top-k 0")}, sampling: engine.Sampling{Pick: backends.Pick{Temperature: 1}}, want: "top-k 0"},
		{name: "penalty", how: &bursts{most: 4}, sampling: engine.Sampling{RepeatPenalty: 1.1}, want: "repeat penalty"},
		{name: "trace", how: &bursts{most: 4}, traced: true, want: "a trace of the layers"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := (&scripted{vocab: 10, context: 100, logits: following(nil, nil), bursts: tc.how}).session(t)
			if err := s.Feed(t.Context(), []int32{1}, 1); err != nil {
				t.Fatal(err)
			}
			if tc.traced {
				s.Trace(func(int, []float32) {})
			}
			var pace engine.Pace
			n := 0
			for _, err := range s.Generate(t.Context(), engine.GenerateOptions{Sampler: newSampler(t, tc.sampling), MaxTokens: 9, Pace: &pace}) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			want := engine.Pace{Submissions: 8, Steps: 8, Single: tc.want}
			if tc.want == "" {
				want.Submissions = 2
			}
			if pace != want || n != 9 || tc.want != "" && tc.how != nil && len(tc.how.sizes) > 0 {
				t.Errorf("%d tokens, %+v, want %+v", n, pace, want)
			}
		})
	}
}

// TestTraceEndsBursts sets a trace in the loop.
func TestTraceEndsBursts(t *testing.T) {
	t.Parallel()
	how := &bursts{most: 2}
	s := (&scripted{vocab: 10, context: 100, logits: following(nil, nil), bursts: how}).session(t)
	if err := s.Feed(t.Context(), []int32{1}, 1); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range s.Generate(t.Context(), engine.GenerateOptions{MaxTokens: 9}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 3 {
			s.Trace(func(int, []float32) {})
		}
	}
	if n != 9 || len(how.sizes) != 1 {
		t.Errorf("%d tokens in bursts of %v, want one burst before the trace", n, how.sizes)
	}
}

// TestBurstsCutShort ends bursts from within the device, where tokens on their
// way may be lost: what was given and what the session holds still belong together.
func TestBurstsCutShort(t *testing.T) {
	t.Parallel()
	prompt, script := []int32{5, 6}, []int32{1, 2, 3, 4, 9, 7, 1, 2, 3, 4, 5}
	for _, way := range []string{"cancelled", "failed", "forgotten"} {
		for at := range 8 {
			for lag := range 4 {
				name := fmt.Sprintf("%s at step %d, %d ahead", way, at, lag)
				how := &bursts{most: 8, lag: lag, lossy: true, forgetful: way == "forgotten"}
				b := &scripted{vocab: 10, context: 100, logits: following(prompt, script), bursts: how}
				ctx, cancel := context.WithCancelCause(t.Context())
				s := b.session(t)
				if err := s.Feed(ctx, prompt, 1); err != nil {
					t.Fatal(err)
				}
				want := errFailed
				if way == "cancelled" {
					want = errEnough
					how.at = func(step int) {
						if step == at {
							cancel(errEnough)
						}
					}
				} else {
					b.fail = func(step int) error {
						if step == at+2 {
							return errFailed
						}
						return nil
					}
				}
				var given []int32
				var failed error
				for id, err := range s.Generate(ctx, engine.GenerateOptions{}) {
					if err != nil {
						failed = err
						continue
					}
					given = append(given, id)
				}
				cancel(nil)
				if !errors.Is(failed, want) || len(given) == 0 || !slices.Equal(given, script[:len(given)]) {
					t.Fatalf("%s: gave %v, then %v", name, given, failed)
				}
				held := slices.Concat(prompt, given[:len(given)-1])
				if how.forgetful {
					held = prompt
				}
				if !slices.Equal(s.Tokens(), held) || !slices.Equal(b.executor.slots[1], held) {
					t.Fatalf("%s: gave %v, the session holds %v and its slot %v", name, given, s.Tokens(), b.executor.slots[1])
				}
			}
		}
	}
}

// TestLeavingStopsTheDevice leaves a loop early in a very long burst.
func TestLeavingStopsTheDevice(t *testing.T) {
	t.Parallel()
	const most = 1 << 18
	leaving := make(chan struct{})
	how := &bursts{most: most, at: func(step int) {
		if step == 1 {
			<-leaving
		}
	}}
	b := &scripted{vocab: 4, context: 2 * most, logits: following(nil, nil), bursts: how}
	s := b.session(t)
	if err := s.Feed(t.Context(), []int32{1}, 1); err != nil {
		t.Fatal(err)
	}
	n := 0
	for range s.Generate(t.Context(), engine.GenerateOptions{}) {
		if n++; n == 2 { // the first of the burst
			close(leaving)
			break
		}
	}
	if b.steps >= most {
		t.Errorf("%d steps were taken for a loop that was left after one", b.steps)
	}
	if s.Len() != 2 || len(b.executor.slots[1]) != 2 {
		t.Errorf("%d tokens are held, %d by the slot, want 2", s.Len(), len(b.executor.slots[1]))
	}
}

// TestCancelInTheLastToken ends the context when there is nothing more to give,
// which a burst hears of and single steps do not.
func TestCancelInTheLastToken(t *testing.T) {
	t.Parallel()
	b := &scripted{vocab: 10, context: 100, logits: following(nil, nil), bursts: &bursts{most: 4, lingering: true}}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	s := b.session(t)
	if err := s.Feed(ctx, []int32{1}, 1); err != nil {
		t.Fatal(err)
	}
	var finish engine.Finish
	n := 0
	for _, err := range s.Generate(ctx, engine.GenerateOptions{MaxTokens: 5, Finish: &finish}) {
		if err != nil {
			t.Error(err)
		}
		if n++; n == 5 {
			cancel(errEnough)
		}
	}
	if n != 5 || finish != engine.FinishLength || s.Len() != 5 {
		t.Errorf("%d tokens, finish %q, %d held, want 5, %q and 5", n, finish, s.Len(), engine.FinishLength)
	}
}

// TestRigidSlots breaks off where a slot cannot be shortened, against the contract.
func TestRigidSlots(t *testing.T) {
	t.Parallel()
	prompt, script := []int32{5, 6}, []int32{1, 2, 3, 4, 9, 7, 1}
	b := &scripted{vocab: 10, context: 100, logits: following(prompt, script), bursts: &bursts{most: 8, lag: 3, rigid: true}}
	s := b.session(t)
	if err := s.Feed(t.Context(), prompt, 1); err != nil {
		t.Fatal(err)
	}
	var given []int32
	for id := range s.Generate(t.Context(), engine.GenerateOptions{}) {
		if given = append(given, id); len(given) == 3 {
			break
		}
	}
	if s.Len() != 0 || len(b.executor.slots[1]) != 0 {
		t.Errorf("%v and %v are held, want nothing", s.Tokens(), b.executor.slots[1])
	}
	all := slices.Concat(prompt, given)
	rest, err := s.Resume(all)
	if err != nil || len(rest) != len(all) {
		t.Errorf("%v are left to feed, %v, want all", rest, err)
	}
}

// TestIdleBursts has a backend that breaks its word give nothing.
func TestIdleBursts(t *testing.T) {
	t.Parallel()
	s := (&scripted{vocab: 10, context: 100, logits: following(nil, nil), bursts: &bursts{most: 8, idle: true}}).session(t)
	if err := s.Feed(t.Context(), []int32{1}, 1); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range s.Generate(t.Context(), engine.GenerateOptions{}) {
		if n++; (err != nil) != (n == 2) || n > 2 {
			t.Fatalf("%d: %v", n, err)
		}
	}
}

// TestModelInLoop uses the model while its burst is under way.
func TestModelInLoop(t *testing.T) {
	t.Parallel()
	b := &scripted{vocab: 10, context: 100, logits: following(nil, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}), bursts: &bursts{most: 4}}
	p, first := b.model(t)
	second, err := p.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	for _, s := range []*engine.Session{first, second} {
		if err := s.Feed(t.Context(), []int32{1}, 1); err != nil {
			t.Fatal(err)
		}
	}
	var outer, inner []int32
	for id, err := range first.Generate(t.Context(), engine.GenerateOptions{MaxTokens: 10}) {
		if err != nil {
			t.Fatal(err)
		}
		outer = append(outer, id)
		if len(outer) == 3 {
			_ = p.Stats()
			for id, err := range second.Generate(t.Context(), engine.GenerateOptions{MaxTokens: 10}) {
				if err != nil {
					t.Fatal(err)
				}
				inner = append(inner, id)
			}
		}
	}
	want := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 1}
	if diff := cmp.Diff([][]int32{want, want}, [][]int32{outer, inner}); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
}
