package gemma4test_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/tokenizer"
)

// digests writes a checkpoint and returns the digest of each of its files.
func digests(t *testing.T, opts gemma4test.Options) map[string]string {
	t.Helper()
	dir := t.TempDir()
	if err := gemma4test.Write(t.Context(), dir, gemma4test.Tiny(), opts); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		sums[e.Name()] = catalog.DigestOf(data).String()
	}
	return sums
}

func TestSeed(t *testing.T) {
	a := digests(t, gemma4test.Options{Seed: 1})
	if diff := cmp.Diff(a, digests(t, gemma4test.Options{Seed: 1})); diff != "" {
		t.Errorf("the same seed gives other files:\n%s", diff)
	}
	if b := digests(t, gemma4test.Options{Seed: 2}); a["model.safetensors"] == b["model.safetensors"] {
		t.Error("another seed gives the same weights")
	}
}

// TestLikeReference holds the names, types and shapes of a made checkpoint of
// e2b-tiny's sizes against those of e2b-tiny, which others made.
func TestLikeReference(t *testing.T) {
	reference := filepath.Join("..", "testdata", "e2b-tiny")
	config, err := os.ReadFile(filepath.Join(reference, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := gemma4test.Write(t.Context(), dir, gemma4test.Sizes{}, gemma4test.Options{Config: config, SharedKV: true}); err != nil {
		t.Fatal(err)
	}
	type facts struct {
		DType checkpoint.DType
		Shape []int
	}
	tensors := func(dir string) map[string]facts {
		c, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all := map[string]facts{}
		for _, name := range c.Names() {
			if tensor, _ := c.Tensor(name); !strings.Contains(name, "_tower.") {
				all[name] = facts{tensor.DType, tensor.Shape}
			}
		}
		return all
	}
	if diff := cmp.Diff(tensors(reference), tensors(dir)); diff != "" {
		t.Errorf("(-reference +made):\n%s", diff)
	}
}

// TestOfficialCounts holds the number of tensors in the official shapes against the facts that are published.
func TestOfficialCounts(t *testing.T) {
	config, err := gemma4test.E2B().Config()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := gemma4.ParseConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[checkpoint.DType]int{}
	bits := map[int]int{}
	all, total := 0, int64(0)
	stop := func(tensors []gemma4test.Tensor) []gemma4test.Tensor {
		for _, x := range tensors {
			all++
			size := int64(x.DType.Size())
			for _, n := range x.Shape {
				size *= int64(n)
			}
			total += size
			if strings.Contains(x.Name, "_tower.") {
				continue
			}
			counts[x.DType]++
			module, codes := strings.CutSuffix(x.Name, ".weight")
			table := strings.HasSuffix(x.Name, ".embedding_quantized")
			if table {
				module = strings.TrimSuffix(x.Name, ".embedding_quantized")
			}
			if (codes || table) && x.DType != checkpoint.BF16 {
				n, err := cfg.Quantization.Bits(module, table)
				if err != nil {
					t.Fatal(err)
				}
				bits[n]++
			}
		}
		return nil // write no weights
	}
	opts := gemma4test.E2BOptions()
	opts.Change = stop
	if err := gemma4test.Write(t.Context(), t.TempDir(), gemma4test.E2B(), opts); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int]int{2: 62, 4: 146, 8: 70}, bits); diff != "" {
		t.Errorf("matrices by bits (-want +got):\n%s", diff)
	}
	if counts[checkpoint.BF16] != 263 {
		t.Errorf("%d bfloat16 tensors, want 263", counts[checkpoint.BF16])
	}
	if all != 2780 || total < 2_457_000_000 || total > 2_459_000_000 {
		t.Errorf("%d tensors of %d bytes, want 2780 of 2458 million", all, total)
	}
}

func TestTokenizer(t *testing.T) {
	if _, err := gemma4test.Tokenizer(gemma4test.MinVocab - 1); err == nil {
		t.Error("a tokenizer without all of ASCII")
	}
	for _, n := range []int{gemma4test.MinVocab, gemma4test.MinVocab + 1, 3000} {
		source, err := gemma4test.Tokenizer(n)
		if err != nil {
			t.Fatal(err)
		}
		compiled, err := tokenizer.Compile(source)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := tokenizer.Open(compiled)
		if err != nil {
			t.Fatal(err)
		}
		if tok.VocabSize() != n {
			t.Errorf("%d tokens, want %d", tok.VocabSize(), n)
		}
		const text = "Why is the sky blue? «él» ~ 12"
		if got := tok.Decode(tok.Encode(nil, text, 0)); got != text {
			t.Errorf("%q comes back as %q", text, got)
		}
	}
}
