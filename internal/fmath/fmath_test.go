package fmath

import (
	"hash/fnv"
	"math"
	"testing"
)

// ulps returns how far got is from want in units of want's last place.
func ulps(got float32, want float64) float64 {
	w := float32(want)
	unit := math.Abs(float64(math.Nextafter32(w, float32(math.Inf(1)))) - float64(w))
	return math.Abs(float64(got)-want) / unit
}

// sweep calls f for floats that cover [lo, hi] with many magnitudes.
func sweep(lo, hi float32, f func(x float32)) {
	const n = 200000
	for i := range n + 1 {
		t := float64(i) / n
		f(float32(float64(lo) + float64(t*(float64(hi)-float64(lo)))))
		f(float32(math.Ldexp(float64(t*float64(hi)), -i%40)))
		f(float32(math.Ldexp(float64(t*float64(lo)), -i%40)))
	}
}

func TestAccuracy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		got    func(float32) float32
		want   func(float64) float64
		lo, hi float32
		ulps   float64
	}{
		{"exp", Exp, math.Exp, -87.3, 88.7, 2},
		{"tanh", Tanh, math.Tanh, -12, 12, 2},
		{"sin", func(x float32) float32 { s, _ := Sincos(x); return s }, math.Sin, -1 << 20, 1 << 20, 0.51},
		{"cos", func(x float32) float32 { _, c := Sincos(x); return c }, math.Cos, -1 << 20, 1 << 20, 0.51},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			worst, at := 0.0, float32(0)
			sweep(c.lo, c.hi, func(x float32) {
				if u := ulps(c.got(x), c.want(float64(x))); !(u <= worst) {
					worst, at = u, x
				}
			})
			if !(worst <= c.ulps) {
				t.Errorf("%s(%g) is off by %.2f units of the last place, at most %g", c.name, at, worst, c.ulps)
			}
		})
	}
}

func TestExtremes(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	for _, c := range []struct {
		name      string
		got, want float32
	}{
		{"exp(0)", Exp(0), 1},
		{"exp(-inf)", Exp(-inf), 0},
		{"exp(inf)", Exp(inf), inf},
		{"exp(nan)", Exp(nan), nan},
		{"tanh(0)", Tanh(0), 0},
		{"tanh(inf)", Tanh(inf), 1},
		{"tanh(-inf)", Tanh(-inf), -1},
		{"tanh(nan)", Tanh(nan), nan},
		{"gelu(0)", GELU(0), 0},
		{"gelu(-100)", GELU(-100), 0},
		{"gelu(100)", GELU(100), 100},
	} {
		if c.got != c.want && (c.got == c.got || c.want == c.want) {
			t.Errorf("%s = %g, want %g", c.name, c.got, c.want)
		}
	}
}

func TestPow(t *testing.T) {
	t.Parallel()
	for _, base := range []float64{1e4, 1e6, 2, 0.3, 1} {
		for i := -64; i <= 64; i++ {
			x := float64(i) / 32
			got, want := Pow(base, x), math.Pow(base, x)
			if math.Abs(got-want) > 1e-14*want {
				t.Errorf("Pow(%g, %g) = %g, want %g", base, x, got, want)
			}
		}
	}
}

// TestBits pins the bits, so that another machine or compiler that computes anything otherwise is noticed.
func TestBits(t *testing.T) {
	t.Parallel()
	h := fnv.New64a()
	add := func(f float32) {
		b := math.Float32bits(f)
		h.Write([]byte{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)})
	}
	sweep(-20, 20, func(x float32) {
		add(Exp(x))
		add(Tanh(x))
		add(GELU(x))
		s, c := Sincos(x * 1000)
		add(s)
		add(c)
	})
	for i := range 256 {
		add(float32(Pow(1e6, float64(i)/256)))
	}
	if got, want := h.Sum64(), uint64(0xb151214f93b3537d); got != want {
		t.Errorf("the bits of all functions hash to %#x, want %#x", got, want)
	}
}
