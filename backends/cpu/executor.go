package cpu

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/program"
)

// errClosed reports the use of a closed executor.
var errClosed = errors.New("executor is closed")

// buffer is the activations of one program.Buffer, [rows, cols].
type buffer struct {
	cols int
	data []float32
}

// operation is one step of the replay: a task, or a select.
type operation struct {
	task task
	// op is the index of the program's operation, of which this may be a part.
	op int
	// next is the next task that reads weights; nil for none.
	next reader
	// kind indexes the executor's profile.
	kind int
	// bytes is the number of weight bytes read.
	bytes int64
	// keep lists the buffers that a select compacts; nil for a task.
	keep []program.BufferID
}

// executor implements backends.Executor.
type executor struct {
	p       *program.Program
	opts    backends.Options
	kernels *kernels.Set
	planes  int     // digits of a fixed-point activation
	limit   float32 // its largest magnitude
	pool    *pool
	tables  *backends.Tables
	release func() // gives up the weights
	memory  memory

	ops     []operation
	buf     []buffer
	angles  []angles
	peaks   []float32 // [MaxLogits, runs]
	scratch []scratch
	slots   backends.Slots
	caches  [][]cache // of each slot
	stats   backends.Stats
	profile []backends.OpProfile // one for each kind of operation, nil unless asked for
	closed  bool

	// of the step under way
	rows    []backends.Row
	live    int
	tilings []*tilings // of the rows
	plan    plan
	queries queryDigits // of the attention at hand
	layer   int         // the next to trace; -1 stands for what comes before the first
}

// row returns row r of a buffer.
func (e *executor) row(id program.BufferID, r int) []float32 {
	b := &e.buf[id]
	return b.data[r*b.cols:][:b.cols]
}

// NewSlot implements backends.Executor.
func (e *executor) NewSlot() (backends.Slot, error) {
	if e.closed {
		return 0, errClosed
	}
	slot := e.slots.New()
	if int(slot) == len(e.caches) {
		e.caches = append(e.caches, nil)
	}
	e.caches[slot] = e.newCaches()
	return slot, nil
}

// FreeSlot implements backends.Executor.
func (e *executor) FreeSlot(s backends.Slot) {
	if !e.slots.Free(s) {
		return
	}
	for i := range e.caches[s] {
		freed := e.caches[s][i].bytes()
		e.stats.CacheBytes -= freed
		e.memory.held -= freed
	}
	e.caches[s] = nil
}

// Len implements backends.Executor.
func (e *executor) Len(s backends.Slot) int { return e.slots.Len(s) }

// Truncate implements backends.Executor.
func (e *executor) Truncate(s backends.Slot, n int) error { return e.slots.Truncate(s, n) }

// Step implements backends.Executor.
func (e *executor) Step(ctx context.Context, b *backends.Batch) error {
	if err := e.begin(b); err != nil {
		return err
	}
	e.layer = -1
	for i := range e.ops {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if e.live == 0 {
			break
		}
		if b.Trace != nil {
			e.traceBefore(e.ops[i].op, b.Trace)
		}
		op := &e.ops[i]
		if op.keep != nil {
			e.keep(op.keep)
			continue
		}
		e.run(op)
	}
	if b.Trace != nil {
		e.traceBefore(len(e.p.Ops), b.Trace)
	}
	for _, r := range b.Rows {
		e.slots.Extend(r.Slot, r.Pos)
	}
	return nil
}

// run does an operation for the live rows.
func (e *executor) run(op *operation) {
	if e.profile == nil {
		e.pool.run(op)
		return
	}
	start := time.Now()
	e.pool.run(op)
	p := &e.profile[op.kind]
	p.Calls++
	p.Time += time.Since(start)
	p.Bytes += op.bytes
}

// Profile implements backends.Executor.
func (e *executor) Profile() []backends.OpProfile {
	if e.profile == nil {
		return nil
	}
	all := slices.Clone(e.profile)
	for i := range e.profile {
		e.profile[i] = backends.OpProfile{Name: all[i].Name}
	}
	return all
}

// begin checks a batch and prepares the step.
func (e *executor) begin(b *backends.Batch) error {
	if e.closed {
		return errClosed
	}
	if _, err := e.slots.Check(b.Rows, e.p, e.opts); err != nil {
		return err
	}
	e.rows = append(e.rows[:0], b.Rows...)
	e.tables.Prefetch(e.rows)
	e.setLive(len(e.rows))
	for _, r := range e.rows {
		for c := range e.caches[r.Slot] {
			added, err := e.caches[r.Slot][c].grow(&e.memory, r.Pos)
			if err != nil {
				return err
			}
			e.stats.CacheBytes += added
		}
	}
	for i, r := range e.rows {
		e.slots.Write(r.Slot, r.Pos)
		for a := range e.angles {
			e.angles[a].fill(i, r.Pos)
		}
	}
	return nil
}

// keep compacts the rows that want logits.
func (e *executor) keep(buffers []program.BufferID) {
	n := 0
	for r := range e.live {
		if !e.rows[r].Logits {
			continue
		}
		if n != r {
			for _, id := range buffers {
				copy(e.row(id, n), e.row(id, r))
			}
			for a := range e.angles {
				copy(e.angles[a].row(n), e.angles[a].row(r))
			}
			e.rows[n] = e.rows[r]
		}
		n++
	}
	e.setLive(n)
}

// setLive sets how many rows the operations that follow work on.
func (e *executor) setLive(n int) {
	e.live = n
	for _, t := range e.tilings {
		t.cut(n)
	}
}

// scratch is a worker's memory.
type scratch struct {
	digits   []uint32 // of a few rows, or of the heads of a unit
	totals   []int32  // of the blocks at hand
	gate, up []float32
	final    kernels.Final
	groups   kernels.GroupActivations
	sums32   []int32 // of the groups of a row

	weights           []float32 // [heads of a unit, 256]
	sums              []float32 // [heads of a unit, dim]
	largest, totalsOf []float32 // [2, heads of a unit]
	codes             []int8    // of a key or value
	// of attention over codes
	weightWords []uint32
	steps       []float32
	starts      []float64
	padded      []float32
}

// traceBefore shows the state where operation op of the program begins the first layer or follows the end of a layer.
func (e *executor) traceBefore(op int, trace func(layer int, state []float32)) {
	state := e.buf[e.p.State]
	layers := e.p.Layers
	for e.layer < len(layers) && (e.layer < 0 && len(layers) > 0 && op >= layers[0].First || e.layer >= 0 && op >= layers[e.layer].End) {
		trace(e.layer, state.data[:e.live*state.cols])
		e.layer++
	}
}

// Logits implements backends.Executor.
func (e *executor) Logits(i int) []float32 { return e.row(e.p.Logits, i) }

// Peaks implements backends.Executor.
func (e *executor) Peaks(i int) []float32 {
	n := runs(e.p.Vocab)
	return e.peaks[i*n:][:n]
}

// Hidden implements backends.Executor.
func (e *executor) Hidden(i int) []float32 { return e.row(e.p.Hidden, i) }

// Stats implements backends.Executor.
func (e *executor) Stats() backends.Stats {
	s := e.stats
	s.Threads, s.Context = e.opts.Threads, e.opts.Context
	s.Tables, s.LockedBytes = e.opts.Tables, e.tables.LockedBytes()
	s.BufferBytes = e.memory.held - s.CacheBytes
	return s
}

// Close implements backends.Executor.
func (e *executor) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	e.pool.close()
	e.tables.Release()
	e.release()
	e.slots, e.caches, e.buf, e.ops = backends.Slots{}, nil, nil, nil
	return nil
}
