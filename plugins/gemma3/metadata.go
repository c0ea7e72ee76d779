package gemma3

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/tokenizer"
	"github.com/zoo-sdk/zoo/zoo"
)

// Keys of the metadata.
const (
	architectureKey = "general.architecture"
	architecture    = "gemma3"
	templateKey     = "tokenizer.chat_template"
	samplingPrefix  = "general.sampling."
)

// What a file means that does not say it, as llama.cpp takes it.
const (
	// localTheta is the base of the rotation in sliding layers.
	localTheta = 10000.0
	// largestLayers is the number of layers of the one model of the family, 27B, whose
	// scores are not divided by the square root of the length of a head, of which no key tells.
	largestLayers = 62
)

// Pieces that make up a conversation, whatever a file says of them.
const (
	beginOfText = "<bos>"
	endOfText   = "<eos>"
	startOfTurn = "<start_of_turn>"
	endOfTurn   = "<end_of_turn>"
)

// hfConfig is config.json as [Describe] writes it.
type hfConfig struct {
	Architectures         []string `json:"architectures"`
	AttentionBias         bool     `json:"attention_bias"`
	AttnLogitSoftcapping  *float64 `json:"attn_logit_softcapping"`
	BOSTokenID            int32    `json:"bos_token_id"`
	EOSTokenID            []int32  `json:"eos_token_id"`
	FinalLogitSoftcapping *float64 `json:"final_logit_softcapping"`
	HeadDim               int64    `json:"head_dim"`
	HiddenActivation      string   `json:"hidden_activation"`
	HiddenSize            int64    `json:"hidden_size"`
	IntermediateSize      int64    `json:"intermediate_size"`
	LayerTypes            []string `json:"layer_types"`
	MaxPositionEmbeddings int64    `json:"max_position_embeddings"`
	ModelType             string   `json:"model_type"`
	NumAttentionHeads     int64    `json:"num_attention_heads"`
	NumHiddenLayers       int64    `json:"num_hidden_layers"`
	NumKeyValueHeads      int64    `json:"num_key_value_heads"`
	QueryPreAttnScalar    float64  `json:"query_pre_attn_scalar"`
	RMSNormEps            float64  `json:"rms_norm_eps"`
	RopeLocalBaseFreq     float64  `json:"rope_local_base_freq"`
	RopeScaling           *hfRope  `json:"rope_scaling"`
	RopeTheta             float64  `json:"rope_theta"`
	SlidingWindow         int64    `json:"sliding_window"`
	TieWordEmbeddings     bool     `json:"tie_word_embeddings"`
	VocabSize             int64    `json:"vocab_size"`
}

// hfRope is rope_scaling.
type hfRope struct {
	Factor   float64 `json:"factor"`
	RopeType string  `json:"rope_type"`
}

// hfGeneration is generation_config.json.
type hfGeneration struct {
	BOSTokenID  int32    `json:"bos_token_id"`
	DoSample    bool     `json:"do_sample,omitempty"`
	EOSTokenID  []int32  `json:"eos_token_id"`
	MinP        *float64 `json:"min_p,omitempty"`
	PadTokenID  *int32   `json:"pad_token_id,omitempty"`
	Temperature *float64 `json:"temperature,omitempty"`
	TopK        *int64   `json:"top_k,omitempty"`
	TopP        *float64 `json:"top_p,omitempty"`
}

// hfTokenizer is tokenizer_config.json.
type hfTokenizer struct {
	AddBOSToken    bool   `json:"add_bos_token"`
	AddEOSToken    bool   `json:"add_eos_token"`
	BOSToken       string `json:"bos_token"`
	EOSToken       string `json:"eos_token"`
	PadToken       string `json:"pad_token,omitempty"`
	TokenizerClass string `json:"tokenizer_class"`
	UnkToken       string `json:"unk_token,omitempty"`
}

// Description is what a GGUF file says of its model beside the weights.
type Description struct {
	// Files are config.json, generation_config.json, tokenizer_config.json and, if the file
	// has a template, chat_template.jinja, by their names, as Hugging Face's tools would have
	// them. Equal files give equal bytes.
	Files map[string][]byte
	// Pieces is the vocabulary, in which the pieces that begin and end texts and turns are
	// control pieces, whatever the file says.
	Pieces tokenizer.Pieces
}

// Describe reads the metadata of a GGUF file. A key that is missing, has a value of another
// kind or one that this family cannot have is a *gguf.KeyError, and another architecture
// matches zoo.ErrUsage. Whether the numbers fit each other is up to [ParseConfig].
func Describe(f *gguf.File) (*Description, error) {
	m := &metadata{file: f}
	if kind := m.text(architectureKey); m.err == nil && kind != architecture {
		return nil, usage("choose a file of a Gemma 3 text model, or a plugin that knows this one (`zoo plugin list`)",
			"%q: key %q: the architecture is %q, not %q", f.Name, architectureKey, shorten(kind), architecture)
	}
	if m.err != nil {
		return nil, m.err
	}
	v, err := f.Vocabulary()
	if err != nil {
		return nil, err
	}
	mark(v)
	config := m.config()
	config.BOSTokenID = v.BOS
	config.EOSTokenID = endings(v)
	generation := m.generation()
	generation.BOSTokenID, generation.EOSTokenID = config.BOSTokenID, config.EOSTokenID
	pieces := hfTokenizer{
		AddBOSToken: v.AddBOS, AddEOSToken: v.AddEOS, TokenizerClass: "GemmaTokenizer",
		BOSToken: piece(v, v.BOS), EOSToken: piece(v, v.EOS), PadToken: piece(v, v.Padding), UnkToken: piece(v, v.Unknown),
	}
	if v.Padding >= 0 {
		generation.PadTokenID = &v.Padding
	}
	template := ""
	if _, ok := f.Value(templateKey); ok {
		template = m.text(templateKey)
	}
	if m.err != nil {
		return nil, m.err
	}
	d := &Description{Files: map[string][]byte{}, Pieces: v.Pieces}
	if template != "" {
		d.Files[zoo.TemplateFile] = []byte(template)
	}
	var errs []error
	for name, content := range map[string]any{zoo.ConfigFile: config, zoo.GenerationFile: generation, zoo.TokenizerConfigFile: pieces} {
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false) // pieces such as <bos> stay readable
		e.SetIndent("", "  ")
		errs = append(errs, e.Encode(content))
		d.Files[name] = out.Bytes()
	}
	return d, errors.Join(errs...)
}

// mark makes control pieces of those that begin and end texts and turns, and of those that
// the file names for a purpose. Some converters type them as ordinary text: a model would
// then never see them, and what somebody writes could end a turn and begin another.
func mark(v *gguf.Vocabulary) {
	control := func(id int) {
		if id >= 0 && id < len(v.Pieces.Types) && v.Pieces.Types[id] != tokenizer.UnknownPiece {
			v.Pieces.Types[id] = tokenizer.ControlPiece
		}
	}
	for id, text := range v.Pieces.Texts {
		switch text {
		case beginOfText, endOfText, startOfTurn, endOfTurn:
			control(id)
		}
	}
	for _, id := range []int32{v.BOS, v.EOS, v.EOT, v.EOM, v.Unknown, v.Padding} {
		control(int(id))
	}
}

// endings returns the ids that end an answer: those that the file names, and the family's.
func endings(v *gguf.Vocabulary) []int32 {
	ids := []int32{v.EOS}
	add := func(id int32) {
		if id >= 0 && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	add(v.EOT)
	add(v.EOM)
	for id, text := range v.Pieces.Texts {
		if text == endOfText || text == endOfTurn {
			add(int32(id))
		}
	}
	return ids
}

// piece returns the text of an id, "" if there is none.
func piece(v *gguf.Vocabulary, id int32) string {
	if id < 0 || int(id) >= len(v.Pieces.Texts) {
		return ""
	}
	return v.Pieces.Texts[id]
}

// metadata reads keys. It keeps the first error, so that they can be read one after another.
type metadata struct {
	file *gguf.File
	err  error
}

// fail records what is wrong with a key.
func (m *metadata) fail(key, format string, args ...any) {
	if m.err == nil {
		m.err = &gguf.KeyError{File: m.file.Name, Key: key, Problem: fmt.Sprintf(format, args...)}
	}
}

// take passes a value on and records the error.
func take[T any](m *metadata, v T, err error) T {
	if m.err == nil {
		m.err = err
	}
	return v
}

// text returns the text of a key.
func (m *metadata) text(key string) string {
	v, err := m.file.Text(key)
	return take(m, v, err)
}

// integer returns the integer of a key, which lies in 0 to most.
func (m *metadata) integer(key string, most int64) int64 {
	v, err := m.file.Uint(key)
	if err == nil && v > uint64(most) {
		m.fail(key, "%d is more than %d", v, most)
		return 0
	}
	return take(m, int64(v), err)
}

// float returns the finite float of a key.
func (m *metadata) float(key string) float64 {
	v, err := m.file.Float(key)
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
		m.fail(key, "%v is no number", v)
		return 0
	}
	// A float32 is meant as the shortest decimal that gives it.
	return take(m, shortest(v), err)
}

// has reports whether a key is there.
func (m *metadata) has(key string) bool { _, ok := m.file.Value(key); return ok }

// config reads what config.json says.
func (m *metadata) config() *hfConfig {
	key := func(name string) string { return architecture + "." + name }
	size := func(name string) int64 { return m.integer(key(name), math.MaxInt32) }
	c := &hfConfig{
		Architectures: []string{"Gemma3ForCausalLM"}, ModelType: modelType, HiddenActivation: "gelu_pytorch_tanh",
		MaxPositionEmbeddings: size("context_length"), HiddenSize: size("embedding_length"), NumHiddenLayers: size("block_count"),
		IntermediateSize: size("feed_forward_length"), NumAttentionHeads: size("attention.head_count"), NumKeyValueHeads: size("attention.head_count_kv"),
		HeadDim: size("attention.key_length"), RMSNormEps: m.float(key("attention.layer_norm_rms_epsilon")),
		RopeTheta: m.float(key("rope.freq_base")), RopeLocalBaseFreq: localTheta,
	}
	if name := "attention.value_length"; size(name) != c.HeadDim {
		m.fail(key(name), "values of another length than keys, %d, are not supported", c.HeadDim)
	}
	if name := key("rope.freq_base_swa"); m.has(name) {
		c.RopeLocalBaseFreq = m.float(name)
	}
	if name := "rope.dimension_count"; m.has(key(name)) && size(name) != c.HeadDim {
		m.fail(key(name), "heads of %d of which only a part is rotated are not supported", c.HeadDim)
	}
	if name := key("final_logit_softcapping"); m.has(name) {
		if limit := m.float(name); limit != 0 { // 0 means none
			c.FinalLogitSoftcapping = &limit
		}
	}
	c.RopeScaling = m.scaling(key("rope.scaling.type"), key("rope.scaling.factor"), key("rope.scale_linear"))
	c.QueryPreAttnScalar = float64(c.HeadDim)
	if c.NumHiddenLayers == largestLayers && c.NumAttentionHeads > 0 {
		c.QueryPreAttnScalar = float64(c.HiddenSize / c.NumAttentionHeads)
	}
	m.windows(c, key("attention.sliding_window"), key("attention.sliding_window_pattern"))
	if embedding, ok := m.file.Tensor("token_embd.weight"); ok {
		c.VocabSize = int64(embedding.Rows())
	}
	_, head := m.file.Tensor("output.weight")
	c.TieWordEmbeddings = !head
	return c
}

// scaling reads what stretches the rotation of full layers, with the key of the factor and
// the one it had in older files. A factor means a linear one unless the file says otherwise,
// and 0 means none.
func (m *metadata) scaling(kindKey, factorKey, olderKey string) *hfRope {
	if !m.has(factorKey) && m.has(olderKey) {
		factorKey = olderKey
	}
	if m.has(kindKey) {
		switch kind := m.text(kindKey); kind {
		case "none", "":
			return nil
		case linear:
		default:
			m.fail(kindKey, `it is %q; only %q and "none" are supported`, shorten(kind), linear)
			return nil
		}
	} else if !m.has(factorKey) {
		return nil
	}
	factor := m.float(factorKey)
	if factor == 0 {
		return nil
	}
	return &hfRope{Factor: factor, RopeType: linear}
}

// windows reads which layers have a window. Without one, or with one of 0, all see everything.
func (m *metadata) windows(c *hfConfig, windowKey, patternKey string) {
	if m.has(windowKey) {
		c.SlidingWindow = m.integer(windowKey, math.MaxInt32)
	}
	if c.NumHiddenLayers > maxLayers { // which ParseConfig reports
		return
	}
	sliding := func(i int) bool { return (i+1)%defaultPattern != 0 }
	switch v, ok := m.file.Value(patternKey); {
	case c.SlidingWindow == 0:
		c.SlidingWindow = c.MaxPositionEmbeddings
		sliding = func(int) bool { return false }
	case ok && v.Type() == gguf.Array:
		list, err := m.file.Bools(patternKey)
		if take(m, list, err); int64(len(list)) != c.NumHiddenLayers {
			m.fail(patternKey, "it has %d elements for %d layers", len(list), c.NumHiddenLayers)
			return
		}
		sliding = func(i int) bool { return list[i] }
	case ok:
		pattern := m.integer(patternKey, maxLayers)
		if pattern == 0 {
			m.fail(patternKey, "it is 0")
			return
		}
		sliding = func(i int) bool { return int64(i+1)%pattern != 0 }
	}
	c.LayerTypes = make([]string, c.NumHiddenLayers)
	for i := range c.LayerTypes {
		c.LayerTypes[i] = fullAttention
		if sliding(i) {
			c.LayerTypes[i] = slidingAttention
		}
	}
}

// generation reads how answers are to be drawn. Files that say nothing leave it open.
func (m *metadata) generation() *hfGeneration {
	g := &hfGeneration{}
	number := func(name string, most float64) *float64 {
		key := samplingPrefix + name
		if !m.has(key) {
			return nil
		}
		v := m.float(key)
		if v < 0 || v > most {
			m.fail(key, "%v is outside 0 to %v", v, most)
		}
		return &v
	}
	g.Temperature, g.TopP, g.MinP = number("temp", math.MaxFloat32), number("top_p", 1), number("min_p", 1)
	if key := samplingPrefix + "top_k"; m.has(key) {
		k := m.integer(key, math.MaxInt32)
		g.TopK = &k
	}
	g.DoSample = g.Temperature != nil || g.TopP != nil || g.MinP != nil || g.TopK != nil
	return g
}
