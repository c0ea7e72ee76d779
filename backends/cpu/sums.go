package cpu

import "github.com/zoo-sdk/zoo/quant"

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

// dot returns the sum of a[i]*b[i] in 16 lanes. b is at least as long as a.
func dot(a, b []float32) float32 {
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

// dotInt8 is dot with codes as the second operand.
func dotInt8(a []float32, b []int8) float32 {
	var s [lanes]float32
	n := len(a) &^ (lanes - 1)
	for i := 0; i < n; i += lanes {
		x, y := (*[lanes]float32)(a[i:]), (*[lanes]int8)(b[i:])
		s[0] += float32(x[0] * float32(y[0]))
		s[1] += float32(x[1] * float32(y[1]))
		s[2] += float32(x[2] * float32(y[2]))
		s[3] += float32(x[3] * float32(y[3]))
		s[4] += float32(x[4] * float32(y[4]))
		s[5] += float32(x[5] * float32(y[5]))
		s[6] += float32(x[6] * float32(y[6]))
		s[7] += float32(x[7] * float32(y[7]))
		s[8] += float32(x[8] * float32(y[8]))
		s[9] += float32(x[9] * float32(y[9]))
		s[10] += float32(x[10] * float32(y[10]))
		s[11] += float32(x[11] * float32(y[11]))
		s[12] += float32(x[12] * float32(y[12]))
		s[13] += float32(x[13] * float32(y[13]))
		s[14] += float32(x[14] * float32(y[14]))
		s[15] += float32(x[15] * float32(y[15]))
	}
	for i := n; i < len(a); i++ {
		s[i-n] += float32(a[i] * float32(b[i]))
	}
	return tree(&s)
}

// dotBF16 is dot with little-endian bfloat16 as the second operand, two bytes for each number of a.
func dotBF16(a []float32, b []byte) float32 {
	var s [lanes]float32
	at := func(i int) float32 { return quant.BF16ToF32(uint16(b[2*i]) | uint16(b[2*i+1])<<8) }
	n := len(a) &^ (lanes - 1)
	for i := 0; i < n; i += lanes {
		x, y := (*[lanes]float32)(a[i:]), (*[2 * lanes]byte)(b[2*i:])
		for l := range lanes {
			s[l] += float32(x[l] * quant.BF16ToF32(uint16(y[2*l])|uint16(y[2*l+1])<<8))
		}
	}
	for i := n; i < len(a); i++ {
		s[i-n] += float32(a[i] * at(i))
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
