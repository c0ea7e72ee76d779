package metal_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/quant"
)

// formats are those that kernels multiply.
var formats = []quant.Format{quant.Int2, quant.Int4, quant.Int8, quant.Int4x32}

// digits is activations as quantize leaves them.
type digits struct {
	planes, words int
	data          []int8 // [rows, planes, 4*words]
	steps         []float32
}

// randomDigits returns rows of digits, with zeros past the columns: any if digit
// is 0, else those of the first row are that, and of others also its neighbour.
func randomDigits(rng *rand.Rand, rows, planes, cols int, digit int8) *digits {
	padded := metal.PaddedCols(cols)
	d := &digits{planes: planes, words: padded / 4, data: make([]int8, rows*planes*padded), steps: randomFloats(rng, rows, 0.01)}
	for i := range d.data {
		if i%padded < cols {
			switch {
			case digit == 0:
				d.data[i] = int8(rng.IntN(256) - 128)
			case i < planes*padded:
				d.data[i] = digit
			default:
				d.data[i] = digit ^ int8(rng.IntN(2))
			}
		}
	}
	return d
}

// product returns what a matrix row and a row of activations come to before the grid of the result.
func (d *digits) product(p *packed, r, row int) (sum float32) {
	groups := p.Groups()
	cols := p.Cols / groups
	codes := p.codes[r*p.Cols:][:p.Cols]
	for g := range groups {
		total := int64(0)
		for plane := d.planes - 1; plane >= 0; plane-- {
			part := int64(0)
			own := d.data[(row*d.planes+plane)*4*d.words:]
			for c := g * cols; c < (g+1)*cols; c++ {
				part += int64(codes[c]) * int64(own[c])
			}
			total = total*256 + part
		}
		y := float32(float32(float32(total)*d.steps[row]) * p.scales[r*groups+g])
		if p.Group > 0 {
			sum += y
		} else {
			sum = y
		}
	}
	return sum
}

// rounded puts a product on a grid, if there is one.
func rounded(y, grid float32) float32 {
	if grid == 0 {
		return y
	}
	return float32(float32(kernels.ToGrid(y, grid, -128, 127)) * grid)
}

// tileCase is a product and how it is computed.
type tileCase struct {
	metal.TileProduct
	blocks, splits int // of a group if they fit, or 0 for what suits
	codes          fill
	digit          int8 // all digits, or 0 for any
}

// String names a case.
func (c *tileCase) String() string {
	return fmt.Sprintf("%s: %d rows from %d, %d columns, %d live, %d blocks, %d splits, codes %d, digits %d", metal.TileName(&c.TileProduct),
		c.Rows, c.First, c.Matrix.Cols, c.Live, c.blocks, c.splits, c.codes, c.digit)
}

// launch returns the arguments and the grid.
func (c *tileCase) launch() (metal.TileArgs, metal.Launch) {
	a, l := metal.TileNewArgs(&c.TileProduct), metal.TileLaunch(&c.TileProduct)
	shared, threads := metal.TileShared(&c.TileProduct, c.blocks, c.splits), c.blocks*c.splits*metal.SIMDWidth
	if c.blocks > 0 && shared <= 32<<10 && threads <= 256 {
		a.Splits = uint32(c.splits)
		l.Groups[0] = (int(a.Blocks) + c.blocks - 1) / c.blocks
		l.Threads = threads
		l.SharedBytes = shared
	}
	return a, l
}

// check runs a case and compares.
func (c *tileCase) check(b *bench, rng *rand.Rand) {
	b.t.Helper()
	p := randomPacked(rng, c.Matrix.Format, c.Matrix.Rows, c.Matrix.Cols, c.codes)
	x := randomDigits(rng, c.Live+1, c.Planes, c.Matrix.Cols, c.digit)
	up := x
	operands := []operand{in(p.data), step(c.Live), in(x.data), in(x.steps)}
	switch c.Operands {
	case 1:
		operands = append(operands, unbound(), unbound())
	case 2:
		up = randomDigits(rng, c.Live+1, c.Planes, c.Matrix.Cols, c.digit)
		operands = append(operands, in(up.data), in(up.steps))
	}
	if c.Live > 2 { // rows that are infinite and not a number
		x.steps[1], x.steps[2] = float32(math.Inf(1)), float32(math.NaN())
	}
	a, l := c.launch()
	a.OutStride = uint32(c.Rows + 3)
	if rng.IntN(2) == 0 {
		a.OutGrid, a.UpGrid = 0.02, 0.03
	}
	if c.Operands == 0 {
		a.Mul = 0.37
	}
	got := unset((c.Live + 1) * int(a.OutStride))
	want := slices.Clone(got)
	for row := range c.Live {
		out := want[row*int(a.OutStride):][:c.Rows]
		ups := make([]float32, c.Rows)
		for i := range out {
			if c.Operands == 0 {
				out[i] = float32(rounded(x.product(p, c.First+i, row), a.OutGrid) * a.Mul)
				continue
			}
			gate := i/quant.BlockRows*2*quant.BlockRows + i%quant.BlockRows
			out[i] = rounded(x.product(p, gate, row), a.OutGrid)
			ups[i] = rounded(up.product(p, gate+quant.BlockRows, row), a.UpGrid)
		}
		if c.Operands > 0 {
			kernels.Generic().GELUMul(out, out, ups)
		}
	}
	b.run(metal.TileName(&c.TileProduct), a, l, append(operands, out(got))...)
	if i := firstDiff(got, want); i >= 0 {
		b.t.Fatalf("%v: row %d, column %d is %v (%08x), want %v (%08x)", c, i/int(a.OutStride), i%int(a.OutStride),
			got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
	}
}

// tileKernel is the digits of an integer and the rows of activations that a kernel is for.
type tileKernel struct{ planes, live int }

// tileKernels are all there are for a format.
var tileKernels = []tileKernel{{1, 8}, {1, 32}, {2, 8}, {2, 32}, {3, 8}, {3, 32}}

// checkedTileKernels are those that run with every access checked, which takes long.
var checkedTileKernels = []tileKernel{{1, 32}, {3, 8}}

// tileNames returns some kernels for a format.
func tileNames(f quant.Format, kernels ...tileKernel) (names []string) {
	for _, k := range kernels {
		for operands := range 2 {
			p := metal.TileProduct{Matrix: quant.Matrix{Format: f}, Planes: k.planes, Live: k.live, Operands: operands}
			names = append(names, metal.TileName(&p))
		}
	}
	return names
}

func TestTiles(t *testing.T) {
	t.Parallel()
	for _, f := range formats {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, uint64(f.Bits)))
			for _, opts := range benchOptions {
				kernels := tileKernels
				if opts.Checked {
					kernels = checkedTileKernels
				}
				b := newBench(t, opts, tileNames(f, kernels...)...)
				for _, k := range kernels {
					lives := []int{5, 8}
					if k.live > 8 {
						lives = []int{9, 45}
					}
					for _, live := range lives {
						for operands := range 3 {
							for i, c := range tileShapes(rng, f, operands) {
								if opts.Checked && (live+operands+i)%2 > 0 {
									continue
								}
								c.Planes, c.Live = k.planes, live
								c.check(b, rng)
							}
						}
					}
				}
			}
		})
	}
}

// TestTilesLongest takes as many columns as floats add exactly, more, and as
// many as a matrix may have, with codes and digits at their extremes.
func TestTilesLongest(t *testing.T) {
	t.Parallel()
	for _, f := range formats {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, metaltest.Options{}, tileNames(f, tileKernels...)...)
			rng := rand.New(rand.NewPCG(1, uint64(f.Bits)))
			cols := map[quant.Format][]int{
				quant.Int2: {}, quant.Int4: {1 << 14, 1<<14 + 64}, quant.Int8: {1 << 10, 1<<10 + 64, 4 << 10}, quant.Int4x32: {},
			}[f]
			for _, n := range append(cols, quant.MaxBlockCols) {
				for i, extremes := range []struct {
					codes fill
					digit int8
				}{{leastCodes, -128}, {leastCodes, 127}, {mostCodes, -128}, {mostCodes, 127}} {
					c := tileCase{blocks: 1, splits: 1 + 3*(i/2), codes: extremes.codes, digit: extremes.digit}
					c.Matrix = quant.Matrix{Format: f, Layout: quant.Blocks, Rows: 3, Cols: n}
					c.Rows, c.Planes, c.Live = 3, 1+2*(i%2), 4
					if n < quant.MaxBlockCols {
						c.Live += 8 * (i % 2)
					}
					c.check(b, rng)
				}
			}
		})
	}
}

// tileShapes returns products of matrices in a format that are ragged in every way.
func tileShapes(rng *rand.Rand, f quant.Format, operands int) (all []tileCase) {
	type shape struct{ first, rows, past, cols, blocks, splits int }
	list := []shape{
		{0, 1, 0, 1, 0, 0},
		{16, 40, 5, 100, 1, 1},
		{32, 75, 30, 200, 4, 1},
		{0, 23, 0, 576, 2, 2},
		{48, 30, 0, 330, 2, 4},
		{0, 16, 0, 1100, 0, 0},
	}
	for range 2 {
		list = append(list, shape{16 * rng.IntN(3), 1 + rng.IntN(70), rng.IntN(40), 1 + rng.IntN(700), 1 + rng.IntN(4), 1 << rng.IntN(3)})
	}
	for _, s := range list {
		if f.Group > 0 {
			s.cols = (s.cols + f.Group - 1) / f.Group * f.Group
		}
		c := tileCase{blocks: s.blocks, splits: s.splits}
		c.First, c.Rows, c.Operands = s.first, s.rows, operands
		c.Matrix = quant.Matrix{Format: f, Layout: quant.Blocks, Rows: s.first + s.rows + s.past, Cols: s.cols}
		if operands > 0 {
			c.First = 0
			c.Matrix.Rows = (s.rows + quant.BlockRows - 1) / quant.BlockRows * 2 * quant.BlockRows
			c.blocks = (c.blocks + 1) / 2 * 2
		}
		all = append(all, c)
	}
	return all
}

// TestTileLaunch has every product fit a group and be multiplied once.
func TestTileLaunch(t *testing.T) {
	t.Parallel()
	for _, f := range formats {
		for _, planes := range []int{1, 2, 3} {
			for operands := range 3 {
				for _, live := range []int{1, 8, 9, 32, 33, 192, 1000} {
					for _, rows := range []int{1, 16, 100, 256, 2048, 262144} {
						for _, cols := range []int{32, 256, 1536, 16384, quant.MaxBlockCols} {
							p := metal.TileProduct{
								Matrix: quant.Matrix{Format: f, Layout: quant.Blocks, Rows: rows, Cols: cols},
								Rows:   rows, Planes: planes, Live: live, Operands: operands,
							}
							a, l := metal.TileNewArgs(&p), metal.TileLaunch(&p)
							blocks := l.Threads / metal.SIMDWidth / int(a.Splits)
							tile := 8
							if live > 8 {
								tile = 32
							}
							switch {
							case l.SharedBytes > 32<<10 || l.SharedBytes%16 != 0:
								t.Errorf("%+v: %d bytes of shared memory", p, l.SharedBytes)
							case l.Threads < metal.SIMDWidth || l.Threads > 256 || l.Threads%metal.SIMDWidth != 0:
								t.Errorf("%+v: %d threads", p, l.Threads)
							case blocks*int(a.Splits)*metal.SIMDWidth != l.Threads || operands > 0 && blocks%2 != 0:
								t.Errorf("%+v: %d threads for %d blocks in %d splits", p, l.Threads, blocks, a.Splits)
							case l.Groups[0]*blocks < int(a.Blocks) || (l.Groups[0]-1)*blocks >= int(a.Blocks):
								t.Errorf("%+v: %d groups of %d blocks for %d", p, l.Groups[0], blocks, a.Blocks)
							case l.Groups[1]*tile < live || (l.Groups[1]-1)*tile >= live:
								t.Errorf("%+v: %d groups of %d rows for %d", p, l.Groups[1], tile, live)
							}
						}
					}
				}
			}
		}
	}
}
