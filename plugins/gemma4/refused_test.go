package gemma4_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/zoo"
)

// convertRefused checks that a conversion fails with an error of a kind that says
// want and gives a hint, and that what it leaves is no pack. It returns the error.
func convertRefused(t *testing.T, req zoo.ConvertRequest, kind error, want string) error {
	t.Helper()
	_, err := gemma4.Convert(t.Context(), plugin, req)
	if !errors.Is(err, kind) {
		t.Fatalf("%v is not %v", err, kind)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not say %q", err, want)
	}
	if fault.Hint(err) == "" && !errors.Is(err, fault.ErrUsage) {
		t.Errorf("%v gives no hint", err)
	}
	if p, err := zoo.OpenPack(req.Dir); err == nil {
		p.Close()
		t.Error("what is left opens as a pack")
	}
	return err
}

const text = "model.language_model."

// value returns a filler with one float32.
func value(x float32) func(*rand.ChaCha8, []byte) {
	return func(_ *rand.ChaCha8, dst []byte) {
		for i := 0; i+4 <= len(dst); i += 4 {
			binary.LittleEndian.PutUint32(dst[i:], math.Float32bits(x))
		}
	}
}

// half returns a filler with one bfloat16.
func half(bits uint16) func(*rand.ChaCha8, []byte) {
	return func(_ *rand.ChaCha8, dst []byte) {
		for i := 0; i+2 <= len(dst); i += 2 {
			binary.LittleEndian.PutUint16(dst[i:], bits)
		}
	}
}

// TestTensorsRefused converts checkpoints whose tensors are wrong in every way there is.
func TestTensorsRefused(t *testing.T) {
	type list = []gemma4test.Tensor
	at := func(l list, name string) *gemma4test.Tensor {
		i := slices.IndexFunc(l, func(t gemma4test.Tensor) bool { return t.Name == name })
		if i < 0 {
			t.Fatalf("no tensor %q to change", name)
		}
		return &l[i]
	}
	without := func(name string) func(list) list {
		return func(l list) list {
			at(l, name)
			return slices.DeleteFunc(l, func(t gemma4test.Tensor) bool { return t.Name == name })
		}
	}
	change := func(name string, f func(t *gemma4test.Tensor)) func(list) list {
		return func(l list) list { f(at(l, name)); return l }
	}
	shape := func(name string, shape ...int) func(list) list {
		return change(name, func(t *gemma4test.Tensor) { t.Shape = shape })
	}
	fill := func(name string, f func(*rand.ChaCha8, []byte)) func(list) list {
		return change(name, func(t *gemma4test.Tensor) { t.Fill, t.Like = f, "" })
	}
	dtype := func(name string, d checkpoint.DType) func(list) list {
		return change(name, func(t *gemma4test.Tensor) { t.DType = d })
	}
	extra := func(name string) func(list) list {
		return func(l list) list {
			t := *at(l, text+"norm.weight")
			t.Name = name
			return append(l, t)
		}
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	const q0 = text + "layers.0.self_attn.q_proj"
	cases := []struct {
		name   string
		change func(list) list
		tensor string // that the error names
		want   string
	}{
		{"no codes", without(q0 + ".weight"), q0, "no weights"},
		{"no scales", without(q0 + ".weight_scale"), q0 + ".weight_scale", "missing"},
		{"no embedding", without(text + "embed_tokens.embedding_quantized"), text + "embed_tokens", "no weights"},
		{"no embedding scales", without(text + "embed_tokens.embedding_scale"), text + "embed_tokens.embedding_scale", "missing"},
		{"no head", without("lm_head.weight"), "lm_head", "no weights"},
		{"no norm", without(text + "layers.3.pre_feedforward_layernorm.weight"), text + "layers.3.pre_feedforward_layernorm.weight", "missing"},
		{"no final norm", without(text + "norm.weight"), text + "norm.weight", "missing"},
		{"no key norm", without(text + "layers.4.self_attn.k_norm.weight"), text + "layers.4.self_attn.k_norm.weight", "missing"},
		{"no value", without(text + "layers.4.self_attn.v_proj.weight"), text + "layers.4.self_attn.v_proj", "no weights"},
		{"no layer scalar", without(text + "layers.9.layer_scalar"), text + "layers.9.layer_scalar", "missing"},
		{"no projection of the per-layer input", without(text + "per_layer_model_projection.weight"), text + "per_layer_model_projection", "no weights"},
		{"one cache scale", without(text + "layers.2.self_attn.v_cache_scale"), text + "layers.2.self_attn.k_cache_scale", "both"},

		{"more rows", shape(q0+".weight", 52, 20), q0 + ".weight", "[48, 40] codes of 4 bits: want U8 [48, 20], got U8 [52, 20]"},
		{"fewer rows", shape(q0+".weight", 44, 20), q0 + ".weight", "got U8 [44, 20]"},
		{"width of 2 bits", shape(q0+".weight", 48, 10), q0 + ".weight", "codes of 4 bits: want U8 [48, 20], got U8 [48, 10]"},
		{"width of 8 bits", shape(q0+".weight", 48, 40), q0 + ".weight", "got U8 [48, 40]"},
		{"flat", shape(q0+".weight", 960), q0 + ".weight", "got U8 [960]"},
		{"signed codes of 4 bits", dtype(q0+".weight", checkpoint.I8), q0 + ".weight", "got I8 [48, 20]"},
		{"unsigned codes of 8 bits", dtype(text+"layers.0.per_layer_projection.weight", checkpoint.U8), text + "layers.0.per_layer_projection.weight", "want I8"},
		{"scales in one row", shape(q0+".weight_scale", 1, 48), q0 + ".weight_scale", "want F32 [48, 1], got F32 [1, 48]"},
		{"flat scales", shape(q0+".weight_scale", 48), q0 + ".weight_scale", "got F32 [48]"},
		{"two scales a row", shape(q0+".weight_scale", 48, 2), q0 + ".weight_scale", "got F32 [48, 2]"},
		{"half scales", change(q0+".weight_scale", func(t *gemma4test.Tensor) { t.DType = checkpoint.BF16 }), q0 + ".weight_scale", "got BF16"},
		{"groups of the per-layer table", shape(text+"embed_tokens_per_layer.embedding_scale", gemma4test.Tiny().Vocab, 5), text + "embed_tokens_per_layer.embedding_scale", ", 1] or F32 ["},
		{"groups of the embedding", shape(text+"embed_tokens.embedding_scale", gemma4test.Tiny().Vocab, 10), text + "embed_tokens.embedding_scale", "scales of the rows"},
		{"other vocabulary", shape(text+"embed_tokens.embedding_quantized", 1000, 10), text + "embed_tokens.embedding_quantized", "got U8 [1000, 10]"},
		{"long norm", shape(text+"norm.weight", 41), text + "norm.weight", "want BF16 [40], got BF16 [41]"},
		{"norm of two dimensions", shape(text+"norm.weight", 1, 40), text + "norm.weight", "got BF16 [1, 40]"},
		{"norm of integers", dtype(text+"norm.weight", checkpoint.U8), text + "norm.weight", "not floats"},
		{"two layer scalars", shape(text+"layers.0.layer_scalar", 2), text + "layers.0.layer_scalar", "not a single number"},
		{"no number", shape(text+"layers.0.layer_scalar", 0), text + "layers.0.layer_scalar", "not a single number"},
		{"activation scales of rows", shape(q0+".input_activation_scale", 48), q0 + ".input_activation_scale", "not a single number"},
		{"projection as codes", dtype(text+"per_layer_model_projection.weight", checkpoint.U8), text + "per_layer_model_projection.weight", "unquantised"},
		{"head norm of full layers", shape(text+"layers.4.self_attn.q_norm.weight", 12), text + "layers.4.self_attn.q_norm.weight", "want BF16 [20]"},

		{"NaN scale", fill(q0+".weight_scale", value(nan)), q0 + ".weight_scale", "NaN"},
		{"infinite scale", fill(q0+".weight_scale", value(inf)), q0 + ".weight_scale", "+Inf"},
		{"minus infinity", fill(q0+".weight_scale", value(-inf)), q0 + ".weight_scale", "-Inf"},
		{"negative scale", fill(q0+".weight_scale", value(-1)), q0 + ".weight_scale", "negative"},
		{"NaN in the table", fill(text+"embed_tokens_per_layer.embedding_scale", value(nan)), text + "embed_tokens_per_layer.embedding_scale", "NaN"},
		{"NaN scale of the head", fill("lm_head.weight_scale", value(nan)), "lm_head.weight_scale", "NaN"},
		{"NaN activation scale", fill(q0+".input_activation_scale", value(nan)), q0 + ".input_activation_scale", "NaN"},
		{"infinite activation scale", fill(q0+".output_activation_scale", value(inf)), q0 + ".output_activation_scale", "+Inf"},
		{"negative activation scale", fill("lm_head.input_activation_scale", value(-0.5)), "lm_head.input_activation_scale", "negative"},
		{"NaN cache scale", fill(text+"layers.1.self_attn.k_cache_scale", value(nan)), text + "layers.1.self_attn.k_cache_scale", "NaN"},
		{"negative cache scale", fill(text+"layers.1.self_attn.v_cache_scale", value(-1)), text + "layers.1.self_attn.v_cache_scale", "negative"},
		{"zero cache scale", fill(text+"layers.1.self_attn.v_cache_scale", value(0)), text + "layers.1.self_attn.k_cache_scale", "both"},
		{"NaN norm", fill(text+"norm.weight", half(0x7fc0)), text + "norm.weight", "NaN"},
		{"infinite projection", fill(text+"per_layer_model_projection.weight", half(0xff80)), text + "per_layer_model_projection.weight", "-Inf"},
		{"NaN layer scalar", fill(text+"layers.7.layer_scalar", half(0x7fc0)), text + "layers.7.layer_scalar", "NaN"},
		{"zero layer scalar", fill(text+"layers.7.layer_scalar", half(0)), text + "layers.7.layer_scalar", "wipe out"},

		{"unknown tensor", extra(text + "layers.0.self_attn.sinks"), text + "layers.0.self_attn.sinks", "no place"},
		{"bias", extra(q0 + ".bias"), q0 + ".bias", "no place"},
		{"layer too many", extra(text + "layers.10.input_layernorm.weight"), text + "layers.10.input_layernorm.weight", "no place"},
		{"zero-padded layer", extra(text + "layers.00.input_layernorm.weight"), text + "layers.00.input_layernorm.weight", "no place"},
		{"expert", extra(text + "layers.0.experts.gate_up_proj"), text + "layers.0.experts.gate_up_proj", "no place"},
		{"bias of the head", extra("lm_head.bias"), "lm_head.bias", "no place"},
		{"unknown tensor beside keys of shared layers", extra(text + "layers.9.self_attn.k_proj.bias"), text + "layers.9.self_attn.k_proj.bias", "no place"},
		{"scales of what is not quantised", extra(text + "per_layer_model_projection.input_activation_scale"), text + "per_layer_model_projection.input_activation_scale", "no place"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := made(t, gemma4test.Tiny(), gemma4test.Options{Seed: 1, Change: c.change})
			err := convertRefused(t, request(t, dir), fault.ErrIntegrity, c.want)
			te, ok := errors.AsType[*checkpoint.TensorError](err)
			if !ok || te.Tensor != c.tensor {
				t.Errorf("the error names %+v, not %q", te, c.tensor)
			}
		})
	}
	// What belongs to the towers, or to nothing that is known, is none of our business.
	dir := made(t, gemma4test.Tiny(), gemma4test.Options{Seed: 1, Change: extra("model.embed_vision.bias")})
	convert(t, dir)
}

// TestConfigAgainstTensors converts e2b-tiny with a config.json that says something else.
func TestConfigAgainstTensors(t *testing.T) {
	cases := []struct {
		name    string
		changes map[string]any
		kind    error
		want    string
	}{
		{"hidden", map[string]any{"text_config.hidden_size": 64}, fault.ErrIntegrity, "embed_tokens"},
		{"heads", map[string]any{"text_config.num_attention_heads": 8}, fault.ErrIntegrity, "q_proj"},
		{"head dim", map[string]any{"text_config.head_dim": 32}, fault.ErrIntegrity, "layers.0.self_attn"},
		{"global head dim", map[string]any{"text_config.global_head_dim": 64}, fault.ErrIntegrity, "layers.4.self_attn"},
		{"ffn", map[string]any{"text_config.intermediate_size": 256}, fault.ErrIntegrity, "layers.0.mlp.gate_proj"},
		{"not double-wide", map[string]any{"text_config.use_double_wide_mlp": false}, fault.ErrIntegrity, "layers.5.mlp.gate_proj"},
		{"vocabulary", map[string]any{"text_config.vocab_size": 4096}, fault.ErrIntegrity, "embed_tokens"},
		{"fewer shared layers", map[string]any{"text_config.num_kv_shared_layers": 4, "text_config.use_double_wide_mlp": false}, fault.ErrIntegrity, "layers.5"},
		{"keys as values", map[string]any{"text_config.attention_k_eq_v": true}, fault.ErrIntegrity, "layers.4.self_attn.v_proj"},
		{"per-layer size", map[string]any{"text_config.hidden_size_per_layer_input": 64}, fault.ErrIntegrity, "embed_tokens_per_layer"},
		{"no per-layer input", map[string]any{"text_config.hidden_size_per_layer_input": 0}, fault.ErrIntegrity, "embed_tokens_per_layer"},
		{"fewer layers", map[string]any{"text_config.num_hidden_layers": 5, "text_config.num_kv_shared_layers": 0,
			"text_config.layer_types": []string{"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"}}, fault.ErrIntegrity, "embed_tokens_per_layer"},
		{"bits", map[string]any{"quantization_config.module_quant_configs": json.RawMessage(`{}`)}, fault.ErrIntegrity, "codes of 4 bits"},
		{"tables of floats", map[string]any{"quantization_config.quantize_embeddings": false}, fault.ErrIntegrity, "embed_tokens"},
		{"projection quantised", map[string]any{"quantization_config.modules_to_not_convert": []string{"vision_tower"}}, fault.ErrIntegrity, "per_layer_model_projection"},
		{"no quantisation", map[string]any{"quantization_config": nil}, fault.ErrIntegrity, "embed_tokens.embedding_quantized\": codes"},
		{"unknown quantisation", map[string]any{"quantization_config.quant_method": "gptq"}, fault.ErrUsage, `quant_method is "gptq"`},
		{"drafter", map[string]any{"model_type": "gemma4_assistant"}, fault.ErrUsage, "gemma4_assistant"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := copied(t, "e2b-tiny", map[string][]byte{"config.json": tinyConfig(t, c.changes)})
			convertRefused(t, request(t, dir), c.kind, c.want)
		})
	}
}

// TestTied converts checkpoints whose config.json says that head and embedding are one.
func TestTied(t *testing.T) {
	tied := edit(t, config(t, gemma4test.Tiny()), map[string]any{"tie_word_embeddings": true})
	noHead := func(l []gemma4test.Tensor) []gemma4test.Tensor {
		return slices.DeleteFunc(l, func(t gemma4test.Tensor) bool { return strings.HasPrefix(t.Name, "lm_head.") })
	}
	for name, opts := range map[string]gemma4test.Options{
		"with a head":    {Seed: 1, Config: tied},
		"without a head": {Seed: 1, Config: tied, Change: noHead},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, ok := convert(t, made(t, gemma4test.Tiny(), opts)).Tensor("lm_head"); ok {
				t.Error("the head is stored twice")
			}
		})
	}
	convertRefused(t, request(t, made(t, gemma4test.Tiny(), gemma4test.Options{Seed: 1, Config: tied, OtherHead: true})), fault.ErrIntegrity, `"lm_head": differs`)
}

// copied returns a copy of a reference checkpoint with some files replaced; nil removes one.
func copied(t *testing.T, name string, changes map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "model.safetensors"} {
		data, changed := changes[file]
		if !changed {
			var err error
			if data, err = os.ReadFile(filepath.Join("testdata", name, file)); err != nil {
				t.Fatal(err)
			}
		} else if data == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFilesRefused(t *testing.T) {
	weights, err := os.ReadFile(filepath.Join("testdata", "e2b-tiny", "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	tokenizerOf := func(n int) []byte {
		data, err := gemma4test.Tokenizer(n)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	huge := slices.Clone(weights)
	binary.LittleEndian.PutUint64(huge, 1<<60)
	cases := []struct {
		name, file string
		data       []byte
		kind       error
		want       string
	}{
		{"no weights", "model.safetensors", nil, fault.ErrNotFound, "model.safetensors"},
		{"truncated weights", "model.safetensors", weights[:len(weights)-1000], fault.ErrIntegrity, "truncated"},
		{"truncated header", "model.safetensors", weights[:1000], fault.ErrIntegrity, "the header should have"},
		{"empty weights", "model.safetensors", []byte{}, fault.ErrIntegrity, "too few"},
		{"hostile header", "model.safetensors", huge, fault.ErrIntegrity, "at most"},
		{"no config", "config.json", nil, fault.ErrNotFound, "config.json"},
		{"config not JSON", "config.json", []byte("{"), fault.ErrIntegrity, "config.json"},
		{"no tokenizer", "tokenizer.json", nil, fault.ErrNotFound, "tokenizer.json"},
		{"tokenizer not JSON", "tokenizer.json", []byte("{"), fault.ErrIntegrity, "tokenizer.json"},
		{"larger tokenizer", "tokenizer.json", tokenizerOf(2049), fault.ErrIntegrity, "it has 2049 tokens, the model's tables have rows for 2048"},
		{"much smaller tokenizer", "tokenizer.json", tokenizerOf(1000), fault.ErrIntegrity, "it has 1000 tokens"},
		{"no generation config", "generation_config.json", nil, fault.ErrNotFound, "generation_config.json"},
		{"generation config not JSON", "generation_config.json", []byte("x"), fault.ErrIntegrity, "generation_config.json"},
		{"no tokenizer config", "tokenizer_config.json", nil, fault.ErrNotFound, "tokenizer_config.json"},
		{"no template", "chat_template.jinja", nil, fault.ErrNotFound, "chat_template.jinja"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			convertRefused(t, request(t, copied(t, "e2b-tiny", map[string][]byte{c.file: c.data})), c.kind, c.want)
		})
	}
	t.Run("tokenizer with a marker beyond the tables", func(t *testing.T) {
		data, err := os.ReadFile(filepath.Join("testdata", "e2b-tiny", "tokenizer.json"))
		if err != nil {
			t.Fatal(err)
		}
		marker := `{"id":2048,"content":"<image_soft_token>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}`
		var added struct {
			Tokens []json.RawMessage `json:"added_tokens"`
		}
		if err := json.Unmarshal(data, &added); err != nil {
			t.Fatal(err)
		}
		data = edit(t, data, map[string]any{"added_tokens": append(added.Tokens, json.RawMessage(marker))})
		convert(t, copied(t, "e2b-tiny", map[string][]byte{"tokenizer.json": data}))
	})
}

func TestRequestRefused(t *testing.T) {
	dir := reference(t, "e2b-tiny")
	req := request(t, dir)
	req.Recipe = map[string]string{"grid": "q4_0"}
	convertRefused(t, req, fault.ErrUsage, `grid "q4_0"`)
	req.Recipe = map[string]string{"depth": "5"}
	convertRefused(t, req, fault.ErrUsage, `"depth"`)
	req.Recipe = map[string]string{"grid": "none"}
	if _, err := gemma4.Convert(t.Context(), plugin, req); err != nil {
		t.Error(err)
	} else if p, err := zoo.OpenPack(req.Dir); err != nil {
		t.Error(err)
	} else {
		if want := convert(t, dir).Digest(); p.Digest() != want {
			t.Errorf("with the recipe that goes without saying: %s, want %s", p.Digest(), want)
		}
		p.Close()
	}
	// The folder now holds a pack.
	if _, err := gemma4.Convert(t.Context(), plugin, req); !errors.Is(err, fault.ErrUsage) {
		t.Errorf("into a folder that is not empty: %v", err)
	}
	req = request(t, dir)
	req.Checkpoint = filepath.Join(req.Dir, "none")
	if _, err := gemma4.Convert(t.Context(), plugin, req); !errors.Is(err, fault.ErrNotFound) {
		t.Errorf("a checkpoint that is not there: %v", err)
	}
	if runtime.GOOS != "windows" && os.Geteuid() != 0 {
		req = request(t, dir)
		if err := os.Chmod(req.Dir, 0o555); err != nil {
			t.Fatal(err)
		}
		convertRefused(t, req, fault.ErrNotPermitted, "")
	}
}
