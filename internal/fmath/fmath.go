// Package fmath holds the elementary functions of the engine. Each is a fixed
// order of rounded operations: it gives the same bits on every machine, and a
// vector version can repeat it lane by lane. Explicit conversions keep the
// compiler from fusing multiplications with additions.
//
// The coefficients are the minimax polynomials of the Cephes and fdlibm libraries.
package fmath

import "math"

const (
	log2e = 1.44269504088896341
	ln2hi = 0.693359375 // few bits: n*ln2hi is exact for |n| < 2^13
	ln2lo = -2.12194440e-4
	// magic rounds a float32 of magnitude below 2^22 to the nearest integer, ties to even, when added and taken off again.
	magic = 12582912
)

// Exp returns e to the x, within 2 units of the last place. Below -87.3 it
// returns 0 (no subnormal results), above 88.7 infinity, and NaN for NaN.
func Exp(x float32) float32 {
	switch {
	case x != x:
		return x
	case x > 88.72283:
		return float32(math.Inf(1))
	case x < -87.33654:
		return 0
	}
	n := float32(float32(float32(x*log2e)+magic) - magic)
	r := x - float32(n*ln2hi)
	r -= float32(n * ln2lo)
	p := float32(1.9875691500e-4)
	p = float32(p*r) + 1.3981999507e-3
	p = float32(p*r) + 8.3334519073e-3
	p = float32(p*r) + 4.1665795894e-2
	p = float32(p*r) + 1.6666665459e-1
	p = float32(p*r) + 5.0000001201e-1
	y := float32(float32(p*float32(r*r))+r) + 1
	// Two factors, since 2^128 is no float32.
	half := int32(n) >> 1
	return float32(float32(y*pow2(half)) * pow2(int32(n)-half))
}

// pow2 returns 2^n for n in [-126, 127].
func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// Tanh returns the hyperbolic tangent, within 2 units of the last place.
func Tanh(x float32) float32 {
	a := x
	if a < 0 {
		a = -a
	}
	if a < 0.625 {
		z := float32(x * x)
		p := float32(-5.70498872745e-3)
		p = float32(p*z) + 2.06390887954e-2
		p = float32(p*z) - 5.37397155531e-2
		p = float32(p*z) + 1.33314422036e-1
		p = float32(p*z) - 3.33332819422e-1
		return float32(float32(p*z)*x) + x
	}
	t := 1 - 2/(Exp(float32(2*a))+1)
	if x < 0 {
		return -t
	}
	return t
}

// GELU returns the Gaussian error linear unit in its tanh form,
// 0.5*x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x^3))).
func GELU(x float32) float32 {
	cube := float32(float32(x*x) * x)
	t := Tanh(float32(0.7978845608028654 * (x + float32(0.044715*cube))))
	return float32(float32(0.5*x) * (1 + t))
}

// Sincos returns sine and cosine of an angle in radians, rounded from values
// within 2^-50 of the true ones, for magnitudes up to 2^20.
func Sincos(angle float32) (sin, cos float32) {
	const (
		twoOverPi = 6.36619772367581382433e-01
		// pi/2 in three parts of 33 bits, so that n times a part is exact.
		pio2a = 1.57079632673412561417e+00
		pio2b = 6.07710050630396597660e-11
		pio2c = 2.02226624871116645580e-21
	)
	x := float64(angle)
	n := math.Floor(float64(x*twoOverPi) + 0.5)
	r := x - float64(n*pio2a)
	r -= float64(n * pio2b)
	r -= float64(n * pio2c)
	z := float64(r * r)

	s := 1.58969099521155010221e-10
	s = float64(s*z) - 2.50507602534068634195e-08
	s = float64(s*z) + 2.75573137070700676789e-06
	s = float64(s*z) - 1.98412698298579493134e-04
	s = float64(s*z) + 8.33333333332248946124e-03
	s = float64(s*z) - 1.66666666666666324348e-01
	s = float64(float64(s*z)*r) + r

	c := -1.13596475577881948265e-11
	c = float64(c*z) + 2.08757232129817482790e-09
	c = float64(c*z) - 2.75573143513906633035e-07
	c = float64(c*z) + 2.48015872894767294178e-05
	c = float64(c*z) - 1.38888888888741095749e-03
	c = float64(c*z) + 4.16666666666666019037e-02
	c = float64(float64(c*z)*z) + (1 - float64(0.5*z))

	switch int64(n) & 3 {
	case 0:
		return float32(s), float32(c)
	case 1:
		return float32(c), float32(-s)
	case 2:
		return float32(-s), float32(-c)
	}
	return float32(-c), float32(s)
}

// Pow returns base to the exponent for a positive base, within 2^-48 of the true value.
func Pow(base, exponent float64) float64 { return exp64(float64(exponent * log64(base))) }

const (
	ln2hi64 = 6.93147180369123816490e-01
	ln2lo64 = 1.90821492927058770002e-10
)

// log64 returns the natural logarithm of a positive number by the series of the area hyperbolic tangent.
func log64(x float64) float64 {
	m, k := math.Frexp(x) // [0.5, 1)
	if m < math.Sqrt2/2 {
		m *= 2
		k--
	}
	s := (m - 1) / (m + 1)
	z := float64(s * s)
	sum := 0.0
	for i := 25; i >= 1; i -= 2 {
		sum = float64(sum*z) + 1/float64(i)
	}
	return float64(float64(k)*ln2hi64) + (float64(float64(k)*ln2lo64) + float64(2*float64(s*sum)))
}

// exp64 returns e to the x by reduction and series.
func exp64(x float64) float64 {
	n := math.Floor(float64(x*math.Log2E) + 0.5)
	r := (x - float64(n*ln2hi64)) - float64(n*ln2lo64)
	sum := 1.0
	for i := 16; i >= 1; i-- {
		sum = float64(float64(sum*r)/float64(i)) + 1
	}
	return math.Ldexp(sum, int(n))
}
