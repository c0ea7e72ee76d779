package backendtest

import (
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// format gives a matrix in blocks another format, or has it lie in rows.
func (m *mutation) format() {
	var all []*program.Weight
	for i := range m.p.Weights {
		if w := &m.p.Weights[i]; w.Layout == quant.Blocks || w.Bits == 16 {
			all = append(all, w)
		}
	}
	w, ok := pick(m, all)
	if !ok {
		return
	}
	formats := append(quant.MultipliedFormats(), quant.BF16)
	(*w).Format, (*w).Layout = formats[m.below(len(formats))], quant.Blocks
	if !(*w).Codes() {
		(*w).Layout = quant.Rows
	}
}

// table gives a table any format of rows.
func (m *mutation) table() {
	op, ok := m.op(func(op program.Op) bool {
		return op.Embed != nil && op.Embed.Table >= 0 && int(op.Embed.Table) < len(m.p.Weights)
	})
	if !ok {
		return
	}
	w := &m.p.Weights[op.Embed.Table]
	bits := []int{2, 4, 8, 16, 32}[m.below(5)]
	w.Format, w.Layout = quant.Format{Bits: bits}, quant.Rows
	if !w.Codes() {
		return
	}
	w.Group = []int{0, 1, 2, 3, 4, 8, 16, 32, w.Cols}[m.below(9)]
	w.Scale = []quant.ScaleType{quant.ScaleF32, quant.ScaleF16}[m.below(2)]
	w.Minimum = w.Group > 0 && m.below(2) == 1
}

// trim gives a matrix more or fewer rows than its products need, or a buffer more columns.
func (m *mutation) trim() {
	w, ok := pick(m, m.p.Weights)
	if !ok {
		return
	}
	by := m.below(40) - 20
	if w.Rows > 1 {
		w.Rows += by
		return
	}
	if b, ok := pick(m, m.p.Buffers); ok {
		b.Cols += by
	}
}

// divisors returns what divides n, up to some number.
func divisors(n int) (all []int) {
	for d := 1; d <= min(n, 256); d++ {
		if n%d == 0 {
			all = append(all, d)
		}
	}
	return all
}

// heads cuts the heads of a cache, and of all attentions to it, otherwise.
func (m *mutation) heads() {
	p := m.p
	if len(p.Caches) == 0 {
		return
	}
	id := program.CacheID(m.below(len(p.Caches)))
	c := &p.Caches[id]
	all := c.KVHeads * c.HeadDim
	dim, ok := pick(m, divisors(all))
	if !ok {
		return
	}
	c.HeadDim, c.KVHeads = *dim, all / *dim
	for _, op := range p.Ops {
		if a := op.Attention; a != nil && a.Cache == id && a.Query >= 0 && int(a.Query) < len(p.Buffers) {
			a.Heads = p.Buffers[a.Query].Cols / *dim
		}
	}
}

// runs cuts a norm into other runs, which have no weight and no rotation then.
func (m *mutation) runs() {
	op, ok := m.op(func(op program.Op) bool {
		return op.Norm != nil && op.Norm.In >= 0 && int(op.Norm.In) < len(m.p.Buffers)
	})
	if !ok {
		return
	}
	if cols, ok := pick(m, divisors(m.p.Buffers[op.Norm.In].Cols)); ok {
		op.Norm.Cols, op.Norm.Weight, op.Norm.Rotation = *cols, program.None, program.None
	}
}

// window gives a cache another window.
func (m *mutation) window() {
	if c, ok := pick(m, m.p.Caches); ok {
		c.Window = []int{0, 1, 2, 3, 15, 16, 17, backends.BlockPositions - 1, backends.BlockPositions, backends.BlockPositions + 1, program.MaxContext}[m.below(11)]
	}
}

// grids gives a product other static grids, or none.
func (m *mutation) grids() {
	op, ok := m.op(func(op program.Op) bool { return op.Linear != nil && len(op.Linear.Parts) > 0 || op.GateUp != nil })
	if !ok {
		return
	}
	steps := []float32{0, 0.03, 0.05, 1, 1e-45, 1e-30, 3e38}
	r := program.Rounding{InScale: steps[m.below(len(steps))], OutScale: steps[m.below(len(steps))]}
	switch {
	case op.Linear != nil:
		part, _ := pick(m, op.Linear.Parts)
		part.Rounding = r
	case m.below(2) == 0:
		op.GateUp.Gate = r
	default:
		op.GateUp.Up = r
	}
}

// part moves, drops or repeats a part of a product.
func (m *mutation) part() {
	op, ok := m.op(func(op program.Op) bool { return op.Linear != nil && len(op.Linear.Parts) > 0 })
	if !ok {
		return
	}
	l := op.Linear
	i := m.below(len(l.Parts))
	switch m.below(4) {
	case 0:
		l.Parts = slices.Delete(l.Parts, i, i+1)
	case 1:
		again := l.Parts[i]
		again.Out = m.alike(again.Out)
		l.Parts = append(l.Parts, again)
	case 2:
		j := m.below(len(l.Parts))
		l.Parts[i], l.Parts[j] = l.Parts[j], l.Parts[i]
	default:
		l.Parts[i].First += quant.BlockRows * (m.below(5) - 2)
	}
}

// keep has a select keep another buffer, or one less.
func (m *mutation) keep() {
	op, ok := m.op(func(op program.Op) bool { return op.Select != nil })
	if !ok {
		return
	}
	s := op.Select
	i := m.below(len(s.Buffers) + 1)
	if i < len(s.Buffers) {
		s.Buffers = slices.Delete(s.Buffers, i, i+1)
		return
	}
	s.Buffers = append(s.Buffers, program.BufferID(m.below(len(m.p.Buffers))))
}

// layers drops all layers, one, or cuts one in two.
func (m *mutation) layers() {
	p := m.p
	i := m.below(len(p.Layers))
	switch how := m.below(3); {
	case len(p.Layers) == 0 || how == 0:
		p.Layers = nil
	case how == 1:
		p.Layers = slices.Delete(p.Layers, i, i+1)
	default:
		l := &p.Layers[i]
		at := l.First + m.below(l.End-l.First+1)
		second := program.Layer{First: at, End: l.End}
		l.End = at
		p.Layers = slices.Insert(p.Layers, i+1, second)
	}
}

// context changes how many positions there are and which tokens may be fed.
func (m *mutation) context() {
	if m.below(2) == 0 {
		m.p.Context = []int{1, 2, 3, 255, 256, 257, program.MaxContext}[m.below(7)]
		return
	}
	m.p.TokenLimit = 1 + m.below(2*m.p.Vocab)
}
