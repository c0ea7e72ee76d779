package cpu

import (
	"encoding/binary"
	"math"

	"github.com/zoo-sdk/zoo/internal/fmath"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// operand is a batch's activations as integers, on one grid.
type operand struct {
	grid   float32 // the static step, or 0 for fixed point
	narrow bool    // the codes are 8-bit
	*integers
}

// integers is the memory of an operand. The first operands of all products
// share one, the second ones another: they are used up before the next product.
type integers struct {
	codes []int32 // [rows, padded columns]
	steps []float32
	sums  []int64 // of each row
	parts []int64 // of each group of a row, [rows, groups], if the format has groups
}

// grow makes room for as many rows, columns and groups.
func (n *integers) grow(rows, padded, groups int) {
	n.codes = atLeast(n.codes, rows*padded)
	n.steps = atLeast(n.steps, rows)
	n.sums = atLeast(n.sums, rows)
	n.parts = atLeast(n.parts, rows*groups)
}

// atLeast returns s, or zeros if it is shorter than n.
func atLeast[T any](s []T, n int) []T {
	if len(s) < n {
		return make([]T, n)
	}
	return s
}

// bytes returns the memory held.
func (n *integers) bytes() int64 {
	return int64(4*len(n.codes) + 4*len(n.steps) + 8*len(n.sums) + 8*len(n.parts))
}

// dot sets totals to the sums of the unsigned codes of the 16 lanes times x.
func (o *operand) dot(totals *[quant.BlockRows]int64, bits int, codes []byte, x []int32) {
	if o.narrow {
		for r := 0; r < quant.BlockRows; r += 2 {
			totals[r], totals[r+1] = dotPair(bits, codes[4*r:], x)
		}
		return
	}
	for r := range totals {
		totals[r] = dotCodes(bits, codes[4*r:], x)
	}
}

// quantize is the task that fills operands; a unit is a row.
type quantize struct {
	e        *executor
	in       program.BufferID
	operands []*operand
	cols     int // of the buffer
	padded   int // of the codes
	group    int
}

// do implements task.
func (q *quantize) do(_, first, end int) {
	for r := first; r < end; r++ {
		for _, o := range q.operands {
			x := q.e.row(q.in, r)
			row := o.codes[r*q.padded:][:q.padded]
			dst := row[:q.cols]
			clear(row[q.cols:])
			if o.grid != 0 {
				o.steps[r] = o.grid
				o.sums[r] = quantizeStatic(dst, x, o.grid)
			} else {
				o.steps[r], o.sums[r] = quantizeFixed(dst, x, q.e.limit)
			}
			if q.group > 0 {
				parts := o.parts[r*q.cols/q.group:][:q.cols/q.group]
				for g := range parts {
					parts[g] = 0
					for _, c := range dst[g*q.group:][:q.group] {
						parts[g] += int64(c)
					}
				}
			}
		}
	}
}

// product is what one block of a matrix becomes: 16 results a row.
type product struct {
	m       quant.Matrix
	data    []byte
	operand *operand
	out     float32 // output grid
}

// block computes 16 results of one row of the batch with one block of the matrix.
func (p *product) block(dst *[quant.BlockRows]float32, index, row, padded int) {
	block := p.data[index*p.m.BlockBytes():][:p.m.BlockBytes()]
	codes, scales := block[:p.m.BlockCodeBytes()], block[p.m.BlockCodeBytes():]
	x := p.operand.codes[row*padded:][:padded]
	step := p.operand.steps[row]
	if p.m.Group > 0 {
		groups := p.m.Groups()
		p.grouped(dst, codes, scales, x, step, p.operand.parts[row*groups:][:groups])
	} else {
		var totals [quant.BlockRows]int64
		p.operand.dot(&totals, p.m.Bits, codes, x)
		start := -int64(p.m.Midpoint()) * p.operand.sums[row]
		for r, total := range totals {
			scale := math.Float32frombits(binary.LittleEndian.Uint32(scales[4*r:]))
			dst[r] = float32(float32(float32(start+total)*step) * scale)
		}
	}
	if p.out != 0 {
		for r := range dst {
			dst[r] = snap(dst[r], p.out)
		}
	}
}

// grouped is block for formats with a scale for each group of columns.
func (p *product) grouped(dst *[quant.BlockRows]float32, codes, scales []byte, x []int32, step float32, sums []int64) {
	size := p.m.Group / p.m.StepCols() * quant.StepBytes
	clear(dst[:])
	var totals [quant.BlockRows]int64
	for g, sum := range sums {
		p.operand.dot(&totals, p.m.Bits, codes[g*size:][:size], x[g*p.m.Group:][:p.m.Group])
		start := -int64(p.m.Midpoint()) * sum
		for r, total := range totals {
			scale := quant.F16ToF32(binary.LittleEndian.Uint16(scales[2*(g*quant.BlockRows+r):]))
			dst[r] += float32(float32(float32(start+total)*step) * scale)
		}
	}
}

// dotCodes returns the sum of the unsigned codes of one lane times x. codes
// starts at the lane's first word; a step is 64 bytes further on.
func dotCodes(bits int, codes []byte, x []int32) int64 {
	switch bits {
	case 2:
		return dotInt2(codes, x)
	case 4:
		return dotInt4(codes, x)
	}
	return dotUint8(codes, x)
}

// dotInt2 is dotCodes for 16 codes a step.
func dotInt2(codes []byte, x []int32) (sum int64) {
	for at := 0; len(x) >= 16; x, at = x[16:], at+quant.StepBytes {
		w := uint64(binary.LittleEndian.Uint32(codes[at:]))
		v := (*[16]int32)(x)
		sum += int64(w&3)*int64(v[0]) + int64(w>>8&3)*int64(v[1]) + int64(w>>16&3)*int64(v[2]) + int64(w>>24&3)*int64(v[3])
		sum += int64(w>>2&3)*int64(v[4]) + int64(w>>10&3)*int64(v[5]) + int64(w>>18&3)*int64(v[6]) + int64(w>>26&3)*int64(v[7])
		sum += int64(w>>4&3)*int64(v[8]) + int64(w>>12&3)*int64(v[9]) + int64(w>>20&3)*int64(v[10]) + int64(w>>28&3)*int64(v[11])
		sum += int64(w>>6&3)*int64(v[12]) + int64(w>>14&3)*int64(v[13]) + int64(w>>22&3)*int64(v[14]) + int64(w>>30)*int64(v[15])
	}
	return sum
}

// dotInt4 is dotCodes for 8 codes a step.
func dotInt4(codes []byte, x []int32) (sum int64) {
	for at := 0; len(x) >= 8; x, at = x[8:], at+quant.StepBytes {
		w := uint64(binary.LittleEndian.Uint32(codes[at:]))
		v := (*[8]int32)(x)
		sum += int64(w&15)*int64(v[0]) + int64(w>>8&15)*int64(v[1]) + int64(w>>16&15)*int64(v[2]) + int64(w>>24&15)*int64(v[3])
		sum += int64(w>>4&15)*int64(v[4]) + int64(w>>12&15)*int64(v[5]) + int64(w>>20&15)*int64(v[6]) + int64(w>>28)*int64(v[7])
	}
	return sum
}

// dotUint8 is dotCodes for 4 codes a step.
func dotUint8(codes []byte, x []int32) (sum int64) {
	for at := 0; len(x) >= 4; x, at = x[4:], at+quant.StepBytes {
		c, v := (*[4]byte)(codes[at:]), (*[4]int32)(x)
		sum += int64(c[0])*int64(v[0]) + int64(c[1])*int64(v[1]) + int64(c[2])*int64(v[2]) + int64(c[3])*int64(v[3])
	}
	return sum
}

// linear is the task of program.Linear over codes; a unit is a block of a part.
type linear struct {
	e      *executor
	padded int
	mul    float32
	parts  []linearPart
}

// linearPart is one part of a linear.
type linearPart struct {
	product
	firstBlock, blocks int
	out                program.BufferID
}

// do implements task.
func (l *linear) do(_, first, end int) {
	var res [quant.BlockRows]float32
	for i := range l.parts {
		p := &l.parts[i]
		for b := max(first, 0); b < min(end, p.blocks); b++ {
			for r := range l.e.live {
				p.block(&res, p.firstBlock+b, r, l.padded)
				for j, y := range res {
					res[j] = float32(y * l.mul)
				}
				copy(l.e.row(p.out, r)[b*quant.BlockRows:], res[:]) // the last block may reach past the part
			}
		}
		first, end = first-p.blocks, end-p.blocks
	}
}

// gateUp is the task of program.GateUp; a unit is a pair of blocks.
type gateUp struct {
	e        *executor
	padded   int
	gate, up product
	out      program.BufferID
	cols     int
}

// do implements task.
func (g *gateUp) do(_, first, end int) {
	var gate, up [quant.BlockRows]float32
	for b := first; b < end; b++ {
		for r := range g.e.live {
			g.gate.block(&gate, 2*b, r, g.padded)
			g.up.block(&up, 2*b+1, r, g.padded)
			out := g.e.row(g.out, r)[b*quant.BlockRows:]
			for j := range min(quant.BlockRows, g.cols-b*quant.BlockRows) {
				out[j] = float32(fmath.GELU(gate[j]) * up[j])
			}
		}
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
}

// do implements task.
func (l *floatLinear) do(_, first, end int) {
	size := l.m.RowBytes()
	for _, p := range l.parts {
		for i := max(first, 0); i < min(end, p.Rows); i++ {
			w := l.data[(p.First+i)*size:][:size]
			for r := range l.e.live {
				l.e.row(p.Out, r)[i] = float32(dotBF16(l.e.row(l.in, r), w) * l.mul)
			}
		}
		first, end = first-p.Rows, end-p.Rows
	}
}
