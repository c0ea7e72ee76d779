package kernels

import (
	"fmt"
	"slices"

	"github.com/zoo-sdk/zoo/quant"
)

// GroupCols is the number of columns in a group.
const GroupCols = 32

// GroupShape is the shape of a product of blocks, where each [GroupCols] columns
// of a row have a scale of their own, with rows of activations. A block holds the
// codes of all groups and then a float16 for each group and row, [group][lane].
type GroupShape struct {
	// Bits of a code: 2, 4 or 8. Of other than 4 bits, plain Go computes the product.
	Bits int
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
	// Steps holds the step of each row.
	Steps []float32
}

// codes returns the bytes of the codes of a block.
func (s *GroupShape) codes() int { return s.Groups * s.Bits * quant.StepBytes }

// check panics on a shape that makes no sense.
func (s *GroupShape) check(tiles [MaxPlanes + 1][]int) {
	if s.Bits != 2 && s.Bits != 4 && s.Bits != 8 {
		panic(fmt.Sprintf("kernels: codes of %d bits, 2, 4 or 8 are needed", s.Bits))
	}
	needPlanes(s.Planes)
	if !slices.Contains(tiles[s.Planes], s.Rows) {
		panic(fmt.Sprintf("kernels: %d rows of activations, one of %d is needed", s.Rows, tiles[s.Planes]))
	}
	need("blocks", s.Blocks, 1)
	need("groups", s.Groups, 1)
	need("stride", s.Stride, s.codes()+2*quant.BlockRows*s.Groups)
}

// GroupTiles returns in rising order how many rows of activations of so many digits MulGroups may take at once.
func (s *Set) GroupTiles(planes int) []int {
	needPlanes(planes)
	return s.groupTiles[planes]
}

// MulGroups sets dst[row*stride + block*16 + lane] to the product of a matrix row
// with a row of activations: for each group, in order, float32(start + sum of
// codes times integers) * step * scale is added to 0. start + sum must be less
// than 2^31, as it is for true activations and codes of 4 bits.
func (s *Set) MulGroups(dst []float32, stride int, w []byte, a *GroupActivations, sh GroupShape) {
	sh.check(s.groupTiles)
	need("stride", stride, 0)
	need("results", len(dst), (sh.Rows-1)*stride+sh.Blocks*quant.BlockRows)
	need("matrix", len(w), (sh.Blocks-1)*sh.Stride+sh.codes()+2*quant.BlockRows*sh.Groups)
	need("activations", len(a.Words), sh.Groups*GroupCols/4*sh.Rows*sh.Planes)
	need("starts", len(a.Starts), sh.Groups*sh.Rows)
	need("steps", len(a.Steps), sh.Rows)
	s.mulGroups(dst, stride, w, a, sh)
}

// QuantizeGroups is [Set.Quantize] for whole groups, which sets sums to the sum of all n of each group.
func (s *Set) QuantizeGroups(dst []uint32, sums []int32, x []float32, planes int, step, lo, hi float32) {
	needPlanes(planes)
	if len(x)%GroupCols != 0 {
		panic(fmt.Sprintf("kernels: %d numbers are no groups of %d", len(x), GroupCols))
	}
	need("digits", len(dst), planes*(len(x)/4))
	need("sums", len(sums), len(x)/GroupCols)
	s.quantGroup(dst, sums, x, planes, step, lo, hi)
}
