package gemma4

import (
	"context"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// planner works out what a pack of this family holds besides its small files.
type planner struct {
	cfg  *Config
	src  source
	pack *packing.Pack
	// embedding is the first matrix.
	embedding *packing.Matrix
}

// newPlan works out the pack's tensors and constants and checks all of the
// checkpoint but the numbers of matrices.
func newPlan(ctx context.Context, cfg *Config, src source) (*packing.Pack, error) {
	p := &planner{cfg: cfg, src: src, pack: &packing.Pack{Constants: map[string]float32{}}}
	for _, g := range decoderGroups(cfg) {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if err := p.addGroup(ctx, g); err != nil {
			return nil, err
		}
	}
	constants := p.pack.Constants
	for _, c := range decoderConstants(cfg) {
		v, ok, err := src.number(c)
		if err != nil {
			return nil, err
		}
		if c.required && v == 0 {
			return nil, &checkpoint.TensorError{Tensor: fullName(c.name), Problem: "0, which would wipe out the hidden state"}
		}
		if ok && v != 0 {
			constants[c.name] = v
		}
	}
	for i := range cfg.Text.NumHiddenLayers {
		attn := layerName(i) + "self_attn."
		if (constants[attn+"k_cache_scale"] == 0) != (constants[attn+"v_cache_scale"] == 0) {
			return nil, &checkpoint.TensorError{Tensor: fullName(attn + "k_cache_scale"), Problem: "keys and values must both have a scale for the cache, or neither"}
		}
	}
	return p.pack, src.finish()
}

// add adds tensors.
func (p *planner) add(tensors ...*packing.Tensor) {
	p.pack.Tensors = append(p.pack.Tensors, tensors...)
}

// addGroup adds the tensors that hold a group's modules.
func (p *planner) addGroup(ctx context.Context, g group) error {
	if m := g.modules[0]; m.kind == norm {
		v, err := p.src.vector(m)
		if err != nil {
			return err
		}
		t, err := packing.NewVector(g.name, v)
		p.add(t)
		return err
	}
	parts := make([]*packing.Matrix, len(g.modules))
	for i, m := range g.modules {
		w, err := p.src.weights(ctx, m)
		if err != nil {
			return err
		}
		if w == nil {
			if m.name == headName && p.cfg.TieWordEmbeddings {
				return nil
			}
			return &checkpoint.TensorError{Tensor: fullName(m.name), Problem: "the checkpoint has no weights of this module"}
		}
		if m.kind == linear && w.Codes() {
			if err := p.addRounding(m); err != nil {
				return err
			}
		}
		parts[i] = w
	}
	if g.name == headName {
		same, err := packing.Equal(ctx, p.embedding, parts[0])
		if err != nil || same {
			return err
		}
		if p.cfg.TieWordEmbeddings {
			return &checkpoint.TensorError{Tensor: fullName(headName), Problem: "differs from the embedding, though config.json says that they are one (tie_word_embeddings)"}
		}
	}
	if p.embedding == nil {
		p.embedding = parts[0]
	}
	if g.gathered {
		t, err := packing.NewTable(parts[0])
		p.add(t)
		return err
	}
	tensors, err := packing.Group(g.name, g.arrangement, parts...)
	p.add(tensors...)
	return err
}

// addRounding adds the static grids of a linear layer.
func (p *planner) addRounding(m module) error {
	in, out, err := p.src.rounding(m)
	if err != nil {
		return err
	}
	if in != 0 {
		p.pack.Constants[m.name+".input_activation_scale"] = in
	}
	if out != 0 {
		p.pack.Constants[m.name+".output_activation_scale"] = out
	}
	return nil
}
