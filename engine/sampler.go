package engine

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/fmath"
)

// DefaultRepeatLast is the number of latest tokens that a repetition penalty looks at unless Sampling.RepeatLast says otherwise.
const DefaultRepeatLast = 64

// Sampling says how the next token is picked from logits. The zero value is
// greedy: the largest logit, and of equal ones the lowest id.
//
// The steps are taken in the order of the fields below, each on what the one
// before left: penalty, temperature, top-k, top-p, min-p, draw. That is the
// order in which transformers warps logits, and generation_config.json, which
// the defaults come from, is written for it: top_p there is a share of the
// tempered distribution of the top_k tokens. Other programs temper last; with a
// temperature of 1 both orders pick from the same tokens.
type Sampling struct {
	// RepeatPenalty divides positive and multiplies negative logits of tokens
	// seen lately, the prompt included. 0 and 1 leave them as they are; at most 100.
	RepeatPenalty float32
	// RepeatLast is how many of the latest tokens the penalty looks at: 0 means
	// DefaultRepeatLast, a negative number all.
	RepeatLast int
	// Temperature divides the logits. 0 is greedy, whatever the fields below say.
	Temperature float32
	// TopK keeps the k tokens of the largest logits, of equal ones those of lower ids. 0 keeps all.
	TopK int
	// TopP keeps the likeliest tokens, as few as together reach this share of
	// the probability that is left. 0 and 1 keep all.
	TopP float32
	// MinP keeps the tokens that are at least this many times as likely as the likeliest. 0 keeps all.
	MinP float32
	// Seed starts the random numbers. The same seed, logits and history give the
	// same tokens on every machine. 0 is a seed like any other.
	Seed uint64
}

// SamplingError reports a sampling parameter that is out of range. It matches fault.ErrUsage.
type SamplingError struct {
	// Parameter is the field's name in the spelling of generation_config.json.
	Parameter string
	// Value is what was given.
	Value float64
	// Range says in words what is allowed.
	Range string
}

// Error implements error.
func (e *SamplingError) Error() string {
	return fmt.Sprintf("%s is %g", e.Parameter, e.Value)
}

// Is matches fault.ErrUsage.
func (e *SamplingError) Is(target error) bool { return target == fault.ErrUsage }

// Hint tells what is allowed.
func (e *SamplingError) Hint() string { return fmt.Sprintf("set %s to %s", e.Parameter, e.Range) }

// ErrLogits reports logits that no token can be picked from: not a number, infinite, or all masked.
var ErrLogits = errors.New("unusable logits")

// validate checks every range. Negations catch NaN.
func (s Sampling) validate() error {
	inf := math.Inf(1)
	for _, p := range []struct {
		name    string
		value   float64
		most    float64
		allowed string
	}{
		{"repetition_penalty", float64(s.RepeatPenalty), 100, "a number from 0 to 100"},
		{"temperature", float64(s.Temperature), math.MaxFloat32, "0 or a positive number"},
		{"top_k", float64(s.TopK), inf, "0 or a positive number"},
		{"top_p", float64(s.TopP), 1, "a number from 0 to 1"},
		{"min_p", float64(s.MinP), 1, "a number from 0 to 1"},
	} {
		if !(p.value >= 0 && p.value <= p.most) {
			return &SamplingError{Parameter: p.name, Value: p.value, Range: p.allowed}
		}
	}
	return nil
}

// Sampler picks tokens. It is used by one goroutine at a time; its memory,
// at most 28 bytes for each logit, is taken as picks need it and kept.
type Sampler struct {
	sampling Sampling
	source   *rand.PCG

	penalised []float32     // [vocab] logits after the penalty
	kept      []candidate   // tokens that may be drawn
	order     []candidate   // scratch of topP
	mass      []massCounter // scratch of topP
}

// candidate is a token that may be drawn. Its weight is its probability over
// that of the likeliest token.
type candidate struct {
	id     int32
	logit  float32
	weight float32
}

// massCounter sums the weights of one bucket of topP.
type massCounter struct {
	mass  float64
	count int
}

// NewSampler returns a sampler at the start of its random numbers, or a *SamplingError.
func NewSampler(s Sampling) (*Sampler, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	if s.RepeatPenalty == 0 {
		s.RepeatPenalty = 1
	}
	if s.RepeatLast == 0 {
		s.RepeatLast = DefaultRepeatLast
	}
	if s.TopP == 0 {
		s.TopP = 1
	}
	// The second half of the generator's state only has to be fixed.
	return &Sampler{sampling: s, source: rand.NewPCG(s.Seed, 0x9e3779b97f4a7c15)}, nil
}

// Next returns the next token for logits [vocabulary] and the tokens so far,
// neither of which it changes or keeps. peaks are those of the logits
// ([Session.Peaks]), or nil if they are not known. Minus infinity masks a token; any other
// logit that is no finite number is an error that matches ErrLogits. It
// allocates nothing once it has seen logits of this length. A nil Sampler is greedy.
func (s *Sampler) Next(logits, peaks []float32, history []int32) (int32, error) {
	in := runs{logits, peaks}
	if s == nil {
		return in.argmax()
	}
	if penalised := s.penalise(logits, history); penalised != nil {
		in = runs{penalised, nil}
	}
	best, err := in.argmax()
	if err != nil || s.sampling.Temperature == 0 {
		return best, err
	}
	if k := s.sampling.TopK; k > 0 && k < len(logits) {
		s.topK(in, in.logits[best], k)
	} else {
		s.all(in.logits, in.logits[best])
	}
	if s.sampling.TopP < 1 {
		s.topP()
	}
	if s.sampling.MinP > 0 {
		s.minP()
	}
	return s.draw(), nil
}

// runs are logits with the largest of each run of backends.PeakRun, or nil where it is not known.
type runs struct{ logits, peaks []float32 }

// run returns the first index of run r, and its logits.
func (x runs) run(r int) (first int, logits []float32) {
	first = r * backends.PeakRun
	return first, x.logits[first:min(first+backends.PeakRun, len(x.logits))]
}

// peak returns the largest logit of run r.
func (x runs) peak(r int) float32 {
	if x.peaks != nil {
		return x.peaks[r]
	}
	_, logits := x.run(r)
	return backends.Peak(logits)
}

// len returns the number of runs.
func (x runs) len() int { return (len(x.logits) + backends.PeakRun - 1) / backends.PeakRun }

// argmax returns the index of the largest logit, the first of equal ones.
func (x runs) argmax() (int32, error) {
	best, largest := -1, float32(math.Inf(-1))
	for r := range x.len() {
		if peak := x.peak(r); peak > largest {
			best, largest = r, peak
		} else if peak != peak {
			first, logits := x.run(r)
			at := slices.IndexFunc(logits, func(l float32) bool { return l != l })
			return 0, fmt.Errorf("%w: logit %d of %d is not a number", ErrLogits, first+at, len(x.logits))
		}
	}
	if best < 0 {
		return 0, fmt.Errorf("%w: none of %d tokens is left to pick", ErrLogits, len(x.logits))
	}
	first, logits := x.run(best)
	at := first + slices.Index(logits, largest)
	if largest > math.MaxFloat32 {
		return 0, fmt.Errorf("%w: logit %d of %d is infinite", ErrLogits, at, len(x.logits))
	}
	return int32(at), nil
}

// penalise returns logits with the repetition penalty, or nil if there is none.
func (s *Sampler) penalise(logits []float32, history []int32) []float32 {
	penalty := s.sampling.RepeatPenalty
	if penalty == 1 || len(history) == 0 {
		return nil
	}
	if n := s.sampling.RepeatLast; n > 0 && n < len(history) {
		history = history[len(history)-n:]
	}
	s.penalised = append(s.penalised[:0], logits...)
	for _, id := range history {
		if id < 0 || int(id) >= len(logits) {
			continue // may be fed but has no logit
		}
		// From the untouched logit, so that a token seen twice is not penalised twice.
		if l := logits[id]; l > 0 {
			s.penalised[id] = l / penalty
		} else {
			s.penalised[id] = l * penalty
		}
	}
	return s.penalised
}

// weight returns the weight of a token; 0 where it is masked or too unlikely for a float32.
func (s *Sampler) weight(logit, largest float32) float32 {
	return fmath.Exp(float32(logit-largest) / s.sampling.Temperature)
}

// all keeps every token that has a weight, by id.
func (s *Sampler) all(logits []float32, largest float32) {
	s.kept = slices.Grow(s.kept[:0], len(logits))
	for i, l := range logits {
		if w := s.weight(l, largest); w > 0 {
			s.kept = append(s.kept, candidate{id: int32(i), logit: l, weight: w})
		}
	}
}

// topK keeps the k best tokens, by id. A heap of the best so far has the worst
// of them on top, so that most runs of tokens cost one comparison.
func (s *Sampler) topK(in runs, largest float32, k int) {
	s.kept = slices.Grow(s.kept[:0], k)
	floor := float32(math.Inf(-1)) // of logits that are no better the lower ids, which came first, stay
	for r := range in.len() {
		if in.peak(r) <= floor {
			continue
		}
		first, logits := in.run(r)
		for i, l := range logits {
			if l <= floor {
				continue
			}
			c := candidate{id: int32(first + i), logit: l}
			if len(s.kept) < k {
				s.kept = append(s.kept, c)
				siftUp(s.kept)
			} else {
				s.kept[0] = c
				siftDown(s.kept)
			}
			if len(s.kept) == k {
				floor = s.kept[0].logit
			}
		}
	}
	slices.SortFunc(s.kept, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	for i := range s.kept {
		s.kept[i].weight = s.weight(s.kept[i].logit, largest)
	}
}

// worse orders the heap of topK: by logit, and of equal ones the higher id is worse.
func worse(a, b candidate) bool {
	return a.logit < b.logit || a.logit == b.logit && a.id > b.id
}

// siftUp moves the last element of a heap to its place.
func siftUp(h []candidate) {
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !worse(h[i], h[up]) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// siftDown moves the first element of a heap to its place.
func siftDown(h []candidate) {
	for i := 0; ; {
		down := 2*i + 1
		if down >= len(h) {
			return
		}
		if down+1 < len(h) && worse(h[down+1], h[down]) {
			down++
		}
		if !worse(h[down], h[i]) {
			return
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
}

// A weight from 0 to 1 falls into the bucket of its leading bits. One bucket
// spans a 64th of a factor of two.
const (
	bucketShift = 17
	numBuckets  = 0x3f800000>>bucketShift + 1 // 0x3f800000 are the bits of 1
)

// bucket returns the bucket of a weight.
func bucket(weight float32) int { return min(int(math.Float32bits(weight)>>bucketShift), numBuckets-1) }

// topP keeps the likeliest tokens. The mass of each bucket tells in which one
// the share is reached, and only that one is sorted.
func (s *Sampler) topP() {
	if s.mass == nil {
		s.mass = make([]massCounter, numBuckets)
	}
	clear(s.mass)
	total := 0.0
	for _, c := range s.kept {
		b := &s.mass[bucket(c.weight)]
		b.mass += float64(c.weight)
		b.count++
		total += float64(c.weight)
	}
	want := float64(float64(s.sampling.TopP) * total)
	last, reached := numBuckets-1, 0.0
	for last > 0 && reached+s.mass[last].mass < want {
		reached += s.mass[last].mass
		last--
	}

	s.order = slices.Grow(s.order[:0], s.mass[last].count)
	for _, c := range s.kept {
		if bucket(c.weight) == last {
			s.order = append(s.order, c)
		}
	}
	slices.SortFunc(s.order, func(a, b candidate) int {
		if a.weight != b.weight {
			return cmp.Compare(b.weight, a.weight)
		}
		return cmp.Compare(a.id, b.id)
	})
	end := candidate{id: math.MaxInt32} // the last one kept
	for _, c := range s.order {
		end = c
		if reached += float64(c.weight); reached >= want {
			break
		}
	}
	s.keep(func(c candidate) bool {
		b := bucket(c.weight)
		return b > last || b == last && (c.weight > end.weight || c.weight == end.weight && c.id <= end.id)
	})
}

// minP keeps the tokens near the likeliest one, whose weight is 1.
func (s *Sampler) minP() {
	s.keep(func(c candidate) bool { return c.weight >= s.sampling.MinP })
}

// keep drops the candidates that f refuses.
func (s *Sampler) keep(f func(candidate) bool) {
	n := 0
	for _, c := range s.kept {
		if f(c) {
			s.kept[n] = c
			n++
		}
	}
	s.kept = s.kept[:n]
}

// draw picks one of the candidates with a probability in proportion to its weight.
func (s *Sampler) draw() int32 {
	total := 0.0
	for _, c := range s.kept {
		total += float64(c.weight)
	}
	at := float64(float64(float64(s.source.Uint64()>>11)*0x1p-53) * total)
	sum := 0.0
	picked := s.kept[0].id
	for _, c := range s.kept {
		if c.weight == 0 {
			continue // too unlikely for a float32
		}
		picked = c.id
		if sum += float64(c.weight); sum > at {
			break
		}
	}
	return picked
}
