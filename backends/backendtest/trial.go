package backendtest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
)

// Trial tries programs that nobody vouches for. Whatever is valid must run on
// every backend, or be refused by it with an error that says so, and gives the bits
// of the interpreter. Only what is not a number may have any bits of such: which
// of several operands it takes them from is up to the processor, and the sign too.
//
// What it makes is bounded, so that it can be called for many programs in turn: it
// is not safe for concurrent use.
type Trial struct {
	// Backends run the programs.
	Backends []backends.Backend
	// MemoryBytes is what activations and caches of an executor may take; 0 means 4 MiB.
	// Programs whose tensors take more than a sixteenth of it are not run.
	MemoryBytes int64
	// Allocated, if set, returns how many bytes the process has allocated so far.
	// Executors may then hold no more than MemoryBytes, and allocate little besides what they count.
	Allocated func() uint64
	// Refusals are errors with which the backends may refuse a valid program, besides
	// backends.ErrMemory and errors.ErrUnsupported.
	Refusals []error

	tensors map[tensorKey]*tensor
	bytes   int64 // of these
}

// tensorKey tells tensors apart that a Trial makes.
type tensorKey struct {
	program.Weight
	extreme bool
}

// TrialPlan says how a program is run: any number does.
type TrialPlan uint64

// LongTrial is a plan that takes rings of one page around; so do some others, with other options.
const LongTrial TrialPlan = 255

// take returns a number below n and leaves the rest of the plan.
func (plan *TrialPlan) take(n int) int {
	x := *plan % TrialPlan(n)
	*plan /= TrialPlan(n)
	return int(x)
}

// trialSteps is what a trial feeds.
type trialSteps struct {
	opts    backends.Options
	tokens  [2][]int32 // of two sequences
	batches []trialBatch
	traced  bool
	extreme bool // weights
}

// trialBatch is a batch of rows of both sequences, the first of which is cut before it.
type trialBatch struct {
	keep int
	rows []trialRow
}

// trialRow is a row of one of the sequences.
type trialRow struct {
	sequence, pos int
	logits        bool
}

// longTrial is how many positions take rings of one page around, and some more.
const longTrial = backends.BlockPositions + 20

// steps draws what is fed to a valid program.
func (plan TrialPlan) steps(p *program.Program, memoryBytes int64) *trialSteps {
	rng := rand.New(rand.NewPCG(uint64(plan), 5))
	long := plan.take(256) == 255
	s := &trialSteps{traced: plan.take(4) == 1, extreme: plan.take(8) == 1}
	s.opts = backends.Options{
		Threads: []int{1, 1, 2}[plan.take(3)], MaxRows: 1 + plan.take(5), MaxLogits: 1 + plan.take(3), MemoryBytes: memoryBytes,
		Activations: []backends.Activations{backends.ActivationsStatic, backends.ActivationsStatic, backends.ActivationsFloat, backends.Activations16, backends.Activations8}[plan.take(5)],
		Cache:       []backends.CacheType{backends.CacheFloat, backends.CacheInt8, backends.CacheInt8, backends.CacheHalf}[plan.take(4)],
		Tables:      []backends.TablePlacement{backends.TablesMapped, backends.TablesResident}[plan.take(2)],
	}
	for i := range s.tokens {
		s.tokens[i] = make([]int32, min(p.Context, longTrial))
		for j := range s.tokens[i] {
			s.tokens[i][j] = rng.Int32N(int32(p.TokenLimit))
		}
	}
	s.tokens[0][0] = int32(p.TokenLimit - 1)
	if long {
		s.opts.MaxRows = 32
		for at := 0; at < len(s.tokens[0]); at += s.opts.MaxRows {
			end := min(at+s.opts.MaxRows, len(s.tokens[0]))
			batch := trialBatch{keep: at}
			for pos := at; pos < end; pos++ {
				batch.rows = append(batch.rows, trialRow{0, pos, pos == end-1})
			}
			s.batches = append(s.batches, batch)
		}
		return s
	}
	s.short(rng)
	return s
}

// short draws a few batches.
func (s *trialSteps) short(rng *rand.Rand) {
	var at [2]int
	for range 4 {
		if rng.IntN(4) == 0 {
			at[0] = rng.IntN(at[0] + 1)
		}
		batch, wanted := trialBatch{keep: at[0]}, 0
		for range 1 + rng.IntN(s.opts.MaxRows) {
			i := rng.IntN(2)
			if at[i] == len(s.tokens[i]) {
				continue
			}
			row := trialRow{i, at[i], wanted < min(s.opts.MaxLogits, s.opts.MaxRows) && rng.IntN(2) == 0}
			if row.logits {
				wanted++
			}
			batch.rows = append(batch.rows, row)
			at[i]++
		}
		if len(batch.rows) > 0 {
			s.batches = append(s.batches, batch)
		}
	}
}

// Run tries a program with the tensors of a pack, and with tensors that fit it. It
// reports whether the program was valid and run at all, and returns what went wrong.
func (t *Trial) Run(ctx context.Context, p *program.Program, pack backends.Weights, plan TrialPlan) (ran bool, err error) {
	if t.MemoryBytes == 0 {
		t.MemoryBytes = 4 << 20
	}
	if err := p.Validate(); err != nil {
		if !errors.Is(err, program.ErrProgram) || len(err.Error()) > 4000 {
			return false, fmt.Errorf("a program is refused with %w, want ErrProgram and few words", err)
		}
		return false, nil
	}
	steps := plan.steps(p, t.MemoryBytes)
	if err := t.unfit(ctx, p, pack, steps.opts); err != nil {
		return false, err
	}
	w, ok := t.weights(p, steps.extreme)
	if !ok {
		return false, nil
	}
	var want *trialWant
	for _, b := range t.Backends {
		got, err := t.run(ctx, b, p, w, steps)
		if err != nil {
			return ran, fmt.Errorf("%s: %w", b.Describe(), err)
		}
		if got == nil {
			continue
		}
		ran = true
		if want == nil {
			want = interpret(p, w, steps)
		}
		if err := want.same(got); err != nil {
			return ran, fmt.Errorf("%s: %w", b.Describe(), err)
		}
	}
	return ran, nil
}

// unfit has a program refused for the tensors of a pack, if they are not those that it names.
func (t *Trial) unfit(ctx context.Context, p *program.Program, pack backends.Weights, opts backends.Options) error {
	fits := true
	for _, w := range p.Weights {
		data, m, ok := pack.Tensor(w.Name)
		fits = fits && ok && m == w.Matrix && int64(len(data)) == m.SizeBytes()
	}
	if fits {
		return nil
	}
	e, err := t.Backends[0].Compile(ctx, p, pack, opts)
	if err == nil {
		err = e.Close()
	}
	if !errors.Is(err, fault.ErrIntegrity) {
		return fmt.Errorf("compiled with other tensors than it names: %w, want fault.ErrIntegrity", err)
	}
	return nil
}

// weights returns tensors that a program names, unless they are too large.
func (t *Trial) weights(p *program.Program, extreme bool) (*Weights, bool) {
	size := int64(0)
	for _, w := range p.Weights {
		if size += w.SizeBytes(); size > t.MemoryBytes/16 {
			return nil, false
		}
	}
	if t.bytes > 16*t.MemoryBytes {
		t.tensors, t.bytes = nil, 0
	}
	if t.tensors == nil {
		t.tensors = map[tensorKey]*tensor{}
	}
	w := &Weights{tensors: make(map[string]*tensor, len(p.Weights))}
	for _, want := range p.Weights {
		key := tensorKey{want, extreme}
		made, ok := t.tensors[key]
		if !ok {
			h := fnv.New64a()
			fmt.Fprintf(h, "%+v", key)
			rng := rand.New(rand.NewPCG(h.Sum64(), 1))
			made = &tensor{Matrix: want.Matrix}
			made.draw(rng)
			if extreme {
				made.spoil(rng)
			}
			made.pack()
			t.tensors[key] = made
			t.bytes += int64(len(made.data) + 4*(len(made.codes)+len(made.scales)+len(made.floats)))
		}
		w.tensors[want.Name] = made
	}
	return w, true
}

// spoil makes some of the scales or plain numbers extreme.
func (t *tensor) spoil(rng *rand.Rand) {
	inf := float32(math.Inf(1))
	odd := []float32{0, float32(math.Copysign(0, -1)), float32(math.NaN()), inf, -inf, 1e-45, -1e-38, math.MaxFloat32, -math.MaxFloat32, 1e5, -1e-6}
	for _, list := range [][]float32{t.scales, t.floats} {
		for i := rng.IntN(len(list) + 1); i < len(list); i += 1 + rng.IntN(40) {
			list[i] = odd[rng.IntN(len(odd))]
		}
	}
}

// trialGot is what a backend computed for the rows that wanted logits, in the order of the batches.
type trialGot struct{ logits, hidden, peaks [][]float32 }

// run runs a program on one backend; it returns nil if that refuses it with reason.
func (t *Trial) run(ctx context.Context, b backends.Backend, p *program.Program, w *Weights, s *trialSteps) (_ *trialGot, err error) {
	_, unusable := s.opts.Complete(p)
	allocated := uint64(0)
	if t.Allocated != nil {
		allocated = t.Allocated()
	}
	e, err := b.Compile(ctx, p, w, s.opts)
	switch {
	case unusable != nil && errors.Is(err, fault.ErrUsage), t.refusal(err):
		return nil, t.frugal(p, allocated, 0)
	case err != nil:
		return nil, fmt.Errorf("compile: %w", err)
	case unusable != nil:
		return nil, errors.Join(fmt.Errorf("compiled, want %w", unusable), e.Close())
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if err := t.frugal(p, allocated, e.Stats().BufferBytes); err != nil {
		return nil, err
	}
	var slots [2]backends.Slot
	for i := range slots {
		if slots[i], err = e.NewSlot(); err != nil {
			return nil, fmt.Errorf("slot: %w", err)
		}
	}
	got := &trialGot{}
	for i, batch := range s.batches {
		if err := e.Truncate(slots[0], batch.keep); err != nil {
			return nil, fmt.Errorf("batch %d: cut to %d positions: %w", i, batch.keep, err)
		}
		err := t.step(ctx, e, p, slots, batch.rows, s, got)
		if t.refusal(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("batch %d: %w", i, err)
		}
	}
	if held := e.Stats(); t.Allocated != nil && held.BufferBytes+held.CacheBytes > t.MemoryBytes {
		return nil, fmt.Errorf("%d bytes are held, and %d may be", held.BufferBytes+held.CacheBytes, t.MemoryBytes)
	}
	return got, nil
}

// refusal tells that an error is one with which backends may refuse a program.
func (t *Trial) refusal(err error) bool {
	return slices.ContainsFunc(append([]error{backends.ErrMemory, errors.ErrUnsupported}, t.Refusals...), func(r error) bool { return errors.Is(err, r) })
}

// frugal reports an executor that has allocated much more than it counts.
func (t *Trial) frugal(p *program.Program, before uint64, counted int64) error {
	if t.Allocated == nil {
		return nil
	}
	entries := len(p.Ops) + len(p.Weights) + len(p.Buffers) + len(p.Caches) + len(p.Rotations) + len(p.Layers)
	if got, most := t.Allocated()-before, uint64(2*counted+64<<10+int64(entries)<<11); got > most {
		return fmt.Errorf("compiling %d operations allocates %d bytes where %d are counted, at most %d are expected", len(p.Ops), got, counted, most)
	}
	return nil
}

// step runs one batch and keeps its results.
func (t *Trial) step(ctx context.Context, e backends.Executor, p *program.Program, slots [2]backends.Slot, rows []trialRow, s *trialSteps, got *trialGot) error {
	batch := &backends.Batch{}
	for _, r := range rows {
		batch.Rows = append(batch.Rows, backends.Row{Token: s.tokens[r.sequence][r.pos], Slot: slots[r.sequence], Pos: r.pos, Logits: r.logits})
	}
	layers, bad := 0, error(nil)
	if s.traced {
		cols := p.Buffers[p.State].Cols
		batch.Trace = func(layer int, state []float32) {
			if len(state)%cols != 0 || len(state) > len(rows)*cols || layer != layers-1 {
				bad = fmt.Errorf("a trace of layer %d with %d numbers of rows of %d", layer, len(state), cols)
			}
			layers++
		}
	}
	if err := e.Step(ctx, batch); err != nil || bad != nil {
		return errors.Join(err, bad)
	}
	if want := len(p.Layers) + 1; s.traced && layers != want && len(p.Layers) > 0 {
		return fmt.Errorf("a trace of %d layers, want %d", layers, want)
	}
	wanted := 0
	for _, r := range rows {
		if r.logits {
			got.logits = append(got.logits, append([]float32(nil), e.Logits(wanted)...))
			got.hidden = append(got.hidden, append([]float32(nil), e.Hidden(wanted)...))
			got.peaks = append(got.peaks, append([]float32(nil), e.Peaks(wanted)...))
			wanted++
		}
	}
	return nil
}

// trialWant is what the interpreter computed.
type trialWant struct{ trialGot }

// interpret computes what is wanted.
func interpret(p *program.Program, w *Weights, s *trialSteps) *trialWant {
	var lengths [2]int
	wanted := [2]map[int]bool{{}, {}}
	for _, batch := range s.batches {
		for _, r := range batch.rows {
			if r.logits {
				lengths[r.sequence] = max(lengths[r.sequence], r.pos+1)
				wanted[r.sequence][r.pos] = true
			}
		}
	}
	var logits, hidden [2][][]float32
	for i, n := range lengths {
		logits[i], hidden[i] = interpretSome(p, w, s.opts, s.tokens[i][:n], func(pos int) bool { return wanted[i][pos] })
	}
	want := &trialWant{}
	for _, batch := range s.batches {
		for _, r := range batch.rows {
			if r.logits {
				want.logits = append(want.logits, logits[r.sequence][r.pos])
				want.hidden = append(want.hidden, hidden[r.sequence][r.pos])
			}
		}
	}
	for _, l := range want.logits {
		var peaks []float32
		for first := 0; first < len(l); first += backends.PeakRun {
			peaks = append(peaks, backends.Peak(l[first:min(first+backends.PeakRun, len(l))]))
		}
		want.peaks = append(want.peaks, peaks)
	}
	return want
}

// same compares results.
func (w *trialWant) same(got *trialGot) error {
	for _, c := range []struct {
		what      string
		got, want [][]float32
	}{{"hidden", got.hidden, w.hidden}, {"logits", got.logits, w.logits}, {"peaks", got.peaks, w.peaks}} {
		for row := range c.want {
			if err := alike("wanted row", c.what, row, c.got[row], c.want[row]); err != nil {
				return err
			}
		}
	}
	return nil
}

// alike compares bits, but for those of what is not a number.
func alike(of, what string, i int, got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s %d has %d %s, want %d", of, i, len(got), what, len(want))
	}
	for j := range want {
		if math.Float32bits(got[j]) != math.Float32bits(want[j]) && (got[j] == got[j] || want[j] == want[j]) {
			return fmt.Errorf("%s %d: %s[%d] = %v (%08x), want %v (%08x)", of, i, what, j, got[j], math.Float32bits(got[j]), want[j], math.Float32bits(want[j]))
		}
	}
	return nil
}
