package quant_test

import (
	"fmt"

	"github.com/zoo-sdk/zoo/quant"
)

func Example() {
	// A row of eight 4-bit codes, two a byte: -8, -7, … -1.
	m := quant.Matrix{Format: quant.Int4, Layout: quant.Blocks, Rows: 1, Cols: 8}
	codes := []byte{0x10, 0x32, 0x54, 0x76}

	data := make([]byte, m.SizeBytes())
	quant.PackBlock(data, m, [][]byte{codes}, []float32{0.5})

	values := make([]float32, m.Cols)
	quant.Row(values, m, data, 0)
	fmt.Println(values)
	// Output: [-4 -3.5 -3 -2.5 -2 -1.5 -1 -0.5]
}
