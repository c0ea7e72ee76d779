package backends

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/fmath"
)

// Pick says how a token is picked from logits. The zero value is greedy: the
// largest logit, and of equal ones the lowest id.
//
// Otherwise the steps are taken in the order of the fields below, each on what
// the one before left, and then one token is drawn. It takes nothing but float32
// and whole numbers, so that every device picks the same token from the same
// logits with the same random number of 64 bits:
//
//   - The weight of a token is exp((logit - largest) / Temperature), where
//     largest is the largest logit, in float32 with each operation rounded and
//     the exp of package internal/fmath. It is 1 for the likeliest token, and 0
//     for a masked one. The mass of a token is uint64(weight * 2^40), cut off. A
//     token without mass is never drawn. Masses are added as whole numbers, in
//     any order.
//   - TopK keeps the k tokens of the largest logits, of equal ones those of the
//     lower ids.
//   - TopP goes through the tokens by falling weight, of equal ones by rising id,
//     and keeps them until their masses add up to the upper 64 bits of the
//     product of the sum of all and uint64(TopP * 2^64), cut off; at least one.
//   - MinP keeps the tokens whose weight is at least MinP.
//   - The draw multiplies the random number with the sum of the masses that are
//     left. It picks the first token by id with which the masses up to it add up
//     to more than the upper 64 bits of this product.
//
// This is the order in which transformers warps logits, and
// generation_config.json, which defaults come from, is written for it: top_p
// there is a share of the tempered distribution of the top_k tokens. Other
// programs temper last; with a temperature of 1 both orders pick from the same
// tokens.
type Pick struct {
	// Temperature divides the logits. 0 is greedy, whatever the fields below say.
	Temperature float32
	// TopK keeps the k tokens of the largest logits. 0 keeps all.
	TopK int
	// TopP keeps the likeliest tokens, as few as together reach this share of
	// the probability that is left. 0 and 1 keep all.
	TopP float32
	// MinP keeps the tokens that are at least this many times as likely as the likeliest. 0 keeps all.
	MinP float32
}

// SamplingError reports a parameter of sampling that is out of range. It matches fault.ErrUsage.
type SamplingError struct {
	// Parameter is the parameter's name in the spelling of generation_config.json.
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

// Validate returns nil, or a *SamplingError about the first field that is out of range.
func (p Pick) Validate() error {
	for _, f := range []struct {
		name    string
		value   float64
		most    float64
		allowed string
	}{
		{"temperature", float64(p.Temperature), math.MaxFloat32, "0 or a positive number"},
		{"top_k", float64(p.TopK), math.Inf(1), "0 or a positive number"},
		{"top_p", float64(p.TopP), 1, "a number from 0 to 1"},
		{"min_p", float64(p.MinP), 1, "a number from 0 to 1"},
	} {
		if !(f.value >= 0 && f.value <= f.most) { // false for NaN, too
			return &SamplingError{Parameter: f.name, Value: f.value, Range: f.allowed}
		}
	}
	return nil
}

// Greedy reports whether the likeliest token is picked, which takes no random number.
func (p Pick) Greedy() bool { return p.Temperature == 0 }

// Share returns uint64(TopP * 2^64), or the largest number, which no TopP below 1
// gives, where TopP keeps all.
func (p Pick) Share() uint64 {
	if p.TopP == 0 || p.TopP >= 1 {
		return math.MaxUint64
	}
	return uint64(float64(p.TopP) * 0x1p64) // the product is exact
}

// maxDrawn is the most logits that are drawn from, so that the masses of all can be added.
const maxDrawn = 1<<24 - 1

// Picker picks tokens on the processor, as [Pick] defines it. Its zero value is
// ready. It is used by one goroutine at a time; its memory, at most 24 bytes for
// each logit, is taken as picks need it and kept.
type Picker struct {
	kept  []candidate   // tokens that may be drawn
	order []candidate   // scratch of topP
	mass  []massCounter // scratch of topP
}

// candidate is a token that may be drawn.
type candidate struct {
	id     int32
	logit  float32
	weight float32
}

// mass returns the weight as a whole number.
func (c candidate) mass() uint64 { return uint64(c.weight * (1 << 40)) }

// massCounter adds up one bucket of topP.
type massCounter struct {
	mass  uint64
	count int
}

// Pick returns the token that p picks from logits, which it neither changes nor
// keeps. peaks are those of the logits ([Executor.Peaks]), or nil if they are not
// known; random is not used by a greedy pick. Minus infinity masks a token; any
// other logit that is no finite number is an error that matches ErrLogits. Pick
// allocates nothing once it has seen logits of this length. p must be valid.
func (k *Picker) Pick(p Pick, logits, peaks []float32, random uint64) (int32, error) {
	in := runs{logits, peaks}
	best, err := in.argmax()
	if err != nil || p.Greedy() {
		return best, err
	}
	if len(logits) > maxDrawn {
		return 0, fmt.Errorf("%w: %d logits are too many to draw from, at most %d", fault.ErrUsage, len(logits), maxDrawn)
	}
	if p.TopK > 0 && p.TopK < len(logits) {
		k.topK(in, p.TopK)
		k.weigh(logits[best], p.Temperature)
	} else {
		k.all(logits, logits[best], p.Temperature)
	}
	if share := p.Share(); share != math.MaxUint64 {
		k.topP(share)
	}
	if p.MinP > 0 { // the weight of the likeliest is 1
		k.keep(func(c candidate) bool { return c.weight >= p.MinP })
	}
	return k.draw(random), nil
}

// runs are logits with the largest of each run of PeakRun, or nil where it is not known.
type runs struct{ logits, peaks []float32 }

// run returns the first index of run r, and its logits.
func (x runs) run(r int) (first int, logits []float32) {
	first = r * PeakRun
	return first, x.logits[first:min(first+PeakRun, len(x.logits))]
}

// peak returns the largest logit of run r.
func (x runs) peak(r int) float32 {
	if x.peaks != nil {
		return x.peaks[r]
	}
	_, logits := x.run(r)
	return Peak(logits)
}

// len returns the number of runs.
func (x runs) len() int { return (len(x.logits) + PeakRun - 1) / PeakRun }

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

// all keeps every token with mass, by id.
func (k *Picker) all(logits []float32, largest, temperature float32) {
	k.kept = slices.Grow(k.kept[:0], len(logits))
	for i, l := range logits {
		k.add(candidate{id: int32(i), logit: l}, largest, temperature)
	}
}

// add keeps a token with its weight if that has mass.
func (k *Picker) add(c candidate, largest, temperature float32) {
	c.weight = fmath.Exp(float32(c.logit-largest) / temperature)
	if c.mass() > 0 {
		k.kept = append(k.kept, c)
	}
}

// topK keeps the n best tokens, by id. A heap of the best so far has the worst
// of them on top, so that most runs of tokens cost one comparison.
func (k *Picker) topK(in runs, n int) {
	k.kept = slices.Grow(k.kept[:0], n)
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
			if len(k.kept) < n {
				k.kept = append(k.kept, c)
				siftUp(k.kept)
			} else {
				k.kept[0] = c
				siftDown(k.kept)
			}
			if len(k.kept) == n {
				floor = k.kept[0].logit
			}
		}
	}
	slices.SortFunc(k.kept, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
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

// weigh gives the candidates their weights and drops those without mass.
func (k *Picker) weigh(largest, temperature float32) {
	list := k.kept
	k.kept = list[:0]
	for _, c := range list {
		k.add(c, largest, temperature)
	}
}

// A weight from 0 to 1 falls into the bucket of its leading bits. One bucket
// spans a 64th of a factor of two.
const (
	bucketShift = 17
	numBuckets  = 0x3f800000>>bucketShift + 1 // 0x3f800000 are the bits of 1
)

// bucket returns the bucket of a weight.
func bucket(weight float32) int { return int(math.Float32bits(weight) >> bucketShift) }

// topP keeps the likeliest tokens. The mass of each bucket tells in which one
// the share is reached, and only that one is sorted.
func (k *Picker) topP(share uint64) {
	if k.mass == nil {
		k.mass = make([]massCounter, numBuckets)
	}
	clear(k.mass)
	for _, c := range k.kept {
		b := &k.mass[bucket(c.weight)]
		b.mass += c.mass()
		b.count++
	}
	want, _ := bits.Mul64(k.total(), share)
	last, reached := numBuckets-1, uint64(0)
	for last > 0 && reached+k.mass[last].mass < want {
		reached += k.mass[last].mass
		last--
	}

	k.order = slices.Grow(k.order[:0], k.mass[last].count)
	for _, c := range k.kept {
		if bucket(c.weight) == last {
			k.order = append(k.order, c)
		}
	}
	slices.SortFunc(k.order, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.id, b.id))
	})
	var end candidate // the last one kept
	for _, c := range k.order {
		end = c
		if reached += c.mass(); reached >= want {
			break
		}
	}
	k.keep(func(c candidate) bool {
		return c.weight > end.weight || c.weight == end.weight && c.id <= end.id
	})
}

// keep drops the candidates that f refuses.
func (k *Picker) keep(f func(candidate) bool) {
	n := 0
	for _, c := range k.kept {
		if f(c) {
			k.kept[n] = c
			n++
		}
	}
	k.kept = k.kept[:n]
}

// total returns the mass of all candidates.
func (k *Picker) total() (sum uint64) {
	for _, c := range k.kept {
		sum += c.mass()
	}
	return sum
}

// draw picks one of the candidates with a probability in proportion to its mass.
func (k *Picker) draw(random uint64) int32 {
	at, _ := bits.Mul64(random, k.total())
	i, sum := 0, k.kept[0].mass()
	for sum <= at { // which is less than the sum of all
		i++
		sum += k.kept[i].mass()
	}
	return k.kept[i].id
}
