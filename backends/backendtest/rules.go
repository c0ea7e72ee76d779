package backendtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// rules checks what does not depend on formats: batches of several slots,
// refusals, cancelling and tracing.
func rules(ctx context.Context, b backends.Backend) []error {
	s := Shape{
		Seed: 7, Format: quant.Int4, Hidden: 52, FFN: 40, HeadDim: 20, Heads: 4, KVHeads: 2,
		Vocab: 50, Window: 12, Context: 40, Static: true,
	}
	p, w := Decoder(s)
	opts := backends.Options{Threads: 2, MaxRows: 6, MaxLogits: 3, Activations: backends.ActivationsStatic}
	rng := rand.New(rand.NewPCG(s.Seed, 2))
	want := make([]*expected, 3)
	for i := range want {
		tokens := make([]int32, s.Context)
		for i := range tokens {
			tokens[i] = rng.Int32N(int32(s.Vocab))
		}
		want[i] = &expected{tokens: tokens}
		want[i].logits, want[i].hidden = Interpret(p, w, opts, tokens)
	}
	var errs []error
	for _, rule := range []struct {
		name  string
		check func(e backends.Executor) error
	}{
		{"batches of several slots", func(e backends.Executor) error { return mixed(ctx, e, opts, want, rng) }},
		{"refused batches", func(e backends.Executor) error { return refused(ctx, e, opts, s, want[0]) }},
		{"a cancelled step", func(e backends.Executor) error { return cancelled(ctx, e, want[0]) }},
		{"tracing", func(e backends.Executor) error { return traced(ctx, e, p, want[0]) }},
	} {
		e, err := b.Compile(ctx, p, w, opts)
		if err == nil {
			err = errors.Join(rule.check(e), e.Close(), e.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", rule.name, err))
		}
	}
	if err := uncompiled(ctx, b, s); err != nil {
		errs = append(errs, fmt.Errorf("compiling: %w", err))
	}
	if err := retains(ctx, b, p, w, opts); err != nil {
		errs = append(errs, fmt.Errorf("retaining weights: %w", err))
	}
	for _, tables := range []backends.TablePlacement{backends.TablesMapped, backends.TablesResident} {
		opts := opts
		opts.Tables = tables
		if err := outlives(ctx, b, p, w, opts, want[0]); err != nil {
			errs = append(errs, fmt.Errorf("closed weights, tables %s: %w", tables, err))
		}
	}
	for _, profile := range []bool{false, true} {
		opts := opts
		opts.Profile = profile
		e, err := b.Compile(ctx, p, w, opts)
		if err == nil {
			err = errors.Join(profiled(ctx, e, opts, want[0]), e.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("profile %t: %w", profile, err))
		}
	}
	if m, ok := b.(backends.Meter); ok {
		if err := metered(ctx, m); err != nil {
			errs = append(errs, fmt.Errorf("bandwidth: %w", err))
		}
	}
	return errs
}

// profiled takes two steps and reads the profile after each.
func profiled(ctx context.Context, e backends.Executor, opts backends.Options, want *expected) error {
	s, err := e.NewSlot()
	if err != nil {
		return err
	}
	for step := range 2 {
		if err := want.feed(ctx, e, s, 2*step, 2*step+2, 2*step+1); err != nil {
			return err
		}
		all := e.Profile()
		if !opts.Profile {
			if all != nil {
				return fmt.Errorf("there is one of %d operations that nobody asked for", len(all))
			}
			continue
		}
		calls, bytes := 0, int64(0)
		for _, o := range all {
			if o.Name == "" || o.Calls > 0 && o.Time < 0 {
				return fmt.Errorf("step %d: operation %+v", step, o)
			}
			calls += o.Calls
			bytes += o.Bytes
		}
		// Embedded rows are read besides.
		if calls == 0 || bytes == 0 || bytes > e.Stats().StepBytes {
			return fmt.Errorf("step %d: %d calls and %d bytes of weights, a step reads %d", step, calls, bytes, e.Stats().StepBytes)
		}
	}
	return nil
}

// metered measures, and has what cannot be measured refused.
func metered(ctx context.Context, m backends.Meter) error {
	data := make([]byte, 8<<20)
	if rate, err := m.ReadBandwidth(ctx, data, 2, 2); err != nil || !(rate > 0) {
		return fmt.Errorf("%g bytes a second, %w", rate, err)
	}
	for _, c := range []struct {
		name            string
		bytes           int
		threads, rounds int
	}{{"no data", 0, 1, 1}, {"more threads than data", 4096, 64, 1}, {"no round", len(data), 1, 0}} {
		if _, err := m.ReadBandwidth(ctx, data[:c.bytes], c.threads, c.rounds); !errors.Is(err, fault.ErrUsage) {
			return fmt.Errorf("%s: %w, want a usage error", c.name, err)
		}
	}
	why := errors.New("enough")
	cancelled, cancel := context.WithCancelCause(ctx)
	cancel(why)
	if _, err := m.ReadBandwidth(cancelled, data, 1, 1000); !errors.Is(err, why) {
		return fmt.Errorf("cancelled: %w, want the cause", err)
	}
	return nil
}

// mixed feeds several sequences in batches whose rows are of any of them, some of which want logits.
func mixed(ctx context.Context, e backends.Executor, opts backends.Options, want []*expected, rng *rand.Rand) error {
	slots := make([]backends.Slot, len(want))
	for i := range slots {
		var err error
		if slots[i], err = e.NewSlot(); err != nil {
			return err
		}
	}
	at := make([]int, len(want))
	for {
		var rows []backends.Row
		var of, ends []int // of the rows that want logits: their sequence, and their position
		for range 1 + rng.IntN(opts.MaxRows) {
			i := rng.IntN(len(want))
			if at[i] == len(want[i].tokens) {
				continue
			}
			r := backends.Row{Token: want[i].tokens[at[i]], Slot: slots[i], Pos: at[i], Logits: len(of) < opts.MaxLogits && rng.IntN(2) == 0}
			if r.Logits {
				of, ends = append(of, i), append(ends, at[i])
			}
			rows = append(rows, r)
			at[i]++
		}
		if len(rows) == 0 {
			if slices.Min(at) == len(want[0].tokens) {
				return nil
			}
			continue
		}
		if err := e.Step(ctx, &backends.Batch{Rows: rows}); err != nil {
			return err
		}
		for j, i := range of {
			if err := errors.Join(same("hidden", ends[j], e.Hidden(j), want[i].hidden[ends[j]]), same("logits", ends[j], e.Logits(j), want[i].logits[ends[j]])); err != nil {
				return fmt.Errorf("sequence %d: %w", i, err)
			}
		}
		for i, s := range slots {
			if e.Len(s) != at[i] {
				return fmt.Errorf("sequence %d has %d positions, want %d", i, e.Len(s), at[i])
			}
		}
	}
}

// refused makes calls that must fail and leave the slot as it is.
func refused(ctx context.Context, e backends.Executor, opts backends.Options, shape Shape, want *expected) error {
	s, err := e.NewSlot()
	if err != nil {
		return err
	}
	gone, err := e.NewSlot()
	if err != nil {
		return err
	}
	e.FreeSlot(gone)
	if err := want.feed(ctx, e, s, 0, 3, 2); err != nil {
		return err
	}
	rows := func(n int, change func(r []backends.Row)) []backends.Row {
		r := make([]backends.Row, n)
		for i := range r {
			r[i] = backends.Row{Slot: s, Pos: 3 + i}
		}
		change(r)
		return r
	}
	for _, c := range []struct {
		name string
		rows []backends.Row
	}{
		{"no rows", nil},
		{"too many rows", rows(opts.MaxRows+1, func([]backends.Row) {})},
		{"too many logits", rows(opts.MaxLogits+1, func(r []backends.Row) {
			for i := range r {
				r[i].Logits = true
			}
		})},
		{"a negative slot", rows(2, func(r []backends.Row) { r[1].Slot = -1 })},
		{"a slot that never was", rows(2, func(r []backends.Row) { r[1].Slot = 99 })},
		{"a slot that was given back", rows(2, func(r []backends.Row) { r[1].Slot, r[1].Pos = gone, 0 })},
		{"a gap", rows(2, func(r []backends.Row) { r[1].Pos++ })},
		{"a gap before the first row", rows(1, func(r []backends.Row) { r[0].Pos++ })},
		{"a position twice", rows(2, func(r []backends.Row) { r[1].Pos-- })},
		{"a position that is there", rows(1, func(r []backends.Row) { r[0].Pos-- })},
		{"a negative token", rows(2, func(r []backends.Row) { r[1].Token = -1 })},
		{"a token past the last", rows(2, func(r []backends.Row) { r[1].Token = int32(shape.Vocab) })},
	} {
		if err := e.Step(ctx, &backends.Batch{Rows: c.rows}); !errors.Is(err, fault.ErrUsage) {
			return fmt.Errorf("%s: %v, want a usage error", c.name, err)
		}
		if e.Len(s) != 3 {
			return fmt.Errorf("%s: the slot has %d positions, want 3", c.name, e.Len(s))
		}
	}
	for _, n := range []int{-1, 4} {
		if err := e.Truncate(s, n); !errors.Is(err, fault.ErrUsage) || errors.Is(err, backends.ErrTruncate) || e.Len(s) != 3 {
			return fmt.Errorf("rewinding 3 positions to %d: %v and %d positions, want a usage error", n, err, e.Len(s))
		}
	}
	if err := e.Truncate(gone, 0); !errors.Is(err, fault.ErrUsage) {
		return fmt.Errorf("rewinding a slot that was given back: %v, want a usage error", err)
	}
	for at := 3; at < shape.Context; at++ {
		if err := want.feed(ctx, e, s, at, at+1, at); err != nil {
			return err
		}
	}
	var full *backends.ContextError
	if err := e.Step(ctx, &backends.Batch{Rows: []backends.Row{{Slot: s, Pos: shape.Context}}}); !errors.As(err, &full) || full.Need != shape.Context+1 || full.Context != shape.Context {
		return fmt.Errorf("a position past the context: %v, want a ContextError", err)
	}
	return nil
}

// cancelled cancels steps before and while they run: the sequence goes on from where it was.
func cancelled(ctx context.Context, e backends.Executor, want *expected) error {
	s, err := e.NewSlot()
	if err != nil {
		return err
	}
	if err := want.feed(ctx, e, s, 0, 2, 1); err != nil {
		return err
	}
	why := errors.New("cancelled by the test")
	for layer := -2; layer < 3; layer++ {
		stop, cancel := context.WithCancelCause(ctx)
		if layer == -2 {
			cancel(why)
		}
		batch := &backends.Batch{
			Rows: []backends.Row{{Token: 1, Slot: s, Pos: 2}, {Token: 2, Slot: s, Pos: 3, Logits: true}},
			Trace: func(l int, _ []float32) {
				if l == layer {
					cancel(why)
				}
			},
		}
		err := e.Step(stop, batch)
		cancel(nil)
		if layer < 2 && !errors.Is(err, why) { // what comes behind the last layer may be too short to be cancelled
			return fmt.Errorf("cancelled behind layer %d: %v, want the cause", layer, err)
		}
		if err == nil {
			err = e.Truncate(s, 2)
		} else {
			err = nil
		}
		if err != nil || e.Len(s) != 2 {
			return fmt.Errorf("cancelled behind layer %d: %d positions, %v, want the 2 there were", layer, e.Len(s), err)
		}
	}
	return want.rest(ctx, e, s, 5)
}

// traced counts on the layers and states that a trace sees, and on its changes to have effect.
func traced(ctx context.Context, e backends.Executor, p *program.Program, want *expected) error {
	s, err := e.NewSlot()
	if err != nil {
		return err
	}
	cut := slices.IndexFunc(p.Ops, func(o program.Op) bool { return o.Select != nil })
	hidden := p.Buffers[p.State].Cols
	rows := []backends.Row{{Slot: s}, {Slot: s, Pos: 1, Logits: true}, {Slot: s, Pos: 2}}
	for i := range rows {
		rows[i].Token = want.tokens[i]
	}
	next, kept := -1, 1
	var bad error
	look := func(layer int, state []float32) {
		live := 3
		if layer >= 0 && p.Layers[layer].End > cut {
			live = kept
		}
		if bad == nil && (layer != next || len(state) != live*hidden) {
			bad = fmt.Errorf("layer %d with %d numbers, want layer %d with %d", layer, len(state), next, live*hidden)
		}
		next++
	}
	if err := e.Step(ctx, &backends.Batch{Rows: rows, Trace: look}); err != nil {
		return err
	}
	if bad == nil && next != len(p.Layers) {
		bad = fmt.Errorf("%d layers seen, want %d", next, len(p.Layers))
	}
	if err := errors.Join(bad, same("logits", 1, e.Logits(0), want.logits[1])); err != nil {
		return err
	}
	// Where no row wants logits nothing is left behind the select.
	if err := e.Truncate(s, 0); err != nil {
		return err
	}
	next, kept, rows[1].Logits = -1, 0, false
	if err := errors.Join(e.Step(ctx, &backends.Batch{Rows: rows, Trace: look}), bad); err != nil {
		return fmt.Errorf("no row wants logits: %w", err)
	}
	rows[1].Logits = true
	for changed := -1; changed < len(p.Layers); changed++ {
		if err := e.Truncate(s, 0); err != nil {
			return err
		}
		change := func(layer int, state []float32) {
			if layer == changed {
				for i := range state {
					state[i] = float32(i%7) - 3
				}
			}
		}
		if err := e.Step(ctx, &backends.Batch{Rows: rows, Trace: change}); err != nil {
			return err
		}
		if same("logits", 1, e.Logits(0), want.logits[1]) == nil {
			return fmt.Errorf("a change behind layer %d has no effect", changed)
		}
	}
	return nil
}

// altered is a set of weights of which one is another.
type altered struct {
	backends.Weights
	name   string
	change func(data []byte, m quant.Matrix) ([]byte, quant.Matrix, bool)
}

// Tensor implements backends.Weights.
func (a altered) Tensor(name string) ([]byte, quant.Matrix, bool) {
	data, m, ok := a.Weights.Tensor(name)
	if ok && name == a.name {
		return a.change(data, m)
	}
	return data, m, ok
}

// retained counts who retains weights, and refuses that once they are closed. Closed
// ones give no tensors to anybody else.
type retained struct {
	backends.Weights
	users, calls int
	closed       bool
	sudden       bool // they are closed as soon as they are retained
}

// Tensor implements backends.Weights.
func (r *retained) Tensor(name string) ([]byte, quant.Matrix, bool) {
	if r.closed && r.users == 0 {
		return nil, quant.Matrix{}, false
	}
	return r.Weights.Tensor(name)
}

// Retain implements backends.Retainer.
func (r *retained) Retain() (release func(), err error) {
	if r.closed {
		return nil, fs.ErrClosed
	}
	r.users++
	r.calls++
	r.closed = r.sudden
	return sync.OnceFunc(func() { r.users-- }), nil
}

// elsewhere are weights that do not lie in what they say is their mapping.
type elsewhere struct{ *retained }

// Mapping implements backends.Mapping.
func (elsewhere) Mapping() []byte { return nil }

// retains holds that an executor retains its weights from Compile until Close, and that
// a Compile that fails does not.
func retains(ctx context.Context, b backends.Backend, p *program.Program, w backends.Weights, opts backends.Options) error {
	r := &retained{Weights: w}
	e, err := b.Compile(ctx, p, r, opts)
	if err != nil {
		return err
	}
	if r.users != 1 {
		return fmt.Errorf("%d users of an executor's weights, want 1", r.users)
	}
	if err := e.Close(); err != nil {
		return err
	}
	if r.users != 0 {
		return fmt.Errorf("%d users after Close, want none", r.users)
	}
	if e, err := b.Compile(ctx, p, elsewhere{r}, opts); err == nil {
		return errors.Join(errors.New("tensors outside of their mapping are compiled"), e.Close())
	}
	if r.users != 0 || r.calls != 2 {
		return fmt.Errorf("%d users after a Compile that failed, %d in all; want none of 2", r.users, r.calls)
	}
	r.closed = true
	if e, err := b.Compile(ctx, p, r, opts); !errors.Is(err, fs.ErrClosed) {
		if err == nil {
			err = e.Close()
		}
		return fmt.Errorf("closed weights: %v, want %v", err, fs.ErrClosed)
	}
	return nil
}

// outlives holds that an executor computes over weights that were closed while it was compiled.
func outlives(ctx context.Context, b backends.Backend, p *program.Program, w backends.Weights, opts backends.Options, want *expected) error {
	r := &retained{Weights: w, sudden: true}
	e, err := b.Compile(ctx, p, r, opts)
	if err != nil {
		return err
	}
	s, err := e.NewSlot()
	if err == nil {
		err = want.feed(ctx, e, s, 0, 5, 3)
	}
	return errors.Join(err, e.Close())
}

// uncompiled compiles what cannot be run.
func uncompiled(ctx context.Context, b backends.Backend, shape Shape) error {
	p, w := Decoder(shape)
	last := p.Weights[len(p.Weights)-1].Name
	shape.Static = false
	unscaled, plain := Decoder(shape)
	invalid, _ := Decoder(shape)
	invalid.Ops[0].Embed.Table = program.WeightID(len(invalid.Weights))
	for _, c := range []struct {
		name string
		p    *program.Program
		w    backends.Weights
		o    backends.Options
		want error
	}{
		{"a program that is not valid", invalid, plain, backends.Options{}, program.ErrProgram},
		{"no tensor", p, altered{w, last, func([]byte, quant.Matrix) ([]byte, quant.Matrix, bool) { return nil, quant.Matrix{}, false }}, backends.Options{}, fault.ErrIntegrity},
		{"a tensor that is short", p, altered{w, last, func(d []byte, m quant.Matrix) ([]byte, quant.Matrix, bool) { return d[1:], m, true }}, backends.Options{}, fault.ErrIntegrity},
		{"a tensor of another shape", p, altered{w, last, func(d []byte, m quant.Matrix) ([]byte, quant.Matrix, bool) {
			m.Rows, m.Cols = m.Cols, m.Rows
			return d, m, true
		}}, backends.Options{}, fault.ErrIntegrity},
		{"an int8 cache without a grid", unscaled, plain, backends.Options{Cache: backends.CacheInt8}, fault.ErrUsage},
		{"unknown activations", p, w, backends.Options{Activations: "12"}, fault.ErrUsage},
		{"an unknown cache", p, w, backends.Options{Cache: "int2"}, fault.ErrUsage},
		{"an unknown place for tables", p, w, backends.Options{Tables: "attic"}, fault.ErrUsage},
	} {
		e, err := b.Compile(ctx, c.p, c.w, c.o)
		if !errors.Is(err, c.want) {
			return fmt.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if err == nil {
			e.Close()
		}
	}
	stop, cancel := context.WithCancelCause(ctx)
	why := errors.New("cancelled by the test")
	cancel(why)
	if _, err := b.Compile(stop, p, w, backends.Options{}); !errors.Is(err, why) {
		return fmt.Errorf("in a cancelled context: %v, want its cause", err)
	}
	return nil
}
