package gemma3_test

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/plugins/gemma3"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// reference is the decoder in float64, written from the model's description and not from
// the recorder.
type reference struct {
	// weights returns the rows of a tensor by its name in a GGUF file, without ".weight", or nil.
	weights func(name string) [][]float64
	// cap bounds the logits, unless it is 0.
	cap float64
	// stretch divides positions in full layers.
	stretch float64
	// scalar is the number by whose square root scores are divided.
	scalar float64
}

// newReference returns the decoder of these tests' configuration.
func newReference(weights func(string) [][]float64) *reference {
	return &reference{weights: weights, stretch: 1, scalar: width}
}

// rows returns numbers as rows of float64.
func rows(n, cols int, read func(row []float32, r int)) [][]float64 {
	row := make([]float32, cols)
	all := make([][]float64, n)
	for r := range all {
		read(row, r)
		for _, v := range row {
			all[r] = append(all[r], float64(v))
		}
	}
	return all
}

// ofFile returns the weights of a GGUF file.
func ofFile(t testing.TB, data []byte) func(string) [][]float64 {
	t.Helper()
	file := parse(t, data)
	return func(name string) [][]float64 {
		w, ok := file.Tensor(name + ".weight")
		if !ok {
			return nil
		}
		return rows(w.Rows(), w.Cols(), func(row []float32, r int) {
			if err := w.Dequantize(row, r); err != nil {
				t.Error(err)
			}
		})
	}
}

// ofPack returns the weights of a pack, wherever they lie in it.
func ofPack(pack *zoo.Pack) func(string) [][]float64 {
	return func(name string) [][]float64 {
		name = strings.TrimSuffix(strings.TrimPrefix(hfName(name+".weight"), "model."), ".weight")
		read := func(name string, n int, place func(r int) int) [][]float64 {
			data, m, ok := pack.Tensor(name)
			if !ok {
				return nil
			}
			return rows(cmp.Or(n, m.Rows), m.Cols, func(row []float32, r int) { quant.Row(row, m, data, place(r)) })
		}
		if alone := read(name, 0, func(r int) int { return r }); alone != nil {
			return alone
		}
		layer, module, _ := strings.Cut(name, ".self_attn.")
		switch module {
		case "q_proj":
			return read(layer+".self_attn.qkv_proj", heads*width, func(r int) int { return r })
		case "k_proj":
			return read(layer+".self_attn.qkv_proj", kvHeads*width, func(r int) int { return heads*width + r })
		case "v_proj":
			return read(layer+".self_attn.qkv_proj", kvHeads*width, func(r int) int { return (heads+kvHeads)*width + r })
		}
		layer, module, _ = strings.Cut(name, ".mlp.")
		switch module { // in blocks of 16 rows in turn
		case "gate_proj":
			return read(layer+".mlp.gate_up_proj", ffn, func(r int) int { return r/16*32 + r%16 })
		case "up_proj":
			return read(layer+".mlp.gate_up_proj", ffn, func(r int) int { return r/16*32 + 16 + r%16 })
		}
		return nil
	}
}

// times multiplies.
func times(m [][]float64, x []float64) []float64 {
	y := make([]float64, len(m))
	for i, row := range m {
		for c, v := range row {
			y[i] += v * x[c]
		}
	}
	return y
}

// rms norms.
func rms(x, w []float64) []float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / math.Sqrt(sum/float64(len(x))+1e-6) * w[i]
	}
	return y
}

// head norms and rotates head h of x.
func head(x []float64, h int, norm []float64, position int, theta, stretch float64) []float64 {
	y := rms(x[h*width:(h+1)*width], norm)
	for i := range width / 2 {
		angle := float64(position) / stretch * math.Pow(theta, -2*float64(i)/width)
		a, b := y[i], y[i+width/2]
		y[i], y[i+width/2] = a*math.Cos(angle)-b*math.Sin(angle), b*math.Cos(angle)+a*math.Sin(angle)
	}
	return y
}

// plus adds the norm of a branch.
func plus(x, branch, norm []float64) {
	for i, v := range rms(branch, norm) {
		x[i] += v
	}
}

// logits returns those after each token.
func (r *reference) logits(ids []int32) [][]float64 {
	embedding := r.weights("token_embd")
	states := make([][]float64, len(ids))
	for p, id := range ids {
		for _, v := range embedding[id] {
			states[p] = append(states[p], v*math.Sqrt(hidden))
		}
	}
	for l := range layers {
		weight := func(name string) [][]float64 { return r.weights(fmt.Sprintf("blk.%d.%s", l, name)) }
		norm := func(name string) []float64 { return weight(name)[0] }
		q, k, v, o := weight("attn_q"), weight("attn_k"), weight("attn_v"), weight("attn_output")
		gate, up, down := weight("ffn_gate"), weight("ffn_up"), weight("ffn_down")
		inputNorm, qNorm, kNorm, attentionNorm := norm("attn_norm"), norm("attn_q_norm"), norm("attn_k_norm"), norm("post_attention_norm")
		ffnNorm, branchNorm := norm("ffn_norm"), norm("post_ffw_norm")
		full := l%6 == 5
		theta, stretch, seen := 1e4, 1.0, window
		if full {
			theta, stretch, seen = 1e6, r.stretch, len(ids)
		}
		keys, values := make([][][]float64, len(ids)), make([][]float64, len(ids))
		for p, x := range states {
			n := rms(x, inputNorm)
			raw := times(k, n)
			for h := range kvHeads {
				keys[p] = append(keys[p], head(raw, h, kNorm, p, theta, stretch))
			}
			values[p] = times(v, n)
			queries := times(q, n)
			var out []float64
			for h := range heads {
				query, kv := head(queries, h, qNorm, p, theta, stretch), h/(heads/kvHeads)
				var sum float64
				mix := make([]float64, width)
				for at := max(0, p-seen+1); at <= p; at++ {
					var score float64
					for i, x := range query {
						score += x * keys[at][kv][i]
					}
					e := math.Exp(score / math.Sqrt(r.scalar))
					sum += e
					for i := range mix {
						mix[i] += e * values[at][kv*width+i]
					}
				}
				for _, x := range mix {
					out = append(out, x/sum)
				}
			}
			plus(x, times(o, out), attentionNorm)
			n = rms(x, ffnNorm)
			g, u := times(gate, n), times(up, n)
			for i, x := range g {
				g[i] = 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) * u[i]
			}
			plus(x, times(down, g), branchNorm)
		}
	}
	final, all := r.weights("output_norm")[0], make([][]float64, len(ids))
	if own := r.weights("output"); own != nil {
		embedding = own
	}
	for p, x := range states {
		all[p] = times(embedding, rms(x, final))
		for i, v := range all[p] {
			if r.cap > 0 {
				all[p][i] = r.cap * math.Tanh(v/r.cap)
			}
		}
	}
	return all
}

// load loads a pack.
func load(t testing.TB, pack *zoo.Pack) *engine.Session {
	t.Helper()
	p, err := gemma3.New().Run(t.Context(), zoo.RunRequest{Pack: pack.Info()})
	if err != nil {
		t.Fatal(err)
	}
	m, err := engine.Load(t.Context(), p, pack, cpu.New(""), backends.Options{Cache: backends.CacheFloat, Activations: backends.ActivationsFloat, MaxRows: 64, MaxLogits: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// prompt is longer than the window.
var prompt = []int32{2, 262, 270, 100, 289, 287, 5, 288, 261, 30, 2, 275}

// checkLogits holds a pack's logits after each token of the prompt against the reference.
func checkLogits(t *testing.T, pack *zoo.Pack, r *reference) {
	t.Helper()
	want := r.logits(prompt)
	s := load(t, pack)
	if err := s.Feed(t.Context(), prompt, len(prompt)); err != nil {
		t.Fatal(err)
	}
	var worst, largest float64
	for p := range prompt {
		for i, v := range s.Logits(p) {
			worst, largest = max(worst, math.Abs(float64(v)-want[p][i])), max(largest, math.Abs(want[p][i]))
		}
	}
	t.Logf("largest error %.2e of logits up to %.3g", worst, largest)
	if worst > 5e-6*largest {
		t.Errorf("logits up to %g are off by %g", largest, worst)
	}
}

// TestForward holds packs of every type of numbers against the decoder in float64.
func TestForward(t *testing.T) {
	t.Parallel()
	all := []gguf.Type{gguf.Q4_0, gguf.Q5_0, gguf.Q8_0, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K, gguf.F16, gguf.BF16, gguf.F32, gguf.Q4_1, gguf.Q5_1}
	type variant struct {
		name    string
		kinds   []gguf.Type
		changes []key
		extra   []tensor
		cap     float64
		stretch float64
	}
	variants := []variant{
		{name: "all types", kinds: all},
		{name: "like Q4_K_M", kinds: []gguf.Type{gguf.Q8_0, gguf.Q5_0, gguf.Q5_0, gguf.Q8_0, gguf.Q4_K, gguf.Q6_K}},
		{name: "head of its own", kinds: []gguf.Type{gguf.Q8_0}, extra: []tensor{random("output.weight", gguf.Q6_K, vocab(), hidden)}},
		{name: "head of the same numbers", kinds: []gguf.Type{gguf.Q8_0}, extra: []tensor{{"output.weight", gguf.Q8_0, []int{vocab(), hidden}, random("token_embd.weight", gguf.Q8_0, vocab(), hidden).data}}},
		{name: "stretched and capped", kinds: []gguf.Type{gguf.Q8_0}, cap: 3, stretch: 8, changes: []key{
			{"gemma3.rope.scaling.type", "linear"}, {"gemma3.rope.scaling.factor", float32(8)}, {"gemma3.final_logit_softcapping", float32(3)},
			{"gemma3.attention.sliding_window_pattern", 6}, {"gemma3.rope.freq_base_swa", float32(1e4)}}},
	}
	for _, k := range all {
		if testing.Short() { // all of them are in one variant
			break
		}
		variants = append(variants, variant{name: k.String(), kinds: []gguf.Type{k}})
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			data := encode(with(keys(), v.changes...), append(tensors(v.kinds...), v.extra...))
			r := newReference(ofFile(t, data))
			r.cap, r.stretch = v.cap, max(v.stretch, 1)
			checkLogits(t, converted(t, folder(t, map[string][]byte{"any name.gguf": data}), ""), r)
		})
	}
}

// TestSafetensors holds a pack of safetensors against the one of the GGUF file that llama.cpp's converter would make of them.
func TestSafetensors(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long under the race detector, and nothing in it is concurrent")
	}
	list := tensors(gguf.BF16)
	data := encode(keys(), list)
	ours := converted(t, folder(t, safetensors(t, list, config())), "none")
	theirs := converted(t, folder(t, map[string][]byte{"model.gguf": data}), "")
	a, b := ours.Manifest(), theirs.Manifest()
	for i, x := range a.Tensors {
		if i >= len(b.Tensors) || x.Name != b.Tensors[i].Name || x.SHA256 != b.Tensors[i].SHA256 || x.Matrix != b.Tensors[i].Matrix {
			t.Errorf("tensor %d, %q, differs", i, x.Name)
		}
	}
	checkLogits(t, ours, newReference(ofFile(t, data)))
	c := config()
	c["query_pre_attn_scalar"] = 100 // of which GGUF files have no key
	r := newReference(ofFile(t, data))
	r.scalar = 100
	checkLogits(t, converted(t, folder(t, safetensors(t, list, c)), "none"), r)
}

// TestGrid holds rounded packs against the decoder over the numbers that they hold, and asks
// how far off those are.
func TestGrid(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long under the race detector, and nothing in it is concurrent")
	}
	for _, grid := range []string{"q4_0", "absmax7"} {
		dir := folder(t, safetensors(t, tensors(gguf.BF16), config()))
		pack := converted(t, dir, grid)
		checkLogits(t, pack, newReference(ofPack(pack)))
		req := zoo.ConvertRequest{Checkpoint: dir, Sources: sources(t, dir), Dir: t.TempDir(), Recipe: map[string]string{"grid": grid}, Report: true}
		made, err := gemma3.New().Convert(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range made.Rounding {
			if r.Problem != "" || r.RelL2 < 0.02 || r.RelL2 > 0.2 || r.MaxAbs < 0.005 || r.MaxAbs > 0.1 {
				t.Errorf("%+v", r)
			}
		}
		if len(made.Rounding) != 2*8 {
			t.Errorf("%d families", len(made.Rounding))
		}
	}
}
