package engine_test

import (
	"context"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/program"
)

// scripted is a backend whose logits are a function of the tokens fed so far.
type scripted struct {
	vocab   int
	context int
	logits  func(tokens []int32, dst []float32)
	// steps counts batches and the steps of bursts, and fail, if set, may refuse one.
	steps int
	fail  func(step int) error
	// bursts, if set, makes the executor a generator.
	bursts *bursts
	// executor is the one compiled last.
	executor *scriptedExecutor
}

func (b *scripted) Name() string     { return "scripted" }
func (b *scripted) Describe() string { return "scripted logits" }
func (b *scripted) Available() error { return nil }

func (b *scripted) Compile(context.Context, *program.Program, backends.Weights, backends.Options) (backends.Executor, error) {
	b.executor = &scriptedExecutor{backend: b, slots: map[backends.Slot][]int32{}}
	if b.bursts != nil {
		return &generator{b.executor, b.bursts}, nil
	}
	return b.executor, nil
}

// session returns a session on the backend.
func (b *scripted) session(t testing.TB) *engine.Session {
	t.Helper()
	_, s := b.model(t)
	return s
}

// model returns a model on the backend, and a session of it.
func (b *scripted) model(t testing.TB) (*engine.Model, *engine.Session) {
	t.Helper()
	p := &program.Program{
		Vocab: b.vocab, TokenLimit: b.vocab, Context: b.context,
		Buffers: []program.Buffer{{Name: "hidden", Cols: 1}},
	}
	m, err := engine.Load(t.Context(), p, nil, b, backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, s
}

// scriptedExecutor keeps the tokens of each slot.
type scriptedExecutor struct {
	backend *scripted
	slots   map[backends.Slot][]int32
	next    backends.Slot
	logits  [][]float32
}

func (e *scriptedExecutor) NewSlot() (backends.Slot, error) {
	e.next++
	e.slots[e.next] = nil
	return e.next, nil
}

func (e *scriptedExecutor) FreeSlot(s backends.Slot) { delete(e.slots, s) }
func (e *scriptedExecutor) Len(s backends.Slot) int  { return len(e.slots[s]) }

func (e *scriptedExecutor) Truncate(s backends.Slot, n int) error {
	e.slots[s] = e.slots[s][:n]
	return nil
}

func (e *scriptedExecutor) Step(ctx context.Context, b *backends.Batch) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := e.count(); err != nil {
		return err
	}
	e.logits = e.logits[:0]
	for _, r := range b.Rows {
		e.slots[r.Slot] = append(e.slots[r.Slot], r.Token)
		if r.Logits {
			l := make([]float32, e.backend.vocab)
			e.backend.logits(e.slots[r.Slot], l)
			e.logits = append(e.logits, l)
		}
	}
	return nil
}

// count counts a step and lets it fail.
func (e *scriptedExecutor) count() error {
	e.backend.steps++
	if e.backend.fail == nil {
		return nil
	}
	return e.backend.fail(e.backend.steps)
}

func (e *scriptedExecutor) Logits(i int) []float32        { return e.logits[i] }
func (e *scriptedExecutor) Peaks(i int) []float32         { return peaksOf(e.logits[i]) }
func (e *scriptedExecutor) Hidden(int) []float32          { return []float32{0} }
func (e *scriptedExecutor) Stats() backends.Stats         { return backends.Stats{} }
func (e *scriptedExecutor) Profile() []backends.OpProfile { return nil }
func (e *scriptedExecutor) Close() error                  { return nil }

// following returns logits that make the greedy continuation of prompt be script, then 0 for ever.
func following(prompt, script []int32) func([]int32, []float32) {
	all := slices.Concat(prompt, script)
	return func(tokens []int32, dst []float32) {
		next := int32(0)
		if len(tokens) < len(all) {
			next = all[len(tokens)]
		}
		dst[next] = 1
	}
}
