package kernels

import (
	"fmt"
	"slices"

	"github.com/zoo-sdk/zoo/quant"
)

// groupFormats are the formats with groups of columns that there are products of.
var groupFormats = [...]quant.Format{quant.Int4x32, quant.Int8x32, quant.Int8x16, quant.Int4x32Min, quant.Int8x32Min}

// groupTiles lists for each number of planes how many rows of activations a product may take at once.
type groupTiles [MaxPlanes + 1][]int

// groupFormat returns the place of a format in groupFormats, and panics if there is none.
func groupFormat(f quant.Format) int {
	i := slices.Index(groupFormats[:], f)
	if i < 0 {
		panic(fmt.Sprintf("kernels: no products of %+v", f))
	}
	return i
}

// GroupShape is the shape of a product of blocks, where groups of columns of a row
// have scales of their own, with rows of activations. A block holds the codes of all
// groups, then for each group the scales of its 16 rows and, if the format has them,
// the minimums.
type GroupShape struct {
	// Format is one of those of [quant.MultipliedFormats] that have groups.
	Format quant.Format
	// Rows of activations: one of GroupTiles. Each has Planes digits.
	Rows, Planes int
	// Blocks of 16 matrix rows, Stride bytes apart.
	Blocks, Stride int
	// Groups of columns.
	Groups int
}

// GroupActivations is the activations of a product of groups.
type GroupActivations struct {
	// Words holds digits, [word][row][plane] as in [Set.Dot].
	Words []uint32
	// Starts holds what the codes' midpoint adds, [group][row]: as many times less
	// the sum of the integers that are multiplied with the group.
	Starts []int64
	// Sums holds what minimums are multiplied with, [group][row]: the sum of the
	// same integers, as float32, times the step. It may be nil without minimums.
	Sums []float32
	// Steps holds the step of each row.
	Steps []float32
}

// matrix returns the columns of a block as a matrix.
func (s *GroupShape) matrix() quant.Matrix {
	return quant.Matrix{Format: s.Format, Rows: quant.BlockRows, Cols: s.Groups * s.Format.Group}
}

// check panics on a shape that makes no sense.
func (s *GroupShape) check(tiles []groupTiles) {
	needPlanes(s.Planes)
	if rows := tiles[groupFormat(s.Format)][s.Planes]; !slices.Contains(rows, s.Rows) {
		panic(fmt.Sprintf("kernels: %d rows of activations, one of %d is needed", s.Rows, rows))
	}
	need("blocks", s.Blocks, 1)
	need("groups", s.Groups, 1)
}

// GroupTiles returns in rising order how many rows of activations of so many digits MulGroups may take at once.
func (s *Set) GroupTiles(f quant.Format, planes int) []int {
	needPlanes(planes)
	return s.groupTiles[groupFormat(f)][planes]
}

// MulGroups sets dst[row*stride + block*16 + lane] to the product of a matrix row
// with a row of activations: for each group, in order,
//
//	float32(start + sum of codes times integers) * step * scale
//
// less, with minimums, sum * minimum, is added to 0. The starts and sums must be
// those of the integers.
func (s *Set) MulGroups(dst []float32, stride int, w []byte, a *GroupActivations, sh GroupShape) {
	sh.check(s.groupTiles)
	m := sh.matrix()
	size := m.BlockCodeBytes() + quant.BlockRows*m.ScaleBytes()
	need("block", sh.Stride, size)
	need("stride", stride, 0)
	need("results", len(dst), (sh.Rows-1)*stride+sh.Blocks*quant.BlockRows)
	need("matrix", len(w), (sh.Blocks-1)*sh.Stride+size)
	need("activations", len(a.Words), m.Cols/4*sh.Rows*sh.Planes)
	need("starts", len(a.Starts), sh.Groups*sh.Rows)
	need("steps", len(a.Steps), sh.Rows)
	if sh.Format.Minimum {
		need("sums", len(a.Sums), sh.Groups*sh.Rows)
	}
	s.mulGroups(dst, stride, w, a, sh)
}

// QuantizeGroups is [Set.Quantize] for whole groups of 16 or 32 columns, which sets sums to the sum of all n of each group.
func (s *Set) QuantizeGroups(dst []uint32, sums []int32, x []float32, cols, planes int, step, lo, hi float32) {
	needPlanes(planes)
	if cols != 16 && cols != 32 || len(x)%cols != 0 {
		panic(fmt.Sprintf("kernels: %d numbers in groups of %d, 16 or 32 are needed", len(x), cols))
	}
	need("digits", len(dst), planes*(len(x)/4))
	need("sums", len(sums), len(x)/cols)
	s.quantGroup(dst, sums, x, cols, planes, step, lo, hi)
}
