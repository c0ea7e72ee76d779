package gemma4test

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/checkpoint/litertlm"
	"github.com/zoo-sdk/zoo/checkpoint/litertlm/litertlmtest"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/quant"
)

// LiteRTFile is the name of the file that [WriteLiteRT] writes.
const LiteRTFile = "model.litertlm"

// The static grid around the projection of the per-layer input, which mobile checkpoints do not have.
const (
	ProjectionIn  = 0.038878
	ProjectionOut = 0.002353
)

// LiteRTOptions says what a .litertlm file has of its own.
type LiteRTOptions struct {
	// Appended puts the data of models behind their FlatBuffers.
	Appended bool
	// Change, if set, may change the models before they are written, for files that are wrong.
	Change func(parts *LiteRTParts)
}

// LiteRTParts are the models of a .litertlm file, by their model_type, and the sections that it has.
type LiteRTParts struct {
	Models   map[string]*litertlmtest.Model
	Sections []litertlmtest.Section
}

// Operator returns the operator of the decoder's graph whose output has a name with
// this part; there must be one.
func (p *LiteRTParts) Operator(part string) (*litertlmtest.Subgraph, *litertlmtest.Operator) {
	g := &p.Models["tf_lite_prefill_decode"].Subgraphs[1]
	for i := range g.Operators {
		if strings.Contains(g.Tensors[g.Operators[i].Outputs[0]].Name, part) {
			return g, &g.Operators[i]
		}
	}
	panic("no operator gives a tensor named " + part)
}

// WriteLiteRT writes the weights of the mobile checkpoint in dir as a .litertlm file
// into to, a folder that exists, with copies of the small files beside it. The file
// is laid out as the published one, with graphs that name and join the weights and
// compute nothing. Weights that the mobile checkpoint has as floats are rounded to 8
// bits. It holds everything in memory.
func WriteLiteRT(dir, to string, opts LiteRTOptions) (err error) {
	c, err := checkpoint.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || e.Name() == checkpoint.WeightsFile {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), data, 0o600); err != nil {
			return err
		}
	}
	config, err := c.File("config.json")
	if err != nil {
		return err
	}
	cfg, err := gemma4.ParseConfig(config)
	if err != nil {
		return err
	}
	decode := &liteGraph{ckpt: c, cfg: cfg}
	decode.decoder()
	prefill := litertlmtest.Subgraph{Name: "prefill_8", Tensors: decode.Tensors[:1]}
	parts := &LiteRTParts{Models: map[string]*litertlmtest.Model{
		"tf_lite_prefill_decode": {
			Subgraphs:  []litertlmtest.Subgraph{prefill, decode.Subgraph},
			Signatures: []litertlm.Signature{{Key: "prefill_8"}, {Key: "decode", Subgraph: 1}},
		},
	}}
	embed := &liteGraph{ckpt: c, cfg: cfg}
	embed.lookups([]string{"TextEmbedder.encode/embedder.encode/composite"}, []litertlmtest.Tensor{embed.codes("embed_tokens", cfg.Text.VocabSize, cfg.Text.HiddenSize, true)})
	parts.Models["tf_lite_embedder"] = embed.model("embedder")
	if cfg.Text.HiddenSizePerLayerInput > 0 {
		perLayer := &liteGraph{ckpt: c, cfg: cfg}
		perLayer.perLayerTables()
		parts.Models["tf_lite_per_layer_embedder"] = perLayer.model("per_layer_embedder")
		decode.err = errors.Join(decode.err, perLayer.err)
	}
	if err := errors.Join(decode.err, embed.err); err != nil {
		return err
	}
	for _, m := range parts.Models {
		m.Appended = opts.Appended
	}
	section := func(t litertlm.SectionType, modelType string, data []byte) litertlmtest.Section {
		s := litertlmtest.Section{Type: t, Data: data}
		if modelType != "" {
			s.Items = []litertlmtest.Item{{Key: "model_type", Value: modelType}}
		}
		return s
	}
	parts.Sections = []litertlmtest.Section{
		section(litertlm.LlmMetadataProto, "", []byte("metadata")),
		section(litertlm.SPTokenizer, "", []byte("pieces")),
		section(litertlm.TFLiteModel, "tf_lite_embedder", nil),
		section(litertlm.TFLiteModel, "tf_lite_per_layer_embedder", nil),
		section(litertlm.TFLiteModel, "tf_lite_vision_encoder", []byte("not ours")),
		section(litertlm.TFLiteModel, "tf_lite_prefill_decode", nil),
		section(litertlm.TFLiteModel, "tf_lite_mtp_drafter", []byte("not ours")),
	}
	if opts.Change != nil {
		opts.Change(parts)
	}
	var sections []litertlmtest.Section
	for _, s := range parts.Sections {
		if s.Data == nil {
			m := parts.Models[s.Items[0].Value]
			if m == nil {
				continue
			}
			s.Data = m.Bytes()
		}
		sections = append(sections, s)
	}
	return os.WriteFile(filepath.Join(to, LiteRTFile), litertlmtest.Container(nil, sections), 0o600)
}

// liteGraph collects the tensors and operators of a graph. It keeps the first error.
type liteGraph struct {
	litertlmtest.Subgraph
	ckpt *checkpoint.Checkpoint
	cfg  *gemma4.Config
	err  error
}

// model returns a model with this graph alone.
func (g *liteGraph) model(signature string) *litertlmtest.Model {
	return &litertlmtest.Model{Subgraphs: []litertlmtest.Subgraph{g.Subgraph}, Signatures: []litertlm.Signature{{Key: signature}}}
}

// tensor adds a tensor and returns its number.
func (g *liteGraph) tensor(t litertlmtest.Tensor) int {
	g.Tensors = append(g.Tensors, t)
	return len(g.Tensors) - 1
}

// op adds an operator with one output of that name, and returns the output.
func (g *liteGraph) op(op litertlm.Op, composite, name string, inputs ...int) int {
	out := g.tensor(litertlmtest.Tensor{Name: name, Shape: []int{1, 1}})
	g.Operators = append(g.Operators, litertlmtest.Operator{Op: op, Name: composite, Inputs: inputs, Outputs: []int{out}})
	return out
}

// source returns a tensor of the mobile checkpoint.
func (g *liteGraph) source(name string) checkpoint.Tensor {
	t, ok := g.ckpt.Tensor(name)
	if !ok && g.err == nil {
		g.err = fmt.Errorf("the checkpoint has no %q: %w", name, fs.ErrNotExist)
	}
	return t
}

// number returns a single number of the mobile checkpoint, 0 if it has none.
func (g *liteGraph) number(name string) float32 {
	t, ok := g.ckpt.Tensor(name)
	if !ok {
		return 0
	}
	return floatsOf(t)[0]
}

// floatsOf returns the numbers of a tensor of floats.
func floatsOf(t checkpoint.Tensor) []float32 {
	out := make([]float32, len(t.Data)/t.DType.Size())
	for i := range out {
		if t.DType == checkpoint.BF16 {
			out[i] = quant.BF16ToF32(binary.LittleEndian.Uint16(t.Data[2*i:]))
		} else {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
		}
	}
	return out
}

// codes returns a module's weights as two's complement codes.
func (g *liteGraph) codes(name string, rows, cols int, table bool) litertlmtest.Tensor {
	codesName, scalesName := full(name)+".weight", full(name)+".weight_scale"
	if table {
		codesName, scalesName = full(name)+".embedding_quantized", full(name)+".embedding_scale"
	}
	t := g.source(codesName)
	if g.err != nil {
		return litertlmtest.Tensor{}
	}
	if t.DType == checkpoint.BF16 {
		return rounded(floatsOf(t), rows, cols)
	}
	bits := len(t.Data) * 8 / (rows * cols)
	return litertlmtest.Tensor{Type: typeOf(bits), Shape: []int{rows, cols}, Data: signed(t.Data, bits), Scales: floatsOf(g.source(scalesName))}
}

// typeOf returns the type of codes.
func typeOf(bits int) litertlm.TensorType {
	return map[int]litertlm.TensorType{2: litertlm.Int2, 4: litertlm.Int4, 8: litertlm.Int8}[bits]
}

// signed turns unsigned codes of 2 or 4 bits into two's complement ones, code by code.
func signed(data []byte, bits int) []byte {
	out := slices.Clone(data)
	if bits == 8 {
		return out
	}
	for i := range out {
		var b int
		for at := 0; at < 8; at += bits {
			code := int(data[i])>>at%(1<<bits) - 1<<(bits-1)
			b |= code & (1<<bits - 1) << at
		}
		out[i] = byte(b)
	}
	return out
}

// rounded returns floats as codes of 8 bits.
func rounded(values []float32, rows, cols int) litertlmtest.Tensor {
	t := litertlmtest.Tensor{Type: litertlm.Int8, Shape: []int{rows, cols}, Data: make([]byte, rows*cols), Scales: make([]float32, rows)}
	for r := range rows {
		row := values[r*cols:][:cols]
		var most float32
		for _, v := range row {
			most = max(most, float32(math.Abs(float64(v))))
		}
		t.Scales[r] = most / 127
		for c, v := range row {
			t.Data[r*cols+c] = byte(int8(math.RoundToEven(float64(v / t.Scales[r]))))
		}
	}
	return t
}

// The number of the operators between floats and codes, which no reader looks at.
const (
	quantize   litertlm.Op = 114
	dequantize litertlm.Op = 6
)

// linear adds a fully connected layer under a path.
func (g *liteGraph) linear(module, path string, in, rows, cols int) int {
	w := g.codes(module, rows, cols, false)
	w.Name = path + "/dot_general"
	scaleIn, scaleOut := g.number(full(module)+".input_activation_scale"), g.number(full(module)+".output_activation_scale")
	if module == "per_layer_model_projection" {
		scaleIn, scaleOut = ProjectionIn, ProjectionOut
	}
	if scaleIn != 0 {
		in = g.op(quantize, "", path+"/composite", in)
		g.Tensors[in].Type, g.Tensors[in].Scales = litertlm.Int8, []float32{scaleIn}
	}
	out := g.op(litertlm.FullyConnected, "", path+"/composite1", in, g.tensor(w), -1)
	if scaleOut != 0 {
		g.Tensors[out].Type, g.Tensors[out].Scales = litertlm.Int8, []float32{scaleOut}
		out = g.op(dequantize, "", path+"/reshape", out)
	}
	return out
}

// constant adds a constant of floats.
func (g *liteGraph) constant(values []float32, shape ...int) int {
	data := make([]byte, 4*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
	}
	return g.tensor(litertlmtest.Tensor{Name: fmt.Sprintf("arith.constant%d", len(g.Tensors)), Shape: shape, Data: data})
}

// norm adds a norm under a path.
func (g *liteGraph) norm(module, path string, in int) int {
	t := g.source(full(module) + ".weight")
	if g.err != nil {
		return in
	}
	return g.normOf(floatsOf(t), path, in)
}

// normOf adds a norm of those weights under a path.
func (g *liteGraph) normOf(values []float32, path string, in int) int {
	out := g.op(litertlm.Composite, "odml.rms_norm", path, in, g.constant(values, len(values)))
	g.Operators[len(g.Operators)-1].Attributes = litertlmtest.Attribute("epsilon", g.cfg.Text.RMSNormEps)
	return out
}

// decoder adds the graph of one token.
func (g *liteGraph) decoder() {
	const stack = "LanguageModel.decode_graph/LanguageModel.transformer_stack/transformer.transformer/"
	g.Name = "decode"
	t := &g.cfg.Text
	x := g.tensor(litertlmtest.Tensor{Name: "decode_embeddings:0", Shape: []int{1, 1, t.HiddenSize}})
	if ple := t.HiddenSizePerLayerInput; ple > 0 {
		const path = "LanguageModel.decode_graph/LanguageModel.embedder/embedder.encode/"
		p := g.linear("per_layer_model_projection", path+"per_layer_model_projection/btd,dlp->btlp", x, t.NumHiddenLayers*ple, t.HiddenSize)
		g.norm("per_layer_projection_norm", path+"per_layer_embedding_projection_norm/composite", p)
	}
	for i := range t.NumHiddenLayers {
		x = g.layer(i, fmt.Sprintf("%slayer_%d/layer_%d", stack, i, i), x)
	}
	x = g.norm("norm", "StatefulPartitionedCall:0", x)
	head := "LanguageModel.decode_softmax/transformer.decode_softmax/embedder.decode/"
	g.linear("lm_head", head+"composite", x, t.VocabSize, t.HiddenSize)
}

// layer adds a layer under a path.
func (g *liteGraph) layer(i int, path string, in int) int {
	t, l := &g.cfg.Text, g.cfg.Layer(i)
	name := fmt.Sprintf("layers.%d.", i)
	attn, mlp := name+"self_attn.", name+"mlp."
	pre, post := path+".pre_qkv/", path+".post_qkv/"
	fn := pre + "attn.pre_qkv/attn._pre_attention_fn/"
	hidden, width, kv := t.HiddenSize, t.NumAttentionHeads*l.HeadDim, l.KVHeads*l.HeadDim

	x := g.norm(name+"input_layernorm", pre+"pre_attention_norm/composite", in)
	q := g.linear(attn+"q_proj", fn+"q_einsum/btd,dH->btH", x, width, hidden)
	q = g.norm(attn+"q_norm", fn+"query_norm/composite", q)
	if l.OwnsKV {
		k := g.linear(attn+"k_proj", fn+"k_einsum/btd,dH->btH", x, kv, hidden)
		k = g.norm(attn+"k_norm", fn+"key_norm/composite", k)
		v := g.linear(attn+"v_proj", fn+"v_einsum/btd,dH->btH", x, kv, hidden)
		v = g.normOf(slices.Repeat([]float32{1}, l.HeadDim), fn+"value_norm/composite", v)
		cache := func(kind string) int {
			c := litertlmtest.Tensor{Name: fmt.Sprintf("decode_kv_cache_%s_%d:0", kind, i), Shape: []int{1, 1, l.HeadDim}}
			if s := g.number(full(attn + kind + "_cache_scale")); s != 0 {
				c.Type, c.Scales = litertlm.Int8, []float32{s}
			}
			return g.tensor(c)
		}
		q = g.op(litertlm.Composite, "odml.cache_update", path+".update_cache/composite", k, v, cache("k"), cache("v"), q)
	}
	o := g.linear(attn+"o_proj", post+"attn.post_qkv/attn_vec_einsum/btH,Hd->btd", q, hidden, width)
	g.norm(name+"post_attention_layernorm", post+"post_attention_norm/composite", o)
	x = g.norm(name+"pre_feedforward_layernorm", post+"pre_ffw_norm/composite", o)
	a := g.linear(mlp+"gate_proj", post+"mlp/gating_einsum1/btd,df->btf", x, l.FFN, hidden)
	g.linear(mlp+"up_proj", post+"mlp/gating_einsum2/btd,df->btf", x, l.FFN, hidden)
	x = g.linear(mlp+"down_proj", post+"mlp/linear/btf,fd->btd", a, hidden, l.FFN)
	x = g.norm(name+"post_feedforward_layernorm", post+"post_ffw_norm/composite", x)
	if ple := t.HiddenSizePerLayerInput; ple > 0 {
		x = g.linear(name+"per_layer_input_gate", post+"per_layer_embedding_gate/btd,dp->btp", x, ple, hidden)
		x = g.op(litertlm.Mul, "", post+"mul", x, in)
		x = g.linear(name+"per_layer_projection", post+"per_layer_embedding_projection/btp,pd->btd", x, hidden, ple)
		x = g.norm(name+"post_per_layer_input_norm", post+"post_per_layer_input_norm/composite", x)
	}
	scalar := g.constant([]float32{g.number(full(name + "layer_scalar"))}, 1, 1, 1)
	return g.op(litertlm.Mul, "", path+"._maybe_apply_skip_scale/mul", x, scalar)
}

// lookups adds tables with their names, and what joins the rows of each, in this order.
func (g *liteGraph) lookups(names []string, tables []litertlmtest.Tensor) {
	ids := g.tensor(litertlmtest.Tensor{Name: "token_ids:0", Type: litertlm.Int32, Shape: []int{1}})
	// They are stored and looked up in the order of their names, as text.
	order := make([]int, len(names))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(names[a], names[b]) })
	rows := make([]int, len(names))
	for _, i := range order {
		tables[i].Name = names[i]
		rows[i] = g.op(litertlm.EmbeddingLookup, "", names[i]+"_row", ids, g.tensor(tables[i]))
		rows[i] = g.op(dequantize, "", names[i]+"_float", rows[i])
	}
	if len(rows) > 1 {
		g.op(litertlm.Concatenation, "", "StatefulPartitionedCall:0", rows...)
	}
}

// perLayerTables adds one table for each layer.
func (g *liteGraph) perLayerTables() {
	t := &g.cfg.Text
	ple, layers := t.HiddenSizePerLayerInput, t.NumHiddenLayers
	all := g.codes("embed_tokens_per_layer", t.VocabSizePerLayerInput, layers*ple, true)
	if g.err != nil {
		return
	}
	width := len(all.Data) / t.VocabSizePerLayerInput / layers
	var names []string
	var tables []litertlmtest.Tensor
	for i := range layers {
		name := "PerLayerEmbedder/embedder.encode_per_layer/composite"
		if i > 0 {
			name += fmt.Sprint(i)
		}
		one := litertlmtest.Tensor{Type: all.Type, Shape: []int{t.VocabSizePerLayerInput, ple}}
		for r := range t.VocabSizePerLayerInput {
			one.Data = append(one.Data, all.Data[(r*layers+i)*width:][:width]...)
			one.Scales = append(one.Scales, all.Scales[r*layers+i])
		}
		names, tables = append(names, name), append(tables, one)
	}
	g.lookups(names, tables)
}
