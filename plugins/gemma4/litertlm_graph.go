package gemma4

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/checkpoint/litertlm"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// liteRole tells a module by a part of the path that its operation has.
type liteRole struct{ part, module string }

// The roles of the decoder's parts. A module that starts with a dot is a layer's.
var (
	linearRoles = []liteRole{
		{"/q_einsum/", ".self_attn.q_proj"},
		{"/k_einsum/", ".self_attn.k_proj"},
		{"/v_einsum/", ".self_attn.v_proj"},
		{"/attn_vec_einsum/", ".self_attn.o_proj"},
		{"/gating_einsum1/", ".mlp.gate_proj"},
		{"/gating_einsum2/", ".mlp.up_proj"},
		{"/mlp/linear/", ".mlp.down_proj"},
		{"/per_layer_embedding_gate/", ".per_layer_input_gate"},
		{"/per_layer_embedding_projection/", ".per_layer_projection"},
		{"per_layer_model_projection/", "per_layer_model_projection"},
		{"decode_softmax/", headName},
	}
	normRoles = []liteRole{
		{"/pre_attention_norm/", ".input_layernorm"},
		{"/query_norm/", ".self_attn.q_norm"},
		{"/key_norm/", ".self_attn.k_norm"},
		{"/value_norm/", ".self_attn.v_norm"},
		{"/post_attention_norm/", ".post_attention_layernorm"},
		{"/pre_ffw_norm/", ".pre_feedforward_layernorm"},
		{"/post_ffw_norm/", ".post_feedforward_layernorm"},
		{"/post_per_layer_input_norm/", ".post_per_layer_input_norm"},
		{"/per_layer_embedding_projection_norm/", "per_layer_projection_norm"},
	}
	scalarRoles = []liteRole{{"._maybe_apply_skip_scale/mul", ".layer_scalar"}}
)

// Patterns of names.
var (
	layerPath = regexp.MustCompile(`/layer_(\d+)/`)
	cacheName = regexp.MustCompile(`(?:^|_)kv_cache_([kv])_(\d+)(?:\D|$)`)
	tableName = regexp.MustCompile(`(?:^|/)composite(\d*)$`)
)

// The composite operators that have weights or scales.
const (
	normComposite  = "odml.rms_norm"
	cacheComposite = "odml.cache_update"
)

// epsilonAttribute is the attribute of a norm that is added to the mean square.
const epsilonAttribute = "epsilon"

// moduleOf returns the module that the name of a tensor belongs to, or "". Where
// operations were merged, the name has several paths, which must agree.
func moduleOf(name string, roles []liteRole) (string, error) {
	module := ""
	for path := range strings.SplitSeq(name, ";") {
		path = "/" + path
		layer := layerPath.FindStringSubmatch(path)
		for _, r := range roles {
			if !strings.Contains(path, r.part) {
				continue
			}
			found := r.module
			if strings.HasPrefix(found, ".") {
				if layer == nil {
					continue
				}
				found = layersPrefix + layer[1] + found
			}
			if module != "" && module != found {
				return "", &checkpoint.TensorError{Tensor: fault.Shorten(name), Problem: fmt.Sprintf("its name belongs to %s and to %s", fullName(module), fullName(found))}
			}
			module = found
		}
	}
	return module, nil
}

// liteGraph gives access to the tensors of a subgraph.
type liteGraph struct{ *litertlm.Subgraph }

// input returns input i of an operator, nil if it has none.
func (g liteGraph) input(o litertlm.Operator, i int) *litertlm.Tensor {
	if i >= len(o.Inputs) || o.Inputs[i] < 0 {
		return nil
	}
	return &g.Tensors[o.Inputs[i]]
}

// output returns the first output of an operator, nil if it has none.
func (g liteGraph) output(o litertlm.Operator) *litertlm.Tensor {
	if len(o.Outputs) == 0 {
		return nil
	}
	return &g.Tensors[o.Outputs[0]]
}

// readDecoder finds the modules in the decoder's graph for one token.
func (s *liteRT) readDecoder(ctx context.Context, m *litertlm.Model) error {
	var g liteGraph
	for _, signature := range m.Signatures {
		if signature.Key == "decode" {
			g.Subgraph = &m.Subgraphs[signature.Subgraph]
		}
	}
	if g.Subgraph == nil {
		return &litertlm.FormatError{File: s.file.Name, Problem: fmt.Sprintf("the model %s has no signature \"decode\"", liteDecoder)}
	}
	var unnamed []liteNorm
	for _, o := range g.Operators {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		out := g.output(o)
		if out == nil {
			continue
		}
		var err error
		switch {
		case o.Op == litertlm.FullyConnected:
			err = s.addLinear(g, o, out)
		case o.Op == litertlm.Composite && o.Name == normComposite:
			unnamed, err = s.addNorm(o, liteNorm{g.input(o, 1), out}, unnamed)
		case o.Op == litertlm.Composite && o.Name == cacheComposite:
			err = s.addCaches(g, o)
		case o.Op == litertlm.Mul:
			err = s.addScalar(g, o, out)
		}
		if err != nil {
			return err
		}
	}
	// The final norm is the one whose output the head takes.
	head, ok := s.linears[headName]
	if !ok {
		return missing(headName)
	}
	for _, n := range unnamed {
		if n.out != head.in {
			return &checkpoint.TensorError{Tensor: fault.Shorten(n.out.Name), Problem: "a norm of the decoder whose name is not known"}
		}
		if err := add(s.norms, "norm", n.weight); err != nil {
			return err
		}
	}
	return s.checkValueNorms()
}

// liteNorm is a norm: its weights and what it gives.
type liteNorm struct{ weight, out *litertlm.Tensor }

// addLinear adds a fully connected layer.
func (s *liteRT) addLinear(g liteGraph, o litertlm.Operator, out *litertlm.Tensor) error {
	in, weight := g.input(o, 0), g.input(o, 1)
	if in == nil || weight == nil {
		return &checkpoint.TensorError{Tensor: fault.Shorten(out.Name), Problem: "a fully connected layer without input or weights"}
	}
	module, err := moduleOf(weight.Name, linearRoles)
	if err == nil && module == "" {
		module, err = moduleOf(out.Name, linearRoles)
	}
	if err != nil {
		return err
	}
	if module == "" {
		return &checkpoint.TensorError{Tensor: fault.Shorten(weight.Name), Problem: "a fully connected layer of the decoder whose name is not known"}
	}
	if bias := g.input(o, 2); bias != nil && (len(bias.Data) == 0 || slices.ContainsFunc(bias.Data, func(b byte) bool { return b != 0 })) {
		return &checkpoint.TensorError{Tensor: fullName(module), Problem: "it has a bias, which the family does not have"}
	}
	if o.WeightsFormat != 0 {
		return &checkpoint.TensorError{Tensor: fullName(module), Problem: fmt.Sprintf("its weights are in format %d, which is not supported", o.WeightsFormat)}
	}
	if err := checkActivation(module, o); err != nil {
		return err
	}
	if _, twice := s.linears[module]; twice {
		return twiceError(module)
	}
	s.linears[module] = liteLinear{weight, in, out}
	return nil
}

// checkActivation checks that no function is fused into an operator.
func checkActivation(module string, o litertlm.Operator) error {
	if o.Activation != 0 {
		return &checkpoint.TensorError{Tensor: fullName(module), Problem: fmt.Sprintf("the activation %d is fused into it, which the family does not have", o.Activation)}
	}
	return nil
}

// twiceError reports a module that the decoder has twice.
func twiceError(module string) error {
	return &checkpoint.TensorError{Tensor: fullName(module), Problem: "two operators of the decoder belong to it"}
}

// addNorm adds a norm, or appends it to those that no name tells apart.
func (s *liteRT) addNorm(o litertlm.Operator, n liteNorm, unnamed []liteNorm) ([]liteNorm, error) {
	module, err := moduleOf(n.out.Name, normRoles)
	if err != nil {
		return nil, err
	}
	name := fault.Shorten(n.out.Name)
	if module != "" {
		name = fullName(module)
	}
	if n.weight == nil {
		return nil, &checkpoint.TensorError{Tensor: name, Problem: "a norm without weights"}
	}
	epsilon, found, err := o.Attribute(epsilonAttribute)
	switch want := s.cfg.Text.RMSNormEps; {
	case err != nil:
		return nil, &checkpoint.TensorError{Tensor: name, Problem: err.Error()}
	case !found:
		return nil, &checkpoint.TensorError{Tensor: name, Problem: "a norm without the attribute \"" + epsilonAttribute + "\""}
	case float32(epsilon) != want:
		return nil, &checkpoint.TensorError{Tensor: name, Problem: "config.json gives another rms_norm_eps", Want: fmt.Sprint(want), Got: fmt.Sprint(float32(epsilon))}
	}
	if module == "" {
		return append(unnamed, n), nil
	}
	return unnamed, add(s.norms, module, n.weight)
}

// add adds a tensor that must be the first of its name.
func add(to map[string]*litertlm.Tensor, module string, t *litertlm.Tensor) error {
	if _, twice := to[module]; twice {
		return twiceError(module)
	}
	to[module] = t
	return nil
}

// checkValueNorms checks that the weights of the values' norms do nothing, as the
// family has none. Every layer with values of its own has such a norm.
func (s *liteRT) checkValueNorms() error {
	for i := range s.cfg.Text.NumHiddenLayers {
		l := s.cfg.Layer(i)
		if !l.OwnsKV {
			continue
		}
		name := fmt.Sprintf("%s%d.self_attn.v_norm", layersPrefix, i)
		values, err := s.vector(module{name: name, cols: l.HeadDim})
		if err != nil {
			return err
		}
		for k, v := range values {
			if v != 1 {
				return &checkpoint.TensorError{Tensor: fullName(name), Problem: fmt.Sprintf("weight %d is %v, it should be 1", k, v)}
			}
		}
	}
	return nil
}

// addScalar adds the layer scalar that a multiplication applies, if it is one.
func (s *liteRT) addScalar(g liteGraph, o litertlm.Operator, out *litertlm.Tensor) error {
	module, err := moduleOf(out.Name, scalarRoles)
	if err != nil || module == "" {
		return err
	}
	for i := range o.Inputs {
		if t := g.input(o, i); t != nil && (len(t.Data) > 0 || t.External) {
			if err := checkActivation(module, o); err != nil {
				return err
			}
			return add(s.scalars, module, t)
		}
	}
	return &checkpoint.TensorError{Tensor: fullName(module), Problem: "it is no constant"}
}

// addCaches adds the caches of a layer that an operator updates, by their names.
func (s *liteRT) addCaches(g liteGraph, o litertlm.Operator) error {
	found := map[string]*litertlm.Tensor{}
	layers := map[string]string{}
	for i := range o.Inputs {
		t := g.input(o, i)
		if t == nil {
			continue
		}
		if m := cacheName.FindStringSubmatch(t.Name); m != nil && found[m[1]] == nil {
			found[m[1]], layers[m[1]] = t, m[2]
		}
	}
	if found["k"] == nil || found["v"] == nil || layers["k"] != layers["v"] {
		return &checkpoint.TensorError{Tensor: fault.Shorten(g.output(o).Name), Problem: "an update of caches whose names are not those of one layer's"}
	}
	attn := layersPrefix + layers["k"] + ".self_attn."
	if err := add(s.caches, attn+"k_cache_scale", found["k"]); err != nil {
		return err
	}
	return add(s.caches, attn+"v_cache_scale", found["v"])
}

// readTables finds the n tables of a module that a model looks up.
func (s *liteRT) readTables(m *litertlm.Model, module string, n int) error {
	for i := range m.Subgraphs {
		g := liteGraph{&m.Subgraphs[i]}
		// lookups are the operators that look tables up.
		var lookups []int
		for i, o := range g.Operators {
			if o.Op == litertlm.EmbeddingLookup && g.input(o, 1) != nil && g.output(o) != nil {
				lookups = append(lookups, i)
			}
		}
		if len(lookups) == 0 {
			continue
		}
		if len(lookups) != n {
			return &checkpoint.TensorError{Tensor: fullName(module), Problem: fmt.Sprintf("its model looks up %d tables, it should be %d", len(lookups), n)}
		}
		order := make([]int, n)
		if n > 1 {
			var err error
			if order, err = s.tableOrder(g, module, lookups); err != nil {
				return err
			}
		}
		tables := make([]*litertlm.Tensor, n)
		for i, at := range lookups {
			tables[order[i]] = g.input(g.Operators[at], 1)
		}
		s.tables[module] = tables
		return nil
	}
	return &checkpoint.TensorError{Tensor: fullName(module), Problem: "its model looks up no table"}
}

// tableOrder returns the layer of each lookup, by the numbers in the names of the
// tables, and checks that they are joined in this order if they meet in one operator.
func (s *liteRT) tableOrder(g liteGraph, module string, lookups []int) ([]int, error) {
	order := make([]int, len(lookups))
	seen := make([]bool, len(lookups))
	for i, at := range lookups {
		name, _, _ := strings.Cut(g.input(g.Operators[at], 1).Name, ";")
		found := tableName.FindStringSubmatch(name)
		if found == nil {
			return nil, &checkpoint.TensorError{Tensor: fullName(module), Problem: fmt.Sprintf("the name of its table %q has no number of a layer", fault.Shorten(name))}
		}
		layer := 0
		if found[1] != "" {
			var err error
			if layer, err = strconv.Atoi(found[1]); err != nil {
				layer = len(lookups)
			}
		}
		if layer >= len(lookups) || seen[layer] {
			return nil, &checkpoint.TensorError{Tensor: fullName(module), Problem: fmt.Sprintf("the number in the name of its table %q is that of no layer, or of another table", fault.Shorten(name))}
		}
		seen[layer] = true
		order[i] = layer
	}
	if joined := joinOrder(g, lookups); joined != nil {
		for i := range order {
			if order[i] != joined[i] {
				return nil, &checkpoint.TensorError{Tensor: fullName(module), Problem: fmt.Sprintf("its table with number %d is joined as number %d", order[i], joined[i])}
			}
		}
	}
	return order, nil
}

// joinOrder follows what the lookups give, through operators with one input that is
// no constant, to the operator that joins them all, and returns their places there;
// nil if there is no such operator.
func joinOrder(g liteGraph, lookups []int) []int {
	// uses has for each tensor the number of operators' inputs that it is, and the last of these.
	uses := make([]struct{ n, operator, input int32 }, len(g.Tensors))
	for i, o := range g.Operators {
		for k, t := range o.Inputs {
			if t >= 0 {
				uses[t].n, uses[t].operator, uses[t].input = uses[t].n+1, int32(i), int32(k)
			}
		}
	}
	order := make([]int, len(lookups))
	join := int32(-1)
	for i, at := range lookups {
		o := g.Operators[at]
		for steps := 0; ; steps++ {
			if len(o.Outputs) != 1 || uses[o.Outputs[0]].n != 1 || steps > len(g.Operators) {
				return nil
			}
			next := uses[o.Outputs[0]]
			o = g.Operators[next.operator]
			if o.Op != litertlm.Concatenation && o.Op != litertlm.Pack {
				continue
			}
			if len(o.Inputs) != len(lookups) || join >= 0 && join != next.operator {
				return nil
			}
			join, order[i] = next.operator, int(next.input)
			break
		}
	}
	return order
}
