package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// task is a piece of a step. do runs the units [first, end) on one worker.
type task interface {
	do(worker, first, end int)
}

const (
	// spins is how often a waiting thread looks again, yielding each time, before it sleeps.
	spins = 200
	// minWork is the number of multiplications below which waking other threads costs more than it saves.
	minWork = 1 << 15
	// chunksPerWorker is into how many pieces a task is cut for each worker, so that a slow one holds nobody up for long.
	chunksPerWorker = 4
)

// pool is a set of threads that share the units of a task. The caller of run is
// worker 0 and never waits for a worker that has not begun: what others have
// not claimed it does itself, so a busy machine costs no more than the help it
// withholds. Workers sleep when there is nothing to do.
type pool struct {
	workers int

	// state is the number of the task in the upper half and its next unclaimed
	// chunk in the lower, or closed. A chunk is claimed by raising it: that the
	// number is still the same proves that op, units and chunks belong to it.
	state    atomic.Uint64
	op       atomic.Pointer[operation]
	units    atomic.Int64
	chunks   atomic.Int64
	finished atomic.Int64 // chunks of the current task

	closing atomic.Bool
	asleep  []atomic.Bool
	wake    []chan struct{}
	done    sync.WaitGroup
}

// closed as the lower half of the state means that nothing can be claimed.
const closed = 1<<32 - 1

// newPool starts workers-1 threads.
func newPool(workers int) *pool {
	p := &pool{workers: workers, asleep: make([]atomic.Bool, workers), wake: make([]chan struct{}, workers)}
	p.state.Store(closed)
	for w := 1; w < workers; w++ {
		p.wake[w] = make(chan struct{}, 1)
		p.done.Add(1)
		go p.loop(w)
	}
	return p
}

// run shares the units of an operation between the workers and returns when all
// are done. work is the number of multiplications in all.
func (p *pool) run(op *operation, units, work int) {
	if units == 0 {
		return
	}
	if p.workers == 1 || units == 1 || work < minWork {
		op.task.do(0, 0, units)
		return
	}
	chunks := int64(min(units, p.workers*chunksPerWorker))
	p.op.Store(op)
	p.units.Store(int64(units))
	p.chunks.Store(chunks)
	p.finished.Store(0)
	number := p.state.Load()>>32 + 1
	p.state.Store(number << 32)
	p.signal()
	for p.claim(0) {
	}
	for p.finished.Load() < chunks {
		runtime.Gosched()
	}
	p.state.Store(number<<32 | closed)
}

// claim takes the next chunk of the current task and does it. It reports
// whether there may be more.
func (p *pool) claim(w int) bool {
	s := p.state.Load()
	op, units, chunks := p.op.Load(), p.units.Load(), p.chunks.Load()
	next := int64(s & closed)
	if next >= chunks {
		return false
	}
	if p.state.CompareAndSwap(s, s+1) {
		op.task.do(w, int(units*next/chunks), int(units*(next+1)/chunks))
		p.finished.Add(1)
	}
	return true
}

// signal wakes the workers that sleep.
func (p *pool) signal() {
	for w := 1; w < p.workers; w++ {
		if p.asleep[w].CompareAndSwap(true, false) {
			p.wake[w] <- struct{}{}
		}
	}
}

// loop serves worker w until the pool is closed.
func (p *pool) loop(w int) {
	defer p.done.Done()
	for seen := uint64(0); !p.closing.Load(); {
		for p.claim(w) {
		}
		seen = p.await(w, seen)
	}
}

// await returns the number of the current task when it is later than the seen one, or when the pool closes.
func (p *pool) await(w int, seen uint64) uint64 {
	news := func() bool { return p.state.Load()>>32 != seen || p.closing.Load() }
	for {
		for range spins {
			if news() {
				return p.state.Load() >> 32
			}
			runtime.Gosched()
		}
		p.asleep[w].Store(true)
		// Look once more: the announcement may have come before the flag. Whoever clears the flag owns the wake-up.
		if news() && p.asleep[w].CompareAndSwap(true, false) {
			return p.state.Load() >> 32
		}
		<-p.wake[w]
		// The announcer may have been slow, and this the wake-up for a task that is done: look again.
	}
}

// close ends the workers.
func (p *pool) close() {
	if p.closing.Swap(true) {
		return
	}
	p.signal()
	p.done.Wait()
}
