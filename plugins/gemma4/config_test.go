package gemma4_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
)

func TestParseConfig(t *testing.T) {
	cfg, err := gemma4.ParseConfig(tinyConfig(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	want := gemma4.TextConfig{
		VocabSize: 2048, HiddenSize: 96, IntermediateSize: 128, NumHiddenLayers: 10, NumAttentionHeads: 4, NumKVSharedLayers: 5,
		SlidingWindow: 12, MaxPositionEmbeddings: 512, VocabSizePerLayerInput: 2048, HiddenSizePerLayerInput: 32,
		RMSNormEps: 1e-6, FinalLogitSoftcapping: 30,
	}
	if diff := cmp.Diff(want, cfg.Text); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if cfg.TieWordEmbeddings || cfg.TokenLimit() != 2048 {
		t.Errorf("tied %v, token limit %d", cfg.TieWordEmbeddings, cfg.TokenLimit())
	}
	sliding, full := gemma4.RoPE{RopeTheta: 1e4, PartialRotaryFactor: 1}, gemma4.RoPE{RopeTheta: 1e6, PartialRotaryFactor: 0.25}
	layers := map[int]gemma4.Layer{
		0: {HeadDim: 16, KVHeads: 1, FFN: 128, OwnsKV: true, KVSource: 0, RoPE: sliding},
		3: {HeadDim: 16, KVHeads: 1, FFN: 128, OwnsKV: true, KVSource: 3, RoPE: sliding},
		4: {Full: true, HeadDim: 32, KVHeads: 1, FFN: 128, OwnsKV: true, KVSource: 4, RoPE: full},
		5: {HeadDim: 16, KVHeads: 1, FFN: 256, KVSource: 3, RoPE: sliding},
		9: {Full: true, HeadDim: 32, KVHeads: 1, FFN: 256, KVSource: 4, RoPE: full},
	}
	for i, want := range layers {
		if diff := cmp.Diff(want, cfg.Layer(i)); diff != "" {
			t.Errorf("layer %d (-want +got):\n%s", i, diff)
		}
	}
}

// TestE2B holds the official sizes against the facts that are published.
func TestE2B(t *testing.T) {
	data, err := gemma4test.E2B().Config()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := gemma4.ParseConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int][2]int{0: {6144, 0}, 13: {6144, 13}, 14: {6144, 14}, 15: {12288, 13}, 19: {12288, 14}, 33: {12288, 13}, 34: {12288, 14}} {
		if l := cfg.Layer(i); l.FFN != want[0] || l.KVSource != want[1] || l.Full != ((i+1)%5 == 0) {
			t.Errorf("layer %d: %+v, want FFN %d and the cache of layer %d", i, l, want[0], want[1])
		}
	}
}

func TestParseConfigVariants(t *testing.T) {
	cases := []struct {
		name    string
		changes map[string]any
		check   func(c *gemma4.Config) bool
	}{
		{"per_layer_config", map[string]any{"text_config.global_head_dim": nil, "text_config.per_layer_config": json.RawMessage(`{"04":{"head_dim":64},"09":{"head_dim":64}}`)},
			func(c *gemma4.Config) bool {
				return c.Layer(4).HeadDim == 64 && c.Layer(9).HeadDim == 64 && c.Layer(0).HeadDim == 16
			}},
		{"per_layer_config with heads", map[string]any{"text_config.per_layer_config": json.RawMessage(`{"4":{"head_dim":64,"num_key_value_heads":2},"9":{"num_key_value_heads":2,"head_dim":64}}`)},
			func(c *gemma4.Config) bool { return c.Layer(4).KVHeads == 2 && c.Layer(0).KVHeads == 1 }},
		{"keys as values", map[string]any{"text_config.attention_k_eq_v": true, "text_config.num_global_key_value_heads": 2},
			func(c *gemma4.Config) bool {
				return c.Layer(4).KeyIsValue && c.Layer(4).KVHeads == 2 && !c.Layer(3).KeyIsValue && c.Layer(3).KVHeads == 1 && !c.Layer(9).KeyIsValue
			}},
		{"global heads without keys as values", map[string]any{"text_config.num_global_key_value_heads": 2},
			func(c *gemma4.Config) bool { return c.Layer(4).KVHeads == 1 }},
		{"no sharing", map[string]any{"text_config.num_kv_shared_layers": 0},
			func(c *gemma4.Config) bool {
				return c.Layer(9).OwnsKV && c.Layer(9).KVSource == 9 && c.Layer(9).FFN == 128
			}},
		{"sharing left out", map[string]any{"text_config.num_kv_shared_layers": nil},
			func(c *gemma4.Config) bool { return c.Layer(9).OwnsKV }},
		{"no double-wide layers", map[string]any{"text_config.use_double_wide_mlp": false},
			func(c *gemma4.Config) bool { return c.Layer(9).FFN == 128 }},
		{"no cap", map[string]any{"text_config.final_logit_softcapping": json.RawMessage("null")},
			func(c *gemma4.Config) bool { return c.Text.FinalLogitSoftcapping == 0 }},
		{"no per-layer input", map[string]any{"text_config.hidden_size_per_layer_input": 0, "text_config.vocab_size_per_layer_input": 0},
			func(c *gemma4.Config) bool { return c.TokenLimit() == 2048 && c.Text.VocabSizePerLayerInput == 0 }},
		{"smaller per-layer table", map[string]any{"text_config.vocab_size_per_layer_input": 2000},
			func(c *gemma4.Config) bool { return c.TokenLimit() == 2000 }},
		{"floats", map[string]any{"quantization_config": nil},
			func(c *gemma4.Config) bool { return c.Quantization == nil }},
		{"tied by the outer field", map[string]any{"tie_word_embeddings": true},
			func(c *gemma4.Config) bool { return c.TieWordEmbeddings }},
		{"tied by the inner field", map[string]any{"tie_word_embeddings": nil, "text_config.tie_word_embeddings": true},
			func(c *gemma4.Config) bool { return c.TieWordEmbeddings }},
		{"tied by default", map[string]any{"tie_word_embeddings": nil, "text_config.tie_word_embeddings": nil},
			func(c *gemma4.Config) bool { return c.TieWordEmbeddings }},
		{"images both ways", map[string]any{"text_config.use_bidirectional_attention": "vision"},
			func(c *gemma4.Config) bool { return true }},
		{"unknown fields", map[string]any{"text_config.new": 1, "new": "x"},
			func(c *gemma4.Config) bool { return true }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := gemma4.ParseConfig(tinyConfig(t, c.changes))
			if err != nil {
				t.Fatal(err)
			}
			if !c.check(cfg) {
				t.Errorf("%+v, layers 3, 4 and 9: %+v %+v %+v", cfg.Text, cfg.Layer(3), cfg.Layer(4), cfg.Layer(9))
			}
		})
	}
}

func TestParseConfigRefused(t *testing.T) {
	text := func(field string, value any) map[string]any { return map[string]any{"text_config." + field: value} }
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	types := func(last ...string) []string {
		return append([]string{"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention"}, last...)
	}
	malformed, unsupported := fault.ErrIntegrity, fault.ErrUsage
	cases := []struct {
		name    string
		changes map[string]any
		kind    error
		want    string // part of the message
	}{
		{"other family", map[string]any{"model_type": "gemma3"}, unsupported, `model_type is "gemma3"`},
		{"drafter", map[string]any{"model_type": "gemma4_assistant"}, unsupported, `model_type is "gemma4_assistant"`},
		{"no family", map[string]any{"model_type": nil}, unsupported, "model_type"},
		{"other text model", text("model_type", "llama"), unsupported, "text_config.model_type"},
		{"no text", map[string]any{"text_config": nil}, malformed, "text_config: missing"},
		{"text a list", map[string]any{"text_config": []int{1}}, malformed, "text_config"},
		{"mixture of experts", text("enable_moe_block", true), unsupported, "enable_moe_block is true"},
		{"bias", text("attention_bias", true), unsupported, "attention_bias"},
		{"other activation", text("hidden_activation", "silu"), unsupported, `hidden_activation is "silu"`},
		{"both ways", text("use_bidirectional_attention", "all"), unsupported, "use_bidirectional_attention"},
		{"no vocabulary", text("vocab_size", nil), malformed, "vocab_size: missing"},
		{"empty vocabulary", text("vocab_size", 0), malformed, "vocab_size: 0 is outside"},
		{"absurd vocabulary", text("vocab_size", 1<<40), malformed, "vocab_size"},
		{"vocabulary beyond int64", text("vocab_size", raw("1e30")), malformed, "vocab_size"},
		{"vocabulary a string", text("vocab_size", "2048"), malformed, "vocab_size"},
		{"vocabulary a fraction", text("vocab_size", 1.5), malformed, "vocab_size"},
		{"negative hidden", text("hidden_size", -96), malformed, "hidden_size"},
		{"absurd hidden", text("hidden_size", 1<<17), malformed, "hidden_size"},
		{"absurd ffn", text("intermediate_size", 1<<20), malformed, "intermediate_size"},
		{"double is absurd", text("intermediate_size", 40000), malformed, "intermediate_size: twice 40000"},
		{"no layers", text("num_hidden_layers", 0), malformed, "num_hidden_layers"},
		{"absurd layers", text("num_hidden_layers", 1<<30), malformed, "num_hidden_layers"},
		{"other number of layers", text("num_hidden_layers", 11), malformed, "layer_types: 10 entries for 11 layers"},
		{"no layer types", text("layer_types", nil), malformed, "layer_types: 0 entries"},
		{"unknown layer type", text("layer_types", types("linear_attention")), unsupported, `layer_types[9] is "linear_attention"`},
		{"last layer slides", text("layer_types", types("sliding_attention")), malformed, "the last layer"},
		{"heads do not divide", text("num_key_value_heads", 3), malformed, "num_key_value_heads"},
		{"more keys than queries", text("num_key_value_heads", 8), malformed, "num_key_value_heads"},
		{"odd head", text("head_dim", 15), malformed, "head_dim: 15 of layer 0 is odd"},
		{"no head", text("head_dim", nil), malformed, "head_dim: missing"},
		{"absurd head", text("head_dim", 1<<20), malformed, "head_dim"},
		{"odd global head", text("global_head_dim", 33), malformed, "odd"},
		{"no global head", text("global_head_dim", nil), malformed, "global_head_dim: missing"},
		{"heads too wide", map[string]any{"text_config.num_attention_heads": 1024, "text_config.num_key_value_heads": 1, "text_config.global_head_dim": 512}, malformed, "head_dim: 1024 heads of 512"},
		{"all layers shared", text("num_kv_shared_layers", 10), malformed, "num_kv_shared_layers: 10 is outside"},
		{"negative sharing", text("num_kv_shared_layers", -1), malformed, "num_kv_shared_layers"},
		{"no full layer to share", text("num_kv_shared_layers", 6), malformed, "num_kv_shared_layers: layer 4"},
		{"no window", text("sliding_window", 0), malformed, "sliding_window"},
		{"absurd context", text("max_position_embeddings", 1<<40), malformed, "max_position_embeddings"},
		{"no epsilon", text("rms_norm_eps", nil), malformed, "rms_norm_eps: missing"},
		{"zero epsilon", text("rms_norm_eps", 0), malformed, "rms_norm_eps"},
		{"epsilon too small for float32", text("rms_norm_eps", 1e-60), malformed, "rms_norm_eps"},
		{"negative cap", text("final_logit_softcapping", -30), malformed, "final_logit_softcapping"},
		{"no per-layer size", text("hidden_size_per_layer_input", nil), malformed, "hidden_size_per_layer_input"},
		{"no per-layer vocabulary", text("vocab_size_per_layer_input", 0), malformed, "vocab_size_per_layer_input"},
		{"no rotation", text("rope_parameters", nil), malformed, "rope_parameters.sliding_attention: missing"},
		{"no rotation of full layers", text("rope_parameters.full_attention", nil), malformed, "rope_parameters.full_attention: missing"},
		{"no base", text("rope_parameters.full_attention.rope_theta", nil), malformed, "rope_theta: missing"},
		{"zero base", text("rope_parameters.full_attention.rope_theta", 0), malformed, "rope_theta"},
		{"absurd base", text("rope_parameters.full_attention.rope_theta", 1e300), malformed, "rope_theta"},
		{"unknown rotation", text("rope_parameters.full_attention.rope_type", "yarn"), unsupported, `rope_type is "yarn"`},
		{"stretched rotation", text("rope_parameters.full_attention.factor", 8), unsupported, "factor is 8"},
		{"part of nothing", text("rope_parameters.full_attention.partial_rotary_factor", 0), malformed, "partial_rotary_factor"},
		{"more than the whole", text("rope_parameters.full_attention.partial_rotary_factor", 1.5), malformed, "partial_rotary_factor"},
		{"part of a default rotation", text("rope_parameters.sliding_attention.partial_rotary_factor", 0.5), unsupported, "partial_rotary_factor"},
		{"override of no layer", text("per_layer_config", raw(`{"10":{"head_dim":32}}`)), malformed, `per_layer_config["10"]`},
		{"override of a name", text("per_layer_config", raw(`{"full_attention":{"head_dim":32}}`)), malformed, "per_layer_config"},
		{"override twice", text("per_layer_config", raw(`{"4":{"head_dim":32},"04":{"head_dim":32}}`)), malformed, "occurs twice"},
		{"other override", text("per_layer_config", raw(`{"4":{"sliding_window":32}}`)), unsupported, "sliding_window"},
		{"override a string", text("per_layer_config", raw(`{"4":{"head_dim":"x"}}`)), malformed, "head_dim"},
		{"override null", text("per_layer_config", raw(`{"4":{"head_dim":null}}`)), malformed, "missing"},
		{"layers of a kind differ", text("per_layer_config", raw(`{"4":{"head_dim":32}}`)), malformed, "differ in their heads"},
		{"unknown quantisation", map[string]any{"quantization_config.quant_method": "awq"}, unsupported, `quant_method is "awq"`},
		{"no method", map[string]any{"quantization_config.quant_method": nil}, unsupported, "quant_method"},
		{"quantisation a list", map[string]any{"quantization_config": raw("[]")}, malformed, "quantization_config"},
		{"3 bits", map[string]any{"quantization_config.num_bits": 3}, unsupported, "num_bits is 3"},
		{"other tool's quantisation", map[string]any{"quantization": raw(`{"bits":4}`)}, unsupported, "quantization is present"},
		{"compressed", map[string]any{"compression_config": raw(`{"a":1}`)}, unsupported, "compression_config is present"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			refused(t, tinyConfig(t, c.changes), c.kind, c.want)
		})
	}
	for name, data := range map[string]string{"nothing": "", "not JSON": "{", "a list": "[]", "null": "null", "two": "{}{}", "not UTF-8": "{\"a\":\"\xff\"}", "huge": strings.Repeat(" ", 1<<20) + "{}"} {
		t.Run(name, func(t *testing.T) {
			_, err := gemma4.ParseConfig([]byte(data))
			if err == nil || fault.Hint(err) == "" || !errors.Is(err, malformed) && !errors.Is(err, unsupported) {
				t.Errorf("%v", err)
			}
		})
	}
}

// refused checks that a config.json is refused with an error of a kind that says want.
func refused(t *testing.T, data []byte, kind error, want string) {
	t.Helper()
	_, err := gemma4.ParseConfig(data)
	if !errors.Is(err, kind) || fault.Hint(err) == "" {
		t.Fatalf("%v is not %v with a hint", err, kind)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not say %q", err, want)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(tinyConfig(f, nil))
	f.Add(tinyConfig(f, map[string]any{"text_config.per_layer_config": json.RawMessage(`{"4":{"head_dim":64},"9":{"head_dim":64}}`)}))
	f.Add(tinyConfig(f, map[string]any{"quantization_config.module_quant_configs": json.RawMessage(`{"(a+)+$":{},"(?P<x>b)":{"num_bits":8},"(?i)C":{"num_bits":2}}`)}))
	if demo, err := os.ReadFile(filepath.Join("testdata", "e2b-tiny-srq", "config.json")); err == nil {
		f.Add(demo)
	}
	f.Add([]byte(`{"model_type":"gemma4","text_config":{"model_type":"gemma4_text","num_hidden_layers":1024}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := gemma4.ParseConfig(data)
		if err != nil {
			if !errors.Is(err, fault.ErrIntegrity) && !errors.Is(err, fault.ErrUsage) || fault.Hint(err) == "" {
				t.Fatalf("%T %v is of no kind or gives no hint", err, err)
			}
			return
		}
		for i := range cfg.Text.NumHiddenLayers {
			l := cfg.Layer(i)
			if l.HeadDim < 2 || l.HeadDim%2 != 0 || l.KVHeads < 1 || cfg.Text.NumAttentionHeads%l.KVHeads != 0 || l.FFN < 1 {
				t.Fatalf("layer %d: %+v", i, l)
			}
			if s := cfg.Layer(l.KVSource); !s.OwnsKV || s.Full != l.Full || s.HeadDim != l.HeadDim || s.KVHeads != l.KVHeads || l.KVSource > i || l.OwnsKV && l.KVSource != i {
				t.Fatalf("layer %d reads the cache of layer %d: %+v %+v", i, l.KVSource, l, s)
			}
		}
		if cfg.Quantization != nil {
			bits, err := cfg.Quantization.Bits("model.language_model.layers.0.mlp.up_proj", false)
			if err == nil && bits != 0 && bits != 2 && bits != 4 && bits != 8 || err != nil && !errors.Is(err, fault.ErrIntegrity) {
				t.Fatalf("%d bits, %v", bits, err)
			}
		}
	})
}
