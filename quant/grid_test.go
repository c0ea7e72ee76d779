package quant_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/quant"
)

// bf16Row returns numbers as bfloat16, cut off.
func bf16Row(values []float32) []byte {
	row := make([]byte, 0, 2*len(values))
	for _, v := range values {
		row = binary.LittleEndian.AppendUint16(row, uint16(math.Float32bits(v)>>16))
	}
	return row
}

// gridByDefinition rounds one block of 32 by the text of the definition, in float32.
func gridByDefinition(g quant.Grid, x []float32) (codes []int, half float32) {
	var peak float32 // the first of the largest magnitude
	for _, v := range x {
		if math.Abs(float64(v)) > math.Abs(float64(peak)) {
			peak = v
		}
	}
	d := peak / -8
	if g == quant.GridAbsMax7 {
		d = float32(math.Abs(float64(peak))) / 7
	}
	codes = make([]int, len(x))
	if d == 0 || math.IsInf(float64(1/d), 0) {
		return codes, 0
	}
	inverse := 1 / d
	for i, v := range x {
		product := float64(v * inverse)
		if g == quant.GridQ4_0 {
			sum := float64(float32(product) + 8.5)
			codes[i] = int(min(max(math.Floor(sum), 0), 15)) - 8
		} else {
			codes[i] = int(min(max(math.RoundToEven(product), -8), 7))
		}
	}
	return codes, quant.F16ToF32(quant.F32ToF16(d))
}

// TestGrids holds both grids against their definitions, on numbers of every size.
func TestGrids(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var blocks [][]float32
	for range 20000 {
		block := make([]float32, 32)
		scale := float32(math.Exp2(float64(rng.IntN(40) - 30)))
		for i := range block {
			block[i] = quant.BF16ToF32(uint16(math.Float32bits(scale*float32(rng.NormFloat64())) >> 16))
		}
		switch rng.IntN(8) {
		case 0: // ties of magnitude, of either sign
			block[rng.IntN(32)], block[rng.IntN(32)] = 4*scale, -4*scale
		case 1: // numbers halfway between codes
			for i := range block {
				block[i] = scale * float32(rng.IntN(33)-16) / 16
			}
		case 2: // few numbers
			for i := range block {
				if i%7 != 0 {
					block[i] = 0
				}
			}
		}
		blocks = append(blocks, block)
	}
	same := func(v float32) []float32 { return slices.Repeat([]float32{v}, 32) }
	smallest := math.Float32frombits(1 << 16) // the smallest bfloat16
	blocks = append(blocks, same(0), same(float32(math.Copysign(0, -1))), same(1), same(-1), same(smallest), same(-smallest),
		same(0x1p-120), same(0x1p-126), same(0x1.b8p18), same(-0x1.bp18))
	for _, g := range quant.Grids() {
		for n, block := range blocks {
			want, half := gridByDefinition(g, block)
			codes, scales := make([]byte, 16), make([]float32, 1)
			if err := g.RoundBF16(codes, scales, bf16Row(block)); err != nil {
				t.Fatalf("%s: block %d, %v: %v", g, n, block, err)
			}
			if math.Float32bits(scales[0]) != math.Float32bits(half) {
				t.Fatalf("%s: block %d: scale %g, want %g", g, n, scales[0], half)
			}
			for i := range block {
				if got := int(codes[i/2]>>(4*(i%2))&15) - 8; got != want[i] {
					t.Fatalf("%s: block %d: number %d, %g, has the code %d, want %d\n%v", g, n, i, block[i], got, want[i], block)
				}
			}
		}
	}
}

// TestGridRefused rounds what cannot be rounded.
func TestGridRefused(t *testing.T) {
	codes, scales := make([]byte, 32), make([]float32, 2)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, g := range quant.Grids() {
		for _, c := range []struct {
			name  string
			at    int
			value float32
		}{{"NaN", 37, nan}, {"infinity", 0, inf}, {"minus infinity", 63, -inf}, {"beyond a half", 33, 1e6}, {"far beyond a half", 1, -3e38}} {
			row := make([]float32, 64)
			for i := range row {
				row[i] = float32(i) - 20
			}
			row[c.at] = c.value
			err := g.RoundBF16(codes, scales, bf16Row(row))
			v, ok := errors.AsType[*quant.ValueError](err)
			if !ok || v.Index != c.at || !errors.Is(err, quant.ErrFormat) {
				t.Errorf("%s: %s: %v", g, c.name, err)
			}
		}
		if err := g.RoundBF16(codes, scales, make([]byte, 66)); !errors.Is(err, quant.ErrFormat) {
			t.Errorf("%s: 33 columns: %v", g, err)
		}
	}
	if err := quant.Grid("q5").RoundBF16(codes, scales, make([]byte, 64)); !errors.Is(err, quant.ErrFormat) {
		t.Errorf("an unknown grid: %v", err)
	}
	if _, err := quant.ParseGrid("q5"); !errors.Is(err, quant.ErrFormat) {
		t.Errorf("the name of an unknown grid: %v", err)
	}
	for _, g := range quant.Grids() {
		if parsed, err := quant.ParseGrid(string(g)); parsed != g || err != nil {
			t.Errorf("%s: %v", g, err)
		}
	}
	if err := quant.CheckBF16(bf16Row([]float32{1, -2, 3e38, 0})); err != nil {
		t.Error(err)
	}
	if v, ok := errors.AsType[*quant.ValueError](quant.CheckBF16(bf16Row([]float32{1, 2, -inf}))); !ok || v.Index != 2 {
		t.Error("an infinity is not found")
	}
}

// BenchmarkGrid measures the bytes of bfloat16 that are rounded in a second.
func BenchmarkGrid(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 6))
	values := make([]float32, 2560)
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	row := bf16Row(values)
	codes, scales := make([]byte, len(values)/2), make([]float32, len(values)/32)
	for _, g := range quant.Grids() {
		b.Run(string(g), func(b *testing.B) {
			b.SetBytes(int64(len(row)))
			for b.Loop() {
				if err := g.RoundBF16(codes, scales, row); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
