package kernels

import (
	"encoding/binary"
	"math"

	"github.com/zoo-sdk/zoo/quant"
)

// The loops below multiply two neighbouring lanes at a time: a 64-bit word
// holds a code of each in its halves, and a product with a digit adds to both
// sums at once. The sum of the upper lane stays exact in the upper half since
// neither leaves 32 bits: 255 * 128 * quant.MaxBlockCols < 2^31.

// dot is Set.DotPairs.
func dot(totals []int32, w []byte, x, odd []uint32, s Shape) {
	for b := range s.Blocks {
		if b > 0 {
			x, odd = odd, x
		}
		codes := w[b*s.Stride:][:s.Steps*quant.StepBytes]
		sums := totals[b*s.Rows*quant.BlockRows:][:s.Rows*quant.BlockRows]
		for r := range s.Rows {
			for lane := 0; lane < quant.BlockRows; lane += 2 {
				sums[r*quant.BlockRows+lane], sums[r*quant.BlockRows+lane+1] = dotPair(s.Bits, codes[4*lane:], x[r:], s.Rows)
			}
		}
	}
}

// mulGroups is Set.MulGroups.
func mulGroups(dst []float32, stride int, w []byte, a *GroupActivations, s GroupShape) {
	m := s.matrix()
	size := m.BlockCodeBytes() / s.Groups
	words := s.Format.Group / 4 * s.Rows * s.Planes
	scaleBytes := quant.BlockRows * m.ScaleBytes() / s.Groups
	var scales, minimums [quant.BlockRows]float32
	for b := range s.Blocks {
		block := w[b*s.Stride:]
		for r := range s.Rows {
			out := (*[quant.BlockRows]float32)(dst[r*stride+b*quant.BlockRows:])
			*out = [quant.BlockRows]float32{}
			for g := range s.Groups {
				var totals [quant.BlockRows]int64
				for p := range s.Planes {
					x := a.Words[g*words+r*s.Planes+p:]
					for lane := 0; lane < quant.BlockRows; lane += 2 {
						lower, upper := dotPair(s.Format.Bits, block[g*size+4*lane:][:size-4*lane], x, s.Rows*s.Planes)
						totals[lane] += int64(lower) << (8 * p)
						totals[lane+1] += int64(upper) << (8 * p)
					}
				}
				at := block[m.BlockCodeBytes()+g*scaleBytes:]
				laneScales(&scales, s.Format.Scale, at)
				if s.Format.Minimum {
					laneScales(&minimums, s.Format.Scale, at[scaleBytes/2:])
				}
				for lane, total := range totals {
					y := float32(float32(float32(a.Starts[g*s.Rows+r]+total)*a.Steps[r]) * scales[lane])
					if s.Format.Minimum {
						y -= float32(a.Sums[g*s.Rows+r] * minimums[lane])
					}
					out[lane] += y
				}
			}
		}
	}
}

// laneScales reads the scales or the minimums of a group.
func laneScales(dst *[quant.BlockRows]float32, t quant.ScaleType, src []byte) {
	for lane := range dst {
		if t == quant.ScaleF16 {
			dst[lane] = quant.F16ToF32(binary.LittleEndian.Uint16(src[2*lane:]))
		} else {
			dst[lane] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*lane:]))
		}
	}
}

// dotPair returns the sums of a lane and of the next. The words of the activations are stride apart.
func dotPair(bits int, codes []byte, x []uint32, stride int) (first, second int32) {
	sum := int64(0)
	mask := uint64(1)<<bits - 1
	mask |= mask << 32
	n := 8 / bits
	for at, k := 0, 0; at+8 <= len(codes); at += quant.StepBytes {
		w := binary.LittleEndian.Uint64(codes[at:])
		for range n {
			v := x[k]
			k += stride
			sum += int64(w&mask)*int64(int8(v)) + int64(w>>8&mask)*int64(int8(v>>8)) +
				int64(w>>16&mask)*int64(int8(v>>16)) + int64(w>>24&mask)*int64(int8(v>>24))
			w >>= bits
		}
	}
	first = int32(sum)
	return first, int32((sum - int64(first)) >> 32)
}
