package gemma4

import (
	"context"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// projectionName is the one matrix that no grid rounds: quantisation-aware training left it alone.
const projectionName = "per_layer_model_projection"

// floatsWhy says why a tensor must be bfloat16.
const floatsWhy = "a checkpoint of floats has bfloat16 weights"

// floats reads checkpoints of bfloat16 weights, and rounds those that are multiplied or
// looked up to a grid on the way.
type floats struct {
	tensors
	// grid is "" to keep the weights as they are.
	grid quant.Grid
}

// newFloats returns a source over an open checkpoint, whose configuration has no Quantization.
func newFloats(ckpt *checkpoint.Checkpoint, cfg *Config, grid quant.Grid) *floats {
	return &floats{tensors{ckpt: ckpt, cfg: cfg, asked: map[string]bool{}, parts: []string{".weight"}}, grid}
}

// weights implements source.
func (s *floats) weights(_ context.Context, m module) (*packing.Matrix, error) {
	plain, err := s.bfloats(m, floatsWhy)
	if codes := fullName(m.name) + ".embedding_quantized"; plain == nil && err == nil {
		if _, ok := s.ckpt.Tensor(codes); ok {
			return nil, &checkpoint.TensorError{Tensor: codes, Problem: "codes, though config.json has no quantization_config"}
		}
	}
	if plain == nil || err != nil || gridFor(m, s.grid) == "" {
		return plain, err
	}
	return plain.Round(s.grid)
}

// gridFor returns the grid that the weights of a module are rounded to where others are rounded to grid.
func gridFor(m module, grid quant.Grid) quant.Grid {
	if m.name == projectionName {
		return ""
	}
	return grid
}

// rounding implements source: such checkpoints have no static grids for activations.
func (s *floats) rounding(module) (in, out float32, err error) { return 0, 0, nil }

// roundable returns the matrices that grids round, as they are.
func (s *floats) roundable() ([]*packing.Matrix, error) {
	var all []*packing.Matrix
	for _, g := range decoderGroups(s.cfg) {
		for _, m := range g.modules {
			if m.kind == norm || gridFor(m, quant.GridQ4_0) == "" {
				continue
			}
			plain, err := s.bfloats(m, floatsWhy)
			if err != nil {
				return nil, err
			}
			if plain != nil { // else a head that the embedding stands for
				all = append(all, plain)
			}
		}
	}
	return all, nil
}
