package gemma3_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/plugins/gemma3"
	"github.com/zoo-sdk/zoo/zoo"
)

// reference is the decoder in float64, written from the model's description and not from
// the recorder, over the weights of a GGUF file.
type reference struct {
	t    testing.TB
	file *gguf.File
	cap  float64
	// stretch divides positions in full layers.
	stretch float64
}

// matrix returns the values of a tensor, row by row.
func (r *reference) matrix(name string) [][]float64 {
	r.t.Helper()
	w, ok := r.file.Tensor(name + ".weight")
	if !ok {
		r.t.Fatalf("no tensor %q", name)
	}
	row := make([]float32, w.Cols())
	all := make([][]float64, w.Rows())
	for i := range all {
		if err := w.Dequantize(row, i); err != nil {
			r.t.Fatal(err)
		}
		all[i] = make([]float64, len(row))
		for c, v := range row {
			all[i][c] = float64(v)
		}
	}
	return all
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
	embedding := r.matrix("token_embd")
	states := make([][]float64, len(ids))
	for p, id := range ids {
		for _, v := range embedding[id] {
			states[p] = append(states[p], v*math.Sqrt(hidden))
		}
	}
	for l := range layers {
		weight := func(name string) [][]float64 { return r.matrix(fmt.Sprintf("blk.%d.%s", l, name)) }
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
					e := math.Exp(score / math.Sqrt(width))
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
	final, all := r.matrix("output_norm")[0], make([][]float64, len(ids))
	if _, ok := r.file.Tensor("output.weight"); ok {
		embedding = r.matrix("output")
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
			r := &reference{t: t, file: parse(t, data), cap: v.cap, stretch: max(v.stretch, 1)}
			checkLogits(t, converted(t, folder(t, map[string][]byte{"any name.gguf": data}), ""), r)
		})
	}
}

// TestSafetensors holds a pack of safetensors against the one of the GGUF file that llama.cpp's converter would make of them.
func TestSafetensors(t *testing.T) {
	t.Parallel()
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
	checkLogits(t, ours, &reference{t: t, file: parse(t, data), stretch: 1})
}

// TestGrid holds a pack rounded to q4_0 against the numbers that it holds.
func TestGrid(t *testing.T) {
	t.Parallel()
	for _, grid := range []string{"q4_0", "absmax7"} {
		dir := folder(t, safetensors(t, tensors(gguf.BF16), config()))
		s := load(t, converted(t, dir, grid))
		if err := s.Feed(t.Context(), prompt, 1); err != nil {
			t.Fatal(err)
		}
		req := zoo.ConvertRequest{Checkpoint: dir, Sources: sources(t, dir), Dir: t.TempDir(), Recipe: map[string]string{"grid": grid}, Report: true}
		made, err := gemma3.New().Convert(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range made.Rounding {
			if r.Problem != "" || r.RelL2 < 0.02 || r.RelL2 > 0.2 {
				t.Errorf("%+v", r)
			}
		}
		if len(made.Rounding) != 2*8 {
			t.Errorf("%d families", len(made.Rounding))
		}
	}
}
