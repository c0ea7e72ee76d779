package backends_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/fmath"
)

func TestPickRanges(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, tc := range []struct {
		name      string
		pick      backends.Pick
		parameter string // "" when valid
	}{
		{"zero value", backends.Pick{}, ""},
		{"all at the upper end", backends.Pick{Temperature: math.MaxFloat32, TopK: math.MaxInt, TopP: 1, MinP: 1}, ""},
		{"negative temperature", backends.Pick{Temperature: -0.1}, "temperature"},
		{"temperature nan", backends.Pick{Temperature: nan}, "temperature"},
		{"temperature infinite", backends.Pick{Temperature: inf}, "temperature"},
		{"negative top_k", backends.Pick{TopK: -1}, "top_k"},
		{"negative top_p", backends.Pick{TopP: -0.5}, "top_p"},
		{"top_p above 1", backends.Pick{TopP: 1.01}, "top_p"},
		{"top_p nan", backends.Pick{TopP: nan}, "top_p"},
		{"negative min_p", backends.Pick{MinP: -0.5}, "min_p"},
		{"min_p above 1", backends.Pick{MinP: 1.01}, "min_p"},
		{"min_p nan", backends.Pick{MinP: nan}, "min_p"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.pick.Validate()
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

// TestShare holds shares against exact arithmetic.
func TestShare(t *testing.T) {
	below, above := math.Nextafter32(1, 0), math.Nextafter32(0.5, 1)
	for _, p := range []float32{0x1p-64, 0x1.8p-64, 1e-30, math.SmallestNonzeroFloat32, 0.1, 0.5, above, 0.95, below} {
		want, _ := new(big.Float).SetMantExp(big.NewFloat(float64(p)), 64).Int(nil)
		if got := (backends.Pick{TopP: p}).Share(); got != want.Uint64() || got == math.MaxUint64 {
			t.Errorf("share of %g is %d, want %d", p, got, want)
		}
	}
	for _, p := range []float32{0, 1} {
		if got := (backends.Pick{TopP: p}).Share(); got != math.MaxUint64 {
			t.Errorf("share of %g is %d, want the largest number", p, got)
		}
	}
}

// token is one that may be drawn.
type token struct {
	id            int32
	logit, weight float32
	mass          *big.Int
}

// tokens returns what may be drawn, by id: the definition of backends.Pick word
// for word, by sorting everything.
func tokens(p backends.Pick, logits []float32) []token {
	largest := slices.Max(logits)
	all := make([]token, len(logits))
	for i, l := range logits {
		w := fmath.Exp(float32(l-largest) / p.Temperature)
		mass, _ := new(big.Float).SetMantExp(big.NewFloat(float64(w)), 40).Int(nil)
		all[i] = token{int32(i), l, w, mass}
	}
	if p.TopK > 0 {
		sort.SliceStable(all, func(i, j int) bool { return all[i].logit > all[j].logit })
		all = all[:min(p.TopK, len(all))]
	}
	if p.TopP > 0 && p.TopP < 1 {
		sort.Slice(all, func(i, j int) bool {
			return all[i].weight > all[j].weight || all[i].weight == all[j].weight && all[i].id < all[j].id
		})
		share, _ := new(big.Float).SetMantExp(big.NewFloat(float64(p.TopP)), 64).Int(nil)
		want := upper(share, total(all))
		last := slices.IndexFunc(sums(all), func(s *big.Int) bool { return s.Cmp(want) >= 0 })
		all = all[:last+1]
	}
	all = slices.DeleteFunc(all, func(t token) bool { return t.weight < p.MinP || t.mass.Sign() == 0 })
	sort.Slice(all, func(i, j int) bool { return all[i].id < all[j].id })
	return all
}

// total returns the mass of tokens.
func total(list []token) *big.Int {
	sum := new(big.Int)
	for _, t := range list {
		sum.Add(sum, t.mass)
	}
	return sum
}

// upper returns what is left of a product without its lower 64 bits.
func upper(a, b *big.Int) *big.Int { return new(big.Int).Rsh(new(big.Int).Mul(a, b), 64) }

// sums returns the mass of the first token, of the first two, and so on.
func sums(list []token) (all []*big.Int) {
	sum := new(big.Int)
	for _, t := range list {
		sum = new(big.Int).Add(sum, t.mass)
		all = append(all, sum)
	}
	return all
}

// spectra returns logits of several kinds.
func spectra() map[string][]float32 {
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
	steep := make([]float32, 600) // down to where nothing has mass
	for i := range steep {
		steep[i] = float32(i*7%600) / -8
	}
	return map[string][]float32{"smooth": smooth, "tied": tied, "masked": masked, "steep": steep, "flat": make([]float32, 50), "one": {3}}
}

// picks returns ways to pick that are not greedy.
func picks() []backends.Pick {
	return []backends.Pick{
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
		{Temperature: 1, TopP: math.Nextafter32(1, 0)},
		{Temperature: 1, MinP: 0.1},
		{Temperature: 1, MinP: 1},
		{Temperature: 1, TopK: 20, TopP: 0.95, MinP: 0.02},
		{Temperature: 2, TopK: 64, TopP: 0.5, MinP: 0.3},
	}
}

// TestPicksAreAsDefined compares every pick with the definition, at random
// numbers on both sides of each border between two tokens, too.
func TestPicksAreAsDefined(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var picker backends.Picker
	for name, logits := range spectra() {
		for _, p := range picks() {
			list := tokens(p, logits)
			all := sums(list)
			sum := all[len(all)-1]
			randoms := []uint64{0, 1, math.MaxUint64, math.MaxUint64 - 1}
			for _, s := range all {
				// The least number that draws what follows, and the one before.
				border := new(big.Int).Lsh(s, 64)
				border.Add(border, sum).Sub(border, big.NewInt(1)).Div(border, sum)
				if border.IsUint64() {
					randoms = append(randoms, border.Uint64(), border.Uint64()-1)
				}
			}
			for range 100 {
				randoms = append(randoms, r.Uint64())
			}
			for _, random := range randoms {
				at := upper(new(big.Int).SetUint64(random), sum)
				want := list[slices.IndexFunc(all, func(s *big.Int) bool { return s.Cmp(at) > 0 })].id
				for _, peaks := range [][]float32{nil, peaksOf(logits)} {
					got, err := picker.Pick(p, logits, peaks, random)
					if err != nil || got != want {
						t.Fatalf("%s %+v, random number %d: token %d, %v, want %d", name, p, random, got, err, want)
					}
				}
			}
		}
	}
}

// probabilities returns the tokens that may be drawn and their probabilities in float64.
func probabilities(p backends.Pick, logits []float32) map[int32]float64 {
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
	if p.TopK > 0 && p.TopK < len(tokens) {
		tokens = tokens[:p.TopK]
	}
	total := 0.0
	for i := range tokens {
		tokens[i].p = math.Exp(float64(tokens[i].l-tokens[0].l) / float64(p.Temperature))
		total += tokens[i].p
	}
	if p.TopP > 0 && p.TopP < 1 {
		sum := 0.0
		for i, t := range tokens {
			if sum += t.p; sum >= float64(p.TopP)*total {
				tokens = tokens[:i+1]
				break
			}
		}
	}
	total = 0
	kept := map[int32]float64{}
	for _, t := range tokens {
		if t.p >= float64(p.MinP) {
			kept[t.id] = t.p
			total += t.p
		}
	}
	for id := range kept {
		kept[id] /= total
	}
	return kept
}

// TestPicksFollowTheDistribution holds the definition against float64: the
// probabilities are off by no more than float32 and the cut of masses explain.
func TestPicksFollowTheDistribution(t *testing.T) {
	for name, logits := range spectra() {
		for _, p := range picks() {
			t.Run(fmt.Sprintf("%s %+v", name, p), func(t *testing.T) {
				want := probabilities(p, logits)
				list := tokens(p, logits)
				sum, _ := new(big.Float).SetInt(total(list)).Float64()
				for _, token := range list {
					mass, _ := new(big.Float).SetInt(token.mass).Float64()
					probability, ok := want[token.id]
					if off := math.Abs(mass/sum - probability); !ok || off > 1e-6*probability+1e-11 {
						t.Errorf("token %d has a probability of %g, want %g", token.id, mass/sum, probability)
					}
					delete(want, token.id)
				}
				lost := 0.0
				for _, p := range want {
					lost += p
				}
				if lost > 1e-9 {
					t.Errorf("tokens of a probability of %g are missing", lost)
				}
			})
		}
	}
}

// TestDrawsFollowTheDistribution counts draws.
func TestDrawsFollowTheDistribution(t *testing.T) {
	var picker backends.Picker
	for name, logits := range spectra() {
		for _, p := range picks() {
			t.Run(fmt.Sprintf("%s %+v", name, p), func(t *testing.T) {
				source := rand.NewPCG(11, 0x9e3779b97f4a7c15)
				want := probabilities(p, logits)
				const draws = 4000
				count := map[int32]int{}
				for range draws {
					id, err := picker.Pick(p, logits, nil, source.Uint64())
					if err != nil {
						t.Fatal(err)
					}
					count[id]++
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

// TestPickedTokens holds tokens that every machine must give: no part of the
// arithmetic may depend on the platform or on the compiler.
func TestPickedTokens(t *testing.T) {
	logits := make([]float32, 5000)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range logits {
		logits[i] = float32(r.IntN(1<<20))/(1<<16) - 8
	}
	var picker backends.Picker
	for _, tc := range []struct {
		pick backends.Pick
		want []int32
	}{
		{backends.Pick{}, []int32{2802, 2802, 2802, 2802, 2802, 2802}},
		{backends.Pick{Temperature: 1}, []int32{434, 1222, 2069, 2856, 3839, 4608}},
		{backends.Pick{Temperature: 0.8, TopK: 64, TopP: 0.95}, []int32{379, 716, 1695, 2197, 2856, 4180}},
		{backends.Pick{Temperature: 1.3, TopP: 0.9, MinP: 0.01}, []int32{436, 1234, 2058, 2856, 3832, 4618}},
	} {
		t.Run(fmt.Sprintf("%+v", tc.pick), func(t *testing.T) {
			var got []int32
			for i := range uint64(6) {
				id, err := picker.Pick(tc.pick, logits, nil, (2*i+1)*(math.MaxUint64/12))
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, id)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("tokens (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTinyTemperatureIsGreedy(t *testing.T) {
	var picker backends.Picker
	for _, temperature := range []float32{math.SmallestNonzeroFloat32, 1e-30, 1e-6} {
		for i := range uint64(100) {
			got, err := picker.Pick(backends.Pick{Temperature: temperature, TopP: 0.9, MinP: 0.1}, []float32{1, 1.5, -3, 1.25}, nil, i<<57)
			if err != nil || got != 1 {
				t.Fatalf("temperature %g: got %d, %v, want 1", temperature, got, err)
			}
		}
	}
}

func TestUnusableLogits(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	var picker backends.Picker
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
		for _, p := range []backends.Pick{{}, {Temperature: 1}, {Temperature: 1, TopK: 2, TopP: 0.5, MinP: 0.1}} {
			for _, peaks := range [][]float32{nil, peaksOf(tc.logits)} {
				if id, err := picker.Pick(p, tc.logits, peaks, 1); !errors.Is(err, backends.ErrLogits) {
					t.Errorf("%s %+v: got token %d and error %v, want ErrLogits", tc.name, p, id, err)
				}
			}
		}
	}
}

// TestTooManyLogits has more logits than masses can be added of.
func TestTooManyLogits(t *testing.T) {
	var picker backends.Picker
	logits := make([]float32, 1<<24)
	if _, err := picker.Pick(backends.Pick{Temperature: 1}, logits, nil, 1); !errors.Is(err, fault.ErrUsage) {
		t.Errorf("drawing: %v, want a usage error", err)
	}
	if id, err := picker.Pick(backends.Pick{}, logits, nil, 1); id != 0 || err != nil {
		t.Errorf("greedy: token %d, %v", id, err)
	}
}

// peaksOf returns the largest logits of each run.
func peaksOf(logits []float32) (peaks []float32) {
	for run := range slices.Chunk(logits, backends.PeakRun) {
		peaks = append(peaks, backends.Peak(run))
	}
	return peaks
}
