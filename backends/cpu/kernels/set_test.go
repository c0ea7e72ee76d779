package kernels_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/quant"
)

// panics reports what a call panics with, nil for a return.
func panics(call func()) (with any) {
	defer func() { with = recover() }()
	call()
	return nil
}

// TestShapes calls every set with shapes that must not reach a kernel.
func TestShapes(t *testing.T) {
	t.Parallel()
	// Operands are long enough for every shape below, were it not for what is wrong with it.
	floats, doubles, words, totals, bytes := make([]float32, 4096), make([]float64, 4096), make([]uint32, 4096), make([]int32, 4096), make([]byte, 4096)
	dot := func(change func(sh *kernels.Shape)) func(s *kernels.Set) {
		return func(s *kernels.Set) {
			sh := kernels.Shape{Bits: 4, Rows: 2, Blocks: 2, Stride: 256, Steps: 4}
			change(&sh)
			s.DotPairs(totals, bytes, words, words, sh)
		}
	}
	finish := func(stride int, change func(f *kernels.Final)) func(s *kernels.Set) {
		return func(s *kernels.Set) {
			f := kernels.Final{Blocks: 2, Rows: 2, Planes: 3, ScaleStride: 64, Starts: doubles, Steps: floats, Mul: 1}
			change(&f)
			s.Finish(floats, stride, totals, bytes, &f)
		}
	}
	groups := func(stride int, change func(sh *kernels.GroupShape)) func(s *kernels.Set) {
		return func(s *kernels.Set) {
			sh := kernels.GroupShape{Format: quant.Int4x32, Rows: 2, Planes: 2, Blocks: 2, Stride: 576, Groups: 2}
			change(&sh)
			s.MulGroups(floats, stride, bytes, &kernels.GroupActivations{Words: words, Starts: make([]int64, 64), Steps: floats}, sh)
		}
	}
	quantizeGroups := func(cols, planes, n int) func(s *kernels.Set) {
		return func(s *kernels.Set) {
			s.QuantizeGroups(words, make([]int32, 4), floats[:n], cols, planes, 1, -128, 127)
		}
	}
	mul := func(stride int, change func(sh *kernels.FloatShape)) func(s *kernels.Set) {
		return func(s *kernels.Set) {
			sh := kernels.FloatShape{Rows: 4, Cols: 32, Batch: 2, Mul: 1}
			change(&sh)
			s.MulBF16(make([]float32, 64), stride, bytes, floats, sh)
		}
	}
	attend := func(change func(sh *kernels.AttentionShape)) func(s *kernels.Set) {
		return func(s *kernels.Set) {
			sh := kernels.AttentionShape{Heads: 2, Dim: 16, Positions: 4, Stride: 4}
			change(&sh)
			scores := panics(func() { s.Scores(make([]float32, 64), floats, floats, sh, 1) })
			weighted := panics(func() { s.WeightedSum(make([]float32, 64), floats, floats, sh) })
			if scores != weighted {
				panic(fmt.Sprintf("scores: %v, weighted sum: %v", scores, weighted))
			}
			if scores != nil {
				panic(scores)
			}
		}
	}
	quantize := func(planes int) func(s *kernels.Set) {
		return func(s *kernels.Set) { s.Quantize(words, floats[:64], planes, 1, -128, 127) }
	}
	interleave := func(rows, stride int) func(s *kernels.Set) {
		return func(s *kernels.Set) { s.Interleave(make([]uint32, 64), stride, words[:32], rows) }
	}
	cases := []struct {
		name string
		call func(s *kernels.Set)
		want string // part of the panic, empty for a return
	}{
		{"product", dot(func(*kernels.Shape) {}), ""},
		{"no bits", dot(func(sh *kernels.Shape) { sh.Bits = 0 }), "codes of 0 bits"},
		{"3 bits", dot(func(sh *kernels.Shape) { sh.Bits = 3 }), "codes of 3 bits"},
		{"16 bits", dot(func(sh *kernels.Shape) { sh.Bits = 16 }), "codes of 16 bits"},
		{"negative bits", dot(func(sh *kernels.Shape) { sh.Bits = -4 }), "codes of -4 bits"},
		{"no rows of activations", dot(func(sh *kernels.Shape) { sh.Rows = 0 }), "0 rows"},
		{"rows that are no tile", dot(func(sh *kernels.Shape) { sh.Rows = 5 }), "5 rows"},
		{"rows above all tiles", dot(func(sh *kernels.Shape) { sh.Rows = 25 }), "25 rows"},
		{"negative rows of activations", dot(func(sh *kernels.Shape) { sh.Rows = -1 }), "-1 rows"},
		{"no blocks", dot(func(sh *kernels.Shape) { sh.Blocks = 0 }), "blocks of 0"},
		{"negative blocks", dot(func(sh *kernels.Shape) { sh.Blocks = -1 }), "blocks of -1"},
		{"no steps", dot(func(sh *kernels.Shape) { sh.Steps = 0 }), "steps of 0"},
		{"negative steps", dot(func(sh *kernels.Shape) { sh.Steps = -2 }), "steps of -2"},
		{"blocks that overlap", dot(func(sh *kernels.Shape) { sh.Stride = 128 }), "stride of 128"},

		{"finish", finish(32, func(*kernels.Final) {}), ""},
		{"finish no blocks", finish(32, func(f *kernels.Final) { f.Blocks = 0 }), "blocks of 0"},
		{"finish no rows", finish(32, func(f *kernels.Final) { f.Rows = 0 }), "rows of 0"},
		{"finish negative rows and blocks", finish(32, func(f *kernels.Final) { f.Blocks, f.Rows = -1, -1 }), "blocks of -1"},
		{"finish no planes", finish(32, func(f *kernels.Final) { f.Planes = 0 }), "0 planes"},
		{"finish too many planes", finish(32, func(f *kernels.Final) { f.Planes = 4 }), "4 planes"},
		{"finish backwards", finish(-32, func(*kernels.Final) {}), "stride of -32"},
		{"finish with scales backwards", finish(32, func(f *kernels.Final) { f.ScaleStride = -64 }), "scale stride of -64"},

		{"groups", groups(32, func(*kernels.GroupShape) {}), ""},
		{"groups of no bits", groups(32, func(sh *kernels.GroupShape) { sh.Format.Bits = 0 }), "no products of"},
		{"groups of 3 bits", groups(32, func(sh *kernels.GroupShape) { sh.Format.Bits = 3 }), "no products of"},
		{"groups with no planes", groups(32, func(sh *kernels.GroupShape) { sh.Planes = 0 }), "0 planes"},
		{"groups with too many planes", groups(32, func(sh *kernels.GroupShape) { sh.Planes = 4 }), "4 planes"},
		{"groups with no rows", groups(32, func(sh *kernels.GroupShape) { sh.Rows = 0 }), "0 rows"},
		{"groups with rows that are no tile", groups(32, func(sh *kernels.GroupShape) { sh.Rows = 7 }), "7 rows"},
		{"groups with negative rows", groups(32, func(sh *kernels.GroupShape) { sh.Rows = -1 }), "-1 rows"},
		{"no blocks of groups", groups(32, func(sh *kernels.GroupShape) { sh.Blocks = 0 }), "blocks of 0"},
		{"no groups", groups(32, func(sh *kernels.GroupShape) { sh.Groups = 0 }), "groups of 0"},
		{"negative groups", groups(32, func(sh *kernels.GroupShape) { sh.Groups = -2 }), "groups of -2"},
		{"blocks of groups that overlap", groups(32, func(sh *kernels.GroupShape) { sh.Stride = 512 }), "block of 512"},
		{"groups without their sums", groups(32, func(sh *kernels.GroupShape) { sh.Format, sh.Stride = quant.Int4x32Min, 768 }), "sums of 0"},
		{"no format with groups", groups(32, func(sh *kernels.GroupShape) { sh.Format = quant.Int4 }), "no products of"},
		{"groups backwards", groups(-32, func(*kernels.GroupShape) {}), "stride of -32"},

		{"floats", mul(4, func(*kernels.FloatShape) {}), ""},
		{"no floats", mul(4, func(sh *kernels.FloatShape) { sh.Rows = 0 }), ""},
		{"negative rows", mul(4, func(sh *kernels.FloatShape) { sh.Rows = -1 }), "rows of -1"},
		{"negative columns", mul(4, func(sh *kernels.FloatShape) { sh.Cols = -16 }), "columns of -16"},
		{"negative batch", mul(4, func(sh *kernels.FloatShape) { sh.Batch = -1 }), "batch of -1"},
		{"floats backwards", mul(-4, func(*kernels.FloatShape) {}), "stride of -4"},

		{"attention", attend(func(*kernels.AttentionShape) {}), ""},
		{"attention to nothing", attend(func(sh *kernels.AttentionShape) { sh.Positions = 0 }), ""},
		{"negative heads", attend(func(sh *kernels.AttentionShape) { sh.Heads = -1 }), "heads of -1"},
		{"negative dimension", attend(func(sh *kernels.AttentionShape) { sh.Dim = -16 }), "dimension of -16"},
		{"negative positions", attend(func(sh *kernels.AttentionShape) { sh.Positions = -1 }), "positions of -1"},
		{"scores backwards", attend(func(sh *kernels.AttentionShape) { sh.Stride = -4 }), "stride of -4"},

		{"quantize", quantize(3), ""},
		{"quantize to nothing", quantize(0), "0 planes"},
		{"quantize to too many digits", quantize(4), "4 planes"},
		{"quantize groups", quantizeGroups(16, 3, 64), ""},
		{"quantize no groups", quantizeGroups(32, 3, 0), ""},
		{"quantize half a group", quantizeGroups(32, 3, 48), "48 numbers"},
		{"quantize groups of 8", quantizeGroups(8, 3, 64), "64 numbers"},
		{"quantize groups to nothing", quantizeGroups(32, 0, 64), "0 planes"},
		{"interleave", interleave(4, 5), ""},
		{"interleave nothing", interleave(0, 5), "rows of 0"},
		{"interleave over each other", interleave(4, 3), "stride of 3"},
		{"interleave backwards", interleave(4, -4), "stride of -4"},
	}
	for _, s := range kernels.Variants() {
		for _, c := range cases {
			t.Run(s.Name()+"/"+c.name, func(t *testing.T) {
				switch with := panics(func() { c.call(s) }); {
				case c.want == "" && with != nil:
					t.Errorf("panics: %v", with)
				case c.want != "" && !strings.HasPrefix(fmt.Sprint(with), "kernels: "+c.want):
					t.Errorf("panics with %v, want %q", with, c.want)
				}
			})
		}
	}
}
