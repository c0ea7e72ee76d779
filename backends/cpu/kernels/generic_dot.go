package kernels

import (
	"encoding/binary"

	"github.com/zoo-sdk/zoo/quant"
)

// The loops below multiply two neighbouring lanes at a time: a 64-bit word
// holds a code of each in its halves, and a product with a digit adds to both
// sums at once. The sum of the upper lane stays exact in the upper half since
// neither leaves 32 bits: 255 * 128 * quant.MaxBlockCols < 2^31.

// dot is Set.DotPairs.
func dot(totals []int32, w []byte, x, odd []uint32, s Shape) {
	words := s.Steps * s.Words()
	for b := range s.Blocks {
		if b > 0 {
			x, odd = odd, x
		}
		for g := range s.Groups {
			codes := w[b*s.Stride+g*s.Steps*quant.StepBytes:][:s.Steps*quant.StepBytes]
			act := x[g*words*s.Rows:][:words*s.Rows]
			sums := totals[(b*s.Groups+g)*s.Rows*quant.BlockRows:][:s.Rows*quant.BlockRows]
			for r := range s.Rows {
				for lane := 0; lane < quant.BlockRows; lane += 2 {
					both := dotPair(s.Bits, codes[4*lane:], act[r:], s.Rows)
					lower := int32(both)
					sums[r*quant.BlockRows+lane] = lower
					sums[r*quant.BlockRows+lane+1] = int32((both - int64(lower)) >> 32)
				}
			}
		}
	}
}

// dotPair returns the sums of a lane and, in the upper half, of the next. The
// words of the activations are stride apart.
func dotPair(bits int, codes []byte, x []uint32, stride int) (sum int64) {
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
	return sum
}
