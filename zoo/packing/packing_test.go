package packing_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/tokenizer"
	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// write writes a pack of tensors and opens it.
func write(t *testing.T, tensors ...*packing.Tensor) *zoo.Pack {
	t.Helper()
	p := &packing.Pack{Plugin: zoo.PluginID{Name: "test", Version: "1.0.0"}, Tensors: tensors}
	var done, total int64
	m := packing.NewMeter(func(d, all int64) { done, total = d, all })
	m.Expect(p.SourceBytes())
	dir := t.TempDir()
	if err := p.Write(t.Context(), dir, m); err != nil {
		t.Fatal(err)
	}
	if done != total || total != p.SourceBytes() {
		t.Errorf("%d of %d bytes are counted, of %d", done, total, p.SourceBytes())
	}
	pack, err := zoo.OpenPack(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pack.Close() })
	return pack
}

// values returns a row of a pack's tensor.
func values(t *testing.T, pack *zoo.Pack, name string, row int) []float32 {
	t.Helper()
	data, m, ok := pack.Tensor(name)
	if !ok {
		t.Fatalf("the pack has no tensor %q", name)
	}
	v := make([]float32, m.Cols)
	quant.Row(v, m, data, row)
	return v
}

// random returns a tensor of random bfloat16.
func random(name string, rows, cols int) checkpoint.Tensor {
	r := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	var data []byte
	for range rows * cols {
		data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(float32(r.NormFloat64()))>>16))
	}
	return checkpoint.Tensor{Name: name, DType: checkpoint.BF16, Shape: []int{rows, cols}, Data: data}
}

// matrix returns random bfloat16, rounded to q4_0.
func matrix(t *testing.T, name string, rows, cols int) *packing.Matrix {
	t.Helper()
	plain, err := packing.BF16(name, random(name, rows, cols))
	if err != nil {
		t.Fatal(err)
	}
	m, err := plain.Round(quant.GridQ4_0)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// wanted returns a row of a matrix as its own tensor would hold it.
func wanted(t *testing.T, m *packing.Matrix, row int) []float32 {
	t.Helper()
	r := m.NewRow()
	if err := m.Read(row, r); err != nil {
		t.Fatal(err)
	}
	shape := quant.Matrix{Format: m.Format, Layout: quant.Rows, Rows: 1, Cols: m.Cols}
	data, v := make([]byte, shape.RowBytes()), make([]float32, m.Cols)
	quant.PackRow(data, shape, r.Codes, r.Scales)
	quant.Row(v, shape, data, 0)
	return v
}

// TestGroup finds every row of matrices that lie together, and apart.
func TestGroup(t *testing.T) {
	q, k, v := matrix(t, "q", 40, 64), matrix(t, "k", 20, 64), matrix(t, "v", 7, 64)
	stacked, err := packing.Group("qkv", packing.Stacked, q, k, v)
	if err != nil {
		t.Fatal(err)
	}
	gate, up := matrix(t, "gate", 40, 64), matrix(t, "up", 40, 64)
	alternating, err := packing.Group("gate_up", packing.Alternating, gate, up)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := packing.BF16("plain", random("plain", 3, 64))
	if err != nil {
		t.Fatal(err)
	}
	apart, err := packing.Group("apart", packing.Stacked, matrix(t, "codes", 5, 64), plain)
	if err != nil {
		t.Fatal(err)
	}
	uneven, err := packing.Group("uneven", packing.Alternating, matrix(t, "more", 32, 64), matrix(t, "less", 16, 64))
	if err != nil {
		t.Fatal(err)
	}
	table, err := packing.NewTable(matrix(t, "table", 9, 64))
	if err != nil {
		t.Fatal(err)
	}
	all := append(append(append(append(stacked, alternating...), apart...), uneven...), table)
	pack := write(t, all...)
	var names []string
	for _, x := range pack.Manifest().Tensors {
		names = append(names, fmt.Sprintf("%s %s %s %d", x.Name, x.Format, x.Layout, x.Rows))
	}
	if diff := cmp.Diff([]string{"qkv int4/32 blocks16 96", "gate_up int4/32 blocks16 96", "codes int4/32 blocks16 5", "plain bf16 rows 3",
		"more int4/32 blocks16 32", "less int4/32 blocks16 16", "table int4/32 rows 9"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, at := range map[string]func() (*packing.Matrix, func(row int) int){
		"qkv":     func() (*packing.Matrix, func(int) int) { return k, func(r int) int { return 48 + r } },
		"gate_up": func() (*packing.Matrix, func(int) int) { return up, func(r int) int { return r/16*32 + 16 + r%16 } },
		"table": func() (*packing.Matrix, func(int) int) {
			m := matrix(t, "table", 9, 64)
			return m, func(r int) int { return r }
		},
	} {
		m, place := at()
		for r := range m.Rows {
			if diff := cmp.Diff(wanted(t, m, r), values(t, pack, name, place(r))); diff != "" {
				t.Errorf("%s: row %d (-want +got):\n%s", name, r, diff)
			}
		}
	}
}

// TestGGUF holds the rows of packs against the decoded rows of a file of every type, bit for bit.
func TestGGUF(t *testing.T) {
	f, err := gguf.Open(filepath.Join("..", "..", "checkpoint", "gguf", "testdata"), "types.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := map[gguf.Type]quant.Format{}
	for _, x := range f.Tensors() {
		if len(x.Shape) != 2 {
			continue
		}
		m, err := packing.GGUF(x.Name, x)
		if err != nil {
			t.Errorf("%s: %v", x.Name, err)
			continue
		}
		seen[x.Type] = m.Format
		made, err := packing.NewMatrix(m)
		if err != nil {
			t.Errorf("%s: %v", x.Name, err)
			continue
		}
		pack := write(t, made)
		v := make([]float32, m.Cols)
		for r := range m.Rows {
			if err := x.Dequantize(v, r); err != nil {
				t.Fatal(err)
			}
			got := values(t, pack, x.Name, r)
			for c := range v {
				if m.Format == quant.BF16 { // of which the others are rounded
					if d := math.Abs(float64(got[c] - v[c])); d > math.Abs(float64(v[c]))/256+1e-38 {
						t.Fatalf("%s: row %d: column %d is %g, not %g", x.Name, r, c, got[c], v[c])
					}
				} else if got[c] != v[c] {
					t.Fatalf("%s: row %d: column %d is %g, not %g", x.Name, r, c, got[c], v[c])
				}
			}
		}
	}
	for _, k := range gguf.Decoded() {
		if _, ok := seen[k]; !ok {
			t.Errorf("there is no matrix of %s", k)
		}
	}
}

// TestGGUFFloats rounds floats to bfloat16, to even.
func TestGGUFFloats(t *testing.T) {
	rounded := func(kind gguf.Type, data []byte, cols int) []byte {
		t.Helper()
		m, err := packing.GGUF("w", gguf.Tensor{Name: "w", Type: kind, Shape: []int{1, cols}, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		row := m.NewRow()
		if err := m.Read(0, row); err != nil {
			t.Fatal(err)
		}
		return row.Codes
	}
	le := binary.LittleEndian
	cases := []struct {
		f32  uint32
		bf16 uint16
	}{
		{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x3f817fff, 0x3f81}, {0x3f80ffff, 0x3f81},
		{0xbf808000, 0xbf80}, {0xbf818000, 0xbf82}, {0x3fff8000, 0x4000}, {0x3fff7fff, 0x3fff}, {0x00008000, 0x0000}, {0x00018000, 0x0002}, {0x80000000, 0x8000},
	}
	var data, want []byte
	for _, c := range cases {
		data, want = le.AppendUint32(data, c.f32), le.AppendUint16(want, c.bf16)
	}
	got := rounded(gguf.F32, data, len(cases))
	for i, c := range cases {
		if x := le.Uint16(got[2*i:]); x != c.bf16 {
			t.Errorf("%#08x becomes %#04x, want %#04x", c.f32, x, c.bf16)
		}
	}
	// What was bfloat16 once comes back from halves of these magnitudes.
	data, want = nil, nil
	for bits := uint16(0x3700); bits <= 0x477f; bits++ { // 2^-17 to 65280
		for _, sign := range []uint16{0, 0x8000} {
			data, want = le.AppendUint16(data, quant.F32ToF16(quant.BF16ToF32(bits|sign))), le.AppendUint16(want, bits|sign)
		}
	}
	if got := rounded(gguf.F16, data, len(data)/2); !bytes.Equal(got, want) {
		t.Error("halves do not give the numbers back that they were made of")
	}
}

// TestReport holds the errors of rounding against those of each number.
func TestReport(t *testing.T) {
	const cols = 64
	sizes := map[string]int{"layers.0.w": 70, "layers.10.w": 3, "embed": 5, "broken": 2}
	var matrices []*packing.Matrix
	var bytes int64
	for _, name := range []string{"layers.0.w", "embed", "layers.10.w", "broken"} {
		x := random(name, sizes[name], cols)
		if name == "broken" {
			binary.LittleEndian.PutUint16(x.Data[2*(cols+1):], 0x7f80)
		}
		m, err := packing.BF16(name, x)
		if err != nil {
			t.Fatal(err)
		}
		matrices = append(matrices, m)
		bytes += m.SourceBytes()
	}
	var want []zoo.RoundingError
	for _, family := range []struct {
		name    string
		members []*packing.Matrix
	}{{"layers.*.w", []*packing.Matrix{matrices[0], matrices[2]}}, {"embed", matrices[1:2]}} {
		for _, grid := range quant.Grids() {
			r := zoo.RoundingError{Family: family.name, Grid: string(grid), Tensors: len(family.members)}
			var squares, off float64
			for _, plain := range family.members {
				rounded, err := plain.Round(grid)
				if err != nil {
					t.Fatal(err)
				}
				for row := range plain.Rows {
					exact := plain.NewRow()
					if err := plain.Read(row, exact); err != nil {
						t.Fatal(err)
					}
					for c, v := range wanted(t, rounded, row) {
						x := float64(quant.BF16ToF32(binary.LittleEndian.Uint16(exact.Codes[2*c:])))
						d := math.Abs(x - float64(v))
						squares, off, r.MaxAbs = squares+x*x, off+d*d, max(r.MaxAbs, d)
						r.Numbers++
					}
				}
			}
			r.RelL2 = math.Sqrt(off / squares)
			want = append(want, r)
		}
	}
	const problem = `tensor "broken": number 65 is +Inf, which no model can have`
	for _, grid := range quant.Grids() {
		want = append(want, zoo.RoundingError{Family: "broken", Grid: string(grid), Tensors: 1, Numbers: 2 * cols, Problem: problem})
	}
	var done int64
	m := packing.NewMeter(func(d, _ int64) { done = d })
	m.Expect(bytes)
	got, err := packing.Report(t.Context(), matrices, m)
	if err != nil {
		t.Fatal(err)
	}
	if done != bytes {
		t.Errorf("%d of %d bytes are counted", done, bytes)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestErrors gives matrices that cannot be packed.
func TestErrors(t *testing.T) {
	nan := random("w", 2, 32)
	binary.LittleEndian.PutUint16(nan.Data[2*33:], 0x7fc0)
	plain, err := packing.BF16("w", nan)
	if err != nil {
		t.Fatal(err)
	}
	rounded, err := plain.Round(quant.GridQ4_0)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*packing.Matrix{"plain": plain, "rounded": rounded} {
		x, err := packing.NewMatrix(m)
		if err != nil {
			t.Fatal(err)
		}
		p := &packing.Pack{Plugin: zoo.PluginID{Name: "test", Version: "1.0.0"}, Tensors: []*packing.Tensor{x}}
		err = p.Write(t.Context(), t.TempDir(), packing.NewMeter(nil))
		te, ok := errors.AsType[*checkpoint.TensorError](err)
		if !ok || te.Tensor != "w" || te.Problem != "number 33 is NaN, which no model can have" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := rounded.Round(quant.GridQ4_0); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("rounded twice: %v", err)
	}
	if _, err := packing.BF16("w", checkpoint.Tensor{Name: "w", DType: checkpoint.F32, Shape: []int{2, 2}}); !errors.Is(err, zoo.ErrIntegrity) {
		t.Errorf("float32: %v", err)
	}
	if m, err := packing.BF16("w", random("w", 1, 33)); err != nil {
		t.Error(err)
	} else if _, err := m.Round(quant.GridAbsMax7); !errors.Is(err, zoo.ErrIntegrity) {
		t.Errorf("33 columns: %v", err)
	}
	if _, err := packing.NewVector("v", nil); !errors.Is(err, zoo.ErrIntegrity) {
		t.Errorf("an empty list: %v", err)
	}
	given := []catalog.File{{Path: "a", SHA256: "1"}, {Path: "b"}}
	if got, err := packing.Sources(given, "a"); err != nil || len(got) != 1 || got[0] != given[0] {
		t.Errorf("sources: %v, %v", got, err)
	}
	if _, err := packing.Sources(given, "c"); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a source that is not given: %v", err)
	}
}

// TestCheckTokenizer gives tables of fewer and of more rows than there are pieces.
func TestCheckTokenizer(t *testing.T) {
	var p tokenizer.Pieces
	add := func(text string, kind tokenizer.PieceType) {
		p.Texts, p.Scores, p.Types = append(p.Texts, text), append(p.Scores, -float32(len(p.Texts))), append(p.Types, kind)
	}
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b), tokenizer.BytePiece)
	}
	add("▁", tokenizer.NormalPiece)
	for name, c := range map[string]struct {
		last tokenizer.PieceType
		rows int
		ok   bool
	}{
		"a row for each":            {tokenizer.NormalPiece, 258, true},
		"rows to spare":             {tokenizer.NormalPiece, 258 + 1024, true},
		"too many rows":             {tokenizer.NormalPiece, 259 + 1024, false},
		"a piece without a row":     {tokenizer.NormalPiece, 257, false},
		"a marker without a row":    {tokenizer.ControlPiece, 257, true},
		"a tag without a row":       {tokenizer.UserDefinedPiece, 257, false},
		"a marker, and two too few": {tokenizer.ControlPiece, 256, false},
	} {
		q := tokenizer.Pieces{Texts: append(slices.Clone(p.Texts), "b"), Scores: append(slices.Clone(p.Scores), -1000), Types: append(slices.Clone(p.Types), c.last)}
		compiled, err := tokenizer.CompilePieces(q)
		if err != nil {
			t.Fatal(err)
		}
		err = packing.CheckTokenizer(compiled, c.rows)
		if _, other := errors.AsType[*checkpoint.TokenizerError](err); other == c.ok || err != nil != other {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := packing.CheckTokenizer([]byte("ZOO"), 257); !errors.Is(err, zoo.ErrIntegrity) {
		t.Errorf("no tokenizer: %v", err)
	}
}

// TestEqual compares matrices.
func TestEqual(t *testing.T) {
	a, b := matrix(t, "a", 5, 64), matrix(t, "b", 5, 64)
	other := random("c", 5, 64)
	other.Data[8*64+1] ^= 0x80
	plain, err := packing.BF16("c", other)
	if err != nil {
		t.Fatal(err)
	}
	c, err := plain.Round(quant.GridQ4_0)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		m    *packing.Matrix
		want bool
	}{"the same numbers": {b, true}, "another number": {c, false}, "another format": {plain, false}, "another shape": {matrix(t, "d", 6, 64), false}} {
		if got, err := packing.Equal(t.Context(), a, x.m); err != nil || got != x.want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
}
