package gemma4

import (
	"fmt"
	"math"

	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// Record writes the decoder of a configuration down as a program over the
// tensors and constants of a pack. It is the one description of the forward
// pass. Errors match fault.ErrIntegrity.
func Record(m *zoo.Manifest, cfg *Config) (*program.Program, error) {
	r := newRecorder(m, cfg)
	r.embed()
	for i := range cfg.Text.NumHiddenLayers {
		r.Layer(func() { r.layer(i) })
	}
	hidden, logits := r.head()
	return r.Finish(r.h, hidden, logits)
}

// recorder builds a program operation by operation.
type recorder struct {
	*program.Builder
	manifest *zoo.Manifest
	cfg      *Config
	caches   map[int]program.CacheID // by the layer that owns it

	h, x, ple, branch program.BufferID
	lastOwner         int // the last layer that writes a cache
}

// newRecorder prepares the buffers that all layers share.
func newRecorder(m *zoo.Manifest, cfg *Config) *recorder {
	t := &cfg.Text
	matrices := map[string]quant.Matrix{}
	for _, tensor := range m.Tensors {
		matrices[tensor.Name] = tensor.Matrix
	}
	r := &recorder{
		Builder:  program.NewBuilder(matrices, t.VocabSize, cfg.TokenLimit(), t.MaxPositionEmbeddings),
		manifest: m, cfg: cfg, caches: map[int]program.CacheID{},
	}
	for i := range t.NumHiddenLayers {
		if cfg.Layer(i).OwnsKV {
			r.lastOwner = i
		}
	}
	r.h = r.Buffer("hidden", t.HiddenSize)
	r.x = r.Buffer("normed", t.HiddenSize)
	r.branch = r.Buffer("branch", t.HiddenSize)
	return r
}

// rounding returns the static grids of a linear layer, from the pack's constants.
func (r *recorder) rounding(linear string) program.Rounding {
	return program.Rounding{
		InScale:  r.manifest.Constants[linear+".input_activation_scale"],
		OutScale: r.manifest.Constants[linear+".output_activation_scale"],
	}
}

// constant returns a constant that the pack must have.
func (r *recorder) constant(name string) float32 {
	c, ok := r.manifest.Constants[name]
	if !ok {
		r.Fail("the pack has no constant %q", name)
	}
	return c
}

// norm records a norm over runs of cols numbers without rotation.
func (r *recorder) norm(in, out program.BufferID, weight string, cols int) {
	r.Norm(in, out, weight, cols, r.cfg.Text.RMSNormEps)
}

// projection returns a linear layer with its static grids.
func (r *recorder) projection(name string, out program.BufferID) program.Projection {
	return program.Projection{Name: name, Out: out, Rounding: r.rounding(name)}
}

// linear records a product with a whole tensor of the same name.
func (r *recorder) linear(name string, in, out program.BufferID) {
	r.Linear(r.projection(name, out), in)
}

// addNorm records the residual addition of the normed branch.
func (r *recorder) addNorm(weight string, mul float32) {
	r.Op(program.Op{AddNorm: &program.AddNorm{State: r.h, In: r.branch, Weight: r.Weight(weight), Eps: r.cfg.Text.RMSNormEps, Mul: mul}})
}

// embed records what comes before the first layer: the scaled embedding and the per-layer inputs.
func (r *recorder) embed() {
	t := &r.cfg.Text
	r.Op(program.Op{Embed: &program.Embed{Table: r.Weight("embed_tokens"), Out: r.h, Mul: float32(math.Sqrt(float64(t.HiddenSize)))}})
	if t.HiddenSizePerLayerInput == 0 {
		return
	}
	dim := t.HiddenSizePerLayerInput
	n := t.NumHiddenLayers * dim
	r.ple = r.Buffer("per layer input", n)
	token := r.Buffer("per layer token", n)
	r.Op(program.Op{Linear: &program.Linear{
		Weight: r.Weight("per_layer_model_projection"), In: r.h,
		Parts: []program.Part{{Rows: n, Out: r.ple, Rounding: r.rounding("per_layer_model_projection")}},
		Mul:   float32(1 / math.Sqrt(float64(t.HiddenSize))),
	}})
	r.norm(r.ple, r.ple, "per_layer_projection_norm", dim)
	// As late as can be: the row may still have to come from a disk.
	r.Op(program.Op{Embed: &program.Embed{Table: r.Weight("embed_tokens_per_layer"), Out: token, Mul: float32(math.Sqrt(float64(dim)))}})
	r.Op(program.Op{AddMul: &program.AddMul{A: r.ple, B: token, Out: r.ple, Mul: float32(math.Sqrt2 / 2)}})
}

// layer records layer i.
func (r *recorder) layer(i int) {
	t := &r.cfg.Text
	name := layerName(i)
	scalar := r.constant(name + "layer_scalar")

	r.norm(r.h, r.x, name+"input_layernorm", t.HiddenSize)
	r.attention(i, name+"self_attn.")
	afterFFN := scalar
	if t.HiddenSizePerLayerInput > 0 {
		afterFFN = 0
	}
	r.addNorm(name+"post_attention_layernorm", 0)
	r.norm(r.h, r.x, name+"pre_feedforward_layernorm", t.HiddenSize)
	r.ffn(i, name+"mlp.")
	r.addNorm(name+"post_feedforward_layernorm", afterFFN)
	if dim := t.HiddenSizePerLayerInput; dim > 0 {
		gate := r.Buffer("per layer gate", dim)
		r.linear(name+"per_layer_input_gate", r.h, gate)
		r.Op(program.Op{GELUMul: &program.GELUMul{A: gate, B: r.ple, First: i * dim, Out: gate}})
		r.linear(name+"per_layer_projection", gate, r.branch)
		r.addNorm(name+"post_per_layer_input_norm", scalar)
	}
}

// ffn records the gated feed-forward block.
func (r *recorder) ffn(i int, name string) {
	ffn := r.cfg.Layer(i).FFN
	out := r.Buffer("ffn", ffn)
	r.GateUp(name+"gate_up_proj", r.x, out, r.projection(name+"gate_proj", out), r.projection(name+"up_proj", out))
	r.linear(name+"down_proj", out, r.branch)
}

// attention records a layer's attention, from the normed input to the output projection.
func (r *recorder) attention(i int, name string) {
	t, l := &r.cfg.Text, r.cfg.Layer(i)
	query := r.Buffer("query", t.NumAttentionHeads*l.HeadDim)
	key := r.Buffer("key", l.KVHeads*l.HeadDim)
	value := r.Buffer("value", l.KVHeads*l.HeadDim)
	out := r.Buffer("attention", t.NumAttentionHeads*l.HeadDim)
	all := []program.Projection{r.projection(name+"q_proj", query)}
	if l.OwnsKV {
		all = append(all, r.projection(name+"k_proj", key))
		if !l.KeyIsValue {
			all = append(all, r.projection(name+"v_proj", value))
		}
	}
	kv := []int{1, 2}[:len(all)-1]
	stack := name + "qkv_proj"
	switch {
	case !l.OwnsKV:
		r.Project(stack, r.x, all, 0)
	case i == r.lastOwner:
		// Nothing behind this layer writes a cache: rows that want no logits end with their key and value.
		r.Project(stack, r.x, all, kv...)
		r.store(i, name, key, value)
		keep := []program.BufferID{r.h, r.x}
		if t.HiddenSizePerLayerInput > 0 {
			keep = append(keep, r.ple)
		}
		r.Op(program.Op{Select: &program.Select{Buffers: keep}})
		r.Project(stack, r.x, all, 0)
	default:
		r.Project(stack, r.x, all, append([]int{0}, kv...)...)
		r.store(i, name, key, value)
	}
	r.RotatedNorm(query, query, name+"q_norm", l.HeadDim, t.RMSNormEps, r.rotation(l))
	r.Op(program.Op{Attention: &program.Attention{Cache: r.caches[l.KVSource], Query: query, Out: out, Heads: t.NumAttentionHeads, Scale: 1}})
	r.linear(name+"o_proj", out, r.branch)
}

// store records norms and rotation of key and value, and writes them to the layer's cache.
func (r *recorder) store(i int, name string, key, value program.BufferID) {
	t, l := &r.cfg.Text, r.cfg.Layer(i)
	raw := value
	if l.KeyIsValue { // the value is the key before its norm
		raw = key
	}
	r.Norm(raw, value, "", l.HeadDim, t.RMSNormEps)
	r.RotatedNorm(key, key, name+"k_norm", l.HeadDim, t.RMSNormEps, r.rotation(l))
	window := t.SlidingWindow
	if l.Full {
		window = 0
	}
	id := r.Cache(program.Cache{
		Name: fmt.Sprintf("layer %d", i), KVHeads: l.KVHeads, HeadDim: l.HeadDim, Window: window,
		KeyScale: r.manifest.Constants[name+"k_cache_scale"], ValueScale: r.manifest.Constants[name+"v_cache_scale"],
	})
	r.caches[i] = id
	r.Op(program.Op{Store: &program.Store{Cache: id, Key: key, Value: value}})
}

// rotation returns the rotary frequencies of a layer's heads. With a partial rotary factor
// only that share of the pairs turns, rounded down.
func (r *recorder) rotation(l Layer) program.RotationID {
	rotated := int(l.RoPE.PartialRotaryFactor * float64(l.HeadDim) / 2)
	return r.Rotation(program.Frequencies(l.RoPE.RopeTheta, l.HeadDim, rotated))
}

// head records the final norm, the logits and their cap, and returns the buffers of the two.
func (r *recorder) head() (hidden, logits program.BufferID) {
	t := &r.cfg.Text
	hidden = r.Buffer("final", t.HiddenSize)
	logits = r.Buffer("logits", t.VocabSize)
	r.norm(r.h, hidden, "norm", t.HiddenSize)
	head := headName
	if !r.Has(head) { // tied to the embedding
		head = "embed_tokens"
	}
	r.Linear(program.Projection{Name: head, Out: logits, Rounding: r.rounding(headName)}, hidden)
	if t.FinalLogitSoftcapping > 0 {
		r.Op(program.Op{Softcap: &program.Softcap{Buffer: logits, Cap: t.FinalLogitSoftcapping}})
	}
	return hidden, logits
}
