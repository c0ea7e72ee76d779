package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/quant"
)

// pointwiseLengths holds every number of elements up to some rounds of the widest loops, and a few more.
func pointwiseLengths() (all []int) {
	for n := range 140 {
		all = append(all, n)
	}
	return append(all, 255, 256, 257, 1000, 1536)
}

// pointwiseCases holds the operations that treat floats one by one, over vectors a, b and w of equal length, all of which they may change.
var pointwiseCases = []struct {
	name string
	do   func(s *kernels.Set, a, b, w []float32)
}{
	{"norm", func(s *kernels.Set, a, b, w []float32) { s.Norm(a, b, w, 0.37) }},
	{"norm of itself", func(s *kernels.Set, a, _, w []float32) { s.Norm(a, a, w, 1e30) }},
	{"norm without weight", func(s *kernels.Set, a, b, _ []float32) { s.Norm(a, b, nil, -3.1) }},
	{"add norm", func(s *kernels.Set, a, b, w []float32) { s.AddNorm(a, b, w, 0.37, 0.99) }},
	{"add norm without weight", func(s *kernels.Set, a, b, _ []float32) { s.AddNorm(a, b, nil, 0.37, 1e-38) }},
	{"add", func(s *kernels.Set, a, b, w []float32) { s.AddMul(a, b, w, 0.7071) }},
	{"add to the first", func(s *kernels.Set, a, b, _ []float32) { s.AddMul(a, a, b, 1) }},
	{"add to the second", func(s *kernels.Set, a, b, _ []float32) { s.AddMul(a, b, a, 0) }},
	{"scale and add", func(s *kernels.Set, a, b, _ []float32) { s.ScaleAdd(a, b, 0.3, -1.7) }},
	{"divide", func(s *kernels.Set, a, _, _ []float32) { s.Div(a, 1.7) }},
	{"divide by zero", func(s *kernels.Set, a, _, _ []float32) { s.Div(a, 0) }},
	{"grid", func(s *kernels.Set, a, _, _ []float32) { s.Grid(a, 0.05) }},
	{"coarse grid", func(s *kernels.Set, a, _, _ []float32) { s.Grid(a, 1e6) }},
	{"no grid", func(s *kernels.Set, a, _, _ []float32) { s.Grid(a, float32(math.NaN())) }},
	{"rotate", func(s *kernels.Set, a, b, _ []float32) { s.Rotate(a, b) }},
	{"gelu", func(s *kernels.Set, a, b, w []float32) { s.GELUMul(a, b, w) }},
	{"gelu of itself", func(s *kernels.Set, a, b, _ []float32) { s.GELUMul(a, a, b) }},
	{"gelu into the second", func(s *kernels.Set, a, b, _ []float32) { s.GELUMul(a, b, a) }},
	{"softcap", func(s *kernels.Set, a, _, _ []float32) { s.Softcap(a, 30) }},
	{"softcap of one", func(s *kernels.Set, a, _, _ []float32) { s.Softcap(a, 1) }},
}

func TestPointwise(t *testing.T) {
	t.Parallel()
	others(t, func(t *testing.T, s *kernels.Set) {
		for _, c := range pointwiseCases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(3, 4))
				guards := [3]guard[float32]{newGuard[float32](t, 1536), newGuard[float32](t, 1536), newGuard[float32](t, 1536)}
				for _, n := range pointwiseLengths() {
					for _, salt := range []int{0, 3} {
						in := [3][]float32{floats(rng, n, salt), floats(rng, n, salt), floats(rng, n, salt)}
						var got, want [3][]float32
						for i, x := range in {
							got[i], want[i] = guards[i].hold(x), slices.Clone(x)
						}
						c.do(s, got[0], got[1], got[2])
						c.do(kernels.Generic(), want[0], want[1], want[2])
						for i := range in {
							if at := firstDiff(got[i], want[i]); at >= 0 {
								t.Fatalf("vector %d of %d: [%d] is %g, want %g; from %g, %g, %g",
									i, n, at, got[i][at], want[i][at], in[0][at], in[1][at], in[2][at])
							}
						}
					}
				}
			})
		}
	})
}

// sweep returns floats of every exponent and sign, a fine grid where exp and
// tanh are neither 0 nor saturated, and neighbours of where they branch.
func sweep() (x []float32) {
	for bits := uint32(0); bits < 1<<32-1<<15; bits += 1 << 15 {
		x = append(x, math.Float32frombits(bits+bits>>15%7919))
	}
	for i := range 1 << 17 {
		x = append(x, float32(i-1<<16)/512, float32(i-1<<16)/65536)
	}
	for _, edge := range []float32{0.625, 87.33654, 88.72283, 10, 20} {
		for i := range uint32(512) {
			v := math.Float32frombits(math.Float32bits(edge) + i - 256)
			x = append(x, v, -v)
		}
	}
	return append(x, extremes...)
}

// TestElementary compares the elementary functions on floats from everywhere.
func TestElementary(t *testing.T) {
	t.Parallel()
	x := sweep()
	ones := make([]float32, len(x))
	for i := range ones {
		ones[i] = 1
	}
	ops := map[string]func(s *kernels.Set, x []float32){
		"gelu":    func(s *kernels.Set, x []float32) { s.GELUMul(x, x, ones) },
		"softcap": func(s *kernels.Set, x []float32) { s.Softcap(x, 1) },
		"exp": func(s *kernels.Set, x []float32) {
			for len(x) > 0 {
				n := min(len(x), 255)
				w := append([]float32{0}, x[:n]...)
				for i, v := range w {
					w[i] = min(v, 0) // so that 0 is the largest, and what is not a number stays
				}
				s.Softmax(w)
				copy(x, w[1:])
				x = x[n:]
			}
		},
	}
	others(t, func(t *testing.T, s *kernels.Set) {
		for name, op := range ops {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got, want := slices.Clone(x), slices.Clone(x)
				op(s, got)
				op(kernels.Generic(), want)
				if at := firstDiff(got, want); at >= 0 {
					t.Fatalf("of %g (%#x): %g, want %g", x[at], math.Float32bits(x[at]), got[at], want[at])
				}
			})
		}
	})
}

func TestMaxAbs(t *testing.T) {
	t.Parallel()
	others(t, func(t *testing.T, s *kernels.Set) {
		rng := rand.New(rand.NewPCG(5, 6))
		held := newGuard[float32](t, 1536)
		for _, n := range pointwiseLengths() {
			for _, salt := range []int{0, 200} {
				x := held.hold(floats(rng, n, salt))
				got, want := s.MaxAbs(x), kernels.Generic().MaxAbs(x)
				if firstDiff([]float32{got}, []float32{want}) >= 0 {
					t.Fatalf("of %v: %g, want %g", x, got, want)
				}
			}
		}
		zeros := make([]float32, 40)
		for i := range zeros {
			zeros[i] = float32(math.Copysign(0, -1))
		}
		if got := math.Float32bits(s.MaxAbs(zeros)); got != 0 {
			t.Errorf("of negative zeros: %#x", got)
		}
		for i := range zeros {
			for _, sign := range []float64{1, -1} {
				x := slices.Clone(zeros)
				x[i] = float32(math.Copysign(math.NaN(), sign))
				x[(i+7)%len(x)] = float32(math.Inf(1))
				if got := s.MaxAbs(x); got == got {
					t.Errorf("with what is not a number at %d: %g", i, got)
				}
			}
		}
	})
}

func TestMax(t *testing.T) {
	t.Parallel()
	negative := float32(math.Copysign(0, -1))
	others(t, func(t *testing.T, s *kernels.Set) {
		rng := rand.New(rand.NewPCG(17, 18))
		held := newGuard[float32](t, 1536)
		check := func(x []float32) {
			t.Helper()
			got, want := s.Max(held.hold(x)), kernels.Generic().Max(x)
			if firstDiff([]float32{got}, []float32{want}) >= 0 {
				t.Fatalf("of %v: %g, want %g", x, got, want)
			}
		}
		for _, n := range pointwiseLengths() {
			x := floats(rng, n, 0)
			check(x)
			check(floats(rng, n, 200))
			for i, v := range x {
				x[i] = -v * v
			}
			check(x)
			for i := range min(n, 140) {
				y := slices.Clone(x)
				y[i], y[rng.IntN(n)] = 0, negative
				check(y)
				y[i] = float32(math.Inf(1 - 2*(i%2)))
				check(y)
				y[rng.IntN(n)] = math.Float32frombits(0x7f80_0001 | rng.Uint32()) // no number, of either sign
				check(y)
			}
			check(slices.Repeat([]float32{float32(math.Inf(-1))}, n))
		}
	})
}

func TestSoftmax(t *testing.T) {
	t.Parallel()
	negative := float32(math.Copysign(0, -1))
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	others(t, func(t *testing.T, s *kernels.Set) {
		rng := rand.New(rand.NewPCG(7, 8))
		held := newGuard[float32](t, 1536)
		check := func(w []float32) {
			t.Helper()
			got, want := held.hold(w), slices.Clone(w)
			gotLargest, gotSum := s.Softmax(got)
			wantLargest, wantSum := kernels.Generic().Softmax(want)
			if at := firstDiff(append(slices.Clone(got), gotLargest, gotSum), append(want, wantLargest, wantSum)); at >= 0 {
				t.Fatalf("of %v: [%d] of %v, %g and %g, want %v, %g and %g", w, at, got, gotLargest, gotSum, want[:len(w)], wantLargest, wantSum)
			}
		}
		for _, n := range pointwiseLengths()[1:] {
			for _, salt := range []int{0, 2, 100} {
				check(floats(rng, n, salt))
			}
			low := floats(rng, n, 0)
			for i, v := range low {
				low[i] = -v * v
			}
			check(low)
			low[rng.IntN(n)], low[rng.IntN(n)] = 0, negative
			check(low)
		}
		for i := range 40 {
			w := make([]float32, 40)
			for j := range w {
				w[j] = [2]float32{0, negative}[rng.IntN(2)]
			}
			check(w)
			w[i] = nan
			check(w)
			w[i] = math.Float32frombits(0xffc0_0001 + uint32(i)) // the payload must not matter
			check(w)
			w[i] = inf
			check(w)
			w[i] = -inf
			check(w)
		}
		check(slices.Repeat([]float32{-inf}, 20))
	})
}

func TestQuantize(t *testing.T) {
	t.Parallel()
	type limits struct{ step, lo, hi float32 }
	of := func(planes int) []limits {
		most := float32([...]int{1: 127, 2: 32639, 3: 1<<23 - 32896 - 1}[planes])
		return []limits{{0.01, -most - 1, most}, {1.0 / 3, -most, most}, {1e-6, -most, most}, {30, -most, most}, {0, -most, most}, {float32(math.NaN()), -most, most}, {-1, -3, 2}}
	}
	others(t, func(t *testing.T, s *kernels.Set) {
		for planes := 1; planes <= kernels.MaxPlanes; planes++ {
			t.Run(fmt.Sprint(planes), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(9, uint64(planes)))
				const most = 3<<16 + 17
				digits, numbers := newGuard[uint32](t, planes*(most/4+3)), newGuard[float32](t, most)
				for _, n := range append(pointwiseLengths(), 1<<16, 1<<16+1, most) {
					for i, l := range of(planes) {
						if n > 1<<16 && i > 1 {
							continue
						}
						for _, salt := range []int{0, 4} {
							x := floats(rng, n, salt)
							size := (n+3)/4 + rng.IntN(3)
							want := make([]uint32, planes*size)
							for i := range want {
								want[i] = rng.Uint32()
							}
							got := digits.hold(want)
							gotSum := s.Quantize(got, numbers.hold(x), planes, l.step, l.lo, l.hi)
							wantSum := kernels.Generic().Quantize(want, x, planes, l.step, l.lo, l.hi)
							if gotSum != wantSum {
								t.Fatalf("%d numbers, %+v: sum %d, want %d", n, l, gotSum, wantSum)
							}
							if !slices.Equal(got, want) {
								t.Fatalf("%d numbers, %+v: wrong digits", n, l)
							}
						}
					}
				}
			})
		}
	})
}

// finishCase is a call of Finish.
type finishCase struct {
	kernels.Final
	stride int
	totals []int32
	scales []byte
}

// newFinishCase returns a random one of a shape.
func newFinishCase(rng *rand.Rand, f kernels.Final, gap, salt int) finishCase {
	c := finishCase{Final: f, stride: f.Blocks*quant.BlockRows + gap}
	c.totals = make([]int32, ((f.Blocks-1)*max(1, f.Every)+1)*f.Rows*f.Planes*quant.BlockRows)
	for i := range c.totals {
		c.totals[i] = int32(rng.Uint32()) >> rng.IntN(32)
		if rng.IntN(8) == 0 {
			c.totals[i] = [...]int32{0, math.MaxInt32, math.MinInt32, -1}[rng.IntN(4)]
		}
	}
	size := 4 * quant.BlockRows
	c.ScaleStride = size + rng.IntN(9)
	c.scales = make([]byte, (f.Blocks-1)*c.ScaleStride+size)
	for i := range c.scales {
		c.scales[i] = byte(rng.Uint32())
	}
	for range f.Rows {
		c.Starts = append(c.Starts, float64(rng.Int64()>>(16+rng.IntN(40))))
	}
	c.Steps = floats(rng, f.Rows, salt)
	for i := range c.Steps {
		c.Steps[i] *= 1e-3
	}
	if f.Out != 0 {
		// Scales whose products spread over the grid.
		for b := range f.Blocks {
			for lane := range quant.BlockRows {
				bits := math.Float32bits(float32(math.Ldexp(rng.NormFloat64(), -rng.IntN(40))))
				for k := range 4 {
					c.scales[b*c.ScaleStride+4*lane+k] = byte(bits >> (8 * k))
				}
			}
		}
	}
	return c
}

func TestFinish(t *testing.T) {
	t.Parallel()
	others(t, func(t *testing.T, s *kernels.Set) {
		for planes := 1; planes <= kernels.MaxPlanes; planes++ {
			t.Run(fmt.Sprint(planes), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(11, uint64(planes)))
				results, totals, scales := newGuard[float32](t, 1<<10), newGuard[int32](t, 1<<13), newGuard[byte](t, 1<<10)
				for i := range 600 {
					f := kernels.Final{
						Blocks: 1 + rng.IntN(3), Rows: 1 + rng.IntN(4), Planes: planes,
						Out: [...]float32{0, 0.05, 3, 1e6, float32(math.NaN())}[rng.IntN(5)], Mul: [...]float32{1, 0.7, -2}[rng.IntN(3)], Every: rng.IntN(3),
					}
					c := newFinishCase(rng, f, rng.IntN(40), i%3*3)
					want := floats(rng, (f.Rows-1)*c.stride+f.Blocks*quant.BlockRows, 0)
					got := results.hold(want)
					s.Finish(got, c.stride, totals.hold(c.totals), scales.hold(c.scales), &c.Final)
					kernels.Generic().Finish(want, c.stride, c.totals, c.scales, &c.Final)
					if at := firstDiff(got, want); at >= 0 {
						t.Fatalf("%+v: [%d] is %g, want %g", c.Final, at, got[at], want[at])
					}
				}
			})
		}
	})
}

func BenchmarkPointwise(b *testing.B) {
	const n = 1536
	rng := rand.New(rand.NewPCG(13, 14))
	x, y, w := floats(rng, n, 0), floats(rng, n, 0), floats(rng, n, 0)
	digits := make([]uint32, kernels.MaxPlanes*n/4)
	for _, s := range kernels.Variants() {
		ops := []struct {
			name string
			do   func()
		}{
			{"maxabs", func() { s.MaxAbs(x) }},
			{"max", func() { s.Max(x) }},
			{"quantize1", func() { s.Quantize(digits, x, 1, 0.5, -128, 127) }},
			{"quantize3", func() { s.Quantize(digits, x, 3, 1e-4, -8e6, 8e6) }},
			{"norm", func() { s.Norm(y, x, w, 0.5) }},
			{"addnorm", func() { s.AddNorm(y, x, w, 0.5, 0.5) }},
			{"rotate", func() { s.Rotate(y, w) }},
			{"gelu", func() { s.GELUMul(y, x, w) }},
			{"softcap", func() { copy(y, x); s.Softcap(y, 30) }},
			{"softmax", func() {
				copy(y, x)
				for i := 0; i < n; i += 256 {
					s.Softmax(y[i : i+256])
				}
			}},
		}
		for _, op := range ops {
			b.Run(s.Name()+"/"+op.name, func(b *testing.B) {
				b.SetBytes(4 * n)
				for b.Loop() {
					op.do()
				}
			})
		}
	}
}

func BenchmarkFinish(b *testing.B) {
	rng := rand.New(rand.NewPCG(15, 16))
	for _, s := range kernels.Variants() {
		for _, planes := range []int{1, 3} {
			for _, out := range []float32{0, 0.05} {
				f := kernels.Final{Blocks: 8, Rows: 8, Planes: planes, Out: out, Mul: 1}
				c := newFinishCase(rng, f, 0, 0)
				dst := make([]float32, f.Rows*c.stride)
				b.Run(fmt.Sprintf("%s/%d/out=%g", s.Name(), planes, out), func(b *testing.B) {
					b.SetBytes(int64(4 * len(c.totals)))
					for b.Loop() {
						s.Finish(dst, c.stride, c.totals, c.scales, &c.Final)
					}
				})
			}
		}
	}
}

func TestRoundInt8(t *testing.T) {
	t.Parallel()
	others(t, func(t *testing.T, s *kernels.Set) {
		rng := rand.New(rand.NewPCG(11, 12))
		guards, numbers := newGuard[int8](t, 1536), newGuard[float32](t, 1536)
		for _, n := range pointwiseLengths() {
			for _, step := range []float32{0.01, 1, 1e-40, 1e30} {
				x := floats(rng, n, 4)
				got, want := guards.hold(make([]int8, n)), make([]int8, n)
				s.RoundInt8(got, numbers.hold(x), step)
				kernels.Generic().RoundInt8(want, x, step)
				if !slices.Equal(got, want) {
					t.Fatalf("%d numbers with step %g: %v, want %v; from %g", n, step, got, want, x)
				}
			}
		}
	})
}
