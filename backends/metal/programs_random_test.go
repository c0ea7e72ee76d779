package metal_test

import (
	"math/rand/v2"
	"slices"

	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// Lengths of the buffers of random programs. A wide one holds four heads, a narrow one two.
const (
	wide, narrow, vocab = 64, 32, 320
	headDim             = 16
)

// matrixRows is the number of rows of most matrices, of which products take parts.
const matrixRows = vocab + wide

// randomProgram is a program of random operations over few buffers, with its weights.
type randomProgram struct {
	p *program.Program
	w *backendtest.Weights

	rng      *rand.Rand
	live     []bool
	stored   []bool
	selected bool
	last     program.BufferID // that was written
	product  *program.Linear  // the last one
	matrices map[quant.Matrix]program.WeightID
}

// newProgram returns a program without operations, whose weights and whatever is not said a seed draws.
func newProgram(seed uint64) *randomProgram {
	r := &randomProgram{
		w: backendtest.NewWeights(seed), rng: rand.New(rand.NewPCG(seed, 2)), matrices: map[quant.Matrix]program.WeightID{},
		p: &program.Program{Version: program.Version, Vocab: vocab, TokenLimit: vocab, Context: 32},
	}
	p := r.p
	for _, cols := range []int{wide, wide, wide, wide, wide, narrow, narrow, narrow, narrow, vocab, vocab, vocab} {
		p.Buffers = append(p.Buffers, program.Buffer{Cols: cols})
	}
	r.live = make([]bool, len(p.Buffers))
	freqs := make([]float32, headDim/2)
	for i := range freqs {
		freqs[i] = 1 / float32(int32(1)<<i)
	}
	p.Rotations = []program.Rotation{{Freqs: freqs}}
	for _, kvHeads := range []int{2, 4, 4} {
		p.Caches = append(p.Caches, program.Cache{KVHeads: kvHeads, HeadDim: headDim, Window: []int{0, 3}[r.rng.IntN(2)], KeyScale: 0.03, ValueScale: 0.025})
	}
	r.stored = make([]bool, len(p.Caches))
	return r
}

// newRandomProgram makes the program of a seed.
func newRandomProgram(seed uint64) *randomProgram {
	r := newProgram(seed)
	p := r.p
	p.State, p.Hidden = program.BufferID(r.rng.IntN(5)), program.BufferID(r.rng.IntN(5))
	p.Logits = program.BufferID(9 + r.rng.IntN(3))
	if r.chance(10) {
		p.State = p.Logits
	}
	r.embed()
	before, behind := 3+r.rng.IntN(10), r.rng.IntN(8)
	for range before {
		r.op()
	}
	r.choose()
	for range behind {
		r.op()
	}
	r.head()
	for range r.rng.IntN(4) {
		r.op()
	}
	for _, id := range []program.BufferID{p.State, p.Hidden} {
		if !r.live[id] {
			r.multiply(r.input(0, id), id)
		}
	}
	return r
}

// chance reports true in so many of a hundred cases.
func (r *randomProgram) chance(percent int) bool { return r.rng.IntN(100) < percent }

// cols returns the length of a buffer.
func (r *randomProgram) cols(id program.BufferID) int { return r.p.Buffers[id].Cols }

// draw draws one of the buffers of a length, or of any if it is 0, but for some; -1 if there is none.
func (r *randomProgram) draw(cols int, live []bool, not []program.BufferID) program.BufferID {
	var all []program.BufferID
	for i, b := range r.p.Buffers {
		id := program.BufferID(i)
		if (cols == 0 || b.Cols == cols) && (live == nil || live[i]) && !slices.Contains(not, id) {
			all = append(all, id)
		}
	}
	if len(all) == 0 {
		return -1
	}
	return all[r.rng.IntN(len(all))]
}

// input draws a buffer that can be read, most often the one that was written last.
func (r *randomProgram) input(cols int, not ...program.BufferID) program.BufferID {
	if id := r.last; r.chance(50) && r.live[id] && (cols == 0 || r.cols(id) == cols) && !slices.Contains(not, id) {
		return id
	}
	return r.draw(cols, r.live, not)
}

// output draws a buffer to write to.
func (r *randomProgram) output(cols int, not ...program.BufferID) program.BufferID {
	return r.draw(cols, nil, not)
}

// add appends an operation that writes a buffer, unless that is -1.
func (r *randomProgram) add(op program.Op, out program.BufferID) {
	r.p.Ops = append(r.p.Ops, op)
	if out >= 0 {
		r.live[out], r.last = true, out
	}
}

// matrix returns the matrix of a shape, which there is once.
func (r *randomProgram) matrix(f quant.Format, rows, cols int) program.WeightID {
	m := quant.Matrix{Format: f, Layout: quant.Blocks, Rows: rows, Cols: cols}
	if !f.Codes() {
		m.Layout = quant.Rows
	}
	id, ok := r.matrices[m]
	if !ok {
		id = program.WeightID(len(r.p.Weights))
		r.p.Weights = append(r.p.Weights, r.w.Add(m))
		r.matrices[m] = id
	}
	return id
}

// vector returns the weight of a norm, or none.
func (r *randomProgram) vector(cols int) program.WeightID {
	if r.chance(40) {
		return program.None
	}
	return r.matrix(quant.F32, 1, cols)
}

// rounding draws static grids.
func (r *randomProgram) rounding() (g program.Rounding) {
	if r.chance(40) {
		g.InScale = 0.02 + 0.01*float32(r.rng.IntN(3))
	}
	if r.chance(30) {
		g.OutScale = 0.03
	}
	return g
}

// op appends an operation of any kind, or several that make up an attention.
func (r *randomProgram) op() {
	kinds := []struct {
		weight int
		add    func() bool
	}{
		{20, r.norm}, {20, r.addNorm}, {25, r.linear}, {8, r.gateUp}, {12, r.geluMul}, {6, r.addMul}, {5, r.softcap}, {10, r.attention}, {3, r.embed},
	}
	for {
		n := r.rng.IntN(109)
		for _, k := range kinds {
			if n -= k.weight; n < 0 {
				if k.add() {
					return
				}
				break
			}
		}
	}
}

// embed appends a gather.
func (r *randomProgram) embed() bool {
	if r.selected {
		return false
	}
	out := r.output(wide)
	r.add(program.Op{Embed: &program.Embed{Table: r.matrix(quant.Int4, vocab, wide), Out: out, Mul: 3}}, out)
	return true
}

// norm appends a norm of any kind.
func (r *randomProgram) norm() bool {
	o := &program.Norm{In: r.input(0), Eps: 1e-6, Rotation: program.None}
	o.Cols = r.cols(o.In)
	o.Out = r.output(o.Cols)
	switch {
	case r.chance(15):
		r.normHeads(o.In, o.Out, program.None)
		return true
	case r.chance(15):
		r.normHeads(o.In, o.Out, 0)
		return true
	}
	o.Weight = r.vector(o.Cols)
	r.add(program.Op{Norm: o}, o.Out)
	return true
}

// normHeads appends a norm of heads.
func (r *randomProgram) normHeads(in, out program.BufferID, rotation program.RotationID) {
	r.add(program.Op{Norm: &program.Norm{In: in, Out: out, Weight: r.vector(headDim), Cols: headDim, Eps: 1e-6, Rotation: rotation}}, out)
}

// addNorm appends an addition, most often to the state.
func (r *randomProgram) addNorm() bool {
	state := r.p.State
	if !r.live[state] || r.chance(40) {
		state = r.draw(0, r.live, nil)
	}
	in := r.input(r.cols(state), state)
	if in < 0 {
		return false
	}
	r.add(program.Op{AddNorm: &program.AddNorm{State: state, In: in, Weight: r.vector(r.cols(in)), Eps: 1e-6, Mul: []float32{0, 0.8}[r.rng.IntN(2)]}}, state)
	return true
}

// linear appends a product, at times with what the last one multiplied.
func (r *randomProgram) linear() bool {
	if l := r.product; l != nil && r.live[l.In] && r.chance(30) {
		var outs []program.BufferID
		if r.chance(15) {
			outs = append(outs, l.Parts[r.rng.IntN(len(l.Parts))].Out)
		}
		r.parts(&program.Linear{Weight: l.Weight, In: l.In, Mul: l.Mul}, 1, outs...)
		return true
	}
	o := &program.Linear{In: r.input(0), Mul: []float32{0, 0, 0.5}[r.rng.IntN(3)]}
	cols := r.cols(o.In)
	switch {
	case r.chance(20):
		o.Weight = r.matrix(quant.BF16, matrixRows, cols)
	case r.chance(40):
		o.Weight = r.matrix(quant.Int4x32, matrixRows, cols)
	case cols == wide && r.chance(20):
		o.Weight = r.matrix(quant.Int4, vocab, wide) // the table
	default:
		o.Weight = r.matrix(quant.Int4, matrixRows, cols)
	}
	n := 1
	if r.chance(30) {
		n = 2 + r.rng.IntN(4)
	}
	r.parts(o, n)
	// A gate by what the product computes, too.
	if b := []program.BufferID{o.In, r.p.State}[r.rng.IntN(2)]; r.chance(30) {
		r.gate(r.last, b, r.last)
	}
	return true
}

// parts appends a product of so many parts, or fewer, one of them into each of some buffers.
func (r *randomProgram) parts(o *program.Linear, n int, outs ...program.BufferID) {
	for len(outs) < n {
		cols := []int{wide, wide, narrow, narrow, vocab}[r.rng.IntN(5)]
		out := r.output(cols, append(outs, o.In)...)
		if out < 0 {
			break
		}
		outs = append(outs, out)
	}
	r.rng.Shuffle(len(outs), func(i, j int) { outs[i], outs[j] = outs[j], outs[i] })
	m := r.p.Weights[o.Weight].Matrix
	for _, out := range outs {
		rows := r.cols(out)
		part := program.Part{First: quant.BlockRows * r.rng.IntN((m.Rows-rows)/quant.BlockRows+1), Rows: rows, Out: out}
		if m.Codes() {
			part.Rounding = r.rounding()
		}
		o.Parts = append(o.Parts, part)
		r.live[out] = true
	}
	r.product = o
	r.add(program.Op{Linear: o}, outs[len(outs)-1])
}

// multiply appends a packed product of one buffer into another.
func (r *randomProgram) multiply(in, out program.BufferID) {
	r.parts(&program.Linear{Weight: r.matrix(quant.Int4, matrixRows, r.cols(in)), In: in}, 1, out)
}

// gateUp appends a gated product.
func (r *randomProgram) gateUp() bool {
	in := r.input(0)
	out := r.output(0, in)
	f := []quant.Format{quant.Int4, quant.Int4x32}[r.rng.IntN(2)]
	o := &program.GateUp{Weight: r.matrix(f, 2*r.cols(out), r.cols(in)), In: in, Out: out, Gate: r.rounding(), Up: r.rounding()}
	r.add(program.Op{GateUp: o}, out)
	return true
}

// geluMul appends a gated product of numbers, most often in place.
func (r *randomProgram) geluMul() bool {
	a := r.input(0)
	b := r.draw(0, r.live, []program.BufferID{a})
	if b < 0 {
		return false
	}
	out := a
	if r.chance(20) {
		out = r.output(r.cols(a), b)
	}
	return r.gate(a, b, out)
}

// gate appends a gated product of some buffers, and reports whether there can be one.
func (r *randomProgram) gate(a, b, out program.BufferID) bool {
	if b == out || !r.live[b] || r.cols(b) < r.cols(a) {
		return false
	}
	r.add(program.Op{GELUMul: &program.GELUMul{A: a, B: b, First: r.rng.IntN(r.cols(b) - r.cols(a) + 1), Out: out}}, out)
	return true
}

// addMul appends a sum.
func (r *randomProgram) addMul() bool {
	a := r.input(0)
	o := &program.AddMul{A: a, B: r.draw(r.cols(a), r.live, nil), Out: r.output(r.cols(a)), Mul: 0.7}
	r.add(program.Op{AddMul: o}, o.Out)
	return true
}

// softcap appends a cap.
func (r *randomProgram) softcap() bool {
	id := r.input(0)
	r.add(program.Op{Softcap: &program.Softcap{Buffer: id, Cap: 2}}, id)
	return true
}

// attention appends an attention, with most of what is usual before it.
func (r *randomProgram) attention() bool {
	id := program.CacheID(r.rng.IntN(len(r.p.Caches)))
	c := r.p.Caches[id]
	query := r.input(wide)
	if query < 0 || !r.stored[id] && !r.store(id, query) {
		return false
	}
	if r.chance(10) {
		r.op()
	}
	if !r.selected && r.chance(20) {
		r.choose()
	}
	if !r.live[query] {
		return true
	}
	if r.chance(85) {
		r.normHeads(query, query, 0)
	}
	out := r.output(wide, query)
	r.add(program.Op{Attention: &program.Attention{Cache: id, Query: query, Out: out, Heads: wide / c.HeadDim, Scale: 0.25}}, out)
	return true
}

// store appends the writing of a cache before a query asks for it, and reports
// whether it can be written. At times one buffer is for more than one thing.
func (r *randomProgram) store(id program.CacheID, query program.BufferID) bool {
	cols := r.p.Caches[id].KVHeads * headDim
	key, value := r.input(cols), r.input(cols)
	if r.selected || key < 0 {
		return false
	}
	if r.chance(15) && r.cols(query) == cols {
		key = query
	}
	if r.chance(85) {
		in := value
		if r.chance(30) {
			value = r.output(cols)
		}
		switch {
		case r.chance(15):
			value = key
		case r.chance(15) && r.cols(query) == cols:
			value = query
		}
		o := &program.Norm{In: in, Out: value, Weight: program.None, Cols: headDim, Eps: 1e-6, Rotation: program.None}
		r.add(program.Op{Norm: o}, value)
	}
	if r.chance(85) {
		r.normHeads(key, key, 0)
	}
	r.add(program.Op{Store: &program.Store{Cache: id, Key: key, Value: value}}, -1)
	r.stored[id] = true
	return true
}

// choose appends the select, unless there is one, of most of what is live.
func (r *randomProgram) choose() {
	if r.selected {
		return
	}
	r.selected = true
	o := &program.Select{}
	kept := make([]bool, len(r.live))
	for len(o.Buffers) == 0 {
		for i, live := range r.live {
			if live && r.chance(80) {
				kept[i] = true
				o.Buffers = append(o.Buffers, program.BufferID(i))
			}
		}
	}
	r.rng.Shuffle(len(o.Buffers), func(i, j int) { o.Buffers[i], o.Buffers[j] = o.Buffers[j], o.Buffers[i] })
	r.live = kept
	r.add(program.Op{Select: o}, -1)
}

// head appends what makes the logits.
func (r *randomProgram) head() {
	logits := r.p.Logits
	in := r.input(0, logits)
	if in < 0 { // nothing but old logits
		in = r.output(wide)
		r.multiply(logits, in)
	}
	switch r.rng.IntN(6) {
	case 0: // as usual
		if r.cols(in) == r.cols(r.p.Hidden) && r.p.Hidden != in {
			r.add(program.Op{Norm: &program.Norm{In: in, Out: r.p.Hidden, Weight: r.vector(r.cols(in)), Cols: r.cols(in), Eps: 1e-6, Rotation: program.None}}, r.p.Hidden)
			in = r.p.Hidden
		}
		r.multiply(in, logits)
	case 1:
		r.parts(&program.Linear{Weight: r.matrix(quant.BF16, matrixRows, r.cols(in)), In: in}, 1, logits)
	case 2:
		r.parts(&program.Linear{Weight: r.matrix(quant.Int4x32, matrixRows, r.cols(in)), In: in}, 2+r.rng.IntN(3), logits)
	case 3:
		other := r.output(vocab, logits, in)
		r.multiply(in, other)
		r.add(program.Op{AddMul: &program.AddMul{A: other, B: other, Out: logits, Mul: 0.3}}, logits)
	case 4:
		r.add(program.Op{GateUp: &program.GateUp{Weight: r.matrix(quant.Int4, 2*vocab, r.cols(in)), In: in, Out: logits, Gate: r.rounding()}}, logits)
	case 5:
		other := r.output(vocab, logits, in)
		r.multiply(in, other)
		r.add(program.Op{Norm: &program.Norm{In: other, Out: logits, Weight: r.vector(vocab), Cols: vocab, Eps: 1e-6, Rotation: program.None}}, logits)
	}
	for range r.rng.IntN(3) {
		r.add(program.Op{Softcap: &program.Softcap{Buffer: logits, Cap: 5}}, logits)
	}
}
