package metal_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/quant"
)

// vecFormats are the formats that there are kernels for.
var vecFormats = []quant.Format{quant.Int2, quant.Int4, quant.Int8, quant.Int4x32}

// vecKernels lists the kernels of a format.
func vecKernels(f quant.Format) (names []string) {
	for planes := 1; planes <= 3; planes++ {
		for _, gateUp := range []bool{false, true} {
			p := metal.VecProduct{Matrix: quant.Matrix{Format: f}, Planes: planes, GateUp: gateUp}
			names = append(names, metal.VecName(&p))
		}
	}
	return names
}

// eachVec calls a function for each kernel of a format.
func eachVec(f quant.Format, call func(p metal.VecProduct)) {
	for planes := 1; planes <= 3; planes++ {
		for _, gateUp := range []bool{false, true} {
			call(metal.VecProduct{Matrix: quant.Matrix{Format: f}, Planes: planes, GateUp: gateUp})
		}
	}
}

func TestVecProducts(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	for _, f := range vecFormats {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(f.Bits), uint64(f.Group)))
			b := newBench(t, metaltest.Options{}, vecKernels(f)...)
			eachVec(f, func(p metal.VecProduct) {
				for range 40 {
					randomVec(rng, p).check(b, rng)
				}
			})
		})
	}
}

// TestVecOrder has threads come in any order.
func TestVecOrder(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	for _, f := range vecFormats {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(f.Bits), 1))
			b := newBench(t, metaltest.Options{Seed: 1}, vecKernels(f)...)
			eachVec(f, func(p metal.VecProduct) {
				for range 10 {
					randomVec(rng, p).check(b, rng)
				}
			})
		})
	}
}

// TestVecChecked has every access checked.
func TestVecChecked(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	for _, f := range vecFormats {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(f.Bits), 2))
			linear := metal.VecProduct{Matrix: quant.Matrix{Format: f}, Planes: 3}
			gateUp := metal.VecProduct{Matrix: quant.Matrix{Format: f}, Planes: 1, GateUp: true}
			b := newBench(t, metaltest.Options{Checked: true}, metal.VecName(&linear), metal.VecName(&gateUp))
			for range 20 {
				randomVec(rng, linear).check(b, rng)
				randomVec(rng, gateUp).check(b, rng)
			}
			idleVec(b, linear)
		})
	}
}

// idleVec runs a product where no row is live.
func idleVec(b *bench, p metal.VecProduct) {
	p.Matrix.Layout, p.Matrix.Rows, p.Matrix.Cols = quant.Blocks, quant.BlockRows, 64
	a := metal.VecArgs{Cols: 64, Limit: 127, Mul: 1, Parts: 1, Part: [4]metal.VecPart{{Blocks: 1, Rows: quant.BlockRows}}}
	l, _ := metal.VecDivide(&p, &a, b.device.Info().SharedBytes)
	got := unset(quant.BlockRows)
	b.run(metal.VecName(&p), &a, l, in(make([]byte, p.Matrix.SizeBytes())), step(0, row{}), in(make([]float32, 64)),
		unbound(), unbound(), unbound(), unbound(), unbound(), out(got), unbound(), unbound(), unbound())
	if i := firstDiff(got, unset(len(got))); i >= 0 {
		b.t.Errorf("output[%d] = %v is written", i, got[i])
	}
}

// TestVecTies rounds numbers that are as near as can be to the middle between two steps of the input's grid.
func TestVecTies(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	f := quant.Int4
	rng := rand.New(rand.NewPCG(5, 5))
	b := newBench(t, metaltest.Options{}, vecKernels(f)...)
	for planes := 1; planes <= 3; planes++ {
		for i := range 60 {
			c := extreme(metal.VecProduct{Matrix: quant.Matrix{Format: f}, Planes: planes}, 1000)
			c.codes = anyCodes
			scale := float32(math.Exp2(rng.Float64()*20 - 10))
			most := limits[planes]
			if i%2 == 0 || planes == 1 {
				c.inGrids[0], most = scale, 129
			}
			c.change = func(x []float32) {
				for i := range x {
					middle := math.Floor((2*rng.Float64()-1)*float64(most)) + 0.5
					x[i] = float32(middle * float64(scale))
					switch rng.IntN(3) {
					case 0:
						x[i] = math.Nextafter32(x[i], 0)
					case 1:
						x[i] = math.Nextafter32(x[i], 1e9)
					}
				}
				if c.inGrids[0] == 0 {
					x[0] = scale * most
				}
			}
			c.check(b, rng)
		}
	}
}

// extreme returns a product that is as large as can be.
func extreme(p metal.VecProduct, cols int) *vecCase {
	p.Matrix.Cols = cols
	return &vecCase{VecProduct: p, rows: []int{20}, inGrids: []float32{0}, outGrids: []float32{0}, mul: 1}
}

// TestVecExtremes multiplies the largest digits with the largest codes, many enough that
// neither floats nor 32 bits could hold all of it.
func TestVecExtremes(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	inputs := map[string]func(x []float32){
		"largest": func(x []float32) { fillWith(x, limits[3]) },
		"lowest":  func(x []float32) { fillWith(x, -limits[3]) },
		// Digits of -128, -128 and -126, or fewer of them, where the step is 1.
		"digits": func(x []float32) {
			fillWith(x, -126<<16-128<<8-128)
			x[0] = limits[3]
		},
		"signs": func(x []float32) {
			for i := range x {
				x[i] = limits[3] * float32(1-2*(i/2%2))
			}
		},
	}
	for _, f := range vecFormats {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(3, uint64(f.Bits)))
			b := newBench(t, metaltest.Options{}, vecKernels(f)...)
			eachVec(f, func(p metal.VecProduct) {
				for _, codes := range []fill{leastCodes, mostCodes} {
					for _, change := range inputs {
						c := extreme(p, 3200)
						c.codes, c.change = codes, change
						c.groupBlocks, c.splits = 2, 1
						c.check(b, rng)
					}
				}
				if p.Planes == 1 {
					c := extreme(p, 3200) // all digits -128
					c.codes, c.change, c.inGrids[0], c.upInGrid = mostCodes, inputs["lowest"], 1, 1
					c.check(b, rng)
				}
				if !p.GateUp {
					c := extreme(p, quant.MaxBlockCols)
					c.codes, c.change, c.rows[0] = mostCodes, inputs["lowest"], 1
					c.check(b, rng)
				}
			})
		})
	}
}

// fillWith sets all numbers.
func fillWith(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// TestVecOddNumbers multiplies what is not a number, infinite or zero.
func TestVecOddNumbers(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	inputs := []func(x []float32){
		func(x []float32) { x[len(x)/2] = nan },
		func(x []float32) { x[len(x)/2] = -inf },
		func(x []float32) { x[0], x[len(x)-1] = inf, nan },
		func(x []float32) { fillWith(x, 0) },
		func(x []float32) { fillWith(x, float32(math.Copysign(0, -1))) },
		func(x []float32) { fillWith(x, 1e-40) },
		func(x []float32) { x[1] = math.MaxFloat32 },
	}
	scales := []func(i int, scale float32) float32{
		nil,
		func(i int, _ float32) float32 { return float32(math.Copysign(0, float64(i%3)-1)) }, // results are zeros of both signs
		func(i int, scale float32) float32 {
			switch {
			case i%97 == 96:
				return nan
			case i%13 == 0:
				return inf
			}
			return -scale
		},
	}
	for _, f := range vecFormats {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(4, uint64(f.Bits)))
			b := newBench(t, metaltest.Options{}, vecKernels(f)...)
			eachVec(f, func(p metal.VecProduct) {
				for i, change := range append(inputs, nil) {
					for j, rescale := range scales {
						c := extreme(p, 96)
						c.codes, c.change, c.rescale = anyCodes, change, rescale
						c.inGrids[0], c.outGrids[0], c.upInGrid = float32(i%2), float32(i/2%2)*100, float32(j%2)
						c.peaks, c.norm, c.add = !p.GateUp, norming(j), norming((i+j)%4%3)
						if c.peaks {
							c.rows[0] = 530
						}
						c.check(b, rng)
					}
				}
			})
		})
	}
}

// TestVecDivision divides products of models: no core of a large GPU is left idle
// if there is work enough, and a group's memory holds all.
func TestVecDivision(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		format           quant.Format
		rows             []int // of gate
		cols, planes     int
		gateUp, computed bool
		heads            int
		peaks            bool
		differs          bool // up has an input grid of its own
	}{
		{"query key value", quant.Int4, []int{2048, 256, 256}, 1536, 1, false, true, 0, false, false},
		{"attention out", quant.Int4, []int{1536}, 2048, 1, false, true, 8, false, false},
		{"gate and up", quant.Int2, []int{12288}, 1536, 1, true, true, 0, false, false},
		{"gate and up on two grids", quant.Int2, []int{12288}, 1536, 1, true, true, 0, false, true},
		{"gate and up of floats on two grids", quant.Int4, []int{6144}, 1536, 3, true, true, 0, false, true},
		{"down", quant.Int2, []int{1536}, 12288, 1, false, false, 0, false, false},
		{"down of floats", quant.Int2, []int{1536}, 12288, 3, false, false, 0, false, false},
		{"head", quant.Int2, []int{262144}, 1536, 3, false, true, 0, true, false},
		{"per-layer gate", quant.Int8, []int{256}, 1536, 1, false, true, 0, false, false},
		{"per-layer projection", quant.Int8, []int{1536}, 256, 1, false, false, 0, false, false},
		{"groups, query key value", quant.Int4x32, []int{2048, 512, 512}, 2560, 3, false, true, 0, false, false},
		{"groups, attention out", quant.Int4x32, []int{2560}, 4096, 3, false, true, 8, false, false},
		{"groups, gate and up", quant.Int4x32, []int{10240}, 2560, 3, true, true, 0, false, false},
		{"groups, gate and up on two grids", quant.Int4x32, []int{10240}, 2560, 3, true, true, 0, false, true},
		{"groups, down", quant.Int4x32, []int{2560}, 10240, 3, false, false, 0, false, false},
		{"groups, head", quant.Int4x32, []int{262144}, 2560, 3, false, true, 0, true, false},
		{"longest", quant.Int8, []int{100}, quant.MaxBlockCols, 3, false, false, 0, false, false},
		{"smallest", quant.Int8, []int{1}, 1, 1, false, true, 1, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := metal.VecProduct{Matrix: quant.Matrix{Format: c.format, Layout: quant.Blocks, Cols: c.cols}, Planes: c.planes, GateUp: c.gateUp}
			a := metal.VecArgs{
				Cols: uint32(c.cols), Norm: yes(c.computed && c.heads == 0), Heads: uint32(c.heads), Peaks: yes(c.peaks), Parts: uint32(len(c.rows)),
			}
			if c.differs {
				a.UpInGrid = 0.1
			}
			blocks, work := 0, 0 // of results, and tiles of these
			for i, rows := range c.rows {
				a.Part[i].Blocks, a.Part[i].Rows = uint32((rows+quant.BlockRows-1)/quant.BlockRows), uint32(rows)
				blocks += int(a.Part[i].Blocks)
			}
			work = blocks * ((p.Matrix.Steps() + 31) / 32)
			const shared = 32 << 10
			l, ok := metal.VecDivide(&p, &a, shared)
			simds := l.Threads / metal.SIMDWidth
			t.Logf("%d groups of %d SIMD groups and %d bytes: %d blocks, %d splits, %d tiles of digits, %d of sums", l.Groups[0], simds, l.SharedBytes,
				a.GroupBlocks, a.Splits, a.Chunk, a.Batch)
			switch {
			case !ok:
				t.Fatal("it does not fit")
			case l.SharedBytes > shared-16 || l.SharedBytes%16 != 0:
				t.Errorf("%d bytes of shared memory", l.SharedBytes)
			case simds > 16 || simds%int(a.Splits) != 0:
				t.Errorf("%d SIMD groups share blocks in %d", simds, a.Splits)
			case l.Groups[0] != metal.VecGroups(&a, int(a.GroupBlocks)):
				t.Errorf("%d groups", l.Groups[0])
			case c.peaks && a.GroupBlocks%16 != 0:
				t.Errorf("groups of %d blocks have parts of runs", a.GroupBlocks)
			case l.Groups[0]*simds < min(40*8, work/2, 12*blocks):
				t.Errorf("%d SIMD groups for %d tiles", l.Groups[0]*simds, work)
			}
		})
	}
	p := metal.VecProduct{Matrix: quant.Matrix{Format: quant.Int2, Layout: quant.Blocks, Cols: 12288}, Planes: 1}
	if metal.VecFits(&p, &metal.VecArgs{Cols: 12288, Norm: 1}, 32<<10) {
		t.Error("48 KiB of an input fit into 32")
	}
	if !metal.VecFits(&p, &metal.VecArgs{Cols: 12288}, 32<<10) {
		t.Error("an input that is read does not fit")
	}
}
