package quant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Grid is a way to round floats to [Int4x32]: which scale a block of 32 columns gets,
// and which code each number of it.
type Grid string

const (
	// GridQ4_0 is ggml's q4_0: the scale d is the number of largest magnitude, the first
	// of equals, over -8, so that this number is met exactly; the code is
	// floor(x*(1/d) + 8.5), bounded by 0 and 15.
	GridQ4_0 Grid = "q4_0"
	// GridAbsMax7 is symmetric: d is the largest magnitude over 7, and the code
	// round(x*(1/d)), to even, bounded by -8 and 7, plus 8.
	GridAbsMax7 Grid = "absmax7"
)

// Grids lists all grids.
func Grids() []Grid { return []Grid{GridQ4_0, GridAbsMax7} }

const (
	// gridCols is the number of columns that share a scale.
	gridCols = 32
	// zeroCode stands for zero.
	zeroCode = 8
	// bf16Magnitude masks a bfloat16's sign away, and bf16Infinite is the magnitude of infinity.
	bf16Magnitude, bf16Infinite = 0x7fff, 0x7f80
	// roundEven is 1.5 * 2^23: added to a small float32 it leaves no bits for fractions.
	roundEven = 12582912
)

// A ValueError reports a number that cannot be rounded to a grid.
type ValueError struct {
	// Index is that of the number in its row.
	Index int
	// Value is the number.
	Value float32
}

// Error gives the number.
func (e *ValueError) Error() string {
	if f := float64(e.Value); math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Sprintf("number %d is %v, which no model can have", e.Index, e.Value)
	}
	return fmt.Sprintf("number %d is %v, whose scale is beyond the largest half", e.Index, e.Value)
}

// Is reports whether target is ErrFormat.
func (e *ValueError) Is(target error) bool { return target == ErrFormat }

// RoundBF16 rounds a row of bfloat16 numbers, little-endian, to the grid. The row is a
// multiple of 32 columns. codes takes half a byte a number, lowest first, as
// [PackRow] and [PackBlock] take them, and scales a number for each 32, exact in
// a half. d and 1/d are float32 and unrounded for the codes; what is stored is d
// rounded to a half. A block of zeros, or of numbers so small that 1/d is no float32,
// gets zeros.
//
// A number that is not finite, or whose scale is not, is a [*ValueError].
func (g Grid) RoundBF16(codes []byte, scales []float32, row []byte) error {
	if len(row)%(2*gridCols) != 0 {
		return fmt.Errorf("%w: %d columns do not fill blocks of %d", ErrFormat, len(row)/2, gridCols)
	}
	var encode func(codes *[gridCols / 2]byte, inverse float32, block *[2 * gridCols]byte)
	switch g {
	case GridQ4_0:
		encode = encodeQ4_0
	case GridAbsMax7:
		encode = encodeAbsMax7
	default:
		return fmt.Errorf("%w: no grid %q", ErrFormat, g)
	}
	for b := range len(row) / (2 * gridCols) {
		block := (*[2 * gridCols]byte)(row[2*gridCols*b:])
		at := largest(block)
		peak := binary.LittleEndian.Uint16(block[2*at:])
		d := g.scale(BF16ToF32(peak))
		half := F16ToF32(F32ToF16(d))
		if peak&bf16Magnitude >= bf16Infinite || math.IsInf(float64(half), 0) {
			return &ValueError{Index: gridCols*b + at, Value: BF16ToF32(peak)}
		}
		inverse := 1 / d
		if d == 0 || math.IsInf(float64(inverse), 0) {
			half, inverse = 0, 0
		}
		scales[b] = half
		encode((*[gridCols / 2]byte)(codes[gridCols/2*b:]), inverse, block)
	}
	return nil
}

// scale returns the unrounded scale of a block by its number of largest magnitude.
func (g Grid) scale(peak float32) float32 {
	if g == GridQ4_0 {
		return peak / -8
	}
	return float32(math.Abs(float64(peak))) / 7
}

// largest returns the index of the first of the numbers of largest magnitude.
func largest(block *[2 * gridCols]byte) int {
	// Magnitudes of bfloat16 are ordered as whole numbers. An index counted down below
	// them lets the first of equals win without a branch.
	most := uint32(0)
	for i := range gridCols {
		magnitude := uint32(binary.LittleEndian.Uint16(block[2*i:])) & bf16Magnitude
		most = max(most, magnitude<<5|uint32(gridCols-1-i))
	}
	return gridCols - 1 - int(most&(gridCols-1))
}

// encodeQ4_0 writes the codes of one block.
func encodeQ4_0(codes *[gridCols / 2]byte, inverse float32, block *[2 * gridCols]byte) {
	for i := range codes {
		pair := binary.LittleEndian.Uint32(block[4*i:])
		low := math.Float32frombits(pair << 16)
		high := math.Float32frombits(pair & 0xffff0000)
		// The sums are above 0, where a conversion rounds down.
		a := min(int32(float32(low*inverse)+8.5), 15)
		b := min(int32(float32(high*inverse)+8.5), 15)
		codes[i] = byte(a | b<<4)
	}
}

// encodeAbsMax7 writes the codes of one block.
func encodeAbsMax7(codes *[gridCols / 2]byte, inverse float32, block *[2 * gridCols]byte) {
	for i := range codes {
		pair := binary.LittleEndian.Uint32(block[4*i:])
		low := math.Float32frombits(pair << 16)
		high := math.Float32frombits(pair & 0xffff0000)
		// No product is beyond 7 by more than its rounding, so that the bounds never bite.
		a := math.Float32bits(float32(low*inverse)+roundEven) + zeroCode
		b := math.Float32bits(float32(high*inverse)+roundEven) + zeroCode
		codes[i] = byte(a&15 | b&15<<4)
	}
}

// CheckBF16 reports the first number of a row of bfloat16, little-endian, that is not
// finite, as a [*ValueError].
func CheckBF16(row []byte) error {
	for i := 0; i+2 <= len(row); i += 2 {
		if x := binary.LittleEndian.Uint16(row[i:]); x&bf16Magnitude >= bf16Infinite {
			return &ValueError{Index: i / 2, Value: BF16ToF32(x)}
		}
	}
	return nil
}

// ParseGrid returns the grid of a name, or an error that matches ErrFormat and lists the names.
func ParseGrid(name string) (Grid, error) {
	for _, g := range Grids() {
		if string(g) == name {
			return g, nil
		}
	}
	return "", fmt.Errorf("%w: no grid %.40q, only %v", ErrFormat, name, Grids())
}
