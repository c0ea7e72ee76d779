package gemma4

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// packPlan is everything that a pack of this family holds besides its small files.
type packPlan struct {
	tensors   []*packTensor
	constants map[string]float32
}

// packTensor is one tensor of the pack and where its numbers come from: a vector,
// or the weights of one or more modules.
type packTensor struct {
	zoo.PlannedTensor
	vector []float32
	parts  []*weights
	arrangement
}

// newPlan works out the pack's tensors and constants and checks all of the
// checkpoint but the numbers of matrices.
func newPlan(ctx context.Context, cfg *Config, src source) (*packPlan, error) {
	p := &packPlan{constants: map[string]float32{}}
	for _, g := range decoderGroups(cfg) {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if err := p.addGroup(ctx, cfg, src, g); err != nil {
			return nil, err
		}
	}
	for _, c := range decoderConstants(cfg) {
		v, ok, err := src.number(c)
		if err != nil {
			return nil, err
		}
		if c.required && v == 0 {
			return nil, &TensorError{Tensor: fullName(c.name), Problem: "0, which would wipe out the hidden state"}
		}
		if ok && v != 0 {
			p.constants[c.name] = v
		}
	}
	for i := range cfg.Text.NumHiddenLayers {
		attn := layerName(i) + "self_attn."
		if (p.constants[attn+"k_cache_scale"] == 0) != (p.constants[attn+"v_cache_scale"] == 0) {
			return nil, &TensorError{Tensor: fullName(attn + "k_cache_scale"), Problem: "keys and values must both have a scale for the cache, or neither"}
		}
	}
	return p, src.finish()
}

// addGroup adds the tensors that hold a group's modules.
func (p *packPlan) addGroup(ctx context.Context, cfg *Config, src source, g group) error {
	if m := g.modules[0]; m.kind == norm {
		v, err := src.vector(m)
		if err != nil {
			return err
		}
		t := &packTensor{vector: v}
		t.Name, t.Matrix = g.name, quant.Matrix{Format: quant.F32, Layout: quant.Rows, Rows: 1, Cols: m.cols}
		return p.add(t)
	}
	parts := make([]*weights, len(g.modules))
	for i, m := range g.modules {
		w, err := src.weights(ctx, m)
		if err != nil {
			return err
		}
		if w == nil {
			if m.name == headName && cfg.TieWordEmbeddings {
				return nil
			}
			return &TensorError{Tensor: fullName(m.name), Problem: "the checkpoint has no weights of this module"}
		}
		if m.kind == linear && w.Codes() {
			if err := p.addRounding(src, m); err != nil {
				return err
			}
		}
		parts[i] = w
	}
	if g.name == headName {
		same, err := sameWeights(ctx, p.embedding(), parts[0])
		if err != nil || same {
			return err
		}
		if cfg.TieWordEmbeddings {
			return &TensorError{Tensor: fullName(headName), Problem: "differs from the embedding, though config.json says that they are one (tie_word_embeddings)"}
		}
	}
	together := !slices.ContainsFunc(parts, func(w *weights) bool { return w.Format != parts[0].Format || !w.Codes() })
	if len(parts) > 1 && together {
		t := &packTensor{parts: parts, arrangement: g.arrangement}
		t.Name, t.Matrix = g.name, matrixOf(parts[0], g.gathered)
		t.Rows = 0
		for _, w := range parts {
			t.Rows += blocks(w.rows) * quant.BlockRows
		}
		return p.add(t)
	}
	for _, w := range parts {
		t := &packTensor{parts: []*weights{w}}
		t.Name, t.Matrix = w.name, matrixOf(w, g.gathered)
		if err := p.add(t); err != nil {
			return err
		}
	}
	return nil
}

// sourceBytes returns what is read of the source for all tensors.
func (p *packPlan) sourceBytes() int64 {
	var n int64
	for _, t := range p.tensors {
		n += t.sourceBytes()
	}
	return n
}

// add adds one tensor.
func (p *packPlan) add(t *packTensor) error {
	if err := t.Matrix.Validate(); err != nil {
		return &TensorError{Tensor: fullName(t.Name), Problem: err.Error()}
	}
	p.tensors = append(p.tensors, t)
	return nil
}

// addRounding adds the static grids of a linear layer.
func (p *packPlan) addRounding(src source, m module) error {
	in, out, err := src.rounding(m)
	if err != nil {
		return err
	}
	if in != 0 {
		p.constants[m.name+".input_activation_scale"] = in
	}
	if out != 0 {
		p.constants[m.name+".output_activation_scale"] = out
	}
	return nil
}

// embedding returns the weights of the embedding, which is the first group.
func (p *packPlan) embedding() *weights { return p.tensors[0].parts[0] }

// matrixOf returns how the weights of one module lie in the pack.
func matrixOf(w *weights, gathered bool) quant.Matrix {
	m := quant.Matrix{Format: w.Format, Layout: quant.Blocks, Rows: w.rows, Cols: w.cols}
	if gathered || !w.Codes() {
		m.Layout = quant.Rows
	}
	return m
}

// sameWeights reports whether two matrices hold the same numbers in the same format.
func sameWeights(ctx context.Context, a, b *weights) (bool, error) {
	if a.Format != b.Format || a.groups != b.groups || a.rows != b.rows || a.cols != b.cols {
		return false, nil
	}
	bufA, bufB := make([]byte, a.codeBytes()), make([]byte, b.codeBytes())
	scalesA, scalesB := make([]float32, a.groups), make([]float32, b.groups)
	for r := range a.rows {
		if r%4096 == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		rowA, errA := a.row(r, bufA, scalesA)
		rowB, errB := b.row(r, bufB, scalesB)
		if err := errors.Join(errA, errB); err != nil {
			return false, err
		}
		if !bytes.Equal(rowA, rowB) || !slices.Equal(scalesA, scalesB) {
			return false, nil
		}
	}
	return true, nil
}

// units returns the number of pieces that the tensor is packed in: blocks, or rows.
func (t *packTensor) units() int {
	if t.Layout == quant.Blocks {
		return t.NumBlocks()
	}
	return t.Rows
}

// unitBytes returns the size of a unit.
func (t *packTensor) unitBytes() int {
	if t.Layout == quant.Blocks {
		return t.BlockBytes()
	}
	return t.RowBytes()
}

// sourceBytes returns what is read of the source for the whole tensor.
func (t *packTensor) sourceBytes() int64 {
	n := int64(len(t.vector)) * 4
	for _, w := range t.parts {
		n += int64(w.rows) * w.rowBytes
	}
	return n
}
