package backendtest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
)

// looping is the CPU backend with bursts, which it takes step by step, and faults.
type looping struct {
	backends.Backend
	most  int
	ahead int // steps that it takes before a token is emitted
	fault string
}

func (l *looping) Compile(ctx context.Context, p *program.Program, w backends.Weights, o backends.Options) (backends.Executor, error) {
	e, err := l.Backend.Compile(ctx, p, w, o)
	if err != nil {
		return nil, err
	}
	return &loop{Executor: e, looping: l, p: p, o: o}, nil
}

// loop is an executor with bursts.
type loop struct {
	backends.Executor
	*looping
	p      *program.Program
	o      backends.Options
	picker backends.Picker
}

// has reports whether a fault is planted.
func (l *loop) has(fault string) bool { return l.fault == fault }

func (l *loop) MaxBurst() int { return l.most }

func (l *loop) CanPick(p backends.Pick, _ []int32) error {
	if !p.Greedy() && (p.TopK == 0 || p.TopK > 256) {
		if l.has("refuses without a reason") {
			return fmt.Errorf("")
		}
		return fmt.Errorf("top-k %d", p.TopK)
	}
	return nil
}

// check refuses what cannot be run.
func (l *loop) check(b *backends.Burst) error {
	numbers := b.Steps
	if b.Pick.Greedy() {
		numbers = 0
	}
	switch {
	case b.Steps < 1 || b.Steps > l.most && !l.has("takes any number of steps"):
		return fmt.Errorf("%w: steps", fault.ErrUsage)
	case l.CanPick(b.Pick, b.Stop) != nil && !l.has("picks what it cannot"), b.Pick.Validate() != nil:
		return fmt.Errorf("%w: pick", fault.ErrUsage)
	case len(b.Random) != numbers && !l.has("takes any number of random numbers"):
		return fmt.Errorf("%w: random numbers", fault.ErrUsage)
	case l.Len(b.Row.Slot) == b.Row.Pos && b.Row.Pos+b.Steps > l.o.Context && !l.has("goes on past the context"):
		return &backends.ContextError{Need: b.Row.Pos + b.Steps, Context: l.o.Context}
	}
	return nil
}

func (l *loop) Generate(ctx context.Context, b *backends.Burst) (result backends.BurstResult, err error) {
	if err := l.check(b); err != nil {
		return result, err
	}
	row := b.Row
	row.Logits = true
	var pending []int32
	emit := func(keep int) bool {
		for len(pending) > keep {
			if context.Cause(ctx) != nil && !l.has("emits after the end of the context") {
				return false
			}
			id := pending[0]
			pending = pending[1:]
			if !b.Emit(id) && !l.has("emits what was refused") {
				return false
			}
		}
		return true
	}
	for i := range b.Steps {
		if err := l.Step(ctx, &backends.Batch{Rows: []backends.Row{row}}); err != nil {
			emit(0)
			return result, err
		}
		result.Fed++
		random := uint64(0)
		if len(b.Random) > i && !l.has("takes no random numbers") {
			random = b.Random[i]
		}
		id, err := l.pick(b.Pick, random)
		if err != nil {
			emit(0)
			return result, err
		}
		if slices.Contains(b.Stop, id) && !l.has("ignores stop ids") {
			if l.has("emits stop ids") {
				pending = append(pending, id)
			}
			if l.has("feeds stop ids") {
				row.Token, row.Pos = id, row.Pos+1
				if l.Step(ctx, &backends.Batch{Rows: []backends.Row{row}}) == nil {
					result.Fed++
				}
			}
			result.Stopped = emit(0) && !l.has("does not tell of stop ids")
			return result, l.cause(ctx)
		}
		pending = append(pending, id)
		if int(id) >= l.p.TokenLimit && !l.has("feeds any token") {
			emit(0)
			return result, l.cause(ctx)
		}
		if !emit(l.ahead) {
			return result, l.cause(ctx)
		}
		row.Token, row.Pos = id, row.Pos+1
		if l.has("feeds the wrong token") {
			row.Token = (id + 1) % int32(l.p.TokenLimit)
		}
	}
	emit(0)
	if l.has("feeds the last token") && result.Fed == b.Steps && row.Pos < l.o.Context && l.Step(ctx, &backends.Batch{Rows: []backends.Row{row}}) == nil {
		result.Fed++
	}
	if l.has("counts one too few") {
		result.Fed--
	}
	return result, l.cause(ctx)
}

// cause returns why a context has ended.
func (l *loop) cause(ctx context.Context) error {
	if l.has("hides the end of the context") {
		return nil
	}
	return context.Cause(ctx)
}

// pick picks from the logits of the last step.
func (l *loop) pick(p backends.Pick, random uint64) (int32, error) {
	logits, peaks := l.Logits(0), l.Peaks(0)
	switch {
	case l.has("picks the last of equals"):
		if p.Greedy() {
			best := 0
			for i := range logits {
				if logits[i] >= logits[best] {
					best = i
				}
			}
			return int32(best), nil
		}
	case l.has("forgets top-p"):
		p.TopP = 0
	case l.has("forgets min-p"):
		p.MinP = 0
	case l.has("keeps one token more"):
		p.TopK++
	case l.has("rounds random numbers"):
		random &^= 1<<50 - 1
	case l.has("always greedy"):
		p = backends.Pick{}
	}
	id, err := l.picker.Pick(p, logits, peaks, random)
	if err != nil && l.has("picks from anything") {
		return 0, nil
	}
	return id, err
}

// TestBursts holds bursts that are right to the contract.
func TestBursts(t *testing.T) {
	t.Parallel()
	for _, l := range []looping{{most: 8}, {most: 8, ahead: 3}, {most: 1}, {most: 3, ahead: 1}, {most: 20, ahead: 7}} {
		l.Backend = cpu.New("")
		if err := backendtest.TestGenerator(t.Context(), &l); err != nil {
			t.Errorf("bursts of %d, %d ahead: %v", l.most, l.ahead, err)
		}
	}
}

// TestBurstFaults plants faults.
func TestBurstFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{
		"refuses without a reason", "takes any number of steps", "picks what it cannot", "takes any number of random numbers",
		"goes on past the context", "emits after the end of the context", "emits what was refused", "takes no random numbers",
		"ignores stop ids", "emits stop ids", "feeds stop ids", "does not tell of stop ids", "feeds any token",
		"feeds the wrong token", "feeds the last token", "counts one too few", "hides the end of the context",
		"picks the last of equals", "forgets top-p", "forgets min-p", "keeps one token more", "rounds random numbers",
		"always greedy", "picks from anything",
	} {
		l := &looping{Backend: cpu.New(""), most: 8, ahead: 2, fault: fault}
		err := backendtest.TestGenerator(t.Context(), l)
		if err == nil {
			t.Errorf("a backend that %s passes", fault)
			continue
		}
		first, _, _ := strings.Cut(err.Error(), "\n")
		t.Logf("%s: %s", fault, first)
	}
}

// TestOptions tries one number of threads, and the contract whole.
func TestOptions(t *testing.T) {
	t.Parallel()
	seen := &counting{looping: looping{Backend: cpu.New(""), most: 4}, threads: map[int]bool{}}
	if err := backendtest.TestWith(t.Context(), seen, backendtest.Options{Threads: []int{3}}); err != nil {
		t.Error(err)
	}
	// Rules that do not depend on the number take two, and what is not to be compiled the default.
	if want := map[int]bool{0: true, 2: true, 3: true}; !maps.Equal(seen.threads, want) {
		t.Errorf("numbers of threads %v, want %v", seen.threads, want)
	}
}

// counting notes numbers of threads.
type counting struct {
	looping
	threads map[int]bool
}

func (c *counting) Compile(ctx context.Context, p *program.Program, w backends.Weights, o backends.Options) (backends.Executor, error) {
	c.threads[o.Threads] = true
	return c.looping.Compile(ctx, p, w, o)
}
