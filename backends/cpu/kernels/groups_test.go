package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
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
	opposite           // the largest codes, and the lowest integers
	fills
)

// groupFormats lists the formats with groups.
func groupFormats() []quant.Format {
	return slices.DeleteFunc(quant.MultipliedFormats(), func(f quant.Format) bool { return f.Group == 0 })
}

// groupMatrix returns the columns of a block as a matrix.
func groupMatrix(sh kernels.GroupShape) quant.Matrix {
	return quant.Matrix{Format: sh.Format, Layout: quant.Blocks, Rows: quant.BlockRows, Cols: sh.Groups * sh.Format.Group}
}

// newGroupCase returns one of a shape.
func newGroupCase(rng *rand.Rand, sh kernels.GroupShape, fill groupFill) groupCase {
	m := groupMatrix(sh)
	size := m.BlockCodeBytes() + quant.BlockRows*m.ScaleBytes()
	sh.Stride = size + rng.IntN(3)*32
	c := groupCase{GroupShape: sh, stride: sh.Blocks*quant.BlockRows + rng.IntN(20)}
	c.w = make([]byte, (sh.Blocks-1)*sh.Stride+size)
	for i := range c.w {
		c.w[i] = [fills]byte{byte(rng.Uint32()), 255, 0, 255}[fill]
	}
	for b := range sh.Blocks { // scales of all kinds, few of which are no numbers
		at := c.w[b*sh.Stride+m.BlockCodeBytes():]
		for i := range m.NumScales() * quant.BlockRows {
			scale := uint16(rng.Uint32())
			if scale&0x7c00 == 0x7c00 && rng.IntN(200) > 0 {
				scale &^= 0x4000
			}
			if m.Scale == quant.ScaleF16 {
				binary.LittleEndian.PutUint16(at[2*i:], scale)
			} else {
				f := quant.F16ToF32(scale) * (1 + rng.Float32()) // with more bits than a half has
				binary.LittleEndian.PutUint32(at[4*i:], math.Float32bits(f))
			}
		}
	}
	largest := []float32{127, 32639, 8355711}[sh.Planes-1]
	words := m.Cols / 4
	c.a = kernels.GroupActivations{
		Words: make([]uint32, words*sh.Rows*sh.Planes), Starts: make([]int64, sh.Groups*sh.Rows), Steps: floats(rng, sh.Rows, 9),
	}
	if m.Minimum {
		c.a.Sums = make([]float32, sh.Groups*sh.Rows)
	}
	digits, sums, x := make([]uint32, words*sh.Planes), make([]int32, sh.Groups), make([]float32, words*4)
	for r := range sh.Rows {
		for i := range x {
			x[i] = [fills]float32{(2*rng.Float32() - 1) * largest, largest, largest, -largest}[fill]
		}
		kernels.Generic().QuantizeGroups(digits, sums, x, m.Group, sh.Planes, 1, -largest, largest)
		for p := range sh.Planes {
			for i, w := range digits[p*words:][:words] {
				c.a.Words[(i*sh.Rows+r)*sh.Planes+p] = w
			}
		}
		for g, sum := range sums {
			c.a.Starts[g*sh.Rows+r] = -int64(m.Midpoint()) * int64(sum)
			if m.Minimum {
				c.a.Sums[g*sh.Rows+r] = float32(sum) * c.a.Steps[r]
			}
		}
	}
	return c
}

// scale returns number i of the scales of a block.
func (c groupCase) scale(block []byte, i int) float32 {
	scales := block[groupMatrix(c.GroupShape).BlockCodeBytes():]
	if c.Format.Scale == quant.ScaleF16 {
		return quant.F16ToF32(binary.LittleEndian.Uint16(scales[2*i:]))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(scales[4*i:]))
}

// reference computes products code by code.
func (c groupCase) reference(dst []float32) {
	m := groupMatrix(c.GroupShape)
	words, perGroup := m.Group/4, m.NumScales()/c.Groups
	n := 8 / m.Bits
	for b := range c.Blocks {
		block := c.w[b*c.Stride:]
		for r := range c.Rows {
			for lane := range quant.BlockRows {
				y := float32(0)
				for g := range c.Groups {
					total, sum := int64(0), int64(0)
					for i := range m.Group {
						col := g*m.Group + i
						code := block[col/(4*n)*quant.StepBytes+4*lane+col%4] >> (col / 4 % n * m.Bits) & byte(1<<m.Bits-1)
						for p := range c.Planes {
							word := c.a.Words[((g*words+i/4)*c.Rows+r)*c.Planes+p]
							digit := int64(int8(word>>(i%4*8))) << (8 * p)
							total += int64(int32(code)-m.Midpoint()) * digit
							sum += digit
						}
					}
					part := float32(float32(float32(total)*c.a.Steps[r]) * c.scale(block, g*perGroup*quant.BlockRows+lane))
					if m.Minimum {
						part -= float32(float32(float32(sum)*c.a.Steps[r]) * c.scale(block, (2*g+1)*quant.BlockRows+lane))
					}
					y += part
				}
				dst[r*c.stride+b*quant.BlockRows+lane] = y
			}
		}
	}
}

func TestMulGroups(t *testing.T) {
	t.Parallel()
	for _, s := range kernels.Variants() {
		for _, f := range groupFormats() {
			for planes := 1; planes <= kernels.MaxPlanes; planes++ {
				for _, rows := range s.GroupTiles(f, planes) {
					t.Run(fmt.Sprintf("%s/%s/%dx%d", s.Name(), f, planes, rows), func(t *testing.T) {
						t.Parallel()
						rng := rand.New(rand.NewPCG(uint64(planes), uint64(rows)))
						results, w, words := newGuard[float32](t, 1<<12), newGuard[byte](t, 1<<16), newGuard[uint32](t, 1<<14)
						starts, sums, steps := newGuard[int64](t, 1<<10), newGuard[float32](t, 1<<10), newGuard[float32](t, 1<<5)
						for i := range 40 {
							c := newGroupCase(rng, kernels.GroupShape{
								Format: f, Rows: rows, Planes: planes, Blocks: 1 + rng.IntN(3), Groups: 1 + rng.IntN(9),
							}, groupFill(max(0, i%(2*int(fills))-int(fills))))
							want := floats(rng, (rows-1)*c.stride+c.Blocks*quant.BlockRows, 0)
							got := results.hold(want)
							a := kernels.GroupActivations{Words: words.hold(c.a.Words), Starts: starts.hold(c.a.Starts), Steps: steps.hold(c.a.Steps)}
							if f.Minimum {
								a.Sums = sums.hold(c.a.Sums)
							}
							s.MulGroups(got, c.stride, w.hold(c.w), &a, c.GroupShape)
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
}

func TestQuantizeGroups(t *testing.T) {
	t.Parallel()
	others(t, func(t *testing.T, s *kernels.Set) {
		rng := rand.New(rand.NewPCG(21, 22))
		digits, sums, numbers := newGuard[uint32](t, 1<<10), newGuard[int32](t, 1<<6), newGuard[float32](t, 1<<10)
		for i := range 300 {
			planes, groups, cols := 1+i%kernels.MaxPlanes, rng.IntN(12), 16<<rng.IntN(2)
			x := floats(rng, groups*cols, i%4*5)
			limit := []float32{127, 32639, 8355711}[planes-1]
			step := max(kernels.Generic().MaxAbs(x)/limit*[]float32{1, 0.3, 2}[rng.IntN(3)], 1e-30)
			size := planes * groups * cols / 4
			gotDigits, wantDigits := digits.hold(make([]uint32, size)), make([]uint32, size)
			gotSums, wantSums := sums.hold(make([]int32, groups)), make([]int32, groups)
			s.QuantizeGroups(gotDigits, gotSums, numbers.hold(x), cols, planes, step, -limit, limit)
			kernels.Generic().QuantizeGroups(wantDigits, wantSums, x, cols, planes, step, -limit, limit)
			if !slices.Equal(gotDigits, wantDigits) || !slices.Equal(gotSums, wantSums) {
				t.Fatalf("%d planes of %d groups of %d with step %g: %x and %d, want %x and %d", planes, groups, cols, step, gotDigits, gotSums, wantDigits, wantSums)
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
		for _, f := range groupFormats() {
			for planes := 1; planes <= kernels.MaxPlanes; planes++ {
				for _, rows := range s.GroupTiles(f, planes) {
					for _, cols := range []int{2560, 10240} {
						benchmarkMulGroups(b, s, kernels.GroupShape{Format: f, Rows: rows, Planes: planes, Groups: cols / f.Group, Blocks: 4}, memory)
					}
				}
			}
		}
	}
}

// benchmarkMulGroups multiplies one shape.
func benchmarkMulGroups(b *testing.B, s *kernels.Set, sh kernels.GroupShape, memory []byte) {
	m := groupMatrix(sh)
	sh.Stride = m.BlockBytes()
	a := kernels.GroupActivations{
		Words: make([]uint32, m.Cols/4*sh.Rows*sh.Planes), Starts: make([]int64, sh.Groups*sh.Rows),
		Sums: make([]float32, sh.Groups*sh.Rows), Steps: make([]float32, sh.Rows),
	}
	dst := make([]float32, sh.Rows*sh.Blocks*quant.BlockRows)
	size := sh.Blocks * sh.Stride
	for name, w := range map[string][]byte{"memory": memory, "cache": memory[:size]} {
		b.Run(fmt.Sprintf("%s/%s/%dx%d/%d/%s", s.Name(), sh.Format, sh.Planes, sh.Rows, m.Cols, name), func(b *testing.B) {
			b.SetBytes(int64(size))
			for at := 0; b.Loop(); at += size {
				if at+size > len(w) {
					at = 0
				}
				s.MulGroups(dst, sh.Blocks*quant.BlockRows, w[at:], &a, sh)
			}
			b.ReportMetric(float64(b.N)*float64(sh.Blocks*quant.BlockRows*sh.Rows*sh.Planes*m.Cols)/b.Elapsed().Seconds()/1e9, "GMAC/s")
		})
	}
}
