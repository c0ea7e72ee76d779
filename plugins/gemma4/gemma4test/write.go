package gemma4test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
)

// Options says what a checkpoint holds besides its weights.
type Options struct {
	// Seed chooses the numbers: equal seeds give equal files on every machine.
	Seed uint64
	// Static makes all activation scales but the head's non-zero.
	Static bool
	// SharedKV adds the keys and values that layers which share have no use for.
	SharedKV bool
	// TowerTensors and TowerBytes are the number and the size in all of the tensors
	// that stand in for the towers for images and sound.
	TowerTensors int
	TowerBytes   int64
	// OtherHead makes the head differ from the embedding in one code.
	OtherHead bool
	// Config replaces the config.json that follows from the sizes. The tensors follow from it.
	Config []byte
	// Shards, if more than 1, is the number of files that the weights are split into, with an index.
	Shards int
	// Change, if set, may change the list of tensors before it is written, for checkpoints that are wrong.
	Change func(tensors []Tensor) []Tensor
}

// E2BOptions returns the options for a checkpoint with the number of tensors, and
// nearly the bytes, of the official one of Gemma 4 E2B.
func E2BOptions() Options {
	return Options{Static: true, TowerTensors: 1339, TowerBytes: 349_170_000}
}

// Tensor is a tensor that is to be written.
type Tensor struct {
	checkpoint.Spec
	// Fill writes the next bytes of the data, of whole numbers.
	Fill func(r *rand.ChaCha8, dst []byte)
	// Like names the tensor whose numbers this one repeats, or is "".
	Like string
}

// Write writes a random checkpoint into dir, which exists: the weights, config.json,
// generation_config.json, a tokenizer and a chat template. It holds about a megabyte
// in memory, and for the tokenizer some times its size.
func Write(ctx context.Context, dir string, s Sizes, opts Options) error {
	config := opts.Config
	if config == nil {
		var err error
		if config, err = s.Config(); err != nil {
			return err
		}
	}
	cfg, err := gemma4.ParseConfig(config)
	if err != nil {
		return err
	}
	tok, err := Tokenizer(cfg.Text.VocabSize)
	if err != nil {
		return err
	}
	small := map[string][]byte{
		"config.json":            config,
		"generation_config.json": fmt.Appendf(nil, `{"bos_token_id":%d,"eos_token_id":[%d,%d],"pad_token_id":%d,"do_sample":true,"temperature":1.0,"top_k":64,"top_p":0.95}`, bosID, eosID, endTurnID, padID),
		"tokenizer.json":         tok,
		"tokenizer_config.json":  []byte(`{"tokenizer_class":"GemmaTokenizer","bos_token":"<bos>","eos_token":"<eos>","pad_token":"<pad>","unk_token":"<unk>","add_bos_token":true,"add_eos_token":false}`),
		"chat_template.jinja":    []byte(Template),
	}
	for name, data := range small {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	tensors, err := list(cfg, opts)
	if err != nil {
		return err
	}
	if opts.Change != nil {
		tensors = opts.Change(tensors)
	}
	if opts.Shards > 1 {
		return writeShards(ctx, dir, tensors, opts)
	}
	return writeTensors(ctx, filepath.Join(dir, checkpoint.WeightsFile), tensors, opts.Seed)
}

// writeShards splits tensors by their names into files of about the same size, and writes their index.
func writeShards(ctx context.Context, dir string, tensors []Tensor, opts Options) error {
	slices.SortFunc(tensors, func(a, b Tensor) int { return cmp.Compare(a.Name, b.Name) })
	var total int64
	for _, t := range tensors {
		total += t.sizeBytes()
	}
	shards := make([][]Tensor, opts.Shards)
	where := map[string]string{}
	var done int64
	for _, t := range tensors {
		i := min(int(done*int64(opts.Shards)/total), opts.Shards-1)
		shards[i] = append(shards[i], t)
		where[t.Name] = ShardName(i, opts.Shards)
		done += t.sizeBytes()
	}
	for i, shard := range shards {
		if err := writeTensors(ctx, filepath.Join(dir, ShardName(i, opts.Shards)), shard, opts.Seed); err != nil {
			return err
		}
	}
	index, err := json.MarshalIndent(map[string]any{"metadata": map[string]int64{"total_size": total}, "weight_map": where}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, checkpoint.IndexFile), index, 0o644)
}

// ShardName returns the name of shard i of n, counted from 0.
func ShardName(i, n int) string { return fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, n) }

// sizeBytes returns the size of the tensor's data.
func (t Tensor) sizeBytes() int64 {
	n := int64(t.DType.Size())
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// writeTensors writes the weights.
func writeTensors(ctx context.Context, path string, tensors []Tensor, seed uint64) (err error) {
	// As the usual writer has it: the widest numbers first, then by name.
	slices.SortFunc(tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(b.DType.Size(), a.DType.Size()), cmp.Compare(a.DType, b.DType), cmp.Compare(a.Name, b.Name))
	})
	specs := make([]checkpoint.Spec, len(tensors))
	for i, t := range tensors {
		specs[i] = t.Spec
	}
	layout, err := checkpoint.NewLayout(specs, checkpoint.LayoutOptions{Metadata: map[string]string{"format": "pt"}})
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 1<<20)
	w, err := checkpoint.NewWriter(out, layout)
	if err != nil {
		return err
	}
	buf := make([]byte, 1<<18)
	for i, p := range layout.Tensors() {
		t := tensors[i]
		r := rand.NewChaCha8(seedOf(seed, cmp.Or(t.Like, t.Name)))
		err := w.WriteTensor(t.Name, func(w io.Writer) error {
			for left := p.SizeBytes; left > 0; {
				if err := context.Cause(ctx); err != nil {
					return err
				}
				piece := buf[:min(left, int64(len(buf)))]
				t.Fill(r, piece)
				if _, err := w.Write(piece); err != nil {
					return err
				}
				left -= int64(len(piece))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return out.Flush()
}

// seedOf returns the seed of one tensor's numbers, which do not depend on its place.
func seedOf(seed uint64, name string) (key [32]byte) {
	h := fnv.New64a()
	h.Write([]byte(name)) // never fails
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], h.Sum64())
	return key
}

// list lists the tensors of a checkpoint.
func list(cfg *gemma4.Config, opts Options) ([]Tensor, error) {
	l := &lister{cfg: cfg, opts: opts}
	t := &cfg.Text
	l.table("embed_tokens", t.VocabSize, t.HiddenSize, 1)
	l.head(t.VocabSize, t.HiddenSize)
	if ple := t.HiddenSizePerLayerInput; ple > 0 {
		l.table("embed_tokens_per_layer", t.VocabSizePerLayerInput, t.NumHiddenLayers*ple, t.NumHiddenLayers)
		l.linear("per_layer_model_projection", t.NumHiddenLayers*ple, t.HiddenSize)
		l.vector("per_layer_projection_norm.weight", ple)
	}
	l.vector("norm.weight", t.HiddenSize)
	for i := range t.NumHiddenLayers {
		l.layer(i)
	}
	for i := range opts.TowerTensors {
		tower := []string{"vision", "audio"}[i%2]
		n := opts.TowerBytes / int64(opts.TowerTensors) / 2
		l.add(fmt.Sprintf("model.%s_tower.layers.%d.weight", tower, i), checkpoint.BF16, anything, int(n))
	}
	return l.tensors, l.err
}

// lister lists tensors. It keeps the first error.
type lister struct {
	cfg     *gemma4.Config
	opts    Options
	tensors []Tensor
	err     error
}

func (l *lister) add(name string, d checkpoint.DType, fill func(*rand.ChaCha8, []byte), shape ...int) {
	l.tensors = append(l.tensors, Tensor{Spec: checkpoint.Spec{Name: name, DType: d, Shape: shape}, Fill: fill})
}

// full returns a module's name in the checkpoint.
func full(name string) string {
	if name == "lm_head" {
		return name
	}
	return "model.language_model." + name
}

// bits returns a module's bits, 0 for floats.
func (l *lister) bits(name string, table bool) int {
	if l.cfg.Quantization == nil {
		return 0
	}
	n, err := l.cfg.Quantization.Bits(full(name), table)
	l.err = errors.Join(l.err, err)
	return n
}

// codes adds packed codes.
func (l *lister) codes(name string, bits, rows, cols int) {
	if bits == 8 {
		l.add(name, checkpoint.I8, anything, rows, cols)
		return
	}
	l.add(name, checkpoint.U8, anything, rows, cols*bits/8)
}

// step returns a scale such that a row of cols random codes times it has a length near 1.
func step(bits, cols int) float64 {
	// The mean square of -n..n-1 is (2n²+1)/6.
	n := float64(int(1) << (bits - 1))
	return 1 / math.Sqrt((2*n*n+1)/6*float64(cols))
}

// table adds an embedding with a scale for each of so many groups of a row.
func (l *lister) table(name string, rows, cols, groups int) {
	bits := l.bits(name, true)
	if bits == 0 {
		l.add(full(name)+".weight", checkpoint.BF16, small, rows, cols)
		return
	}
	l.codes(full(name)+".embedding_quantized", bits, rows, cols)
	l.add(full(name)+".embedding_scale", checkpoint.F32, around(step(bits, cols/groups)), rows, groups)
}

// head adds the output layer, which repeats the embedding, or is left out where both are one and floats.
func (l *lister) head(rows, cols int) {
	if l.cfg.Quantization == nil && l.cfg.TieWordEmbeddings {
		return
	}
	bits := l.bits("lm_head", false)
	l.codes("lm_head.weight", bits, rows, cols)
	l.tensors[len(l.tensors)-1].Like = full("embed_tokens.embedding_quantized")
	if l.opts.OtherHead {
		first := true
		l.tensors[len(l.tensors)-1].Fill = func(r *rand.ChaCha8, dst []byte) {
			anything(r, dst)
			if first {
				dst[0] ^= 1
			}
			first = false
		}
	}
	l.add("lm_head.weight_scale", checkpoint.F32, around(step(bits, cols)), rows, 1)
	l.tensors[len(l.tensors)-1].Like = full("embed_tokens.embedding_scale")
	l.rounding("lm_head", false)
}

// linear adds a linear layer.
func (l *lister) linear(name string, rows, cols int) {
	bits := l.bits(name, false)
	if bits == 0 {
		l.add(full(name)+".weight", checkpoint.BF16, small, rows, cols)
		return
	}
	l.codes(full(name)+".weight", bits, rows, cols)
	l.add(full(name)+".weight_scale", checkpoint.F32, around(step(bits, cols)), rows, 1)
	l.rounding(name, l.opts.Static)
}

// rounding adds the activation scales of a linear layer.
func (l *lister) rounding(name string, on bool) {
	fill := zero
	if on {
		fill = around(0.04)
	}
	l.add(full(name)+".input_activation_scale", checkpoint.F32, fill)
	l.add(full(name)+".output_activation_scale", checkpoint.F32, fill)
}

// vector adds the weights of a norm or a layer's scalar.
func (l *lister) vector(name string, n int) {
	l.add(full(name), checkpoint.BF16, nearOne, n)
}

// layer adds a layer.
func (l *lister) layer(i int) {
	t, y := &l.cfg.Text, l.cfg.Layer(i)
	base := fmt.Sprintf("layers.%d.", i)
	attn, mlp := base+"self_attn.", base+"mlp."
	for _, name := range []string{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"} {
		l.vector(base+name+".weight", t.HiddenSize)
	}
	l.vector(base+"layer_scalar", 1)
	l.linear(attn+"q_proj", t.NumAttentionHeads*y.HeadDim, t.HiddenSize)
	l.linear(attn+"o_proj", t.HiddenSize, t.NumAttentionHeads*y.HeadDim)
	l.vector(attn+"q_norm.weight", y.HeadDim)
	if y.OwnsKV || l.opts.SharedKV {
		l.vector(attn+"k_norm.weight", y.HeadDim)
		l.linear(attn+"k_proj", y.KVHeads*y.HeadDim, t.HiddenSize)
		if !y.KeyIsValue {
			l.linear(attn+"v_proj", y.KVHeads*y.HeadDim, t.HiddenSize)
		}
	}
	if l.cfg.Quantization != nil {
		l.add(full(attn+"k_cache_scale"), checkpoint.F32, around(0.04))
		l.add(full(attn+"v_cache_scale"), checkpoint.F32, around(0.04))
	}
	l.linear(mlp+"gate_proj", y.FFN, t.HiddenSize)
	l.linear(mlp+"up_proj", y.FFN, t.HiddenSize)
	l.linear(mlp+"down_proj", t.HiddenSize, y.FFN)
	if t.HiddenSizePerLayerInput > 0 {
		l.linear(base+"per_layer_input_gate", t.HiddenSizePerLayerInput, t.HiddenSize)
		l.linear(base+"per_layer_projection", t.HiddenSize, t.HiddenSizePerLayerInput)
		l.vector(base+"post_per_layer_input_norm.weight", t.HiddenSize)
	}
}

// anything fills with random bytes: every byte is a valid code.
func anything(r *rand.ChaCha8, dst []byte) {
	_, _ = r.Read(dst) // never fails
}

// zero fills with zeros.
func zero(_ *rand.ChaCha8, dst []byte) { clear(dst) }

// around returns a filler with float32 between half and one and a half of x.
func around(x float64) func(*rand.ChaCha8, []byte) {
	return func(r *rand.ChaCha8, dst []byte) {
		for i := 0; i+4 <= len(dst); i += 4 {
			u := float64(r.Uint64()>>40) / (1 << 24)
			binary.LittleEndian.PutUint32(dst[i:], math.Float32bits(float32(x*(0.5+u))))
		}
	}
}

// nearOne fills with bfloat16 from 0.5 to 1.
func nearOne(r *rand.ChaCha8, dst []byte) {
	for i := 0; i+2 <= len(dst); i += 2 {
		binary.LittleEndian.PutUint16(dst[i:], 0x3f00|uint16(r.Uint64()&0x7f))
	}
}

// small fills with bfloat16 of either sign and a magnitude from 1/32 to 1/8.
func small(r *rand.ChaCha8, dst []byte) {
	anything(r, dst)
	for i := 1; i < len(dst); i += 2 {
		// The sign and the lowest bit of the exponent stay random.
		dst[i] = dst[i]&0x80 | 0x3d
	}
}
