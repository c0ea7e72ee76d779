package metal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// small returns a decoder of random weights.
func small() (*program.Program, *backendtest.Weights) {
	return backendtest.Decoder(backendtest.Shape{
		Seed: 9, Format: quant.Int4, Hidden: 64, FFN: 64, HeadDim: 32, Heads: 2, KVHeads: 1, Vocab: 64, Window: 40, Context: 4096,
	})
}

// compile compiles the small decoder.
func compile(t *testing.T, d metal.Driver) (backends.Executor, error) {
	t.Helper()
	p, w := small()
	return metal.New(d).Compile(t.Context(), p, w, backends.Options{MaxRows: 64})
}

// nothingHeld fails a test if a driver's devices still hold anything.
func nothingHeld(t *testing.T, d *metaltest.Driver) {
	t.Helper()
	if c := d.Counts(); c.LiveDevices != 0 || c.LiveBuffers != 0 || c.LiveBytes != 0 || c.LiveLists != 0 || c.Running != 0 {
		t.Errorf("still held: %+v", c)
	}
}

// feed feeds tokens to a slot and returns the last one's logits.
func feed(ctx context.Context, e backends.Executor, s backends.Slot, tokens ...int32) ([]float32, error) {
	var rows []backends.Row
	for i, token := range tokens {
		rows = append(rows, backends.Row{Token: token, Slot: s, Pos: e.Len(s) + i, Logits: i == len(tokens)-1})
	}
	if err := e.Step(ctx, &backends.Batch{Rows: rows}); err != nil {
		return nil, err
	}
	return slices.Clone(e.Logits(0)), nil
}

// newSlot returns an empty slot.
func newSlot(t *testing.T, e backends.Executor) backends.Slot {
	t.Helper()
	s, err := e.NewSlot()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNoDevice: without a device the backend says so.
func TestNoDevice(t *testing.T) {
	t.Parallel()
	d := metaltest.New(metaltest.Options{NoDevice: true})
	if err := metal.New(d).Available(); !errors.Is(err, metal.ErrNoDevice) || !errors.Is(err, fault.ErrNotFound) {
		t.Errorf("available: %v", err)
	}
	if _, err := compile(t, d); !errors.Is(err, metal.ErrNoDevice) {
		t.Errorf("compile: %v", err)
	}
	nothingHeld(t, d)
}

// TestRefusedFormats: matrices and tables that the kernels are not made for are refused, and nothing is held.
func TestRefusedFormats(t *testing.T) {
	t.Parallel()
	plain := backendtest.Shape{
		Format: quant.Int4, Hidden: 64, FFN: 64, HeadDim: 32, Heads: 2, KVHeads: 1, Vocab: 64, Window: 40, Context: 256,
	}
	for _, f := range []quant.Format{quant.Int8x32, quant.Int8x16, quant.Int4x32Min, quant.Int8x32Min} {
		matrices, table, gathered := plain, plain, plain
		matrices.Format, table.Table = f, f
		gathered.Gathered = quant.Format{Bits: f.Bits, Group: 16, Scale: f.Scale, Minimum: true}
		for _, s := range []backendtest.Shape{matrices, table, gathered} {
			p, w := backendtest.Decoder(s)
			d := metaltest.New(metaltest.Options{})
			if _, err := metal.New(d).Compile(t.Context(), p, w, backends.Options{}); !errors.Is(err, errors.ErrUnsupported) || fault.Hint(err) == "" {
				t.Errorf("%+v: %v, hint %q", s, err, fault.Hint(err))
			}
			nothingHeld(t, d)
		}
	}
}

// TestLongHeads: a program that the kernels are not made for is refused, and nothing is held.
func TestLongHeads(t *testing.T) {
	t.Parallel()
	p, w := backendtest.Decoder(backendtest.Shape{
		Format: quant.Int4, Hidden: 64, FFN: 64, HeadDim: 576, Heads: 1, KVHeads: 1, Vocab: 64, Window: 40, Context: 256,
	})
	d := metaltest.New(metaltest.Options{})
	_, err := metal.New(d).Compile(t.Context(), p, w, backends.Options{})
	if !errors.Is(err, errors.ErrUnsupported) || fault.Hint(err) == "" {
		t.Errorf("%v, hint %q", err, fault.Hint(err))
	}
	nothingHeld(t, d)
}

// TestMemory gives the device less and less memory: whatever does not fit is an
// error that says what to do, and what was there goes on.
func TestMemory(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	whole := metaltest.New(metaltest.Options{})
	e, err := compile(t, whole)
	if err != nil {
		t.Fatal(err)
	}
	need := whole.Counts().LiveBytes
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	nothingHeld(t, whole)
	for _, share := range []float64{0.01, 0.3, 0.6, 0.9} {
		d := metaltest.New(metaltest.Options{MemoryBytes: int64(share * float64(need))})
		if _, err := compile(t, d); !errors.Is(err, metal.ErrMemory) || fault.Hint(err) == "" {
			t.Errorf("%g of the memory needed: %v, hint %q", share, err, fault.Hint(err))
		}
		nothingHeld(t, d)
	}

	d := metaltest.New(metaltest.Options{MemoryBytes: need + 1<<20})
	if e, err = compile(t, d); err != nil {
		t.Fatal(err)
	}
	first, err := feed(t.Context(), e, newSlot(t, e), 1, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	long := newSlot(t, e)
	for err == nil {
		_, err = feed(t.Context(), e, long, make([]int32, 64)...)
	}
	if !errors.Is(err, metal.ErrMemory) || fault.Hint(err) == "" {
		t.Fatalf("%d positions: %v", e.Len(long), err)
	}
	if e.Len(long) == 0 || e.Len(long)%64 != 0 {
		t.Errorf("a batch that did not fit left %d positions", e.Len(long))
	}
	e.FreeSlot(long)
	again, err := feed(t.Context(), e, newSlot(t, e), 1, 2, 3)
	if err != nil || firstDiff(again, first) >= 0 {
		t.Errorf("after memory ran out and was given back: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	nothingHeld(t, d)
}

// spoiled is a driver whose devices get a faulty source.
type spoiled struct{ metal.Driver }

func (s spoiled) Open() (metal.Device, error) {
	d, err := s.Driver.Open()
	return spoiledDevice{d}, err
}

type spoiledDevice struct{ metal.Device }

func (s spoiledDevice) Load(ctx context.Context, source string, kernels []string) error {
	return s.Device.Load(ctx, source+"\nkernel void broken(", kernels)
}

// TestKernelFault: kernels that do not compile are an error with the compiler's words.
func TestKernelFault(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	d := metaltest.New(metaltest.Options{})
	if _, err := compile(t, spoiled{d}); !errors.Is(err, metal.ErrKernel) {
		t.Errorf("compile: %v", err)
	}
	nothingHeld(t, d)
}

// TestLostDevice takes the device away in steps and in bursts: the call fails,
// later ones say why, and closing works.
func TestLostDevice(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	lost := func(t *testing.T, d *metaltest.Driver, e backends.Executor, s backends.Slot, err error) {
		t.Helper()
		if !errors.Is(err, metal.ErrDevice) {
			t.Errorf("the call: %v", err)
		}
		if _, err := feed(t.Context(), e, s, 1); !errors.Is(err, metal.ErrDevice) {
			t.Errorf("the next step: %v", err)
		}
		if _, err := e.NewSlot(); !errors.Is(err, metal.ErrDevice) {
			t.Errorf("a new slot: %v", err)
		}
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		nothingHeld(t, d)
	}
	for _, after := range []int{1, 30, 100} {
		t.Run(fmt.Sprintf("after %d dispatches", after), func(t *testing.T) {
			t.Parallel()
			d := metaltest.New(metaltest.Options{FailAfter: after})
			e, err := compile(t, d)
			if err != nil {
				t.Fatal(err)
			}
			s := newSlot(t, e)
			length := 0
			for err == nil {
				length = e.Len(s)
				_, err = feed(t.Context(), e, s, 1, 2)
			}
			if e.Len(s) != length {
				t.Errorf("the failed step left %d positions, %d before", e.Len(s), length)
			}
			lost(t, d, e, s, err)
		})
	}
	t.Run("in a burst", func(t *testing.T) {
		t.Parallel()
		d := metaltest.New(metaltest.Options{})
		e, err := compile(t, d)
		if err != nil {
			t.Fatal(err)
		}
		s := newSlot(t, e)
		g := e.(backends.Generator)
		for err == nil && e.Len(s) < 4000 {
			_, err = g.Generate(t.Context(), &backends.Burst{
				Row: backends.Row{Token: 1, Slot: s, Pos: e.Len(s)}, Steps: g.MaxBurst(),
				Emit: func(int32) bool { d.Kill(); return true },
			})
		}
		lost(t, d, e, s, err)
	})
}

// TestCancelledBurst ends contexts in the middle of bursts: the session goes on
// from what was fed, and gives what it would have given.
func TestCancelledBurst(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	d := metaltest.New(metaltest.Options{})
	e, err := compile(t, d)
	if err != nil {
		t.Fatal(err)
	}
	g := e.(backends.Generator)
	want, steps := []int32{5}, newSlot(t, e)
	for len(want) < 40 {
		logits, err := feed(t.Context(), e, steps, want[len(want)-1])
		if err != nil {
			t.Fatal(err)
		}
		token, err := new(backends.Picker).Pick(backends.Pick{}, logits, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, token)
	}
	s := newSlot(t, e)
	why := errors.New("enough")
	for cancelled := 0; e.Len(s) < 30; {
		ctx, cancel := context.WithCancelCause(t.Context())
		emitted := 0
		r, err := g.Generate(ctx, &backends.Burst{
			Row: backends.Row{Token: want[e.Len(s)], Slot: s, Pos: e.Len(s)}, Steps: g.MaxBurst(),
			Emit: func(token int32) bool {
				emitted++
				if at := e.Len(s) + emitted; token != want[at] {
					t.Errorf("token %d is %d, want %d", at, token, want[at])
				}
				if cancelled%2 == 0 {
					cancel(why)
				}
				return true
			},
		})
		cancelled++
		if err != nil && !errors.Is(err, why) {
			t.Fatal(err)
		}
		if r.Fed < emitted || r.Fed == 0 {
			t.Fatalf("%d tokens fed, %d emitted", r.Fed, emitted)
		}
		cancel(nil)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	nothingHeld(t, d)
}

// gated is a driver whose submissions have not ended before the channel is closed.
type gated struct {
	metal.Driver
	open chan struct{}
}

func (x gated) Open() (metal.Device, error) {
	d, err := x.Driver.Open()
	return gatedDevice{d, x.open}, err
}

type gatedDevice struct {
	metal.Device
	open chan struct{}
}

func (x gatedDevice) Submit(lists []metal.List) (metal.Submission, error) {
	s, err := x.Device.Submit(lists)
	return gatedSubmission{s, x.open}, err
}

type gatedSubmission struct {
	metal.Submission
	open chan struct{}
}

func (x gatedSubmission) Wait() error {
	<-x.open
	return x.Submission.Wait()
}

// compileGated compiles for a device whose submissions have not ended before open is called.
func compileGated(t *testing.T) (d *metaltest.Driver, e backends.Executor, open func()) {
	t.Helper()
	t.Parallel()
	metaltest.Require(t)
	d = metaltest.New(metaltest.Options{})
	gate := make(chan struct{})
	e, err := compile(t, gated{d, gate})
	if err != nil {
		t.Fatal(err)
	}
	return d, e, sync.OnceFunc(func() { close(gate) })
}

// TestPanicInBurst has whoever takes a token panic while the device works: the burst has
// ended when the panic comes out of it, so that nothing is freed under the device.
func TestPanicInBurst(t *testing.T) {
	d, e, open := compileGated(t)
	s := newSlot(t, e)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic comes out of the burst")
			}
		}()
		g := e.(backends.Generator)
		_, _ = g.Generate(t.Context(), &backends.Burst{
			Row: backends.Row{Token: 1, Slot: s}, Steps: g.MaxBurst(),
			Emit: func(int32) bool {
				open()
				panic("enough")
			},
		})
	}()
	if n := d.Counts().Running; n != 0 {
		t.Errorf("%d submissions are still running", n)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	nothingHeld(t, d)
}

// eager is a driver whose submissions have ended when they are made: all tokens of a burst come at once.
type eager struct{ metal.Driver }

func (x eager) Open() (metal.Device, error) {
	d, err := x.Driver.Open()
	return eagerDevice{d}, err
}

type eagerDevice struct{ metal.Device }

func (x eagerDevice) Submit(lists []metal.List) (metal.Submission, error) {
	s, err := x.Device.Submit(lists)
	if err != nil {
		return nil, err
	}
	return ended{s.Wait()}, nil
}

type ended struct{ err error }

func (x ended) Wait() error { return x.err }

// TestEagerBursts holds bursts to the contract on a device that is faster than whoever waits for it.
func TestEagerBursts(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	if testing.Short() {
		t.Skip("takes long")
	}
	if err := backendtest.TestGenerator(t.Context(), metal.New(eager{metaltest.New(metaltest.Options{})})); err != nil {
		t.Error(err)
	}
}
