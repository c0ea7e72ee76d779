package gemma4_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

var update = flag.Bool("update", false, "rewrite the golden files of this package")

// checkpoints returns the checkpoints that the tests convert, some with a grid behind a
// slash: references, and made ones of every variant.
func checkpoints(t *testing.T) map[string]string {
	t.Helper()
	tiny := gemma4test.Tiny()
	all := map[string]string{
		"made":             made(t, tiny, gemma4test.Options{Seed: 1, TowerTensors: 3, TowerBytes: 600}),
		"made static":      made(t, tiny, gemma4test.Options{Seed: 2, Static: true, SharedKV: true}),
		"made other head":  made(t, tiny, gemma4test.Options{Seed: 3, OtherHead: true}),
		"made mixed bits":  made(t, tiny, gemma4test.Options{Seed: 4, Config: mixed(t, tiny)}),
		"made key = value": made(t, tiny, gemma4test.Options{Seed: 5, Config: edit(t, config(t, tiny), map[string]any{"text_config.attention_k_eq_v": true})}),
		"made without per-layer input": made(t, tiny, gemma4test.Options{Seed: 6, Config: edit(t, config(t, tiny), map[string]any{
			"text_config.hidden_size_per_layer_input": 0, "text_config.vocab_size_per_layer_input": 0})}),
	}
	floats := made(t, gemma4test.TinyFloats(), gemma4test.Options{Seed: 8, Shards: 3, SharedKV: true, TowerTensors: 3, TowerBytes: 600})
	for _, grid := range []string{"q4_0", "absmax7", "none"} {
		all["made floats/"+grid] = floats
		all["e4b-tiny/"+grid] = reference(t, "e4b-tiny")
	}
	for _, name := range []string{"e2b-tiny", "e2b-tiny-srq", "demo"} {
		all[name] = reference(t, name)
	}
	return all
}

// config returns the config.json of sizes.
func config(t testing.TB, s gemma4test.Sizes) []byte {
	t.Helper()
	data, err := s.Config()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// mixed returns a config.json in which matrices that usually lie together differ in
// their bits, and one attention block is not quantised.
func mixed(t testing.TB, s gemma4test.Sizes) []byte {
	t.Helper()
	return edit(t, config(t, s), map[string]any{
		"quantization_config.module_quant_configs": json.RawMessage(`{"self_attn\\.k_proj":{"num_bits":8},"gate_proj":{"num_bits":8},"layers\\.\\d\\.mlp":{"num_bits":4},
			"per_layer_projection":{"num_bits":2},"embed_tokens$":{"num_bits":8},"lm_head":{"num_bits":8}}`),
		"quantization_config.modules_to_not_convert": []string{"per_layer_model_projection", "model.language_model.layers.1.self_attn"},
	})
}

// TestConvert holds every number of every pack against its checkpoint, and the packs' digests against golden ones.
func TestConvert(t *testing.T) {
	got := map[string]string{}
	all := checkpoints(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			pack := convertTo(t, all[name], recipe(name))
			got[name] = pack.Digest().String()
			if err := pack.Verify(t.Context(), nil); err != nil {
				t.Error(err)
			}
			checkPack(t, all[name], pack)
			for _, file := range []string{"config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja"} {
				want, err := os.ReadFile(filepath.Join(all[name], file))
				if err != nil {
					t.Fatal(err)
				}
				if data, err := pack.File(file); err != nil || !bytes.Equal(data, want) {
					t.Errorf("%s: %v, or it differs", file, err)
				}
			}
			again := convertTo(t, all[name], recipe(name))
			if again.Digest() != pack.Digest() {
				t.Errorf("converted again it is %s, not %s", again.Digest(), pack.Digest())
			}
		})
	}
	checkDigests(t, "digests", got)
}

// checkDigests holds digests of packs against a golden file.
func checkDigests(t *testing.T, name string, got map[string]string) {
	t.Helper()
	file := filepath.Join("testdata", name+".json")
	if *update {
		text, err := json.MarshalIndent(got, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]string
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("digests; a change of what is written needs a new version of the plugin, then -update (-want +got):\n%s", diff)
	}
}

// TestFullTensors converts one layer of each layout in the official widths and holds the
// packs' digests against golden ones: they are the same on every machine.
func TestFullTensors(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	layer := func(s gemma4test.Sizes, int4 int) gemma4test.Sizes {
		s.Layers, s.Shared, s.FullEvery, s.Vocab, s.Int4FFN = 1, 0, 1, 512, int4
		return s
	}
	floats := layer(gemma4test.E4B().WithFloats(), 0)
	got := map[string]string{}
	for name, dir := range map[string]string{
		"e2b codes of 2 bits": made(t, layer(gemma4test.E2B(), 0), gemma4test.Options{Seed: 9, Static: true}),
		"e4b codes of 4 bits": made(t, layer(gemma4test.E4B(), 1), gemma4test.Options{Seed: 9, Static: true}),
		"e4b floats/q4_0":     made(t, floats, gemma4test.Options{Seed: 9}),
		"e4b floats/absmax7":  made(t, floats, gemma4test.Options{Seed: 9, Shards: 2}),
	} {
		got[name] = convertTo(t, dir, recipe(name)).Digest().String()
	}
	checkDigests(t, "full", got)
}

// TestPackTensors holds the tensors of packs against what program recorders expect.
func TestPackTensors(t *testing.T) {
	all := checkpoints(t)
	matrix := func(f quant.Format, l quant.Layout, rows, cols int) quant.Matrix {
		return quant.Matrix{Format: f, Layout: l, Rows: rows, Cols: cols}
	}
	absent := quant.Matrix{}
	cases := map[string]map[string]quant.Matrix{
		"e2b-tiny": {
			"embed_tokens":                        matrix(quant.Int2, quant.Blocks, 2048, 96),
			"lm_head":                             absent,
			"embed_tokens_per_layer":              matrix(quant.Format{Bits: 4, Group: 32, Scale: quant.ScaleF32}, quant.Rows, 2048, 320),
			"per_layer_model_projection":          matrix(quant.BF16, quant.Rows, 320, 96),
			"per_layer_projection_norm":           matrix(quant.F32, quant.Rows, 1, 32),
			"norm":                                matrix(quant.F32, quant.Rows, 1, 96),
			"layers.0.self_attn.qkv_proj":         matrix(quant.Int4, quant.Blocks, 64+16+16, 96),
			"layers.4.self_attn.qkv_proj":         matrix(quant.Int4, quant.Blocks, 128+32+32, 96),
			"layers.5.self_attn.qkv_proj":         absent,
			"layers.5.self_attn.q_proj":           matrix(quant.Int4, quant.Blocks, 64, 96),
			"layers.4.self_attn.k_norm":           matrix(quant.F32, quant.Rows, 1, 32),
			"layers.5.self_attn.k_norm":           absent,
			"layers.5.self_attn.k_proj":           absent,
			"layers.9.self_attn.o_proj":           matrix(quant.Int4, quant.Blocks, 96, 128),
			"layers.0.mlp.gate_up_proj":           matrix(quant.Int4, quant.Blocks, 256, 96),
			"layers.9.mlp.gate_up_proj":           matrix(quant.Int2, quant.Blocks, 512, 96),
			"layers.9.mlp.down_proj":              matrix(quant.Int2, quant.Blocks, 96, 256),
			"layers.9.per_layer_input_gate":       matrix(quant.Int8, quant.Blocks, 32, 96),
			"layers.9.per_layer_projection":       matrix(quant.Int8, quant.Blocks, 96, 32),
			"layers.9.post_per_layer_input_norm":  matrix(quant.F32, quant.Rows, 1, 96),
			"layers.9.post_attention_layernorm":   matrix(quant.F32, quant.Rows, 1, 96),
			"layers.9.pre_feedforward_layernorm":  matrix(quant.F32, quant.Rows, 1, 96),
			"layers.9.post_feedforward_layernorm": matrix(quant.F32, quant.Rows, 1, 96),
			"layers.9.input_layernorm":            matrix(quant.F32, quant.Rows, 1, 96),
		},
		"made": { // heads and widths that end within a block
			"layers.0.self_attn.qkv_proj":   matrix(quant.Int4, quant.Blocks, 48+16+16, 40),
			"layers.4.self_attn.qkv_proj":   matrix(quant.Int4, quant.Blocks, 80+32+32, 40),
			"layers.0.mlp.gate_up_proj":     matrix(quant.Int4, quant.Blocks, 64+64, 40),
			"layers.0.mlp.down_proj":        matrix(quant.Int4, quant.Blocks, 40, 56),
			"layers.9.per_layer_input_gate": matrix(quant.Int8, quant.Blocks, 8, 40),
		},
		"made other head": {
			"embed_tokens": matrix(quant.Int2, quant.Blocks, gemma4test.Tiny().Vocab, 40),
			"lm_head":      matrix(quant.Int2, quant.Blocks, gemma4test.Tiny().Vocab, 40),
		},
		"made mixed bits": {
			"layers.0.self_attn.qkv_proj":   absent,
			"layers.0.self_attn.q_proj":     matrix(quant.Int4, quant.Blocks, 48, 40),
			"layers.0.self_attn.k_proj":     matrix(quant.Int8, quant.Blocks, 12, 40),
			"layers.0.self_attn.v_proj":     matrix(quant.Int4, quant.Blocks, 12, 40),
			"layers.1.self_attn.qkv_proj":   absent,
			"layers.1.self_attn.q_proj":     matrix(quant.BF16, quant.Rows, 48, 40),
			"layers.1.self_attn.v_proj":     matrix(quant.BF16, quant.Rows, 12, 40),
			"layers.0.mlp.gate_up_proj":     absent,
			"layers.0.mlp.gate_proj":        matrix(quant.Int8, quant.Blocks, 56, 40),
			"layers.0.mlp.up_proj":          matrix(quant.Int4, quant.Blocks, 56, 40),
			"layers.0.per_layer_projection": matrix(quant.Int2, quant.Blocks, 40, 8),
			"embed_tokens":                  matrix(quant.Int8, quant.Blocks, gemma4test.Tiny().Vocab, 40),
		},
		"made key = value": {
			"layers.0.self_attn.qkv_proj": matrix(quant.Int4, quant.Blocks, 48+16+16, 40),
			"layers.4.self_attn.qkv_proj": matrix(quant.Int4, quant.Blocks, 80+32, 40),
			"layers.9.self_attn.q_proj":   matrix(quant.Int4, quant.Blocks, 80, 40),
		},
		"e4b-tiny/q4_0": {
			"embed_tokens":                   matrix(quant.Int4x32, quant.Blocks, 2048, 128),
			"lm_head":                        absent,
			"embed_tokens_per_layer":         matrix(quant.Int4x32, quant.Rows, 2048, 12*32),
			"per_layer_model_projection":     matrix(quant.BF16, quant.Rows, 12*32, 128),
			"layers.0.self_attn.qkv_proj":    matrix(quant.Int4x32, quant.Blocks, 64+32+32, 128),
			"layers.6.self_attn.qkv_proj":    absent,
			"layers.6.self_attn.q_proj":      matrix(quant.Int4x32, quant.Blocks, 64, 128),
			"layers.6.self_attn.k_norm":      absent,
			"layers.5.self_attn.o_proj":      matrix(quant.Int4x32, quant.Blocks, 128, 128),
			"layers.0.mlp.gate_up_proj":      matrix(quant.Int4x32, quant.Blocks, 384, 128),
			"layers.11.per_layer_projection": matrix(quant.Int4x32, quant.Blocks, 128, 32),
			"norm":                           matrix(quant.F32, quant.Rows, 1, 128),
		},
		"e4b-tiny/none": {
			"embed_tokens":                matrix(quant.BF16, quant.Rows, 2048, 128),
			"embed_tokens_per_layer":      matrix(quant.BF16, quant.Rows, 2048, 12*32),
			"layers.0.self_attn.qkv_proj": absent,
			"layers.0.self_attn.v_proj":   matrix(quant.BF16, quant.Rows, 32, 128),
			"layers.0.mlp.up_proj":        matrix(quant.BF16, quant.Rows, 192, 128),
		},
		"made floats/absmax7": { // heads that end within a block
			"layers.5.self_attn.qkv_proj": matrix(quant.Int4x32, quant.Blocks, 96+48+48, 64),
			"layers.9.self_attn.q_proj":   matrix(quant.Int4x32, quant.Blocks, 32, 64),
		},
		"made without per-layer input": {
			"embed_tokens_per_layer":             absent,
			"per_layer_model_projection":         absent,
			"layers.0.post_per_layer_input_norm": absent,
			"layers.0.mlp.down_proj":             matrix(quant.Int4, quant.Blocks, 40, 56),
		},
	}
	for name, tensors := range cases {
		t.Run(name, func(t *testing.T) {
			pack := convertTo(t, all[name], recipe(name))
			for tensor, want := range tensors {
				if _, got, _ := pack.Tensor(tensor); got != want {
					t.Errorf("%s is %+v, want %+v", tensor, got, want)
				}
			}
		})
	}
}

// TestConstants holds the constants of a pack with and without static activations against what they should be.
func TestConstants(t *testing.T) {
	float, static := convert(t, reference(t, "e2b-tiny")), convert(t, reference(t, "e2b-tiny-srq"))
	for _, name := range slices.Sorted(maps.Keys(float.Manifest().Constants)) {
		if strings.Contains(name, "activation_scale") {
			t.Errorf("%q without static activations", name)
		}
	}
	got := static.Manifest().Constants
	for _, name := range []string{"layers.0.layer_scalar", "layers.9.layer_scalar", "layers.4.self_attn.k_cache_scale", "layers.4.self_attn.v_cache_scale",
		"layers.0.self_attn.v_proj.output_activation_scale", "layers.9.mlp.gate_proj.input_activation_scale", "layers.9.per_layer_projection.input_activation_scale"} {
		if !(got[name] > 0) {
			t.Errorf("%q is %v", name, got[name])
		}
	}
	for _, name := range []string{"lm_head.input_activation_scale", "layers.5.self_attn.k_cache_scale", "layers.5.self_attn.k_proj.input_activation_scale"} {
		if v, ok := got[name]; ok {
			t.Errorf("%q is %v", name, v)
		}
	}
}

// TestSources checks that other files in the folder do not change the pack.
func TestSources(t *testing.T) {
	pack := convert(t, reference(t, "e2b-tiny")) // the folder holds golden values as well
	var names []string
	for _, s := range pack.Manifest().Sources {
		names = append(names, s.Path)
	}
	want := []string{"chat_template.jinja", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
}

// tall returns sizes whose tables are packed in many pieces.
func tall() gemma4test.Sizes {
	s := gemma4test.Tiny()
	s.Vocab, s.Hidden, s.PerLayer = 12_000, 256, 64
	return s
}

// TestThreads converts tables of many pieces with several numbers of threads.
func TestThreads(t *testing.T) {
	dir := made(t, tall(), gemma4test.Options{Seed: 7})
	pack := convert(t, dir)
	checkPack(t, dir, pack)
	want := pack.Digest()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, n := range []int{1, 2, 7} {
		runtime.GOMAXPROCS(n)
		if got := convert(t, dir).Digest(); got != want {
			t.Errorf("%d threads: %s, want %s", n, got, want)
		}
	}
}

func TestProgress(t *testing.T) {
	req := request(t, made(t, gemma4test.Tiny(), gemma4test.Options{Seed: 1}))
	var last, total int64
	calls := 0
	req.Progress = func(done, all int64) {
		if done < last || done > all || calls > 0 && all != total {
			t.Errorf("%d of %d bytes after %d of %d", done, all, last, total)
		}
		last, total = done, all
		calls++
	}
	if _, err := gemma4.Convert(t.Context(), plugin, req); err != nil {
		t.Fatal(err)
	}
	if calls < 10 || last != total || total == 0 {
		t.Errorf("%d calls, the last with %d of %d bytes", calls, last, total)
	}
}

// TestCancel cancels at the first sign of progress.
func TestCancel(t *testing.T) {
	req := request(t, made(t, tall(), gemma4test.Options{Seed: 7}))
	errStop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	req.Progress = func(done, _ int64) { cancel(errStop) }
	before := runtime.NumGoroutine()
	if _, err := gemma4.Convert(ctx, plugin, req); !errors.Is(err, errStop) {
		t.Errorf("cancelled at the first progress: %v", err)
	}
	// A goroutine says that it is done a moment before it is gone.
	for start := time.Now(); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("%d goroutines before, %d after", before, runtime.NumGoroutine())
		}
	}
	if _, err := zoo.OpenPack(req.Dir); err == nil {
		t.Error("what is left opens as a pack")
	}
	req.Dir = t.TempDir()
	if _, err := gemma4.Convert(ctx, plugin, req); !errors.Is(err, errStop) {
		t.Errorf("cancelled beforehand: %v", err)
	}
}

func BenchmarkConvert(b *testing.B) {
	s := gemma4test.E2B()
	s.Layers, s.Shared, s.Vocab, s.Int4FFN = 5, 0, 8192, 3
	dir := made(b, s, gemma4test.Options{Seed: 1, Static: true})
	req := request(b, dir)
	var size int64
	for _, f := range req.Sources {
		size += f.SizeBytes
	}
	b.SetBytes(size)
	b.ReportAllocs()
	root := b.TempDir()
	for n := 0; b.Loop(); n++ {
		req.Dir = filepath.Join(root, fmt.Sprint(n))
		if err := os.Mkdir(req.Dir, 0o755); err != nil {
			b.Fatal(err)
		}
		if _, err := gemma4.Convert(b.Context(), plugin, req); err != nil {
			b.Fatal(err)
		}
		if err := os.RemoveAll(req.Dir); err != nil {
			b.Fatal(err)
		}
	}
}
