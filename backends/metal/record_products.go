package metal

import (
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// linear records a product.
func (r *recorder) linear(o *program.Linear) {
	weight, m := r.weight(o.Weight)
	var x operand
	var made program.Rounding // that x was made for
	for i, part := range o.Parts {
		if !m.Codes() {
			a := bf16Args{
				Cols: uint32(m.Cols), FirstRow: uint32(part.First), Rows: uint32(part.Rows),
				OutStride: uint32(r.cols(part.Out)), Mul: one(o.Mul),
			}
			r.add("linear_bf16", a, a.launch(r.rows), weight, r.step, r.at[o.In], r.at[part.Out])
			r.multiplies("linear", m, part.Rows*m.RowBytes())
			continue
		}
		grids := r.e.rounding(part.Rounding)
		if i == 0 || grids.InScale != made.InScale {
			x, made = r.quantize(0, o.In, grids), grids
		}
		p := tileProduct{Matrix: m, First: part.First, Rows: part.Rows, Planes: r.e.planes(grids), Live: r.rows}
		a := p.args()
		a.OutStride, a.OutGrid, a.Mul = uint32(r.cols(part.Out)), grids.OutScale, one(o.Mul)
		r.add(p.name(), a, p.launch(), weight, r.step, x.digits, x.steps, r.at[part.Out])
		r.multiplies("linear", m, ceilDiv(part.Rows, quant.BlockRows)*m.BlockBytes())
	}
}

// gateUp records a gated product.
func (r *recorder) gateUp(o *program.GateUp) {
	weight, m := r.weight(o.Weight)
	gate, up := r.e.rounding(o.Gate), r.e.rounding(o.Up)
	planes := max(r.e.planes(gate), r.e.planes(up))
	x := r.quantizePlanes(0, o.In, gate.InScale, planes)
	p := tileProduct{Matrix: m, Rows: r.cols(o.Out), Planes: planes, Live: r.rows, Operands: 1}
	var y operand
	if up.InScale != gate.InScale {
		y = r.quantizePlanes(1, o.In, up.InScale, planes)
		p.Operands = 2
	}
	a := p.args()
	a.OutStride, a.OutGrid, a.UpGrid = uint32(r.cols(o.Out)), gate.OutScale, up.OutScale
	r.add(p.name(), a, p.launch(), weight, r.step, x.digits, x.steps, y.digits, y.steps, r.at[o.Out])
	r.multiplies("gate and up", m, int(m.SizeBytes()))
}

// quantize records the making of the digits of a product's input, for its first or second operand.
func (r *recorder) quantize(which int, in program.BufferID, grids program.Rounding) operand {
	return r.quantizePlanes(which, in, grids.InScale, r.e.planes(grids))
}

// quantizePlanes is quantize for so many digits, of which a static grid needs one.
func (r *recorder) quantizePlanes(which int, in program.BufferID, grid float32, planes int) operand {
	x := r.e.mem.operands[which]
	a := quantizeArgs{
		Cols: uint32(r.cols(in)), Padded: uint32(paddedCols(r.cols(in))), Planes: uint32(planes), Grid: grid, Limit: fixedLimits[planes],
	}
	r.add("quantize", a, a.launch(r.rows), r.at[in], r.step, x.digits, x.steps)
	return x
}
