package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
)

// lengths of rows: ragged, whole, and as models have them.
var lengths = []int{1, 2, 3, 5, 8, 15, 16, 17, 24, 31, 32, 33, 47, 48, 63, 64, 80, 95, 100, 127, 128, 129, 200, 255, 256, 257, 512}

// brains returns random bfloat16, one in salt of them extreme, none for 0.
func brains(rng *rand.Rand, n, salt int) []byte {
	x := make([]byte, 2*n)
	for i, v := range floats(rng, n, salt) {
		bits := math.Float32bits(v) >> 16
		x[2*i], x[2*i+1] = byte(bits), byte(bits>>8)
	}
	return x
}

// attentionCase is work on a block of a cache.
type attentionCase struct {
	kernels.AttentionShape
	salt int // one number in so many is extreme
}

// attentionCases returns shapes with every number of heads and ragged numbers of the rest.
func attentionCases(rng *rand.Rand) (all []attentionCase) {
	add := func(heads, dim, positions, gap, salt int) {
		all = append(all, attentionCase{kernels.AttentionShape{Heads: heads, Dim: dim, Positions: positions, Stride: positions + gap}, salt})
	}
	for heads := 1; heads <= 32; heads++ {
		add(heads, lengths[rng.IntN(len(lengths))], 1+rng.IntN(20), rng.IntN(3), 0)
		add(heads, 16*(1+rng.IntN(8)), 1+rng.IntN(20), rng.IntN(3), 50)
	}
	for _, dim := range lengths {
		add(1+rng.IntN(9), dim, 1+rng.IntN(40), rng.IntN(3), 0)
		add(1+rng.IntN(9), dim, 1+rng.IntN(40), 0, 400)
	}
	for _, heads := range []int{1, 2, 4, 8, 16} {
		add(heads, 256, 256, 0, 0)
		add(heads, 512, 255, 1, 20000)
	}
	add(0, 16, 4, 0, 0)
	add(3, 16, 0, 5, 0)
	return all
}

// scores returns the length of the scores of a shape.
func (c attentionCase) scores() int { return max(0, (c.Heads-1)*c.Stride+c.Positions) }

// unwritten fills results before a call, to show what a kernel leaves alone.
func unwritten(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = -12345
	}
	return x
}

// mustEqual fails on results that are not those of the plain kernel.
func mustEqual(t *testing.T, what any, got, want []float32) {
	t.Helper()
	if i := firstDiff(got, want); i >= 0 {
		t.Fatalf("%+v: result %d of %d is %v, want %v", what, i, len(got), got[i], want[i])
	}
}

func TestDotF32(t *testing.T) {
	t.Parallel()
	others(t, func(t *testing.T, s *kernels.Set) {
		rng := rand.New(rand.NewPCG(2, 1))
		for round := range 200 {
			n := rng.IntN(300)
			a, b := floats(rng, n, round%3*40), floats(rng, n, round%2*60)
			got := s.DotF32(guardedCopy(t, a), guardedCopy(t, b))
			mustEqual(t, n, []float32{got}, []float32{kernels.Generic().DotF32(a, b)})
		}
	})
}

// TestDotF32Tree has one large number in each lane, so that any other order of additions gives other bits.
func TestDotF32Tree(t *testing.T) {
	t.Parallel()
	others(t, func(t *testing.T, s *kernels.Set) {
		rng := rand.New(rand.NewPCG(2, 2))
		ones := make([]float32, 64)
		for i := range ones {
			ones[i] = 1
		}
		for range 500 {
			x := make([]float32, 64)
			for i := range x {
				x[i] = float32(rng.NormFloat64() * math.Pow(2, float64(rng.IntN(40))))
			}
			mustEqual(t, x, []float32{s.DotF32(x, ones)}, []float32{kernels.Generic().DotF32(x, ones)})
		}
	})
}

func TestMulBF16(t *testing.T) {
	t.Parallel()
	others(t, func(t *testing.T, s *kernels.Set) {
		rng := rand.New(rand.NewPCG(2, 3))
		for batch := range 20 {
			for round := range 12 {
				sh := kernels.FloatShape{Rows: rng.IntN(25), Cols: lengths[rng.IntN(len(lengths))], Batch: batch, Mul: 0.3}
				switch {
				case round%2 == 0:
					sh.Cols = 16 * rng.IntN(20)
				case round == 1: // more than one block of rows
					sh.Rows, sh.Cols = 70, 1536
				}
				stride, salt := sh.Rows+rng.IntN(3), round%3*500
				w, x := brains(rng, sh.Rows*sh.Cols, salt), floats(rng, batch*sh.Cols, salt)
				want := unwritten(max(0, (batch-1)*stride+sh.Rows))
				got := guardedCopy(t, want)
				kernels.Generic().MulBF16(want, stride, w, x, sh)
				s.MulBF16(got, stride, guardedCopy(t, w), guardedCopy(t, x), sh)
				mustEqual(t, sh, got, want)
			}
		}
	})
}

func TestScores(t *testing.T) {
	t.Parallel()
	others(t, func(t *testing.T, s *kernels.Set) {
		rng := rand.New(rand.NewPCG(2, 4))
		for _, c := range attentionCases(rng) {
			q, keys := floats(rng, c.Heads*c.Dim, c.salt), floats(rng, c.Positions*c.Dim, c.salt)
			want := unwritten(c.scores())
			got := guardedCopy(t, want)
			kernels.Generic().Scores(want, q, keys, c.AttentionShape, 0.7)
			s.Scores(got, guardedCopy(t, q), guardedCopy(t, keys), c.AttentionShape, 0.7)
			mustEqual(t, c, got, want)
		}
	})
}

func TestWeightedSum(t *testing.T) {
	t.Parallel()
	others(t, func(t *testing.T, s *kernels.Set) {
		rng := rand.New(rand.NewPCG(2, 6))
		for _, c := range attentionCases(rng) {
			w, values := floats(rng, c.scores(), c.salt), floats(rng, c.Positions*c.Dim, c.salt)
			want := unwritten(c.Heads * c.Dim)
			got := guardedCopy(t, want)
			kernels.Generic().WeightedSum(want, w, values, c.AttentionShape)
			s.WeightedSum(got, guardedCopy(t, w), guardedCopy(t, values), c.AttentionShape)
			mustEqual(t, c, got, want)
		}
	})
}

func TestRead(t *testing.T) {
	t.Parallel()
	others(t, func(t *testing.T, s *kernels.Set) {
		rng := rand.New(rand.NewPCG(2, 8))
		for n := range 1200 {
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
			if got, want := s.Read(guardedCopy(t, data)), kernels.Generic().Read(data); got != want {
				t.Fatalf("%d bytes: %#x, want %#x", n, got, want)
			}
		}
	})
}

func BenchmarkDotF32(b *testing.B) {
	for _, s := range kernels.Variants() {
		b.Run(s.Name(), func(b *testing.B) {
			x := make([]float32, 1536)
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				s.DotF32(x, x)
			}
		})
	}
}

// reportProducts tells how many products a second there were, of n in a round.
func reportProducts(b *testing.B, n int) {
	b.ReportMetric(float64(b.N)*float64(n)/b.Elapsed().Seconds()/1e9, "GMAC/s")
}

func BenchmarkMulBF16(b *testing.B) {
	for _, s := range kernels.Variants() {
		for _, batch := range []int{1, 2, 4, 8, 16} {
			b.Run(fmt.Sprintf("%s/%d", s.Name(), batch), func(b *testing.B) {
				sh := kernels.FloatShape{Rows: 64, Cols: 1536, Batch: batch, Mul: 1}
				const matrices = 512 // more than caches hold
				w, x, dst := make([]byte, matrices*2*sh.Rows*sh.Cols), make([]float32, batch*sh.Cols), make([]float32, batch*sh.Rows)
				size := 2 * sh.Rows * sh.Cols
				b.SetBytes(int64(size))
				for i := 0; b.Loop(); i++ {
					s.MulBF16(dst, sh.Rows, w[i%matrices*size:][:size], x, sh)
				}
				reportProducts(b, sh.Rows*sh.Cols*batch)
			})
		}
	}
}

// attentionShapes are those of decoding, and of prefill of two rows at once.
var attentionShapes = []kernels.AttentionShape{
	{Heads: 1, Dim: 256, Positions: 256, Stride: 256},
	{Heads: 2, Dim: 256, Positions: 256, Stride: 256},
	{Heads: 4, Dim: 256, Positions: 256, Stride: 256},
	{Heads: 8, Dim: 256, Positions: 256, Stride: 256},
	{Heads: 8, Dim: 512, Positions: 256, Stride: 256},
	{Heads: 16, Dim: 256, Positions: 256, Stride: 256},
}

// benchmarkAttention runs f for every set and shape.
func benchmarkAttention(b *testing.B, f func(s *kernels.Set, scores, heads, cache []float32, sh kernels.AttentionShape)) {
	for _, s := range kernels.Variants() {
		for _, sh := range attentionShapes {
			b.Run(fmt.Sprintf("%s/%dx%d", s.Name(), sh.Heads, sh.Dim), func(b *testing.B) {
				const blocks = 256 // more than caches hold
				size := sh.Positions * sh.Dim
				scores, heads, cache := make([]float32, sh.Heads*sh.Stride), make([]float32, sh.Heads*sh.Dim), make([]float32, blocks*size)
				b.SetBytes(int64(4 * size))
				for i := 0; b.Loop(); i++ {
					f(s, scores, heads, cache[i%blocks*size:][:size], sh)
				}
				reportProducts(b, sh.Heads*size)
			})
		}
	}
}

func BenchmarkScores(b *testing.B) {
	benchmarkAttention(b, func(s *kernels.Set, scores, heads, cache []float32, sh kernels.AttentionShape) {
		s.Scores(scores, heads, cache, sh, 1)
	})
}

func BenchmarkWeightedSum(b *testing.B) {
	benchmarkAttention(b, func(s *kernels.Set, scores, heads, cache []float32, sh kernels.AttentionShape) {
		s.WeightedSum(heads, scores, cache, sh)
	})
}

func BenchmarkRead(b *testing.B) {
	for _, s := range kernels.Variants() {
		b.Run(s.Name(), func(b *testing.B) {
			data := make([]byte, 256<<20)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				s.Read(data)
			}
		})
	}
}
