package cpu

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

// task is a piece of a step.
type task interface {
	// prepare divides the work of this step: it returns the number of units, and
	// that of multiplications in all. It is called once before the units are done.
	prepare() (units, work int)
	// do runs the units [first, end) on one worker.
	do(worker, first, end int)
}

// reader is a task that reads weights.
type reader interface {
	task
	// weights returns weights that a worker's share begins with. It may be
	// called while the step goes on, and reads nothing that a step changes.
	weights(worker, workers int) []byte
}

const (
	// warmBytes is how much of the weights that it needs next a waiting thread
	// brings into its cache: a good part of a core's second level.
	warmBytes = 512 << 10
	// warmStep is how much of it between two looks for work.
	warmStep = 2 << 10
	// minWork is the number of multiplications below which waking other threads costs more than it saves.
	minWork = 1 << 17
	// maxPieces is into how many pieces the share of a worker is cut at most. Each
	// is half of what is left, so that most of a share is read in one go and its
	// end can be taken over where a worker is slow.
	maxPieces = 8
	// spins is how often a waiting thread looks again before it lets others run.
	spins = 4000
	// yields is how often it then looks, letting others run each time, before it sleeps.
	yields = 200
)

// pool is a set of threads that share the units of a task. Each worker has a
// share of its own, which lies in one piece in memory, and takes from the shares
// of others when it is done. The caller of run is worker 0 and never waits for a
// worker that has not begun: what others have not claimed it does itself, so a
// busy machine costs no more than the help it withholds. A worker that waits
// reads the weights that it will need next, so that memory is not idle while a
// task too small to share is done. Workers sleep when there is nothing to do.
//
// A task takes some ten microseconds, so what counts is how often a line of
// memory goes from one core to another: what announces a task is one line, a
// worker's claims touch its own, and what it has done is told once.
type pool struct {
	read func(data []byte) uint64
	// minWork is the number of multiplications of a task below which it is not shared.
	minWork int

	_ line
	// The current task. They are written before the number, and so belong to it
	// when a claim succeeds: the task does not end before that claim is done.
	op     atomic.Pointer[operation]
	units  atomic.Int64
	pieces atomic.Uint32 // of each share
	number atomic.Uint32

	_        line
	finished atomic.Uint64 // pieces of all tasks so far

	_      line
	shares []share

	closing atomic.Bool
	asleep  []atomic.Bool
	wake    []chan struct{}
	done    sync.WaitGroup
}

// line keeps what stands before and after it in different lines of a cache.
type line [128]byte

// share is what of a task is a worker's own. Its state holds the number of the
// task in the upper half, then how many pieces it has, then which is the next
// unclaimed one, of 16 bits each. The first claim brings it to the number of the
// current task: all pieces of the task before were claimed then. While one is
// left the task goes on, and what the pool tells of it belongs to it.
type share struct {
	state atomic.Uint64
	_     line
}

// portion returns the units of a task that are a worker's own.
func portion(units, worker, workers int) (first, end int) {
	return units * worker / workers, units * (worker + 1) / workers
}

// newPool starts workers-1 threads. read reads memory.
func newPool(workers, minWork int, read func(data []byte) uint64) *pool {
	p := &pool{read: read, minWork: minWork, shares: make([]share, workers), asleep: make([]atomic.Bool, workers), wake: make([]chan struct{}, workers)}
	for w := 1; w < workers; w++ {
		p.wake[w] = make(chan struct{}, 1)
		p.done.Add(1)
		go p.loop(w)
	}
	return p
}

// run shares the units of an operation between the workers and returns when all are done.
func (p *pool) run(op *operation) {
	units, work := op.task.prepare()
	if units == 0 {
		return
	}
	workers := len(p.shares)
	if workers == 1 || units == 1 || work < p.minWork {
		op.task.do(0, 0, units)
		return
	}
	pieces := min(maxPieces, bits.Len(uint((units+workers-1)/workers)))
	goal := p.finished.Load() + uint64(pieces*workers)
	p.op.Store(op)
	p.units.Store(int64(units))
	p.pieces.Store(uint32(pieces))
	p.number.Add(1)
	p.signal()
	p.work(0)
	done := func() bool { return p.finished.Load() == goal }
	p.readAhead(0, done)
	for i := 0; !done(); i++ {
		if i >= spins {
			runtime.Gosched()
		}
	}
}

// readAhead reads the weights that worker w will begin the next operation with, until there is news.
func (p *pool) readAhead(w int, news func() bool) {
	op := p.op.Load()
	if op == nil || op.next == nil {
		return
	}
	data := op.next.weights(w, len(p.shares))
	for data = data[:min(len(data), warmBytes)]; len(data) > 0 && !news(); data = data[min(len(data), warmStep):] {
		p.read(data[:min(len(data), warmStep)])
	}
}

// work claims and does pieces, first of the worker's own share, until there are none.
func (p *pool) work(w int) {
	number := p.number.Load()
	op, units, pieces := p.op.Load(), int(p.units.Load()), p.pieces.Load()
	if op == nil {
		return // before the first
	}
	done := uint64(0)
	for i := range p.shares {
		owner := (w + i) % len(p.shares)
		first, end := portion(units, owner, len(p.shares))
		size := end - first
		for {
			n, ok := p.claim(owner, number, pieces)
			if !ok {
				break
			}
			// A piece is half of what is left, and the last is all of it.
			from, to := size-size>>n, size-size>>(n+1)
			if n+1 == pieces {
				to = size
			}
			if from < to {
				op.task.do(w, first+from, first+to)
			}
			done++
		}
	}
	if done > 0 {
		p.finished.Add(done)
	}
}

// claim takes the next piece of an owner's share, if there is one.
func (p *pool) claim(owner int, number, pieces uint32) (piece uint32, ok bool) {
	state := &p.shares[owner].state
	for {
		s := state.Load()
		next := uint32(s & 0xffff)
		switch behind := number - uint32(s>>32); {
		case behind == 0:
			pieces = uint32(s >> 16 & 0xffff)
		case int32(behind) < 0: // the task is over
			return 0, false
		default:
			next = 0
		}
		if next == pieces {
			return 0, false
		}
		if state.CompareAndSwap(s, uint64(number)<<32|uint64(pieces)<<16|uint64(next+1)) {
			return next, true
		}
	}
}

// signal wakes the workers that sleep.
func (p *pool) signal() {
	for w := 1; w < len(p.shares); w++ {
		if p.asleep[w].Load() && p.asleep[w].CompareAndSwap(true, false) {
			p.wake[w] <- struct{}{}
		}
	}
}

// loop serves worker w until the pool is closed.
func (p *pool) loop(w int) {
	defer p.done.Done()
	for seen := uint32(0); !p.closing.Load(); {
		p.work(w)
		seen = p.await(w, seen)
	}
}

// await returns the number of the current task when it is later than the seen one, or when the pool closes.
func (p *pool) await(w int, seen uint32) uint32 {
	news := func() bool { return p.number.Load() != seen || p.closing.Load() }
	p.readAhead(w, news)
	for {
		for i := range spins + yields {
			if news() {
				return p.number.Load()
			}
			if i >= spins {
				runtime.Gosched()
			}
		}
		p.asleep[w].Store(true)
		// Look once more: the announcement may have come before the flag. Whoever clears the flag owns the wake-up.
		if news() && p.asleep[w].CompareAndSwap(true, false) {
			return p.number.Load()
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
