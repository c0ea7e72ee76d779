package engine_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/internal/fault"
)

func newSampler(t testing.TB, s engine.Sampling) *engine.Sampler {
	t.Helper()
	sampler, err := engine.NewSampler(s)
	if err != nil {
		t.Fatal(err)
	}
	return sampler
}

func TestSamplingRanges(t *testing.T) {
	nan := float32(math.NaN())
	for _, tc := range []struct {
		name      string
		sampling  engine.Sampling
		parameter string // "" when valid
	}{
		{"zero value", engine.Sampling{}, ""},
		{"all at the upper end", engine.Sampling{RepeatPenalty: 100, RepeatLast: math.MaxInt, Pick: backends.Pick{Temperature: math.MaxFloat32, TopK: math.MaxInt, TopP: 1, MinP: 1}, Seed: math.MaxUint64}, ""},
		{"whole history", engine.Sampling{RepeatLast: -1}, ""},
		{"negative penalty", engine.Sampling{RepeatPenalty: -1}, "repetition_penalty"},
		{"penalty nan", engine.Sampling{RepeatPenalty: nan}, "repetition_penalty"},
		{"penalty too large", engine.Sampling{RepeatPenalty: 101}, "repetition_penalty"},
		{"pick", engine.Sampling{Pick: backends.Pick{TopP: 1.01}}, "top_p"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := engine.NewSampler(tc.sampling)
			if tc.parameter == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var se *backends.SamplingError
			if !errors.As(err, &se) || se.Parameter != tc.parameter {
				t.Fatalf("error %v, want one about %s", err, tc.parameter)
			}
			if !errors.Is(err, fault.ErrUsage) || fault.Hint(err) == "" {
				t.Errorf("error %v: no usage error with a hint", err)
			}
		})
	}
}

// peaksOf returns the largest logits of each run.
func peaksOf(logits []float32) (peaks []float32) {
	for run := range slices.Chunk(logits, backends.PeakRun) {
		peaks = append(peaks, backends.Peak(run))
	}
	return peaks
}

// pick returns the token of one step.
func pick(t testing.TB, s *engine.Sampler, logits []float32, history []int32) int32 {
	t.Helper()
	id, err := s.Next(logits, nil, history)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestGreedy(t *testing.T) {
	ninf := float32(math.Inf(-1))
	for _, tc := range []struct {
		name     string
		sampling engine.Sampling
		logits   []float32
		history  []int32
		want     int32
	}{
		{"largest", engine.Sampling{}, []float32{-3, 2, 5, 1}, nil, 2},
		{"ties take the lowest id", engine.Sampling{}, []float32{1, 4, 4, 4}, nil, 1},
		{"all negative", engine.Sampling{}, []float32{-5, -4, -6}, nil, 1},
		{"zeros of both signs tie", engine.Sampling{}, []float32{-1, float32(math.Copysign(0, -1)), 0}, nil, 1},
		{"masked", engine.Sampling{}, []float32{ninf, ninf, -100}, nil, 2},
		{"filters change nothing", engine.Sampling{Pick: backends.Pick{TopK: 2, TopP: 0.1, MinP: 0.9}, Seed: 7}, []float32{1, 2, 3}, nil, 2},
		{"penalty divides positive logits", engine.Sampling{RepeatPenalty: 2}, []float32{0, 5, 3}, []int32{1}, 2},
		{"penalty multiplies negative logits", engine.Sampling{RepeatPenalty: 2}, []float32{-8, -2, -3}, []int32{1}, 2},
		{"penalty counts a token once", engine.Sampling{RepeatPenalty: 1.5}, []float32{0, 5, 3}, []int32{1, 1, 1, 1}, 1},
		{"penalty below 1 draws to the history", engine.Sampling{RepeatPenalty: 0.5}, []float32{0, 5, 3}, []int32{2}, 2},
		{"penalty forgets", engine.Sampling{RepeatPenalty: 2, RepeatLast: 2}, []float32{0, 5, 3}, []int32{1, 0, 0}, 1},
		{"penalty remembers", engine.Sampling{RepeatPenalty: 2, RepeatLast: 3}, []float32{0, 5, 3}, []int32{1, 0, 0}, 2},
		{"penalty on all", engine.Sampling{RepeatPenalty: 2, RepeatLast: -1}, []float32{0, 5, 3}, append([]int32{1}, make([]int32, 1000)...), 2},
		{"penalty forgets by default", engine.Sampling{RepeatPenalty: 2}, []float32{0, 5, 3}, append([]int32{1}, make([]int32, engine.DefaultRepeatLast)...), 1},
		{"tokens without a logit", engine.Sampling{RepeatPenalty: 2}, []float32{0, 5, 3}, []int32{7, -1, 3}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := slices.Clone(tc.logits)
			if got := pick(t, newSampler(t, tc.sampling), tc.logits, tc.history); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
			if diff := cmp.Diff(before, tc.logits); diff != "" {
				t.Errorf("logits changed: %s", diff)
			}
		})
	}
}

// TestRandomNumbers has a sampler take one number of its generator for each
// pick that is not greedy, and none for others.
func TestRandomNumbers(t *testing.T) {
	logits := gemmaLogits()[:3000]
	for _, s := range samplings() {
		s.Seed = 9
		source := rand.NewPCG(s.Seed, 0x9e3779b97f4a7c15)
		sampler := newSampler(t, s)
		var picker backends.Picker
		for i := range 20 {
			var random uint64
			if s.Temperature > 0 {
				random = source.Uint64()
			}
			want, err := picker.Pick(s.Pick, logits, nil, random)
			if err != nil {
				t.Fatal(err)
			}
			if got := pick(t, sampler, logits, nil); got != want {
				t.Fatalf("%+v, pick %d: token %d, want %d", s, i, got, want)
			}
		}
	}
}

// TestSeed holds tokens that every machine must give: no part of the
// arithmetic may depend on the platform or on the compiler.
func TestSeed(t *testing.T) {
	logits := make([]float32, 5000)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range logits {
		logits[i] = float32(r.IntN(1<<20))/(1<<16) - 8
	}
	for _, tc := range []struct {
		sampling engine.Sampling
		want     []int32
	}{
		{engine.Sampling{Pick: backends.Pick{Temperature: 1}}, []int32{2233, 3688, 4968, 2652, 3345, 1527, 3856, 3661}},
		{engine.Sampling{Pick: backends.Pick{Temperature: 1}, Seed: 1}, []int32{4670, 3726, 4554, 4473, 3582, 1793, 4764, 3415}},
		{engine.Sampling{Pick: backends.Pick{Temperature: 0.8, TopK: 64, TopP: 0.95}, Seed: 42}, []int32{1171, 4035, 379, 348, 2719, 4764, 582, 4035}},
		{engine.Sampling{RepeatPenalty: 1.1, Pick: backends.Pick{Temperature: 1.3, TopP: 0.9, MinP: 0.01}, Seed: math.MaxUint64}, []int32{319, 2401, 1647, 3397, 2354, 3846, 3690, 1093}},
	} {
		t.Run(fmt.Sprintf("%+v", tc.sampling), func(t *testing.T) {
			sampler := newSampler(t, tc.sampling)
			var got []int32
			for range 8 {
				got = append(got, pick(t, sampler, logits, got))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("tokens (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnusableLogits(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, tc := range []struct {
		name   string
		logits []float32
	}{
		{"none", nil},
		{"nan first", []float32{nan, 1, 2}},
		{"nan last", []float32{1, 2, nan}},
		{"all nan", []float32{nan, nan}},
		{"infinite", []float32{1, inf, 2}},
		{"all masked", []float32{-inf, -inf}},
		{"nan among masked", []float32{-inf, nan}},
	} {
		for _, s := range []engine.Sampling{{}, {Pick: backends.Pick{Temperature: 1, TopK: 2, TopP: 0.5, MinP: 0.1}}, {RepeatPenalty: 2}} {
			t.Run(fmt.Sprintf("%s %+v", tc.name, s), func(t *testing.T) {
				for _, peaks := range [][]float32{nil, peaksOf(tc.logits)} {
					if id, err := newSampler(t, s).Next(tc.logits, peaks, []int32{0}); !errors.Is(err, engine.ErrLogits) {
						t.Errorf("got token %d and error %v, want ErrLogits", id, err)
					}
				}
			})
		}
	}
}

// TestPeaks picks with and without the peaks that a backend gives.
func TestPeaks(t *testing.T) {
	logits := gemmaLogits()[:262144-100] // the last run is short
	peaks := peaksOf(logits)
	for _, s := range samplings() {
		plain, peaked := newSampler(t, s), newSampler(t, s)
		for i := range 8 {
			want := pick(t, plain, logits, []int32{5})
			got, err := peaked.Next(logits, peaks, []int32{5})
			if err != nil || got != want {
				t.Fatalf("%+v, pick %d: token %d, %v, want %d", s, i, got, err, want)
			}
		}
	}
}

func TestSamplerAllocatesNothing(t *testing.T) {
	logits := gemmaLogits()
	history := []int32{1, 2, 3}
	for _, s := range samplings() {
		sampler := newSampler(t, s)
		pick(t, sampler, logits, history)
		if n := testing.AllocsPerRun(10, func() { pick(t, sampler, logits, history) }); n != 0 {
			t.Errorf("%+v: %g allocations a token", s, n)
		}
	}
}

// gemmaLogits returns logits as many and as spread as Gemma's.
func gemmaLogits() []float32 {
	r := rand.New(rand.NewPCG(5, 6))
	logits := make([]float32, 262144)
	for i := range logits {
		logits[i] = float32(r.NormFloat64()*4 - 5)
	}
	return logits
}

// samplings returns one of each way through the sampler.
func samplings() []engine.Sampling {
	return []engine.Sampling{
		{},
		{RepeatPenalty: 1.1},
		{Pick: backends.Pick{Temperature: 1}},
		{Pick: backends.Pick{Temperature: 1, TopP: 0.95}},
		{Pick: backends.Pick{Temperature: 1, TopK: 64, TopP: 0.95}},
		{RepeatPenalty: 1.1, Pick: backends.Pick{Temperature: 1, MinP: 0.05}},
	}
}

func BenchmarkNext(b *testing.B) {
	logits := gemmaLogits()
	for _, s := range samplings() {
		b.Run(fmt.Sprintf("%+v", s), func(b *testing.B) {
			sampler := newSampler(b, s)
			history, peaks := []int32{1, 2, 3}, peaksOf(logits)
			for b.Loop() {
				if _, err := sampler.Next(logits, peaks, history); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
