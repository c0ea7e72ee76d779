package gemma3_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/plugins/gemma3"
	"github.com/zoo-sdk/zoo/zoo"
)

// full returns which of so many layers have full attention.
func full(n int, indices ...int) []bool {
	all := make([]bool, n)
	for _, i := range indices {
		all[i] = true
	}
	return all
}

// TestParseConfig reads the forms in which published files have it.
func TestParseConfig(t *testing.T) {
	want := gemma3.Config{
		VocabSize: vocab(), HiddenSize: hidden, IntermediateSize: ffn, NumHiddenLayers: layers, NumAttentionHeads: heads, NumKeyValueHeads: kvHeads,
		HeadDim: width, MaxPositionEmbeddings: positions, SlidingWindow: window, Full: full(layers, 5), Local: gemma3.RoPE{Theta: 1e4, Factor: 1},
		Global: gemma3.RoPE{Theta: 1e6, Factor: 1}, RMSNormEps: 1e-6, QueryPreAttnScalar: width, TieWordEmbeddings: true,
	}
	types := []string{"full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"}
	for _, c := range []struct {
		name    string
		changes map[string]any
		change  func(*gemma3.Config)
	}{
		{"a distance", nil, func(*gemma3.Config) {}},
		{"no distance", map[string]any{"sliding_window_pattern": nil}, func(*gemma3.Config) {}},
		{"another distance", map[string]any{"sliding_window_pattern": 2}, func(c *gemma3.Config) { c.Full = full(layers, 1, 3, 5) }},
		{"a list", map[string]any{"layer_types": types}, func(c *gemma3.Config) { c.Full = full(layers, 0, 6) }},
		{"untied", map[string]any{"tie_word_embeddings": false}, func(c *gemma3.Config) { c.TieWordEmbeddings = false }},
		{"stretched", map[string]any{"rope_scaling": map[string]any{"rope_type": "linear", "factor": 8}}, func(c *gemma3.Config) { c.Global.Factor = 8 }},
		{"stretched, the older way", map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": 8}}, func(c *gemma3.Config) { c.Global.Factor = 8 }},
		{"rotations in one place", map[string]any{"rope_theta": nil, "rope_local_base_freq": nil, "rope_parameters": map[string]any{
			"full_attention": map[string]any{"rope_type": "linear", "factor": 2, "rope_theta": 5e5}, "sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 2e4}}},
			func(c *gemma3.Config) {
				c.Global, c.Local = gemma3.RoPE{Theta: 5e5, Factor: 2}, gemma3.RoPE{Theta: 2e4, Factor: 1}
			}},
		{"capped", map[string]any{"final_logit_softcapping": 30}, func(c *gemma3.Config) { c.FinalLogitSoftcapping = 30 }},
	} {
		got, err := gemma3.ParseConfig(changed(t, c.changes))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		want := want
		c.change(&want)
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestConfigRefused(t *testing.T) {
	unsupported := func(err error) bool {
		_, ok := errors.AsType[*checkpoint.UnsupportedError](err)
		return ok && errors.Is(err, zoo.ErrUsage) && zoo.Hint(err) != ""
	}
	malformed := func(err error) bool {
		_, ok := errors.AsType[*checkpoint.ConfigError](err)
		return ok && errors.Is(err, zoo.ErrIntegrity) && zoo.Hint(err) != ""
	}
	for _, c := range []struct {
		name  string
		field string
		value any
		kind  func(error) bool
		text  string
	}{
		{"another family", "model_type", "gemma2", unsupported, `model_type is "gemma2"`},
		{"with images", "model_type", "gemma3", unsupported, "text models"},
		{"no family", "model_type", nil, unsupported, `model_type is ""`},
		{"no width", "hidden_size", nil, malformed, "hidden_size: missing"},
		{"no size", "vocab_size", 0, malformed, "vocab_size: 0"},
		{"absurd size", "intermediate_size", 1 << 40, malformed, "intermediate_size: 1099511627776"},
		{"half a layer", "num_hidden_layers", 1.5, malformed, "num_hidden_layers"},
		{"no layers", "num_hidden_layers", -1, malformed, "num_hidden_layers: -1"},
		{"odd head", "head_dim", 63, malformed, "odd"},
		{"long heads", "head_dim", 1 << 15, malformed, "head_dim: 32768"},
		{"many heads", "num_attention_heads", 1025, malformed, "num_attention_heads: 1025"},
		{"heads that do not share", "num_key_value_heads", 3, malformed, "do not divide"},
		{"more keys than queries", "num_key_value_heads", 8, malformed, "num_key_value_heads: 8"},
		{"no epsilon", "rms_norm_eps", nil, malformed, "rms_norm_eps: missing"},
		{"zero epsilon", "rms_norm_eps", 0, malformed, "rms_norm_eps"},
		{"epsilon below float32", "rms_norm_eps", 1e-60, malformed, "rms_norm_eps"},
		{"no scale", "query_pre_attn_scalar", nil, malformed, "query_pre_attn_scalar: missing"},
		{"negative scale", "query_pre_attn_scalar", -256, malformed, "query_pre_attn_scalar"},
		{"capped scores", "attn_logit_softcapping", 50, unsupported, "attn_logit_softcapping is 50"},
		{"negative cap", "final_logit_softcapping", -1, malformed, "final_logit_softcapping"},
		{"biases", "attention_bias", true, unsupported, "attention_bias is true"},
		{"an encoder", "use_bidirectional_attention", true, unsupported, "use_bidirectional_attention is true"},
		{"another activation", "hidden_activation", "silu", unsupported, `hidden_activation is "silu"`},
		{"quantised", "quantization_config", map[string]any{"bits": 4}, unsupported, "quantization_config"},
		{"no distance of layers", "sliding_window_pattern", 0, malformed, "sliding_window_pattern"},
		{"too few types of layers", "layer_types", []string{"full_attention"}, malformed, "1 entries for 7 layers"},
		{"unknown type of layer", "layer_types", []string{"a", "a", "a", "a", "a", "a", "a"}, unsupported, `layer_types[0] is "a"`},
		{"no window", "sliding_window", nil, malformed, "sliding_window: missing"},
		{"no base", "rope_theta", nil, malformed, "rope_theta: missing"},
		{"base below 1", "rope_local_base_freq", 0.5, malformed, "rope_local_base_freq"},
		{"absurd base", "rope_theta", 1e300, malformed, "rope_theta"},
		{"unknown stretch", "rope_scaling", map[string]any{"rope_type": "yarn", "factor": 8}, unsupported, `"yarn"`},
		{"stretch without a factor", "rope_scaling", map[string]any{"rope_type": "linear"}, malformed, "factor: missing"},
		{"stretch that is none", "rope_scaling", map[string]any{"rope_type": "default", "factor": 8}, unsupported, "factor is 8"},
		{"rotation of one kind", "rope_parameters", map[string]any{"full_attention": map[string]any{"rope_type": "default", "rope_theta": 1e6}}, malformed, "rope_parameters.sliding_attention: missing"},
		{"rotation without a base", "rope_parameters", map[string]any{"sliding_attention": map[string]any{"rope_type": "default"}}, malformed, "rope_parameters.sliding_attention: missing"},
	} {
		_, err := gemma3.ParseConfig(changed(t, map[string]any{c.field: c.value}))
		if !c.kind(err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	wide := changed(t, map[string]any{"head_dim": 1 << 14, "num_attention_heads": 8})
	if _, err := gemma3.ParseConfig(wide); !malformed(err) || !strings.Contains(err.Error(), "131072 columns") {
		t.Errorf("wide heads: %v", err)
	}
	for name, data := range map[string]string{
		"nothing": "", "no object": "[]", "cut": `{"model_type":`, "more behind": string(changed(t, nil)) + "{}", "no UTF-8": "{\"model_type\":\"\xff\"}", "large": strings.Repeat(" ", 2<<20),
	} {
		if _, err := gemma3.ParseConfig([]byte(data)); !malformed(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzParseConfig checks that what is accepted has sound sizes, and can be recorded or is refused.
func FuzzParseConfig(f *testing.F) {
	f.Add(changed(f, nil))
	f.Add(changed(f, map[string]any{"layer_types": []string{"full_attention"}, "num_hidden_layers": 1}))
	f.Add(changed(f, map[string]any{"rope_scaling": map[string]any{"rope_type": "linear", "factor": 1e-30}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := gemma3.ParseConfig(data)
		if err != nil {
			if !errors.Is(err, zoo.ErrIntegrity) && !errors.Is(err, zoo.ErrUsage) {
				t.Errorf("an error of no kind: %v", err)
			}
			return
		}
		if len(cfg.Full) != cfg.NumHiddenLayers || cfg.NumAttentionHeads%cfg.NumKeyValueHeads != 0 || !(cfg.RMSNormEps > 0) || math.IsInf(cfg.Global.Theta, 0) || !(cfg.Global.Factor > 0) {
			t.Errorf("%+v", cfg)
		}
		if _, err := gemma3.Record(&zoo.Manifest{}, cfg); !errors.Is(err, zoo.ErrIntegrity) {
			t.Errorf("recorded without weights: %v", err)
		}
	})
}
