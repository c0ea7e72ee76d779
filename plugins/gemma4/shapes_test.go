package gemma4_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
	"github.com/zoo-sdk/zoo/plugins/gemma4e4b"
	"github.com/zoo-sdk/zoo/zoo"
)

// TestShapes holds the configurations in the plugins against the official sizes.
func TestShapes(t *testing.T) {
	t.Parallel()
	facts := func(config []byte) map[string]any {
		cfg, err := gemma4.ParseConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]any{"text": cfg.Text, "tied": cfg.TieWordEmbeddings, "floats": cfg.Quantization == nil}
		bits := func(name string, table bool) {
			if cfg.Quantization == nil {
				return
			}
			if all[name], err = cfg.Quantization.Bits(name, table); err != nil {
				t.Fatal(err)
			}
		}
		bits("lm_head", false)
		bits("model.language_model.embed_tokens", true)
		bits("model.language_model.embed_tokens_per_layer", true)
		bits("model.language_model.per_layer_model_projection", false)
		for i := range cfg.Text.NumHiddenLayers {
			base := fmt.Sprintf("model.language_model.layers.%d.", i)
			all[base] = cfg.Layer(i)
			for _, name := range []string{"self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj", "per_layer_input_gate", "per_layer_projection"} {
				bits(base+name, false)
			}
		}
		return all
	}
	for file, sizes := range map[string]gemma4test.Sizes{
		"gemma4e2b/shapes/mobile.json": gemma4test.E2B(),
		"gemma4e2b/shapes/floats.json": gemma4test.E2B().WithFloats(),
		"gemma4e4b/shapes/mobile.json": gemma4test.E4B(),
		"gemma4e4b/shapes/floats.json": gemma4test.E4B().WithFloats(),
	} {
		embedded, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(facts(config(t, sizes)), facts(embedded)); diff != "" {
			t.Errorf("%s (-official +embedded):\n%s", file, diff)
		}
	}
	for _, plugin := range []*gemma4.Plugin{gemma4e2b.New(), gemma4e4b.New()} {
		if err := plugin.Synthesize(t.Context(), zoo.SynthesizeRequest{Model: "demo", Dir: t.TempDir()}); !errors.Is(err, zoo.ErrUsage) {
			t.Errorf("another model's shapes: %v", err)
		}
	}
}

// TestSyntheticRuns runs random weights in small shapes: the logits are finite, and
// are not all the same.
func TestSyntheticRuns(t *testing.T) {
	t.Parallel()
	floats := config(t, gemma4test.TinyFloats())
	for name, shapes := range map[string]gemma4.Shapes{
		"codes":  {Config: config(t, gemma4test.Tiny())},
		"floats": {Config: floats, Recipe: map[string]string{"grid": "none"}},
		"q4_0":   {Config: floats, Recipe: map[string]string{"grid": "q4_0"}},
	} {
		t.Run(name, func(t *testing.T) { synthesizeAndRun(t, shapes) })
	}
}

// synthesizeAndRun makes random weights and feeds some tokens.
func synthesizeAndRun(t *testing.T, shapes gemma4.Shapes) {
	t.Helper()
	dir := t.TempDir()
	if err := gemma4.Synthesize(t.Context(), plugin, shapes, zoo.SynthesizeRequest{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	pack, err := zoo.OpenPack(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer pack.Close()
	p, err := gemma4.NewPlugin(plugin.Name, plugin.Version, "", nil).Run(t.Context(), zoo.RunRequest{Pack: pack.Info()})
	if err != nil {
		t.Fatal(err)
	}
	m := &model{weights: pack, program: p}
	cache := backends.CacheInt8
	if p.Caches[0].KeyScale == 0 {
		cache = backends.CacheFloat
	}
	s := session(t, m.load(t, backends.Options{Cache: cache}))
	ids := []int32{2, 70, 300, 41, 299, 3, 7, 120}
	for range 8 {
		if err := s.Feed(t.Context(), ids, 1); err != nil {
			t.Fatal(err)
		}
		low, high := math.Inf(1), math.Inf(-1)
		for _, x := range s.Logits(0) {
			low, high = min(low, float64(x)), max(high, float64(x))
		}
		if !(high-low > 0.01 && high < 30 && low > -30) {
			t.Fatalf("after %d tokens the logits lie from %g to %g", s.Len(), low, high)
		}
		ids = []int32{argmax(s.Logits(0))}
	}
}
