package gemma4

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"math"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/tokenizer"
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

// source returns a source of random weights in the shapes, and the recipe that stands in the pack.
func (s Shapes) source() (synthetic, map[string]string, error) {
	cfg, err := ParseConfig(s.Config)
	if err != nil {
		return synthetic{}, nil, err
	}
	recipe, grid, err := checkRecipe(cfg, s.Recipe)
	if err != nil {
		return synthetic{}, nil, err
	}
	recipe = maps.Clone(recipe)
	if recipe == nil {
		recipe = map[string]string{}
	}
	recipe[zoo.RecipeWeights] = zoo.RandomWeights
	return synthetic{cfg, grid}, recipe, nil
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
	pack.Files = map[string][]byte{
		zoo.ConfigFile:          shapes.Config,
		zoo.GenerationFile:      fmt.Appendf(nil, `{"bos_token_id":%d,"eos_token_id":%d,"pad_token_id":%d}`, syntheticBOS, syntheticEOS, syntheticPad),
		zoo.TokenizerConfigFile: []byte(`{"bos_token":"<bos>","eos_token":"<eos>"}`),
	}
	if pack.Files[zoo.TokenizerFile], err = tokenizer.Compile(syntheticTokenizer(src.cfg.Text.VocabSize)); err != nil {
		return fmt.Errorf("tokenizer of a synthetic pack: %w", err)
	}
	m := packing.NewMeter(req.Progress)
	m.Expect(pack.SourceBytes())
	return pack.Write(ctx, req.Dir, m)
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

// synthetic is a source of random numbers. Those of a row follow from the names of
// its module and its number alone, so that rows can be made in any order.
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
	stream := nameNoise(name)
	if !format.Codes() {
		return &packing.Matrix{
			Name: m.name, Format: format, Rows: m.rows, Cols: m.cols, RowBytes: int64(2 * m.cols),
			Read: func(r int, to *packing.Row) error {
				stream.of(r).fill(to.Codes)
				for i := 1; i < len(to.Codes); i += 2 {
					// Either sign, and a magnitude from 1/32 to 1/8.
					to.Codes[i] = to.Codes[i]&0x80 | 0x3d
				}
				return nil
			},
		}, nil
	}
	width, step := m.cols*format.Bits/8, codeStep(format.Bits, m.cols)
	if m.kind == table {
		step = codeStep(format.Bits, m.cols/groups)
	}
	return &packing.Matrix{
		Name: m.name, Format: format, Rows: m.rows, Cols: m.cols, RowBytes: int64(width + 4*groups),
		Read: func(r int, to *packing.Row) error {
			n := stream.of(r)
			for i := range to.Scales {
				to.Scales[i] = n.around(step)
				if format.Scale == quant.ScaleF16 {
					to.Scales[i] = quant.F16ToF32(quant.F32ToF16(to.Scales[i]))
				}
			}
			n.fill(to.Codes)
			return nil
		},
	}, nil
}

// codeStep returns a scale with which a row of cols random codes has a length near 1.
func codeStep(bits, cols int) float64 {
	// The mean square of -n to n-1 is (2n²+1)/6.
	n := float64(int(1) << (bits - 1))
	return 1 / math.Sqrt((2*n*n+1)/6*float64(cols))
}

// vector implements source: from 0.5 to 1.
func (synthetic) vector(m module) ([]float32, error) {
	n := nameNoise(m.name)
	v := make([]float32, m.cols)
	for i := range v {
		v[i] = 0.5 + float32(n.next()>>57)/256
	}
	return v, nil
}

// number implements source.
func (s synthetic) number(c constant) (float32, bool, error) {
	n := nameNoise(c.name)
	if c.scale {
		if s.cfg.Quantization == nil {
			return 0, false, nil
		}
		return n.around(activationStep), true, nil
	}
	return n.around(0.75), true, nil // the factor after a layer
}

// rounding implements source. The head has no grids, as in the official layout, and nothing has any where the weights were floats.
func (s synthetic) rounding(m module) (in, out float32, err error) {
	if m.name == headName || s.cfg.Quantization == nil {
		return 0, 0, nil
	}
	n := nameNoise(m.name + ".rounding")
	return n.around(activationStep), n.around(activationStep), nil
}

// finish implements source: there is nothing to be left over.
func (synthetic) finish() error { return nil }

// files implements source.
func (synthetic) files() []string { return nil }

// noise is a stream of random numbers (SplitMix64). They need to be quick and the same
// everywhere, no more.
type noise uint64

// nameNoise returns the stream of a name.
func nameNoise(name string) noise {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	return noise(h.Sum64())
}

// of returns the stream of a row.
func (n noise) of(row int) *noise {
	seed := n ^ noise(row)*0x9fb21c651e98df25
	s := noise(seed.next())
	return &s
}

// next returns the next number.
func (n *noise) next() uint64 {
	*n += 0x9e3779b97f4a7c15
	z := uint64(*n)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// around returns a number from a half to one and a half of x.
func (n *noise) around(x float64) float32 {
	return float32(x * (0.5 + float64(n.next()>>40)/(1<<24)))
}

// fill fills with random bytes: every byte is a valid code.
func (n *noise) fill(dst []byte) {
	s := *n
	for ; len(dst) >= 8; dst = dst[8:] {
		binary.LittleEndian.PutUint64(dst, s.next())
	}
	if len(dst) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], s.next())
		copy(dst, last[:])
	}
	*n = s
}
