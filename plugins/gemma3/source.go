package gemma3

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// source reads the weights of one kind of checkpoint.
type source interface {
	// matrix returns a matrix as the pack keeps it, or nil if the checkpoint has none of that name.
	matrix(m module) (*packing.Matrix, error)
	// vector returns the weights of a norm, with 1 added.
	vector(m module) ([]float32, error)
	// name returns what the checkpoint calls a module.
	name(m module) string
	// finish reports a tensor that nothing has asked for.
	finish() error
}

// unplaced reports a tensor that nothing has asked for.
func unplaced(name string) error {
	return &checkpoint.TensorError{Tensor: name, Problem: "the configuration gives it no place"}
}

// floats reads safetensors of bfloat16 weights.
type floats struct {
	ckpt *checkpoint.Checkpoint
	// grid is what matrices are rounded to, "" to keep them as they are.
	grid quant.Grid
	// asked holds the names of all tensors that something has asked for.
	asked map[string]bool
	// plain are the matrices as the checkpoint has them.
	plain []*packing.Matrix
}

// name implements source.
func (s *floats) name(m module) string {
	if m.name == headName {
		return m.name + ".weight"
	}
	return "model." + m.name + ".weight"
}

// tensor returns the tensor of a module and notes that it was asked for.
func (s *floats) tensor(m module) (checkpoint.Tensor, bool) {
	name := s.name(m)
	s.asked[name] = true
	return s.ckpt.Tensor(name)
}

// matrix implements source.
func (s *floats) matrix(m module) (*packing.Matrix, error) {
	t, ok := s.tensor(m)
	if !ok {
		return nil, nil
	}
	if err := t.Check("config.json gives another shape, and weights are bfloat16", checkpoint.BF16, []int{m.rows, m.cols}); err != nil {
		return nil, err
	}
	plain, err := packing.BF16(m.name, t)
	if err != nil || s.grid == "" {
		return plain, err
	}
	s.plain = append(s.plain, plain)
	return plain.Round(s.grid)
}

// vector implements source.
func (s *floats) vector(m module) ([]float32, error) {
	t, ok := s.tensor(m)
	if !ok {
		return nil, &checkpoint.TensorError{Tensor: s.name(m), Problem: "missing from the checkpoint"}
	}
	if err := t.Check("config.json gives another size", t.DType, []int{m.cols}); err != nil {
		return nil, err
	}
	v, err := t.Floats()
	for i := range v {
		v[i]++
	}
	return v, err
}

// finish implements source.
func (s *floats) finish() error {
	for _, name := range s.ckpt.Names() {
		if !s.asked[name] {
			return unplaced(name)
		}
	}
	return nil
}

// files names the files that hold the weights, and that say where they are.
func (s *floats) files() []string {
	files := map[string]bool{}
	for _, name := range s.ckpt.Names() {
		t, _ := s.ckpt.Tensor(name)
		files[t.File] = true
		if t.File != checkpoint.WeightsFile { // a shard, which the index names
			files[checkpoint.IndexFile] = true
		}
	}
	return slices.Sorted(maps.Keys(files))
}

// packed reads a GGUF file.
type packed struct {
	file  *gguf.File
	asked map[string]bool
}

// name implements source.
func (s *packed) name(m module) string { return m.gguf + ".weight" }

// tensor returns the tensor of a module, which must have that shape if it is there.
func (s *packed) tensor(m module, shape ...int) (gguf.Tensor, bool, error) {
	name := s.name(m)
	s.asked[name] = true
	t, ok := s.file.Tensor(name)
	if ok && !slices.Equal(t.Shape, shape) {
		return t, ok, &checkpoint.TensorError{Tensor: name, Problem: "the metadata gives another shape", Want: fmt.Sprint(shape), Got: fmt.Sprint(t.Shape)}
	}
	return t, ok, nil
}

// matrix implements source.
func (s *packed) matrix(m module) (*packing.Matrix, error) {
	t, ok, err := s.tensor(m, m.rows, m.cols)
	if !ok || err != nil {
		return nil, err
	}
	return packing.GGUF(m.name, t)
}

// vector implements source. The 1 has been added already.
func (s *packed) vector(m module) ([]float32, error) {
	t, ok, err := s.tensor(m, m.cols)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, &checkpoint.TensorError{Tensor: s.name(m), Problem: "missing from the file"}
	}
	return packing.GGUFVector(t)
}

// finish implements source.
func (s *packed) finish() error {
	for _, t := range s.file.Tensors() {
		if !s.asked[t.Name] {
			return unplaced(t.Name)
		}
	}
	return nil
}

// ggufSuffix tells GGUF files, and ggufSource is the name under which the sources of a pack
// list them: their own is a matter of taste, and the same bytes make the same pack.
const (
	ggufSuffix = ".gguf"
	ggufSource = "model.gguf"
)

// shard matches the names that llama.cpp gives to the parts of a model, and how many there are.
var shard = regexp.MustCompile(`-[0-9]{5}-of-([0-9]{5})\.gguf$`)

// ggufFile returns the only name of a GGUF file among names, "" if there is none or if
// there are safetensors, too. If there are several, choose says what to do.
func ggufFile(names []string, choose string) (string, error) {
	if slices.Contains(names, checkpoint.WeightsFile) || slices.Contains(names, checkpoint.IndexFile) {
		return "", nil
	}
	files := slices.DeleteFunc(slices.Sorted(slices.Values(names)), func(n string) bool { return !strings.HasSuffix(n, ggufSuffix) })
	for _, name := range files {
		switch parts := shard.FindStringSubmatch(name); {
		case parts != nil && parts[1] != "00001":
			return "", usage("take a file that holds the whole model, or make one of the parts with `llama-gguf-split --merge`", "%q is only a part of a model", shorten(name))
		case strings.Contains(name, "/"):
			return "", usage("take a GGUF file that lies at the top of its repository", "%q lies in a folder of its own, where a conversion does not see it", shorten(name))
		}
	}
	switch len(files) {
	case 0:
		return "", nil
	case 1:
		return files[0], nil
	}
	return "", usage(choose, "there are several GGUF files, %q and %q", shorten(files[0]), shorten(files[1]))
}

// plan works out the tensors of the pack, and checks all of the checkpoint but the numbers of matrices.
func plan(ctx context.Context, cfg *Config, src source) ([]*packing.Tensor, error) {
	var all []*packing.Tensor
	var embedding *packing.Matrix
	for _, g := range cfg.groups() {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if m := g.modules[0]; m.norm() {
			v, err := src.vector(m)
			if err != nil {
				return nil, err
			}
			t, err := packing.NewVector(m.name, v)
			if err != nil {
				return nil, err
			}
			all = append(all, t)
			continue
		}
		var parts []*packing.Matrix
		for _, m := range g.modules {
			w, err := src.matrix(m)
			switch {
			case err != nil:
				return nil, err
			case w != nil:
				parts = append(parts, w)
			case m.name != headName || !cfg.TieWordEmbeddings:
				return nil, &checkpoint.TensorError{Tensor: src.name(m), Problem: "missing from the checkpoint"}
			}
		}
		if g.name == headName && len(parts) > 0 {
			same, err := packing.Equal(ctx, embedding, parts[0])
			switch {
			case err != nil:
				return nil, err
			case same:
				parts = nil
			case cfg.TieWordEmbeddings:
				return nil, &checkpoint.TensorError{Tensor: src.name(g.modules[0]), Problem: "differs from the embedding, though config.json says that they are one (tie_word_embeddings)"}
			}
		}
		if len(parts) == 0 {
			continue
		}
		if embedding == nil {
			embedding = parts[0]
		}
		tensors, err := packing.Group(g.name, g.arrangement, parts...)
		if err != nil {
			return nil, err
		}
		all = append(all, tensors...)
	}
	return all, src.finish()
}
