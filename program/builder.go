package program

import (
	"fmt"
	"slices"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/fmath"
	"github.com/zoo-sdk/zoo/quant"
)

// Builder records a program over the tensors of a pack, operation by operation. Its first
// error sticks and comes out of [Builder.Finish], so that a decoder can be written down
// from front to back. It is not safe for concurrent use.
type Builder struct {
	program  *Program
	matrices map[string]quant.Matrix
	weights  map[string]WeightID
	buffers  map[Buffer]BufferID
	// ups are the buffers of [Builder.GateUp] by their length. No name gives them, so that
	// nothing else lies there.
	ups map[int]BufferID
	err error
}

// NewBuilder starts a program with these limits over the tensors of a pack, by their names.
func NewBuilder(matrices map[string]quant.Matrix, vocab, tokenLimit, context int) *Builder {
	return &Builder{
		program:  &Program{Version: Version, Vocab: vocab, TokenLimit: tokenLimit, Context: context},
		matrices: matrices, weights: map[string]WeightID{}, buffers: map[Buffer]BufferID{}, ups: map[int]BufferID{},
	}
}

// Fail notes an error, which matches fault.ErrIntegrity, unless there is one already.
func (b *Builder) Fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("%w: %s", fault.ErrIntegrity, fmt.Sprintf(format, args...))
	}
}

// Op appends an operation.
func (b *Builder) Op(op Op) { b.program.Ops = append(b.program.Ops, op) }

// Layer appends what record appends, as a layer.
func (b *Builder) Layer(record func()) {
	first := len(b.program.Ops)
	record()
	b.program.Layers = append(b.program.Layers, Layer{First: first, End: len(b.program.Ops)})
}

// Buffer returns the buffer of a purpose and length, the same one for equal arguments.
func (b *Builder) Buffer(name string, cols int) BufferID {
	key := Buffer{Name: name, Cols: cols}
	id, ok := b.buffers[key]
	if !ok {
		id = b.addBuffer(key)
		b.buffers[key] = id
	}
	return id
}

// addBuffer adds a buffer.
func (b *Builder) addBuffer(buffer Buffer) BufferID {
	b.program.Buffers = append(b.program.Buffers, buffer)
	return BufferID(len(b.program.Buffers) - 1)
}

// Cache adds a cache.
func (b *Builder) Cache(c Cache) CacheID {
	b.program.Caches = append(b.program.Caches, c)
	return CacheID(len(b.program.Caches) - 1)
}

// Rotation returns the rotation by these frequencies, the same one for equal ones.
func (b *Builder) Rotation(freqs []float32) RotationID {
	id := slices.IndexFunc(b.program.Rotations, func(r Rotation) bool { return slices.Equal(r.Freqs, freqs) })
	if id < 0 {
		id = len(b.program.Rotations)
		b.program.Rotations = append(b.program.Rotations, Rotation{Freqs: freqs})
	}
	return RotationID(id)
}

// Has reports whether the pack has a tensor.
func (b *Builder) Has(name string) bool { _, ok := b.matrices[name]; return ok }

// Weight returns the weight of a tensor, which the pack must have.
func (b *Builder) Weight(name string) WeightID {
	if id, ok := b.weights[name]; ok {
		return id
	}
	m, ok := b.matrices[name]
	if !ok {
		b.Fail("the pack has no tensor %q", name)
		return None
	}
	id := WeightID(len(b.program.Weights))
	b.program.Weights = append(b.program.Weights, Weight{Name: name, Matrix: m})
	b.weights[name] = id
	return id
}

// Norm appends a norm over runs of cols numbers, with the weights of a tensor, or none if
// the name is "", and without a rotation.
func (b *Builder) Norm(in, out BufferID, weight string, cols int, eps float32) {
	b.RotatedNorm(in, out, weight, cols, eps, None)
}

// RotatedNorm is [Builder.Norm] with a rotation behind it.
func (b *Builder) RotatedNorm(in, out BufferID, weight string, cols int, eps float32, rotation RotationID) {
	id := WeightID(None)
	if weight != "" {
		id = b.Weight(weight)
	}
	b.Op(Op{Norm: &Norm{In: in, Out: out, Weight: id, Cols: cols, Eps: eps, Rotation: rotation}})
}

// Projection is a matrix and where its products go.
type Projection struct {
	// Name is the tensor's if the matrix is alone in it.
	Name string
	Out  BufferID
	Rounding
}

// Linear appends the product of a buffer and a whole tensor.
func (b *Builder) Linear(p Projection, in BufferID) {
	b.Op(Op{Linear: &Linear{Weight: b.Weight(p.Name), In: in, Parts: []Part{{Rows: b.cols(p.Out), Out: p.Out, Rounding: p.Rounding}}}})
}

// cols returns the length of a buffer.
func (b *Builder) cols(id BufferID) int { return b.program.Buffers[id].Cols }

// Project appends the products of a buffer and some of the matrices that may lie stacked,
// each filled up to whole blocks of rows, in the tensor stack. all lists what lies there, in
// this order, and wanted says by index which products are needed. If the pack has no such
// tensor, each matrix is in one of its own.
func (b *Builder) Project(stack string, in BufferID, all []Projection, wanted ...int) {
	if !b.Has(stack) {
		for _, i := range wanted {
			b.Linear(all[i], in)
		}
		return
	}
	first := make([]int, len(all))
	for i := 1; i < len(all); i++ {
		first[i] = first[i-1] + (b.cols(all[i-1].Out)+quant.BlockRows-1)/quant.BlockRows*quant.BlockRows
	}
	l := &Linear{Weight: b.Weight(stack), In: in}
	for _, i := range wanted {
		l.Parts = append(l.Parts, Part{First: first[i], Rows: b.cols(all[i].Out), Out: all[i].Out, Rounding: all[i].Rounding})
	}
	b.Op(Op{Linear: l})
}

// GateUp appends out = gelu_tanh(gate(in)) * up(in). The matrices lie in alternating blocks
// in the tensor both or, if the pack has no such tensor, in their own; the products then go
// to out and to a buffer that no call of [Builder.Buffer] returns. Where gate and up say that
// they go does not matter.
func (b *Builder) GateUp(both string, in, out BufferID, gate, up Projection) {
	if b.Has(both) {
		b.Op(Op{GateUp: &GateUp{Weight: b.Weight(both), In: in, Out: out, Gate: gate.Rounding, Up: up.Rounding}})
		return
	}
	cols := b.cols(out)
	if _, ok := b.ups[cols]; !ok {
		b.ups[cols] = b.addBuffer(Buffer{Name: "up", Cols: cols})
	}
	gate.Out, up.Out = out, b.ups[cols]
	b.Linear(gate, in)
	b.Linear(up, in)
	b.Op(Op{GELUMul: &GELUMul{A: gate.Out, B: up.Out, Out: out}})
}

// Finish returns the program, in which these buffers carry the hidden state, the output
// of the final norm and the logits. Errors are those of [Program.Validate], and those that
// were noted, which match fault.ErrIntegrity.
func (b *Builder) Finish(state, hidden, logits BufferID) (*Program, error) {
	if b.err != nil {
		return nil, b.err
	}
	p := b.program
	p.State, p.Hidden, p.Logits = state, hidden, logits
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// Frequencies returns theta^(-2i/headDim) for each pair i of a head, in float32 as the
// usual reference computes it: the power is rounded, then its inverse. Only the first
// rotated pairs turn; the others have 0. The bits are the same on every machine.
func Frequencies(theta float64, headDim, rotated int) []float32 {
	freqs := make([]float32, headDim/2)
	for i := range min(len(freqs), rotated) {
		exponent := float32(2*i) / float32(headDim)
		freqs[i] = 1 / float32(fmath.Pow(theta, float64(exponent)))
	}
	return freqs
}
