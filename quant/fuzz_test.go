package quant_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/quant"
)

// FuzzMatrix packs a row of whatever matrix is valid, and reads it.
func FuzzMatrix(f *testing.F) {
	for _, m := range quant.MultipliedFormats() {
		f.Add(m.Bits, m.Group, string(m.Scale), m.Minimum, string(quant.Blocks), 17, 96)
		f.Add(m.Bits, m.Group, string(m.Scale), m.Minimum, string(quant.Rows), 3, 64)
	}
	f.Add(4, 7, "f16", true, "rows", 2, 14)
	f.Fuzz(func(t *testing.T, bits, group int, scale string, minimum bool, layout string, rows, cols int) {
		m := quant.Matrix{
			Format: quant.Format{Bits: bits, Group: group, Scale: quant.ScaleType(scale), Minimum: minimum},
			Layout: quant.Layout(layout), Rows: rows, Cols: cols,
		}
		if m.Validate() != nil || !m.Codes() {
			return
		}
		if m.Layout == quant.Blocks && !slices.Contains(quant.MultipliedFormats(), m.Format) {
			t.Fatalf("%+v is valid", m)
		}
		if m.SizeBytes() > 1<<20 {
			return
		}
		v := random(rand.New(rand.NewPCG(1, uint64(cols))), m)
		data, got := pack(m, v), make([]float32, m.Cols)
		for r := range m.Rows {
			quant.Row(got, m, data, r)
			for c, x := range got {
				if want := v.value(m, r, c); x != want {
					t.Fatalf("%+v: [%d, %d] is %v, want %v", m, r, c, x, want)
				}
			}
		}
	})
}
