package cpu

import (
	"sync/atomic"

	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

const (
	// maxTotals bounds the sums that a worker keeps before it makes floats of
	// them: they stay in the first-level cache.
	maxTotals = 2048
	// maxCodes bounds the bytes of codes that all tiles of a batch are
	// multiplied with before the next: they stay in the second-level cache.
	maxCodes = 128 << 10
)

// product is a matrix bound to its input and the grid of its output.
type product struct {
	m       quant.Matrix
	data    []byte
	operand *operand
	out     float32 // output grid
	scale   float32 // of the result

	// of the matrix
	blockBytes, codeBytes int
}

// newProduct binds a matrix.
func newProduct(m quant.Matrix, data []byte, o *operand, out, scale float32) product {
	return product{
		m: m, data: data, operand: o, out: out, scale: scale,
		blockBytes: m.BlockBytes(), codeBytes: m.BlockCodeBytes(),
	}
}

// batch returns how many blocks are worked on at once with the largest tile.
func (p *product) batch(tiles []tile) int {
	most := 0
	for _, t := range tiles {
		most = max(most, t.rows)
	}
	if p.operand.groups == 0 { // else there are no totals, and as many floats
		most *= p.operand.planes
	}
	n := maxTotals / (most * quant.BlockRows)
	if len(tiles) > 1 {
		n = min(n, maxCodes/p.blockBytes)
	}
	return max(n, 1)
}

// bytes returns blocks [first, end) of the matrix.
func (p *product) bytes(first, end int) []byte {
	return p.data[first*p.blockBytes : end*p.blockBytes]
}

// dot sums blocks [first, first+n) with the rows of a tile.
func (p *product) dot(e *executor, totals []int32, t tile, first, n int) {
	e.kernels.Dot(totals, p.bytes(first, first+n), p.operand.tile(t), p.shape(t, n))
}

// shape returns that of n blocks with the rows of a tile.
func (p *product) shape(t tile, n int) kernels.Shape {
	return kernels.Shape{
		Bits: p.m.Bits, Rows: t.rows * p.operand.planes, Blocks: n, Stride: p.blockBytes, Steps: p.m.Steps(),
	}
}

// finish makes floats of the sums of n blocks, where block i is first + i*every
// of the matrix, and of the sums so many from the first: dst[row*stride + i*16 + lane].
func (p *product) finish(e *executor, s *scratch, dst []float32, stride int, totals []int32, t tile, first, every, n int) {
	o := p.operand
	s.final = kernels.Final{
		Blocks: n, Rows: t.rows, Planes: o.planes, Every: every,
		ScaleStride: every * p.blockBytes,
		Starts:      o.starts[t.first:], Steps: o.steps[t.first:],
		Out: p.out, Mul: p.scale,
	}
	e.kernels.Finish(dst, stride, totals, p.data[first*p.blockBytes+p.codeBytes:], &s.final)
}

// mul computes n blocks from the first on for the rows of a tile: dst[row*stride + i*16 + lane].
func (p *product) mul(e *executor, s *scratch, dst []float32, stride int, t tile, first, n int) {
	if p.operand.groups == 0 {
		p.dot(e, s.totals, t, first, n)
		p.finish(e, s, dst, stride, s.totals, t, first, 1, n)
		return
	}
	o := p.operand
	s.groups = kernels.GroupActivations{Words: o.tile(t), Starts: o.groupStarts(t), Sums: o.groupSums(t), Steps: o.steps[t.first:][:t.rows]}
	e.kernels.MulGroups(dst, stride, p.bytes(first, first+n), &s.groups, kernels.GroupShape{
		Format: p.m.Format, Rows: t.rows, Planes: o.planes, Blocks: n, Stride: p.blockBytes, Groups: o.groups,
	})
	for r := range t.rows {
		row := dst[r*stride:][:n*quant.BlockRows]
		if p.out != 0 {
			e.kernels.Grid(row, p.out)
		}
		if p.scale != 1 {
			e.kernels.Norm(row, row, nil, p.scale)
		}
	}
}

// linear is the task of program.Linear over codes; a unit is a block of a part.
type linear struct {
	e     *executor
	parts []linearPart
	units int
	work  int // multiplications a row
}

// linearPart is one part of a linear.
type linearPart struct {
	product
	firstBlock, blocks int
	rows               int // of the matrix
	out                program.BufferID
}

// prepare implements task.
func (l *linear) prepare() (units, work int) { return l.units, l.work * l.e.live }

// do implements task.
func (l *linear) do(worker, first, end int) {
	s := &l.e.scratch[worker]
	for i := range l.parts {
		p := &l.parts[i]
		l.part(s, p, max(first, 0), min(end, p.blocks))
		first, end = first-p.blocks, end-p.blocks
	}
}

// weights implements reader.
func (l *linear) weights(worker, workers int) []byte {
	first, end := portion(l.units, worker, workers)
	for i := range l.parts {
		p := &l.parts[i]
		if first < p.blocks {
			return p.bytes(p.firstBlock+first, p.firstBlock+min(end, p.blocks))
		}
		first, end = first-p.blocks, end-p.blocks
	}
	return nil
}

// part computes blocks [first, end) of a part.
func (l *linear) part(s *scratch, p *linearPart, first, end int) {
	if first >= end {
		return
	}
	tiles := p.operand.tiles()
	buf := &l.e.buf[p.out]
	whole := min(end, p.rows/quant.BlockRows)
	for n := p.batch(tiles); first < whole; first += n {
		n = min(n, whole-first)
		for _, t := range tiles {
			p.mul(l.e, s, buf.data[t.first*buf.cols+first*quant.BlockRows:], buf.cols, t, p.firstBlock+first, n)
		}
	}
	if first == end {
		return
	}
	// The last block reaches past the part.
	for _, t := range tiles {
		p.mul(l.e, s, s.gate, quant.BlockRows, t, p.firstBlock+first, 1)
		for r := range t.rows {
			copy(l.e.row(p.out, t.first+r)[first*quant.BlockRows:], s.gate[r*quant.BlockRows:][:quant.BlockRows])
		}
	}
}

// gateUp is the task of program.GateUp; a unit is a pair of blocks.
type gateUp struct {
	e        *executor
	gate, up product
	out      program.BufferID
	units    int
	work     int // multiplications a row
	// feeds is the operand, with 8-bit digits on a static grid, that the result
	// becomes for the next product, or nil. Each worker makes the digits of what
	// it has computed while it has it at hand; sum is that of all.
	feeds *operand
	sum   atomic.Int64
}

// prepare implements task. It begins a new sum.
func (g *gateUp) prepare() (units, work int) {
	g.sum.Store(0)
	return g.units, g.work * g.e.live
}

// do implements task.
func (g *gateUp) do(worker, first, end int) {
	s := &g.e.scratch[worker]
	// Gate and up have as many digits, on whatever grids.
	tiles := g.gate.operand.tiles()
	for n := max(1, g.gate.batch(tiles)/2); first < end; first += n {
		n = min(n, end-first)
		for _, t := range tiles {
			g.tile(s, t, first, n)
		}
	}
}

// weights implements reader.
func (g *gateUp) weights(worker, workers int) []byte {
	first, end := portion(g.units, worker, workers)
	return g.gate.bytes(2*first, 2*end)
}

// tile computes n pairs of blocks for the rows of a tile.
func (g *gateUp) tile(s *scratch, t tile, first, n int) {
	cols := n * quant.BlockRows
	if g.gate.operand.groups > 0 {
		// The blocks of both in the order in which they lie in memory.
		for i := range n {
			g.gate.mul(g.e, s, s.gate[i*quant.BlockRows:], cols, t, 2*(first+i), 1)
			g.up.mul(g.e, s, s.up[i*quant.BlockRows:], cols, t, 2*(first+i)+1, 1)
		}
	} else {
		p := &g.gate
		g.e.kernels.DotPairs(s.totals, p.bytes(2*first, 2*(first+n)), p.operand.tile(t), g.up.operand.tile(t), p.shape(t, 2*n))
		sums := t.rows * p.operand.planes * quant.BlockRows
		p.finish(g.e, s, s.gate, cols, s.totals, t, 2*first, 2, n)
		g.up.finish(g.e, s, s.up, cols, s.totals[sums:], t, 2*first+1, 2, n)
	}
	size := t.rows * cols
	g.e.kernels.GELUMul(s.gate[:size], s.gate[:size], s.up[:size])
	if g.feeds != nil && g.e.live == 1 {
		x := s.gate[:min(cols, g.e.buf[g.out].cols-first*quant.BlockRows)]
		words := g.feeds.digits.words[first*quant.BlockRows/4:][:(len(x)+3)/4]
		g.sum.Add(g.e.kernels.Quantize(words, x, 1, g.feeds.grid, -128, 127))
	}
	for r := range t.rows {
		copy(g.e.row(g.out, t.first+r)[first*quant.BlockRows:], s.gate[r*cols:][:cols])
	}
}

// floatLinear is the task of program.Linear over bfloat16; a unit is a matrix row.
type floatLinear struct {
	e     *executor
	m     quant.Matrix
	data  []byte
	in    program.BufferID
	mul   float32
	parts []program.Part
	rows  int
}

// prepare implements task.
func (l *floatLinear) prepare() (units, work int) { return l.rows, l.rows * l.m.Cols * l.e.live }

// weights implements reader.
func (l *floatLinear) weights(worker, workers int) []byte {
	first, end := portion(l.rows, worker, workers)
	size := l.m.RowBytes()
	for _, p := range l.parts {
		if first < p.Rows {
			return l.data[(p.First+first)*size : (p.First+min(end, p.Rows))*size]
		}
		first, end = first-p.Rows, end-p.Rows
	}
	return nil
}

// do implements task.
func (l *floatLinear) do(_, first, end int) {
	size := l.m.RowBytes()
	x := l.e.buf[l.in].data
	for _, p := range l.parts {
		if from, to := max(first, 0), min(end, p.Rows); from < to {
			out := &l.e.buf[p.Out]
			l.e.kernels.MulBF16(out.data[from:], out.cols, l.data[(p.First+from)*size:][:(to-from)*size], x, kernels.FloatShape{
				Rows: to - from, Cols: l.m.Cols, Batch: l.e.live, Mul: l.mul,
			})
		}
		first, end = first-p.Rows, end-p.Rows
	}
}
