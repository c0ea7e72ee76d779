package metal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// Marks in what the sample kernel tells of a pick, beside the token's number; see sample.metal.
const (
	pickStop     = 1 << 30
	pickUnusable = 1 << 31
)

// ringPoll is how often the host looks for new tokens while a burst runs.
const ringPoll = 200 * time.Microsecond

// MaxBurst implements backends.Generator.
func (*executor) MaxBurst() int { return maxBurst }

// CanPick implements backends.Generator.
func (e *executor) CanPick(p backends.Pick, stop []int32) error {
	switch {
	case e.opts.Tables == backends.TablesMapped:
		return errors.New("mapped tables")
	case e.opts.Profile:
		return errors.New("profile")
	case topK(p, e.p.Vocab) > maxTopK:
		return fmt.Errorf("top-k %d", p.TopK)
	case len(stop) > maxStops:
		return fmt.Errorf("%d stop ids", len(stop))
	}
	return nil
}

// Generate implements backends.Generator. The device gets all steps in one
// submission; tokens are emitted while it works.
func (e *executor) Generate(ctx context.Context, b *backends.Burst) (backends.BurstResult, error) {
	if err := e.usable(); err != nil {
		return backends.BurstResult{}, err
	}
	if err := e.slots.CheckBurst(b, maxBurst, e.p, e.opts); err != nil {
		return backends.BurstResult{}, err
	}
	if err := e.CanPick(b.Pick, b.Stop); err != nil {
		return backends.BurstResult{}, fmt.Errorf("%w: no burst: %w", fault.ErrUsage, err)
	}
	if ctx.Err() != nil {
		return backends.BurstResult{}, context.Cause(ctx)
	}
	lists, err := e.beginBurst(b)
	if err != nil {
		return backends.BurstResult{}, err
	}
	s, err := e.device.Submit(lists)
	if err != nil {
		return backends.BurstResult{}, e.wait(nil, err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Wait() }()
	r := ring{words: e.mem.ringWords(), burst: b}
	tick := time.NewTicker(ringPoll)
	defer tick.Stop()
	running := true
	defer func() {
		if running { // Emit panics: the device must not work on in memory that may be freed
			r.silence()
			<-done
		}
	}()
	for running {
		select {
		case <-ctx.Done():
			r.silence()
			err = <-done
			running = false
		case err = <-done:
			running = false
		case <-tick.C:
			r.read(ctx)
		}
	}
	if err != nil {
		return backends.BurstResult{}, e.wait(nil, err)
	}
	return e.endBurst(ctx, b, &r)
}

// beginBurst writes down what the device needs to know, and returns the lists to run.
func (e *executor) beginBurst(b *backends.Burst) ([]List, error) {
	row := b.Row
	row.Logits = true
	if err := e.begin([]backends.Row{row}); err != nil {
		return nil, err
	}
	m := e.mem
	for i := range b.Steps {
		// What the burst may not come to is room that later steps find.
		if err := e.reach(row.Slot, row.Pos+i); err != nil {
			return nil, err
		}
		m.putAngles(i, row.Pos+i)
	}
	for i, n := range b.Random {
		binary.LittleEndian.PutUint64(bytesOf(m.random)[8*i:], n)
	}
	for i, id := range b.Stop {
		binary.LittleEndian.PutUint32(bytesOf(m.stops)[4*i:], uint32(id))
	}
	clear(bytesOf(m.ring))
	decode, err := e.recorded(e.decodeKey(row.Pos + b.Steps - 1))
	if err != nil {
		return nil, err
	}
	sample, err := e.recordedPick(listKey{kind: sampleList, pick: b.Pick, stops: len(b.Stop)})
	if err != nil {
		return nil, err
	}
	lists := make([]List, 0, 2*maxBurst)
	for range b.Steps {
		lists = append(lists, decode.lists[0], sample.lists[0])
	}
	return lists, nil
}

// recordedPick returns the list of a pick. Only the last one is kept: callers may ask for any number of different ones.
func (e *executor) recordedPick(key listKey) (*recorded, error) {
	if last, ok := e.lists[e.pick]; ok && e.pick != key {
		last.release()
		delete(e.lists, e.pick)
	}
	e.pick = key
	return e.recorded(key)
}

// endBurst emits what is left and keeps the books.
func (e *executor) endBurst(ctx context.Context, b *backends.Burst, r *ring) (backends.BurstResult, error) {
	r.read(ctx)
	result := backends.BurstResult{Fed: r.seen, Stopped: r.stopped}
	if r.seen > 0 {
		e.slots.Extend(b.Row.Slot, b.Row.Pos+r.seen-1)
	}
	switch {
	case ctx.Err() != nil && (r.held || r.seen < b.Steps && !r.stopped && !r.unusable):
		return result, context.Cause(ctx)
	case r.unusable:
		return result, fmt.Errorf("%w: the device finds no token to pick at position %d", backends.ErrLogits, b.Row.Pos+r.seen)
	}
	return result, nil
}

// ring reads the tokens of a burst as they come.
type ring struct {
	words []atomic.Uint32 // whether to end, then one for each step: 0 until it is done, then one more than what was picked
	burst *backends.Burst

	seen     int  // steps done
	quiet    bool // nothing is emitted any more
	held     bool // tokens were held back since the context had ended
	stopped  bool
	unusable bool
}

// read emits the tokens that have come since it was last called.
func (r *ring) read(ctx context.Context) {
	for r.seen < r.burst.Steps {
		word := r.words[1+r.seen].Load()
		if word == 0 {
			return
		}
		r.seen++
		switch word--; {
		case word == pickUnusable:
			r.unusable = true
		case word&pickStop != 0:
			r.stopped = true
		case ctx.Err() != nil:
			r.held = true
			r.silence()
		case !r.quiet && !r.burst.Emit(int32(word)):
			r.silence()
		}
	}
}

// silence ends the emission of tokens, and asks the device to stop after the step at hand.
func (r *ring) silence() {
	r.quiet = true
	r.words[0].Store(1)
}

// ringWords returns the words of the ring.
func (m *memory) ringWords() []atomic.Uint32 {
	data := bytesOf(m.ring)
	return unsafe.Slice((*atomic.Uint32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
}
