package kernels_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
)

// guarded returns a slice that ends where memory ends, so that a kernel which
// reaches past it faults. Where pages cannot be protected it is a plain slice.
func guarded[T any](t testing.TB, n int) []T {
	t.Helper()
	if n == 0 {
		return nil
	}
	var zero T
	data := guardedBytes(t, n*int(unsafe.Sizeof(zero)))
	return unsafe.Slice((*T)(unsafe.Pointer(&data[0])), n)
}

// guardedCopy returns a guarded copy.
func guardedCopy[T any](t testing.TB, s []T) []T {
	t.Helper()
	c := guarded[T](t, len(s))
	copy(c, s)
	return c
}

// guard is guarded memory for one copy at a time: a test that makes many would run out of mappings.
type guard[T any] []T

// newGuard returns one for copies of at most so many elements.
func newGuard[T any](t testing.TB, most int) guard[T] {
	t.Helper()
	return guarded[T](t, most)
}

// hold returns a copy that is valid until the next.
func (g guard[T]) hold(s []T) []T {
	c := g[len(g)-len(s):]
	copy(c, s)
	return c
}

// others calls f for every set but the plain one.
func others(t *testing.T, f func(t *testing.T, s *kernels.Set)) {
	t.Helper()
	for _, s := range kernels.Variants()[1:] {
		t.Run(s.Name(), func(t *testing.T) { f(t, s) })
	}
}

// firstDiff returns the index of the first float whose bits differ, where all that is not a number is equal; -1 for none.
func firstDiff(got, want []float32) int {
	for i, w := range want {
		g := got[i]
		if math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
			return i
		}
	}
	return -1
}

// extremes are floats that a kernel must treat as plain Go does.
var extremes = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 127.5, -128.5, 1e-45, -1e-45, 1.1754944e-38, 1e-20, -1e20,
	math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 88.7, 88.8, -87.3, -87.4, 0.625, 0.6249999,
}

// floats returns random numbers of many magnitudes; one in salt is extreme, none for 0.
func floats(rng *rand.Rand, n int, salt int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * math.Pow(2, float64(rng.IntN(12)-6)))
		if salt > 0 && rng.IntN(salt) == 0 {
			x[i] = extremes[rng.IntN(len(extremes))]
		}
	}
	return x
}
