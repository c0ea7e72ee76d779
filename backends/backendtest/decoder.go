package backendtest

import (
	"cmp"

	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// Shape chooses a random decoder.
type Shape struct {
	// Seed draws weights and scales.
	Seed uint64
	// Format is that of the multiplied matrices.
	Format quant.Format
	// Table is the format of the embedding table in blocks, which is also the lm head:
	// where it is not set, int4.
	Table quant.Format
	// Gathered is the format of the table in rows: where it is not set, int4 with a
	// float32 scale for 16 columns.
	Gathered quant.Format
	// Hidden, FFN and HeadDim need not be multiples of anything but what Format asks for.
	Hidden, FFN, HeadDim int
	// Heads share KVHeads.
	Heads, KVHeads int
	// Vocab is the number of tokens and logits.
	Vocab int
	// Window is that of the sliding layer.
	Window int
	// Context is the number of positions.
	Context int
	// Static gives products and caches static grids.
	Static bool
}

// Decoder makes a program of three layers that uses every operation: a sliding
// layer, a full layer behind whose cache the rows are selected, and a layer
// that shares the first one's cache.
func Decoder(s Shape) (*program.Program, *Weights) {
	d := &decoder{
		Shape: s,
		w:     NewWeights(s.Seed),
		p:     &program.Program{Version: program.Version, Vocab: s.Vocab, TokenLimit: s.Vocab, Context: s.Context},
	}
	d.build()
	return d.p, d.w
}

// decoder records a Shape.
type decoder struct {
	Shape
	w *Weights
	p *program.Program
}

// eps is the epsilon of every norm.
const eps = 1e-6

// op appends an operation.
func (d *decoder) op(op program.Op) { d.p.Ops = append(d.p.Ops, op) }

// buffer makes a buffer.
func (d *decoder) buffer(name string, cols int) program.BufferID {
	d.p.Buffers = append(d.p.Buffers, program.Buffer{Name: name, Cols: cols})
	return program.BufferID(len(d.p.Buffers) - 1)
}

// weight makes a random weight.
func (d *decoder) weight(f quant.Format, l quant.Layout, rows, cols int) program.WeightID {
	d.p.Weights = append(d.p.Weights, d.w.Add(quant.Matrix{Format: f, Layout: l, Rows: rows, Cols: cols}))
	return program.WeightID(len(d.p.Weights) - 1)
}

// vector makes a random norm weight.
func (d *decoder) vector(cols int) program.WeightID {
	return d.weight(quant.F32, quant.Rows, 1, cols)
}

// matrix makes a random matrix to multiply.
func (d *decoder) matrix(rows, cols int) program.WeightID {
	return d.weight(d.Format, quant.Blocks, rows, cols)
}

// rounding draws static grids.
func (d *decoder) rounding() program.Rounding {
	if !d.Static {
		return program.Rounding{}
	}
	return program.Rounding{InScale: between(d.w.rng, 0.02, 0.02), OutScale: between(d.w.rng, 0.03, 0.02)}
}

// padded rounds up to whole blocks.
func padded(n int) int { return (n + quant.BlockRows - 1) / quant.BlockRows * quant.BlockRows }

// build records the whole decoder.
func (d *decoder) build() {
	p := d.p
	h, x, branch := d.buffer("h", d.Hidden), d.buffer("x", d.Hidden), d.buffer("branch", d.Hidden)
	side, token := d.buffer("side", 3*16), d.buffer("token", 3*16)
	query, out := d.buffer("query", d.Heads*d.HeadDim), d.buffer("out", d.Heads*d.HeadDim)
	key, value := d.buffer("key", d.KVHeads*d.HeadDim), d.buffer("value", d.KVHeads*d.HeadDim)
	ffn, gate := d.buffer("ffn", d.FFN), d.buffer("gate", 16)
	final, logits := d.buffer("final", d.Hidden), d.buffer("logits", d.Vocab)
	p.State, p.Hidden, p.Logits = h, final, logits

	freqs := make([]float32, d.HeadDim/2)
	for i := range freqs {
		freqs[i] = 1 / float32(int32(1)<<min(i, 20))
	}
	freqs[len(freqs)-1] = 0
	p.Rotations = []program.Rotation{{Freqs: freqs}}

	gathered := quant.Format{Bits: 4, Group: 16, Scale: quant.ScaleF32}
	table := d.weight(cmp.Or(d.Table, quant.Int4), quant.Blocks, d.Vocab, d.Hidden)
	d.op(program.Op{Embed: &program.Embed{Table: table, Out: h, Mul: 3}})
	d.op(program.Op{Embed: &program.Embed{Table: d.weight(cmp.Or(d.Gathered, gathered), quant.Rows, d.Vocab, 48), Out: token, Mul: 2}})
	d.op(program.Op{Linear: &program.Linear{Weight: d.weight(quant.BF16, quant.Rows, 53, d.Hidden), In: h, Parts: []program.Part{{First: 5, Rows: 48, Out: side}}, Mul: 0.5}})
	d.op(program.Op{Norm: &program.Norm{In: side, Out: side, Weight: d.vector(16), Cols: 16, Eps: eps, Rotation: program.None}})
	d.op(program.Op{AddMul: &program.AddMul{A: side, B: token, Out: side, Mul: 0.7}})
	for i := range 3 {
		first := len(p.Ops)
		d.op(program.Op{Norm: &program.Norm{In: h, Out: x, Weight: d.vector(d.Hidden), Cols: d.Hidden, Eps: eps, Rotation: program.None}})
		nq, nk := d.Heads*d.HeadDim, d.KVHeads*d.HeadDim
		qkv := d.matrix(padded(nq)+2*padded(nk), d.Hidden)
		q := program.Part{Rows: nq, Out: query, Rounding: d.rounding()}
		k := program.Part{First: padded(nq), Rows: nk, Out: key, Rounding: q.Rounding}
		v := program.Part{First: padded(nq) + padded(nk), Rows: nk, Out: value, Rounding: d.rounding()}
		cache := program.CacheID(i)
		switch i {
		case 0:
			d.op(program.Op{Linear: &program.Linear{Weight: qkv, In: x, Parts: []program.Part{q, k, v}}})
			d.store(key, value, cache, d.Window)
		case 1:
			d.op(program.Op{Linear: &program.Linear{Weight: qkv, In: x, Parts: []program.Part{k, v}}})
			d.store(key, value, cache, 0)
			d.op(program.Op{Select: &program.Select{Buffers: []program.BufferID{side, h, x}}})
			d.op(program.Op{Linear: &program.Linear{Weight: qkv, In: x, Parts: []program.Part{q}}})
		case 2:
			d.op(program.Op{Linear: &program.Linear{Weight: qkv, In: x, Parts: []program.Part{q}}})
			cache = 0
		}
		d.op(program.Op{Norm: &program.Norm{In: query, Out: query, Weight: d.vector(d.HeadDim), Cols: d.HeadDim, Eps: eps, Rotation: 0}})
		d.op(program.Op{Attention: &program.Attention{Cache: cache, Query: query, Out: out, Heads: d.Heads, Scale: 0.25}})
		d.op(program.Op{Linear: &program.Linear{Weight: d.matrix(d.Hidden, nq), In: out, Parts: []program.Part{{Rows: d.Hidden, Out: branch, Rounding: d.rounding()}}}})
		d.op(program.Op{AddNorm: &program.AddNorm{State: h, In: branch, Weight: d.vector(d.Hidden), Eps: eps}})
		d.op(program.Op{Norm: &program.Norm{In: h, Out: x, Weight: program.None, Cols: d.Hidden, Eps: eps, Rotation: program.None}})
		gated := &program.GateUp{Weight: d.matrix(2*padded(d.FFN), d.Hidden), In: x, Out: ffn, Gate: d.rounding(), Up: d.rounding()}
		if i == 1 {
			gated.Up.InScale = 0 // one on a grid, the other not
		}
		d.op(program.Op{GateUp: gated})
		d.op(program.Op{Linear: &program.Linear{Weight: d.matrix(d.Hidden, d.FFN), In: ffn, Parts: []program.Part{{Rows: d.Hidden, Out: branch, Rounding: d.rounding()}}, Mul: 0.5}})
		d.op(program.Op{AddNorm: &program.AddNorm{State: h, In: branch, Weight: program.None, Eps: eps}})
		d.op(program.Op{Linear: &program.Linear{Weight: d.weight(quant.Int8, quant.Blocks, 16, d.Hidden), In: h, Parts: []program.Part{{Rows: 16, Out: gate, Rounding: d.rounding()}}}})
		d.op(program.Op{GELUMul: &program.GELUMul{A: gate, B: side, First: 16 * i, Out: gate}})
		d.op(program.Op{Linear: &program.Linear{Weight: d.weight(quant.Int8, quant.Blocks, d.Hidden, 16), In: gate, Parts: []program.Part{{Rows: d.Hidden, Out: branch, Rounding: d.rounding()}}}})
		d.op(program.Op{AddNorm: &program.AddNorm{State: h, In: branch, Weight: d.vector(d.Hidden), Eps: eps, Mul: 0.8}})
		p.Layers = append(p.Layers, program.Layer{First: first, End: len(p.Ops)})
	}
	d.op(program.Op{Norm: &program.Norm{In: h, Out: final, Weight: d.vector(d.Hidden), Cols: d.Hidden, Eps: eps, Rotation: program.None}})
	d.op(program.Op{Linear: &program.Linear{Weight: table, In: final, Parts: []program.Part{{Rows: d.Vocab, Out: logits}}}})
	d.op(program.Op{Softcap: &program.Softcap{Buffer: logits, Cap: 30}})
}

// store records norms, rotation and cache of a key and a value.
func (d *decoder) store(key, value program.BufferID, id program.CacheID, window int) {
	c := program.Cache{KVHeads: d.KVHeads, HeadDim: d.HeadDim, Window: window}
	if d.Static {
		c.KeyScale, c.ValueScale = 0.03, 0.025
	}
	d.p.Caches = append(d.p.Caches, c)
	d.op(program.Op{Norm: &program.Norm{In: value, Out: value, Weight: program.None, Cols: d.HeadDim, Eps: eps, Rotation: program.None}})
	d.op(program.Op{Norm: &program.Norm{In: key, Out: key, Weight: d.vector(d.HeadDim), Cols: d.HeadDim, Eps: eps, Rotation: 0}})
	d.op(program.Op{Store: &program.Store{Cache: id, Key: key, Value: value}})
}
