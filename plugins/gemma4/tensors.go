package gemma4

import (
	"encoding/binary"
	"errors"
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

// tensors is what all sources over safetensors have in common: how tensors are found,
// norms and single numbers, and which tensors nothing has asked for.
type tensors struct {
	ckpt *checkpoint.Checkpoint
	cfg  *Config
	// asked holds the names of all tensors that something has asked for.
	asked map[string]bool
	// parts are the ends of the names of the tensors that a linear layer may have.
	parts []string
}

// fullName returns the name of a module, or of a tensor of it, in the checkpoint.
func fullName(name string) string {
	if name == headName || strings.HasPrefix(name, headName+".") {
		return name
	}
	return textPrefix + name
}

// tensor returns a tensor and notes that it was asked for.
func (s *tensors) tensor(name string) (checkpoint.Tensor, bool) {
	s.asked[name] = true
	return s.ckpt.Tensor(name)
}

// need returns a tensor that must be there with a number type and one of the given shapes.
func (s *tensors) need(name string, dtype checkpoint.DType, why string, shapes ...[]int) (checkpoint.Tensor, error) {
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

// bfloats returns a module whose weights the pack keeps as bfloat16, or nil if there are none.
func (s *tensors) bfloats(m module, why string) (*weights, error) {
	name := fullName(m.name) + ".weight"
	if _, ok := s.ckpt.Tensor(name); !ok {
		return nil, nil
	}
	t, err := s.need(name, checkpoint.BF16, why, []int{m.rows, m.cols})
	if err != nil {
		return nil, err
	}
	width := 2 * m.cols
	return &weights{
		module: m, Format: quant.BF16, rowBytes: int64(width),
		row: func(r int, _ []byte, _ []float32) ([]byte, error) {
			row := t.Data[r*width:][:width]
			return row, valueError(name, r*m.cols, quant.CheckBF16(row))
		},
	}, nil
}

// valueError names the tensor of a quant.ValueError in a row that starts with number first.
func valueError(tensor string, first int, err error) error {
	if v, ok := errors.AsType[*quant.ValueError](err); ok {
		at := *v
		at.Index += first
		e := &TensorError{Tensor: tensor, Problem: at.Error(), hint: numberHint}
		if f := float64(v.Value); !math.IsNaN(f) && !math.IsInf(f, 0) {
			e.hint = "no grid with half scales holds such a number: keep the weights as they are, with grid none"
		}
		return e
	}
	return err
}

// vector implements source.
func (s *tensors) vector(m module) ([]float32, error) {
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
func (s *tensors) number(c constant) (float32, bool, error) {
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

// finish implements source.
func (s *tensors) finish() error {
	unused := map[string]bool{}
	modules, constants := unusedModules(s.cfg)
	for _, name := range modules {
		for _, part := range s.parts {
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
func (s *tensors) files() []string {
	files := map[string]bool{}
	for _, name := range s.ckpt.Names() {
		t, _ := s.ckpt.Tensor(name)
		files[t.File] = true
		if t.File != weightsSource { // a shard, which the index names
			files[indexSource] = true
		}
	}
	return slices.Sorted(maps.Keys(files))
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

// numberHint says what to do about a number that no model can have.
const numberHint = "the file is damaged, or the model was never sound: fetch it again, or take another revision"

// notFinite reports number i of a tensor.
func notFinite(tensor string, i int, v float32) error {
	return &TensorError{Tensor: tensor, Problem: fmt.Sprintf("number %d is %v, which no model can have", i, v), hint: numberHint}
}
