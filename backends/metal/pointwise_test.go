package metal_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/quant"
)

// extremes are floats that a kernel must treat as plain Go does.
var extremes = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 127.5, -128.5, 1.1754944e-38, 1e-20, -1e20,
	math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 88.7, 88.8, -87.3, -87.4, 0.625, 0.6249999,
}

// floats returns random numbers of many magnitudes; one in salt is extreme, none for 0.
func floats(rng *rand.Rand, n, salt int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * math.Pow(2, float64(rng.IntN(8)-5)))
		if salt > 0 && rng.IntN(salt) == 0 {
			x[i] = extremes[rng.IntN(len(extremes))]
		}
	}
	return x
}

// mustEqual fails unless all bits are equal, where all that is not a number is equal.
func mustEqual(t *testing.T, got, want []float32) {
	t.Helper()
	if i := firstDiff(got, want); i >= 0 {
		t.Fatalf("number %d of %d is %g (%08x), want %g (%08x)", i, len(want), got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
	}
}

// pointwiseBench opens a device with the kernels of these tests.
func pointwiseBench(t *testing.T) *bench {
	t.Helper()
	names := []string{"embed", "norm", "add_norm", "add_mul", "gelu_mul", "softcap", "peaks", "select_rows"}
	for _, c := range caches {
		names = append(names, "store_"+string(c))
	}
	return newBench(t, metaltest.Options{Checked: true, Seed: 3}, names...)
}

// widths holds lengths of rows around those at which work is divided.
var widths = []int{1, 2, 15, 16, 17, 31, 33, 100, 128, 255, 256, 257, 520}

func TestEmbed(t *testing.T) {
	t.Parallel()
	device := pointwiseBench(t).device
	wide := quant.Format{Bits: 8, Scale: quant.ScaleF16}
	fine := quant.Format{Bits: 2, Group: 2, Scale: quant.ScaleF32}
	for _, c := range []struct {
		format quant.Format
		layout quant.Layout
		rows   int
		cols   int
	}{
		{quant.Int2, quant.Blocks, 35, 300}, {quant.Int4, quant.Blocks, 17, 52}, {quant.Int8, quant.Blocks, 16, 263}, {quant.Int4x32, quant.Blocks, 40, 288},
		{quant.Int2, quant.Rows, 9, 300}, {quant.Int4, quant.Rows, 9, 258}, {quant.Int8, quant.Rows, 9, 263}, {quant.Int4x32, quant.Rows, 9, 288},
		{wide, quant.Rows, 5, 31}, {fine, quant.Rows, 5, 36}, {quant.BF16, quant.Rows, 7, 301}, {quant.F32, quant.Rows, 7, 301},
	} {
		m := quant.Matrix{Format: c.format, Layout: c.layout, Rows: c.rows, Cols: c.cols}
		t.Run(fmt.Sprintf("%v %v", m.Format, m.Layout), func(t *testing.T) {
			if err := m.Validate(); err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, uint64(m.Cols)))
			data := table(rng, m)
			tokens := []int{0, m.Rows - 1, m.Rows / 2, 1}
			var rows []row
			for _, token := range tokens {
				rows = append(rows, row{token: int32(token)})
			}
			b := bench{t, device}
			args := metal.NewEmbedArgs(m, 1.7)
			got, want := unset(len(tokens)*m.Cols), unset(len(tokens)*m.Cols)
			b.run("embed", args, metal.EmbedLaunch(&args, len(tokens)), in(data), step(3, rows...), out(got))
			for i, token := range tokens[:3] {
				out := want[i*m.Cols:][:m.Cols]
				quant.Row(out, m, data, token)
				kernels.Generic().Norm(out, out, nil, 1.7)
			}
			mustEqual(t, got, want)
		})
	}
}

// table returns a matrix of random numbers.
func table(rng *rand.Rand, m quant.Matrix) []byte {
	data := make([]byte, m.SizeBytes())
	if !m.Codes() {
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		return data
	}
	var codes [][]byte
	var scales []float32
	for range m.Rows {
		row := make([]byte, m.CodeBytes())
		for i := range row {
			row[i] = byte(rng.Uint32())
		}
		codes = append(codes, row)
		for range m.Groups() {
			scales = append(scales, quant.F16ToF32(quant.F32ToF16(float32(rng.NormFloat64()))))
		}
	}
	for r := range m.Rows {
		switch {
		case m.Layout == quant.Rows:
			quant.PackRow(data[r*m.RowBytes():], m, codes[r], scales[r*m.Groups():])
		case r%quant.BlockRows == 0:
			quant.PackBlock(data[r/quant.BlockRows*m.BlockBytes():], m, codes[r:min(r+quant.BlockRows, m.Rows)], scales[r*m.Groups():])
		}
	}
	return data
}

func TestNorm(t *testing.T) {
	t.Parallel()
	device := pointwiseBench(t).device
	for _, c := range []struct{ cols, runs, rows, weighted, rotated, salt int }{
		{1536, 1, 3, 1, 0, 0}, {1536, 1, 2, 0, 0, 200}, {256, 8, 3, 1, 1, 0}, {512, 2, 2, 0, 1, 0}, {20, 3, 4, 1, 1, 0},
		{1, 1, 2, 1, 0, 0}, {15, 2, 2, 1, 1, 0}, {52, 1, 3, 1, 0, 0}, {18, 2, 8, 1, 1, 20}, {100, 1, 2, 0, 0, 0},
	} {
		for _, place := range []string{"apart", "in place"} {
			t.Run(fmt.Sprintf("%+v %s", c, place), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(c.cols), uint64(c.rows)))
				stride := c.cols * c.runs
				x, weight, angles := floats(rng, stride*c.rows, c.salt), floats(rng, c.cols, c.salt), floats(rng, (c.cols+5)*c.rows, 0)
				args := metal.NormArgs{
					Cols: uint32(c.cols), Stride: uint32(stride), Eps: 1e-6, Weighted: uint32(c.weighted), Rotated: uint32(c.rotated),
					AngleCols: uint32(c.cols + 5), AngleFirst: 3,
				}
				var rows []row
				for i := range c.rows {
					rows = append(rows, row{angles: int32(c.rows - 1 - i)})
				}
				want := unset(len(x))
				if place == "in place" {
					want = slices.Clone(x)
				}
				for r := range c.rows - 1 {
					var w, turn []float32
					if c.weighted == 1 {
						w = weight
					}
					if c.rotated == 1 {
						turn = angles[int(rows[r].angles)*(c.cols+5)+3:]
					}
					copy(want[r*stride:], prepared(x[r*stride:][:stride], c.cols, 1e-6, w, turn))
				}
				got := x
				if place == "apart" {
					got = unset(len(x))
				}
				operands := []operand{in(x), in(weight), in(angles), step(c.rows-1, rows...), out(got)}
				if c.weighted == 0 {
					operands[1] = unbound()
				}
				if c.rotated == 0 {
					operands[2] = unbound()
				}
				b := bench{t, device}
				b.run("norm", args, metal.NormLaunch(&args, c.rows), operands...)
				mustEqual(t, got, want)
			})
		}
	}
}

func TestAddNorm(t *testing.T) {
	t.Parallel()
	device := pointwiseBench(t).device
	for _, cols := range []int{1, 16, 52, 129, 1536} {
		for weighted := range uint32(2) {
			for _, salt := range []int{0, 50} {
				t.Run(fmt.Sprintf("%d weighted %d salt %d", cols, weighted, salt), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(uint64(cols), uint64(salt)))
					const rows = 3
					x, weight, state := floats(rng, rows*cols, salt), floats(rng, cols, salt), floats(rng, rows*cols, salt)
					args := metal.AddNormArgs{Cols: uint32(cols), Eps: 1e-6, Mul: 0.83, Weighted: weighted}
					want := slices.Clone(state)
					for r := range rows - 1 {
						k, in := kernels.Generic(), x[r*cols:][:cols]
						w := weight
						if weighted == 0 {
							w = nil
						}
						mean := k.DotF32(in, in) / float32(cols)
						k.AddNorm(want[r*cols:], in, w, 1/float32(math.Sqrt(float64(mean+1e-6))), 0.83)
					}
					b := bench{t, device}
					b.run("add_norm", args, metal.AddNormLaunch(&args, rows), in(x), in(weight), step(rows-1, make([]row, rows)...), out(state))
					mustEqual(t, state, want)
				})
			}
		}
	}
}

// TestColumns holds the kernels that treat numbers one by one against those of the processor.
func TestColumns(t *testing.T) {
	t.Parallel()
	device := pointwiseBench(t).device
	const rows = 3
	k := kernels.Generic()
	for _, cols := range widths {
		for _, salt := range []int{0, 3} {
			t.Run(fmt.Sprintf("%d salt %d", cols, salt), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(cols), uint64(salt)))
				live := (rows - 1) * cols
				a, b := floats(rng, rows*cols, salt), floats(rng, rows*(cols+7), salt)
				list, on := step(rows-1, make([]row, rows)...), bench{t, device}

				add := metal.AddMulArgs{Cols: uint32(cols), Mul: 0.7071}
				got, want := unset(rows*cols), unset(rows*cols)
				on.run("add_mul", add, metal.AddMulLaunch(&add, rows), in(a), in(b[:rows*cols]), list, out(got))
				k.AddMul(want[:live], a, b, 0.7071)
				mustEqual(t, got, want)

				gelu := metal.GELUMulArgs{Cols: uint32(cols), First: 4, BStride: uint32(cols + 7)}
				got, want = slices.Clone(a), slices.Clone(a)
				on.run("gelu_mul", gelu, metal.GELUMulLaunch(&gelu, rows), in(got), in(b), list, out(got))
				for r := range rows - 1 {
					row := want[r*cols:][:cols]
					k.GELUMul(row, row, b[r*(cols+7)+4:])
				}
				mustEqual(t, got, want)

				softcap := metal.SoftcapArgs{Cols: uint32(cols), Cap: 30}
				got, want = slices.Clone(a), slices.Clone(a)
				on.run("softcap", softcap, metal.SoftcapLaunch(&softcap, rows), out(got), list)
				k.Softcap(want[:live], 30)
				mustEqual(t, got, want)

				selects := metal.SelectArgs{Cols: uint32(cols)}
				got, want = unset(rows*cols), unset(rows*cols)
				on.run("select_rows", selects, metal.SelectLaunch(&selects, rows), in(a), in([]uint32{2, 0, 1}), list, out(got))
				copy(want, a[2*cols:])
				copy(want[cols:], a[:cols])
				mustEqual(t, got, want)
			})
		}
	}
}

func TestPeaks(t *testing.T) {
	t.Parallel()
	device := pointwiseBench(t).device
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, cols := range widths {
		for _, pool := range [][]float32{
			nil, extremes, {nan}, {-inf}, {0, extremes[1], -1}, {-inf, -math.MaxFloat32}, {1, 2, 2, nan},
		} {
			t.Run(fmt.Sprintf("%d of %v", cols, pool), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(cols), uint64(len(pool))))
				const rows = 3
				x := floats(rng, rows*cols, 0)
				for i := range x {
					if len(pool) > 0 && (len(pool) < 5 || rng.IntN(2) == 0) {
						x[i] = pool[rng.IntN(len(pool))]
					}
				}
				args := metal.PeaksArgs{Cols: uint32(cols)}
				runs := (cols + backends.PeakRun - 1) / backends.PeakRun
				got, want := unset(rows*runs), unset(rows*runs)
				b := bench{t, device}
				b.run("peaks", args, metal.PeaksLaunch(&args, rows), in(x), step(rows-1, make([]row, rows)...), out(got))
				for r := range rows - 1 {
					for i := range runs {
						row := x[r*cols:][:cols]
						want[r*runs+i] = backends.Peak(row[i*backends.PeakRun : min((i+1)*backends.PeakRun, cols)])
					}
				}
				mustEqual(t, got, want)
			})
		}
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	device := pointwiseBench(t).device
	for _, h := range []heads{{kv: 2, dim: 20}, {kv: 1, dim: 256}, {kv: 3, dim: 64, window: 300, ring: 2}, {kv: 1, dim: 15}} {
		for _, h.cache = range caches {
			t.Run(h.String(), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(h.dim), 1))
				slots := []sequence{h.sequence(rng, 600, 0), h.sequence(rng, 3, 0)}
				m := h.memory(rng, slots)
				rows := []place{{0, 599}, {1, 2}, {0, 255}, {0, 256}, {0, 511}, {0, 512}, {0, 0}}
				if h.ring > 0 { // what lies a ring before is no more
					rows = []place{{0, 599}, {0, 511}, {1, 0}, {0, 512}, {0, 300}}
				}
				key, value := floats(rng, len(rows)*h.kv*h.dim, 20), floats(rng, len(rows)*h.kv*h.dim, 20)
				args := metal.StoreArgs{
					KVHeads: uint32(h.kv), Dim: uint32(h.dim), Table: 1, Ring: uint32(h.ring), KeyScale: keyScale, ValueScale: valueScale,
				}
				arena := slices.Clone(m.arena)
				b := bench{t, device}
				b.run("store_"+string(h.cache), args, metal.StoreLaunch(&args, len(rows)),
					in(key), in(value), m.rows(len(rows)-1, rows...), in(m.table), out(arena))
				for i, r := range rows[:len(rows)-1] {
					m.put(r.slot, r.pos, h.keep(key[i*h.kv*h.dim:][:h.kv*h.dim], keyScale), h.keep(value[i*h.kv*h.dim:][:h.kv*h.dim], valueScale))
				}
				if at := m.firstDifference(arena); at >= 0 {
					t.Errorf("byte %d of the arena differs", at)
				}
			})
		}
	}
}
