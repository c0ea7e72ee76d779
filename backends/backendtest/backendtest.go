// Package backendtest holds any backend to the contract of package backends.
//
// [Test] runs random decoders that use every operation, in every format, and
// compares each logit with an interpreter that spells the definition out. The
// comparison is for equal bits, whatever the batch shape, the number of
// threads, however often a sequence was rewound, and whatever other sequences
// share its batches. It then checks what must be refused, and that a refused,
// failed or cancelled call changes nothing. Where an executor is a
// [backends.Generator], its bursts are held against its single steps.
//
// [Mutate] makes programs that nobody would record, and a [Trial] runs them: they
// come from outside, and none may harm a backend.
package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// Options spare a slow device what makes no difference to it. The zero value spares nothing.
type Options struct {
	// Threads are the numbers of threads to try; nil means 1, 2 and 5.
	Threads []int
	// Refused lists formats of matrices that the backend is not made for. It must
	// refuse to compile programs that have them, with errors.ErrUnsupported.
	Refused []quant.Format
}

// Test returns nil, or every way found in which b differs from the contract.
func Test(ctx context.Context, b backends.Backend) error { return TestWith(ctx, b, Options{}) }

// TestWith is [Test] with options.
func TestWith(ctx context.Context, b backends.Backend, o Options) error {
	if o.Threads == nil {
		o.Threads = []int{1, 2, 5}
	}
	var errs []error
	for _, c := range append(cases(), groupCases()...) {
		verify := check
		if slices.Contains(o.Refused, c.shape.Format) {
			verify = unsupported
		}
		if err := verify(ctx, b, c, o); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	errs = append(errs, rules(ctx, b)...)
	return errors.Join(append(errs, TestGenerator(ctx, b))...)
}

// testCase is one decoder with the options to run it with.
type testCase struct {
	name   string
	shape  Shape
	opts   backends.Options
	tokens int
}

// cases lists formats, activations and caches at ragged and regular shapes.
func cases() []testCase {
	var list []testCase
	for i, f := range []quant.Format{quant.Int2, quant.Int4, quant.Int8, quant.Int4x32} {
		for _, activations := range []backends.Activations{backends.ActivationsStatic, backends.ActivationsFloat, backends.Activations16, backends.Activations8} {
			for _, cache := range []backends.CacheType{backends.CacheFloat, backends.CacheHalf, backends.CacheInt8} {
				if cache == backends.CacheHalf && (activations != backends.ActivationsStatic || f == quant.Int2 || f == quant.Int8) {
					continue // differs from float in what is stored alone
				}
				s := Shape{
					Seed: uint64(i), Format: f, Hidden: 96, FFN: 64, HeadDim: 32, Heads: 2, KVHeads: 1,
					Vocab: 64, Window: 12, Context: 700, Static: true,
				}
				switch {
				case f.Group > 0: // which needs whole groups of columns
					s.HeadDim, s.Heads, s.KVHeads = 16, 6, 2
				case cache != backends.CacheInt8 || activations != backends.ActivationsStatic: // ragged: nothing is a multiple of 16
					s.Hidden, s.FFN, s.HeadDim, s.Heads, s.KVHeads, s.Vocab = 52, 40, 20, 4, 2, 50
				case f == quant.Int8: // as many heads for each key as the widest tiles take, and one more
					s.HeadDim, s.Heads, s.KVHeads = 16, 18, 2
				}
				if f == quant.Int8 && activations == backends.ActivationsStatic {
					s.Vocab = 2*backends.PeakRun + 88 // whole runs of logits and a short one
				}
				n := 20
				long := f == quant.Int2 && cache == backends.CacheInt8 || f == quant.Int4 && cache == backends.CacheFloat || f == quant.Int4x32 && cache == backends.CacheHalf
				if long && activations == backends.ActivationsStatic {
					// Past two blocks of attention and a ring's wrap, with a window that is nearly a block: with the
					// rows of a batch it is more than one.
					n, s.Window = 2*backends.BlockPositions+70, 200
				}
				list = append(list, testCase{
					name:  fmt.Sprintf("%s weights, %s activations, %s cache", f, activations, cache),
					shape: s, opts: backends.Options{Activations: activations, Cache: cache}, tokens: n,
				})
			}
		}
	}
	for _, tables := range []backends.TablePlacement{backends.TablesMapped, backends.TablesResident} {
		c := list[0]
		c.name += fmt.Sprintf(", %s tables", tables)
		c.opts.Tables, c.tokens = tables, 20
		list = append(list, c)
	}
	for _, cache := range []backends.CacheType{backends.CacheFloat, backends.CacheInt8} {
		c := list[0]
		c.name = fmt.Sprintf("many heads for each key, %s cache", cache)
		c.opts.Cache, c.tokens = cache, 20
		c.shape.HeadDim, c.shape.Heads, c.shape.KVHeads = 4, 74, 2
		list = append(list, c)
	}
	return list
}

// groupCases lists the formats with groups of other families of models, also for the
// tables: these differ from those above in products and look-ups alone.
func groupCases() []testCase {
	var list []testCase
	for i, f := range []quant.Format{quant.Int8x32, quant.Int8x16, quant.Int4x32Min, quant.Int8x32Min} {
		for _, activations := range []backends.Activations{backends.ActivationsStatic, backends.ActivationsFloat, backends.Activations16, backends.Activations8} {
			s := Shape{
				Seed: uint64(10 + i), Format: f, Table: f, Gathered: f, Hidden: 96, FFN: 64, HeadDim: 16, Heads: 6, KVHeads: 2,
				Vocab: 50, Window: 12, Context: 100, Static: true,
			}
			s.Gathered.Group = 16 // which the width of the table is a multiple of
			list = append(list, testCase{
				name:  fmt.Sprintf("%s weights and tables, %s activations", f, activations),
				shape: s, opts: backends.Options{Activations: activations}, tokens: 20,
			})
		}
	}
	return list
}

// unsupported has a case refused, and the same with only one of its tables in the format.
func unsupported(ctx context.Context, b backends.Backend, c testCase, _ Options) error {
	matrices, table, gathered := c.shape, c.shape, c.shape
	matrices.Table, matrices.Gathered = quant.Format{}, quant.Format{}
	table.Format, table.Gathered = quant.Int4, quant.Format{}
	gathered.Format, gathered.Table = quant.Int4, quant.Format{}
	shapes := []Shape{c.shape, matrices, table}
	if gathered.Gathered.Minimum { // any backend looks up other tables
		shapes = append(shapes, gathered)
	}
	for _, s := range shapes {
		p, w := Decoder(s)
		e, err := b.Compile(ctx, p, w, c.opts)
		if err == nil {
			return errors.Join(errors.New("it compiles, though the backend is not made for the format"), e.Close())
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			return fmt.Errorf("%w, want errors.ErrUnsupported", err)
		}
	}
	return nil
}

// check runs one case in several ways.
func check(ctx context.Context, b backends.Backend, c testCase, o Options) error {
	p, w := Decoder(c.shape)
	rng := rand.New(rand.NewPCG(c.shape.Seed, 2))
	tokens := make([]int32, c.tokens)
	for i := range tokens {
		tokens[i] = rng.Int32N(int32(c.shape.Vocab))
	}
	logits, hidden := Interpret(p, w, c.opts, tokens)
	want := &expected{tokens: tokens, logits: logits, hidden: hidden}
	var errs []error
	for _, threads := range o.Threads {
		for _, rows := range []int{1, 3, 64} {
			if c.tokens > 100 && rows < 64 && threads+rows > 4 {
				continue // slow, and covered by its neighbours
			}
			opts := c.opts
			opts.Threads, opts.MaxRows, opts.MaxLogits = threads, rows, min(rows, 1+threads*2)
			if err := run(ctx, b, p, w, opts, want); err != nil {
				errs = append(errs, fmt.Errorf("%d threads, %d rows: %w", threads, rows, err))
			}
		}
	}
	return errors.Join(errs...)
}

// expected is what the interpreter found.
type expected struct {
	tokens         []int32
	logits, hidden [][]float32
}

// run feeds all tokens, twice in slots that take turns, then rewinds, a little
// and as far as the rings allow, and feeds the rest again, wanting only the last row.
func run(ctx context.Context, b backends.Backend, p *program.Program, w backends.Weights, opts backends.Options, want *expected) error {
	e, err := b.Compile(ctx, p, w, opts)
	if err != nil {
		return err
	}
	defer e.Close()
	first, err := e.NewSlot()
	if err != nil {
		return err
	}
	second, err := e.NewSlot()
	if err != nil {
		return err
	}
	n := len(want.tokens)
	for at := 0; at < n; at += opts.MaxRows {
		end := min(n, at+opts.MaxRows)
		if err := want.feed(ctx, e, first, at, end, max(at, end-opts.MaxLogits)); err != nil {
			return fmt.Errorf("first slot: %w", err)
		}
		if err := want.feed(ctx, e, second, at, end, end-1); err != nil {
			return fmt.Errorf("second slot: %w", err)
		}
	}
	back := n - min(n-1, 7)
	if err := e.Truncate(first, back); err != nil {
		return fmt.Errorf("rewind to %d of %d: %w", back, n, err)
	}
	if err := want.rest(ctx, e, first, opts.MaxRows); err != nil {
		return fmt.Errorf("after a rewind: %w", err)
	}
	// What has been overwritten once stays lost when the slot is shorter: step back and forth, then on to the limit.
	for range 2 {
		for back--; back > 1; back-- {
			err := e.Truncate(first, back)
			if errors.Is(err, backends.ErrTruncate) {
				if e.Len(first) != back+1 {
					return fmt.Errorf("a refused rewind leaves %d positions, want %d", e.Len(first), back+1)
				}
				break
			}
			if err != nil {
				return fmt.Errorf("rewind to %d of %d: %w", back, n, err)
			}
		}
		back = e.Len(first)
		end := min(n, back+opts.MaxRows)
		if err := want.feed(ctx, e, first, back, end, end-1); err != nil {
			return fmt.Errorf("after a rewind to %d of %d, as far as allowed: %w", back, n, err)
		}
		back = end
	}
	if err := want.rest(ctx, e, first, opts.MaxRows); err != nil {
		return fmt.Errorf("after a rewind as far as allowed: %w", err)
	}
	if err := want.afresh(ctx, e, first, opts.MaxRows); err != nil {
		return fmt.Errorf("after a rewind to nothing: %w", err)
	}
	e.FreeSlot(second)
	if e.Len(second) != 0 {
		return fmt.Errorf("a slot that was given back has %d positions", e.Len(second))
	}
	third, err := e.NewSlot()
	if err != nil {
		return err
	}
	if e.Len(third) != 0 {
		return fmt.Errorf("a new slot has %d positions", e.Len(third))
	}
	if err := want.feed(ctx, e, third, 0, 1, 0); err != nil {
		return fmt.Errorf("third slot: %w", err)
	}
	if e.Stats().CacheBytes == 0 {
		return errors.New("slots with positions take no memory")
	}
	e.FreeSlot(first)
	e.FreeSlot(third)
	if held := e.Stats().CacheBytes; held != 0 {
		return fmt.Errorf("%d bytes of caches are held without a slot", held)
	}
	return nil
}

// rest feeds what a slot lacks, and wants the last row of each batch.
func (x *expected) rest(ctx context.Context, e backends.Executor, s backends.Slot, rows int) error {
	for at, n := e.Len(s), len(x.tokens); at < n; at += rows {
		end := min(n, at+rows)
		if err := x.feed(ctx, e, s, at, end, end-1); err != nil {
			return err
		}
	}
	return nil
}

// afresh empties a slot and feeds some tokens: of what it held before nothing is lost or left.
func (x *expected) afresh(ctx context.Context, e backends.Executor, s backends.Slot, rows int) error {
	if err := e.Truncate(s, 0); err != nil {
		return err
	}
	n := min(rows, len(x.tokens), 5)
	for range 2 {
		if err := x.feed(ctx, e, s, 0, n, n-1); err != nil {
			return err
		}
		if n == 1 {
			return nil
		}
		if err := e.Truncate(s, 1); err != nil {
			return err
		}
		if err := x.feed(ctx, e, s, 1, 2, 1); err != nil {
			return err
		}
		if err := e.Truncate(s, 0); err != nil {
			return err
		}
	}
	return nil
}

// feed runs the tokens [at, end) in one batch and compares those from want on.
func (x *expected) feed(ctx context.Context, e backends.Executor, s backends.Slot, at, end, want int) error {
	var rows []backends.Row
	for i := at; i < end; i++ {
		rows = append(rows, backends.Row{Token: x.tokens[i], Slot: s, Pos: i, Logits: i >= want})
	}
	if err := e.Step(ctx, &backends.Batch{Rows: rows}); err != nil {
		return err
	}
	if e.Len(s) != end {
		return fmt.Errorf("the slot has %d positions after %d tokens", e.Len(s), end)
	}
	for i := want; i < end; i++ {
		if err := same("hidden", i, e.Hidden(i-want), x.hidden[i]); err != nil {
			return err
		}
		if err := same("logits", i, e.Logits(i-want), x.logits[i]); err != nil {
			return err
		}
		var peaks []float32
		for run := range slices.Chunk(x.logits[i], backends.PeakRun) {
			peaks = append(peaks, backends.Peak(run))
		}
		if err := same("peaks", i, e.Peaks(i-want), peaks); err != nil {
			return err
		}
	}
	return nil
}

// same compares bits.
func same(what string, token int, got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("token %d has %d %s, want %d", token, len(got), what, len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			return fmt.Errorf("token %d: %s[%d] = %v (%08x), want %v (%08x)", token, what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
	return nil
}
