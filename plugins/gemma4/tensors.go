package gemma4

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/zoo/packing"
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
		return t, &checkpoint.TensorError{Tensor: name, Problem: "missing from the checkpoint"}
	}
	return t, t.Check(why, dtype, shapes...)
}

// bfloats returns a module whose weights the pack keeps as bfloat16, or nil if there are none.
func (s *tensors) bfloats(m module, why string) (*packing.Matrix, error) {
	name := fullName(m.name) + ".weight"
	if _, ok := s.ckpt.Tensor(name); !ok {
		return nil, nil
	}
	t, err := s.need(name, checkpoint.BF16, why, []int{m.rows, m.cols})
	if err != nil {
		return nil, err
	}
	return packing.BF16(m.name, t)
}

// vector implements source.
func (s *tensors) vector(m module) ([]float32, error) {
	name := fullName(m.name) + ".weight"
	t, ok := s.tensor(name)
	if !ok {
		return nil, &checkpoint.TensorError{Tensor: name, Problem: "missing from the checkpoint"}
	}
	if !slices.Equal(t.Shape, []int{m.cols}) {
		return nil, &checkpoint.TensorError{Tensor: name, Problem: "config.json gives another size", Want: checkpoint.Describe(t.DType, []int{m.cols}), Got: checkpoint.Describe(t.DType, t.Shape)}
	}
	return t.Floats()
}

// number implements source.
func (s *tensors) number(c constant) (float32, bool, error) {
	name := fullName(c.name)
	t, ok := s.tensor(name)
	if !ok {
		if c.required {
			return 0, false, &checkpoint.TensorError{Tensor: name, Problem: "missing from the checkpoint"}
		}
		return 0, false, nil
	}
	if len(t.Shape) > 1 || len(t.Shape) == 1 && t.Shape[0] != 1 {
		return 0, false, &checkpoint.TensorError{Tensor: name, Problem: "not a single number", Want: checkpoint.Describe(t.DType, []int{1}), Got: checkpoint.Describe(t.DType, t.Shape)}
	}
	values, err := t.Floats()
	if err != nil {
		return 0, false, err
	}
	if c.scale && values[0] < 0 {
		return 0, false, &checkpoint.TensorError{Tensor: name, Problem: fmt.Sprintf("the scale %v is negative", values[0])}
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
			return &checkpoint.TensorError{Tensor: name, Problem: "a tensor of the decoder that config.json gives no place"}
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

// readFloats reads as many float32 as dst holds.
func readFloats(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}
