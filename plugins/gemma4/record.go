package gemma4

import (
	"fmt"
	"math"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/fmath"
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
		r.layer(i)
	}
	r.head()
	if r.err != nil {
		return nil, r.err
	}
	if err := r.p.Validate(); err != nil {
		return nil, err
	}
	return r.p, nil
}

// recorder builds a program operation by operation. The first error sticks.
type recorder struct {
	manifest *zoo.Manifest
	cfg      *Config
	p        *program.Program
	err      error

	tensors   map[string]quant.Matrix
	weights   map[string]program.WeightID
	buffers   map[string]program.BufferID
	caches    map[int]program.CacheID // by the layer that owns it
	rotations map[rotationKey]program.RotationID

	h, x, ple, branch program.BufferID
	lastOwner         int // the last layer that writes a cache
}

// rotationKey identifies a rotation: rotary parameters differ by the type of layer.
type rotationKey struct {
	full    bool
	headDim int
}

// newRecorder prepares the buffers that all layers share.
func newRecorder(m *zoo.Manifest, cfg *Config) *recorder {
	t := &cfg.Text
	r := &recorder{
		manifest: m, cfg: cfg,
		p:         &program.Program{Version: program.Version, Vocab: t.VocabSize, TokenLimit: cfg.TokenLimit(), Context: t.MaxPositionEmbeddings},
		tensors:   map[string]quant.Matrix{},
		weights:   map[string]program.WeightID{},
		buffers:   map[string]program.BufferID{},
		caches:    map[int]program.CacheID{},
		rotations: map[rotationKey]program.RotationID{},
	}
	for _, tensor := range m.Tensors {
		r.tensors[tensor.Name] = tensor.Matrix
	}
	for i := range t.NumHiddenLayers {
		if cfg.Layer(i).OwnsKV {
			r.lastOwner = i
		}
	}
	r.h = r.buffer("hidden", t.HiddenSize)
	r.x = r.buffer("normed", t.HiddenSize)
	r.branch = r.buffer("branch", t.HiddenSize)
	r.p.State = r.h
	return r
}

// fail notes the first error.
func (r *recorder) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", fault.ErrIntegrity, fmt.Sprintf(format, args...))
	}
}

// op appends an operation.
func (r *recorder) op(op program.Op) { r.p.Ops = append(r.p.Ops, op) }

// buffer returns the buffer of a purpose and length.
func (r *recorder) buffer(name string, cols int) program.BufferID {
	key := fmt.Sprintf("%s.%d", name, cols)
	id, ok := r.buffers[key]
	if !ok {
		id = program.BufferID(len(r.p.Buffers))
		r.p.Buffers = append(r.p.Buffers, program.Buffer{Name: name, Cols: cols})
		r.buffers[key] = id
	}
	return id
}

// has reports whether the pack holds a tensor.
func (r *recorder) has(name string) bool { _, ok := r.tensors[name]; return ok }

// weight returns the weight of a tensor of the pack.
func (r *recorder) weight(name string) program.WeightID {
	if id, ok := r.weights[name]; ok {
		return id
	}
	m, ok := r.tensors[name]
	if !ok {
		r.fail("the pack has no tensor %q", name)
		return program.None
	}
	id := program.WeightID(len(r.p.Weights))
	r.p.Weights = append(r.p.Weights, program.Weight{Name: name, Matrix: m})
	r.weights[name] = id
	return id
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
		r.fail("the pack has no constant %q", name)
	}
	return c
}

// norm records a norm over runs of cols numbers without rotation.
func (r *recorder) norm(in, out program.BufferID, weight string, cols int) {
	r.op(program.Op{Norm: &program.Norm{In: in, Out: out, Weight: r.weight(weight), Cols: cols, Eps: r.cfg.Text.RMSNormEps, Rotation: program.None}})
}

// linear records a product with a whole tensor of the same name.
func (r *recorder) linear(name string, in, out program.BufferID) {
	rows := r.p.Buffers[out].Cols
	r.op(program.Op{Linear: &program.Linear{Weight: r.weight(name), In: in, Parts: []program.Part{{Rows: rows, Out: out, Rounding: r.rounding(name)}}}})
}

// addNorm records the residual addition of the normed branch.
func (r *recorder) addNorm(weight string, mul float32) {
	r.op(program.Op{AddNorm: &program.AddNorm{State: r.h, In: r.branch, Weight: r.weight(weight), Eps: r.cfg.Text.RMSNormEps, Mul: mul}})
}

// embed records what comes before the first layer: the scaled embedding and the per-layer inputs.
func (r *recorder) embed() {
	t := &r.cfg.Text
	r.op(program.Op{Embed: &program.Embed{Table: r.weight("embed_tokens"), Out: r.h, Mul: float32(math.Sqrt(float64(t.HiddenSize)))}})
	if t.HiddenSizePerLayerInput == 0 {
		return
	}
	dim := t.HiddenSizePerLayerInput
	n := t.NumHiddenLayers * dim
	r.ple = r.buffer("per layer input", n)
	token := r.buffer("per layer token", n)
	r.op(program.Op{Linear: &program.Linear{
		Weight: r.weight("per_layer_model_projection"), In: r.h,
		Parts: []program.Part{{Rows: n, Out: r.ple, Rounding: r.rounding("per_layer_model_projection")}},
		Mul:   float32(1 / math.Sqrt(float64(t.HiddenSize))),
	}})
	r.norm(r.ple, r.ple, "per_layer_projection_norm", dim)
	// As late as can be: the row may still have to come from a disk.
	r.op(program.Op{Embed: &program.Embed{Table: r.weight("embed_tokens_per_layer"), Out: token, Mul: float32(math.Sqrt(float64(dim)))}})
	r.op(program.Op{AddMul: &program.AddMul{A: r.ple, B: token, Out: r.ple, Mul: float32(math.Sqrt2 / 2)}})
}

// layer records layer i.
func (r *recorder) layer(i int) {
	t := &r.cfg.Text
	first := len(r.p.Ops)
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
		gate := r.buffer("per layer gate", dim)
		r.linear(name+"per_layer_input_gate", r.h, gate)
		r.op(program.Op{GELUMul: &program.GELUMul{A: gate, B: r.ple, First: i * dim, Out: gate}})
		r.linear(name+"per_layer_projection", gate, r.branch)
		r.addNorm(name+"post_per_layer_input_norm", scalar)
	}
	r.p.Layers = append(r.p.Layers, program.Layer{First: first, End: len(r.p.Ops)})
}

// ffn records the gated feed-forward block.
func (r *recorder) ffn(i int, name string) {
	ffn := r.cfg.Layer(i).FFN
	out := r.buffer("ffn", ffn)
	if r.has(name + "gate_up_proj") {
		r.op(program.Op{GateUp: &program.GateUp{
			Weight: r.weight(name + "gate_up_proj"), In: r.x, Out: out,
			Gate: r.rounding(name + "gate_proj"), Up: r.rounding(name + "up_proj"),
		}})
	} else {
		up := r.buffer("up", ffn)
		r.linear(name+"gate_proj", r.x, out)
		r.linear(name+"up_proj", r.x, up)
		r.op(program.Op{GELUMul: &program.GELUMul{A: out, B: up, Out: out}})
	}
	r.linear(name+"down_proj", out, r.branch)
}

// projection is one of the matrices that attention multiplies its input with.
type projection struct {
	name string
	out  program.BufferID
}

// attention records a layer's attention, from the normed input to the output projection.
func (r *recorder) attention(i int, name string) {
	t, l := &r.cfg.Text, r.cfg.Layer(i)
	query := r.buffer("query", t.NumAttentionHeads*l.HeadDim)
	key := r.buffer("key", l.KVHeads*l.HeadDim)
	value := r.buffer("value", l.KVHeads*l.HeadDim)
	out := r.buffer("attention", t.NumAttentionHeads*l.HeadDim)
	q := projection{name + "q_proj", query}
	kv := []projection{{name + "k_proj", key}}
	if !l.KeyIsValue {
		kv = append(kv, projection{name + "v_proj", value})
	}
	switch {
	case !l.OwnsKV:
		r.project(name, []projection{q}, nil)
	case i == r.lastOwner:
		// Nothing behind this layer writes a cache: rows that want no logits end with their key and value.
		r.project(name, kv, []projection{q})
		r.store(i, name, key, value)
		keep := []program.BufferID{r.h, r.x}
		if t.HiddenSizePerLayerInput > 0 {
			keep = append(keep, r.ple)
		}
		r.op(program.Op{Select: &program.Select{Buffers: keep}})
		r.project(name, []projection{q}, kv)
	default:
		r.project(name, append([]projection{q}, kv...), nil)
		r.store(i, name, key, value)
	}
	rotation := r.rotation(l)
	r.op(program.Op{Norm: &program.Norm{In: query, Out: query, Weight: r.weight(name + "q_norm"), Cols: l.HeadDim, Eps: t.RMSNormEps, Rotation: rotation}})
	r.op(program.Op{Attention: &program.Attention{Cache: r.caches[l.KVSource], Query: query, Out: out, Heads: t.NumAttentionHeads, Scale: 1}})
	r.linear(name+"o_proj", out, r.branch)
}

// project records the wanted of the projections that lie together in one
// tensor; skipped are the others in it. Where they lie apart, each is a product of its own.
func (r *recorder) project(name string, wanted, skipped []projection) {
	if !r.has(name + "qkv_proj") {
		for _, p := range wanted {
			r.linear(p.name, r.x, p.out)
		}
		return
	}
	// In the tensor lie q, k and v in this order, each filled up to whole blocks.
	order := map[string]int{name + "q_proj": 0, name + "k_proj": 1, name + "v_proj": 2}
	size := [3]int{}
	for _, p := range append(append([]projection{}, wanted...), skipped...) {
		size[order[p.name]] = alignUp(r.p.Buffers[p.out].Cols, quant.BlockRows)
	}
	first := [3]int{0, size[0], size[0] + size[1]}
	var parts []program.Part
	for _, p := range wanted {
		parts = append(parts, program.Part{First: first[order[p.name]], Rows: r.p.Buffers[p.out].Cols, Out: p.out, Rounding: r.rounding(p.name)})
	}
	r.op(program.Op{Linear: &program.Linear{Weight: r.weight(name + "qkv_proj"), In: r.x, Parts: parts}})
}

// store records norms and rotation of key and value, and writes them to the layer's cache.
func (r *recorder) store(i int, name string, key, value program.BufferID) {
	t, l := &r.cfg.Text, r.cfg.Layer(i)
	raw := value
	if l.KeyIsValue { // the value is the key before its norm
		raw = key
	}
	r.op(program.Op{Norm: &program.Norm{In: raw, Out: value, Weight: program.None, Cols: l.HeadDim, Eps: t.RMSNormEps, Rotation: program.None}})
	r.op(program.Op{Norm: &program.Norm{In: key, Out: key, Weight: r.weight(name + "k_norm"), Cols: l.HeadDim, Eps: t.RMSNormEps, Rotation: r.rotation(l)}})
	window := t.SlidingWindow
	if l.Full {
		window = 0
	}
	id := program.CacheID(len(r.p.Caches))
	r.p.Caches = append(r.p.Caches, program.Cache{
		Name: fmt.Sprintf("layer %d", i), KVHeads: l.KVHeads, HeadDim: l.HeadDim, Window: window,
		KeyScale: r.manifest.Constants[name+"k_cache_scale"], ValueScale: r.manifest.Constants[name+"v_cache_scale"],
	})
	r.caches[i] = id
	r.op(program.Op{Store: &program.Store{Cache: id, Key: key, Value: value}})
}

// rotation returns the rotary frequencies of a layer's heads.
func (r *recorder) rotation(l Layer) program.RotationID {
	key := rotationKey{l.Full, l.HeadDim}
	id, ok := r.rotations[key]
	if !ok {
		id = program.RotationID(len(r.p.Rotations))
		r.p.Rotations = append(r.p.Rotations, program.Rotation{Freqs: frequencies(l.RoPE, l.HeadDim)})
		r.rotations[key] = id
	}
	return id
}

// frequencies returns theta^(-2i/headDim) for each pair i of a head, in
// float32 as the reference computes it: the power is rounded, then its inverse.
// With a partial rotary factor only that share of the pairs turns, rounded down.
func frequencies(p RoPE, headDim int) []float32 {
	freqs := make([]float32, headDim/2)
	for i := range min(len(freqs), int(p.PartialRotaryFactor*float64(headDim)/2)) {
		exponent := float32(2*i) / float32(headDim)
		freqs[i] = 1 / float32(fmath.Pow(p.RopeTheta, float64(exponent)))
	}
	return freqs
}

// head records the final norm, the logits and their cap.
func (r *recorder) head() {
	t := &r.cfg.Text
	hidden := r.buffer("final", t.HiddenSize)
	logits := r.buffer("logits", t.VocabSize)
	r.norm(r.h, hidden, "norm", t.HiddenSize)
	head := "lm_head"
	if !r.has(head) { // tied to the embedding
		head = "embed_tokens"
	}
	r.op(program.Op{Linear: &program.Linear{Weight: r.weight(head), In: hidden, Parts: []program.Part{{Rows: t.VocabSize, Out: logits, Rounding: r.rounding("lm_head")}}}})
	if t.FinalLogitSoftcapping > 0 {
		r.op(program.Op{Softcap: &program.Softcap{Buffer: logits, Cap: t.FinalLogitSoftcapping}})
	}
	r.p.Hidden, r.p.Logits = hidden, logits
}

// alignUp rounds n up to a multiple of a, a power of two.
func alignUp(n, a int) int { return (n + a - 1) &^ (a - 1) }
