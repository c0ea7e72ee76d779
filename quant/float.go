package quant

import "math"

// BF16ToF32 returns the value of a bfloat16.
func BF16ToF32(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// F16ToF32 returns the value of an IEEE 754 half.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h & 0x3ff)
	switch exp {
	case 0: // zero or subnormal: frac * 2^-24, exact in float32
		v := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// F32ToF16 rounds f to the nearest IEEE 754 half, ties to even; what is too large becomes infinity.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	abs := b & 0x7fffffff
	switch {
	case abs > 0x7f800000: // NaN: keep it quiet
		return sign | 0x7e00
	case abs >= 0x47800000: // 65536 and above
		return sign | 0x7c00
	case abs < 0x38800000: // below 2^-14: subnormal, unit 2^-24
		// Adding 0.5 aligns the unit of the sum with 2^-24, so that the addition itself rounds to even.
		sum := math.Float32frombits(abs) + 0.5
		return sign | uint16(math.Float32bits(sum)-math.Float32bits(0.5))
	}
	round := abs + 0xfff + (abs>>13)&1
	return sign | uint16((round-0x38000000)>>13)
}
