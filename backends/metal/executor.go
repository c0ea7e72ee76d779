package metal

import (
	"context"
	"encoding/binary"
	"errors"
	"unsafe"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// errClosed reports the use of a closed executor.
var errClosed = errors.New("executor is closed")

// executor implements backends.Executor and backends.Generator.
type executor struct {
	p      *program.Program
	opts   backends.Options
	device Device
	memory *allocator
	host   backends.Weights
	tables *backends.Tables // nil where the device looks up their rows
	uses   [][]use          // of each buffer
	// release gives up the weights.
	release func()

	weights *weights
	caches  *caches
	mem     *memory
	parts   partials
	lists   map[listKey]*recorded
	pick    listKey // of the last burst

	slots   backends.Slots
	stats   backends.Stats
	profile []backends.OpProfile
	closed  bool
	lost    error // why the device can be used no more

	hidden, logits Binding // of the last step
}

// build prepares everything but the lists, which are recorded when they are first needed.
func (e *executor) build(ctx context.Context) (err error) {
	gathered := backends.Gathered(e.p)
	wanted := make([]bool, len(gathered))
	for i := range wanted {
		wanted[i] = !gathered[i] || e.opts.Tables != backends.TablesMapped
	}
	if e.opts.Tables == backends.TablesMapped {
		if e.tables, err = backends.HoldTables(ctx, e.p, e.host, e.opts.Tables); err != nil {
			return err
		}
	}
	if e.weights, err = placeWeights(e.memory, e.p, e.host, wanted); err != nil {
		return hint(err)
	}
	if e.caches, err = newCaches(e.memory, e.p, e.opts, max(e.opts.MaxRows, maxBurst)); err != nil {
		return hint(err)
	}
	if e.mem, err = newMemory(e.memory, e.p, e.opts); err != nil {
		return hint(err)
	}
	e.lists, e.uses = map[listKey]*recorded{}, uses(e.p)
	e.stats = backends.Stats{
		Threads: 1, Context: e.opts.Context, BufferBytes: e.mem.bytes() + e.weights.copiedBytes, StepBytes: backends.StepBytes(e.p),
		Tables: e.opts.Tables,
	}
	return e.device.Load(ctx, source(), e.kernelNames())
}

// NewSlot implements backends.Executor.
func (e *executor) NewSlot() (backends.Slot, error) {
	if err := e.usable(); err != nil {
		return 0, err
	}
	slot := e.slots.New()
	moved, err := e.caches.open(slot)
	if moved {
		e.forget()
	}
	if err != nil {
		e.slots.Free(slot)
		return 0, hint(err)
	}
	return slot, nil
}

// FreeSlot implements backends.Executor.
func (e *executor) FreeSlot(s backends.Slot) {
	if e.closed || !e.slots.Free(s) {
		return
	}
	e.stats.CacheBytes -= e.caches.close(s)
}

// Len implements backends.Executor.
func (e *executor) Len(s backends.Slot) int { return e.slots.Len(s) }

// Truncate implements backends.Executor.
func (e *executor) Truncate(s backends.Slot, n int) error { return e.slots.Truncate(s, n) }

// usable returns why the executor cannot be used, or nil.
func (e *executor) usable() error {
	if e.closed {
		return errClosed
	}
	return e.lost
}

// Step implements backends.Executor.
func (e *executor) Step(ctx context.Context, b *backends.Batch) error {
	if err := e.usable(); err != nil {
		return err
	}
	wanted, err := e.slots.Check(b.Rows, e.p, e.opts)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := e.begin(b.Rows); err != nil {
		return err
	}
	key := e.key(b.Rows, wanted)
	if b.Trace != nil {
		key = traced(key)
	}
	r, err := e.recorded(key)
	if err != nil {
		return err
	}
	switch {
	case b.Trace != nil:
		err = e.trace(ctx, r, wanted, b)
	case e.opts.Profile:
		err = e.profileRun(r)
	default:
		err = e.wait(e.device.Submit(r.lists))
	}
	if err != nil {
		return err
	}
	e.hidden, e.logits = r.hidden, r.logits
	for _, r := range b.Rows {
		e.slots.Extend(r.Slot, r.Pos)
	}
	return nil
}

// begin writes down what the kernels need to know of rows, and makes room for them in the caches.
func (e *executor) begin(rows []backends.Row) error {
	if e.tables != nil {
		e.tables.Prefetch(rows)
	}
	kept := 0
	for i, r := range rows {
		if err := e.reach(r.Slot, r.Pos); err != nil {
			return err
		}
		e.mem.putAngles(i, r.Pos)
		e.mem.putRow(e.mem.step, i, r, e.caches.first(r.Slot), i)
		if r.Logits {
			e.mem.putRow(e.mem.keptStep, kept, r, e.caches.first(r.Slot), i)
			binary.LittleEndian.PutUint32(bytesOf(e.mem.keptRows)[4*kept:], uint32(i))
			kept++
		}
		e.gather(i, r.Token)
	}
	e.mem.putLive(e.mem.step, len(rows))
	e.mem.putLive(e.mem.keptStep, kept)
	return nil
}

// reach makes room for a position of a slot, which is about to be written.
func (e *executor) reach(slot backends.Slot, pos int) error {
	added, moved, err := e.caches.grow(slot, pos)
	e.stats.CacheBytes += added
	if moved {
		e.forget()
	}
	if err != nil {
		return hint(err)
	}
	e.slots.Write(slot, pos)
	return nil
}

// gather writes the rows of a token from mapped tables to where the kernels look for them.
func (e *executor) gather(row int, token int32) {
	for _, op := range e.p.Ops {
		if op.Embed == nil || e.weights.at[op.Embed.Table].Buffer != nil {
			continue
		}
		t := e.p.Weights[op.Embed.Table]
		data, _, _ := e.host.Tensor(t.Name)
		out := floatsOf(e.mem.row(op.Embed.Out, row))
		quant.Row(out, t.Matrix, data, int(token))
		for i, v := range out {
			out[i] = float32(v * op.Embed.Mul)
		}
	}
}

// wait waits for a submission. A device that has failed is not used again.
func (e *executor) wait(s Submission, err error) error {
	if err == nil {
		err = s.Wait()
	}
	if errors.Is(err, ErrDevice) && e.lost == nil {
		e.lost = err
		if fault.Hint(err) == "" {
			e.lost = fault.WithHint(err, "open the model again, or run on the processor with `--backend cpu`")
		}
		return e.lost
	}
	return err
}

// trace runs a batch layer by layer and shows the state in between.
func (e *executor) trace(ctx context.Context, r *recorded, wanted int, b *backends.Batch) error {
	layer := -1
	for i, list := range r.lists {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if list != nil {
			if err := e.wait(e.device.Submit([]List{list})); err != nil {
				return err
			}
		}
		if i < len(r.states) {
			live := len(b.Rows)
			if r.states[i].kept {
				live = wanted
			}
			b.Trace(layer, floatsOf(r.states[i].at)[:live*e.p.Buffers[e.p.State].Cols])
			layer++
		}
	}
	return nil
}

// Logits implements backends.Executor.
func (e *executor) Logits(i int) []float32 { return e.row(e.logits, e.p.Logits, i) }

// row returns row i of where a buffer lies.
func (e *executor) row(at Binding, id program.BufferID, i int) []float32 {
	cols := e.p.Buffers[id].Cols
	return floatsOf(at)[i*cols:][:cols]
}

// Peaks implements backends.Executor.
func (e *executor) Peaks(i int) []float32 {
	n := peakRuns(e.p.Vocab)
	return floatsOf(e.mem.peaks)[i*n:][:n]
}

// Hidden implements backends.Executor.
func (e *executor) Hidden(i int) []float32 { return e.row(e.hidden, e.p.Hidden, i) }

// Stats implements backends.Executor.
func (e *executor) Stats() backends.Stats { return e.stats }

// forget drops all lists, whose buffers were replaced.
func (e *executor) forget() {
	for _, r := range e.lists {
		r.release()
	}
	clear(e.lists)
}

// Close implements backends.Executor.
func (e *executor) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	e.forget()
	if e.mem != nil {
		e.mem.release()
	}
	e.memory.free(e.parts.buffer)
	if e.caches != nil {
		e.caches.release()
	}
	if e.weights != nil {
		e.weights.release()
	}
	if e.tables != nil {
		e.tables.Release()
	}
	defer e.release() // the device may read them until it is closed
	return e.device.Close()
}

// bytesOf returns the memory of a binding.
func bytesOf(b Binding) []byte { return b.Buffer.Bytes()[b.Offset:][:b.Size] }

// floatsOf returns the memory of a binding as floats. Devices and processors that Metal knows are little-endian.
func floatsOf(b Binding) []float32 {
	data := bytesOf(b)
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
}
