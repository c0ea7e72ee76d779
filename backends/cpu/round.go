package cpu

import (
	"math"

	"github.com/zoo-sdk/zoo/backends"
)

// Largest magnitudes of fixed-point activations: the largest numbers of one,
// two and three signed 8-bit digits when all digits are at most 127.
const (
	max8  = 127
	max16 = 127<<8 + 127
	max24 = 127<<16 + 127<<8 + 127
)

// fixedPoint returns the largest magnitude for a kind of activations.
func fixedPoint(a backends.Activations) float32 {
	switch a {
	case backends.Activations8:
		return max8
	case backends.Activations16:
		return max16
	}
	return max24
}

// toGrid returns clamp(round_half_even(x/step), lo, hi). NaN becomes lo.
func toGrid(x, step, lo, hi float32) int32 {
	v := x / step
	switch {
	case v > hi:
		v = hi
	case !(v >= lo):
		v = lo
	}
	return int32(math.RoundToEven(float64(v)))
}

// snap rounds x to the signed 8-bit grid of a step; a step of 0 leaves it as it is.
func snap(x, step float32) float32 {
	if step == 0 {
		return x
	}
	return float32(float32(toGrid(x, step, -128, 127)) * step)
}

// quantizeStatic writes the 8-bit codes of x on a static grid and returns their sum.
func quantizeStatic(dst []int32, x []float32, step float32) (total int64) {
	for i, v := range x {
		q := toGrid(v, step, -128, 127)
		dst[i] = q
		total += int64(q)
	}
	return total
}

// quantizeFixed writes x as fixed point of at most limit, and returns the step
// and the sum. One NaN makes the step NaN, and with it every product.
func quantizeFixed(dst []int32, x []float32, limit float32) (step float32, total int64) {
	largest := float32(0)
	for _, v := range x {
		if v < 0 {
			v = -v
		}
		if v > largest || v != v { // a NaN sticks: nothing is greater
			largest = v
		}
	}
	step = largest / limit
	if step == 0 {
		clear(dst[:len(x)])
		return 0, 0
	}
	for i, v := range x {
		q := toGrid(v, step, -limit, limit)
		dst[i] = q
		total += int64(q)
	}
	return step, total
}
