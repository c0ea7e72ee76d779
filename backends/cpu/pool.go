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
)

// pool is a set of threads that share the units of a task. The caller of run is
// worker 0. Workers sleep when there is nothing to do.
type pool struct {
	workers int
	task    task
	units   int
	gen     atomic.Uint32 // counts tasks
	pending atomic.Int32  // workers still busy with the current task
	closing atomic.Bool
	asleep  []atomic.Bool
	wake    []chan struct{}
	done    sync.WaitGroup
}

// newPool starts workers-1 threads.
func newPool(workers int) *pool {
	p := &pool{workers: workers, asleep: make([]atomic.Bool, workers), wake: make([]chan struct{}, workers)}
	for w := 1; w < workers; w++ {
		p.wake[w] = make(chan struct{}, 1)
		p.done.Add(1)
		go p.loop(w)
	}
	return p
}

// run shares the units of t between the workers and returns when all are done.
// work is the number of multiplications in all.
func (p *pool) run(t task, units, work int) {
	if units == 0 {
		return
	}
	if p.workers == 1 || units == 1 || work < minWork {
		t.do(0, 0, units)
		return
	}
	p.task, p.units = t, units
	p.pending.Store(int32(p.workers - 1))
	p.signal()
	t.do(0, 0, units/p.workers)
	for i := 0; p.pending.Load() > 0; i++ {
		runtime.Gosched()
	}
}

// signal announces a task, or the end, to every worker.
func (p *pool) signal() {
	p.gen.Add(1)
	for w := 1; w < p.workers; w++ {
		if p.asleep[w].CompareAndSwap(true, false) {
			p.wake[w] <- struct{}{}
		}
	}
}

// loop serves worker w until the pool is closed.
func (p *pool) loop(w int) {
	defer p.done.Done()
	for seen := uint32(0); ; seen++ {
		p.await(w, seen)
		if p.closing.Load() {
			return
		}
		p.task.do(w, p.units*w/p.workers, p.units*(w+1)/p.workers)
		p.pending.Add(-1)
	}
}

// await returns when a task later than the seen ones has been announced.
func (p *pool) await(w int, seen uint32) {
	for {
		for range spins {
			if p.gen.Load() != seen {
				return
			}
			runtime.Gosched()
		}
		p.asleep[w].Store(true)
		// Look once more: the announcement may have come before the flag. Whoever clears the flag owns the wake-up.
		if p.gen.Load() != seen && p.asleep[w].CompareAndSwap(true, false) {
			return
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
