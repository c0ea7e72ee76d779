package engine_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
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
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, tc := range []struct {
		name      string
		sampling  engine.Sampling
		parameter string // "" when valid
	}{
		{"zero value", engine.Sampling{}, ""},
		{"all at the upper end", engine.Sampling{Temperature: math.MaxFloat32, TopK: math.MaxInt, TopP: 1, MinP: 1, RepeatPenalty: 100, RepeatLast: math.MaxInt, Seed: math.MaxUint64}, ""},
		{"whole history", engine.Sampling{RepeatLast: -1}, ""},
		{"negative temperature", engine.Sampling{Temperature: -0.1}, "temperature"},
		{"temperature nan", engine.Sampling{Temperature: nan}, "temperature"},
		{"temperature infinite", engine.Sampling{Temperature: inf}, "temperature"},
		{"negative top_k", engine.Sampling{TopK: -1}, "top_k"},
		{"negative top_p", engine.Sampling{TopP: -0.5}, "top_p"},
		{"top_p above 1", engine.Sampling{TopP: 1.01}, "top_p"},
		{"top_p nan", engine.Sampling{TopP: nan}, "top_p"},
		{"negative min_p", engine.Sampling{MinP: -0.5}, "min_p"},
		{"min_p above 1", engine.Sampling{MinP: 1.01}, "min_p"},
		{"min_p nan", engine.Sampling{MinP: nan}, "min_p"},
		{"negative penalty", engine.Sampling{RepeatPenalty: -1}, "repetition_penalty"},
		{"penalty nan", engine.Sampling{RepeatPenalty: nan}, "repetition_penalty"},
		{"penalty too large", engine.Sampling{RepeatPenalty: 101}, "repetition_penalty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := engine.NewSampler(tc.sampling)
			if tc.parameter == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var se *engine.SamplingError
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
		{"filters change nothing", engine.Sampling{TopK: 2, TopP: 0.1, MinP: 0.9, Seed: 7}, []float32{1, 2, 3}, nil, 2},
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

// allowed returns the tokens that may be drawn and their probabilities, by sorting everything, in float64.
func allowed(s engine.Sampling, logits []float32) map[int32]float64 {
	type token struct {
		id int32
		p  float64
		l  float32
	}
	var tokens []token
	for i, l := range logits {
		if !math.IsInf(float64(l), -1) {
			tokens = append(tokens, token{id: int32(i), l: l})
		}
	}
	sort.SliceStable(tokens, func(i, j int) bool { return tokens[i].l > tokens[j].l })
	if s.TopK > 0 && s.TopK < len(tokens) {
		tokens = tokens[:s.TopK]
	}
	total := 0.0
	for i := range tokens {
		tokens[i].p = math.Exp(float64(tokens[i].l-tokens[0].l) / float64(s.Temperature))
		total += tokens[i].p
	}
	if s.TopP > 0 && s.TopP < 1 {
		sum := 0.0
		for i, t := range tokens {
			if sum += t.p; sum >= float64(s.TopP)*total {
				tokens = tokens[:i+1]
				break
			}
		}
	}
	total = 0
	kept := map[int32]float64{}
	for _, t := range tokens {
		if t.p >= float64(s.MinP) {
			kept[t.id] = t.p
			total += t.p
		}
	}
	for id := range kept {
		kept[id] /= total
	}
	return kept
}

func TestDrawsFollowTheDistribution(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	smooth := make([]float32, 300)
	for i := range smooth {
		smooth[i] = float32(r.NormFloat64() * 2)
	}
	tied := make([]float32, 64) // seven equal logits at the border of every filter
	for i := range tied {
		tied[i] = float32(i % 7)
	}
	masked := slices.Clone(smooth)
	for i := range masked {
		if i%3 != 0 {
			masked[i] = float32(math.Inf(-1))
		}
	}
	flat := make([]float32, 50)

	for _, logits := range []struct {
		name   string
		values []float32
	}{{"smooth", smooth}, {"tied", tied}, {"masked", masked}, {"flat", flat}, {"one", []float32{3}}} {
		for _, s := range []engine.Sampling{
			{Temperature: 1},
			{Temperature: 0.3},
			{Temperature: 5},
			{Temperature: 1, TopK: 1},
			{Temperature: 1, TopK: 10},
			{Temperature: 1, TopK: 1000},
			{Temperature: 1, TopP: 0.9},
			{Temperature: 0.7, TopP: 0.05},
			{Temperature: 1, TopP: 1e-30},
			{Temperature: 1, TopP: 0.99999},
			{Temperature: 1, MinP: 0.1},
			{Temperature: 1, MinP: 1},
			{Temperature: 1, TopK: 20, TopP: 0.95, MinP: 0.02},
			{Temperature: 2, TopK: 64, TopP: 0.5, MinP: 0.3},
		} {
			s.Seed = 11
			t.Run(fmt.Sprintf("%s %+v", logits.name, s), func(t *testing.T) {
				want := allowed(s, logits.values)
				sampler := newSampler(t, s)
				const draws = 4000
				count := map[int32]int{}
				for range draws {
					count[pick(t, sampler, logits.values, nil)]++
				}
				for id := range count {
					if _, ok := want[id]; !ok {
						t.Fatalf("drew %d, which is filtered out", id)
					}
				}
				for id, p := range want {
					// Six standard deviations, and a draw for rounding.
					if off := math.Abs(float64(count[id]) - draws*p); off > 6*math.Sqrt(draws*p*(1-p))+1 {
						t.Errorf("drew %d %d times, want about %.1f", id, count[id], draws*p)
					}
				}
			})
		}
	}
}

func TestTinyTemperatureIsGreedy(t *testing.T) {
	for _, temperature := range []float32{math.SmallestNonzeroFloat32, 1e-30, 1e-6} {
		sampler := newSampler(t, engine.Sampling{Temperature: temperature, TopP: 0.9, MinP: 0.1})
		for range 100 {
			if got := pick(t, sampler, []float32{1, 1.5, -3, 1.25}, nil); got != 1 {
				t.Fatalf("temperature %g: got %d, want 1", temperature, got)
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
		{engine.Sampling{Temperature: 1}, []int32{2233, 3688, 4968, 2652, 3345, 1527, 3856, 3661}},
		{engine.Sampling{Temperature: 1, Seed: 1}, []int32{4670, 3726, 4554, 4473, 3582, 1793, 4764, 3415}},
		{engine.Sampling{Temperature: 0.8, TopK: 64, TopP: 0.95, Seed: 42}, []int32{1171, 4035, 379, 348, 2719, 4764, 582, 4035}},
		{engine.Sampling{Temperature: 1.3, TopP: 0.9, MinP: 0.01, RepeatPenalty: 1.1, Seed: math.MaxUint64}, []int32{319, 2401, 1647, 3397, 2354, 3846, 3690, 1093}},
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
		for _, s := range []engine.Sampling{{}, {Temperature: 1}, {Temperature: 1, TopK: 2, TopP: 0.5, MinP: 0.1}, {RepeatPenalty: 2}} {
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
		{Temperature: 1},
		{Temperature: 1, TopP: 0.95},
		{Temperature: 1, TopK: 64, TopP: 0.95},
		{Temperature: 1, MinP: 0.05, RepeatPenalty: 1.1},
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
