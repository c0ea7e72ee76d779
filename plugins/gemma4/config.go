package gemma4

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/quant"
)

// Bounds of what a config.json may ask for. They are far above any model of the
// family, and so low that no size computed from them overflows.
const (
	maxLayers  = 1024
	maxHeads   = 1024
	maxHeadDim = 1 << 14
	maxContext = 1 << 30
)

// The two kinds of layer_types.
const (
	slidingAttention = "sliding_attention"
	fullAttention    = "full_attention"
)

// Config is what the text decoder needs of a checkpoint's config.json, checked. It
// is read-only.
type Config struct {
	// Text describes the decoder.
	Text TextConfig
	// TieWordEmbeddings says that the embedding is the head.
	TieWordEmbeddings bool
	// Quantization is nil if the weights are floats.
	Quantization *Quantization

	layers []Layer
}

// TextConfig holds the fields of text_config, by their own names, that are the same for all layers.
type TextConfig struct {
	// VocabSize is the number of rows of the embedding and of logits.
	VocabSize int
	// HiddenSize is the width of the hidden state.
	HiddenSize int
	// IntermediateSize is the width of the feed-forward network of layers that are not double-wide.
	IntermediateSize int
	// NumHiddenLayers is the number of layers.
	NumHiddenLayers int
	// NumAttentionHeads is the number of query heads of every layer.
	NumAttentionHeads int
	// NumKVSharedLayers is the number of layers, at the end, without keys and values of their own.
	NumKVSharedLayers int
	// SlidingWindow is the number of latest positions that a sliding layer sees, the current one included.
	SlidingWindow int
	// MaxPositionEmbeddings is the number of positions that the model was made for.
	MaxPositionEmbeddings int
	// VocabSizePerLayerInput and HiddenSizePerLayerInput give the shape of the
	// per-layer table, [VocabSizePerLayerInput, NumHiddenLayers * HiddenSizePerLayerInput].
	// Both are 0 in a model without one.
	VocabSizePerLayerInput, HiddenSizePerLayerInput int
	// RMSNormEps is added to the mean square of every norm.
	RMSNormEps float32
	// FinalLogitSoftcapping bounds the logits; 0 means that they are not bounded.
	FinalLogitSoftcapping float32
	// AttentionKEqV says that full layers have no v_proj: the output of k_proj, before its norm, is the value.
	AttentionKEqV bool
}

// RoPE is the rotary embedding of one kind of layer.
type RoPE struct {
	// RopeTheta is the base of the frequencies.
	RopeTheta float64
	// PartialRotaryFactor is the share of a head's pairs that are rotated, the first ones: above 0, at most 1.
	PartialRotaryFactor float64
}

// Layer holds what differs from layer to layer.
type Layer struct {
	// Full is true for full_attention, false for sliding_attention.
	Full bool
	// HeadDim is the length of a head, an even number.
	HeadDim int
	// KVHeads is the number of key and value heads, a divisor of the query heads.
	KVHeads int
	// FFN is the width of the feed-forward network.
	FFN int
	// OwnsKV says that the layer computes keys and values; otherwise it reads those of KVSource.
	OwnsKV bool
	// KVSource is the layer whose cache this layer reads, its own number if OwnsKV.
	KVSource int
	// KeyIsValue says that the layer has k_proj but no v_proj, see TextConfig.AttentionKEqV.
	KeyIsValue bool
	// RoPE is the rotation of queries and keys.
	RoPE RoPE
}

// Layer returns the facts of layer i, which lies in 0 to NumHiddenLayers-1.
func (c *Config) Layer(i int) Layer { return c.layers[i] }

// TokenLimit returns one more than the largest token id that may be fed: every
// table must have a row for it. Ids of added tokens can lie beyond.
func (c *Config) TokenLimit() int {
	if c.Text.HiddenSizePerLayerInput == 0 {
		return c.Text.VocabSize
	}
	return min(c.Text.VocabSize, c.Text.VocabSizePerLayerInput)
}

// rawConfig is config.json as far as it matters here.
type rawConfig struct {
	ModelType          *string         `json:"model_type"`
	TieWordEmbeddings  *bool           `json:"tie_word_embeddings"`
	TextConfig         *rawText        `json:"text_config"`
	QuantizationConfig json.RawMessage `json:"quantization_config"`
	// These are where other tools describe quantised weights.
	CompressionConfig json.RawMessage `json:"compression_config"`
	Quantization      json.RawMessage `json:"quantization"`
}

// rawText is text_config as far as it matters here; nil is a field that is missing or null.
type rawText struct {
	ModelType               *string                               `json:"model_type"`
	VocabSize               *int64                                `json:"vocab_size"`
	HiddenSize              *int64                                `json:"hidden_size"`
	IntermediateSize        *int64                                `json:"intermediate_size"`
	NumHiddenLayers         *int64                                `json:"num_hidden_layers"`
	NumAttentionHeads       *int64                                `json:"num_attention_heads"`
	NumKeyValueHeads        *int64                                `json:"num_key_value_heads"`
	NumGlobalKeyValueHeads  *int64                                `json:"num_global_key_value_heads"`
	HeadDim                 *int64                                `json:"head_dim"`
	GlobalHeadDim           *int64                                `json:"global_head_dim"`
	PerLayerConfig          map[string]map[string]json.RawMessage `json:"per_layer_config"`
	HiddenActivation        *string                               `json:"hidden_activation"`
	MaxPositionEmbeddings   *int64                                `json:"max_position_embeddings"`
	RMSNormEps              *float64                              `json:"rms_norm_eps"`
	TieWordEmbeddings       *bool                                 `json:"tie_word_embeddings"`
	RopeParameters          map[string]*rawRope                   `json:"rope_parameters"`
	AttentionBias           *bool                                 `json:"attention_bias"`
	SlidingWindow           *int64                                `json:"sliding_window"`
	LayerTypes              []string                              `json:"layer_types"`
	FinalLogitSoftcapping   *float64                              `json:"final_logit_softcapping"`
	UseBidirectional        *string                               `json:"use_bidirectional_attention"`
	VocabSizePerLayerInput  *int64                                `json:"vocab_size_per_layer_input"`
	HiddenSizePerLayerInput *int64                                `json:"hidden_size_per_layer_input"`
	AttentionKEqV           *bool                                 `json:"attention_k_eq_v"`
	NumKVSharedLayers       *int64                                `json:"num_kv_shared_layers"`
	EnableMoEBlock          *bool                                 `json:"enable_moe_block"`
	UseDoubleWideMLP        *bool                                 `json:"use_double_wide_mlp"`
}

// rawRope is one entry of rope_parameters.
type rawRope struct {
	RopeType            *string  `json:"rope_type"`
	RopeTheta           *float64 `json:"rope_theta"`
	PartialRotaryFactor *float64 `json:"partial_rotary_factor"`
	Factor              *float64 `json:"factor"`
}

// ParseConfig reads a checkpoint's config.json. Errors are a *checkpoint.ConfigError, for a
// file that is malformed or contradicts itself, or an *checkpoint.UnsupportedError, for a
// model that is not a Gemma 4 decoder as this package runs it.
func ParseConfig(data []byte) (*Config, error) {
	var raw rawConfig
	if err := checkpoint.DecodeConfig(data, &raw); err != nil {
		return nil, err
	}
	if t := text(raw.ModelType); t != "gemma4" {
		return nil, &checkpoint.UnsupportedError{Field: "model_type", Got: strconv.Quote(t), Want: `"gemma4"`}
	}
	if raw.TextConfig == nil {
		return nil, &checkpoint.ConfigError{Field: "text_config", Problem: "missing"}
	}
	p := &configParser{text: raw.TextConfig}
	c := p.parse()
	// The outer field is the one that counts; it may be left out.
	switch {
	case raw.TieWordEmbeddings != nil:
		c.TieWordEmbeddings = *raw.TieWordEmbeddings
	case raw.TextConfig.TieWordEmbeddings != nil:
		c.TieWordEmbeddings = *raw.TextConfig.TieWordEmbeddings
	default:
		c.TieWordEmbeddings = true
	}
	if p.err != nil {
		return nil, p.err
	}
	for _, other := range []struct {
		field string
		value json.RawMessage
	}{{"compression_config", raw.CompressionConfig}, {"quantization", raw.Quantization}} {
		if present(other.value) {
			return nil, &checkpoint.UnsupportedError{Field: other.field, Got: "present", Want: "absent: quantization_config is what describes the weights"}
		}
	}
	if present(raw.QuantizationConfig) {
		q, err := parseQuantization(raw.QuantizationConfig)
		if err != nil {
			return nil, err
		}
		c.Quantization = q
	}
	return c, nil
}

// present reports whether a field is there and not null.
func present(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" }

// text returns the string that p points to, or "".
func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// configParser checks text_config. It keeps the first error, so that the fields
// can be read one after another.
type configParser struct {
	text *rawText
	err  error
}

// fail records an error about a field of text_config.
func (p *configParser) fail(field, format string, args ...any) {
	if p.err == nil {
		p.err = &checkpoint.ConfigError{Field: "text_config." + field, Problem: fmt.Sprintf(format, args...)}
	}
}

// unsupported records that a field has a value that this package does not run.
func (p *configParser) unsupported(field, got, want string) {
	if p.err == nil {
		p.err = &checkpoint.UnsupportedError{Field: "text_config." + field, Got: got, Want: want}
	}
}

// size returns a field that must lie in low to high. On error it returns low.
func (p *configParser) size(field string, v *int64, low, high int) int {
	switch {
	case v == nil:
		p.fail(field, "missing")
	case *v < int64(low) || *v > int64(high):
		p.fail(field, "%d is outside %d to %d", *v, low, high)
	default:
		return int(*v)
	}
	return low
}

// off checks that a switch is off: missing, null or false.
func (p *configParser) off(field string, v *bool) {
	if v != nil && *v {
		p.unsupported(field, "true", "false")
	}
}

// parse reads text_config.
func (p *configParser) parse() *Config {
	t := p.text
	if mt := text(t.ModelType); mt != "gemma4_text" {
		p.unsupported("model_type", strconv.Quote(mt), `"gemma4_text"`)
	}
	p.off("enable_moe_block", t.EnableMoEBlock)
	p.off("attention_bias", t.AttentionBias)
	if act := text(t.HiddenActivation); act != "gelu_pytorch_tanh" {
		p.unsupported("hidden_activation", strconv.Quote(act), `"gelu_pytorch_tanh"`)
	}
	// With "vision" only the tokens of an image see each other both ways.
	if dir := text(t.UseBidirectional); dir != "" && dir != "vision" {
		p.unsupported("use_bidirectional_attention", strconv.Quote(dir), `null or "vision"`)
	}
	c := &Config{Text: TextConfig{
		VocabSize:             p.size("vocab_size", t.VocabSize, 1, quant.MaxDim),
		HiddenSize:            p.size("hidden_size", t.HiddenSize, 1, quant.MaxBlockCols),
		IntermediateSize:      p.size("intermediate_size", t.IntermediateSize, 1, quant.MaxBlockCols),
		NumHiddenLayers:       p.size("num_hidden_layers", t.NumHiddenLayers, 1, maxLayers),
		NumAttentionHeads:     p.size("num_attention_heads", t.NumAttentionHeads, 1, maxHeads),
		SlidingWindow:         p.size("sliding_window", t.SlidingWindow, 1, maxContext),
		MaxPositionEmbeddings: p.size("max_position_embeddings", t.MaxPositionEmbeddings, 1, maxContext),
		AttentionKEqV:         t.AttentionKEqV != nil && *t.AttentionKEqV,
	}}
	if t.NumKVSharedLayers != nil {
		c.Text.NumKVSharedLayers = p.size("num_kv_shared_layers", t.NumKVSharedLayers, 0, c.Text.NumHiddenLayers-1)
	}
	c.Text.RMSNormEps = p.positive("rms_norm_eps", t.RMSNormEps, 1)
	if t.FinalLogitSoftcapping != nil {
		c.Text.FinalLogitSoftcapping = p.positive("final_logit_softcapping", t.FinalLogitSoftcapping, 1e6)
	}
	p.perLayerInput(c)
	p.layers(c)
	p.ropes(c)
	return c
}

// positive returns a number above 0 and at most most.
func (p *configParser) positive(field string, v *float64, most float64) float32 {
	switch {
	case v == nil:
		p.fail(field, "missing")
	case !(float32(*v) > 0) || *v > most: // the negation catches what is not a number
		p.fail(field, "%v is not above 0 and at most %v", *v, most)
	default:
		return float32(*v)
	}
	return 1
}

// perLayerInput reads the shape of the per-layer table.
func (p *configParser) perLayerInput(c *Config) {
	t := p.text
	c.Text.HiddenSizePerLayerInput = p.size("hidden_size_per_layer_input", t.HiddenSizePerLayerInput, 0, quant.MaxBlockCols)
	if c.Text.HiddenSizePerLayerInput == 0 {
		return
	}
	c.Text.VocabSizePerLayerInput = p.size("vocab_size_per_layer_input", t.VocabSizePerLayerInput, 1, quant.MaxDim)
	if c.Text.NumHiddenLayers*c.Text.HiddenSizePerLayerInput > quant.MaxDim {
		p.fail("hidden_size_per_layer_input", "%d for each of %d layers is too wide a table", c.Text.HiddenSizePerLayerInput, c.Text.NumHiddenLayers)
	}
}

// layers works out the facts of each layer.
func (p *configParser) layers(c *Config) {
	t := p.text
	if len(t.LayerTypes) != c.Text.NumHiddenLayers {
		p.fail("layer_types", "%d entries for %d layers", len(t.LayerTypes), c.Text.NumHiddenLayers)
		return
	}
	for i, kind := range t.LayerTypes {
		if kind != slidingAttention && kind != fullAttention {
			p.unsupported(fmt.Sprintf("layer_types[%d]", i), strconv.Quote(kind), strconv.Quote(slidingAttention)+" or "+strconv.Quote(fullAttention))
			return
		}
	}
	if last := t.LayerTypes[len(t.LayerTypes)-1]; last != fullAttention {
		p.fail("layer_types", "the last layer is %q, it must be %q", last, fullAttention)
	}
	headDim := p.size("head_dim", t.HeadDim, 2, maxHeadDim)
	kvHeads := p.size("num_key_value_heads", t.NumKeyValueHeads, 1, c.Text.NumAttentionHeads)
	double := t.UseDoubleWideMLP != nil && *t.UseDoubleWideMLP
	if double && c.Text.IntermediateSize > quant.MaxBlockCols/2 {
		p.fail("intermediate_size", "twice %d is more than %d", c.Text.IntermediateSize, quant.MaxBlockCols)
	}
	c.layers = make([]Layer, c.Text.NumHiddenLayers)
	for i := range c.layers {
		owns := i < c.Text.NumHiddenLayers-c.Text.NumKVSharedLayers
		l := Layer{Full: t.LayerTypes[i] == fullAttention, HeadDim: headDim, KVHeads: kvHeads, FFN: c.Text.IntermediateSize, OwnsKV: owns, KVSource: i}
		l.KeyIsValue = l.Full && c.Text.AttentionKEqV && owns
		if double && !owns {
			l.FFN *= 2
		}
		c.layers[i] = l
	}
	p.overrides(c)
	p.checkLayers(c)
}

// overrides applies what full or single layers have of their own: either the
// older global_ fields or per_layer_config, which replaces them.
func (p *configParser) overrides(c *Config) {
	t := p.text
	if t.PerLayerConfig == nil {
		if !slices.ContainsFunc(c.layers, func(l Layer) bool { return l.Full }) {
			return
		}
		headDim := p.size("global_head_dim", t.GlobalHeadDim, 2, maxHeadDim)
		var kvHeads int
		if c.Text.AttentionKEqV && t.NumGlobalKeyValueHeads != nil {
			kvHeads = p.size("num_global_key_value_heads", t.NumGlobalKeyValueHeads, 1, c.Text.NumAttentionHeads)
		}
		for i := range c.layers {
			if l := &c.layers[i]; l.Full {
				l.HeadDim = headDim
				if kvHeads > 0 {
					l.KVHeads = kvHeads
				}
			}
		}
		return
	}
	// Sorted, so that the first error is the same on every run.
	seen := make([]bool, len(c.layers))
	for _, key := range slices.Sorted(maps.Keys(t.PerLayerConfig)) {
		field := fmt.Sprintf("per_layer_config[%q]", fault.Shorten(key))
		i, err := strconv.Atoi(key) // keys may be padded with zeros
		if err != nil || i < 0 || i >= len(c.layers) || strings.HasPrefix(key, "+") {
			p.fail(field, "not the number of one of %d layers", len(c.layers))
			return
		}
		if seen[i] {
			p.fail(field, "layer %d occurs twice", i)
			return
		}
		seen[i] = true
		p.overrideLayer(field, &c.layers[i], t.PerLayerConfig[key], c)
	}
}

// overrideLayer applies one entry of per_layer_config.
func (p *configParser) overrideLayer(field string, l *Layer, values map[string]json.RawMessage, c *Config) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		var v *int64
		at := field + "." + fault.Shorten(name)
		if name != "head_dim" && name != "num_key_value_heads" {
			p.unsupported(at, "present", "absent: layers may differ in head_dim and num_key_value_heads alone")
			return
		}
		if err := json.Unmarshal(values[name], &v); err != nil {
			p.fail(at, "%q is not a whole number", fault.Shorten(string(values[name])))
			return
		}
		if name == "head_dim" {
			l.HeadDim = p.size(at, v, 2, maxHeadDim)
		} else {
			l.KVHeads = p.size(at, v, 1, c.Text.NumAttentionHeads)
		}
	}
}

// checkLayers checks the layers against each other and finds the caches that shared layers read.
func (p *configParser) checkLayers(c *Config) {
	var source [2]int // by kind, of the last layer that owns its cache
	first := [2]int{-1, -1}
	kind := func(l Layer) int {
		if l.Full {
			return 1
		}
		return 0
	}
	for i := range c.layers {
		l := &c.layers[i]
		k := kind(*l)
		name := p.text.LayerTypes[i]
		if l.HeadDim%2 != 0 {
			p.fail("head_dim", "%d of layer %d is odd: it has no halves to rotate", l.HeadDim, i)
		}
		if c.Text.NumAttentionHeads%l.KVHeads != 0 {
			p.fail("num_key_value_heads", "%d of layer %d do not divide %d query heads", l.KVHeads, i, c.Text.NumAttentionHeads)
		}
		if n := c.Text.NumAttentionHeads * l.HeadDim; n > quant.MaxBlockCols {
			p.fail("head_dim", "%d heads of %d are %d columns, at most %d are allowed", c.Text.NumAttentionHeads, l.HeadDim, n, quant.MaxBlockCols)
		}
		if first[k] < 0 {
			if !l.OwnsKV {
				p.fail("num_kv_shared_layers", "layer %d is %q and reads the cache of an earlier layer of its kind, but all %d of its kind are shared", i, name, c.Text.NumKVSharedLayers)
				return
			}
			first[k] = i
		}
		if f := c.layers[first[k]]; f.HeadDim != l.HeadDim || f.KVHeads != l.KVHeads {
			p.fail("per_layer_config", "layers %d and %d are both %q and differ in their heads: [%d, %d] and [%d, %d]",
				first[k], i, name, f.KVHeads, f.HeadDim, l.KVHeads, l.HeadDim)
		}
		if l.OwnsKV {
			source[k] = i
		}
		l.KVSource = source[k]
	}
}

// ropes reads the rotations of the kinds of layers that there are.
func (p *configParser) ropes(c *Config) {
	read := map[bool]RoPE{}
	for i := range c.layers {
		l := &c.layers[i]
		if _, ok := read[l.Full]; !ok {
			kind := slidingAttention
			if l.Full {
				kind = fullAttention
			}
			read[l.Full] = p.rope(kind)
		}
		l.RoPE = read[l.Full]
	}
}

// rope reads one entry of rope_parameters.
func (p *configParser) rope(kind string) RoPE {
	r := p.text.RopeParameters[kind]
	field := "rope_parameters." + kind
	out := RoPE{RopeTheta: 1, PartialRotaryFactor: 1}
	if r == nil {
		p.fail(field, "missing")
		return out
	}
	if r.RopeTheta == nil {
		p.fail(field+".rope_theta", "missing")
		return out
	}
	if out.RopeTheta = *r.RopeTheta; !(out.RopeTheta >= 1) || math.IsInf(out.RopeTheta, 0) || out.RopeTheta > math.MaxFloat32 {
		p.fail(field+".rope_theta", "%v is not a base of at least 1", out.RopeTheta)
	}
	if r.Factor != nil && *r.Factor != 1 {
		p.unsupported(field+".factor", strconv.FormatFloat(*r.Factor, 'g', -1, 64), "1 or absent")
	}
	switch rt := text(r.RopeType); rt {
	case "default":
		// The reference ignores the factor with this type; a file that means it means something else.
		if r.PartialRotaryFactor != nil && *r.PartialRotaryFactor != 1 {
			p.unsupported(field+".partial_rotary_factor", strconv.FormatFloat(*r.PartialRotaryFactor, 'g', -1, 64), `1 or absent with rope_type "default"`)
		}
	case "proportional":
		if r.PartialRotaryFactor != nil {
			out.PartialRotaryFactor = *r.PartialRotaryFactor
		}
		if f := out.PartialRotaryFactor; !(f > 0) || f > 1 {
			p.fail(field+".partial_rotary_factor", "%v is not above 0 and at most 1", f)
		}
	default:
		p.unsupported(field+".rope_type", strconv.Quote(rt), `"default" or "proportional"`)
	}
	return out
}
