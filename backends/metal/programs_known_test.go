package metal_test

import (
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// Buffers of the known programs.
const (
	state program.BufferID = iota
	x
	branch
	other
	hidden
	logits  program.BufferID = 9
	factors program.BufferID = 10
)

// knownPrograms returns programs in which a product reads what it, or what is done
// with it in one kernel, writes, and others that a list of a single row must tell apart from what is usual.
func knownPrograms() (all []*randomProgram) {
	for i, ops := range []func(r *randomProgram){
		// Products over what their own input is computed from.
		func(r *randomProgram) { r.normAll(branch, x); r.multiply(x, branch) },
		func(r *randomProgram) { r.addTo(state, branch); r.multiply(state, branch) },
		func(r *randomProgram) { r.addTo(state, branch); r.normAll(state, x); r.multiply(x, branch) },
		func(r *randomProgram) { r.addTo(state, branch); r.normAll(state, x); r.multiply(x, state) },
		// Additions to a second buffer, and one that is overwritten.
		func(r *randomProgram) { r.addTo(state, branch); r.addTo(other, branch); r.multiply(other, x) },
		func(r *randomProgram) { r.addTo(state, branch); r.multiply(branch, state) },
		// Factors that the same product computes, or that are still to be computed.
		func(r *randomProgram) { r.addTo(state, branch); r.multiply(state, other); r.gate(other, state, other) },
		func(r *randomProgram) { r.normAll(branch, x); r.multiply(x, other); r.gate(other, x, other) },
		func(r *randomProgram) { r.normAll(branch, x); r.multiply(state, other); r.gate(other, x, other) },
		// Two products of the same into the same.
		func(r *randomProgram) { r.multiply(x, other); r.multiply(x, other); r.multiply(x, other) },
		// Keys, values and queries that share a buffer.
		func(r *randomProgram) { r.attend(x, branch, branch, other) },
		func(r *randomProgram) { r.attend(branch, branch, x, other) },
		func(r *randomProgram) { r.attend(x, branch, x, other) },
		// Logits that are the state.
		func(r *randomProgram) { r.p.State = logits },
	} {
		r := newProgram(uint64(i))
		r.p.State, r.p.Hidden, r.p.Logits = state, hidden, logits
		r.add(program.Op{Embed: &program.Embed{Table: r.matrix(quant.Int4, vocab, wide), Out: state, Mul: 3}}, state)
		r.normAll(state, x)
		r.multiply(x, branch)
		r.multiply(x, other)
		r.multiply(other, factors)
		ops(r)
		r.add(program.Op{Select: &program.Select{Buffers: []program.BufferID{state, x, branch, other, factors}}}, -1)
		r.multiply(other, x)
		r.addTo(state, x)
		r.normAll(state, hidden)
		r.multiply(hidden, logits)
		if r.p.State == logits {
			r.addTo(logits, factors)
			r.multiply(logits, x)
		}
		all = append(all, r)
	}
	return all
}

// normAll appends a norm of a whole buffer.
func (r *randomProgram) normAll(in, out program.BufferID) {
	cols := r.cols(in)
	r.add(program.Op{Norm: &program.Norm{In: in, Out: out, Weight: r.matrix(quant.F32, 1, cols), Cols: cols, Eps: 1e-6, Rotation: program.None}}, out)
}

// addTo appends a residual addition.
func (r *randomProgram) addTo(state, in program.BufferID) {
	r.add(program.Op{AddNorm: &program.AddNorm{State: state, In: in, Weight: r.matrix(quant.F32, 1, r.cols(in)), Eps: 1e-6}}, state)
}

// attend appends an attention with the norms before it.
func (r *randomProgram) attend(value, key, query, out program.BufferID) {
	cache := program.CacheID(len(r.p.Caches) - 1) // of wide keys
	r.add(program.Op{Norm: &program.Norm{In: other, Out: value, Weight: program.None, Cols: headDim, Eps: 1e-6, Rotation: program.None}}, value)
	r.normHeads(key, key, 0)
	r.add(program.Op{Store: &program.Store{Cache: cache, Key: key, Value: value}}, -1)
	r.normHeads(query, query, 0)
	r.add(program.Op{Attention: &program.Attention{Cache: cache, Query: query, Out: out, Heads: wide / headDim, Scale: 0.25}}, out)
}
