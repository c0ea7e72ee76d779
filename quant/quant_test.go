package quant_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/quant"
)

// formats are the formats with codes, in both layouts where both are allowed.
var formats = []struct {
	name   string
	format quant.Format
	layout quant.Layout
}{
	{"int2 blocks", quant.Int2, quant.Blocks},
	{"int4 blocks", quant.Int4, quant.Blocks},
	{"int8 blocks", quant.Int8, quant.Blocks},
	{"int4x32 blocks", quant.Int4x32, quant.Blocks},
	{"int8x32 blocks", quant.Int8x32, quant.Blocks},
	{"int8x16 blocks", quant.Int8x16, quant.Blocks},
	{"int4x32 with minimums blocks", quant.Int4x32Min, quant.Blocks},
	{"int8x32 with minimums blocks", quant.Int8x32Min, quant.Blocks},
	{"int2 rows", quant.Int2, quant.Rows},
	{"int4 rows", quant.Int4, quant.Rows},
	{"int8 rows", quant.Int8, quant.Rows},
	{"int4x32 rows", quant.Int4x32, quant.Rows},
	{"int4 by 16 rows", quant.Format{Bits: 4, Group: 16, Scale: quant.ScaleF32}, quant.Rows},
	{"int2 f16 rows", quant.Format{Bits: 2, Scale: quant.ScaleF16}, quant.Rows},
	{"int8x32 rows", quant.Int8x32, quant.Rows},
	{"int8x16 rows", quant.Int8x16, quant.Rows},
	{"int4x32 with minimums rows", quant.Int4x32Min, quant.Rows},
	{"int8x32 with minimums rows", quant.Int8x32Min, quant.Rows},
	{"int2 by 16 with f16 minimums rows", quant.Format{Bits: 2, Group: 16, Scale: quant.ScaleF16, Minimum: true}, quant.Rows},
}

// shapes are rows and columns: whole blocks and steps, and such that end within one.
var shapes = [][2]int{{16, 32}, {1, 32}, {15, 64}, {17, 96}, {33, 32}, {48, 160}, {5, 1536}}

// narrow are columns that fill bytes but no step, for formats without groups.
var narrow = [][2]int{{3, 4}, {18, 8}, {16, 36}, {20, 100}, {7, 12}, {5, 6}, {4, 7}, {17, 33}}

// values is a matrix as the test sees it.
type values struct {
	codes  [][]int32   // less the midpoint, [rows][cols]
	scales [][]float32 // [rows][groups], each with its minimum behind it if there is one
}

// random returns a matrix with every code, and scales that a half holds exactly.
func random(rng *rand.Rand, m quant.Matrix) values {
	var v values
	low := -m.Midpoint()
	for range m.Rows {
		row := make([]int32, m.Cols)
		for c := range row {
			row[c] = low + rng.Int32N(1<<m.Bits)
		}
		scales := make([]float32, m.NumScales())
		for i := range scales {
			scales[i] = quant.F16ToF32(uint16(1 + rng.IntN(0x7bff)))
			if m.Minimum && i%2 == 1 { // of the size of its group's numbers
				scales[i] = quant.F16ToF32(quant.F32ToF16(scales[i-1] * (rng.Float32()*20 - 5)))
			}
		}
		v.codes, v.scales = append(v.codes, row), append(v.scales, scales)
	}
	return v
}

// value returns a number of the matrix.
func (v values) value(m quant.Matrix, row, col int) float32 {
	g := col * m.Groups() / m.Cols
	if m.Minimum {
		return float32(float32(v.codes[row][col])*v.scales[row][2*g]) - v.scales[row][2*g+1]
	}
	return float32(v.codes[row][col]) * v.scales[row][g]
}

// source returns a row in the checkpoint's packing, written as the format's text
// says: unsigned, lowest bits first; 8 bits are two's complement.
func source(row []int32, f quant.Format) []byte {
	if f.Bits == 8 {
		out := make([]byte, len(row))
		for i, c := range row {
			out[i] = byte(int8(c))
		}
		return out
	}
	var all big.Int
	for i, c := range row {
		u := big.NewInt(int64(c + f.Midpoint()))
		all.Or(&all, u.Lsh(u, uint(f.Bits*i)))
	}
	out := all.FillBytes(make([]byte, (len(row)*f.Bits+7)/8))
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// pack packs a matrix through the public functions.
func pack(m quant.Matrix, v values) []byte {
	data := make([]byte, m.SizeBytes())
	for i := range data {
		data[i] = 0xa5 // every byte must be written
	}
	if m.Layout == quant.Rows {
		for r := range m.Rows {
			quant.PackRow(data[r*m.RowBytes():], m, source(v.codes[r], m.Format), v.scales[r])
		}
		return data
	}
	for b := range m.NumBlocks() {
		var codes [][]byte
		var scales []float32
		for r := b * quant.BlockRows; r < min((b+1)*quant.BlockRows, m.Rows); r++ {
			codes = append(codes, source(v.codes[r], m.Format))
			scales = append(scales, v.scales[r]...)
		}
		quant.PackBlock(data[b*m.BlockBytes():], m, codes, scales)
	}
	return data
}

// forEach runs f on every format and shape.
func forEach(t *testing.T, f func(t *testing.T, m quant.Matrix, v values, data []byte)) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, ft := range formats {
		all := shapes
		if ft.format.Group == 0 {
			all = append(append([][2]int{}, shapes...), narrow...)
		}
		for _, shape := range all {
			if shape[1]*ft.format.Bits%8 != 0 {
				continue
			}
			m := quant.Matrix{Format: ft.format, Layout: ft.layout, Rows: shape[0], Cols: shape[1]}
			t.Run(fmt.Sprintf("%s %dx%d", ft.name, m.Rows, m.Cols), func(t *testing.T) {
				if err := m.Validate(); err != nil {
					t.Fatal(err)
				}
				v := random(rng, m)
				f(t, m, v, pack(m, v))
			})
		}
	}
}

// TestRow holds every value of every format against its definition.
func TestRow(t *testing.T) {
	forEach(t, func(t *testing.T, m quant.Matrix, v values, data []byte) {
		got := make([]float32, m.Cols)
		for r := range m.Rows {
			quant.Row(got, m, data, r)
			for c := range got {
				want := v.value(m, r, c)
				if math.Float32bits(got[c]) != math.Float32bits(want) {
					t.Fatalf("row %d, column %d: %v, want %d * scale - minimum = %v", r, c, got[c], v.codes[r][c], want)
				}
			}
		}
	})
}

// TestBlockPlaces holds every byte of a block against the text of the package: "code j of
// byte i of a row belongs to column 4n*step + 4j + i".
func TestBlockPlaces(t *testing.T) {
	forEach(t, func(t *testing.T, m quant.Matrix, v values, data []byte) {
		if m.Layout != quant.Blocks {
			t.Skip("not in blocks")
		}
		n := 8 / m.Bits
		for b := range m.NumBlocks() {
			block := data[b*m.BlockBytes():][:m.BlockBytes()]
			for step := range m.Steps() {
				for lane := range quant.BlockRows {
					for i := range 4 {
						var want byte
						for j := range n {
							r, c := b*quant.BlockRows+lane, 4*n*step+4*j+i
							if r < m.Rows && c < m.Cols {
								want |= byte(v.codes[r][c]+m.Midpoint()) << (m.Bits * j)
							}
						}
						if got := block[quant.StepBytes*step+4*lane+i]; got != want {
							t.Fatalf("block %d, step %d, row %d, byte %d: %02x, want %02x", b, step, lane, i, got, want)
						}
					}
				}
			}
			// Scales follow, those of a group together, and its minimums behind them; what is left is zero.
			rest := block[m.BlockCodeBytes():]
			for g := range m.NumScales() {
				for lane := range quant.BlockRows {
					var want float32
					if r := b*quant.BlockRows + lane; r < m.Rows {
						want = v.scales[r][g]
					}
					i := g*quant.BlockRows + lane
					var got float32
					if m.Scale == quant.ScaleF16 {
						got = quant.F16ToF32(binary.LittleEndian.Uint16(rest[2*i:]))
						clear(rest[2*i : 2*i+2])
					} else {
						got = math.Float32frombits(binary.LittleEndian.Uint32(rest[4*i:]))
						clear(rest[4*i : 4*i+4])
					}
					if got != want {
						t.Fatalf("block %d, row %d: scale %d is %v, want %v", b, lane, g, got, want)
					}
				}
			}
			for i, x := range rest {
				if x != 0 {
					t.Fatalf("block %d: byte %d of the padding is %02x", b, i, x)
				}
			}
		}
	})
}

// TestRowPlaces holds every byte of a row of a table against the text of the package.
func TestRowPlaces(t *testing.T) {
	forEach(t, func(t *testing.T, m quant.Matrix, v values, data []byte) {
		if m.Layout != quant.Rows {
			t.Skip("not in rows")
		}
		for r := range m.Rows {
			want := make([]byte, 0, m.RowBytes())
			want = append(want, source(v.codes[r], m.Format)...)
			if m.Bits == 8 {
				for i := range want {
					want[i] = byte(v.codes[r][i] + 128)
				}
			}
			for _, s := range v.scales[r] {
				if m.Scale == quant.ScaleF16 {
					want = binary.LittleEndian.AppendUint16(want, quant.F32ToF16(s))
				} else {
					want = binary.LittleEndian.AppendUint32(want, math.Float32bits(s))
				}
			}
			want = append(want, make([]byte, m.RowBytes()-len(want))...)
			if diff := cmp.Diff(want, data[r*m.RowBytes():][:m.RowBytes()]); diff != "" {
				t.Fatalf("row %d (-want +got):\n%s", r, diff)
			}
		}
	})
}

// TestPackBlockPadding: what a checkpoint has behind the last column does not get into a block.
func TestPackBlockPadding(t *testing.T) {
	for _, f := range []quant.Format{quant.Int2, quant.Int4} {
		for cols := 1; cols <= 33; cols++ {
			m := quant.Matrix{Format: f, Layout: quant.Blocks, Rows: 1, Cols: cols}
			clean := make([]byte, m.CodeBytes())
			for i := range clean {
				clean[i] = byte(37 * i)
			}
			used := cols*f.Bits - 8*(len(clean)-1) // bits of the last byte
			clean[len(clean)-1] &= byte(1<<used - 1)
			dirty := append(append([]byte{}, clean...), 0xff)
			dirty[len(clean)-1] |= ^byte(1<<used - 1)
			want, got := make([]byte, m.BlockBytes()), make([]byte, m.BlockBytes())
			quant.PackBlock(want, m, [][]byte{clean}, []float32{1})
			quant.PackBlock(got, m, [][]byte{dirty}, []float32{1})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%v, %d columns (-want +got):\n%s", f, cols, diff)
			}
		}
	}
}

// TestFloatRows reads matrices of plain floats.
func TestFloatRows(t *testing.T) {
	for _, f := range []quant.Format{quant.BF16, quant.F32} {
		m := quant.Matrix{Format: f, Layout: quant.Rows, Rows: 3, Cols: 5}
		data := make([]byte, m.SizeBytes())
		want := make([]float32, 15)
		for i := range want {
			want[i] = float32(i)*0.5 - 3 // bfloat16 holds these
			if f.Bits == 16 {
				binary.LittleEndian.PutUint16(data[2*i:], uint16(math.Float32bits(want[i])>>16))
			} else {
				binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(want[i]))
			}
		}
		got := make([]float32, 15)
		packed := make([]byte, m.SizeBytes())
		for r := range m.Rows {
			quant.Row(got[5*r:], m, data, r)
			quant.PackRow(packed[r*m.RowBytes():], m, data[r*m.RowBytes():][:m.RowBytes()], nil)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", f, diff)
		}
		if diff := cmp.Diff(data, packed); diff != "" {
			t.Errorf("%v packed (-want +got):\n%s", f, diff)
		}
	}
}

func TestValidate(t *testing.T) {
	good := quant.Matrix{Format: quant.Int4, Layout: quant.Blocks, Rows: 16, Cols: 32}
	with := func(change func(m *quant.Matrix)) quant.Matrix {
		m := good
		change(&m)
		return m
	}
	cases := []struct {
		name string
		m    quant.Matrix
		ok   bool
	}{
		{"good", good, true},
		{"no rows", with(func(m *quant.Matrix) { m.Rows = 0 }), false},
		{"negative columns", with(func(m *quant.Matrix) { m.Cols = -1 }), false},
		{"too many rows", with(func(m *quant.Matrix) { m.Rows = quant.MaxDim + 1 }), false},
		{"too many columns to multiply", with(func(m *quant.Matrix) { m.Cols = quant.MaxBlockCols + 32 }), false},
		{"as many columns in a table", with(func(m *quant.Matrix) { m.Cols, m.Layout = quant.MaxBlockCols+32, quant.Rows }), true},
		{"3 bits", with(func(m *quant.Matrix) { m.Bits = 3 }), false},
		{"0 bits", with(func(m *quant.Matrix) { m.Bits = 0 }), false},
		{"no scale", with(func(m *quant.Matrix) { m.Scale = quant.ScaleNone }), false},
		{"unknown scale", with(func(m *quant.Matrix) { m.Scale = "f64" }), false},
		{"half scales of rows in blocks", with(func(m *quant.Matrix) { m.Scale = quant.ScaleF16 }), false},
		{"groups of 32", with(func(m *quant.Matrix) { m.Format = quant.Int4x32 }), true},
		{"groups of 32 with f32", with(func(m *quant.Matrix) { m.Group = 32 }), false},
		{"groups of 32 of 2 bits", with(func(m *quant.Matrix) { m.Format, m.Bits = quant.Int4x32, 2 }), false},
		{"groups of 32 of 8 bits", with(func(m *quant.Matrix) { m.Format = quant.Int8x32 }), true},
		{"groups of 16 of 8 bits", with(func(m *quant.Matrix) { m.Format = quant.Int8x16 }), true},
		{"groups of 16 of 8 bits with minimums", with(func(m *quant.Matrix) { m.Format, m.Minimum = quant.Int8x16, true }), false},
		{"minimums", with(func(m *quant.Matrix) { m.Format = quant.Int4x32Min }), true},
		{"half minimums", with(func(m *quant.Matrix) { m.Format, m.Scale = quant.Int4x32Min, quant.ScaleF16 }), false},
		{"half minimums in rows", with(func(m *quant.Matrix) { m.Format, m.Scale, m.Layout = quant.Int4x32Min, quant.ScaleF16, quant.Rows }), true},
		{"minimums of 8 bits", with(func(m *quant.Matrix) { m.Format = quant.Int8x32Min }), true},
		{"minimums of rows", with(func(m *quant.Matrix) { m.Minimum = true }), false},
		{"minimums of rows of a table", with(func(m *quant.Matrix) { m.Minimum, m.Layout = true, quant.Rows }), false},
		{"minimums without scales", with(func(m *quant.Matrix) { m.Format, m.Scale = quant.Int4x32Min, quant.ScaleNone }), false},
		{"groups of 16 in blocks", with(func(m *quant.Matrix) { m.Group, m.Scale = 16, quant.ScaleF16 }), false},
		{"groups of 16 in rows", with(func(m *quant.Matrix) { m.Group, m.Layout = 16, quant.Rows }), true},
		{"groups that do not divide", with(func(m *quant.Matrix) { m.Group, m.Layout = 24, quant.Rows }), false},
		{"negative groups", with(func(m *quant.Matrix) { m.Group = -32 }), false},
		{"columns that fill no bytes", with(func(m *quant.Matrix) { m.Cols, m.Layout = 33, quant.Rows }), false},
		{"unknown layout", with(func(m *quant.Matrix) { m.Layout = "columns" }), false},
		{"no layout", with(func(m *quant.Matrix) { m.Layout = "" }), false},
		{"bf16 rows", quant.Matrix{Format: quant.BF16, Layout: quant.Rows, Rows: 1, Cols: 3}, true},
		{"bf16 blocks", quant.Matrix{Format: quant.BF16, Layout: quant.Blocks, Rows: 1, Cols: 3}, false},
		{"bf16 with scales", quant.Matrix{Format: quant.Format{Bits: 16, Scale: quant.ScaleF32}, Layout: quant.Rows, Rows: 1, Cols: 3}, false},
		{"bf16 with minimums", quant.Matrix{Format: quant.Format{Bits: 16, Minimum: true}, Layout: quant.Rows, Rows: 1, Cols: 3}, false},
		{"f32 with groups", quant.Matrix{Format: quant.Format{Bits: 32, Group: 3}, Layout: quant.Rows, Rows: 1, Cols: 3}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := c.m.Validate()
			if (err == nil) != c.ok || err != nil && !errors.Is(err, quant.ErrFormat) {
				t.Errorf("%+v: %v", c.m, err)
			}
		})
	}
}

// TestSizes holds sizes against numbers worked out by hand.
func TestSizes(t *testing.T) {
	cases := []struct {
		m                      quant.Matrix
		row, block, steps, all int64
	}{
		// 1536 columns: 96 steps of 64 bytes and 64 bytes of scales.
		{quant.Matrix{Format: quant.Int2, Layout: quant.Blocks, Rows: 262144, Cols: 1536}, 448, 6208, 96, 262144 / 16 * 6208},
		{quant.Matrix{Format: quant.Int4, Layout: quant.Blocks, Rows: 17, Cols: 100}, 64, 13*64 + 64, 13, 2 * (13*64 + 64)},
		{quant.Matrix{Format: quant.Int8, Layout: quant.Blocks, Rows: 16, Cols: 4}, 64, 128, 1, 128},
		{quant.Matrix{Format: quant.Int4x32, Layout: quant.Blocks, Rows: 16, Cols: 96}, 64, 12*64 + 128, 12, 12*64 + 128},
		{quant.Matrix{Format: quant.Int8x32, Layout: quant.Blocks, Rows: 16, Cols: 96}, 128, 24*64 + 128, 24, 24*64 + 128},
		{quant.Matrix{Format: quant.Int8x16, Layout: quant.Blocks, Rows: 16, Cols: 96}, 128, 24*64 + 384, 24, 24*64 + 384},
		{quant.Matrix{Format: quant.Int4x32Min, Layout: quant.Blocks, Rows: 16, Cols: 96}, 128, 12*64 + 384, 12, 12*64 + 384},
		{quant.Matrix{Format: quant.Int8x32Min, Layout: quant.Blocks, Rows: 16, Cols: 96}, 128, 24*64 + 384, 24, 24*64 + 384},
		// The per-layer table: 4480 bytes of codes, 140 of scales, rounded up to 4672.
		{quant.Matrix{Format: quant.Format{Bits: 4, Group: 256, Scale: quant.ScaleF32}, Layout: quant.Rows, Rows: 262144, Cols: 8960}, 4672, 0, 0, 262144 * 4672},
		{quant.Matrix{Format: quant.BF16, Layout: quant.Rows, Rows: 8960, Cols: 1536}, 3072, 0, 0, 8960 * 3072},
		{quant.Matrix{Format: quant.F32, Layout: quant.Rows, Rows: 1, Cols: 10}, 40, 0, 0, 40},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%v %dx%d", c.m.Format, c.m.Rows, c.m.Cols), func(t *testing.T) {
			if got := int64(c.m.RowBytes()); got != c.row {
				t.Errorf("row of %d bytes, want %d", got, c.row)
			}
			if c.block > 0 && (int64(c.m.BlockBytes()) != c.block || int64(c.m.Steps()) != c.steps) {
				t.Errorf("block of %d bytes and %d steps, want %d and %d", c.m.BlockBytes(), c.m.Steps(), c.block, c.steps)
			}
			if got := c.m.SizeBytes(); got != c.all {
				t.Errorf("%d bytes, want %d", got, c.all)
			}
		})
	}
}

func TestFormatString(t *testing.T) {
	for want, f := range map[string]quant.Format{"int2": quant.Int2, "int4": quant.Int4, "int8": quant.Int8, "int4/32": quant.Int4x32, "int8/16": quant.Int8x16, "int4/32-min": quant.Int4x32Min, "bf16": quant.BF16, "f32": quant.F32} {
		if got := f.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestHalf converts every half to a single and back.
func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		got := quant.F16ToF32(uint16(h))
		sign, exp, frac := h>>15, h>>10&31, float64(h&1023)
		var want float64
		switch exp {
		case 0:
			want = math.Ldexp(frac, -24)
		case 31:
			want = math.Inf(1)
			if frac != 0 {
				want = math.NaN()
			}
		default:
			want = math.Ldexp(1024+frac, exp-25)
		}
		if sign == 1 {
			want = -want
		}
		if float64(got) != want && !(math.IsNaN(want) && math.IsNaN(float64(got))) || math.Signbit(float64(got)) != (sign == 1) {
			t.Fatalf("half %04x is %v, want %v", h, got, want)
		}
		back := quant.F32ToF16(got)
		if math.IsNaN(want) {
			if back&0x7c00 != 0x7c00 || back&0x3ff == 0 {
				t.Fatalf("not a number, half %04x, comes back as %04x", h, back)
			}
		} else if int(back) != h {
			t.Fatalf("half %04x comes back as %04x", h, back)
		}
	}
}

// TestHalfRounding rounds singles on both sides of every tie between two halves.
func TestHalfRounding(t *testing.T) {
	for h := range 0x7c00 {
		a, b := quant.F16ToF32(uint16(h)), float64(0)
		if h == 0x7bff {
			b = 65536 // where the next half would be: the border to infinity lies half way
		} else {
			b = float64(quant.F16ToF32(uint16(h + 1)))
		}
		tie := float32((float64(a) + b) / 2)
		even := uint16(h + h&1)
		for _, c := range []struct {
			x    float32
			want uint16
		}{{math.Nextafter32(tie, 0), uint16(h)}, {tie, even}, {math.Nextafter32(tie, 1e9), uint16(h + 1)}} {
			if got := quant.F32ToF16(c.x); got != c.want {
				t.Fatalf("%v becomes %04x, want %04x", c.x, got, c.want)
			}
			if got := quant.F32ToF16(-c.x); got != c.want|0x8000 {
				t.Fatalf("%v becomes %04x, want %04x", -c.x, got, c.want|0x8000)
			}
		}
	}
	for x, want := range map[float32]uint16{float32(math.Inf(1)): 0x7c00, float32(math.Inf(-1)): 0xfc00, math.MaxFloat32: 0x7c00, 1e-30: 0, math.SmallestNonzeroFloat32: 0} {
		if got := quant.F32ToF16(x); got != want {
			t.Errorf("%v becomes %04x, want %04x", x, got, want)
		}
	}
}

func BenchmarkPackBlock(b *testing.B) {
	for _, f := range []quant.Format{quant.Int2, quant.Int4, quant.Int8} {
		b.Run(f.String(), func(b *testing.B) {
			m := quant.Matrix{Format: f, Layout: quant.Blocks, Rows: 16, Cols: 1536}
			codes := make([][]byte, 16)
			for r := range codes {
				codes[r] = make([]byte, m.CodeBytes())
			}
			dst, scales := make([]byte, m.BlockBytes()), make([]float32, 16)
			b.SetBytes(int64(16 * m.CodeBytes()))
			for b.Loop() {
				quant.PackBlock(dst, m, codes, scales)
			}
		})
	}
}

func BenchmarkPackRow(b *testing.B) {
	m := quant.Matrix{Format: quant.Format{Bits: 4, Group: 256, Scale: quant.ScaleF32}, Layout: quant.Rows, Rows: 1, Cols: 8960}
	codes, dst, scales := make([]byte, m.CodeBytes()), make([]byte, m.RowBytes()), make([]float32, 35)
	b.SetBytes(int64(m.CodeBytes()))
	for b.Loop() {
		quant.PackRow(dst, m, codes, scales)
	}
}

func BenchmarkRow(b *testing.B) {
	for _, m := range []quant.Matrix{
		{Format: quant.Format{Bits: 4, Group: 256, Scale: quant.ScaleF32}, Layout: quant.Rows, Rows: 1, Cols: 8960},
		{Format: quant.Int2, Layout: quant.Blocks, Rows: 16, Cols: 1536},
		{Format: quant.Int4x32Min, Layout: quant.Rows, Rows: 1, Cols: 2560},
		{Format: quant.Int8x16, Layout: quant.Rows, Rows: 1, Cols: 2560},
		{Format: quant.Int8x16, Layout: quant.Blocks, Rows: 16, Cols: 2560},
	} {
		b.Run(fmt.Sprintf("%s/%s/%d", m.Format, m.Layout, m.Cols), func(b *testing.B) {
			data, dst := make([]byte, m.SizeBytes()), make([]float32, m.Cols)
			b.SetBytes(4 * int64(m.Cols))
			for b.Loop() {
				quant.Row(dst, m, data, 0)
			}
		})
	}
}
