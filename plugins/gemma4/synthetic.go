package gemma4

import (
	"context"
	"fmt"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// activationStep is about the step of the static grids and of the int8 caches of
// synthetic packs: 127 of them reach beyond the numbers around 1 that norms give.
const activationStep = 0.04

// Shapes are those of a model whose weights can be made up.
type Shapes struct {
	// Config is a config.json.
	Config []byte
	// Recipe is that of [Convert].
	Recipe map[string]string
}

// source returns a source of random weights in the shapes, and the recipe of a conversion.
func (s Shapes) source() (synthetic, map[string]string, error) {
	cfg, err := ParseConfig(s.Config)
	if err != nil {
		return synthetic{}, nil, err
	}
	recipe, grid, err := checkRecipe(cfg, s.Recipe)
	return synthetic{cfg, grid}, recipe, err
}

// Synthesize writes a pack of random weights into req.Dir, under the name and version of a
// plugin: in the formats that the rules of the quantization_config or the recipe give,
// with scales that keep the activations around 1, and, in the mobile layout, with
// static grids for activations and caches. It goes the way of [Convert] but for the
// checkpoint, so that such a pack always is as one of the real weights would be. The
// same shapes give the same bytes everywhere; req.Model does not matter.
func Synthesize(ctx context.Context, id zoo.PluginID, shapes Shapes, req zoo.SynthesizeRequest) error {
	src, recipe, err := shapes.source()
	if err != nil {
		return err
	}
	pack, err := newPlan(ctx, src.cfg, src)
	if err != nil {
		return err
	}
	pack.Plugin, pack.Recipe = id, recipe
	return pack.WriteSynthetic(ctx, req, shapes.Config, src.cfg.Text.VocabSize)
}

// SyntheticProgram records the decoder of the pack that [Synthesize] writes, without
// making any weights: what a full-size model would do can so be told without it.
func SyntheticProgram(ctx context.Context, shapes Shapes) (*program.Program, error) {
	src, _, err := shapes.source()
	if err != nil {
		return nil, err
	}
	pack, err := newPlan(ctx, src.cfg, src)
	if err != nil {
		return nil, err
	}
	return Record(pack.Manifest(), src.cfg)
}

// synthetic is a source of random numbers, which follow from the names of modules.
type synthetic struct {
	cfg *Config
	// grid is what weights are rounded to where the configuration has no codes, or "".
	grid quant.Grid
}

// format returns the format and the scales in a row of a module.
func (s synthetic) format(m module) (quant.Format, int, error) {
	if s.cfg.Quantization == nil {
		if gridFor(m, s.grid) == "" {
			return quant.BF16, 0, nil
		}
		if m.cols%quant.Int4x32.Group != 0 {
			return quant.Format{}, 0, &checkpoint.TensorError{Tensor: fullName(m.name), Problem: fmt.Sprintf("%d columns do not fill blocks of %d", m.cols, quant.Int4x32.Group)}
		}
		return quant.Int4x32, m.cols / quant.Int4x32.Group, nil
	}
	bits, err := s.cfg.Quantization.Bits(fullName(m.name), m.kind == table)
	switch {
	case err != nil:
		return quant.Format{}, 0, err
	case bits == 0:
		return quant.BF16, 0, nil
	case m.cols*bits%8 != 0:
		return quant.Format{}, 0, &checkpoint.TensorError{Tensor: fullName(m.name), Problem: fmt.Sprintf("%d columns of %d bits do not fill bytes", m.cols, bits)}
	}
	format, groups := quant.Format{Bits: bits, Scale: quant.ScaleF32}, 1
	if layers := s.cfg.Text.NumHiddenLayers; m.name == "embed_tokens_per_layer" && layers > 1 {
		groups = layers
		format.Group = m.cols / groups
	}
	return format, groups, nil
}

// weights implements source. The head repeats the embedding.
func (s synthetic) weights(_ context.Context, m module) (*packing.Matrix, error) {
	if m.name == headName && s.cfg.TieWordEmbeddings {
		return nil, nil
	}
	format, groups, err := s.format(m)
	if err != nil {
		return nil, err
	}
	name := m.name
	if name == headName {
		name = "embed_tokens"
	}
	span := m.cols
	if m.kind == table && groups > 0 {
		span /= groups
	}
	return packing.NewNoise(name).Matrix(m.name, format, m.rows, m.cols, span), nil
}

// vector implements source.
func (synthetic) vector(m module) ([]float32, error) {
	return packing.NewNoise(m.name).Vector(m.cols), nil
}

// number implements source.
func (s synthetic) number(c constant) (float32, bool, error) {
	n := packing.NewNoise(c.name)
	if c.scale {
		if s.cfg.Quantization == nil {
			return 0, false, nil
		}
		return n.Around(activationStep), true, nil
	}
	return n.Around(0.75), true, nil // the factor after a layer
}

// rounding implements source. The head has no grids, as in the official layout, and nothing has any where the weights were floats.
func (s synthetic) rounding(m module) (in, out float32, err error) {
	if m.name == headName || s.cfg.Quantization == nil {
		return 0, 0, nil
	}
	n := packing.NewNoise(m.name + ".rounding")
	return n.Around(activationStep), n.Around(activationStep), nil
}

// finish implements source: there is nothing to be left over.
func (synthetic) finish() error { return nil }

// files implements source.
func (synthetic) files() []string { return nil }
