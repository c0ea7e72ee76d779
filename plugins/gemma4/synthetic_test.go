package gemma4_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/tokenizer"
	"github.com/zoo-sdk/zoo/zoo"
)

// synthesize writes a pack of random weights and opens it.
func synthesize(t *testing.T, config []byte) *zoo.Pack {
	t.Helper()
	dir := t.TempDir()
	if err := gemma4.Synthesize(t.Context(), plugin, gemma4.Shapes{Config: config}, zoo.SynthesizeRequest{Dir: dir}); err != nil {
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

// TestSynthesizeLikeConvert holds a pack of random weights against the conversion of
// a checkpoint with the same configuration: all but the numbers is the same.
func TestSynthesizeLikeConvert(t *testing.T) {
	converted := convert(t, made(t, gemma4test.Tiny(), gemma4test.Options{Static: true}))
	made := synthesize(t, config(t, gemma4test.Tiny()))
	matrices := func(p *zoo.Pack) map[string]quant.Matrix {
		all := map[string]quant.Matrix{}
		for _, tensor := range p.Manifest().Tensors {
			all[tensor.Name] = tensor.Matrix
		}
		return all
	}
	if diff := cmp.Diff(matrices(converted), matrices(made)); diff != "" {
		t.Errorf("tensors (-converted +random):\n%s", diff)
	}
	constants := func(p *zoo.Pack) []string { return slices.Sorted(maps.Keys(p.Manifest().Constants)) }
	if diff := cmp.Diff(constants(converted), constants(made)); diff != "" {
		t.Errorf("constants (-converted +random):\n%s", diff)
	}
	if !made.Manifest().Synthetic() || converted.Manifest().Synthetic() {
		t.Error("a pack of random weights is to say so, and another not")
	}
	if err := made.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	compiled, err := made.File(zoo.TokenizerFile)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Open(compiled)
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.VocabSize(); got != gemma4test.Tiny().Vocab {
		t.Errorf("%d pieces for %d tokens", got, gemma4test.Tiny().Vocab)
	}
	const text = "How fast? ~12"
	if got := tok.Decode(tok.Encode(nil, text, 0)); got != text {
		t.Errorf("%q comes back as %q", text, got)
	}
}

// TestSynthesizeDigest holds the bytes against a digest: they are the same on every machine.
func TestSynthesizeDigest(t *testing.T) {
	const want = catalog.Digest("sha256:6c4809197ec9a7753243740c916ffdddc9ca4837e39529d51d107bdb321539cb")
	if got := synthesize(t, config(t, gemma4test.Tiny())).Digest(); got != want {
		t.Errorf("digest %s, want %s; a change of what is written needs a new version of the plugin", got, want)
	}
}

func TestSynthesizeRefused(t *testing.T) {
	request := func() zoo.SynthesizeRequest { return zoo.SynthesizeRequest{Dir: t.TempDir()} }
	if err := gemma4.Synthesize(t.Context(), plugin, gemma4.Shapes{Config: []byte(`{`)}, request()); !errors.Is(err, zoo.ErrIntegrity) {
		t.Errorf("a broken configuration: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req := request()
	req.Progress = func(_, _ int64) { cancel() }
	if err := gemma4.Synthesize(ctx, plugin, gemma4.Shapes{Config: config(t, gemma4test.Tiny())}, req); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := os.Stat(req.Dir + "/" + zoo.ManifestFile); err == nil {
		t.Error("a cancelled call leaves a pack")
	}
}
