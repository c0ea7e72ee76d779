package gemma3

import (
	"fmt"

	"github.com/zoo-sdk/zoo/zoo/packing"
)

// module is a matrix or a norm of the decoder.
type module struct {
	// name is the module's within the decoder, as Hugging Face and the pack have it, and
	// gguf its name in a GGUF file, both without ".weight".
	name, gguf string
	// rows and cols are the shape of its weight; rows is 0 for a norm, which has a list.
	rows, cols int
}

// norm reports whether the module is a norm.
func (m module) norm() bool { return m.rows == 0 }

// group is what a step reads together: one module, or several that take the same input.
type group struct {
	// name is the tensor's in the pack if its modules lie together.
	name        string
	modules     []module
	arrangement packing.Arrangement
}

// headName and embedName are the names of the output layer and of the embedding.
const (
	headName  = "lm_head"
	embedName = "embed_tokens"
)

// groups lists the weights of the decoder in the order in which a step reads them, the head last.
func (c *Config) groups() []group {
	one := func(name, gguf string, rows, cols int) group {
		return group{name: name, modules: []module{{name, gguf, rows, cols}}}
	}
	all := []group{one(embedName, "token_embd", c.VocabSize, c.HiddenSize)}
	width, kv := c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	for i := range c.NumHiddenLayers {
		base, blk := layerName(i), fmt.Sprintf("blk.%d.", i)
		attn, mlp := base+"self_attn.", base+"mlp."
		all = append(all,
			one(base+"input_layernorm", blk+"attn_norm", 0, c.HiddenSize),
			group{name: attn + "qkv_proj", arrangement: packing.Stacked, modules: []module{
				{attn + "q_proj", blk + "attn_q", width, c.HiddenSize},
				{attn + "k_proj", blk + "attn_k", kv, c.HiddenSize},
				{attn + "v_proj", blk + "attn_v", kv, c.HiddenSize},
			}},
			one(attn+"q_norm", blk+"attn_q_norm", 0, c.HeadDim),
			one(attn+"k_norm", blk+"attn_k_norm", 0, c.HeadDim),
			one(attn+"o_proj", blk+"attn_output", c.HiddenSize, width),
			one(base+"post_attention_layernorm", blk+"post_attention_norm", 0, c.HiddenSize),
			one(base+"pre_feedforward_layernorm", blk+"ffn_norm", 0, c.HiddenSize),
			group{name: mlp + "gate_up_proj", arrangement: packing.Alternating, modules: []module{
				{mlp + "gate_proj", blk + "ffn_gate", c.IntermediateSize, c.HiddenSize},
				{mlp + "up_proj", blk + "ffn_up", c.IntermediateSize, c.HiddenSize},
			}},
			one(mlp+"down_proj", blk+"ffn_down", c.HiddenSize, c.IntermediateSize),
			one(base+"post_feedforward_layernorm", blk+"post_ffw_norm", 0, c.HiddenSize))
	}
	return append(all, one("norm", "output_norm", 0, c.HiddenSize), one(headName, "output", c.VocabSize, c.HiddenSize))
}

// layerName returns what starts the names of a layer's modules.
func layerName(i int) string { return fmt.Sprintf("layers.%d.", i) }
