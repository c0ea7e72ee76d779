package gemma3

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// Bounds of what a config.json may ask for, beside those of programs and matrices. They are
// far above any model of the family, and so low that no size computed from them overflows.
const (
	maxLayers = 1024
	maxHeads  = 1024
)

// The two kinds of layer_types.
const (
	slidingAttention = "sliding_attention"
	fullAttention    = "full_attention"
)

// linear is the kind of rope_scaling that divides positions.
const linear = "linear"

// modelType is the model_type of text models.
const modelType = "gemma3_text"

// defaultPattern is the distance of layers with full attention where config.json does not say it.
const defaultPattern = 6

// Config is what the decoder needs of a checkpoint's config.json, checked. Fields have
// its names. It is read-only.
type Config struct {
	// VocabSize is the number of rows of the embedding and of logits.
	VocabSize int
	// HiddenSize is the width of the hidden state, IntermediateSize that of the feed-forward network.
	HiddenSize, IntermediateSize int
	// NumHiddenLayers is the number of layers.
	NumHiddenLayers int
	// NumAttentionHeads is the number of query heads, a multiple of NumKeyValueHeads.
	NumAttentionHeads, NumKeyValueHeads int
	// HeadDim is the length of a head, an even number.
	HeadDim int
	// MaxPositionEmbeddings is the number of positions that the model was made for.
	MaxPositionEmbeddings int
	// SlidingWindow is the number of latest positions that a sliding layer sees, the current one included.
	SlidingWindow int
	// Full tells for each layer whether it is one of full attention.
	Full []bool
	// Local and Global are the rotations of sliding and of full layers.
	Local, Global RoPE
	// RMSNormEps is added to the mean square of every norm.
	RMSNormEps float32
	// QueryPreAttnScalar is the number by whose square root scores are divided.
	QueryPreAttnScalar float64
	// FinalLogitSoftcapping bounds the logits; 0 means that they are not bounded.
	FinalLogitSoftcapping float32
	// TieWordEmbeddings says that the embedding is the head.
	TieWordEmbeddings bool
}

// RoPE is the rotary embedding of one kind of layer.
type RoPE struct {
	// Theta is the base of the frequencies.
	Theta float64
	// Factor divides positions: 1, or more in models that were stretched.
	Factor float64
}

// rawConfig is config.json as far as it matters here; nil is a field that is missing or null.
type rawConfig struct {
	ModelType             *string             `json:"model_type"`
	VocabSize             *int64              `json:"vocab_size"`
	HiddenSize            *int64              `json:"hidden_size"`
	IntermediateSize      *int64              `json:"intermediate_size"`
	NumHiddenLayers       *int64              `json:"num_hidden_layers"`
	NumAttentionHeads     *int64              `json:"num_attention_heads"`
	NumKeyValueHeads      *int64              `json:"num_key_value_heads"`
	HeadDim               *int64              `json:"head_dim"`
	HiddenActivation      *string             `json:"hidden_activation"`
	MaxPositionEmbeddings *int64              `json:"max_position_embeddings"`
	RMSNormEps            *float64            `json:"rms_norm_eps"`
	TieWordEmbeddings     *bool               `json:"tie_word_embeddings"`
	AttentionBias         *bool               `json:"attention_bias"`
	QueryPreAttnScalar    *float64            `json:"query_pre_attn_scalar"`
	SlidingWindow         *int64              `json:"sliding_window"`
	SlidingWindowPattern  *int64              `json:"sliding_window_pattern"`
	LayerTypes            []string            `json:"layer_types"`
	FinalLogitSoftcapping *float64            `json:"final_logit_softcapping"`
	AttnLogitSoftcapping  *float64            `json:"attn_logit_softcapping"`
	UseBidirectional      *bool               `json:"use_bidirectional_attention"`
	RopeTheta             *float64            `json:"rope_theta"`
	RopeLocalBaseFreq     *float64            `json:"rope_local_base_freq"`
	RopeScaling           *rawRope            `json:"rope_scaling"`
	RopeParameters        map[string]*rawRope `json:"rope_parameters"`
	QuantizationConfig    json.RawMessage     `json:"quantization_config"`
}

// rawRope is rope_scaling, or one entry of rope_parameters.
type rawRope struct {
	// Older files call the first "type".
	RopeType  *string  `json:"rope_type"`
	Type      *string  `json:"type"`
	RopeTheta *float64 `json:"rope_theta"`
	Factor    *float64 `json:"factor"`
}

// ParseConfig reads a checkpoint's config.json. Errors are a *checkpoint.ConfigError, for a
// file that is malformed or contradicts itself, or a *checkpoint.UnsupportedError, for a
// model that is not a Gemma 3 decoder as this package runs it.
func ParseConfig(data []byte) (*Config, error) {
	p := &configParser{}
	if err := checkpoint.DecodeConfig(data, &p.raw); err != nil {
		return nil, err
	}
	c := p.parse()
	if p.err != nil {
		return nil, p.err
	}
	return c, nil
}

// configParser checks config.json. It keeps the first error, so that the fields can be read one after another.
type configParser struct {
	raw rawConfig
	err error
}

// fail records an error about a field.
func (p *configParser) fail(field, format string, args ...any) {
	if p.err == nil {
		p.err = &checkpoint.ConfigError{Field: field, Problem: fmt.Sprintf(format, args...)}
	}
}

// unsupported records that a field has a value that this package does not run.
func (p *configParser) unsupported(field, got, want string) {
	if p.err == nil {
		p.err = &checkpoint.UnsupportedError{Field: field, Got: got, Want: want}
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

// number returns a field that must be above 0 and at most most; where it is missing, and
// missing is not 0, it is that.
func (p *configParser) number(field string, v *float64, missing, most float64) float64 {
	switch {
	case v == nil && missing != 0:
		return missing
	case v == nil:
		p.fail(field, "missing")
	case !(float32(*v) > 0) || *v > most: // the negation catches what is not a number
		p.fail(field, "%v is not above 0 and at most %v", *v, most)
	default:
		return *v
	}
	return 1
}

// off checks that a switch is off: missing, null or false.
func (p *configParser) off(field string, v *bool) {
	if v != nil && *v {
		p.unsupported(field, "true", "false")
	}
}

// text returns the string that v points to, or "".
func text(v *string) string {
	if v == nil {
		return ""
	}
	return *v
}

// parse reads all fields.
func (p *configParser) parse() *Config {
	r := &p.raw
	if t := text(r.ModelType); t != modelType {
		p.unsupported("model_type", strconv.Quote(t), strconv.Quote(modelType)+", that of the family's text models")
	}
	if q := string(r.QuantizationConfig); q != "" && q != "null" {
		p.unsupported("quantization_config", "present", "absent: quantised weights are read from GGUF files")
	}
	p.off("attention_bias", r.AttentionBias)
	p.off("use_bidirectional_attention", r.UseBidirectional)
	if act := text(r.HiddenActivation); act != "gelu_pytorch_tanh" {
		p.unsupported("hidden_activation", strconv.Quote(act), `"gelu_pytorch_tanh"`)
	}
	if r.AttnLogitSoftcapping != nil {
		p.unsupported("attn_logit_softcapping", fmt.Sprint(*r.AttnLogitSoftcapping), "null")
	}
	c := &Config{
		VocabSize:             p.size("vocab_size", r.VocabSize, 1, quant.MaxDim),
		HiddenSize:            p.size("hidden_size", r.HiddenSize, 1, quant.MaxBlockCols),
		IntermediateSize:      p.size("intermediate_size", r.IntermediateSize, 1, quant.MaxBlockCols),
		NumHiddenLayers:       p.size("num_hidden_layers", r.NumHiddenLayers, 1, maxLayers),
		NumAttentionHeads:     p.size("num_attention_heads", r.NumAttentionHeads, 1, maxHeads),
		HeadDim:               p.size("head_dim", r.HeadDim, 2, program.MaxHeadDim),
		MaxPositionEmbeddings: p.size("max_position_embeddings", r.MaxPositionEmbeddings, 1, program.MaxContext),
		SlidingWindow:         p.size("sliding_window", r.SlidingWindow, 1, program.MaxContext),
		RMSNormEps:            float32(p.number("rms_norm_eps", r.RMSNormEps, 0, 1)),
		QueryPreAttnScalar:    p.number("query_pre_attn_scalar", r.QueryPreAttnScalar, 0, 1e6),
		TieWordEmbeddings:     r.TieWordEmbeddings == nil || *r.TieWordEmbeddings,
	}
	c.NumKeyValueHeads = p.size("num_key_value_heads", r.NumKeyValueHeads, 1, c.NumAttentionHeads)
	if r.FinalLogitSoftcapping != nil {
		c.FinalLogitSoftcapping = float32(p.number("final_logit_softcapping", r.FinalLogitSoftcapping, 0, 1e6))
	}
	switch n := c.NumAttentionHeads * c.HeadDim; {
	case c.HeadDim%2 != 0:
		p.fail("head_dim", "%d is odd: it has no halves to rotate", c.HeadDim)
	case c.NumAttentionHeads%c.NumKeyValueHeads != 0:
		p.fail("num_key_value_heads", "%d do not divide %d query heads", c.NumKeyValueHeads, c.NumAttentionHeads)
	case n > quant.MaxBlockCols:
		p.fail("head_dim", "%d heads of %d are %d columns, at most %d are allowed", c.NumAttentionHeads, c.HeadDim, n, quant.MaxBlockCols)
	}
	p.layers(c)
	p.ropes(c)
	return c
}

// layers reads which layers have full attention: from a list, or from their distance.
func (p *configParser) layers(c *Config) {
	c.Full = make([]bool, c.NumHiddenLayers)
	if p.raw.LayerTypes == nil {
		pattern := defaultPattern
		if p.raw.SlidingWindowPattern != nil {
			pattern = p.size("sliding_window_pattern", p.raw.SlidingWindowPattern, 1, maxLayers)
		}
		for i := range c.Full {
			c.Full[i] = (i+1)%pattern == 0
		}
		return
	}
	if len(p.raw.LayerTypes) != c.NumHiddenLayers {
		p.fail("layer_types", "%d entries for %d layers", len(p.raw.LayerTypes), c.NumHiddenLayers)
		return
	}
	for i, kind := range p.raw.LayerTypes {
		if kind != slidingAttention && kind != fullAttention {
			p.unsupported(fmt.Sprintf("layer_types[%d]", i), strconv.Quote(shorten(kind)), strconv.Quote(slidingAttention)+" or "+strconv.Quote(fullAttention))
		}
		c.Full[i] = kind == fullAttention
	}
}

// ropes reads the two rotations, in either of the forms that files have them in.
func (p *configParser) ropes(c *Config) {
	r := &p.raw
	if r.RopeParameters == nil {
		c.Local = p.rope("rope_local_base_freq", r.RopeLocalBaseFreq, nil)
		c.Global = p.rope("rope_theta", r.RopeTheta, r.RopeScaling)
		return
	}
	c.Local = p.ropeOf(slidingAttention)
	c.Global = p.ropeOf(fullAttention)
}

// ropeOf reads one entry of rope_parameters.
func (p *configParser) ropeOf(kind string) RoPE {
	field := "rope_parameters." + kind
	entry := p.raw.RopeParameters[kind]
	if entry == nil {
		p.fail(field, "missing")
		return RoPE{Theta: 1, Factor: 1}
	}
	return p.rope(field, entry.RopeTheta, entry)
}

// rope returns a rotation by its base and by what stretches it, or nil.
func (p *configParser) rope(field string, theta *float64, scaling *rawRope) RoPE {
	out := RoPE{Theta: 1, Factor: 1}
	switch {
	case theta == nil:
		p.fail(field, "missing")
		return out
	case !(*theta >= 1) || *theta > math.MaxFloat32:
		p.fail(field, "%v is not a base of at least 1", *theta)
		return out
	}
	out.Theta = *theta
	if scaling == nil {
		return out
	}
	kind := text(scaling.RopeType)
	if kind == "" {
		kind = text(scaling.Type)
	}
	switch kind {
	case "default":
		if f := scaling.Factor; f != nil && *f != 1 {
			p.unsupported(field+" factor", fmt.Sprint(*f), `1 or absent with rope_type "default"`)
		}
	case linear:
		out.Factor = p.number(field+" factor", scaling.Factor, 0, 1e6)
	default:
		p.unsupported(field+" rope_type", strconv.Quote(shorten(kind)), `"default" or "linear"`)
	}
	return out
}

// shorten cuts a text from outside to a length that fits an error message.
func shorten(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
