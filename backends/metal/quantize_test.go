package metal_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/backends/metal"
)

// fixedLimits are the largest magnitudes of fixed point of so many digits.
var fixedLimits = [...]float32{0, 127, 32639, 8355711}

// quantized is what quantize makes of a row.
func quantized(x []float32, planes int, grid float32) (digits []uint32, step float32) {
	set := kernels.Generic()
	words := metal.PaddedCols(len(x)) / 4
	digits = make([]uint32, planes*words)
	lo, hi := float32(-128), float32(127)
	if step = grid; grid == 0 {
		lo, hi = -fixedLimits[planes], fixedLimits[planes]
		step = set.MaxAbs(x) / hi
	}
	if step == 0 {
		return digits, 0
	}
	used := (len(x) + 3) / 4
	short := make([]uint32, planes*used)
	set.Quantize(short, x, planes, step, lo, hi)
	for p := range planes {
		copy(digits[p*words:], short[p*used:][:used])
	}
	return digits, step
}

func TestQuantize(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	rng := rand.New(rand.NewPCG(1, 1))
	rowsOf := func(cols int) (rows [][]float32) {
		for _, spread := range []float32{0, 1e-3, 1, 1e20} {
			rows = append(rows, randomFloats(rng, cols, spread))
		}
		for _, special := range []float32{nan, -nan, inf, -inf, math.MaxFloat32, -0.5} {
			x := randomFloats(rng, cols, 1)
			x[rng.IntN(cols)] = special
			rows = append(rows, x)
		}
		whole := make([]float32, cols) // ties of the static grid below
		for i := range whole {
			whole[i] = (float32(rng.IntN(600)) - 300) / 8
		}
		return append(rows, whole)
	}
	for _, opts := range benchOptions {
		b := newBench(t, opts, "quantize")
		for _, cols := range []int{1, 3, 64, 100, 511, 1536} {
			rows := rowsOf(cols)
			x := slices.Concat(rows...)
			for planes := 1; planes <= 3; planes++ {
				for _, grid := range []float32{0, 0.25} {
					live := len(rows) - 1
					words := metal.PaddedCols(cols) / 4
					digits, steps := make([]uint32, len(rows)*planes*words), unset(len(rows))
					for i := range digits {
						digits[i] = 0xdeadbeef
					}
					wantDigits, wantSteps := slices.Clone(digits), slices.Clone(steps)
					for r := range live {
						var d []uint32
						d, wantSteps[r] = quantized(rows[r], planes, grid)
						copy(wantDigits[r*planes*words:], d)
					}
					a := metal.QuantizeArgs{
						Cols: uint32(cols), Padded: uint32(4 * words), Planes: uint32(planes), Grid: grid, Limit: fixedLimits[planes],
					}
					b.run("quantize", a, metal.QuantizeLaunch(&a, len(rows)), in(x), step(live), out(digits), out(steps))
					name := fmt.Sprintf("%d columns, %d planes, grid %v", cols, planes, grid)
					if i := firstDiff(steps, wantSteps); i >= 0 {
						t.Errorf("%s: step of row %d is %v, want %v", name, i, steps[i], wantSteps[i])
					}
					for i := range digits {
						if digits[i] != wantDigits[i] {
							t.Fatalf("%s: digits of row %d, word %d are %08x, want %08x", name, i/(planes*words), i%(planes*words), digits[i], wantDigits[i])
						}
					}
				}
			}
		}
	}
}
