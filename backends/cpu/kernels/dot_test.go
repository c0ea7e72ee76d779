package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/quant"
)

// dotCase is a product and its operands.
type dotCase struct {
	kernels.Shape
	w      []byte
	x, odd []uint32
}

// size returns the number of totals.
func (c dotCase) size() int { return c.Blocks * c.Rows * quant.BlockRows }

// dotCases returns products of every kind for a tile size.
func dotCases(rng *rand.Rand, rows int) (all []dotCase) {
	for _, bits := range []int{2, 4, 8} {
		for _, s := range []struct{ blocks, steps, gap int }{
			{1, 1, 64}, {1, 2, 0}, {2, 3, 64}, {3, 5, 0}, {1, 7, 64}, {2, 96, 64}, {1, 257, 64}, {2, 12, 128},
		} {
			for fill := range 3 {
				c := dotCase{Shape: kernels.Shape{
					Bits: bits, Rows: rows, Blocks: s.blocks, Steps: s.steps, Stride: s.steps*quant.StepBytes + s.gap,
				}}
				c.w = make([]byte, (c.Blocks-1)*c.Stride+c.Steps*quant.StepBytes)
				c.x = make([]uint32, c.Steps*c.Words()*rows)
				c.odd = make([]uint32, len(c.x))
				for i := range c.w {
					c.w[i] = [3]byte{byte(rng.Uint32()), 255, byte(rng.Uint32())}[fill]
				}
				for i := range c.x {
					c.x[i] = [3]uint32{rng.Uint32(), 0x80808080, 0x7f7f7f7f}[fill]
					c.odd[i] = [3]uint32{rng.Uint32(), 0x7f7f7f7f, 0x80808080}[fill]
				}
				all = append(all, c)
			}
		}
	}
	return all
}

// reference computes totals code by code.
func (c dotCase) reference() []int32 {
	totals := make([]int32, c.size())
	n := 8 / c.Bits
	for i := range totals {
		lane, r, b := i%16, i/16%c.Rows, i/16/c.Rows
		x := c.x
		if b%2 == 1 {
			x = c.odd
		}
		for s := range c.Steps {
			for k := range 4 {
				code := c.w[b*c.Stride+s*quant.StepBytes+4*lane+k]
				for j := range n {
					word := x[(s*n+j)*c.Rows+r]
					totals[i] += int32(code>>(j*c.Bits)&(1<<c.Bits-1)) * int32(int8(word>>(8*k)))
				}
			}
		}
	}
	return totals
}

func TestDot(t *testing.T) {
	t.Parallel()
	for _, s := range kernels.Variants() {
		for _, rows := range s.Tiles() {
			t.Run(fmt.Sprintf("%s/%d", s.Name(), rows), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(1, uint64(rows)))
				for _, c := range dotCases(rng, rows) {
					got := guarded[int32](t, c.size())
					s.DotPairs(got, guardedCopy(t, c.w), guardedCopy(t, c.x), guardedCopy(t, c.odd), c.Shape)
					if want := c.reference(); !slices.Equal(got, want) {
						t.Fatalf("%+v: wrong totals", c.Shape)
					}
				}
			})
		}
	}
}

// TestDotLongest takes as many columns as a matrix may have, with all codes and digits at their extremes.
func TestDotLongest(t *testing.T) {
	t.Parallel()
	for _, s := range kernels.Variants() {
		for _, bits := range []int{2, 4, 8} {
			steps := quant.MaxBlockCols * bits / 32
			w := make([]byte, steps*quant.StepBytes)
			for i := range w {
				w[i] = 0xff
			}
			for _, rows := range s.Tiles() {
				sh := kernels.Shape{Bits: bits, Rows: rows, Blocks: 1, Stride: len(w), Steps: steps}
				x, totals := make([]uint32, steps*sh.Words()*rows), make([]int32, rows*quant.BlockRows)
				for _, digit := range []int8{-128, 127} {
					for i := range x {
						x[i] = uint32(uint8(digit)) * 0x01010101
					}
					s.Dot(totals, w, x, sh)
					want := int32(int(digit) * (1<<bits - 1) * quant.MaxBlockCols)
					for i, got := range totals {
						if got != want {
							t.Fatalf("%s, int%d, %d rows of %d: total %d is %d, want %d", s.Name(), bits, rows, digit, i, got, want)
						}
					}
				}
			}
		}
	}
}

func BenchmarkDot(b *testing.B) {
	for _, s := range kernels.Variants() {
		for _, bits := range []int{2, 4, 8} {
			for _, rows := range s.Tiles() {
				b.Run(fmt.Sprintf("%s/int%d/%d", s.Name(), bits, rows), func(b *testing.B) {
					sh := kernels.Shape{Bits: bits, Rows: rows, Blocks: 4, Steps: 1536 * bits / 32}
					sh.Stride = sh.Steps*quant.StepBytes + quant.StepBytes
					w, x := make([]byte, sh.Blocks*sh.Stride), make([]uint32, sh.Steps*sh.Words()*rows)
					totals := make([]int32, sh.Blocks*rows*quant.BlockRows)
					b.SetBytes(int64(len(w)))
					for b.Loop() {
						s.Dot(totals, w, x, sh)
					}
					b.ReportMetric(float64(b.N)*float64(sh.Blocks*rows*quant.BlockRows*1536)/b.Elapsed().Seconds()/1e9, "GMAC/s")
				})
			}
		}
	}
}
