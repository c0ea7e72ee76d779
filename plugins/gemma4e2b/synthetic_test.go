package gemma4e2b_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
	"github.com/zoo-sdk/zoo/zoo"
)

// TestSyntheticShapes holds the embedded configuration against the official sizes.
func TestSyntheticShapes(t *testing.T) {
	embedded, err := os.ReadFile("synthetic.json")
	if err != nil {
		t.Fatal(err)
	}
	official, err := gemma4test.E2B().Config()
	if err != nil {
		t.Fatal(err)
	}
	facts := func(config []byte) map[string]any {
		cfg, err := gemma4.ParseConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]any{"text": cfg.Text, "tied": cfg.TieWordEmbeddings}
		bits := func(name string, table bool) {
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
	if diff := cmp.Diff(facts(official), facts(embedded)); diff != "" {
		t.Errorf("(-official +embedded):\n%s", diff)
	}
	req := zoo.SynthesizeRequest{Model: "demo", Dir: t.TempDir()}
	if err := gemma4e2b.New().Synthesize(t.Context(), req); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("another model's shapes: %v", err)
	}
}

// TestSyntheticRuns runs random weights in small shapes: the logits are finite, and
// are not all the same.
func TestSyntheticRuns(t *testing.T) {
	config, err := gemma4test.Tiny().Config()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	id := zoo.PluginID{Name: gemma4e2b.Name, Version: gemma4e2b.Version}
	if err := gemma4.Synthesize(t.Context(), id, config, zoo.SynthesizeRequest{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	pack, err := zoo.OpenPack(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer pack.Close()
	p, err := gemma4e2b.New().Run(t.Context(), zoo.RunRequest{Pack: pack.Info()})
	if err != nil {
		t.Fatal(err)
	}
	m := &model{weights: pack, program: p}
	s := session(t, m.load(t, backends.Options{Cache: backends.CacheInt8}))
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
