package gemma3_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/plugins/gemma3"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// synthesize writes a pack of random weights and opens it.
func synthesize(t testing.TB, shapes gemma3.Shapes) *zoo.Pack {
	t.Helper()
	dir := t.TempDir()
	if err := gemma3.Synthesize(t.Context(), id, shapes, zoo.SynthesizeRequest{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	pack, err := zoo.OpenPack(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pack.Close(); err != nil {
			t.Error(err)
		}
	})
	return pack
}

// TestSynthesizeLikeConvert holds packs of random weights against conversions of checkpoints
// of the same shapes: all but the numbers is the same. Then it runs them: the logits are
// finite, and not all the same.
func TestSynthesizeLikeConvert(t *testing.T) {
	t.Parallel()
	for _, c := range checkpoints(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pack, made := converted(t, folder(t, c.files), c.shapes.Recipe["grid"]), synthesize(t, c.shapes)
			matrices := func(p *zoo.Pack) (names []string, all []quant.Matrix) {
				for _, tensor := range p.Manifest().Tensors {
					names, all = append(names, tensor.Name), append(all, tensor.Matrix)
				}
				return names, all
			}
			wantNames, wantAll := matrices(pack)
			gotNames, gotAll := matrices(made)
			if diff := cmp.Diff(wantNames, gotNames) + cmp.Diff(wantAll, gotAll); diff != "" {
				t.Errorf("tensors (-converted +random):\n%s", diff)
			}
			if !made.Manifest().Synthetic() || pack.Manifest().Synthetic() {
				t.Error("a pack of random weights is to say so, and another not")
			}
			if err := made.Verify(t.Context(), nil); err != nil {
				t.Error(err)
			}
			s := load(t, made)
			ids := prompt
			for range 8 {
				if err := s.Feed(t.Context(), ids, 1); err != nil {
					t.Fatal(err)
				}
				low, high, best := math.Inf(1), math.Inf(-1), int32(0)
				for i, x := range s.Logits(0) {
					if float64(x) > high {
						best = int32(i)
					}
					low, high = min(low, float64(x)), max(high, float64(x))
				}
				if !(high-low > 0.01 && high < 60 && low > -60) {
					t.Fatalf("after %d tokens the logits lie from %g to %g", s.Len(), low, high)
				}
				ids = []int32{best}
			}
		})
	}
}

// TestSynthesizeDigest holds the bytes against digests: they are the same on every machine.
func TestSynthesizeDigest(t *testing.T) {
	t.Parallel()
	for file, want := range map[gemma3.FileType]catalog.Digest{
		"":                "sha256:d0e4186ed56604fd8548a25d12be278dd663c29d6f284cae47f3a4e799cc551f",
		gemma3.FileQ4_K_M: "sha256:bfe66b45a460bf1910e64751e7a50b65a46c2d169e257d9b1443cb486a0b2b5c",
	} {
		if got := synthesize(t, gemma3.Shapes{Config: changed(t, nil), File: file}).Digest(); got != want {
			t.Errorf("%q: digest %s, want %s; a change of what is written needs a new version of the plugin", file, got, want)
		}
	}
}

// TestSyntheticTypes has rows that do not consist of blocks of K-quants.
func TestSyntheticTypes(t *testing.T) {
	t.Parallel()
	odd := changed(t, map[string]any{"hidden_size": 320})
	formats := map[string]quant.Format{}
	for _, w := range synthesize(t, gemma3.Shapes{Config: odd, File: gemma3.FileQ4_K_M}).Manifest().Tensors {
		formats[w.Name] = w.Format
	}
	for name, want := range map[string]quant.Format{
		"embed_tokens":                quant.Int8x32,    // q8_0 for q6_k
		"layers.0.self_attn.qkv_proj": quant.Int8x32,    // q5_0 for q4_k
		"layers.2.self_attn.qkv_proj": quant.Int8x32,    // among them q8_0 for q6_k
		"layers.0.self_attn.o_proj":   quant.Int4x32Min, // q4_k
		"layers.0.mlp.gate_up_proj":   quant.Int8x32,
		"layers.0.mlp.down_proj":      quant.Int4x32Min,
		"layers.2.mlp.down_proj":      quant.Int8x16, // q6_k
	} {
		if formats[name] != want {
			t.Errorf("%s is %v, not %v", name, formats[name], want)
		}
	}
}

func TestSynthesizeRefused(t *testing.T) {
	t.Parallel()
	config := changed(t, nil)
	for name, c := range map[string]struct {
		shapes gemma3.Shapes
		want   error
	}{
		"a broken configuration": {gemma3.Shapes{Config: []byte(`{`)}, zoo.ErrIntegrity},
		"an unknown grid":        {gemma3.Shapes{Config: config, Recipe: map[string]string{"grid": "q9"}}, zoo.ErrUsage},
		"a grid for codes":       {gemma3.Shapes{Config: config, File: gemma3.FileQ4_0, Recipe: map[string]string{"grid": "q4_0"}}, zoo.ErrUsage},
		"an unknown type":        {gemma3.Shapes{Config: config, File: "IQ1_S"}, zoo.ErrUsage},
	} {
		if err := gemma3.Synthesize(t.Context(), id, c.shapes, zoo.SynthesizeRequest{Dir: t.TempDir()}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := gemma3.New().Synthesize(t.Context(), zoo.SynthesizeRequest{Model: "demo", Dir: t.TempDir()}); !errors.Is(err, zoo.ErrUsage) || zoo.Hint(err) == "" {
		t.Errorf("another model's shapes: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req := zoo.SynthesizeRequest{Dir: t.TempDir(), Progress: func(_, _ int64) { cancel() }}
	if err := gemma3.Synthesize(ctx, id, gemma3.Shapes{Config: config}, req); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := os.Stat(filepath.Join(req.Dir, zoo.ManifestFile)); err == nil {
		t.Error("a cancelled call leaves a pack")
	}
}
