package gemma3_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/plugins/gemma3"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// The shapes of the models of these tests. K-quants come in blocks of 256 columns.
const (
	hidden, ffn, layers   = 256, 512, 7
	heads, kvHeads, width = 4, 2, 64
	window, positions     = 4, 64
)

// pieces is the vocabulary of these tests: markers, bytes, and some text.
func pieces() (texts []string, types []int32) {
	add := func(text string, kind int32) { texts, types = append(texts, text), append(types, kind) }
	for _, marker := range []string{"<pad>", "<eos>", "<bos>", "<unk>", "<end_of_turn>"} {
		add(marker, 3)
	}
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b), 6)
	}
	add("▁", 1)
	for r := 'a'; r <= 'z'; r++ {
		add(string(r), 1)
	}
	add("he", 1)
	add("▁he", 1)
	return texts, types
}

// vocab is the number of pieces.
func vocab() int { texts, _ := pieces(); return len(texts) }

// key is a key of the metadata with its value: an int, float32, bool or text, or a list of them.
type key struct {
	name  string
	value any
}

// keys returns the metadata of a model.
func keys() []key {
	texts, types := pieces()
	scores := make([]float32, len(texts))
	for i := range scores {
		scores[i] = -float32(i)
	}
	return []key{
		{"general.architecture", "gemma3"}, {"general.name", "Tiny"},
		{"gemma3.context_length", positions}, {"gemma3.embedding_length", hidden}, {"gemma3.block_count", layers},
		{"gemma3.feed_forward_length", ffn}, {"gemma3.attention.head_count", heads}, {"gemma3.attention.head_count_kv", kvHeads},
		{"gemma3.attention.key_length", width}, {"gemma3.attention.value_length", width}, {"gemma3.attention.layer_norm_rms_epsilon", float32(1e-6)},
		{"gemma3.rope.freq_base", float32(1e6)}, {"gemma3.attention.sliding_window", window},
		{"tokenizer.ggml.model", "llama"}, {"tokenizer.ggml.tokens", texts}, {"tokenizer.ggml.scores", scores}, {"tokenizer.ggml.token_type", types},
		{"tokenizer.ggml.bos_token_id", 2}, {"tokenizer.ggml.eos_token_id", 1}, {"tokenizer.ggml.unknown_token_id", 3}, {"tokenizer.ggml.padding_token_id", 0},
		{"tokenizer.ggml.add_bos_token", true}, {"tokenizer.ggml.add_eos_token", false}, {"tokenizer.ggml.add_space_prefix", false},
	}
}

// with returns keys with some replaced, added or, with a value of nil, removed.
func with(all []key, changes ...key) []key {
	for _, c := range changes {
		var out []key
		found := false
		for _, k := range all {
			switch {
			case k.name != c.name:
				out = append(out, k)
			case c.value != nil:
				out = append(out, c)
			}
			found = found || k.name == c.name
		}
		if !found && c.value != nil {
			out = append(out, c)
		}
		all = out
	}
	return all
}

// tensor is a tensor of a GGUF file. The last dimension of its shape is the fastest.
type tensor struct {
	name  string
	kind  gguf.Type
	shape []int
	data  []byte
}

// blockBytes is the size of a block of a type, and halves where it has scales, with the
// power of two that they are about.
var blockBytes = map[gguf.Type]struct {
	cols, bytes int
	halves      []int
	power       int
}{
	gguf.Q4_0: {32, 18, []int{0}, -7}, gguf.Q4_1: {32, 20, []int{0, 2}, -8}, gguf.Q5_0: {32, 22, []int{0}, -8}, gguf.Q5_1: {32, 24, []int{0, 2}, -8},
	gguf.Q8_0: {32, 34, []int{0}, -11}, gguf.Q4_K: {256, 144, []int{0, 2}, -13}, gguf.Q5_K: {256, 176, []int{0, 2}, -14}, gguf.Q6_K: {256, 210, []int{208}, -16},
	gguf.BF16: {1, 2, nil, 0}, gguf.F16: {1, 2, nil, 0}, gguf.F32: {1, 4, nil, 0},
}

// random returns a tensor of random numbers around 1/16 in magnitude, or around 1 for norms.
func random(name string, kind gguf.Type, shape ...int) tensor {
	r := rand.New(rand.NewPCG(uint64(len(name)), uint64(catalogSeed(name))))
	n := 1
	for _, d := range shape {
		n *= d
	}
	info := blockBytes[kind]
	data := make([]byte, n/info.cols*info.bytes)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	for b := 0; b < len(data); b += info.bytes {
		for _, at := range info.halves {
			h := quant.F32ToF16(float32(math.Ldexp(1+r.Float64(), info.power)))
			binary.LittleEndian.PutUint16(data[b+at:], h)
		}
		if info.halves != nil {
			continue
		}
		v := float32(r.NormFloat64() / 16)
		if len(shape) == 1 {
			v = float32(0.5 + r.Float64())
		}
		bits := math.Float32bits(v) &^ 0xffff // every type of floats holds what bfloat16 does
		switch kind {
		case gguf.BF16:
			binary.LittleEndian.PutUint16(data[b:], uint16(bits>>16))
		case gguf.F16:
			binary.LittleEndian.PutUint16(data[b:], quant.F32ToF16(math.Float32frombits(bits)))
		default:
			binary.LittleEndian.PutUint32(data[b:], bits)
		}
	}
	return tensor{name, kind, shape, data}
}

// catalogSeed turns a name into a seed.
func catalogSeed(name string) uint32 {
	return binary.LittleEndian.Uint32([]byte(catalog.DigestOf([]byte(name)).Hex()))
}

// tensors returns the tensors of a model, whose matrices take the types in turn.
func tensors(kinds ...gguf.Type) []tensor {
	var all []tensor
	matrix := func(name string, rows, cols int) {
		all = append(all, random(name+".weight", kinds[len(all)%len(kinds)], rows, cols))
	}
	vector := func(name string, n int) { all = append(all, random(name+".weight", gguf.F32, n)) }
	matrix("token_embd", vocab(), hidden)
	vector("output_norm", hidden)
	for i := range layers {
		blk := fmt.Sprintf("blk.%d.", i)
		matrix(blk+"attn_q", heads*width, hidden)
		matrix(blk+"attn_k", kvHeads*width, hidden)
		matrix(blk+"attn_v", kvHeads*width, hidden)
		matrix(blk+"attn_output", hidden, heads*width)
		matrix(blk+"ffn_gate", ffn, hidden)
		matrix(blk+"ffn_up", ffn, hidden)
		matrix(blk+"ffn_down", hidden, ffn)
		for _, norm := range []string{"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"} {
			vector(blk+norm, hidden)
		}
		vector(blk+"attn_q_norm", width)
		vector(blk+"attn_k_norm", width)
	}
	return all
}

// text appends a text with its length.
func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// appendValue appends a value, with its type before it.
func appendValue(b []byte, v any) []byte {
	le := binary.LittleEndian
	typed := func(t gguf.ValueType) []byte { return le.AppendUint32(b, uint32(t)) }
	list := func(t gguf.ValueType, n int) []byte {
		return le.AppendUint64(le.AppendUint32(typed(gguf.Array), uint32(t)), uint64(n))
	}
	switch v := v.(type) {
	case int:
		return le.AppendUint32(typed(gguf.Uint32), uint32(v))
	case float32:
		return le.AppendUint32(typed(gguf.Float32), math.Float32bits(v))
	case bool:
		x := byte(0)
		if v {
			x = 1
		}
		return append(typed(gguf.Bool), x)
	case string:
		return appendText(typed(gguf.String), v)
	case []string:
		b = list(gguf.String, len(v))
		for _, s := range v {
			b = appendText(b, s)
		}
	case []float32:
		b = list(gguf.Float32, len(v))
		for _, x := range v {
			b = le.AppendUint32(b, math.Float32bits(x))
		}
	case []int32:
		b = list(gguf.Int32, len(v))
		for _, x := range v {
			b = le.AppendUint32(b, uint32(x))
		}
	case []bool:
		b = list(gguf.Bool, len(v))
		for _, x := range v {
			if x {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
	default:
		panic(fmt.Sprintf("a value of type %T", v))
	}
	return b
}

// encode returns a GGUF file.
func encode(all []key, list []tensor) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte("GGUF"), 3)
	b = le.AppendUint64(b, uint64(len(list)))
	b = le.AppendUint64(b, uint64(len(all)))
	for _, k := range all {
		b = appendValue(appendText(b, k.name), k.value)
	}
	offset := 0
	for _, t := range list {
		b = le.AppendUint32(appendText(b, t.name), uint32(len(t.shape)))
		for i := range t.shape {
			b = le.AppendUint64(b, uint64(t.shape[len(t.shape)-1-i]))
		}
		b = le.AppendUint64(le.AppendUint32(b, uint32(t.kind)), uint64(offset))
		offset += (len(t.data) + 31) &^ 31
	}
	pad := func() {
		for len(b)%32 != 0 {
			b = append(b, 0)
		}
	}
	pad()
	for _, t := range list {
		b = append(b, t.data...)
		pad()
	}
	return b
}

// folder writes files into a new folder.
func folder(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// parse parses a GGUF file.
func parse(t testing.TB, data []byte) *gguf.File {
	t.Helper()
	f, err := gguf.Parse("model.gguf", data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// hfNames gives the names of modules in safetensors by the ends of those in GGUF files.
var hfNames = map[string]string{
	"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
	"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
	"ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}

// hfName returns the name of a tensor in safetensors.
func hfName(name string) string {
	var layer int
	var rest string
	switch name {
	case "token_embd.weight":
		return "model.embed_tokens.weight"
	case "output_norm.weight":
		return "model.norm.weight"
	case "output.weight":
		return "lm_head.weight"
	}
	if _, err := fmt.Sscanf(name, "blk.%d.%s", &layer, &rest); err != nil {
		panic(err)
	}
	return fmt.Sprintf("model.layers.%d.%s.weight", layer, hfNames[rest[:len(rest)-len(".weight")]])
}

// safetensors returns the files of the checkpoint that a GGUF file of bfloat16 was made of.
func safetensors(t testing.TB, list []tensor, config map[string]any) map[string][]byte {
	t.Helper()
	var specs []checkpoint.Spec
	data := map[string][]byte{}
	for _, w := range list {
		name := hfName(w.name)
		if len(w.shape) == 1 { // 1 is added in GGUF
			var less []byte
			for i := 0; i < len(w.data); i += 4 {
				x := math.Float32frombits(binary.LittleEndian.Uint32(w.data[i:])) - 1
				less = binary.LittleEndian.AppendUint32(less, math.Float32bits(x))
			}
			specs = append(specs, checkpoint.Spec{Name: name, DType: checkpoint.F32, Shape: w.shape})
			data[name] = less
			continue
		}
		specs = append(specs, checkpoint.Spec{Name: name, DType: checkpoint.BF16, Shape: w.shape})
		data[name] = w.data
	}
	layout, err := checkpoint.NewLayout(specs, checkpoint.LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := checkpoint.NewWriter(&out, layout)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range layout.Tensors() {
		if err := w.WriteTensor(p.Name, func(w io.Writer) error { _, err := w.Write(data[p.Name]); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"model.safetensors": out.Bytes(), "config.json": encodeJSON(t, config), "tokenizer.json": tokenizerJSON(t),
		"generation_config.json": []byte(`{"bos_token_id":2,"eos_token_id":[1,4]}`), "tokenizer_config.json": []byte(`{"bos_token":"<bos>","eos_token":"<eos>"}`),
	}
}

// config returns the config.json that belongs to keys.
func config() map[string]any {
	return map[string]any{
		"model_type": "gemma3_text", "vocab_size": vocab(), "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
		"num_attention_heads": heads, "num_key_value_heads": kvHeads, "head_dim": width, "hidden_activation": "gelu_pytorch_tanh",
		"max_position_embeddings": positions, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": width, "sliding_window": window, "sliding_window_pattern": 6,
		"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": nil, "attn_logit_softcapping": nil, "final_logit_softcapping": nil, "attention_bias": false,
	}
}

// changed returns a config.json with fields replaced or, with nil, removed.
func changed(t testing.TB, changes map[string]any) []byte {
	t.Helper()
	c := config()
	for k, v := range changes {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return encodeJSON(t, c)
}

// encodeJSON encodes.
func encodeJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// tokenizerJSON returns the vocabulary as tokenizer.json.
func tokenizerJSON(t testing.TB) []byte {
	t.Helper()
	texts, types := pieces()
	ids := map[string]int{}
	added := []map[string]any{}
	for id, text := range texts {
		ids[text] = id
		if types[id] == 3 {
			added = append(added, map[string]any{"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
		}
	}
	return encodeJSON(t, map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"normalizer":     map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": "▁"},
		"pre_tokenizer":  map[string]any{"type": "Split", "pattern": map[string]any{"String": " "}, "behavior": "MergedWithPrevious", "invert": false},
		"post_processor": nil,
		"decoder": map[string]any{"type": "Sequence", "decoders": []any{
			map[string]any{"type": "Replace", "pattern": map[string]any{"String": "▁"}, "content": " "}, map[string]any{"type": "ByteFallback"}, map[string]any{"type": "Fuse"}}},
		"model": map[string]any{"type": "BPE", "dropout": nil, "unk_token": "<unk>", "continuing_subword_prefix": nil, "end_of_word_suffix": nil, "fuse_unk": true,
			"byte_fallback": true, "ignore_merges": false, "vocab": ids, "merges": [][2]string{{"h", "e"}, {"▁", "he"}}},
	})
}

// sources lists the files of a folder.
func sources(t testing.TB, dir string) []catalog.File {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []catalog.File
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, catalog.File{Path: e.Name(), SizeBytes: int64(len(data)), SHA256: catalog.DigestOf(data).Hex()})
	}
	return files
}

// convert converts a checkpoint; grid is "" for none.
func convert(t testing.TB, dir, grid string) (string, error) {
	t.Helper()
	out := t.TempDir()
	req := zoo.ConvertRequest{Checkpoint: dir, Sources: sources(t, dir), Dir: out}
	if grid != "" {
		req.Recipe = map[string]string{"grid": grid}
	}
	_, err := gemma3.New().Convert(t.Context(), req)
	return out, err
}

// converted converts a checkpoint and opens the pack.
func converted(t testing.TB, dir, grid string) *zoo.Pack {
	t.Helper()
	out, err := convert(t, dir, grid)
	if err != nil {
		t.Fatal(err)
	}
	pack, err := zoo.OpenPack(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pack.Close(); err != nil {
			t.Error(err)
		}
	})
	return pack
}
