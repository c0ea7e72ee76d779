package sdk

import (
	"math/rand/v2"
	"testing"

	"github.com/zoo-sdk/zoo/quant"
)

// TestCountCodes holds the count of whole words against that of single codes.
func TestCountCodes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, width := range []int{2, 4, 8} {
		for n := range 40 {
			a, b := make([]byte, n), make([]byte, n)
			want := int64(0)
			for i := range a {
				a[i] = byte(r.Uint32())
				b[i] = a[i]
				if r.IntN(2) == 0 {
					b[i] ^= byte(r.Uint32())
				}
				for at := 0; at < 8; at += width {
					if mask := byte(1<<width - 1); (a[i]^b[i])>>at&mask != 0 {
						want++
					}
				}
			}
			if got := countCodes(a, b, width); got != want {
				t.Errorf("%d of %d bytes of %d-bit codes differ, want %d", got, n, width, want)
			}
		}
	}
}

func TestFamilyOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"layers.12.mlp.gate_up_proj": "layers.*.mlp.gate_up_proj",
		"layers.0.experts.7.up":      "layers.*.experts.*.up",
		"norm":                       "norm",
		"a..b2.3x":                   "a..b2.3x",
	} {
		if got := familyOf(name); got != want {
			t.Errorf("%q is of family %q, want %q", name, got, want)
		}
	}
}

// TestChunkCodes changes a minimum of a block, which is no code and counts as a scale.
func TestChunkCodes(t *testing.T) {
	t.Parallel()
	m := quant.Matrix{Format: quant.Int4x32Min, Layout: quant.Blocks, Rows: 16, Cols: 64}
	var packs [2][]byte
	for i := range packs {
		codes, numbers := make([][]byte, m.Rows), make([]float32, m.Rows*m.NumScales())
		for r := range codes {
			codes[r] = make([]byte, m.CodeBytes())
		}
		for n := range numbers {
			numbers[n] = 1 + float32(n)
		}
		numbers[5*m.NumScales()+3] += float32(i) // the minimum of the second group of row 5
		packs[i] = make([]byte, m.SizeBytes())
		quant.PackBlock(packs[i], m, codes, numbers)
	}
	c := chunk{pair: pair{a: &rowsOf{Matrix: m, data: packs[0]}, b: &rowsOf{Matrix: m, data: packs[1]}}, to: m.Rows}
	var got tally
	if c.codes(&got); got.codes != 0 || got.scales != 1 {
		t.Errorf("%d codes and %d scales differ, want 0 and 1", got.codes, got.scales)
	}
}
