package cpu

import (
	"encoding/binary"

	"github.com/zoo-sdk/zoo/quant"
)

// The kernels below multiply two neighbouring rows at a time: a 64-bit word
// holds a code of each row in its halves, and a product with an 8-bit
// activation adds to both sums at once. The sum of the upper row stays exact
// in the upper half since neither leaves 32 bits: 255 * 128 * quant.MaxBlockCols < 2^31.

// dotPair returns the sums of codes times x for the lane that codes starts at
// and the next. x is 8-bit.
func dotPair(bits int, codes []byte, x []int32) (lower, upper int64) {
	var both int64
	switch bits {
	case 2:
		both = pairInt2(codes, x)
	case 4:
		both = pairInt4(codes, x)
	default:
		both = pairUint8(codes, x)
	}
	lower = int64(int32(both))
	return lower, (both - lower) >> 32
}

// pairInt2 is dotPair for 16 codes a step.
func pairInt2(codes []byte, x []int32) (sum int64) {
	const mask = 3<<32 | 3
	for at := 0; len(x) >= 16; x, at = x[16:], at+quant.StepBytes {
		w := binary.LittleEndian.Uint64(codes[at:])
		v := (*[16]int32)(x)
		sum += int64(w&mask)*int64(v[0]) + int64(w>>8&mask)*int64(v[1]) + int64(w>>16&mask)*int64(v[2]) + int64(w>>24&mask)*int64(v[3])
		w >>= 2
		sum += int64(w&mask)*int64(v[4]) + int64(w>>8&mask)*int64(v[5]) + int64(w>>16&mask)*int64(v[6]) + int64(w>>24&mask)*int64(v[7])
		w >>= 2
		sum += int64(w&mask)*int64(v[8]) + int64(w>>8&mask)*int64(v[9]) + int64(w>>16&mask)*int64(v[10]) + int64(w>>24&mask)*int64(v[11])
		w >>= 2
		sum += int64(w&mask)*int64(v[12]) + int64(w>>8&mask)*int64(v[13]) + int64(w>>16&mask)*int64(v[14]) + int64(w>>24&mask)*int64(v[15])
	}
	return sum
}

// pairInt4 is dotPair for 8 codes a step.
func pairInt4(codes []byte, x []int32) (sum int64) {
	const mask = 15<<32 | 15
	for at := 0; len(x) >= 8; x, at = x[8:], at+quant.StepBytes {
		w := binary.LittleEndian.Uint64(codes[at:])
		v := (*[8]int32)(x)
		sum += int64(w&mask)*int64(v[0]) + int64(w>>8&mask)*int64(v[1]) + int64(w>>16&mask)*int64(v[2]) + int64(w>>24&mask)*int64(v[3])
		w >>= 4
		sum += int64(w&mask)*int64(v[4]) + int64(w>>8&mask)*int64(v[5]) + int64(w>>16&mask)*int64(v[6]) + int64(w>>24&mask)*int64(v[7])
	}
	return sum
}

// pairUint8 is dotPair for 4 codes a step.
func pairUint8(codes []byte, x []int32) (sum int64) {
	const mask = 255<<32 | 255
	for at := 0; len(x) >= 4; x, at = x[4:], at+quant.StepBytes {
		w := binary.LittleEndian.Uint64(codes[at:])
		v := (*[4]int32)(x)
		sum += int64(w&mask)*int64(v[0]) + int64(w>>8&mask)*int64(v[1]) + int64(w>>16&mask)*int64(v[2]) + int64(w>>24&mask)*int64(v[3])
	}
	return sum
}
