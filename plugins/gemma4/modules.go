package gemma4

import (
	"fmt"

	"github.com/zoo-sdk/zoo/zoo/packing"
)

// module is a linear layer, a table or a norm of the decoder, as config.json has it.
type module struct {
	// name is the module's within the decoder, such as "layers.0.mlp.up_proj".
	name string
	// rows and cols are the shape of its weight; a norm has one row.
	rows, cols int
	kind       moduleKind
}

// moduleKind says what a module does with its weight.
type moduleKind int

const (
	linear moduleKind = iota
	table
	norm
)

// group is what a step reads together: one module, or several that take the same input.
type group struct {
	// name is the tensor's in the pack if its modules lie together; a single module gives its own name.
	name    string
	modules []module
	// arrangement is how they lie.
	arrangement packing.Arrangement
	// gathered says that rows are looked up and never multiplied.
	gathered bool
}

// constant is a single number of the checkpoint that the pack's manifest keeps.
type constant struct {
	name string
	// required says that a checkpoint without it is incomplete.
	required bool
	// scale says that the number is the step of a grid: not negative, and 0 if there is none.
	scale bool
}

// headName is the name of the output layer, the only module outside of the decoder's own prefix.
const headName = "lm_head"

// decoderGroups lists the weights of the decoder that a configuration asks for, in
// the order in which a step reads them, the head last. The head and the embedding
// are one matrix in most checkpoints; which of the two it is kept as is decided
// where the weights can be seen.
func decoderGroups(c *Config) []group {
	t := &c.Text
	one := func(m module) group { return group{name: m.name, modules: []module{m}} }
	vector := func(name string, n int) group { return one(module{name, 1, n, norm}) }
	matrix := func(name string, rows, cols int) module { return module{name, rows, cols, linear} }

	groups := []group{one(module{"embed_tokens", t.VocabSize, t.HiddenSize, table})}
	ple := t.HiddenSizePerLayerInput
	if ple > 0 {
		perLayer := one(module{"embed_tokens_per_layer", t.VocabSizePerLayerInput, t.NumHiddenLayers * ple, table})
		perLayer.gathered = true
		groups = append(groups, perLayer,
			one(matrix("per_layer_model_projection", t.NumHiddenLayers*ple, t.HiddenSize)),
			vector("per_layer_projection_norm", ple))
	}
	for i := range t.NumHiddenLayers {
		l := c.Layer(i)
		base := layerName(i)
		attn, mlp := base+"self_attn.", base+"mlp."
		width, kv := t.NumAttentionHeads*l.HeadDim, l.KVHeads*l.HeadDim

		inputs := []module{matrix(attn+"q_proj", width, t.HiddenSize)}
		if l.OwnsKV {
			inputs = append(inputs, matrix(attn+"k_proj", kv, t.HiddenSize))
			if !l.KeyIsValue {
				inputs = append(inputs, matrix(attn+"v_proj", kv, t.HiddenSize))
			}
		}
		groups = append(groups,
			vector(base+"input_layernorm", t.HiddenSize),
			group{name: attn + "qkv_proj", modules: inputs, arrangement: packing.Stacked},
			vector(attn+"q_norm", l.HeadDim))
		if l.OwnsKV {
			groups = append(groups, vector(attn+"k_norm", l.HeadDim))
		}
		groups = append(groups,
			one(matrix(attn+"o_proj", t.HiddenSize, width)),
			vector(base+"post_attention_layernorm", t.HiddenSize),
			vector(base+"pre_feedforward_layernorm", t.HiddenSize),
			group{name: mlp + "gate_up_proj", arrangement: packing.Alternating, modules: []module{
				matrix(mlp+"gate_proj", l.FFN, t.HiddenSize), matrix(mlp+"up_proj", l.FFN, t.HiddenSize)}},
			one(matrix(mlp+"down_proj", t.HiddenSize, l.FFN)),
			vector(base+"post_feedforward_layernorm", t.HiddenSize))
		if ple > 0 {
			groups = append(groups,
				one(matrix(base+"per_layer_input_gate", ple, t.HiddenSize)),
				one(matrix(base+"per_layer_projection", t.HiddenSize, ple)),
				vector(base+"post_per_layer_input_norm", t.HiddenSize))
		}
	}
	return append(groups, vector("norm", t.HiddenSize), one(matrix(headName, t.VocabSize, t.HiddenSize)))
}

// decoderConstants lists the single numbers of the decoder, but for those that belong to a linear layer.
func decoderConstants(c *Config) []constant {
	var constants []constant
	for i := range c.Text.NumHiddenLayers {
		base := layerName(i)
		constants = append(constants, constant{name: base + "layer_scalar", required: true})
		if c.Layer(i).OwnsKV {
			constants = append(constants,
				constant{name: base + "self_attn.k_cache_scale", scale: true},
				constant{name: base + "self_attn.v_cache_scale", scale: true})
		}
	}
	return constants
}

// unusedModules lists what checkpoints may hold though no layer reads it: keys and
// values of the layers that share those of another.
func unusedModules(c *Config) (modules, constants []string) {
	for i := range c.Text.NumHiddenLayers {
		if c.Layer(i).OwnsKV {
			continue
		}
		attn := layerName(i) + "self_attn."
		modules = append(modules, attn+"k_proj", attn+"v_proj", attn+"k_norm")
		constants = append(constants, attn+"k_cache_scale", attn+"v_cache_scale")
	}
	return modules, constants
}

// layersPrefix starts the names of all layers' modules.
const layersPrefix = "layers."

// layerName returns what starts the names of a layer's modules.
func layerName(i int) string { return fmt.Sprintf("%s%d.", layersPrefix, i) }
