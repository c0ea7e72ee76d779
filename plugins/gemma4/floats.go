package gemma4

import (
	"context"
	"fmt"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/quant"
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
func (s *floats) weights(_ context.Context, m module) (*weights, error) {
	plain, err := s.bfloats(m, floatsWhy)
	if codes := fullName(m.name) + ".embedding_quantized"; plain == nil && err == nil {
		if _, ok := s.ckpt.Tensor(codes); ok {
			return nil, &TensorError{Tensor: codes, Problem: "codes, though config.json has no quantization_config"}
		}
	}
	if plain == nil || err != nil || gridFor(m, s.grid) == "" {
		return plain, err
	}
	return s.rounded(plain, s.grid)
}

// gridFor returns the grid that the weights of a module are rounded to where others are rounded to grid.
func gridFor(m module, grid quant.Grid) quant.Grid {
	if m.name == projectionName {
		return ""
	}
	return grid
}

// rounded returns bfloat16 weights rounded to a grid.
func (s *floats) rounded(plain *weights, grid quant.Grid) (*weights, error) {
	name := fullName(plain.name) + ".weight"
	group := quant.Int4x32.Group
	if plain.cols%group != 0 {
		return nil, &TensorError{Tensor: name, Problem: fmt.Sprintf("%d columns do not fill blocks of %d, which grid %q needs", plain.cols, group, grid)}
	}
	data, _ := s.tensor(name)
	width := 2 * plain.cols
	return &weights{
		module: plain.module, Format: quant.Int4x32, groups: plain.cols / group, rowBytes: plain.rowBytes,
		row: func(r int, buf []byte, scales []float32) ([]byte, error) {
			err := grid.RoundBF16(buf, scales, data.Data[r*width:][:width])
			return buf[:plain.cols/2], valueError(name, r*plain.cols, err)
		},
	}, nil
}

// rounding implements source: such checkpoints have no static grids for activations.
func (s *floats) rounding(module) (in, out float32, err error) { return 0, 0, nil }
