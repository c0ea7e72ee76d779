package program_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/plugins/gemma3"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// recorded is a program with a pack that fits it.
type recorded struct {
	name string
	p    *program.Program
	pack backends.Weights
}

// gemma4Programs records the plugin's programs in small shapes.
func gemma4Programs(t testing.TB) (all []recorded) {
	t.Helper()
	sizes := gemma4test.Tiny()
	sizes.Vocab, sizes.Layers, sizes.Shared, sizes.FullEvery, sizes.Context = 40, 4, 2, 2, 300
	sizes.Hidden, sizes.FFN = 24, 40
	floats := gemma4test.TinyFloats()
	floats.Vocab, floats.Layers, floats.Shared, floats.FullEvery, floats.Context = 40, 4, 2, 2, 300
	floats.Hidden, floats.FFN, floats.HeadDim, floats.GlobalHeadDim = 32, 64, 8, 16
	for _, c := range []struct {
		name  string
		sizes gemma4test.Sizes
		grid  string
	}{{"codes", sizes, ""}, {"bfloat16", floats, "none"}, {"q4_0", floats, "q4_0"}} {
		config, err := c.sizes.Config()
		if err != nil {
			t.Fatal(err)
		}
		shapes := gemma4.Shapes{Config: config}
		if c.grid != "" {
			shapes.Recipe = map[string]string{"grid": c.grid}
		}
		p, err := gemma4.SyntheticProgram(t.Context(), shapes)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, recorded{name: "gemma4 " + c.name, p: p})
	}
	return all
}

// gemma3Config is a model of two layers.
const gemma3Config = `{
	"model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 64,
	"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 300,
	"sliding_window": 8, "sliding_window_pattern": 2, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 16, "final_logit_softcapping": 30,
	"rope_theta": 1e6, "rope_local_base_freq": 1e4
}`

// gemma3Program records the plugin's program over a pack in the formats of GGUF files.
func gemma3Program(t testing.TB) recorded {
	t.Helper()
	cfg, err := gemma3.ParseConfig([]byte(gemma3Config))
	if err != nil {
		t.Fatal(err)
	}
	m := &zoo.Manifest{}
	add := func(name string, f quant.Format, l quant.Layout, rows, cols int) {
		m.Tensors = append(m.Tensors, zoo.Tensor{Name: name, Matrix: quant.Matrix{Format: f, Layout: l, Rows: rows, Cols: cols}})
	}
	vector := func(name string, cols int) { add(name, quant.F32, quant.Rows, 1, cols) }
	add("embed_tokens", quant.Int8x16, quant.Blocks, cfg.VocabSize, cfg.HiddenSize)
	formats := []quant.Format{quant.Int4x32Min, quant.Int8x32, quant.Int8x32Min, quant.Int4x32}
	for i := range cfg.NumHiddenLayers {
		layer := fmt.Sprintf("layers.%d.", i)
		for _, norm := range []string{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"} {
			vector(layer+norm, cfg.HiddenSize)
		}
		vector(layer+"self_attn.q_norm", cfg.HeadDim)
		vector(layer+"self_attn.k_norm", cfg.HeadDim)
		width, kv := cfg.NumAttentionHeads*cfg.HeadDim, cfg.NumKeyValueHeads*cfg.HeadDim
		add(layer+"self_attn.qkv_proj", formats[2*i], quant.Blocks, width+2*kv, cfg.HiddenSize)
		add(layer+"self_attn.o_proj", formats[2*i+1], quant.Blocks, cfg.HiddenSize, width)
		add(layer+"mlp.gate_up_proj", formats[2*i], quant.Blocks, 2*cfg.IntermediateSize, cfg.HiddenSize)
		add(layer+"mlp.down_proj", formats[2*i+1], quant.Blocks, cfg.HiddenSize, cfg.IntermediateSize)
	}
	vector("norm", cfg.HiddenSize)
	p, err := gemma3.Record(m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return recorded{name: "gemma3", p: p}
}

// seeds are the programs that fuzzing changes: those of the plugins and, among them,
// every operation and format.
func seeds(t testing.TB) (all []recorded) {
	t.Helper()
	all = append(gemma4Programs(t), gemma3Program(t))
	for i, r := range all {
		all[i].pack = backendtest.WeightsOf(r.p)
	}
	for i, f := range quant.MultipliedFormats() {
		s := shape
		s.Seed, s.Format, s.Context = uint64(i), f, 300
		if f.Group == 0 { // ragged
			s.Hidden, s.FFN, s.HeadDim, s.Heads, s.KVHeads = 36, 24, 12, 4, 2
		}
		p, w := backendtest.Decoder(s)
		all = append(all, recorded{"decoder of " + f.String(), p, w})
	}
	return all
}

// trial returns a trial on all kernels that this machine has.
func trial() *backendtest.Trial {
	t := &backendtest.Trial{Allocated: allocated}
	for _, set := range cpu.Kernels() {
		t.Backends = append(t.Backends, cpu.New(set))
	}
	return t
}

// allocated returns how many bytes were allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// FuzzDecode runs whatever can be decoded.
func FuzzDecode(f *testing.F) {
	all, trial := seeds(f), trial()
	for i, r := range all {
		data, err := program.Encode(r.p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, uint64(i))
		f.Add([]byte(strings.Replace(string(data), `"cols":32`, `"cols":16`, 1)), uint64(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, plan uint64) {
		p, err := program.Decode(data)
		if err != nil {
			if !errors.Is(err, program.ErrProgram) {
				t.Fatalf("%v, want ErrProgram", err)
			}
			return
		}
		if _, err := trial.Run(t.Context(), p, all[0].pack, backendtest.TrialPlan(plan)); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzMutations changes valid programs: most of what it tries gets past the
// parser, much of it past the checks, and all of that runs.
func FuzzMutations(f *testing.F) {
	all, trial := seeds(f), trial()
	for i := range all {
		f.Add(byte(i), uint64(i), []byte{})
		f.Add(byte(i), uint64(1000*i), []byte{12, byte(i), byte(i)})
	}
	f.Fuzz(func(t *testing.T, base byte, plan uint64, script []byte) {
		r := all[int(base)%len(all)]
		p := backendtest.Mutate(r.p, script[:min(len(script), 64)])
		ran, err := trial.Run(t.Context(), p, r.pack, backendtest.TrialPlan(plan))
		if err != nil {
			t.Fatal(err)
		}
		if ran && plan%16 == 0 {
			same(t, p)
		}
	})
}

// same encodes a valid program and decodes it.
func same(t *testing.T, p *program.Program) {
	t.Helper()
	data, err := program.Encode(p)
	if err != nil {
		t.Fatal(err)
	}
	q, err := program.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := program.Encode(q); err != nil || !bytes.Equal(again, data) {
		t.Fatalf("%s becomes %s when it is decoded, %v", data, again, err)
	}
}

// TestMutations does what FuzzMutations does, with the same scripts each time.
func TestMutations(t *testing.T) {
	all, trial := seeds(t), trial()
	rng := rand.New(rand.NewPCG(1, 2))
	tries := 1500
	if testing.Short() { // there are no races to find: all is done in turn
		tries = 150
	}
	ran := 0
	for i := range tries {
		script := make([]byte, 4*(1+i%3))
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		r := all[i%len(all)]
		ok, err := trial.Run(t.Context(), backendtest.Mutate(r.p, script), r.pack, backendtest.TrialPlan(rng.Uint64()))
		if err != nil {
			t.Fatalf("%s, script %v: %v", r.name, script, err)
		}
		if ok {
			ran++
		}
	}
	t.Logf("%d of %d programs run", ran, tries)
	if ran < tries/5 {
		t.Errorf("%d of %d programs run: the scripts are too coarse to test anything", ran, tries)
	}
}

// TestSeeds holds the programs to fuzzing's need: all run, and have every operation and format.
func TestSeeds(t *testing.T) {
	all, trial := seeds(t), trial()
	kinds, formats := map[string]bool{}, map[quant.Format]bool{}
	for i, r := range all {
		for _, op := range r.p.Ops {
			v := reflect.ValueOf(op)
			for i := range v.NumField() {
				if !v.Field(i).IsNil() {
					kinds[v.Type().Field(i).Name] = true
				}
			}
		}
		for _, w := range r.p.Weights {
			formats[w.Format] = true
		}
		plans := 20
		if testing.Short() {
			plans = 4
		}
		for k := range plans {
			plan := backendtest.TrialPlan(20*i+k) * 7919
			if k < 2 { // past a ring's wrap
				plan = plan<<8 | backendtest.LongTrial
			}
			if ok, err := trial.Run(t.Context(), r.p, r.pack, plan); err != nil {
				t.Errorf("%s, plan %d: %v", r.name, plan, err)
			} else if !ok && r.p.Caches[0].KeyScale != 0 { // else plans with a cache of codes are refused
				t.Errorf("%s, plan %d: it does not run", r.name, plan)
			}
		}
	}
	for field := range reflect.TypeFor[program.Op]().Fields() {
		if !kinds[field.Name] {
			t.Errorf("no seed has the operation %s", field.Name)
		}
	}
	for _, f := range slices.Concat(quant.MultipliedFormats(), []quant.Format{quant.BF16, quant.F32}) {
		if !formats[f] {
			t.Errorf("no seed has the format %s", f)
		}
	}
}
