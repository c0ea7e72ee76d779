package kernels

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fmath"
	"github.com/zoo-sdk/zoo/quant"
)

// Generic returns the kernels in plain Go.
func Generic() *Set {
	return &Set{
		name:       "generic",
		tiles:      []int{1, 2, 3, 4, 6, 8, 12, 16, 24},
		groupTiles: slices.Repeat([]groupTiles{{1: {1, 2, 4}, 2: {1, 2, 4}, 3: {1, 2, 4}}}, len(groupFormats)),
		dot:        dot,
		mulGroups:  mulGroups,
		roundInt8:  roundInt8,
		interleave: interleave,
		finish:     finish,
		quantize:   quantize,
		quantGroup: quantizeGroups,
		maxAbs:     maxAbs,
		max:        backends.Peak,
		dotF32:     dotF32,
		mulBF16:    mulBF16,
		norm:       norm,
		addNorm:    addNorm,
		addMul:     addMul,
		geluMul:    geluMul,
		softcap:    softcap,
		rotate:     rotate,
		scores:     scores,
		softmax:    softmax,
		weighted:   weighted,
		scaleAdd:   scaleAdd,
		div:        div,
		grid:       grid,
		read:       read,
	}
}

// norm is Set.Norm.
func norm(dst, x, weight []float32, inv float32) {
	for i, v := range x {
		y := float32(v * inv)
		if weight != nil {
			y = float32(y * weight[i])
		}
		dst[i] = y
	}
}

// addNorm is Set.AddNorm.
func addNorm(state, x, weight []float32, inv, mul float32) {
	for i, v := range x {
		y := float32(v * inv)
		if weight != nil {
			y = float32(y * weight[i])
		}
		state[i] = float32((state[i] + y) * mul)
	}
}

// addMul is Set.AddMul.
func addMul(dst, a, b []float32, mul float32) {
	for i := range dst {
		dst[i] = float32((a[i] + b[i]) * mul)
	}
}

// geluMul is Set.GELUMul.
func geluMul(dst, a, b []float32) {
	for i := range dst {
		dst[i] = float32(fmath.GELU(a[i]) * b[i])
	}
}

// softcap is Set.Softcap.
func softcap(x []float32, limit float32) {
	for i, v := range x {
		x[i] = float32(limit * fmath.Tanh(v/limit))
	}
}

// rotate is Set.Rotate.
func rotate(x, table []float32) {
	half := len(x) / 2
	sin, cos := table[:half], table[half:]
	lo, hi := x[:half], x[half:]
	for i := range half {
		a, b := lo[i], hi[i]
		lo[i] = float32(a*cos[i]) - float32(b*sin[i])
		hi[i] = float32(b*cos[i]) + float32(a*sin[i])
	}
}

// scaleAdd is Set.ScaleAdd.
func scaleAdd(dst, part []float32, old, add float32) {
	for i := range dst {
		dst[i] = float32(dst[i]*old) + float32(part[i]*add)
	}
}

// div is Set.Div.
func div(dst []float32, by float32) {
	for i, v := range dst {
		dst[i] = v / by
	}
}

// grid is Set.Grid.
func grid(x []float32, step float32) {
	for i, v := range x {
		x[i] = float32(float32(ToGrid(v, step, -128, 127)) * step)
	}
}

// softmax is Set.Softmax.
func softmax(w []float32) (largest, total float32) {
	largest = w[0]
	for _, score := range w {
		if score > largest {
			largest = score
		}
	}
	for i, score := range w {
		w[i] = fmath.Exp(score - largest)
	}
	return largest, sum16(w)
}

// maxAbs is Set.MaxAbs.
func maxAbs(x []float32) (largest float32) {
	for _, v := range x {
		if v < 0 {
			v = -v
		}
		if v > largest || v != v { // nothing is greater than what is not a number
			largest = v
		}
	}
	return largest
}

// quantize is Set.Quantize.
func quantize(dst []uint32, x []float32, planes int, step, lo, hi float32) (sum int64) {
	size := len(dst) / planes
	for i, v := range x {
		n := ToGrid(v, step, lo, hi)
		sum += int64(n)
		for p := range planes {
			digit := int8(n)
			n = (n - int32(digit)) >> 8
			at := &dst[p*size+i/4]
			if i%4 == 0 {
				*at = 0
			}
			*at |= uint32(uint8(digit)) << (i % 4 * 8)
		}
	}
	return sum
}

// quantizeGroups is Set.QuantizeGroups.
func quantizeGroups(dst []uint32, sums []int32, x []float32, cols, planes int, step, lo, hi float32) {
	quantize(dst, x, planes, step, lo, hi)
	for g := range len(x) / cols {
		sums[g] = 0
		for _, v := range x[g*cols:][:cols] {
			sums[g] += ToGrid(v, step, lo, hi)
		}
	}
}

// roundInt8 is Set.RoundInt8.
func roundInt8(dst []int8, x []float32, step float32) {
	for i, v := range x {
		dst[i] = int8(ToGrid(v, step, -128, 127))
	}
}

// ToGrid returns clamp(round_half_even(x/step), lo, hi), and lo for what is not a number.
func ToGrid(x, step, lo, hi float32) int32 {
	v := x / step
	switch {
	case v > hi:
		v = hi
	case !(v >= lo):
		v = lo
	}
	return int32(math.RoundToEven(float64(v)))
}

// finish is Set.Finish.
func finish(dst []float32, stride int, totals []int32, scales []byte, f *Final) {
	for b := range f.Blocks {
		scale := scales[b*f.ScaleStride:]
		for r := range f.Rows {
			out := (*[quant.BlockRows]float32)(dst[r*stride+b*quant.BlockRows:])
			at := (b*f.every()*f.Rows + r) * f.Planes
			for lane := range out {
				total := f.Starts[r]
				for p, weight := 0, 1.0; p < f.Planes; p, weight = p+1, 256*weight {
					total += float64(float64(totals[(at+p)*quant.BlockRows+lane]) * weight)
				}
				y := float32(float32(float32(total)*f.Steps[r]) * math.Float32frombits(binary.LittleEndian.Uint32(scale[4*lane:])))
				if f.Out != 0 {
					y = float32(float32(ToGrid(y, f.Out, -128, 127)) * f.Out)
				}
				out[lane] = float32(y * f.Mul)
			}
		}
	}
}

// interleave is Set.Interleave.
func interleave(dst []uint32, stride int, src []uint32, rows int) {
	n := len(src) / rows
	for r := range rows {
		at := r
		for _, w := range src[r*n:][:n] {
			dst[at] = w
			at += stride
		}
	}
}

// read is Set.Read.
func read(data []byte) (sum uint64) {
	for ; len(data) >= 64; data = data[64:] {
		line := (*[64]byte)(data)
		sum += binary.LittleEndian.Uint64(line[0:]) + binary.LittleEndian.Uint64(line[8:]) +
			binary.LittleEndian.Uint64(line[16:]) + binary.LittleEndian.Uint64(line[24:]) +
			binary.LittleEndian.Uint64(line[32:]) + binary.LittleEndian.Uint64(line[40:]) +
			binary.LittleEndian.Uint64(line[48:]) + binary.LittleEndian.Uint64(line[56:])
	}
	for _, b := range data {
		sum += uint64(b)
	}
	return sum
}
