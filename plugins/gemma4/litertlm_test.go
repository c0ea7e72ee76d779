package gemma4_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/checkpoint/litertlm"
	"github.com/zoo-sdk/zoo/checkpoint/litertlm/litertlmtest"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

const projection = "per_layer_model_projection"

// lite writes a mobile checkpoint as a .litertlm file and returns its folder.
func lite(t testing.TB, mobile string, opts gemma4test.LiteRTOptions) string {
	t.Helper()
	dir := t.TempDir()
	if err := gemma4test.WriteLiteRT(mobile, dir, opts); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestConvertLiteRT converts mobile checkpoints and what they are as .litertlm
// files: the packs must hold the same, but for the projection that is not the same.
func TestConvertLiteRT(t *testing.T) {
	tiny := gemma4test.Tiny()
	plain := edit(t, config(t, tiny), map[string]any{"text_config.hidden_size_per_layer_input": 0, "text_config.vocab_size_per_layer_input": 0})
	cases := []struct {
		name   string
		mobile gemma4test.Options
		lite   gemma4test.LiteRTOptions
	}{
		{"static", gemma4test.Options{Seed: 2, Static: true}, gemma4test.LiteRTOptions{}},
		{"appended data", gemma4test.Options{Seed: 2, Static: true}, gemma4test.LiteRTOptions{Appended: true}},
		{"floats between layers", gemma4test.Options{Seed: 1, TowerTensors: 3, TowerBytes: 600}, gemma4test.LiteRTOptions{}},
		{"other head", gemma4test.Options{Seed: 3, OtherHead: true, Static: true}, gemma4test.LiteRTOptions{}},
		{"keys of shared layers in the checkpoint", gemma4test.Options{Seed: 4, SharedKV: true, Static: true}, gemma4test.LiteRTOptions{}},
		{"without per-layer input", gemma4test.Options{Seed: 5, Static: true, Config: plain}, gemma4test.LiteRTOptions{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			mobile := made(t, tiny, c.mobile)
			want, got := convert(t, mobile), convert(t, lite(t, mobile, c.lite))
			if err := got.Verify(t.Context(), nil); err != nil {
				t.Error(err)
			}
			checkSame(t, want, got)
			p, err := gemma4.Record(got.Manifest(), parseConfig(t, got))
			if err != nil {
				t.Fatal(err)
			}
			if _, _, ok := got.Tensor(projection); ok {
				rounding := false
				for _, o := range p.Ops {
					rounding = rounding || o.Linear != nil && p.Weights[o.Linear.Weight].Name == projection &&
						o.Linear.Parts[0].InScale == gemma4test.ProjectionIn && o.Linear.Parts[0].OutScale == gemma4test.ProjectionOut
				}
				if !rounding {
					t.Error("the program does not round around the projection of the per-layer input")
				}
			}
		})
	}
}

// parseConfig parses the config.json of a pack.
func parseConfig(t *testing.T, p *zoo.Pack) *gemma4.Config {
	t.Helper()
	cfg, err := gemma4.ParseConfig(p.Info().Config)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// checkSame compares the pack of a mobile checkpoint with that of its .litertlm file.
func checkSame(t *testing.T, want, got *zoo.Pack) {
	t.Helper()
	var names [2][]string
	for i, p := range []*zoo.Pack{want, got} {
		for _, tensor := range p.Manifest().Tensors {
			names[i] = append(names[i], tensor.Name)
		}
	}
	if diff := cmp.Diff(names[0], names[1]); diff != "" {
		t.Fatalf("tensors (-mobile +LiteRT):\n%s", diff)
	}
	for _, name := range names[0] {
		a, ma, _ := want.Tensor(name)
		b, mb, _ := got.Tensor(name)
		if name == projection {
			checkRounded(t, a, ma, b, mb)
			continue
		}
		if ma != mb || !bytes.Equal(a, b) {
			t.Errorf("%s: %+v and %+v, or their bytes differ", name, ma, mb)
		}
	}
	constants := want.Manifest().Constants
	if slices.Contains(names[0], projection) {
		constants[projection+".input_activation_scale"] = gemma4test.ProjectionIn
		constants[projection+".output_activation_scale"] = gemma4test.ProjectionOut
	}
	if diff := cmp.Diff(constants, got.Manifest().Constants); diff != "" {
		t.Errorf("constants (-mobile +LiteRT):\n%s", diff)
	}
	for _, file := range []string{"config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja"} {
		a, errA := want.File(file)
		b, errB := got.File(file)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: %v, %v, or they differ", file, errA, errB)
		}
	}
	if want.Digest() == got.Digest() {
		t.Error("both packs have the same identity")
	}
}

// checkRounded compares floats with their codes of 8 bits.
func checkRounded(t *testing.T, a []byte, ma quant.Matrix, b []byte, mb quant.Matrix) {
	t.Helper()
	if want := (quant.Matrix{Format: quant.Int8, Layout: quant.Blocks, Rows: ma.Rows, Cols: ma.Cols}); mb != want {
		t.Fatalf("%s is %+v, want %+v", projection, mb, want)
	}
	x, y := make([]float32, ma.Cols), make([]float32, mb.Cols)
	for r := range ma.Rows {
		quant.Row(x, ma, a, r)
		quant.Row(y, mb, b, r)
		var most float64
		for _, v := range x {
			most = max(most, math.Abs(float64(v)))
		}
		for c := range x {
			if d := math.Abs(float64(x[c] - y[c])); d > most/127*0.5001 {
				t.Fatalf("%s [%d, %d]: %v and %v", projection, r, c, x[c], y[c])
			}
		}
	}
}

// TestLiteRTSources checks what a pack says that it was made of, and that .litertlm
// files are taken only where there is nothing else.
func TestLiteRTSources(t *testing.T) {
	mobile := made(t, gemma4test.Tiny(), gemma4test.Options{Seed: 1})
	dir := lite(t, mobile, gemma4test.LiteRTOptions{})
	var names []string
	for _, s := range convert(t, dir).Manifest().Sources {
		names = append(names, s.Path)
	}
	want := []string{"chat_template.jinja", "config.json", "generation_config.json", "model.litertlm", "tokenizer.json", "tokenizer_config.json"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	// Its name is not part of the pack's identity.
	renamed := lite(t, mobile, gemma4test.LiteRTOptions{})
	if err := os.Rename(filepath.Join(renamed, gemma4test.LiteRTFile), filepath.Join(renamed, "gemma-4-E2B-it.litertlm")); err != nil {
		t.Fatal(err)
	}
	a, b := convert(t, dir), convert(t, renamed)
	if diff := cmp.Diff(a.Manifest().Sources, b.Manifest().Sources); diff != "" || a.Digest() != b.Digest() {
		t.Errorf("the file's name changes the pack (-model +other):\n%s", diff)
	}
	digest := convert(t, mobile).Digest()
	copyFile(t, filepath.Join(dir, gemma4test.LiteRTFile), filepath.Join(mobile, gemma4test.LiteRTFile))
	if got := convert(t, mobile).Digest(); got != digest {
		t.Error("a .litertlm file beside safetensors changes the pack")
	}
	copyFile(t, filepath.Join(dir, gemma4test.LiteRTFile), filepath.Join(dir, "other.litertlm"))
	convertRefused(t, request(t, dir), fault.ErrUsage, `"model.litertlm" and "other.litertlm"`)
}

// TestLiteRTLink converts a folder whose .litertlm file is a link out of it.
func TestLiteRTLink(t *testing.T) {
	mobile := made(t, gemma4test.Tiny(), gemma4test.Options{Seed: 1})
	dir := lite(t, mobile, gemma4test.LiteRTOptions{})
	req := request(t, dir)
	outside := filepath.Join(t.TempDir(), "outside")
	path := filepath.Join(dir, gemma4test.LiteRTFile)
	if err := os.Rename(path, outside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, path); err != nil {
		t.Skip(err)
	}
	if _, err := gemma4.Convert(t.Context(), plugin, req); err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("a link out of the folder: %v", err)
	}
}

// TestLiteRTMessages converts a file with many things wrong, which must give the same message every time.
func TestLiteRTMessages(t *testing.T) {
	mobile := made(t, gemma4test.Tiny(), gemma4test.Options{Seed: 1})
	req := request(t, lite(t, mobile, gemma4test.LiteRTOptions{Change: func(p *gemma4test.LiteRTParts) {
		g := &p.Models["tf_lite_prefill_decode"].Subgraphs[1]
		for i := range g.Tensors {
			g.Tensors[i].Name = strings.ReplaceAll(g.Tensors[i].Name, "pre_ffw_norm", "other_norm")
		}
	}}))
	for range 10 {
		_, err := gemma4.Convert(t.Context(), plugin, req)
		if te, ok := errors.AsType[*checkpoint.TensorError](err); !ok || !strings.Contains(te.Tensor, "/layer_0/") {
			t.Fatal(err)
		}
	}
}

// TestLiteRTCancelled stops to read a file.
func TestLiteRTCancelled(t *testing.T) {
	mobile := made(t, gemma4test.Tiny(), gemma4test.Options{Seed: 1})
	req := request(t, lite(t, mobile, gemma4test.LiteRTOptions{Change: func(p *gemma4test.LiteRTParts) {
		p.Models["tf_lite_prefill_decode"].Signatures[1].Key = "main" // which would be found out
	}}))
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := gemma4.Convert(ctx, plugin, req); !errors.Is(err, cause) {
		t.Error(err)
	}
}

// copyFile copies a file.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFetchLiteRT plans to fetch a release of a .litertlm file.
func TestFetchLiteRT(t *testing.T) {
	files := []catalog.File{{Path: "config.json", SizeBytes: 1}, {Path: "model.litertlm", SizeBytes: 7}, {Path: "README.md", SizeBytes: 2}}
	plan, err := gemma4.Fetch(t.Context(), zoo.FetchRequest{Release: release(files...)})
	if err != nil {
		t.Fatal(err)
	}
	last := plan.Files[len(plan.Files)-1]
	if len(plan.Files) != 6 || last.Path != "model.litertlm" || last.SizeBytes != 7 || last.Optional || plan.Files[0].SizeBytes != 1 {
		t.Errorf("%+v", plan.Files)
	}
	files = append(files, catalog.File{Path: "web.litertlm"})
	if _, err := gemma4.Fetch(t.Context(), zoo.FetchRequest{Release: release(files...)}); !errors.Is(err, fault.ErrUsage) {
		t.Errorf("two .litertlm files: %v", err)
	}
	files = append(files, catalog.File{Path: "model.safetensors"})
	plan, err = gemma4.Fetch(t.Context(), zoo.FetchRequest{Release: release(files...)})
	if err != nil || slices.ContainsFunc(plan.Files, func(f catalog.File) bool { return strings.HasSuffix(f.Path, ".litertlm") }) {
		t.Errorf("safetensors are there as well: %+v, %v", plan.Files, err)
	}
}

// release returns a release that lists files.
func release(files ...catalog.File) catalog.Release {
	var r catalog.Release
	r.Source.Files = files
	return r
}

// TestLiteRTRefused converts .litertlm files that are wrong in every way there is.
func TestLiteRTRefused(t *testing.T) {
	const (
		decoder  = "tf_lite_prefill_decode"
		embedder = "tf_lite_embedder"
		perLayer = "tf_lite_per_layer_embedder"
		q0       = "layer_0/layer_0.pre_qkv/attn.pre_qkv/attn._pre_attention_fn/q_einsum/btd,dH->btH/composite1"
		q0Name   = "model.language_model.layers.0.self_attn.q_proj"
		v0       = "layer_0.pre_qkv/attn.pre_qkv/attn._pre_attention_fn/value_norm"
		v0Name   = "model.language_model.layers.0.self_attn.v_norm"
	)
	type parts = *gemma4test.LiteRTParts
	// weight changes the weights of the operator that gives a tensor, in and out what is around it.
	weight := func(part string, f func(w *litertlmtest.Tensor)) func(parts) {
		return func(p parts) { g, o := p.Operator(part); f(&g.Tensors[o.Inputs[1]]) }
	}
	out := func(part string, f func(w *litertlmtest.Tensor)) func(parts) {
		return func(p parts) { g, o := p.Operator(part); f(&g.Tensors[o.Outputs[0]]) }
	}
	operator := func(part string, f func(o *litertlmtest.Operator)) func(parts) {
		return func(p parts) { _, o := p.Operator(part); f(o) }
	}
	without := func(part string) func(parts) {
		return func(p parts) {
			g, o := p.Operator(part)
			o.Op, o.Name = 0, ""
			g.Tensors[o.Outputs[0]].Name = "gone"
		}
	}
	again := func(part string) func(parts) {
		return func(p parts) { g, o := p.Operator(part); g.Operators = append(g.Operators, *o) }
	}
	model := func(name string, f func(m *litertlmtest.Model)) func(parts) {
		return func(p parts) { f(p.Models[name]) }
	}
	tables := func(f func(g *litertlmtest.Subgraph)) func(parts) {
		return model(perLayer, func(m *litertlmtest.Model) { f(&m.Subgraphs[0]) })
	}
	bias := func(p parts, b byte) {
		g, o := p.Operator(q0)
		o.Inputs[2] = len(g.Tensors)
		g.Tensors = append(g.Tensors, litertlmtest.Tensor{Type: litertlm.Int32, Shape: []int{48}, Data: bytes.Repeat([]byte{b}, 192)})
	}
	lookups := func(g *litertlmtest.Subgraph) []*litertlmtest.Operator {
		var all []*litertlmtest.Operator
		for i := range g.Operators {
			if g.Operators[i].Op == litertlm.EmbeddingLookup {
				all = append(all, &g.Operators[i])
			}
		}
		return all
	}
	cases := []struct {
		name   string
		change func(parts)
		tensor string // that a *TensorError names, or "" for another error
		want   string
	}{
		{"no decoder", func(p parts) { delete(p.Models, decoder) }, "", `no model of model_type "tf_lite_prefill_decode"`},
		{"no embedder", func(p parts) { delete(p.Models, embedder) }, "", `no model of model_type "tf_lite_embedder"`},
		{"no per-layer embedder", func(p parts) { delete(p.Models, perLayer) }, "", `no model of model_type "tf_lite_per_layer_embedder"`},
		{"two decoders", func(p parts) { p.Sections = append(p.Sections, p.Sections[5]) }, "", "is in section 5 (TFLiteModel, tf_lite_prefill_decode) as well"},
		{"no model", func(p parts) { p.Sections[5].Data = []byte("nothing") }, "", "section 5 (TFLiteModel, tf_lite_prefill_decode): model: 7 bytes"},
		{"no signature", model(decoder, func(m *litertlmtest.Model) { m.Signatures[1].Key = "main" }), "", `no signature "decode"`},

		{"no query", without(q0), q0Name, "no weights"},
		{"no head", without("decode_softmax"), "lm_head", "missing"},
		{"no norm", without("layer_3/layer_3.post_qkv/pre_ffw_norm"), "model.language_model.layers.3.pre_feedforward_layernorm", "missing"},
		{"no final norm", without("StatefulPartitionedCall:0"), "model.language_model.norm", "missing"},
		{"no layer scalar", without("layer_9._maybe_apply"), "model.language_model.layers.9.layer_scalar", "missing"},
		{"no cache", without("layer_2.update_cache"), "model.language_model.layers.2.self_attn.k_cache_scale", "missing"},
		{"no table", model(embedder, func(m *litertlmtest.Model) { m.Subgraphs[0].Operators[0].Op = 0 }), "model.language_model.embed_tokens", "looks up no table"},
		{"query twice", again(q0), q0Name, "two operators"},
		{"norm twice", again("layer_0.pre_qkv/pre_attention_norm"), "model.language_model.layers.0.input_layernorm", "two operators"},
		{"scalar twice", again("layer_0._maybe_apply"), "model.language_model.layers.0.layer_scalar", "two operators"},
		{"cache twice", again("layer_0.update_cache"), "model.language_model.layers.0.self_attn.k_cache_scale", "two operators"},
		{"layer too many", weight(q0, func(w *litertlmtest.Tensor) { w.Name = strings.ReplaceAll(w.Name, "layer_0", "layer_10") }), q0Name, "no weights"},
		{"weights whose name tells nothing", weight(q0, func(w *litertlmtest.Tensor) { w.Name = strings.ReplaceAll(w.Name, "q_einsum", "r_einsum") }), "", ""},
		{"unknown layer", func(p parts) {
			g, o := p.Operator(q0)
			g.Tensors[o.Inputs[1]].Name, g.Tensors[o.Outputs[0]].Name = "x/layer_0/other/y", "z"
		}, "x/layer_0/other/y", "a fully connected layer of the decoder whose name is not known"},
		{"two names in one", weight(q0, func(w *litertlmtest.Tensor) { w.Name += ";x/layer_0/k_einsum/y" }), "", "belongs to model.language_model.layers.0.self_attn.q_proj and to model.language_model.layers.0.self_attn.k_proj"},
		{"unknown norm", out("layer_0.pre_qkv/pre_attention_norm", func(w *litertlmtest.Tensor) { w.Name = "x/layer_0/other_norm/composite" }), "x/layer_0/other_norm/composite", "not known"},
		{"norm of values", func(p parts) {
			g, o := p.Operator(v0)
			g.Tensors[o.Inputs[1]].Data = make([]byte, 48)
		}, v0Name, "should be 1"},
		{"no norm of values", without(v0), v0Name, "missing"},
		{"norm of values twice", again(v0), v0Name, "two operators"},
		{"long norm of values", weight(v0, func(w *litertlmtest.Tensor) {
			w.Shape, w.Data = []int{24}, bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, 24)
		}), v0Name, "want [12], got [24]"},
		{"norm of values of no layer", func(p parts) {
			g, o := p.Operator(v0)
			n, name := *o, g.Tensors[o.Outputs[0]].Name
			n.Inputs, n.Outputs = []int{n.Inputs[0], len(g.Tensors)}, []int{len(g.Tensors) + 1}
			g.Tensors = append(g.Tensors,
				litertlmtest.Tensor{Name: "ones", Shape: []int{1 << 20}, Data: bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, 1<<20)},
				litertlmtest.Tensor{Name: strings.ReplaceAll(name, "layer_0", "layer_77")})
			g.Operators = append(g.Operators, n)
		}, "model.language_model.layers.77.self_attn.v_norm", "no place"},
		{"norm of values of a layer that shares", func(p parts) {
			g, o := p.Operator(v0)
			n, name := *o, g.Tensors[o.Outputs[0]].Name
			n.Outputs = []int{len(g.Tensors)}
			g.Tensors = append(g.Tensors, litertlmtest.Tensor{Name: strings.ReplaceAll(name, "layer_0", "layer_9")})
			g.Operators = append(g.Operators, n)
		}, "model.language_model.layers.9.self_attn.v_norm", "no place"},
		{"two final norms", again("StatefulPartitionedCall:0"), "model.language_model.norm", "two operators"},
		{"other epsilon", operator("layer_3/layer_3.post_qkv/pre_ffw_norm", func(o *litertlmtest.Operator) {
			o.Attributes = litertlmtest.Attribute("epsilon", 1e-5)
		}), "model.language_model.layers.3.pre_feedforward_layernorm", "another rms_norm_eps: want 1e-06, got 1e-05"},
		{"other epsilon of the final norm", operator("StatefulPartitionedCall:0", func(o *litertlmtest.Operator) {
			o.Attributes = litertlmtest.Attribute("epsilon", 0)
		}), "StatefulPartitionedCall:0", "another rms_norm_eps"},
		{"other epsilon of values", operator(v0, func(o *litertlmtest.Operator) { o.Attributes = litertlmtest.Attribute("epsilon", 1) }), v0Name, "another rms_norm_eps"},
		{"no epsilon", operator(v0, func(o *litertlmtest.Operator) { o.Attributes = litertlmtest.Attribute("eps", 1e-6) }), v0Name, `without the attribute "epsilon"`},
		{"no attributes", operator(v0, func(o *litertlmtest.Operator) { o.Attributes = nil }), v0Name, `without the attribute "epsilon"`},
		{"damaged attributes", operator(v0, func(o *litertlmtest.Operator) { o.Attributes = []byte("epsilon") }), v0Name, "no map of names and values"},
		{"fused activation", operator(q0, func(o *litertlmtest.Operator) { o.Activation = 1 }), q0Name, "the activation 1 is fused into it"},
		{"fused activation of a scalar", operator("layer_7._maybe_apply", func(o *litertlmtest.Operator) { o.Activation = 3 }), "model.language_model.layers.7.layer_scalar", "the activation 3"},
		{"weights in another order", operator(q0, func(o *litertlmtest.Operator) { o.WeightsFormat = 1 }), q0Name, "format 1"},
		{"sparse weights", weight(q0, func(w *litertlmtest.Tensor) { w.Sparse = litertlmtest.Sparse }), q0Name, "sparse"},
		{"sparse norm", weight("layer_3/layer_3.post_qkv/pre_ffw_norm", func(w *litertlmtest.Tensor) { w.Sparse = litertlmtest.Sparse }), "model.language_model.layers.3.pre_feedforward_layernorm", "sparse"},
		{"inputs beyond measure", tables(func(g *litertlmtest.Subgraph) { lookups(g)[3].Inputs = make([]int, 1<<20) }), "", "1048576 inputs of an operator, at most 1024"},
		{"bias", func(p parts) { bias(p, 1) }, q0Name, "bias"},
		{"computed bias", func(p parts) { _, o := p.Operator(q0); o.Inputs[2] = 0 }, q0Name, "bias"},
		{"bias of zeros", func(p parts) { bias(p, 0) }, "", ""},
		{"keys of a layer that shares", func(p parts) {
			g, o := p.Operator("layer_0.pre_qkv/attn.pre_qkv/attn._pre_attention_fn/k_einsum/btd,dH->btH/composite1")
			k := *o
			w := g.Tensors[k.Inputs[1]]
			w.Name = strings.ReplaceAll(w.Name, "layer_0", "layer_9")
			g.Tensors = append(g.Tensors, w)
			k.Inputs = []int{k.Inputs[0], len(g.Tensors) - 1, -1}
			g.Operators = append(g.Operators, k)
		}, "model.language_model.layers.9.self_attn.k_proj", "no place"},

		{"other shape", weight(q0, func(w *litertlmtest.Tensor) { w.Shape = []int{40, 48} }), q0Name, "another shape: want [48 40], got [40 48]"},
		{"flat", weight(q0, func(w *litertlmtest.Tensor) { w.Shape = []int{1920} }), q0Name, "got [1920]"},
		{"bytes of another shape", weight(q0, func(w *litertlmtest.Tensor) { w.Data = w.Data[1:] }), "", "bytes of data are not what shape [48 40] of INT4 asks for"},
		{"other codes", weight(q0, func(w *litertlmtest.Tensor) { w.Type, w.Data = litertlm.Int8, make([]byte, 1920) }), q0Name, "want 4 bits, got 8 bits"},
		{"floats", weight(q0, func(w *litertlmtest.Tensor) { w.Type, w.Data = litertlm.Float32, make([]byte, 7680) }), q0Name, "not codes"},
		{"no data", weight(q0, func(w *litertlmtest.Tensor) { w.Data = nil }), q0Name, "has no weights in the .litertlm file"},
		{"data elsewhere", weight(q0, func(w *litertlmtest.Tensor) { w.Data, w.External = nil, 1 }), q0Name, "not in its own section"},
		{"no scales", weight(q0, func(w *litertlmtest.Tensor) { w.Scales = nil }), q0Name, "one scale for each of its 48 rows"},
		{"one scale", weight(q0, func(w *litertlmtest.Tensor) { w.Scales = w.Scales[:1] }), q0Name, "one scale for each"},
		{"scales of columns", weight(q0, func(w *litertlmtest.Tensor) { w.Dimension = 1 }), q0Name, "one scale for each"},
		{"zero points", weight(q0, func(w *litertlmtest.Tensor) { w.ZeroPoint = 8 }), q0Name, "zero points"},
		{"NaN scale", weight(q0, func(w *litertlmtest.Tensor) { w.Scales[5] = float32(math.NaN()) }), q0Name, "number 5 is NaN"},
		{"negative scale", weight(q0, func(w *litertlmtest.Tensor) { w.Scales[5] = -1 }), q0Name, "negative"},
		{"long norm", weight("StatefulPartitionedCall:0", func(w *litertlmtest.Tensor) { w.Shape, w.Data = []int{41}, make([]byte, 164) }), "model.language_model.norm", "want [40], got [41]"},
		{"norm of integers", weight("StatefulPartitionedCall:0", func(w *litertlmtest.Tensor) { w.Type = litertlm.Int32 }), "model.language_model.norm", "not floats"},
		{"NaN norm", weight("StatefulPartitionedCall:0", func(w *litertlmtest.Tensor) { w.Data = bytes.Repeat([]byte{0xff}, 160) }), "model.language_model.norm", "NaN"},
		{"zero layer scalar", weight("layer_7._maybe_apply", func(w *litertlmtest.Tensor) { w.Data = make([]byte, 4) }), "model.language_model.layers.7.layer_scalar", "wipe out"},
		{"two layer scalars", weight("layer_7._maybe_apply", func(w *litertlmtest.Tensor) { w.Shape, w.Data = []int{1, 1, 2}, make([]byte, 8) }), "model.language_model.layers.7.layer_scalar", "another size"},
		{"layer scalar that is none", weight("layer_7._maybe_apply", func(w *litertlmtest.Tensor) { w.Data = nil }), "model.language_model.layers.7.layer_scalar", "no constant"},

		{"activations of 16 bits", out(q0, func(w *litertlmtest.Tensor) { w.Type = litertlm.Int16 }), q0Name + ".output_activation_scale", "INT16"},
		{"activations of rows", out(q0, func(w *litertlmtest.Tensor) { w.Scales = make([]float32, 48) }), q0Name + ".output_activation_scale", "without one scale"},
		{"activations off zero", out(q0, func(w *litertlmtest.Tensor) { w.ZeroPoint = 3 }), q0Name + ".output_activation_scale", "zero point 0"},
		{"activations without a scale", out(q0, func(w *litertlmtest.Tensor) { w.Scales[0] = 0 }), q0Name + ".output_activation_scale", "not above 0"},
		{"one cache", func(p parts) {
			g, o := p.Operator("layer_2.update_cache")
			c := &g.Tensors[o.Inputs[3]]
			c.Type, c.Scales = litertlm.Float32, nil
		}, "model.language_model.layers.2.self_attn.k_cache_scale", "both"},
		{"caches of two layers", func(p parts) {
			g, o := p.Operator("layer_2.update_cache")
			g.Tensors[o.Inputs[3]].Name = "decode_kv_cache_v_3:0"
		}, "", "not those of one layer"},

		{"a table less", tables(func(g *litertlmtest.Subgraph) { lookups(g)[3].Op = 0 }), "model.language_model.embed_tokens_per_layer", "looks up 9 tables, it should be 10"},
		{"table without a number", tables(func(g *litertlmtest.Subgraph) { g.Tensors[lookups(g)[3].Inputs[1]].Name = "table" }), "model.language_model.embed_tokens_per_layer", "no number of a layer"},
		{"number twice", tables(func(g *litertlmtest.Subgraph) { g.Tensors[lookups(g)[3].Inputs[1]].Name = "x/composite5" }), "model.language_model.embed_tokens_per_layer", "or of another table"},
		{"number of no layer", tables(func(g *litertlmtest.Subgraph) {
			g.Tensors[lookups(g)[3].Inputs[1]].Name = "x/composite99999999999999999999"
		}), "model.language_model.embed_tokens_per_layer", "of no layer"},
		{"joined in another order", tables(func(g *litertlmtest.Subgraph) {
			join := g.Operators[len(g.Operators)-1].Inputs
			join[1], join[2] = join[2], join[1]
		}), "model.language_model.embed_tokens_per_layer", "is joined as number"},
		{"tables of two types", tables(func(g *litertlmtest.Subgraph) {
			w := &g.Tensors[lookups(g)[3].Inputs[1]]
			w.Type, w.Data = litertlm.Int8, make([]byte, 2*len(w.Data))
		}), "model.language_model.embed_tokens_per_layer", "differ in their type"},
	}
	mobile := made(t, gemma4test.Tiny(), gemma4test.Options{Seed: 1, Static: true})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := lite(t, mobile, gemma4test.LiteRTOptions{Change: c.change})
			if c.want == "" { // it is not that wrong
				convert(t, dir)
				return
			}
			err := convertRefused(t, request(t, dir), fault.ErrIntegrity, c.want)
			if te, ok := errors.AsType[*checkpoint.TensorError](err); c.tensor != "" && (!ok || te.Tensor != c.tensor) {
				t.Errorf("the error names %+v, not %q", te, c.tensor)
			}
		})
	}
}

// TestLiteRTFiles converts folders that lack files, and files that end too early.
func TestLiteRTFiles(t *testing.T) {
	mobile := made(t, gemma4test.Tiny(), gemma4test.Options{Seed: 1})
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja", "tokenizer.json"} {
		dir := lite(t, mobile, gemma4test.LiteRTOptions{})
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		_, err := gemma4.Convert(t.Context(), plugin, request(t, dir))
		if !errors.Is(err, fault.ErrNotFound) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(fault.Hint(err), "put \""+name+"\" of the model's mobile checkpoint") {
			t.Errorf("without %s: %v, hint %q", name, err, fault.Hint(err))
		}
	}
	dir := lite(t, mobile, gemma4test.LiteRTOptions{})
	path := filepath.Join(dir, gemma4test.LiteRTFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := litertlm.Parse(gemma4test.LiteRTFile, data)
	if err != nil {
		t.Fatal(err)
	}
	var ends []int64
	for _, s := range f.Sections {
		ends = append(ends, s.Begin, s.Begin+int64(len(s.Data))-1)
	}
	slices.Reverse(ends)
	for _, end := range ends {
		if err := os.Truncate(path, end); err != nil {
			t.Fatal(err)
		}
		convertRefused(t, request(t, dir), fault.ErrIntegrity, "truncated")
	}
	// A config.json of the floats does not say what the codes should be.
	dir = lite(t, mobile, gemma4test.LiteRTOptions{})
	if err := os.WriteFile(filepath.Join(dir, "config.json"), edit(t, config(t, gemma4test.Tiny()), map[string]any{"quantization_config": nil}), 0o600); err != nil {
		t.Fatal(err)
	}
	convertRefused(t, request(t, dir), fault.ErrUsage, "quantization_config")
}

// TestLiteRTRuns runs a converted file: all kernels must agree to the last bit, with
// the projection of the per-layer input in codes as well.
func TestLiteRTRuns(t *testing.T) {
	m := modelOf(t, lite(t, reference(t, "e2b-tiny-srq"), gemma4test.LiteRTOptions{}), nil)
	ids := []int32{2, 105, 300, 301, 302, 106, 107, 400}
	var want []float32
	for _, d := range devices() {
		if d.name == "metal" {
			continue
		}
		for _, rows := range []int{1, 8} {
			s := session(t, m.loadOn(t, d.backend, backends.Options{Cache: backends.CacheInt8, Activations: backends.ActivationsStatic, MaxRows: rows, Threads: 2}))
			if err := s.Feed(t.Context(), ids, 1); err != nil {
				t.Fatal(err)
			}
			got := s.Logits(0)
			if want == nil {
				want = slices.Clone(got)
				if slices.ContainsFunc(want, func(x float32) bool { return math.IsNaN(float64(x)) }) || slices.Max(want) == slices.Min(want) {
					t.Fatal("the logits are no logits")
				}
			}
			if diff, largest := worst(got, want); diff != 0 {
				t.Errorf("%s, %d rows: logits are off by %g of %g", d.name, rows, diff, largest)
			}
		}
	}
}
