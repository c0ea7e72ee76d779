package metal

import (
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/program"
)

// fuser records the operations of a single row that wants logits with as few
// dispatches as it can: what is cheap and follows or precedes a product is done
// in that product's kernel, by each of its groups anew. The program is not
// matched as a whole: values that the next operation may compute itself stay
// pending, and are settled by a kernel of their own where it turns out that it cannot.
type fuser struct {
	recorder
	done []bool // operations that are part of an earlier dispatch
	// spare is where the state goes when it is next written by a product.
	spare Binding
	// peaked tells that what wrote the logits last found their peaks, too.
	peaked bool
	// Pending values: state += norm(in) of the program's state, out = norm(in), and the blocks of an attention put together.
	addition *program.AddNorm
	normed   *program.Norm
	combine  *program.Attention
}

// prologue is what a product's kernel computes its input from.
type prologue struct {
	in                Binding
	combine           *program.Attention // in is what its blocks come to
	add               *program.AddNorm   // in is added to the state, which is the input
	stateIn, stateOut Binding
	norm              *program.Norm // of that, or of in
	out               Binding       // where the input is written for others; unbound for nowhere
}

// record records the whole program.
func (f *fuser) record() {
	for i := range f.e.p.Ops {
		if !f.done[i] {
			f.op(i)
		}
	}
	f.settle(f.e.p.Hidden)
	f.settle(f.e.p.Logits)
	if !f.peaked {
		f.peaks()
	}
}

// op records operation i, or leaves it pending.
func (f *fuser) op(i int) {
	op := f.e.p.Ops[i]
	switch {
	case op.Select != nil: // the row stays
	case op.AddNorm != nil:
		o := op.AddNorm
		f.settle(o.In)
		f.settle(o.State)
		f.overwrite(o.State)
		// Only the state has a second place, and the logits stay where the pick looks for them.
		if o.State != f.e.p.State || o.State == f.e.p.Logits {
			f.recorder.addNorm(o)
			return
		}
		f.addition = o
	case op.Norm != nil && f.attention(i):
	case op.Norm != nil && f.plain(op.Norm):
		o := op.Norm
		if f.normed != nil {
			f.settle(f.normed.Out)
		}
		f.overwrite(o.Out)
		f.normed = o
	case op.Linear != nil && f.linear(i):
	case op.GateUp != nil && f.gateUp(i):
	default:
		for _, id := range op.Reads() {
			f.settle(id)
		}
		for _, id := range op.Writes() {
			f.overwrite(id)
		}
		f.recorder.op(op)
	}
}

// plain reports whether a norm is one that a product's kernel can compute: of a whole buffer, without rotation.
func (f *fuser) plain(o *program.Norm) bool {
	return o.Cols == f.e.p.Buffers[o.In].Cols && o.Rotation == program.None && o.In != o.Out && f.pendingCombine(o.In) == nil
}

// pendingCombine returns the attention whose blocks make up a buffer, or nil.
func (f *fuser) pendingCombine(id program.BufferID) *program.Attention {
	if f.combine != nil && f.combine.Out == id {
		return f.combine
	}
	return nil
}

// settle computes a buffer whose value is pending.
func (f *fuser) settle(id program.BufferID) {
	switch {
	case f.normed != nil && f.normed.Out == id:
		o := f.normed
		f.settle(o.In)
		f.normed = nil
		f.recorder.norm(o)
	case f.addition != nil && f.addition.State == id:
		o := f.addition
		f.addition = nil
		f.recorder.addNorm(o)
	case f.pendingCombine(id) != nil:
		o := f.combine
		f.combine = nil
		f.vecCombine(o)
	}
}

// overwrite settles what is pending and needs a buffer that is about to be
// written, and drops a pending value of its own and, of the logits, the peaks.
func (f *fuser) overwrite(id program.BufferID) {
	if id == f.e.p.Logits {
		f.peaked = false
	}
	if f.normed != nil && f.normed.In == id {
		f.settle(f.normed.Out)
	}
	if f.addition != nil && f.addition.In == id {
		f.settle(f.addition.State)
	}
	if f.combine != nil && f.combine.Query == id {
		f.settle(f.combine.Out)
	}
	if f.normed != nil && f.normed.Out == id {
		f.normed = nil
	}
	if f.addition != nil && f.addition.State == id {
		f.addition = nil
	}
	if f.pendingCombine(id) != nil {
		f.combine = nil
	}
}

// untie settles what is pending unless it is the input of a product. So is that
// of which the product overwrites something: all of its groups read it, at any time.
func (f *fuser) untie(in program.BufferID, outs []program.BufferID) {
	over := func(id program.BufferID) bool { return slices.Contains(outs, id) }
	source := in
	if o := f.normed; o != nil {
		if o.Out != in || over(o.In) {
			f.settle(o.Out)
		} else {
			source = o.In
		}
	}
	if o := f.addition; o != nil && (o.State != source || over(o.In)) {
		f.settle(o.State)
	}
	if o := f.combine; o != nil && o.Out != in {
		f.settle(o.Out)
	}
}

// take returns how a product that is operation i and writes some buffers gets its
// input. Nothing is pending then: whoever else needs the input finds it in memory.
func (f *fuser) take(i int, id program.BufferID, outs []program.BufferID) prologue {
	f.untie(id, outs)
	var p prologue
	source := id
	if f.normed != nil && f.normed.Out == id {
		p.norm, source = f.normed, f.normed.In
		f.normed = nil
		if f.needed(i, id) {
			p.out = f.at[id]
		}
	}
	switch {
	case f.addition != nil && f.addition.State == source:
		p.add = f.addition
		p.in, p.stateIn, p.stateOut = f.at[p.add.In], f.at[source], f.spare
		f.addition = nil
		f.at[source], f.spare = p.stateOut, p.stateIn
	case f.combine != nil:
		p.combine = f.combine
		f.combine = nil
	default:
		p.in = f.at[source]
	}
	for _, out := range outs {
		f.overwrite(out)
	}
	return p
}

// use is an operation that reads a buffer or, if it does not, overwrites it.
type use struct {
	op    int
	reads bool
}

// uses lists for each buffer the operations that use it, in their order. A select uses none.
func uses(p *program.Program) [][]use {
	all := make([][]use, len(p.Buffers))
	for i, op := range p.Ops {
		if op.Select != nil {
			continue
		}
		reads := op.Reads()
		for _, id := range reads {
			all[id] = append(all[id], use{i, true})
		}
		for _, id := range op.Writes() {
			if !slices.Contains(reads, id) {
				all[id] = append(all[id], use{i, false})
			}
		}
	}
	return all
}

// needed reports whether what operation i finds in a buffer is read behind it.
func (f *fuser) needed(i int, id program.BufferID) bool {
	list := f.e.uses[id]
	next, _ := slices.BinarySearchFunc(list, i+1, func(u use, op int) int { return u.op - op })
	for _, u := range list[next:] {
		if !f.done[u.op] {
			return u.reads
		}
	}
	return id == f.e.p.Hidden || id == f.e.p.Logits
}

// epilogue is what a product's kernel does with its output.
type epilogue struct {
	gelu    *program.GELUMul
	softcap *program.Softcap
	peaks   bool
}

// linear records a product, with what comes before and behind it, and reports
// whether the kernels for a single row can compute it.
func (f *fuser) linear(i int) bool {
	o := f.e.p.Ops[i].Linear
	m := f.e.p.Weights[o.Weight].Matrix
	if !m.Codes() || len(o.Parts) > maxParts || !f.fits(vecProduct{Matrix: m, Planes: f.planes(o.Parts)}, vecArgs{Peaks: 1}, o.In) {
		return false
	}
	parts := f.join(i, o)
	var outs []program.BufferID
	for _, part := range parts {
		outs = append(outs, part.Out)
	}
	p := f.take(i, o.In, outs)
	end := f.follow(i, parts, p)
	f.vecLinear(o, m, parts, p, end)
	f.peaked = f.peaked || end.peaks
	return true
}

// planes returns the number of digits of the input of a product's parts.
func (f *fuser) planes(parts []program.Part) (planes int) {
	for _, part := range parts {
		planes = max(planes, f.e.planes(f.e.rounding(part.Rounding)))
	}
	return planes
}

// fits reports whether the memory of a group suffices for a product with some
// arguments and what is pending of its input. If it does not but would without that, the input is settled.
func (f *fuser) fits(p vecProduct, a vecArgs, in program.BufferID) bool {
	read := a
	if f.normed != nil && f.normed.Out == in {
		a.Norm = 1
	}
	if f.addition != nil && (f.addition.State == in || a.Norm == 1 && f.addition.State == f.normed.In) {
		a.Add = 1
	}
	if o := f.pendingCombine(in); o != nil {
		a.Heads = uint32(o.Heads)
	}
	shared := f.e.device.Info().SharedBytes
	if p.fits(&a, shared) {
		return true
	}
	f.settle(in)
	return a.computed() && p.fits(&read, shared)
}

// joinReach is how far behind a product those are looked for that it is joined with.
const joinReach = 64

// join returns the parts of a product and of those soon behind it that multiply
// the same input with the same matrix and can be computed at once.
func (f *fuser) join(i int, o *program.Linear) []program.Part {
	parts := slices.Clone(o.Parts)
	touched := map[program.BufferID]bool{}
	for _, part := range parts {
		touched[part.Out] = true
	}
	for j := i + 1; j < min(len(f.e.p.Ops), i+joinReach) && len(parts) < maxParts; j++ {
		op := f.e.p.Ops[j]
		if f.done[j] || op.Select != nil {
			continue
		}
		if l := op.Linear; l != nil && l.Weight == o.Weight && l.In == o.In && l.Mul == o.Mul &&
			len(parts)+len(l.Parts) <= maxParts && f.planes(l.Parts) == f.planes(parts) {
			if !slices.ContainsFunc(l.Parts, func(p program.Part) bool { return touched[p.Out] }) {
				parts = append(parts, l.Parts...)
				f.done[j] = true
			}
		}
		for _, id := range append(op.Reads(), op.Writes()...) {
			touched[id] = true
		}
		if slices.Contains(op.Writes(), o.In) {
			break
		}
	}
	return parts
}

// follow returns what of the operations behind a product its kernel can do.
func (f *fuser) follow(i int, parts []program.Part, p prologue) (e epilogue) {
	if len(parts) != 1 {
		return e
	}
	out := parts[0].Out
	e.peaks = out == f.e.p.Logits
	if i+1 == len(f.e.p.Ops) || f.done[i+1] {
		return e
	}
	switch next := f.e.p.Ops[i+1]; {
	case next.GELUMul != nil && next.GELUMul.A == out && next.GELUMul.Out == out && !e.peaks:
		if b := f.at[next.GELUMul.B]; b == p.stateOut || b == p.out {
			return e // groups would read what the first of them writes
		}
		e.gelu = next.GELUMul
	case next.Softcap != nil && next.Softcap.Buffer == out:
		e.softcap = next.Softcap
	default:
		return e
	}
	f.done[i+1] = true
	return e
}

// gateUp records a gated product, and reports whether the kernels for a single row can compute it.
func (f *fuser) gateUp(i int) bool {
	o := f.e.p.Ops[i].GateUp
	m := f.e.p.Weights[o.Weight].Matrix
	gate, up := f.e.rounding(o.Gate), f.e.rounding(o.Up)
	v := vecProduct{Matrix: m, Planes: max(f.e.planes(gate), f.e.planes(up)), GateUp: true}
	if !f.fits(v, vecArgs{Part: [maxParts]vecPart{{InGrid: gate.InScale}}, UpInGrid: up.InScale}, o.In) {
		return false
	}
	p := f.take(i, o.In, []program.BufferID{o.Out})
	f.vecGateUp(o, v, p)
	return true
}

// attentionOps are the operations that make up the attention of a layer, from
// the norms of query, key and value on.
type attentionOps struct {
	value, key, query *program.Norm
	store             *program.Store // nil where another layer's cache is read, and key and value with it
	attention         *program.Attention
}

// attention records the attention that begins with operation i, if one does.
func (f *fuser) attention(i int) bool {
	var a attentionOps
	var ops []int // those it is made of
	next := func(want func(program.Op) bool) bool {
		for ; i < len(f.e.p.Ops); i++ {
			switch op := f.e.p.Ops[i]; {
			case f.done[i] || op.Select != nil:
			case want(op):
				ops = append(ops, i)
				i++
				return true
			default:
				return false
			}
		}
		return false
	}
	head := func(n **program.Norm, rotated bool) func(program.Op) bool {
		return func(op program.Op) bool {
			*n = op.Norm
			return op.Norm != nil && (op.Norm.Rotation != program.None) == rotated
		}
	}
	first := i
	if next(head(&a.value, false)) {
		if !next(head(&a.key, true)) || !next(func(op program.Op) bool { a.store = op.Store; return a.store != nil }) {
			return false
		}
	} else {
		a.value = nil
		i = first
	}
	if !next(head(&a.query, true)) || !next(func(op program.Op) bool { a.attention = op.Attention; return a.attention != nil }) {
		return false
	}
	if !f.attends(a, ops) {
		return false
	}
	for _, n := range []*program.Norm{a.value, a.key, a.query} {
		if n != nil {
			f.settle(n.In)
		}
	}
	for _, j := range ops {
		f.done[j] = true
	}
	f.overwrite(a.attention.Out)
	f.vecAttention(a)
	f.combine = a.attention
	if f.e.p.Caches[a.attention.Cache].Window == 0 || !f.combines(i, a.attention) {
		f.settle(a.attention.Out)
	}
	return true
}

// attends reports whether the operations fit together: the norms are those of
// the heads of what is stored and asked, and nobody else needs what they write.
func (f *fuser) attends(a attentionOps, ops []int) bool {
	last := ops[len(ops)-1]
	c := f.e.p.Caches[a.attention.Cache]
	if a.query.In != a.query.Out || a.query.Out != a.attention.Query || a.query.Cols != c.HeadDim {
		return false
	}
	private := []program.BufferID{a.query.Out}
	if a.store != nil {
		if a.store.Cache != a.attention.Cache || a.key.In != a.key.Out || a.key.Out != a.store.Key || a.value.Out != a.store.Value ||
			a.key.Out == a.value.Out || a.query.Out == a.key.Out || a.query.Out == a.value.Out ||
			a.key.Cols != c.HeadDim || a.value.Cols != c.HeadDim || a.key.Rotation != a.query.Rotation || a.value.Weight != program.None {
			return false
		}
		private = append(private, a.key.Out, a.value.Out)
	}
	return !slices.ContainsFunc(private, func(id program.BufferID) bool { return f.needed(last, id) })
}

// combines reports whether the next operation from i on is a product that puts
// the blocks of an attention together itself.
func (f *fuser) combines(i int, a *program.Attention) bool {
	for ; i < len(f.e.p.Ops); i++ {
		op := f.e.p.Ops[i]
		if f.done[i] || op.Select != nil {
			continue
		}
		if op.Linear == nil || op.Linear.In != a.Out || len(op.Linear.Parts) > maxParts || f.needed(i, a.Out) {
			return false
		}
		p := vecProduct{Matrix: f.e.p.Weights[op.Linear.Weight].Matrix, Planes: f.planes(op.Linear.Parts)}
		return p.Matrix.Codes() && p.fits(&vecArgs{Heads: uint32(a.Heads), Peaks: 1}, f.e.device.Info().SharedBytes)
	}
	return false
}

// seenBlocks returns the most blocks that a row sees of a cache in a context of so many blocks.
func seenBlocks(c program.Cache, blocks int) int {
	if c.Window == 0 {
		return blocks
	}
	return min(blocks, (c.Window+backends.BlockPositions-2)/backends.BlockPositions+1)
}
