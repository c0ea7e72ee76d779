package quant_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/quant"
)

// TestGGUF packs rows of every quantised type of GGUF, whose values stay the same to the bit.
func TestGGUF(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind   gguf.Type
		bytes  int // of 256 columns
		format quant.Format
	}{
		{gguf.Q4_0, 8 * 18, quant.Int4x32},
		{gguf.Q4_1, 8 * 20, quant.Int4x32Min},
		{gguf.Q5_0, 8 * 22, quant.Int8x32},
		{gguf.Q5_1, 8 * 24, quant.Int8x32Min},
		{gguf.Q8_0, 8 * 34, quant.Int8x32},
		{gguf.Q4_K, 144, quant.Int4x32Min},
		{gguf.Q5_K, 176, quant.Int8x32Min},
		{gguf.Q6_K, 210, quant.Int8x16},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(c.kind)))
			for tried := 0; tried < 200; {
				data := make([]byte, 2*c.bytes)
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				tensor := gguf.Tensor{Name: "w", Type: c.kind, Shape: []int{1, 512}, Data: data}
				var row gguf.Row
				if tensor.Decode(&row, 0) != nil { // a scale that is no number
					continue
				}
				tried++
				want := make([]float32, 512)
				row.Values(want)
				for _, layout := range []quant.Layout{quant.Blocks, quant.Rows} {
					m := quant.Matrix{Format: c.format, Layout: layout, Rows: 1, Cols: 512}
					got := make([]float32, 512)
					quant.Row(got, m, packGGUF(m, &row), 0)
					for i := range want {
						if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
							t.Fatalf("%s: column %d is %v, want %v", layout, i, got[i], want[i])
						}
					}
				}
			}
		})
	}
}

// packGGUF packs a row.
func packGGUF(m quant.Matrix, row *gguf.Row) []byte {
	codes := row.Codes
	if m.Bits == 4 {
		codes = make([]byte, len(row.Codes)/2)
		for i, c := range row.Codes {
			codes[i/2] |= (c + byte(m.Midpoint())) << (i % 2 * 4)
		}
	}
	var scales []float32
	for g, s := range row.Scales {
		scales = append(scales, s)
		if m.Minimum {
			scales = append(scales, row.Minimums[g])
		}
	}
	data := make([]byte, m.SizeBytes())
	if m.Layout == quant.Blocks {
		quant.PackBlock(data, m, [][]byte{codes}, scales)
	} else {
		quant.PackRow(data, m, codes, scales)
	}
	return data
}
