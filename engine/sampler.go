package engine

import (
	"math/rand/v2"

	"github.com/zoo-sdk/zoo/backends"
)

// DefaultRepeatLast is the number of latest tokens that a repetition penalty looks at unless Sampling.RepeatLast says otherwise.
const DefaultRepeatLast = 64

// Sampling says how the next token is picked from logits: first comes the
// penalty, then what [backends.Pick] defines. The zero value is greedy.
type Sampling struct {
	// RepeatPenalty divides positive and multiplies negative logits of tokens
	// seen lately, the prompt included. 0 and 1 leave them as they are; at most 100.
	RepeatPenalty float32
	// RepeatLast is how many of the latest tokens the penalty looks at: 0 means
	// DefaultRepeatLast, a negative number all.
	RepeatLast int
	// Pick says how the token is picked from what the penalty leaves.
	backends.Pick
	// Seed starts the random numbers, one for each pick that is not greedy. The
	// same seed, logits and history give the same tokens on every machine and
	// backend. 0 is a seed like any other.
	Seed uint64
}

// ErrLogits is [backends.ErrLogits].
var ErrLogits = backends.ErrLogits

// Validate returns nil, or a *backends.SamplingError about the first parameter that is out of range.
func (s Sampling) Validate() error {
	if p := s.RepeatPenalty; !(p >= 0 && p <= 100) { // false for NaN, too
		return &backends.SamplingError{Parameter: "repetition_penalty", Value: float64(p), Range: "a number from 0 to 100"}
	}
	return s.Pick.Validate()
}

// Sampler picks tokens. It is used by one goroutine at a time; its memory,
// at most 28 bytes for each logit, is taken as picks need it and kept.
type Sampler struct {
	sampling  Sampling
	source    *rand.PCG
	penalised []float32 // [vocab] logits after the penalty
	picker    backends.Picker
}

// NewSampler returns a sampler at the start of its random numbers, or a *backends.SamplingError.
func NewSampler(s Sampling) (*Sampler, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.RepeatPenalty == 0 {
		s.RepeatPenalty = 1
	}
	if s.RepeatLast == 0 {
		s.RepeatLast = DefaultRepeatLast
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
	if s == nil {
		var greedy backends.Picker
		return greedy.Pick(backends.Pick{}, logits, peaks, 0)
	}
	if penalised := s.penalise(logits, history); penalised != nil {
		logits, peaks = penalised, nil
	}
	var random uint64
	if !s.sampling.Greedy() {
		random = s.source.Uint64()
	}
	return s.picker.Pick(s.sampling.Pick, logits, peaks, random)
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

// plain reports whether tokens are picked from the logits as they are.
func (s *Sampler) plain() bool { return s == nil || s.sampling.RepeatPenalty == 1 }

// pick returns how a token is picked from what the penalty leaves.
func (s *Sampler) pick() backends.Pick {
	if s == nil {
		return backends.Pick{}
	}
	return s.sampling.Pick
}

// ahead appends the random numbers of the next n picks, without taking them.
func (s *Sampler) ahead(list []uint64, n int) []uint64 {
	if s.pick().Greedy() {
		return list
	}
	source := *s.source
	for range n {
		list = append(list, source.Uint64())
	}
	return list
}

// skip takes the random number of one pick.
func (s *Sampler) skip() {
	if !s.pick().Greedy() {
		s.source.Uint64()
	}
}
