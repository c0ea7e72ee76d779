// Package gemma4test writes random checkpoints in the layouts of the official Gemma
// 4 ones, of any size: small ones for tests, and ones in the official
// shapes, to see how conversion and decoding behave at full size without a
// download. It lists the tensors by itself, from the text of the layout, so that it
// checks the converter and does not repeat it.
package gemma4test

import (
	"encoding/json"
	"fmt"
)

// Sizes are the shapes of a model.
type Sizes struct {
	// Vocab is the number of tokens, at least MinVocab.
	Vocab int
	// Hidden, FFN and PerLayer are the widths of the hidden state, the feed-forward
	// network and the per-layer input.
	Hidden, FFN, PerLayer int
	// Layers and Shared are the numbers of layers and of those, at the end, that
	// share the keys and values of others. A multiple of FullEvery layers.
	Layers, Shared int
	// FullEvery is the distance of layers with full attention.
	FullEvery int
	// Heads and KVHeads are the numbers of query heads and of key and value heads.
	Heads, KVHeads int
	// HeadDim and GlobalHeadDim are the lengths of a head in sliding and full layers.
	HeadDim, GlobalHeadDim int
	// Window and Context are numbers of positions.
	Window, Context int
	// DoubleWide doubles the feed-forward network of the layers that share.
	DoubleWide bool
	// EmbedBits and PerLayerBits are the bits of the embedding, which is the head as
	// well, and of the per-layer table.
	EmbedBits, PerLayerBits int
	// Int4FFN is the number of layers, at the start, whose feed-forward network has 4 bits; that of the others has 2.
	Int4FFN int
	// Floats gives bfloat16 weights in place of codes, and no head of its own.
	Floats bool
}

// WithFloats returns the sizes with weights that are floats.
func (s Sizes) WithFloats() Sizes {
	s.Floats = true
	return s
}

// E2B returns the sizes of Gemma 4 E2B.
func E2B() Sizes {
	return Sizes{
		Vocab: 262144, Hidden: 1536, FFN: 6144, PerLayer: 256, Layers: 35, Shared: 20, FullEvery: 5,
		Heads: 8, KVHeads: 1, HeadDim: 256, GlobalHeadDim: 512, Window: 512, Context: 131072, DoubleWide: true,
		EmbedBits: 2, PerLayerBits: 4, Int4FFN: 15,
	}
}

// E4B returns the sizes of Gemma 4 E4B.
func E4B() Sizes {
	return Sizes{
		Vocab: 262144, Hidden: 2560, FFN: 10240, PerLayer: 256, Layers: 42, Shared: 18, FullEvery: 6,
		Heads: 8, KVHeads: 2, HeadDim: 256, GlobalHeadDim: 512, Window: 512, Context: 131072,
		EmbedBits: 2, PerLayerBits: 2, Int4FFN: 42,
	}
}

// Tiny returns sizes for tests: ten layers, every format, and no dimension that
// fills whole blocks of 16 rows everywhere.
func Tiny() Sizes {
	return Sizes{
		Vocab: MinVocab + 8, Hidden: 40, FFN: 56, PerLayer: 8, Layers: 10, Shared: 5, FullEvery: 5,
		Heads: 4, KVHeads: 1, HeadDim: 12, GlobalHeadDim: 20, Window: 6, Context: 256, DoubleWide: true,
		EmbedBits: 2, PerLayerBits: 4, Int4FFN: 5,
	}
}

// TinyFloats returns sizes for tests of weights that are floats: inputs fill blocks of
// 32 columns, and outputs do not fill blocks of 16 rows everywhere.
func TinyFloats() Sizes {
	return Sizes{
		Vocab: MinVocab + 8, Hidden: 64, FFN: 96, PerLayer: 32, Layers: 12, Shared: 6, FullEvery: 6,
		Heads: 4, KVHeads: 2, HeadDim: 8, GlobalHeadDim: 24, Window: 6, Context: 256, Floats: true,
	}
}

// member is one member of a JSON object whose order counts.
type member struct {
	key   string
	value any
}

// object marshals its members in their order.
type object []member

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, m := range o {
		key, err := json.Marshal(m.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

// Config returns a config.json for these sizes.
func (s Sizes) Config() ([]byte, error) {
	types := make([]string, s.Layers)
	for i := range types {
		types[i] = "sliding_attention"
		if (i+1)%s.FullEvery == 0 {
			types[i] = "full_attention"
		}
	}
	text := object{
		{"model_type", "gemma4_text"}, {"vocab_size", s.Vocab}, {"hidden_size", s.Hidden}, {"intermediate_size", s.FFN},
		{"num_hidden_layers", s.Layers}, {"num_attention_heads", s.Heads}, {"num_key_value_heads", s.KVHeads},
		{"head_dim", s.HeadDim}, {"global_head_dim", s.GlobalHeadDim}, {"hidden_activation", "gelu_pytorch_tanh"},
		{"max_position_embeddings", s.Context}, {"rms_norm_eps", 1e-6}, {"tie_word_embeddings", s.Floats},
		{"rope_parameters", object{
			{"sliding_attention", object{{"rope_type", "default"}, {"rope_theta", 1e4}}},
			{"full_attention", object{{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}}},
		}},
		{"attention_bias", false}, {"sliding_window", s.Window}, {"layer_types", types}, {"final_logit_softcapping", 30.0},
		{"vocab_size_per_layer_input", s.Vocab}, {"hidden_size_per_layer_input", s.PerLayer}, {"attention_k_eq_v", false},
		{"num_kv_shared_layers", s.Shared}, {"enable_moe_block", false}, {"use_double_wide_mlp", s.DoubleWide},
		{"pad_token_id", padID}, {"eos_token_id", eosID}, {"bos_token_id", bosID},
	}
	config := object{
		{"architectures", []string{"Gemma4ForConditionalGeneration"}}, {"model_type", "gemma4"}, {"tie_word_embeddings", s.Floats},
		{"text_config", text},
	}
	if s.Floats {
		return json.MarshalIndent(config, "", "  ")
	}
	bits := func(n int) object { return object{{"num_bits", n}} }
	rules := object{
		{`^lm_head$`, bits(s.EmbedBits)},
		{`language_model\.embed_tokens$`, bits(s.EmbedBits)},
		{`language_model\.embed_tokens_per_layer$`, bits(s.PerLayerBits)},
	}
	for i := range s.Int4FFN {
		rules = append(rules, member{fmt.Sprintf(`language_model\.layers\.%d\.mlp\.`, i), bits(4)})
	}
	rules = append(rules, object{
		{`language_model\.layers\.\d+\.mlp\.`, bits(2)},
		{`language_model\.layers\.\d+\.per_layer_(input_gate|projection)$`, bits(8)},
	}...)
	config = append(config, member{"quantization_config", object{
		{"quant_method", "gemma"}, {"num_bits", 4}, {"quantize_embeddings", true}, {"module_quant_configs", rules},
		{"modules_to_not_convert", []string{"per_layer_model_projection", "vision_tower", "audio_tower", "embed_vision", "embed_audio"}},
	}})
	return json.MarshalIndent(config, "", "  ")
}
