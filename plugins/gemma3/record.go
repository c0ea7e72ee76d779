package gemma3

import (
	"fmt"
	"math"

	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// Record writes the decoder of a configuration down as a program over the tensors of a
// pack. It is the one description of the forward pass. Errors match zoo.ErrIntegrity.
func Record(m *zoo.Manifest, cfg *Config) (*program.Program, error) {
	matrices := map[string]quant.Matrix{}
	for _, t := range m.Tensors {
		matrices[t.Name] = t.Matrix
	}
	r := &recorder{Builder: program.NewBuilder(matrices, cfg.VocabSize, cfg.VocabSize, cfg.MaxPositionEmbeddings), cfg: cfg}
	r.h = r.Buffer("hidden", cfg.HiddenSize)
	r.x = r.Buffer("normed", cfg.HiddenSize)
	r.branch = r.Buffer("branch", cfg.HiddenSize)
	r.Op(program.Op{Embed: &program.Embed{Table: r.Weight(embedName), Out: r.h, Mul: float32(math.Sqrt(float64(cfg.HiddenSize)))}})
	for i := range cfg.NumHiddenLayers {
		r.Layer(func() { r.layer(i) })
	}
	hidden, logits := r.Buffer("final", cfg.HiddenSize), r.Buffer("logits", cfg.VocabSize)
	r.norm(r.h, hidden, "norm")
	head := headName
	if !r.Has(head) {
		head = embedName
	}
	r.Linear(program.Projection{Name: head, Out: logits}, hidden)
	if cfg.FinalLogitSoftcapping > 0 {
		r.Op(program.Op{Softcap: &program.Softcap{Buffer: logits, Cap: cfg.FinalLogitSoftcapping}})
	}
	return r.Finish(r.h, hidden, logits)
}

// recorder builds a program operation by operation.
type recorder struct {
	*program.Builder
	cfg *Config
	// h is the hidden state, x its norm, and branch what a block adds to it.
	h, x, branch program.BufferID
}

// norm records a norm of the hidden state's width.
func (r *recorder) norm(in, out program.BufferID, weight string) {
	r.Norm(in, out, weight, r.cfg.HiddenSize, r.cfg.RMSNormEps)
}

// add records the addition of the normed branch to the hidden state.
func (r *recorder) add(weight string) {
	r.Op(program.Op{AddNorm: &program.AddNorm{State: r.h, In: r.branch, Weight: r.Weight(weight), Eps: r.cfg.RMSNormEps}})
}

// layer records layer i.
func (r *recorder) layer(i int) {
	name := layerName(i)
	r.norm(r.h, r.x, name+"input_layernorm")
	r.attention(i, name+"self_attn.")
	r.add(name + "post_attention_layernorm")
	r.norm(r.h, r.x, name+"pre_feedforward_layernorm")
	out := r.Buffer("ffn", r.cfg.IntermediateSize)
	r.GateUp(name+"mlp.gate_up_proj", r.x, out, program.Projection{Name: name + "mlp.gate_proj"}, program.Projection{Name: name + "mlp.up_proj"})
	r.Linear(program.Projection{Name: name + "mlp.down_proj", Out: r.branch}, out)
	r.add(name + "post_feedforward_layernorm")
}

// attention records a layer's attention, from the normed input to the output projection.
func (r *recorder) attention(i int, name string) {
	c := r.cfg
	width, kv := c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	query, key, value, out := r.Buffer("query", width), r.Buffer("key", kv), r.Buffer("value", kv), r.Buffer("attention", width)
	cache := program.Cache{Name: fmt.Sprintf("layer %d", i), KVHeads: c.NumKeyValueHeads, HeadDim: c.HeadDim, Window: c.SlidingWindow}
	rope := c.Local
	if c.Full[i] {
		cache.Window, rope = 0, c.Global
	}
	id := r.Cache(cache)
	rotation := r.Rotation(rope.frequencies(c.HeadDim))

	stack := name + "qkv_proj"
	all := []program.Projection{{Name: name + "q_proj", Out: query}, {Name: name + "k_proj", Out: key}, {Name: name + "v_proj", Out: value}}
	last := i == c.NumHiddenLayers-1
	if last { // no row but those that want logits needs more of this layer than its key and value
		r.Project(stack, r.x, all, 1, 2)
	} else {
		r.Project(stack, r.x, all, 0, 1, 2)
	}
	r.RotatedNorm(key, key, name+"k_norm", c.HeadDim, c.RMSNormEps, rotation)
	r.Op(program.Op{Store: &program.Store{Cache: id, Key: key, Value: value}})
	if last {
		r.Op(program.Op{Select: &program.Select{Buffers: []program.BufferID{r.h, r.x}}})
		r.Project(stack, r.x, all, 0)
	}
	r.RotatedNorm(query, query, name+"q_norm", c.HeadDim, c.RMSNormEps, rotation)
	scale := float32(1 / math.Sqrt(c.QueryPreAttnScalar))
	r.Op(program.Op{Attention: &program.Attention{Cache: id, Query: query, Out: out, Heads: c.NumAttentionHeads, Scale: scale}})
	r.Linear(program.Projection{Name: name + "o_proj", Out: r.branch}, out)
}

// frequencies returns the frequencies of a head's pairs.
func (r RoPE) frequencies(headDim int) []float32 {
	freqs := program.Frequencies(r.Theta, headDim, headDim/2)
	for i := range freqs {
		freqs[i] /= float32(r.Factor)
	}
	return freqs
}
