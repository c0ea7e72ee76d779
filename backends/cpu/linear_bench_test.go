package cpu

import (
	"fmt"
	"testing"

	"github.com/zoo-sdk/zoo/quant"
)

// BenchmarkBlock measures one row of activations times a whole matrix in one thread.
func BenchmarkBlock(b *testing.B) {
	for _, narrow := range []bool{true, false} {
		for _, m := range []quant.Matrix{
			{Format: quant.Int2, Layout: quant.Blocks, Rows: 1536, Cols: 1536},
			{Format: quant.Int4, Layout: quant.Blocks, Rows: 1536, Cols: 1536},
			{Format: quant.Int8, Layout: quant.Blocks, Rows: 1536, Cols: 1536},
			{Format: quant.Int4x32, Layout: quant.Blocks, Rows: 1536, Cols: 1536},
		} {
			b.Run(fmt.Sprintf("narrow=%t/%s/%dx%d", narrow, m.Format, m.Rows, m.Cols), func(b *testing.B) {
				padded := m.Steps() * m.StepCols()
				o := &operand{narrow: narrow, integers: &integers{codes: make([]int32, padded), steps: []float32{1}, sums: []int64{0}, parts: make([]int64, m.Groups())}}
				for i := range o.codes {
					o.codes[i] = int32(i*37%255) - 127
				}
				p := product{m: m, data: make([]byte, m.SizeBytes()), operand: o}
				for i := range p.data {
					p.data[i] = byte(i * 7)
				}
				var res [quant.BlockRows]float32
				b.SetBytes(m.SizeBytes())
				for b.Loop() {
					for i := range m.NumBlocks() {
						p.block(&res, i, 0, padded)
					}
				}
				b.ReportMetric(float64(m.Rows)*float64(m.Cols)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
			})
		}
	}
}
