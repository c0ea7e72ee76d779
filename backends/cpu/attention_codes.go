package cpu

import (
	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/quant"
)

// Attention over a cache of codes multiplies integers, with the loops that
// multiply matrices: the keys of 16 positions are a block of a matrix with a row
// for each position, and the values of a page are blocks with a row for each
// column of the head. Queries and weights are 24-bit fixed point.

// midpoint8 is what the midpoint of a cache's codes takes from a sum for each integer.
const midpoint8 = -128.0

// queryDigits is the queries as integers, for each row, heads that share keys and unit of these.
type queryDigits struct {
	words  []uint32  // [word][head, plane]
	steps  []float32 // of each head
	starts []float64 // what the midpoint of the codes adds
}

// allocate makes the memory that is needed.
func (q *queryDigits) allocate(m *memory, n needs) {
	q.words = atLeast(m, q.words, n.queryWords)
	q.steps = atLeast(m, q.steps, n.queries)
	q.starts = atLeast(m, q.starts, n.queries)
}

// digitize makes integers of the queries of a row.
func (a *attention) digitize(s *scratch, r int) {
	d := &a.e.queries
	x := a.e.row(a.query, r)
	dim := len(x) / a.heads
	words := (dim + 3) / 4
	for share := range a.shares() {
		t := a.e.plan.tiles[share%len(a.e.plan.tiles)]
		first := share/len(a.e.plan.tiles)*a.perKV + t.first
		rows := s.digits[:t.rows*planes24*words]
		for h := range t.rows {
			step, sum := a.e.fixed(rows[h*planes24*words:][:planes24*words], x[(first+h)*dim:][:dim], planes24, max24)
			at := r*a.heads + first + h
			d.steps[at], d.starts[at] = step, midpoint8*float64(sum)
		}
		a.e.kernels.Interleave(d.words[(r*a.heads+first)*planes24*words:], t.rows*planes24, rows, t.rows*planes24)
	}
}

// codes is attention.block over a cache of codes.
func (a *attention) codes(s *scratch, p part, from, to int, sums, largest, totals []float32) {
	k, c, heads := a.e.kernels, p.cache, p.tile.rows
	page := c.page(from)
	// Whole rows of 16 positions are multiplied; of the first and the last some may not count.
	from %= backends.BlockPositions
	first := from / quant.BlockRows
	skip := from % quant.BlockRows
	n := (to-1)%backends.BlockPositions + 1 - first*quant.BlockRows // the end, from the first
	rows := (n + quant.BlockRows - 1) / quant.BlockRows

	words := (c.HeadDim + 3) / 4
	at := p.row*a.heads + p.head
	q := &a.e.queries
	s.final = kernels.Final{
		Rows: heads, Planes: planes24, Starts: q.starts[at:], Steps: q.steps[at:], Mul: a.scale,
	}
	a.multiply(s, s.weights, backends.BlockPositions, page.keyCodes[(p.kv*pageRows+first)*c.keyBytes():],
		q.words[at*planes24*words:], kernels.Shape{Bits: 8, Blocks: rows, Stride: c.keyBytes(), Steps: words}, a.keyScales)

	size := rows * quant.BlockRows / 4
	for h := range heads {
		w := s.weights[h*backends.BlockPositions:][:rows*quant.BlockRows]
		largest[h], _ = k.Softmax(w[skip:n])
		clear(w[:skip])
		clear(w[n:])
		step, sum := a.e.fixed(s.digits[h*planes24*size:][:planes24*size], w, planes24, max24)
		s.steps[h], s.starts[h] = step, midpoint8*float64(sum)
		totals[h] = float32(float32(sum) * step)
	}
	k.Interleave(s.weightWords, heads*planes24, s.digits[:heads*planes24*size], heads*planes24)
	blocks := c.valueBlocks()
	s.final = kernels.Final{Rows: heads, Planes: planes24, Starts: s.starts, Steps: s.steps, Mul: 1}
	dst, stride := sums, c.HeadDim
	if stride%quant.BlockRows != 0 { // the last block reaches past the head
		dst, stride = s.padded, blocks*quant.BlockRows
	}
	a.multiply(s, dst, stride, page.valueCodes[p.kv*blocks*valueBytes+first*quant.BlockRows/4*quant.StepBytes:],
		s.weightWords, kernels.Shape{Bits: 8, Blocks: blocks, Stride: valueBytes, Steps: size}, a.valueScales)
	if stride != c.HeadDim {
		for h := range heads {
			copy(sums[h*c.HeadDim:][:c.HeadDim], dst[h*stride:])
		}
	}
}

// multiply sets dst[head*stride + 16*block + lane] to the products of blocks of
// codes with the digits of heads, as s.final says, with the same scales for all blocks.
func (a *attention) multiply(s *scratch, dst []float32, stride int, codes []byte, x []uint32, sh kernels.Shape, scales []byte) {
	f := &s.final
	sh.Rows = f.Rows * f.Planes
	most := max(1, maxTotals/(sh.Rows*quant.BlockRows))
	for first, blocks := 0, sh.Blocks; first < blocks; first += sh.Blocks {
		sh.Blocks = min(most, blocks-first)
		f.Blocks = sh.Blocks
		a.e.kernels.Dot(s.totals, codes[first*sh.Stride:], x, sh)
		a.e.kernels.Finish(dst[first*quant.BlockRows:], stride, s.totals, scales, f)
	}
}
