package kernels

import (
	"fmt"
	"slices"

	"github.com/zoo-sdk/zoo/quant"
)

// MaxPlanes is the most 8-bit digits that an activation is made of.
const MaxPlanes = 3

// Set is one implementation of every kernel. Its methods check that shapes make
// sense and that operands are long enough, and panic where not; they keep no
// memory and may run concurrently. Operands must not overlap unless a method says that they may.
type Set struct {
	name       string
	tiles      []int
	groupTiles []groupTiles // by format

	dot        func(totals []int32, w []byte, x, odd []uint32, s Shape)
	mulGroups  func(dst []float32, stride int, w []byte, a *GroupActivations, s GroupShape)
	roundInt8  func(dst []int8, x []float32, step float32)
	interleave func(dst []uint32, stride int, src []uint32, rows int)
	finish     func(dst []float32, stride int, totals []int32, scales []byte, f *Final)
	quantize   func(dst []uint32, x []float32, planes int, step, lo, hi float32) int64
	quantGroup func(dst []uint32, sums []int32, x []float32, cols, planes int, step, lo, hi float32)
	maxAbs     func(x []float32) float32
	max        func(x []float32) float32
	dotF32     func(a, b []float32) float32
	mulBF16    func(dst []float32, stride int, w []byte, x []float32, s FloatShape)
	norm       func(dst, x, weight []float32, inv float32)
	addNorm    func(state, x, weight []float32, inv, mul float32)
	addMul     func(dst, a, b []float32, mul float32)
	geluMul    func(dst, a, b []float32)
	softcap    func(x []float32, limit float32)
	rotate     func(x, table []float32)
	scores     func(dst, q, keys []float32, s AttentionShape, scale float32)
	softmax    func(w []float32) (largest, total float32)
	weighted   func(dst, w, values []float32, s AttentionShape)
	scaleAdd   func(dst, part []float32, old, add float32)
	div        func(dst []float32, by float32)
	grid       func(x []float32, step float32)
	read       func(data []byte) uint64
}

// Name returns the set's name as ZOO_CPU takes it.
func (s *Set) Name() string { return s.name }

// Tiles returns in rising order how many rows of activations Dot may take at once.
func (s *Set) Tiles() []int { return s.tiles }

// need panics unless n is at least want.
func need(what string, n, want int) {
	if n < want {
		panic(fmt.Sprintf("kernels: %s of %d, at least %d are needed", what, n, want))
	}
}

// needPlanes panics unless activations may have so many digits.
func needPlanes(n int) {
	if n < 1 || n > MaxPlanes {
		panic(fmt.Sprintf("kernels: %d planes, 1 to %d are needed", n, MaxPlanes))
	}
}

// Shape is the shape of a product of blocks of codes with rows of activations.
type Shape struct {
	// Bits of a code: 2, 4 or 8.
	Bits int
	// Rows of activations: one of Tiles.
	Rows int
	// Blocks of 16 matrix rows, Stride bytes apart, of Steps steps each.
	Blocks, Stride, Steps int
}

// Words returns the number of 32-bit words of activations in a step.
func (s Shape) Words() int { return 8 / s.Bits }

// check panics on a shape that there is no kernel for.
func (s Shape) check(tiles []int) {
	if s.Bits != 2 && s.Bits != 4 && s.Bits != 8 {
		panic(fmt.Sprintf("kernels: codes of %d bits, 2, 4 or 8 are needed", s.Bits))
	}
	if !slices.Contains(tiles, s.Rows) {
		panic(fmt.Sprintf("kernels: %d rows of activations, one of %d is needed", s.Rows, tiles))
	}
	need("blocks", s.Blocks, 1)
	need("steps", s.Steps, 1)
	need("stride", s.Stride, s.Steps*quant.StepBytes)
}

// Dot sets totals[block][row][lane] to the exact sum of the unsigned
// codes of the lane's matrix row times the row's digits.
//
// w holds blocks as package quant lays them out. Word k of a row of activations
// holds the signed digits of columns 4k to 4k+3, lowest byte first; x holds the
// words as [word][row].
func (s *Set) Dot(totals []int32, w []byte, x []uint32, sh Shape) { s.DotPairs(totals, w, x, x, sh) }

// DotPairs is [Set.Dot] with activations of their own for every second block.
func (s *Set) DotPairs(totals []int32, w []byte, x, odd []uint32, sh Shape) {
	sh.check(s.tiles)
	words := sh.Steps * sh.Words() * sh.Rows
	need("totals", len(totals), sh.Blocks*sh.Rows*quant.BlockRows)
	need("codes", len(w), (sh.Blocks-1)*sh.Stride+sh.Steps*quant.StepBytes)
	need("activations", len(x), words)
	need("odd activations", len(odd), words)
	s.dot(totals, w, x, odd, sh)
}

// Final is how totals become floats.
type Final struct {
	// Blocks and Rows are those of the totals, where each row has Planes
	// neighbouring rows of digits, lowest first.
	Blocks, Rows, Planes int
	// Every is how many blocks of the totals there are to one that is finished: 0 means 1.
	Every int
	// ScaleStride is the distance in bytes between the scales of two blocks.
	ScaleStride int
	// Starts holds for each row what is added to the total.
	Starts []float64
	// Steps holds the step of the activations of each row.
	Steps []float32
	// Out is the step of the grid that the product is rounded to, 0 for none.
	Out float32
	// Mul is multiplied to the rounded product.
	Mul float32
}

// every returns the distance in blocks between two that are finished.
func (f *Final) every() int { return max(1, f.Every) }

// check panics on a shape that makes no sense.
func (f *Final) check() {
	need("blocks", f.Blocks, 1)
	need("rows", f.Rows, 1)
	needPlanes(f.Planes)
	need("scale stride", f.ScaleStride, 0)
}

// Finish sets dst[row*stride + block*16 + lane] to the product that the totals
// of [Set.Dot] stand for: float32(start + total) * step * scale, where scales
// holds a float32 for each lane; on the output grid; times Mul.
func (s *Set) Finish(dst []float32, stride int, totals []int32, scales []byte, f *Final) {
	f.check()
	need("stride", stride, 0)
	need("results", len(dst), (f.Rows-1)*stride+f.Blocks*quant.BlockRows)
	need("totals", len(totals), ((f.Blocks-1)*f.every()+1)*f.Rows*f.Planes*quant.BlockRows)
	need("scales", len(scales), (f.Blocks-1)*f.ScaleStride+4*quant.BlockRows)
	need("starts", len(f.Starts), f.Rows)
	need("steps", len(f.Steps), f.Rows)
	s.finish(dst, stride, totals, scales, f)
}

// Quantize writes the digits of n = clamp(round_half_even(x/step), lo, hi), lo
// where that is not a number, and returns the sum of all n. Plane p of the
// digits begins at dst[p*len(dst)/planes]; n is the sum of digit p times 256^p.
// lo and hi are whole numbers of at most so many digits. A last word is filled up with zeros.
func (s *Set) Quantize(dst []uint32, x []float32, planes int, step, lo, hi float32) int64 {
	needPlanes(planes)
	need("digits", len(dst), planes*((len(x)+3)/4))
	return s.quantize(dst, x, planes, step, lo, hi)
}

// RoundInt8 sets dst to clamp(round_half_even(x/step), -128, 127), and -128 for what is not a number.
func (s *Set) RoundInt8(dst []int8, x []float32, step float32) {
	need("codes", len(dst), len(x))
	s.roundInt8(dst, x, step)
}

// Interleave lays rows of as many words side by side: dst[k*stride + row] = src[row*n + k], where src holds rows*n words.
func (s *Set) Interleave(dst []uint32, stride int, src []uint32, rows int) {
	need("rows", rows, 1)
	need("stride", stride, rows)
	if n := len(src) / rows; n > 0 {
		need("words", len(dst), (n-1)*stride+rows)
	}
	s.interleave(dst, stride, src, rows)
}

// MaxAbs returns the largest magnitude, or not a number if there is one.
func (s *Set) MaxAbs(x []float32) float32 { return s.maxAbs(x) }

// Max is backends.Peak: the largest number, or not a number if there is one, and minus infinity for nothing.
func (s *Set) Max(x []float32) float32 { return s.max(x) }

// DotF32 returns the sum of a[i]*b[i] in 16 lanes.
func (s *Set) DotF32(a, b []float32) float32 {
	need("second operand", len(b), len(a))
	return s.dotF32(a, b)
}

// FloatShape is the shape of a product of bfloat16 with float32.
type FloatShape struct {
	// Rows and Cols of the matrix.
	Rows, Cols int
	// Batch is the number of rows of activations.
	Batch int
	// Mul is multiplied to every product.
	Mul float32
}

// MulBF16 sets dst[b*stride + r] to the product in 16 lanes of row r of w, which
// lies row after row, with row b of x, times Mul.
func (s *Set) MulBF16(dst []float32, stride int, w []byte, x []float32, sh FloatShape) {
	need("rows", sh.Rows, 0)
	need("columns", sh.Cols, 0)
	need("batch", sh.Batch, 0)
	need("stride", stride, 0)
	need("results", len(dst), (sh.Batch-1)*stride+sh.Rows)
	need("matrix", len(w), 2*sh.Rows*sh.Cols)
	need("activations", len(x), sh.Batch*sh.Cols)
	s.mulBF16(dst, stride, w, x, sh)
}

// Norm sets dst = x*inv, and times weight unless that is nil. dst may be x.
func (s *Set) Norm(dst, x, weight []float32, inv float32) {
	need("result", len(dst), len(x))
	if weight != nil {
		need("weight", len(weight), len(x))
	}
	s.norm(dst, x, weight, inv)
}

// AddNorm sets state = (state + x*inv*weight) * mul, where weight may be nil for ones.
func (s *Set) AddNorm(state, x, weight []float32, inv, mul float32) {
	need("state", len(state), len(x))
	if weight != nil {
		need("weight", len(weight), len(x))
	}
	s.addNorm(state, x, weight, inv, mul)
}

// AddMul sets dst = (a+b)*mul. dst may be a or b.
func (s *Set) AddMul(dst, a, b []float32, mul float32) {
	need("first operand", len(a), len(dst))
	need("second operand", len(b), len(dst))
	s.addMul(dst, a, b, mul)
}

// GELUMul sets dst = gelu(a)*b. dst may be a or b.
func (s *Set) GELUMul(dst, a, b []float32) {
	need("first operand", len(a), len(dst))
	need("second operand", len(b), len(dst))
	s.geluMul(dst, a, b)
}

// Softcap sets x = limit*tanh(x/limit).
func (s *Set) Softcap(x []float32, limit float32) { s.softcap(x, limit) }

// Rotate turns the pairs (i, i+half) of x by the angles whose half sines, then half cosines are in table.
func (s *Set) Rotate(x, table []float32) {
	need("table", len(table), len(x))
	s.rotate(x, table)
}

// AttentionShape is the shape of the work on one block of a cache of floats.
type AttentionShape struct {
	// Heads of the query that share keys and values.
	Heads int
	// Dim is the length of a head.
	Dim int
	// Positions to work on.
	Positions int
	// Stride is the distance between the scores of two heads.
	Stride int
}

// Scores sets dst[head*Stride + pos] to the dot product in 16 lanes of the
// head's query with the key at pos, times scale. q is [head][dim], keys [pos][dim].
func (s *Set) Scores(dst, q, keys []float32, sh AttentionShape, scale float32) {
	sh.check(len(dst), len(q), len(keys))
	s.scores(dst, q, keys, sh, scale)
}

// check panics on a shape that makes no sense, and on operands that are too short.
func (s AttentionShape) check(scores, heads, cache int) {
	need("heads", s.Heads, 0)
	need("dimension", s.Dim, 0)
	need("positions", s.Positions, 0)
	need("stride", s.Stride, 0)
	need("scores", scores, (s.Heads-1)*s.Stride+s.Positions)
	need("rows of heads", heads, s.Heads*s.Dim)
	need("cache", cache, s.Positions*s.Dim)
}

// Softmax replaces scores by exp(score - largest), and returns the largest and
// the sum in 16 lanes. If there is a score that is not a number, so is the sum.
func (s *Set) Softmax(w []float32) (largest, total float32) {
	need("scores", len(w), 1)
	return s.softmax(w)
}

// WeightedSum sets dst[head][i] to the sum of w[head*Stride + pos] * values[pos][i] in the order of positions.
func (s *Set) WeightedSum(dst, w, values []float32, sh AttentionShape) {
	sh.check(len(w), len(dst), len(values))
	s.weighted(dst, w, values, sh)
}

// ScaleAdd sets dst = dst*old + part*add.
func (s *Set) ScaleAdd(dst, part []float32, old, add float32) {
	need("part", len(part), len(dst))
	s.scaleAdd(dst, part, old, add)
}

// Div sets dst = dst/by.
func (s *Set) Div(dst []float32, by float32) { s.div(dst, by) }

// Grid sets x = clamp(round_half_even(x/step), -128, 127) * step, with -128 for what is not a number.
func (s *Set) Grid(x []float32, step float32) { s.grid(x, step) }

// Read reads all bytes and returns a number that depends on them: it measures memory.
func (s *Set) Read(data []byte) uint64 { return s.read(data) }
