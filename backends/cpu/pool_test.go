package cpu

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// patience is how long a test waits for what takes microseconds, unless the machine is busy with other things.
const patience = 5 * time.Minute

// counting is a task that counts how often each unit is done, and by which worker last.
type counting struct{ done, by []atomic.Int32 }

// prepare implements task.
func (c *counting) prepare() (units, work int) { return len(c.done), minWork }

// do implements task.
func (c *counting) do(worker, first, end int) {
	for u := first; u < end; u++ {
		c.done[u].Add(1)
		c.by[u].Store(int32(worker))
		if u%64 == 0 {
			runtime.Gosched() // let others run in the middle of a chunk
		}
	}
}

// TestPool runs many tasks of all sizes, one right after the other: each unit is done once, and
// when run returns everything has been done.
func TestPool(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 3, 8} {
		p := newPool(workers, minWork, nil)
		for i := range 3000 {
			units := i % 131
			c := &counting{make([]atomic.Int32, units), make([]atomic.Int32, units)}
			p.run(&operation{task: c})
			for u := range units {
				if n := c.done[u].Load(); n != 1 {
					t.Fatalf("%d workers, task %d: unit %d of %d was done %d times", workers, i, u, units, n)
				}
				if w := c.by[u].Load(); w < 0 || int(w) >= workers {
					t.Fatalf("%d workers, task %d: unit %d was done by worker %d", workers, i, u, w)
				}
			}
		}
		p.close()
		p.close()
	}
}

// counter is a task that reads weights.
type counter struct {
	counting
	data []byte
}

// weights implements reader.
func (c *counter) weights(worker, workers int) []byte {
	return c.data[len(c.data)*worker/workers : len(c.data)*(worker+1)/workers]
}

// settle returns when all workers of a pool sleep.
func settle(t *testing.T, p *pool) {
	t.Helper()
	awake := func(w int) bool { return !p.asleep[w].Load() }
	for start := time.Now(); slices.ContainsFunc(others(p), awake); time.Sleep(time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatal("idle workers do not go to sleep")
		}
	}
}

// others are the workers of a pool but the caller of run.
func others(p *pool) (workers []int) {
	for w := 1; w < len(p.shares); w++ {
		workers = append(workers, w)
	}
	return workers
}

// TestPoolReadsAhead: who waits reads from its own share of what comes next, in order and no more than the cache holds.
func TestPoolReadsAhead(t *testing.T) {
	t.Parallel()
	const workers = 3
	data := make([]byte, workers*2*warmBytes)
	var seen [workers]atomic.Int64 // bytes of each share
	p := newPool(workers, minWork, func(part []byte) uint64 {
		at := len(data) - cap(part)
		w := at / (len(data) / workers)
		if want := int64(at % (len(data) / workers)); seen[w].Swap(want+int64(len(part))) != want && want != 0 {
			t.Errorf("share %d is read at %d out of turn", w, want)
		}
		return 0
	})
	next := &counter{counting{}, data}
	for range 200 {
		c := &counting{make([]atomic.Int32, 64), make([]atomic.Int32, 64)}
		p.run(&operation{task: c, next: next})
	}
	settle(t, p)
	p.close()
	if n := seen[0].Load(); n > warmBytes {
		t.Errorf("%d bytes of share 0 were read, at most %d", n, warmBytes)
	}
	for _, w := range others(p) { // they had all the time that they needed
		if n := seen[w].Load(); n != warmBytes {
			t.Errorf("%d bytes of share %d were read, want %d", n, w, warmBytes)
		}
	}
}

// meeting is a task whose units end when as many workers have come.
type meeting struct {
	want    int32
	present atomic.Int32
	late    <-chan struct{}
	missed  atomic.Bool
}

// prepare implements task.
func (m *meeting) prepare() (units, work int) { return int(m.want), minWork }

// do implements task.
func (m *meeting) do(int, int, int) {
	m.present.Add(1)
	for m.present.Load() < m.want {
		select {
		case <-m.late:
			m.missed.Store(true)
			return
		default:
			runtime.Gosched()
		}
	}
}

// TestPoolWakes has all workers take part, those that sleep as well.
func TestPoolWakes(t *testing.T) {
	t.Parallel()
	const workers = 4
	p := newPool(workers, minWork, nil)
	defer p.close()
	for range 20 {
		settle(t, p)
		late := make(chan struct{})
		timer := time.AfterFunc(patience, func() { close(late) })
		m := &meeting{want: workers, late: late}
		p.run(&operation{task: m})
		timer.Stop()
		if m.missed.Load() {
			t.Fatalf("%d of %d workers took part", m.present.Load(), workers)
		}
	}
}

// relay is a task whose units each read all of a vector that the tasks before
// wrote in shares, and write their own part of another: what a product does to
// the caches of its workers, without the weights.
type relay struct {
	in, out []float32
	units   int
}

// prepare implements task.
func (r *relay) prepare() (units, work int) { return r.units, minWork }

// do implements task.
func (r *relay) do(_, first, end int) {
	sum := float32(0)
	for i := 0; i < len(r.in); i += 16 { // a line of memory each
		sum += r.in[i]
	}
	from, to := len(r.out)*first/r.units, len(r.out)*end/r.units
	for i := range r.out[from:to] {
		r.out[from+i] = sum
	}
}

// BenchmarkTask measures what sharing a task costs: alone, and with vectors as
// long as those of a decoder that go from core to core.
func BenchmarkTask(b *testing.B) {
	for _, threads := range []int{1, 2} {
		for _, cols := range []int{16, 1536, 12288} {
			b.Run(fmt.Sprintf("threads=%d/cols=%d", threads, cols), func(b *testing.B) {
				p := newPool(threads, minWork, func([]byte) uint64 { return 0 })
				defer p.close()
				x, y := make([]float32, cols), make([]float32, cols)
				there, back := &operation{task: &relay{x, y, 96}}, &operation{task: &relay{y, x, 96}}
				for b.Loop() {
					p.run(there)
					p.run(back)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/task")
			})
		}
	}
}
