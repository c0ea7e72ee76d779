package metal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/zoo-sdk/zoo/internal/fmath"
	"github.com/zoo-sdk/zoo/quant"
)

// Check is the outcome of one check of a device.
type Check struct {
	// Name says in a word what was checked.
	Name string
	// Detail says what was found, in words and numbers.
	Detail string
	// Err is nil if the device does what it should.
	Err error
	// Took is how long the check took.
	Took time.Duration
}

// Diagnose checks whether a device does what programs need of it, and how fast.
// It calls report after each check and goes on as long as that makes sense. The
// error joins those of all checks. It takes some seconds and a quarter of the
// device's memory, 1 GiB at most.
func Diagnose(ctx context.Context, d Driver, report func(Check)) error {
	x := &diagnosis{}
	checks := []struct {
		name string
		// needed says that there is nothing to check without it.
		needed bool
		run    func(context.Context) (string, error)
	}{
		{"device", true, func(context.Context) (string, error) { return x.open(d) }},
		{"kernels", true, x.load},
		{"threads", false, x.threads},
		{"arithmetic", false, x.arithmetic},
		{"mapping", false, x.mapping},
		{"order", false, x.order},
		{"lists", false, x.lists},
		{"visibility", false, x.visibility},
		{"bandwidth", false, x.bandwidth},
	}
	var all []error
	for _, c := range checks {
		if ctx.Err() != nil {
			all = append(all, context.Cause(ctx))
			break
		}
		start := time.Now()
		detail, err := c.run(ctx)
		x.release()
		report(Check{c.name, detail, err, time.Since(start)})
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", c.name, err))
			if c.needed {
				break
			}
		}
	}
	if err := x.close(); err != nil {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// diagnosis checks one device.
type diagnosis struct {
	device Device
	info   DeviceInfo
	held   []interface{ Release() } // buffers and lists of the check that runs
}

// diagnoseThreads is how many threads the groups of most checks have.
const diagnoseThreads = 256

// open opens the device.
func (x *diagnosis) open(d Driver) (string, error) {
	device, err := d.Open()
	if err != nil {
		return "", err
	}
	x.device, x.info = device, device.Info()
	i := x.info
	return fmt.Sprintf("%s, %d MB for models, buffers of up to %d MB, pages of %d KB, groups of up to %d threads that share %d KB",
		i.Name, i.MemoryBytes>>20, i.MaxBufferBytes>>20, i.PageBytes>>10, i.MaxThreads, i.SharedBytes>>10), nil
}

// close closes the device, if it is open.
func (x *diagnosis) close() error {
	if x.device == nil {
		return nil
	}
	device := x.device
	x.device = nil
	return device.Close()
}

// release releases what a check has left.
func (x *diagnosis) release() {
	for _, r := range x.held {
		r.Release()
	}
	x.held = nil
}

// load compiles all kernels that there are.
func (x *diagnosis) load(ctx context.Context) (string, error) {
	text := source()
	names := declaredKernels(text)
	return fmt.Sprintf("%d kernels", len(names)), x.device.Load(ctx, text, names)
}

// buffer returns memory that is released after the check.
func (x *diagnosis) buffer(sizeBytes int) (Buffer, error) {
	b, err := x.device.Alloc(sizeBytes)
	if err == nil {
		x.held = append(x.held, b)
	}
	return b, err
}

// list returns a list that is released after the check.
func (x *diagnosis) list(dispatches ...Dispatch) (List, error) {
	l, err := x.device.Record(dispatches)
	if err == nil {
		x.held = append(x.held, l)
	}
	return l, err
}

// run runs dispatches as one list and waits.
func (x *diagnosis) run(dispatches ...Dispatch) error {
	l, err := x.list(dispatches...)
	if err != nil {
		return err
	}
	return x.submit(l)
}

// submit runs lists and waits.
func (x *diagnosis) submit(lists ...List) error {
	s, err := x.device.Submit(lists)
	if err != nil {
		return err
	}
	return s.Wait()
}

// fastest returns the shortest time that some submissions of the same lists take.
func (x *diagnosis) fastest(lists ...List) (time.Duration, error) {
	const times = 5
	best := time.Duration(math.MaxInt64)
	for range times {
		start := time.Now()
		if err := x.submit(lists...); err != nil {
			return 0, err
		}
		best = min(best, time.Since(start))
	}
	return best, nil
}

// diagnoseArgs is DiagnoseArgs.
type diagnoseArgs struct{ Count, Value, At uint32 }

// diagnoseDispatch returns a dispatch of a kernel of diagnose.metal.
func diagnoseDispatch(kernel string, args diagnoseArgs, groups, threads int, buffers ...Buffer) Dispatch {
	d := Dispatch{Kernel: kernel, Args: encodeArgs(args), Groups: [3]int{groups, 1, 1}, Threads: threads}
	for _, b := range buffers {
		d.Buffers = append(d.Buffers, whole(b))
	}
	return d
}

// wordAt returns word i of memory.
func wordAt(memory []byte, i int) uint32 { return binary.LittleEndian.Uint32(memory[4*i:]) }

// threads checks where threads find themselves, what they share, that all of a grid run, and that an empty grid does nothing.
func (x *diagnosis) threads(context.Context) (string, error) {
	const columns, rows, mask = 3, 2, 0x5a5a5a5a
	for _, threads := range []int{SIMDWidth, diagnoseThreads, x.info.MaxThreads} {
		out, err := x.buffer(4 * columns * rows * threads)
		if err != nil {
			return "", err
		}
		d := diagnoseDispatch("diagnose_threads", diagnoseArgs{Count: columns, Value: mask}, columns, threads, out)
		d.Groups[1], d.SharedBytes = rows, 4*threads
		dispatches := []Dispatch{d}
		for i := range d.Groups {
			empty := d
			empty.Args, empty.Groups[i] = encodeArgs(diagnoseArgs{Count: columns, Value: ^uint32(mask)}), 0
			dispatches = append(dispatches, empty)
		}
		if err := x.run(dispatches...); err != nil {
			return "", err
		}
		for i := range columns * rows * threads {
			group, thread := i/threads, i%threads
			from := threads - 1 - (thread ^ 1)
			want := uint32(group<<16|threads/SIMDWidth<<10|from/SIMDWidth<<5|from%SIMDWidth) ^ mask
			if got := wordAt(out.Bytes(), i); got != want {
				return "", fmt.Errorf("thread %d of %d in group %d wrote %#x, want %#x", thread, threads, group, got, want)
			}
		}
	}
	return fmt.Sprintf("groups of %d to %d threads", SIMDWidth, x.info.MaxThreads), nil
}

// diagnoseOperations are those of the kernel diagnose_floats, as every backend computes them.
var diagnoseOperations = []struct {
	name string
	of   func(a, b, c float32) float32
}{
	{"a*b + c", func(a, b, c float32) float32 { return float32(a*b) + c }},
	{"a/b", func(a, b, _ float32) float32 { return a / b }},
	{"sqrt", func(a, _, _ float32) float32 { return float32(math.Sqrt(math.Abs(float64(a)))) }},
	{"rint", func(a, _, _ float32) float32 { return float32(math.RoundToEven(float64(a))) }},
	{"half", func(a, _, _ float32) float32 { return quant.F16ToF32(quant.F32ToF16(a)) }},
	{"exp", func(a, _, _ float32) float32 { return fmath.Exp(a) }},
	{"gelu", func(a, _, _ float32) float32 { return fmath.GELU(a) }},
}

// arithmetic checks that floats are rounded as everywhere. Numbers below the
// normal ones may count as zero: no result that matters hangs on them.
func (x *diagnosis) arithmetic(context.Context) (string, error) {
	const n, tiny = 1 << 14, 1 << 10 // of them have an a close to the smallest normal number
	in, err := x.buffer(4 * 3 * n)
	if err != nil {
		return "", err
	}
	out, err := x.buffer(4 * len(diagnoseOperations) * n)
	if err != nil {
		return "", err
	}
	values := make([]float32, 3*n)
	state := uint64(1)
	for i := range values {
		state = state*6364136223846793005 + 1442695040888963407 // Knuth's generator
		bits := uint32(state >> 32)
		exponent := uint32(127-20) + bits>>23%32 // 2^-20 to 2^11
		if i < tiny {
			exponent = 1 + bits>>23%4
		}
		values[i] = math.Float32frombits(bits&0x807fffff | exponent<<23)
		binary.LittleEndian.PutUint32(in.Bytes()[4*i:], math.Float32bits(values[i]))
	}
	if err := x.run(diagnoseDispatch("diagnose_floats", diagnoseArgs{Count: n}, n/diagnoseThreads, diagnoseThreads, in, out)); err != nil {
		return "", err
	}
	flushed := 0
	for o, operation := range diagnoseOperations {
		for i := range n {
			a, b, c := values[i], values[n+i], values[2*n+i]
			got, want := math.Float32frombits(wordAt(out.Bytes(), o*n+i)), operation.of(a, b, c)
			switch {
			case math.Float32bits(got) == math.Float32bits(want):
			case got == 0 && math.Abs(float64(want)) < 0x1p-126:
				flushed++
			default:
				return "", fmt.Errorf("%s is %x for a = %x, b = %x, c = %x, want %x", operation.name, got, a, b, c, want)
			}
		}
	}
	return fmt.Sprintf("%d results, bit for bit; %d subnormal ones are zero", len(diagnoseOperations)*n, flushed), nil
}

// order checks that dispatches see what those before wrote, and measures what one costs.
func (x *diagnosis) order(context.Context) (string, error) {
	word, err := x.buffer(16)
	if err != nil {
		return "", err
	}
	const n = 2000
	chain := make([]Dispatch, n)
	want := uint32(0)
	for i := range chain {
		chain[i] = diagnoseDispatch("diagnose_chain", diagnoseArgs{Value: uint32(i)}, 1, SIMDWidth, word)
		want = want*31 + uint32(i)
	}
	long, err := x.list(chain...)
	if err != nil {
		return "", err
	}
	if err := x.submit(long); err != nil {
		return "", err
	}
	if got := wordAt(word.Bytes(), 0); got != want {
		return "", fmt.Errorf("%d dispatches leave %#x, want %#x", n, got, want)
	}
	short, err := x.list(chain[:1]...)
	if err != nil {
		return "", err
	}
	all, err := x.fastest(long)
	if err != nil {
		return "", err
	}
	one, err := x.fastest(short)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%.2f µs a dispatch; a submission takes %.0f µs", perUnit(all-one, n-1), perUnit(one, 1)), nil
}

// perUnit returns microseconds for each of n.
func perUnit(d time.Duration, n int) float64 { return max(0, float64(d.Nanoseconds())/1e3/float64(n)) }

// lists checks that lists of a submission run in order, and measures what one costs.
func (x *diagnosis) lists(context.Context) (string, error) {
	word, err := x.buffer(16)
	if err != nil {
		return "", err
	}
	const n = 64
	lists := make([]List, n)
	want := uint32(0)
	for i := range lists {
		if lists[i], err = x.list(diagnoseDispatch("diagnose_chain", diagnoseArgs{Value: uint32(i)}, 1, SIMDWidth, word)); err != nil {
			return "", err
		}
		want = want*31 + uint32(i)
	}
	if err := x.submit(lists...); err != nil {
		return "", err
	}
	if got := wordAt(word.Bytes(), 0); got != want {
		return "", fmt.Errorf("%d lists leave %#x, want %#x", n, got, want)
	}
	all, err := x.fastest(lists...)
	if err != nil {
		return "", err
	}
	one, err := x.fastest(lists[0])
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%.2f µs a list", perUnit(all-one, n-1)), nil
}

// visibility checks that the host sees a word that a list has told before the
// submission ends, and a later list what the host has told since.
func (x *diagnosis) visibility(ctx context.Context) (string, error) {
	// How many looks take long enough depends on the device. It must not be kept for seconds.
	for looks := uint32(1 << 16); ; looks *= 4 {
		v, err := x.exchange(ctx, looks)
		if err != nil {
			return "", err
		}
		switch last := looks >= 1<<28 || v.took > time.Second/2; {
		case v.seen && v.during:
			return "both ways, even while a kernel runs", nil
		case v.seen && v.after && last:
			return "both ways, but that of the host only by lists that begin later", nil
		case v.seen && last:
			return "", errors.New("the device does not see what the host writes before the submission ends: a generation cannot be cut short")
		case last:
			return "", errors.New("the host sees nothing before the submission ends: tokens come several at a time")
		}
	}
}

// exchanged is what an exchange of words has shown.
type exchanged struct {
	seen          bool // the host saw the device's word while a later list ran
	during, after bool // the device saw the host's answer in that list, in the one after it
	took          time.Duration
}

// exchange has a list tell a word, which the host answers, and two more look for the answer, the first so many times.
func (x *diagnosis) exchange(ctx context.Context, looks uint32) (exchanged, error) {
	const question, answer = 1, 2
	words, err := x.buffer(16) // the answer, the question, and what either list found
	if err != nil {
		return exchanged{}, err
	}
	lists := make([]List, 3)
	for i, d := range []Dispatch{
		diagnoseDispatch("diagnose_tell", diagnoseArgs{Value: question, At: 1}, 1, SIMDWidth, words),
		diagnoseDispatch("diagnose_ask", diagnoseArgs{Count: looks, Value: answer, At: 2}, 1, SIMDWidth, words),
		diagnoseDispatch("diagnose_ask", diagnoseArgs{Count: 1, Value: answer, At: 3}, 1, SIMDWidth, words),
	} {
		if lists[i], err = x.list(d); err != nil {
			return exchanged{}, err
		}
	}
	shared := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(words.Bytes()))), 4)
	start := time.Now()
	s, err := x.device.Submit(lists)
	if err != nil {
		return exchanged{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Wait() }()
	var v exchanged
	for done := false; !done; {
		select {
		case err = <-ended:
			done = true
		default:
			if !v.seen && atomic.LoadUint32(&shared[1]) == question {
				v.seen = true
				atomic.StoreUint32(&shared[0], answer)
			}
			runtime.Gosched()
		}
	}
	v.took = time.Since(start)
	v.during, v.after = shared[2] != 0, shared[3] != 0
	return v, errors.Join(err, ctx.Err())
}
