package metal_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/program"
)

// randomPrograms is the number of random programs to run, behind those that are
// known, and checkedPrograms that of all to run with every access checked.
const randomPrograms, checkedPrograms = 220, 20

// programOptions are those that random programs are run with.
var programOptions = backends.Options{Activations: backends.ActivationsStatic, Cache: backends.CacheInt8, MaxRows: 8, MaxLogits: 8}

// TestPrograms runs programs whose operations are valid and nothing more, most of them random, in batches, token by token and in a burst. What follows what, and which buffer is
// used for what, must make no difference to a bit.
func TestPrograms(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	if testing.Short() {
		t.Skip("takes long, and what runs concurrently is in other tests")
	}
	// All programs get the kernels of all, so that these are put together once.
	names := kernelSet{}
	all := knownPrograms()
	for seed := range uint64(randomPrograms) {
		all = append(all, newRandomProgram(seed))
	}
	for i, r := range all {
		if err := r.p.Validate(); err != nil {
			t.Fatalf("program %d: %v", i, err)
		}
		e, err := metal.New(names).Compile(t.Context(), r.p, r.w, programOptions)
		if err != nil {
			t.Fatalf("program %d: %v", i, err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range all {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			r.run(t, names, metaltest.Options{Workers: 1, Seed: uint64(i) + 1})
			if i < checkedPrograms {
				r.run(t, names, metaltest.Options{Checked: true, Seed: uint64(i) + 2})
			}
			if t.Failed() {
				data, _ := program.Encode(r.p)
				t.Logf("%s", data)
			}
		})
	}
}

// kernelSet is a driver of devices that do nothing but note the kernels that they should load.
type kernelSet map[string]bool

func (s kernelSet) Open() (metal.Device, error) { return notingDevice{&idleDevice{}, s}, nil }

// notingDevice is a device of a kernelSet.
type notingDevice struct {
	*idleDevice
	set kernelSet
}

func (d notingDevice) Load(_ context.Context, _ string, names []string) error {
	for _, name := range names {
		d.set[name] = true
	}
	return nil
}

// fullDriver is a driver of devices that load the kernels of a set.
type fullDriver struct {
	metal.Driver
	set kernelSet
}

func (d fullDriver) Open() (metal.Device, error) {
	device, err := d.Driver.Open()
	return fullDevice{device, d.set}, err
}

// fullDevice is a device of a fullDriver.
type fullDevice struct {
	metal.Device
	set kernelSet
}

func (d fullDevice) Load(ctx context.Context, source string, _ []string) error {
	return d.Device.Load(ctx, source, slices.Sorted(maps.Keys(d.set)))
}

// outcome is what a step gives for a row.
type outcome struct {
	pos                   int
	logits, peaks, hidden []float32
}

// run runs a program on a device and compares all that it gives.
func (r *randomProgram) run(t *testing.T, names kernelSet, o metaltest.Options) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	e, err := metal.New(fullDriver{metaltest.New(o), names}).Compile(t.Context(), r.p, r.w, programOptions)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	s := newSlot(t, e)
	var tokens []int32
	var got []outcome
	// Rows of a batch, and the first of them that wants logits.
	for _, step := range []struct{ rows, logits int }{{3, 0}, {2, 1}, {2, 2}, {1, 1}, {1, 0}, {1, 0}} {
		var rows []backends.Row
		for i := range step.rows {
			tokens = append(tokens, rng.Int32N(vocab))
			rows = append(rows, backends.Row{Token: tokens[len(tokens)-1], Slot: s, Pos: len(tokens) - 1, Logits: i >= step.logits})
		}
		if err := e.Step(t.Context(), &backends.Batch{Rows: rows}); err != nil {
			t.Fatal(err)
		}
		for i := range step.rows - step.logits {
			got = append(got, outcome{
				len(tokens) - step.rows + step.logits + i, slices.Clone(e.Logits(i)), slices.Clone(e.Peaks(i)), slices.Clone(e.Hidden(i)),
			})
		}
	}
	fed := len(tokens)
	tokens = append(tokens, rng.Int32N(vocab))
	b := &backends.Burst{
		Row: backends.Row{Token: tokens[fed], Slot: s, Pos: fed}, Steps: 3,
		Emit: func(token int32) bool { tokens = append(tokens, token); return true },
	}
	_, failed := e.(backends.Generator).Generate(t.Context(), b)
	if failed != nil && !errors.Is(failed, backends.ErrLogits) {
		t.Fatal(failed)
	}

	logits, hidden := backendtest.Interpret(r.p, r.w, programOptions, tokens)
	for _, g := range got {
		r.compare(t, g.pos, "logit", g.logits, logits[g.pos])
		r.compare(t, g.pos, "peak", g.peaks, peaksOf(logits[g.pos]))
		r.compare(t, g.pos, "hidden number", g.hidden, hidden[g.pos])
	}
	for i := range b.Steps {
		picked, want := int32(-1), greedy(logits[fed+i])
		if fed+i+1 < len(tokens) {
			picked = tokens[fed+i+1]
		}
		if picked != want {
			t.Errorf("%+v: step %d of a burst picks %d, want %d (%v)", o, i, picked, want, failed)
		}
		if picked < 0 || want < 0 {
			break
		}
	}
}

// compare compares numbers of a token.
func (r *randomProgram) compare(t *testing.T, pos int, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("token %d: %d of a %s, want %d", pos, len(got), what, len(want))
	}
	if i := firstDiff(got, want); i >= 0 {
		t.Errorf("token %d: %s %d is %g, want %g", pos, what, i, got[i], want[i])
	}
}

// peaksOf returns the peaks of logits.
func peaksOf(logits []float32) (peaks []float32) {
	for run := range slices.Chunk(logits, backends.PeakRun) {
		peaks = append(peaks, backends.Peak(run))
	}
	return peaks
}

// greedy returns the first of the largest logits, and -1 where there is none to pick.
func greedy(logits []float32) int32 {
	top := backends.Peak(logits)
	if math.IsNaN(float64(top)) || math.IsInf(float64(top), 0) {
		return -1
	}
	return int32(slices.Index(logits, top))
}
