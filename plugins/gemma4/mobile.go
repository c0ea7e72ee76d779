package gemma4

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/quant"
)

// textPrefix starts the name of every tensor of the decoder but those of the head.
// Tensors with other names belong to the towers for images and sound.
const textPrefix = "model.language_model."

// mobile reads the layout of the official mobile checkpoints: packed unsigned
// codes, float32 scales, and static activation scales beside the weights.
type mobile struct {
	ckpt *checkpoint.Checkpoint
	cfg  *Config
	// asked holds the names of all tensors that something has asked for.
	asked map[string]bool
}

// newMobile returns a source over an open checkpoint.
func newMobile(ckpt *checkpoint.Checkpoint, cfg *Config) (*mobile, error) {
	if cfg.Quantization == nil {
		return nil, &UnsupportedError{Field: "quantization_config", Got: "absent", Want: fmt.Sprintf("one with quant_method %q", quantMethod)}
	}
	return &mobile{ckpt: ckpt, cfg: cfg, asked: map[string]bool{}}, nil
}

// fullName returns the name of a module, or of a tensor of it, in the checkpoint.
func fullName(name string) string {
	if name == headName || strings.HasPrefix(name, headName+".") {
		return name
	}
	return textPrefix + name
}

// tensor returns a tensor and notes that it was asked for.
func (s *mobile) tensor(name string) (checkpoint.Tensor, bool) {
	s.asked[name] = true
	return s.ckpt.Tensor(name)
}

// need returns a tensor that must be there with a number type and one of the given shapes.
func (s *mobile) need(name string, dtype checkpoint.DType, why string, shapes ...[]int) (checkpoint.Tensor, error) {
	t, ok := s.tensor(name)
	if !ok {
		return t, &TensorError{Tensor: name, Problem: "missing from the checkpoint"}
	}
	if t.DType != dtype || !slices.ContainsFunc(shapes, func(shape []int) bool { return slices.Equal(shape, t.Shape) }) {
		var want []string
		for _, shape := range shapes {
			want = append(want, describe(dtype, shape))
		}
		return t, &TensorError{Tensor: name, Problem: why, Want: strings.Join(want, " or "), Got: describe(t.DType, t.Shape)}
	}
	return t, nil
}

// describe writes a number type and a shape.
func describe(d checkpoint.DType, shape []int) string {
	return fmt.Sprintf("%s %s", d, strings.ReplaceAll(fmt.Sprint(shape), " ", ", "))
}

// weights implements source.
func (s *mobile) weights(ctx context.Context, m module) (*weights, error) {
	full := fullName(m.name)
	codesName, scalesName := full+".weight", full+".weight_scale"
	bits, err := s.cfg.Quantization.Bits(full, m.kind == table)
	if err != nil {
		return nil, err
	}
	if bits == 0 {
		return s.floats(m, codesName)
	}
	if m.kind == table {
		codesName, scalesName = full+".embedding_quantized", full+".embedding_scale"
	}
	if _, ok := s.ckpt.Tensor(codesName); !ok {
		return nil, nil
	}
	if m.cols*bits%8 != 0 {
		return nil, &TensorError{Tensor: codesName, Problem: fmt.Sprintf("%d columns of %d bits do not fill bytes", m.cols, bits)}
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
	return &weights{
		module: m, Format: format, groups: groups, rowBytes: int64(width + 4*groups),
		row: func(r int, _ []byte, to []float32) []byte {
			readFloats(to, scales.Data[4*groups*r:])
			return codes.Data[r*width:][:width]
		},
	}, nil
}

// floats returns a module whose weights are not codes.
func (s *mobile) floats(m module, name string) (*weights, error) {
	if _, ok := s.ckpt.Tensor(name); !ok {
		return nil, nil
	}
	t, err := s.need(name, checkpoint.BF16, "the rules of quantization_config leave it unquantised", []int{m.rows, m.cols})
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(t.Data); i += 2 {
		if binary.LittleEndian.Uint16(t.Data[i:])&0x7f80 == 0x7f80 {
			return nil, notFinite(name, i/2, quant.BF16ToF32(binary.LittleEndian.Uint16(t.Data[i:])))
		}
	}
	width := 2 * m.cols
	return &weights{
		module: m, Format: quant.BF16, rowBytes: int64(width),
		row: func(r int, _ []byte, _ []float32) []byte { return t.Data[r*width:][:width] },
	}, nil
}

// vector implements source.
func (s *mobile) vector(m module) ([]float32, error) {
	name := fullName(m.name) + ".weight"
	t, ok := s.tensor(name)
	if !ok {
		return nil, &TensorError{Tensor: name, Problem: "missing from the checkpoint"}
	}
	if !slices.Equal(t.Shape, []int{m.cols}) {
		return nil, &TensorError{Tensor: name, Problem: "config.json gives another size", Want: describe(t.DType, []int{m.cols}), Got: describe(t.DType, t.Shape)}
	}
	return toFloats(t)
}

// number implements source.
func (s *mobile) number(c constant) (float32, bool, error) {
	name := fullName(c.name)
	t, ok := s.tensor(name)
	if !ok {
		if c.required {
			return 0, false, &TensorError{Tensor: name, Problem: "missing from the checkpoint"}
		}
		return 0, false, nil
	}
	if len(t.Shape) > 1 || len(t.Shape) == 1 && t.Shape[0] != 1 {
		return 0, false, &TensorError{Tensor: name, Problem: "not a single number", Want: describe(t.DType, []int{1}), Got: describe(t.DType, t.Shape)}
	}
	values, err := toFloats(t)
	if err != nil {
		return 0, false, err
	}
	if c.scale && values[0] < 0 {
		return 0, false, &TensorError{Tensor: name, Problem: fmt.Sprintf("the scale %v is negative", values[0])}
	}
	return values[0], true, nil
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

// finish implements source.
func (s *mobile) finish() error {
	unused := map[string]bool{}
	modules, constants := unusedModules(s.cfg)
	for _, name := range modules {
		for _, part := range []string{".weight", ".weight_scale", ".input_activation_scale", ".output_activation_scale"} {
			unused[fullName(name)+part] = true
		}
	}
	for _, name := range constants {
		unused[fullName(name)] = true
	}
	for _, name := range s.ckpt.Names() {
		ours := fullName(name) == name || strings.HasPrefix(name, textPrefix)
		if ours && !s.asked[name] && !unused[name] {
			return &TensorError{Tensor: name, Problem: "a tensor of the decoder that config.json gives no place"}
		}
	}
	return nil
}

// files implements source.
func (s *mobile) files() []string {
	files := map[string]bool{}
	for _, name := range s.ckpt.Names() {
		t, _ := s.ckpt.Tensor(name)
		files[t.File] = true
	}
	return slices.Sorted(maps.Keys(files))
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
			return &TensorError{Tensor: t.Name, Problem: fmt.Sprintf("scale number %d is %v, which is negative", i/4, v)}
		}
		return notFinite(t.Name, i/4, v)
	}
	return nil
}

// toFloats returns the numbers of a tensor, which float32 holds exactly and which must be finite.
func toFloats(t checkpoint.Tensor) ([]float32, error) {
	size := t.DType.Size()
	values := make([]float32, len(t.Data)/size)
	for i := range values {
		at := t.Data[i*size:]
		switch t.DType {
		case checkpoint.F32:
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(at))
		case checkpoint.BF16:
			values[i] = quant.BF16ToF32(binary.LittleEndian.Uint16(at))
		case checkpoint.F16:
			values[i] = quant.F16ToF32(binary.LittleEndian.Uint16(at))
		default:
			return nil, &TensorError{Tensor: t.Name, Problem: "not floats", Want: "BF16, F16 or F32", Got: string(t.DType)}
		}
		if v := float64(values[i]); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, notFinite(t.Name, i, values[i])
		}
	}
	return values, nil
}

// readFloats reads as many float32 as dst holds.
func readFloats(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// notFinite reports number i of a tensor.
func notFinite(tensor string, i int, v float32) error {
	return &TensorError{Tensor: tensor, Problem: fmt.Sprintf("number %d is %v, which no model can have", i, v)}
}
