package gemma4

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/checkpoint/litertlm"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// liteRT reads the layout of LiteRT-LM: one .litertlm file with a TFLite model each
// for the decoder, the embedding and the per-layer table.
//
// Codes are two's complement there and unsigned in what row returns; scales are
// those of the rows. The static activation grids are the grids of the tensors
// around a fully connected layer, those of the caches the grids of the tensors that
// go into a cache update. Norms are float32. per_layer_model_projection has codes of
// 8 bits and static grids, unlike in the mobile checkpoints.
//
// # What is known of the files
//
// No file has been at hand here. The names and shapes below are those that several
// public tools found in gemma-4-E2B-it.litertlm (2,588,147,712 bytes) and compared
// with the mobile checkpoint, code for code; their findings agree:
//
//   - The sections' model_type is tf_lite_prefill_decode, tf_lite_embedder and
//     tf_lite_per_layer_embedder. The decoder has a signature "decode" among others
//     that share its weights.
//   - Its 277 fully connected layers have the path of a layer in the name of their
//     weights, such as ".../layer_3/layer_3.post_qkv/mlp/gating_einsum1/.../dot_general".
//     554 grids around them are missing only at the head, which is not rounded.
//   - Norms are composite operators "odml.rms_norm". Their weights have names that
//     mean nothing, so that their outputs tell them apart (".../pre_ffw_norm/composite");
//     the final norm is the one that feeds the head. The norm of values has ones.
//     LiteRT takes what they add to the mean square from their attribute "epsilon", and
//     runs none without it.
//   - The layer scalar is the constant of the MUL "..._maybe_apply_skip_scale/mul".
//   - Caches are inputs "..._kv_cache_k_3" of composite operators "odml.cache_update".
//   - The per-layer table is one table a layer, each looked up by itself. Their
//     names end in "composite", "composite1", ..., which is the order of the layers.
//
// Assumed and not reported by anyone: that the lookups of the per-layer tables are
// joined in the order of their names, which is checked where they meet in one
// operator; that the grid of per_layer_model_projection's output lies on the
// product of the weights as stored, before it is scaled by hidden^-0.5; and that the
// graphs compute what the family does where no weights are: of rotations, attention,
// activations and the factors between layers nothing is read.
//
// Modules are never told apart by their order or shape: what has another name, is
// there twice, or has no place in config.json is an error. So are fully connected
// layers and scalars with a fused activation, weights in another order, sparse
// ones, and norms with an epsilon that is not that of config.json.
type liteRT struct {
	mapping *checkpoint.MappedFile
	file    *litertlm.File
	cfg     *Config
	// linears, norms, scalars and caches are what the decoder has, by the names of the family.
	linears map[string]liteLinear
	norms   map[string]*litertlm.Tensor
	scalars map[string]*litertlm.Tensor
	caches  map[string]*litertlm.Tensor
	// tables are the embedding and the per-layer tables, one for each layer.
	tables map[string][]*litertlm.Tensor
	// asked holds all names that something has asked for.
	asked map[string]bool
}

// liteLinear is a fully connected layer and the activations around it.
type liteLinear struct{ weight, in, out *litertlm.Tensor }

// The model_type of the sections that hold the text decoder.
const (
	liteDecoder  = "tf_lite_prefill_decode"
	liteEmbedder = "tf_lite_embedder"
	litePerLayer = "tf_lite_per_layer_embedder"
)

// The modules that are tables.
const (
	embedName    = "embed_tokens"
	perLayerName = "embed_tokens_per_layer"
)

// newLiteRT opens the file of that name in dir and finds the modules in it.
func newLiteRT(ctx context.Context, dir, name string, cfg *Config) (*liteRT, error) {
	if cfg.Quantization == nil {
		return nil, &checkpoint.UnsupportedError{Field: "quantization_config", Got: "absent", Want: fmt.Sprintf("one with quant_method %q, as that of the mobile checkpoint has", quantMethod)}
	}
	mapping, err := checkpoint.MapFile(dir, name)
	if err != nil {
		return nil, err
	}
	s := &liteRT{
		mapping: mapping, cfg: cfg,
		linears: map[string]liteLinear{}, norms: map[string]*litertlm.Tensor{}, scalars: map[string]*litertlm.Tensor{},
		caches: map[string]*litertlm.Tensor{}, tables: map[string][]*litertlm.Tensor{}, asked: map[string]bool{},
	}
	if s.file, err = litertlm.Parse(name, mapping.Bytes()); err == nil {
		err = s.read(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, mapping.Close())
	}
	return s, nil
}

// Close unmaps the file.
func (s *liteRT) Close() error { return s.mapping.Close() }

// read finds the modules of all models.
func (s *liteRT) read(ctx context.Context) error {
	decoder, err := s.model(ctx, liteDecoder)
	if err != nil {
		return err
	}
	if err := s.readDecoder(ctx, decoder); err != nil {
		return err
	}
	embedder, err := s.model(ctx, liteEmbedder)
	if err != nil {
		return err
	}
	if err := s.readTables(embedder, embedName, 1); err != nil {
		return err
	}
	if s.cfg.Text.HiddenSizePerLayerInput == 0 {
		return nil
	}
	perLayer, err := s.model(ctx, litePerLayer)
	if err != nil {
		return err
	}
	return s.readTables(perLayer, perLayerName, s.cfg.Text.NumHiddenLayers)
}

// model parses the model of a model_type.
func (s *liteRT) model(ctx context.Context, modelType string) (*litertlm.Model, error) {
	var found *litertlm.Section
	for i, section := range s.file.Sections {
		if section.Items[litertlm.ModelTypeKey] != modelType || section.Type != litertlm.TFLiteModel {
			continue
		}
		if found != nil {
			return nil, &litertlm.FormatError{File: s.file.Name, Section: section.String(), Problem: "a model of this model_type is in " + found.String() + " as well"}
		}
		found = &s.file.Sections[i]
	}
	if found == nil {
		return nil, &litertlm.FormatError{File: s.file.Name, Problem: fmt.Sprintf("it has no model of model_type %q", modelType)}
	}
	m, err := litertlm.ParseModel(ctx, found.Data)
	if fe, ok := errors.AsType[*litertlm.FormatError](err); ok {
		fe.File, fe.Section = s.file.Name, found.String()
	}
	return m, err
}

// weights implements source.
func (s *liteRT) weights(ctx context.Context, m module) (*packing.Matrix, error) {
	s.asked[m.name] = true
	parts := s.tables[m.name]
	if m.kind != table {
		l, ok := s.linears[m.name]
		if !ok {
			return nil, nil
		}
		parts = []*litertlm.Tensor{l.weight}
	}
	part := m
	part.cols /= len(parts)
	for _, t := range parts {
		if err := s.checkMatrix(ctx, part, t, parts[0].Type); err != nil {
			return nil, err
		}
	}
	bits := parts[0].Type.Bits()
	if err := s.checkBits(m, bits); err != nil {
		return nil, err
	}
	format := quant.Format{Bits: bits, Scale: quant.ScaleF32}
	if len(parts) > 1 {
		format.Group = part.cols
	}
	width := part.cols * bits / 8
	flip := signBits(bits)
	return &packing.Matrix{
		Name: m.name, Format: format, Rows: m.rows, Cols: m.cols, RowBytes: int64(len(parts) * (width + 4)),
		Read: func(r int, to *packing.Row) error {
			for i, t := range parts {
				to.Scales[i] = t.Quantization.Scale(r)
				codes := t.Data[r*width:][:width]
				if len(parts) == 1 && flip == 0 {
					to.Codes = codes
					return nil
				}
				out := to.Codes[i*width:][:width]
				for k, c := range codes {
					out[k] = c ^ flip
				}
			}
			return nil
		},
	}, nil
}

// signBits returns the bits that differ between a byte of two's complement codes
// and one of unsigned ones; codes of 8 bits are signed everywhere.
func signBits(bits int) byte {
	switch bits {
	case 2:
		return 0b10101010
	case 4:
		return 0b10001000
	}
	return 0
}

// checkMatrix checks that a tensor holds codes of that type with a scale for each row.
func (s *liteRT) checkMatrix(ctx context.Context, m module, t *litertlm.Tensor, want litertlm.TensorType) error {
	bad := func(format string, args ...any) error {
		return &checkpoint.TensorError{Tensor: fullName(m.name), Problem: fmt.Sprintf(format, args...)}
	}
	bits := t.Type.Bits()
	q := t.Quantization
	switch {
	case t.External:
		return bad("its weights are not in its own section of the .litertlm file, which is not supported")
	case t.Sparse:
		return bad("its weights are sparse, which is not supported")
	case len(t.Data) == 0:
		return bad("it has no weights in the .litertlm file")
	case !slices.Equal(t.Shape, []int{m.rows, m.cols}):
		return &checkpoint.TensorError{Tensor: fullName(m.name), Problem: "config.json gives another shape", Want: fmt.Sprint([]int{m.rows, m.cols}), Got: fmt.Sprint(t.Shape)}
	case t.Type != litertlm.Int2 && t.Type != litertlm.Int4 && t.Type != litertlm.Int8:
		return &checkpoint.TensorError{Tensor: fullName(m.name), Problem: "not codes", Want: "INT2, INT4 or INT8", Got: t.Type.String()}
	case t.Type != want:
		return bad("the tables of layers differ in their type: %s and %s", want, t.Type)
	case m.cols*bits%8 != 0:
		return bad("%d columns of %d bits do not fill bytes", m.cols, bits)
	case q == nil || q.Custom || q.Dimension != 0 || q.NumScales() != m.rows:
		return bad("it has not one scale for each of its %d rows", m.rows)
	case !q.Symmetric():
		return bad("it has zero points other than 0")
	}
	return checkScales(ctx, checkpoint.Tensor{Name: fullName(m.name), Data: q.Scales})
}

// checkBits checks the bits of a module against the rules of config.json, unless
// they leave it unquantised.
func (s *liteRT) checkBits(m module, bits int) error {
	want, err := s.cfg.Quantization.Bits(fullName(m.name), m.kind == table)
	if err != nil || want == 0 || want == bits {
		return err
	}
	return &checkpoint.TensorError{Tensor: fullName(m.name), Problem: "the rules of quantization_config give other codes", Want: fmt.Sprintf("%d bits", want), Got: fmt.Sprintf("%d bits", bits)}
}

// vector implements source.
func (s *liteRT) vector(m module) ([]float32, error) {
	s.asked[m.name] = true
	t, ok := s.norms[m.name]
	if !ok {
		return nil, missing(m.name)
	}
	return constantFloats(fullName(m.name), t, m.cols)
}

// number implements source.
func (s *liteRT) number(c constant) (float32, bool, error) {
	s.asked[c.name] = true
	if !c.scale {
		t, ok := s.scalars[c.name]
		if !ok {
			return 0, false, missing(c.name)
		}
		values, err := constantFloats(fullName(c.name), t, 1)
		if err != nil {
			return 0, false, err
		}
		return values[0], true, nil
	}
	t, ok := s.caches[c.name]
	if !ok {
		return 0, false, missing(c.name)
	}
	scale, err := staticScale(c.name, t)
	return scale, scale != 0, err
}

// rounding implements source.
func (s *liteRT) rounding(m module) (in, out float32, err error) {
	l := s.linears[m.name]
	if in, err = staticScale(m.name+".input_activation_scale", l.in); err != nil {
		return 0, 0, err
	}
	out, err = staticScale(m.name+".output_activation_scale", l.out)
	return in, out, err
}

// finish implements source.
func (s *liteRT) finish() error {
	var names []string
	for name := range s.linears {
		names = append(names, name)
	}
	for _, tensors := range []map[string]*litertlm.Tensor{s.norms, s.scalars, s.caches} {
		for name := range tensors {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if !s.asked[name] {
			return &checkpoint.TensorError{Tensor: fullName(name), Problem: "the .litertlm file has it, and config.json gives it no place"}
		}
	}
	return nil
}

// files implements source.
func (s *liteRT) files() []string { return []string{s.file.Name} }

// missing reports that the file has nothing of that name.
func missing(name string) error {
	return &checkpoint.TensorError{Tensor: fullName(name), Problem: "missing from the .litertlm file"}
}

// constantFloats returns the n numbers of a constant of floats, which may have
// further dimensions of size 1.
func constantFloats(name string, t *litertlm.Tensor, n int) ([]float32, error) {
	switch {
	case t.External:
		return nil, &checkpoint.TensorError{Tensor: name, Problem: "its numbers are not in its own section of the .litertlm file, which is not supported"}
	case t.Sparse:
		return nil, &checkpoint.TensorError{Tensor: name, Problem: "its numbers are sparse, which is not supported"}
	case t.Type != litertlm.Float32:
		return nil, &checkpoint.TensorError{Tensor: name, Problem: "not floats", Want: litertlm.Float32.String(), Got: t.Type.String()}
	}
	long := slices.DeleteFunc(slices.Clone(t.Shape), func(d int) bool { return d == 1 })
	if len(long) == 0 {
		long = []int{1}
	}
	if !slices.Equal(long, []int{n}) || len(t.Data) == 0 {
		return nil, &checkpoint.TensorError{Tensor: name, Problem: "config.json gives another size", Want: fmt.Sprint([]int{n}), Got: fmt.Sprint(t.Shape)}
	}
	return checkpoint.Tensor{Name: name, DType: checkpoint.F32, Data: t.Data}.Floats()
}

// staticScale returns the step of the 8-bit grid of an activation, 0 if it is a float.
func staticScale(name string, t *litertlm.Tensor) (float32, error) {
	bad := func(format string, args ...any) (float32, error) {
		return 0, &checkpoint.TensorError{Tensor: fullName(name), Problem: fmt.Sprintf(format, args...)}
	}
	q := t.Quantization
	switch {
	case t.Type == litertlm.Float32 && q == nil:
		return 0, nil
	case t.Type != litertlm.Int8:
		return bad("an activation of type %s is neither FLOAT32 nor INT8", t.Type)
	case q == nil || q.Custom || q.NumScales() != 1 || !q.Symmetric():
		return bad("an activation of type INT8 without one scale and the zero point 0")
	}
	scale := q.Scale(0)
	if !(scale > 0) || math.IsInf(float64(scale), 0) {
		return bad("the scale %v is not above 0 and finite", scale)
	}
	return scale, nil
}

// liteSource is the name under which the sources of a pack list a .litertlm file,
// whose own name is a matter of taste: the same bytes make the same pack. liteSuffix
// is what tells such files.
const (
	liteSource = "model.litertlm"
	liteSuffix = ".litertlm"
)

// findLiteRT returns the name of the .litertlm file that holds the weights of the
// checkpoint in dir, or "" if they are in safetensors files. Several .litertlm files
// are an error, as they are variants of a model.
func findLiteRT(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", nil // package checkpoint says what is wrong with the folder
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	if slices.Contains(names, weightsSource) || slices.Contains(names, indexSource) {
		return "", nil
	}
	return liteFile(names)
}

// liteFile returns the only name of a .litertlm file among names, "" if there is none.
func liteFile(names []string) (string, error) {
	files := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasSuffix(n, liteSuffix) })
	switch len(files) {
	case 0:
		return "", nil
	case 1:
		return files[0], nil
	}
	slices.Sort(files)
	return "", fault.WithHint(fmt.Errorf("there are several .litertlm files, %q and %q: %w", fault.Shorten(files[0]), fault.Shorten(files[1]), fault.ErrUsage),
		"keep the one that is to be converted in the folder")
}

// liteFolder is a folder with a .litertlm file and the small files of a checkpoint.
type liteFolder string

// File implements smallFiles.
func (f liteFolder) File(name string) ([]byte, error) {
	data, err := checkpoint.ReadFile(string(f), name)
	if errors.Is(err, fault.ErrNotFound) {
		err = fault.WithHint(err, fmt.Sprintf("put %q of the model's mobile checkpoint, such as google/gemma-4-E2B-it-qat-mobile-transformers, beside the .litertlm file", name))
	}
	return data, err
}
