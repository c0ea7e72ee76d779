package gemma4

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// mobile reads the layout of the official mobile checkpoints: packed unsigned
// codes, float32 scales, and static activation scales beside the weights.
type mobile struct{ tensors }

// newMobile returns a source over an open checkpoint, whose configuration has a Quantization.
func newMobile(ckpt *checkpoint.Checkpoint, cfg *Config) *mobile {
	return &mobile{tensors{
		ckpt: ckpt, cfg: cfg, asked: map[string]bool{},
		parts: []string{".weight", ".weight_scale", ".input_activation_scale", ".output_activation_scale"},
	}}
}

// weights implements source.
func (s *mobile) weights(ctx context.Context, m module) (*packing.Matrix, error) {
	full := fullName(m.name)
	codesName, scalesName := full+".weight", full+".weight_scale"
	bits, err := s.cfg.Quantization.Bits(full, m.kind == table)
	if err != nil {
		return nil, err
	}
	if bits == 0 {
		return s.bfloats(m, "the rules of quantization_config leave it unquantised")
	}
	if m.kind == table {
		codesName, scalesName = full+".embedding_quantized", full+".embedding_scale"
	}
	if _, ok := s.ckpt.Tensor(codesName); !ok {
		return nil, nil
	}
	if m.cols*bits%8 != 0 {
		return nil, &checkpoint.TensorError{Tensor: codesName, Problem: fmt.Sprintf("%d columns of %d bits do not fill bytes", m.cols, bits)}
	}
	width := m.cols * bits / 8
	dtype := checkpoint.U8
	if bits == 8 {
		dtype = checkpoint.I8
	}
	why := fmt.Sprintf("config.json gives [%d, %d] codes of %d bits", m.rows, m.cols, bits)
	codes, err := s.need(codesName, dtype, why, []int{m.rows, width})
	if err != nil {
		return nil, err
	}
	shapes := [][]int{{m.rows, 1}}
	if layers := s.cfg.Text.NumHiddenLayers; m.name == "embed_tokens_per_layer" && layers > 1 {
		shapes = append(shapes, []int{m.rows, layers})
	}
	scales, err := s.need(scalesName, checkpoint.F32, "scales of the rows", shapes...)
	if err != nil {
		return nil, err
	}
	if err := checkScales(ctx, scales); err != nil {
		return nil, err
	}
	groups := scales.Shape[1]
	format := quant.Format{Bits: bits, Scale: quant.ScaleF32}
	if groups > 1 {
		format.Group = m.cols / groups
	}
	return &packing.Matrix{
		Name: m.name, Format: format, Rows: m.rows, Cols: m.cols, RowBytes: int64(width + 4*groups),
		Read: func(r int, to *packing.Row) error {
			readFloats(to.Scales, scales.Data[4*groups*r:])
			to.Codes = codes.Data[r*width:][:width]
			return nil
		},
	}, nil
}

// rounding implements source.
func (s *mobile) rounding(m module) (in, out float32, err error) {
	in, _, err = s.number(constant{name: m.name + ".input_activation_scale", scale: true})
	if err != nil {
		return 0, 0, err
	}
	out, _, err = s.number(constant{name: m.name + ".output_activation_scale", scale: true})
	return in, out, err
}

// checkScales reports a scale that is negative or not finite.
func checkScales(ctx context.Context, t checkpoint.Tensor) error {
	for i := 0; i < len(t.Data); i += 4 {
		if i%(1<<20) == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		bits := binary.LittleEndian.Uint32(t.Data[i:])
		if bits <= 0x7f7fffff || bits == 1<<31 { // from 0 to the largest, and minus zero
			continue
		}
		v := math.Float32frombits(bits)
		if v < 0 && !math.IsInf(float64(v), 0) {
			return &checkpoint.TensorError{Tensor: t.Name, Problem: fmt.Sprintf("scale number %d is %v, which is negative", i/4, v)}
		}
		return checkpoint.NotFinite(t.Name, i/4, v)
	}
	return nil
}
