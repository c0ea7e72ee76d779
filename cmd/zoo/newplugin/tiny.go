package newplugin

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// The sizes of the tiny model. Columns are multiples of the blocks that matrices are
// rounded to.
const (
	hidden    = 64
	ffn       = 128
	layers    = 2
	heads     = 2
	kvHeads   = 1
	headDim   = 32
	positions = 512
)

// markers are the first pieces of the vocabulary.
var markers = []string{"<pad>", "<eos>", "<bos>", "<unk>"}

// pieces returns the vocabulary: markers, all bytes, a space and the characters of ASCII.
func pieces() []string {
	all := append([]string{}, markers...)
	for b := range 256 {
		all = append(all, fmt.Sprintf("<0x%02X>", b))
	}
	all = append(all, "▁")
	for c := '!'; c <= '~'; c++ {
		all = append(all, string(c))
	}
	return all
}

// tensor is a tensor of the checkpoint; a norm has no rows.
type tensor struct {
	name       string
	rows, cols int
}

// tensors lists those of the tiny model, as the module's convert.go reads them.
func tensors() []tensor {
	all := []tensor{{"model.embed_tokens.weight", len(pieces()), hidden}}
	for i := range layers {
		name := fmt.Sprintf("model.layers.%d.", i)
		for _, t := range []tensor{
			{"input_layernorm", 0, hidden},
			{"self_attn.q_proj", heads * headDim, hidden},
			{"self_attn.k_proj", kvHeads * headDim, hidden},
			{"self_attn.v_proj", kvHeads * headDim, hidden},
			{"self_attn.q_norm", 0, headDim},
			{"self_attn.k_norm", 0, headDim},
			{"self_attn.o_proj", hidden, heads * headDim},
			{"post_attention_layernorm", 0, hidden},
			{"pre_feedforward_layernorm", 0, hidden},
			{"mlp.gate_proj", ffn, hidden},
			{"mlp.up_proj", ffn, hidden},
			{"mlp.down_proj", hidden, ffn},
			{"post_feedforward_layernorm", 0, hidden},
		} {
			all = append(all, tensor{name + t.name + ".weight", t.rows, t.cols})
		}
	}
	return append(all, tensor{"model.norm.weight", 0, hidden}, tensor{"lm_head.weight", len(pieces()), hidden})
}

// writeTiny writes a checkpoint of random weights, the same each time, and lists its files.
func writeTiny(ctx context.Context, dir string) ([]catalog.File, error) {
	var list []catalog.File
	write := func(name string, data []byte) error {
		list = append(list, catalog.File{Path: name, SizeBytes: int64(len(data)), SHA256: catalog.DigestOf(data).Hex()})
		return atomicfile.WriteFile(ctx, filepath.Join(dir, name), data, atomicfile.Options{})
	}
	for _, f := range []struct {
		name  string
		value any
	}{
		{zoo.ConfigFile, map[string]any{
			"vocab_size": len(pieces()), "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
			"num_attention_heads": heads, "num_key_value_heads": kvHeads, "head_dim": headDim,
			"max_position_embeddings": positions, "rms_norm_eps": 1e-6, "rope_theta": 10000,
		}},
		{zoo.GenerationFile, map[string]any{"bos_token_id": 2, "eos_token_id": 1, "do_sample": false}},
		{packing.TokenizerSource, tokenizerJSON()},
	} {
		text, err := json.MarshalIndent(f.value, "", "  ")
		if err != nil {
			return nil, err
		}
		if err := write(f.name, append(text, '\n')); err != nil {
			return nil, err
		}
	}
	weights, err := weightsFile()
	if err != nil {
		return nil, err
	}
	return list, write(checkpoint.WeightsFile, weights)
}

// tokenizerJSON is a tokenizer without merges: a text becomes its characters.
func tokenizerJSON() any {
	type object = map[string]any
	vocab := object{}
	for id, piece := range pieces() {
		vocab[piece] = id
	}
	var added []object
	for id, name := range markers {
		added = append(added, object{"id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
	}
	space := func(from, to string) object {
		return object{"type": "Replace", "pattern": object{"String": from}, "content": to}
	}
	return object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": space(" ", "▁"),
		"pre_tokenizer": nil, "post_processor": nil,
		"decoder": object{"type": "Sequence", "decoders": []object{space("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}}},
		"model": object{
			"type": "BPE", "dropout": nil, "unk_token": "<unk>", "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": true, "byte_fallback": true, "ignore_merges": false, "vocab": vocab, "merges": []any{},
		},
	}
}

// weightsFile is a file of safetensors: matrices of small random numbers, and norms of 1.
func weightsFile() ([]byte, error) {
	byName := map[string]tensor{}
	var specs []checkpoint.Spec
	for _, t := range tensors() {
		shape := []int{t.rows, t.cols}
		if t.rows == 0 {
			shape = shape[1:]
		}
		byName[t.name] = t
		specs = append(specs, checkpoint.Spec{Name: t.name, DType: checkpoint.BF16, Shape: shape})
	}
	layout, err := checkpoint.NewLayout(specs, checkpoint.LayoutOptions{})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w, err := checkpoint.NewWriter(&b, layout)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, s := range specs {
		t := byName[s.Name]
		if err := w.WriteTensor(s.Name, func(w io.Writer) error { return t.write(w, random) }); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// write writes the numbers of a tensor.
func (t tensor) write(w io.Writer, random *rand.Rand) error {
	data := make([]byte, 2*max(t.rows, 1)*t.cols)
	for i := 0; i < len(data); i += 2 {
		v := float32(1)
		if t.rows > 0 {
			v = float32(random.Float64()*2-1) / float32(math.Sqrt(float64(t.cols)))
		}
		binary.LittleEndian.PutUint16(data[i:], uint16(math.Float32bits(v)>>16))
	}
	_, err := w.Write(data)
	return err
}
