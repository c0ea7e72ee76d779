package metal

import (
	"fmt"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// partials is where the blocks of an attention lie until they are put together.
type partials struct {
	buffer  Buffer
	blocks  int     // there is room for
	sums    Binding // [block][heads][dim]
	largest Binding // [block][heads] largest scores, then the totals
	totals  int     // where these begin, in floats
}

// growPartials makes room for so many blocks.
func (e *executor) growPartials(blocks int) error {
	if blocks <= e.parts.blocks {
		return nil
	}
	cols, heads := 0, 0
	for _, op := range e.p.Ops {
		if o := op.Attention; o != nil {
			cols = max(cols, o.Heads*e.p.Caches[o.Cache].HeadDim)
			heads = max(heads, o.Heads)
		}
	}
	var l planner
	p := partials{blocks: blocks, totals: blocks * heads}
	l.take(&p.sums, 4*blocks*cols)
	l.take(&p.largest, 2*4*blocks*heads)
	b, err := e.memory.alloc(max(l.size, 1))
	if err != nil {
		return fmt.Errorf("attention over %d positions: %w", blocks*backends.BlockPositions, err)
	}
	p.buffer, p.sums.Buffer, p.largest.Buffer = b, b, b
	e.forget()
	if e.parts.buffer != nil {
		e.stats.BufferBytes -= int64(len(e.parts.buffer.Bytes()))
		e.memory.free(e.parts.buffer)
	}
	e.stats.BufferBytes += int64(len(b.Bytes()))
	e.parts = p
	return nil
}

// of returns the parts that an attention of so many blocks needs: the sums, and the largest scores with the totals.
func (p *partials) of(o *program.Attention, c program.Cache, blocks int) (sums, largest Binding) {
	sums, largest = p.sums, p.largest
	sums.Size = 4 * blocks * o.Heads * c.HeadDim
	largest.Size = 4 * (p.totals + blocks*o.Heads)
	return sums, largest
}

// vecArgs returns the arguments of a product with what comes before it, and the buffers of its kernel.
func (f *fuser) vecArgs(m quant.Matrix, planes int, p prologue) (a vecArgs, buffers []Binding) {
	a = vecArgs{Cols: uint32(m.Cols), Limit: fixedLimits[planes], Mul: 1}
	buffers = make([]Binding, 12)
	buffers[1], buffers[2] = f.step, p.in
	if o := p.combine; o != nil {
		c := f.e.p.Caches[o.Cache]
		a.Heads, a.Window, a.Totals = uint32(o.Heads), uint32(c.Window), uint32(f.e.parts.totals)
		buffers[2], buffers[11] = f.e.parts.of(o, c, seenBlocks(c, f.key.blocks))
	}
	if o := p.add; o != nil {
		a.Add, a.AddWeighted, a.AddEps, a.AddMul = 1, yes(o.Weight != program.None), o.Eps, one(o.Mul)
		buffers[3], buffers[4] = p.stateIn, p.stateOut
		buffers[5], _ = f.weight(o.Weight)
	}
	if o := p.norm; o != nil {
		a.Norm, a.NormWeighted, a.NormEps, a.NormKept = 1, yes(o.Weight != program.None), o.Eps, yes(p.out.Buffer != nil)
		buffers[6], _ = f.weight(o.Weight)
		buffers[7] = p.out
	}
	return a, buffers
}

// vecLinear records a product.
func (f *fuser) vecLinear(o *program.Linear, m quant.Matrix, parts []program.Part, p prologue, end epilogue) {
	v := vecProduct{Matrix: m, Planes: f.planes(parts)}
	a, buffers := f.vecArgs(m, v.Planes, p)
	a.Mul = one(o.Mul)
	buffers[0], _ = f.weight(o.Weight)
	// The parts go to places of one buffer, counted from the first of them.
	from, to := f.at[parts[0].Out].Offset, 0
	for _, part := range parts {
		from = min(from, f.at[part.Out].Offset)
		to = max(to, f.at[part.Out].Offset+4*part.Rows)
	}
	buffers[8] = Binding{f.at[parts[0].Out].Buffer, from, to - from}
	a.Parts = uint32(len(parts))
	for i, part := range parts {
		grids := f.e.rounding(part.Rounding)
		a.Part[i] = vecPart{
			FirstBlock: uint32(part.First / quant.BlockRows), Blocks: uint32(ceilDiv(part.Rows, quant.BlockRows)), Rows: uint32(part.Rows),
			Out: uint32((f.at[part.Out].Offset - from) / 4), InGrid: grids.InScale, OutGrid: grids.OutScale,
		}
	}
	if g := end.gelu; g != nil {
		a.GELU, a.GELUFirst = 1, uint32(g.First)
		buffers[9] = f.at[g.B]
	}
	if end.softcap != nil {
		a.Softcap, a.Cap = 1, end.softcap.Cap
	}
	if end.peaks {
		a.Peaks = 1
		buffers[10] = f.e.mem.peaks
	}
	f.addVec(v, a, buffers)
	blocks := 0
	for _, part := range a.Part[:a.Parts] {
		blocks += int(part.Blocks)
	}
	f.multiplies("linear", m, blocks*m.BlockBytes())
}

// vecGateUp records a gated product.
func (f *fuser) vecGateUp(o *program.GateUp, v vecProduct, p prologue) {
	gate, up := f.e.rounding(o.Gate), f.e.rounding(o.Up)
	a, buffers := f.vecArgs(v.Matrix, v.Planes, p)
	buffers[0], _ = f.weight(o.Weight)
	buffers[8] = f.at[o.Out]
	rows := f.cols(o.Out)
	a.Parts, a.UpInGrid, a.UpGrid = 1, up.InScale, up.OutScale
	a.Part[0] = vecPart{Blocks: uint32(ceilDiv(rows, quant.BlockRows)), Rows: uint32(rows), InGrid: gate.InScale, OutGrid: gate.OutScale}
	f.addVec(v, a, buffers)
	f.multiplies("gate and up", v.Matrix, int(v.Matrix.SizeBytes()))
}

// addVec appends a product that is known to fit.
func (f *fuser) addVec(v vecProduct, a vecArgs, buffers []Binding) {
	l, ok := v.divide(&a, f.e.device.Info().SharedBytes)
	if !ok {
		panic(fmt.Sprintf("a product of %s [%d, %d] does not fit", v.Matrix.Format, v.Matrix.Rows, v.Matrix.Cols)) // fits was asked
	}
	f.add(v.name(), a, l, buffers...)
}

// vecAttention records the blocks of an attention.
func (f *fuser) vecAttention(o attentionOps) {
	c := f.e.p.Caches[o.attention.Cache]
	blocks := seenBlocks(c, f.key.blocks)
	a := vecAttentionArgs{
		Attention: f.attentionArgs(o.attention, blocks), QueryWeighted: yes(o.query.Weight != program.None), QueryEps: o.query.Eps,
		AngleCols: uint32(f.e.mem.angleCols), AngleFirst: uint32(f.e.mem.rotations[o.query.Rotation]), Totals: uint32(f.e.parts.totals),
	}
	queryWeight, _ := f.weight(o.query.Weight)
	var key, value, keyWeight Binding
	if o.store != nil {
		a.Owner, a.KeyWeighted, a.KeyEps, a.ValueEps = 1, yes(o.key.Weight != program.None), o.key.Eps, o.value.Eps
		key, value = f.at[o.key.In], f.at[o.value.In]
		keyWeight, _ = f.weight(o.key.Weight)
	}
	sums, largest := f.e.parts.of(o.attention, c, blocks)
	angles := f.e.mem.angles
	angles.Size = 4 * f.e.mem.angleCols * maxBurst // those of a single row, or of a burst's rows in turn
	f.add(f.cacheKernel("vec_attention"), a, a.launch(f.e.opts.Cache, blocks),
		f.at[o.query.In], key, value, queryWeight, keyWeight, angles, f.step,
		whole(f.e.caches.table), whole(f.e.caches.arena), sums, largest)
}

// vecCombine records the putting together of an attention's blocks.
func (f *fuser) vecCombine(o *program.Attention) {
	c := f.e.p.Caches[o.Cache]
	a := vecCombineArgs{Heads: uint32(o.Heads), Dim: uint32(c.HeadDim), Window: uint32(c.Window), Totals: uint32(f.e.parts.totals)}
	sums, largest := f.e.parts.of(o, c, seenBlocks(c, f.key.blocks))
	f.add("vec_combine", a, a.launch(), sums, largest, f.step, f.at[o.Out])
}
