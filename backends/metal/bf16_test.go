package metal_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/backends/metal"
)

func TestLinearBF16(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, opts := range benchOptions {
		b := newBench(t, opts, "linear_bf16")
		for _, c := range []struct{ cols, first, rows, live int }{
			{1, 0, 1, 1}, {5, 3, 63, 2}, {16, 0, 64, 8}, {100, 1, 65, 3}, {257, 0, 5, 9}, {260, 2, 130, 1}, {1536, 0, 20, 5}, {2300, 7, 9, 17}, {4100, 0, 3, 1},
		} {
			stride := c.rows + 2
			w, _ := randomBF16(rng, (c.first+c.rows)*c.cols, 0.1)
			x := randomFloats(rng, (c.live+1)*c.cols, 3)
			if c.live > 2 { // rows that are infinite and not a number
				x[c.cols] = float32(math.Inf(1))
				x[2*c.cols] = float32(math.NaN())
			}
			got := unset((c.live + 1) * stride)
			want := slices.Clone(got)
			a := metal.BF16Args{Cols: uint32(c.cols), FirstRow: uint32(c.first), Rows: uint32(c.rows), OutStride: uint32(stride), Mul: 0.37}
			kernels.Generic().MulBF16(want, stride, w[2*c.first*c.cols:], x, kernels.FloatShape{Rows: c.rows, Cols: c.cols, Batch: c.live, Mul: a.Mul})
			b.run("linear_bf16", a, metal.BF16Launch(&a, c.live+9), in(w), step(c.live), in(x), out(got))
			if i := firstDiff(got, want); i >= 0 {
				t.Errorf("%+v: row %d, column %d is %x, want %x", c, i/stride, i%stride, math.Float32bits(got[i]), math.Float32bits(want[i]))
			}
		}
	}
}
