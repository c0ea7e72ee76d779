//go:build !purego && (amd64 || arm64)

package kernels

import (
	"slices"
	"unsafe"

	"github.com/zoo-sdk/zoo/quant"
)

// pointwise holds the assembly of an instruction set for the operations that
// treat numbers one by one. All take pointers to n numbers.
type pointwise struct {
	maxAbs           func(x *float32, n int) float32
	peak             func(x *float32, n int) float32
	quantize         [MaxPlanes + 1]quantizeFunc
	quantizeGroups16 [MaxPlanes + 1]quantizeGroupsFunc // of groups of 16 columns
	quantizeGroups32 [MaxPlanes + 1]quantizeGroupsFunc
	norm             func(dst, x *float32, n int, inv float32)
	normWeighted     func(dst, x, weight *float32, n int, inv float32)
	addNorm          func(state, x *float32, n int, inv, mul float32)
	addNormWeighted  func(state, x, weight *float32, n int, inv, mul float32)
	addMul           func(dst, a, b *float32, n int, mul float32)
	scaleAdd         func(dst, part *float32, n int, old, add float32)
	div              func(dst *float32, n int, by float32)
	grid             func(x *float32, n int, step float32)
	rotate           func(lo, hi, sin, cos *float32, n int)
	geluMul          func(dst, a, b *float32, n int)
	softcap          func(x *float32, n int, limit float32)
	largest          func(w *float32, n int) float32
	expSum           func(w *float32, n int, largest float32) float32
	finish           [MaxPlanes + 1]finishFunc
	finishGrid       [MaxPlanes + 1]finishFunc // on a grid
}

// quantizeFunc is Set.Quantize for one number of planes, which begin size bytes apart, and at most quantizeMost numbers.
type quantizeFunc func(dst *uint32, size int, x *float32, n int, step, lo, hi float32) int64

// quantizeGroupsFunc is Set.QuantizeGroups for one number of planes, which begin size bytes apart, and at least one group.
type quantizeGroupsFunc func(dst *uint32, size int, sums *int32, x *float32, groups int, step, lo, hi float32)

// finishFunc is Set.Finish for one number of planes. The totals of two blocks are block numbers apart.
type finishFunc func(dst *float32, stride int, totals *int32, block int, scales *byte, scaleStride int,
	starts *float64, steps *float32, blocks, rows int, out, mul float32)

// quantizeMost is how many numbers a quantizeFunc sums without overflow.
const quantizeMost = 1 << 16

// install makes a set use the assembly.
func (k *pointwise) install(s *Set) {
	s.maxAbs = func(x []float32) float32 { return k.maxAbs(first(x), len(x)) }
	s.max = func(x []float32) float32 {
		most := k.peak(first(x), len(x))
		if most == 0 {
			return x[slices.Index(x, 0)] // the first zero's sign
		}
		return most
	}
	s.quantize = k.setQuantize
	s.quantGroup = func(dst []uint32, sums []int32, x []float32, cols, planes int, step, lo, hi float32) {
		f := k.quantizeGroups32[planes]
		if cols == 16 {
			f = k.quantizeGroups16[planes]
		}
		if len(x) > 0 {
			f(first(dst), 4*(len(dst)/planes), first(sums), first(x), len(x)/cols, step, lo, hi)
		}
	}
	s.roundInt8 = k.setRoundInt8
	s.finish = k.setFinish
	s.norm = func(dst, x, weight []float32, inv float32) {
		if weight == nil {
			k.norm(first(dst), first(x), len(x), inv)
		} else {
			k.normWeighted(first(dst), first(x), first(weight), len(x), inv)
		}
	}
	s.addNorm = func(state, x, weight []float32, inv, mul float32) {
		if weight == nil {
			k.addNorm(first(state), first(x), len(x), inv, mul)
		} else {
			k.addNormWeighted(first(state), first(x), first(weight), len(x), inv, mul)
		}
	}
	s.addMul = func(dst, a, b []float32, mul float32) { k.addMul(first(dst), first(a), first(b), len(dst), mul) }
	s.scaleAdd = func(dst, part []float32, old, add float32) {
		k.scaleAdd(first(dst), first(part), len(dst), old, add)
	}
	s.div = func(dst []float32, by float32) { k.div(first(dst), len(dst), by) }
	s.grid = func(x []float32, step float32) { k.grid(first(x), len(x), step) }
	s.rotate = func(x, table []float32) {
		half := len(x) / 2
		k.rotate(first(x), first(x[half:]), first(table), first(table[half:]), half)
	}
	s.geluMul = func(dst, a, b []float32) { k.geluMul(first(dst), first(a), first(b), len(dst)) }
	s.softcap = func(x []float32, limit float32) { k.softcap(first(x), len(x), limit) }
	s.softmax = func(w []float32) (largest, total float32) {
		largest = k.largest(first(w), len(w))
		if largest == 0 {
			largest = w[slices.Index(w, 0)] // as above
		}
		return largest, k.expSum(first(w), len(w), largest)
	}
}

// first returns a pointer to the first element; there need not be one.
func first[T any](s []T) *T { return unsafe.SliceData(s) }

// setQuantize is Set.Quantize.
func (k *pointwise) setQuantize(dst []uint32, x []float32, planes int, step, lo, hi float32) (sum int64) {
	size := 4 * (len(dst) / planes)
	for len(x) > quantizeMost {
		sum += k.quantize[planes](first(dst), size, first(x), quantizeMost, step, lo, hi)
		dst, x = dst[quantizeMost/4:], x[quantizeMost:]
	}
	return sum + k.quantize[planes](first(dst), size, first(x), len(x), step, lo, hi)
}

// setRoundInt8 is Set.RoundInt8: one plane of digits is the codes, four to a word.
func (k *pointwise) setRoundInt8(dst []int8, x []float32, step float32) {
	whole := min(len(x), quantizeMost) &^ 3
	if whole > 0 { // else there may not even be a word
		k.quantize[1]((*uint32)(unsafe.Pointer(first(dst))), 0, first(x), whole, step, -128, 127)
	}
	roundInt8(dst[whole:], x[whole:], step)
}

// setFinish is Set.Finish.
func (k *pointwise) setFinish(dst []float32, stride int, totals []int32, scales []byte, f *Final) {
	kind := &k.finish
	if f.Out != 0 {
		kind = &k.finishGrid
	}
	kind[f.Planes](first(dst), stride, first(totals), f.every()*f.Rows*f.Planes*quant.BlockRows, first(scales), f.ScaleStride,
		first(f.Starts), first(f.Steps), f.Blocks, f.Rows, f.Out, f.Mul)
}
