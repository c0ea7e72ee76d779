package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/quant"
)

// groupCase is a product of groups and its operands.
type groupCase struct {
	kernels.GroupShape
	stride int
	w      []byte
	a      kernels.GroupActivations
}

// groupFill is what codes and integers of a case are.
type groupFill int

const (
	random   groupFill = iota
	positive           // the largest codes and integers
	negative           // code 0, which stands for the lowest, and the largest integers
	fills
)

// newGroupCase returns one of a shape.
func newGroupCase(rng *rand.Rand, sh kernels.GroupShape, fill groupFill) groupCase {
	sh.Stride = sh.Groups*(sh.Bits*quant.StepBytes+2*quant.BlockRows) + rng.IntN(3)*32
	c := groupCase{GroupShape: sh, stride: sh.Blocks*quant.BlockRows + rng.IntN(20)}
	c.w = make([]byte, (sh.Blocks-1)*sh.Stride+sh.Groups*(sh.Bits*quant.StepBytes+2*quant.BlockRows))
	for i := range c.w {
		c.w[i] = [fills]byte{byte(rng.Uint32()), 255, 0}[fill]
	}
	for b := range sh.Blocks { // scales of all kinds, few of which are no numbers
		at := c.w[b*sh.Stride+sh.Groups*sh.Bits*quant.StepBytes:]
		for i := range sh.Groups * quant.BlockRows {
			scale := uint16(rng.Uint32())
			if scale&0x7c00 == 0x7c00 && rng.IntN(200) > 0 {
				scale &^= 0x4000
			}
			at[2*i], at[2*i+1] = byte(scale), byte(scale>>8)
		}
	}
	largest := []float32{127, 32639, 8355711}[sh.Planes-1]
	words := sh.Groups * kernels.GroupCols / 4
	c.a = kernels.GroupActivations{
		Words: make([]uint32, words*sh.Rows*sh.Planes), Starts: make([]int64, sh.Groups*sh.Rows), Steps: floats(rng, sh.Rows, 9),
	}
	digits, sums, x := make([]uint32, words*sh.Planes), make([]int32, sh.Groups), make([]float32, words*4)
	for r := range sh.Rows {
		for i := range x {
			x[i] = [fills]float32{(2*rng.Float32() - 1) * largest, largest, -largest}[fill]
		}
		kernels.Generic().QuantizeGroups(digits, sums, x, sh.Planes, 1, -largest, largest)
		for p := range sh.Planes {
			for i, w := range digits[p*words:][:words] {
				c.a.Words[(i*sh.Rows+r)*sh.Planes+p] = w
			}
		}
		for g, sum := range sums {
			c.a.Starts[g*sh.Rows+r] = -int64(sum) << (sh.Bits - 1)
		}
	}
	return c
}

// reference computes products code by code.
func (c groupCase) reference(dst []float32) {
	words := kernels.GroupCols / 4
	n := 8 / c.Bits
	for b := range c.Blocks {
		codes, scales := c.w[b*c.Stride:], c.w[b*c.Stride+c.Groups*c.Bits*quant.StepBytes:]
		for r := range c.Rows {
			for lane := range quant.BlockRows {
				sum := float32(0)
				for g := range c.Groups {
					total := int64(0)
					for i := range kernels.GroupCols {
						code := int64(codes[(g*c.Bits+i/(4*n))*quant.StepBytes+4*lane+i%4] >> (i / 4 % n * c.Bits) & (1<<c.Bits - 1))
						for p := range c.Planes {
							word := c.a.Words[((g*words+i/4)*c.Rows+r)*c.Planes+p]
							total += (code - 1<<(c.Bits-1)) * int64(int8(word>>(i%4*8))) << (8 * p)
						}
					}
					at := 2 * (g*quant.BlockRows + lane)
					scale := quant.F16ToF32(uint16(scales[at]) | uint16(scales[at+1])<<8)
					sum += float32(float32(float32(total)*c.a.Steps[r]) * scale)
				}
				dst[r*c.stride+b*quant.BlockRows+lane] = sum
			}
		}
	}
}

func TestMulGroups(t *testing.T) {
	t.Parallel()
	for _, s := range kernels.Variants() {
		for planes := 1; planes <= kernels.MaxPlanes; planes++ {
			for _, rows := range s.GroupTiles(planes) {
				t.Run(fmt.Sprintf("%s/%dx%d", s.Name(), planes, rows), func(t *testing.T) {
					t.Parallel()
					rng := rand.New(rand.NewPCG(uint64(planes), uint64(rows)))
					results, w, words := newGuard[float32](t, 1<<12), newGuard[byte](t, 1<<16), newGuard[uint32](t, 1<<14)
					starts, steps := newGuard[int64](t, 1<<10), newGuard[float32](t, 1<<5)
					for i := range 60 {
						bits := []int{4, 4, 2, 8}[i%4]
						c := newGroupCase(rng, kernels.GroupShape{
							Bits: bits, Rows: rows, Planes: planes, Blocks: 1 + rng.IntN(3), Groups: 1 + rng.IntN(9),
						}, groupFill(i/4%int(fills)))
						want := floats(rng, (rows-1)*c.stride+c.Blocks*quant.BlockRows, 0)
						got := results.hold(want)
						s.MulGroups(got, c.stride, w.hold(c.w), &kernels.GroupActivations{
							Words: words.hold(c.a.Words), Starts: starts.hold(c.a.Starts), Steps: steps.hold(c.a.Steps),
						}, c.GroupShape)
						c.reference(want)
						if at := firstDiff(got, want); at >= 0 {
							t.Fatalf("%+v: [%d] is %g, want %g", c.GroupShape, at, got[at], want[at])
						}
					}
				})
			}
		}
	}
}

func TestQuantizeGroups(t *testing.T) {
	t.Parallel()
	others(t, func(t *testing.T, s *kernels.Set) {
		rng := rand.New(rand.NewPCG(21, 22))
		digits, sums, numbers := newGuard[uint32](t, 1<<10), newGuard[int32](t, 1<<6), newGuard[float32](t, 1<<10)
		for i := range 300 {
			planes, groups := 1+i%kernels.MaxPlanes, rng.IntN(12)
			x := floats(rng, groups*kernels.GroupCols, i%4*5)
			limit := []float32{127, 32639, 8355711}[planes-1]
			step := max(kernels.Generic().MaxAbs(x)/limit*[]float32{1, 0.3, 2}[rng.IntN(3)], 1e-30)
			size := planes * groups * kernels.GroupCols / 4
			gotDigits, wantDigits := digits.hold(make([]uint32, size)), make([]uint32, size)
			gotSums, wantSums := sums.hold(make([]int32, groups)), make([]int32, groups)
			s.QuantizeGroups(gotDigits, gotSums, numbers.hold(x), planes, step, -limit, limit)
			kernels.Generic().QuantizeGroups(wantDigits, wantSums, x, planes, step, -limit, limit)
			if !slices.Equal(gotDigits, wantDigits) || !slices.Equal(gotSums, wantSums) {
				t.Fatalf("%d planes of %d groups with step %g: %x and %d, want %x and %d", planes, groups, step, gotDigits, gotSums, wantDigits, wantSums)
			}
		}
	})
}

// BenchmarkMulGroups multiplies matrices that fit no cache with few rows, and one that does with many.
func BenchmarkMulGroups(b *testing.B) {
	memory := make([]byte, 256<<20)
	for i := range memory {
		memory[i] = byte(i * 7 >> 3)
	}
	for _, s := range kernels.Variants()[1:] {
		for planes := 1; planes <= kernels.MaxPlanes; planes++ {
			for _, rows := range s.GroupTiles(planes) {
				for _, cols := range []int{2560, 10240} {
					sh := kernels.GroupShape{Bits: 4, Rows: rows, Planes: planes, Groups: cols / kernels.GroupCols, Blocks: 4}
					sh.Stride = sh.Groups * (4*quant.StepBytes + 2*quant.BlockRows)
					a := kernels.GroupActivations{
						Words: make([]uint32, cols/4*rows*planes), Starts: make([]int64, sh.Groups*rows), Steps: make([]float32, rows),
					}
					dst := make([]float32, rows*sh.Blocks*quant.BlockRows)
					for name, w := range map[string][]byte{"memory": memory, "cache": memory[:sh.Blocks*sh.Stride]} {
						b.Run(fmt.Sprintf("%s/%dx%d/%d/%s", s.Name(), planes, rows, cols, name), func(b *testing.B) {
							b.SetBytes(int64(sh.Blocks * sh.Stride))
							for at := 0; b.Loop(); at += sh.Blocks * sh.Stride {
								if at+sh.Blocks*sh.Stride > len(w) {
									at = 0
								}
								s.MulGroups(dst, sh.Blocks*quant.BlockRows, w[at:], &a, sh)
							}
							b.ReportMetric(float64(b.N)*float64(sh.Blocks*quant.BlockRows*rows*planes*cols)/b.Elapsed().Seconds()/1e9, "GMAC/s")
						})
					}
				}
			}
		}
	}
}
