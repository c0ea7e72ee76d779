package kernels

import (
	"encoding/binary"

	"github.com/zoo-sdk/zoo/quant"
)

// lanes is the number of partial sums that a float sum is divided into.
const lanes = 16

// tree adds 16 partial sums in the fixed order.
func tree(s *[lanes]float32) float32 {
	for half := lanes / 2; half > 0; half /= 2 {
		for i := range half {
			s[i] += s[i+half]
		}
	}
	return s[0]
}

// dotF32 is Set.DotF32.
func dotF32(a, b []float32) float32 {
	var s [lanes]float32
	n := len(a) &^ (lanes - 1)
	for i := 0; i < n; i += lanes {
		x, y := (*[lanes]float32)(a[i:]), (*[lanes]float32)(b[i:])
		s[0] += float32(x[0] * y[0])
		s[1] += float32(x[1] * y[1])
		s[2] += float32(x[2] * y[2])
		s[3] += float32(x[3] * y[3])
		s[4] += float32(x[4] * y[4])
		s[5] += float32(x[5] * y[5])
		s[6] += float32(x[6] * y[6])
		s[7] += float32(x[7] * y[7])
		s[8] += float32(x[8] * y[8])
		s[9] += float32(x[9] * y[9])
		s[10] += float32(x[10] * y[10])
		s[11] += float32(x[11] * y[11])
		s[12] += float32(x[12] * y[12])
		s[13] += float32(x[13] * y[13])
		s[14] += float32(x[14] * y[14])
		s[15] += float32(x[15] * y[15])
	}
	for i := n; i < len(a); i++ {
		s[i-n] += float32(a[i] * b[i])
	}
	return tree(&s)
}

// dotBF16 is dotF32 with little-endian bfloat16 as the second operand.
func dotBF16(a []float32, b []byte) float32 {
	var s [lanes]float32
	n := len(a) &^ (lanes - 1)
	for i := 0; i < n; i += lanes {
		x, y := (*[lanes]float32)(a[i:]), (*[2 * lanes]byte)(b[2*i:])
		for l := range lanes {
			s[l] += float32(x[l] * quant.BF16ToF32(binary.LittleEndian.Uint16(y[2*l:])))
		}
	}
	for i := n; i < len(a); i++ {
		s[i-n] += float32(a[i] * quant.BF16ToF32(binary.LittleEndian.Uint16(b[2*i:])))
	}
	return tree(&s)
}

// sum16 returns the sum of a[i] in 16 lanes. Turning the lanes turns every level
// of the tree: the sum is the same whichever lane the first number is in.
func sum16(a []float32) float32 {
	var s [lanes]float32
	for i, x := range a {
		s[i%lanes] += x
	}
	return tree(&s)
}

// mulBF16 is Set.MulBF16.
func mulBF16(dst []float32, stride int, w []byte, x []float32, s FloatShape) {
	for r := range s.Rows {
		row := w[2*r*s.Cols:][:2*s.Cols]
		for b := range s.Batch {
			dst[b*stride+r] = float32(dotBF16(x[b*s.Cols:][:s.Cols], row) * s.Mul)
		}
	}
}

// scores is Set.Scores.
func scores(dst, q, keys []float32, s AttentionShape, scale float32) {
	for h := range s.Heads {
		for p := range s.Positions {
			dst[h*s.Stride+p] = float32(dotF32(q[h*s.Dim:][:s.Dim], keys[p*s.Dim:][:s.Dim]) * scale)
		}
	}
}

// weighted is Set.WeightedSum.
func weighted(dst, w, values []float32, s AttentionShape) {
	for h := range s.Heads {
		sum := dst[h*s.Dim:][:s.Dim]
		clear(sum)
		for p, weight := range w[h*s.Stride:][:s.Positions] {
			for i, v := range values[p*s.Dim:][:s.Dim] {
				sum[i] += float32(weight * v)
			}
		}
	}
}
