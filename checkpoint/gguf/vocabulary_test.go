package gguf_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/tokenizer"
)

// array writes a key with an array, whose elements f writes.
func (b *builder) array(name string, elem gguf.ValueType, n int, f func(i int)) *builder {
	return b.key(name, gguf.Array, func() {
		b.u32(uint32(elem))
		b.u64(uint64(n))
		for i := range n {
			f(i)
		}
	})
}

// flag writes a key with a truth value.
func (b *builder) flag(name string, value byte) *builder {
	return b.key(name, gguf.Bool, func() { b.body = append(b.body, value) })
}

// vocabulary writes the keys of a small vocabulary: the byte pieces behind four others.
func (b *builder) vocabulary() *builder {
	texts := []string{"▁", "<unk>", "<bos>", "  "}
	types := []uint32{1, 2, 3, 4}
	for c := range 256 {
		texts, types = append(texts, fmt.Sprintf("<0x%02X>", c)), append(types, 6)
	}
	b.key("tokenizer.ggml.model", gguf.String, func() { b.text("llama") })
	b.array("tokenizer.ggml.tokens", gguf.String, len(texts), func(i int) { b.text(texts[i]) })
	b.array("tokenizer.ggml.scores", gguf.Float32, len(texts), func(i int) { b.u32(math.Float32bits(-float32(i))) })
	return b.array("tokenizer.ggml.token_type", gguf.Int32, len(types), func(i int) { b.u32(types[i]) })
}

// parseVocabulary reads the vocabulary of a file.
func parseVocabulary(t *testing.T, b *builder) (*gguf.Vocabulary, error) {
	t.Helper()
	f, err := gguf.Parse("x.gguf", b.file(0))
	if err != nil {
		t.Fatal(err)
	}
	return f.Vocabulary()
}

// TestVocabulary reads a vocabulary, with and without the keys that may be left out.
func TestVocabulary(t *testing.T) {
	bare, err := parseVocabulary(t, new(builder).vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	ids := [6]int32{bare.BOS, bare.EOS, bare.EOT, bare.EOM, bare.Unknown, bare.Padding}
	if ids != [6]int32{1, 2, -1, -1, -1, -1} || !bare.AddBOS || bare.AddEOS || !bare.Pieces.SpacePrefix {
		t.Errorf("ids %v, bos %v, eos %v, space %v", ids, bare.AddBOS, bare.AddEOS, bare.Pieces.SpacePrefix)
	}
	b := new(builder).vocabulary().number("tokenizer.ggml.bos_token_id", 2).number("tokenizer.ggml.eos_token_id", 259).number("tokenizer.ggml.padding_token_id", 0)
	b.number("tokenizer.ggml.eot_token_id", 5).number("tokenizer.ggml.eom_token_id", 6).number("tokenizer.ggml.unknown_token_id", 3)
	v, err := parseVocabulary(t, b.flag("tokenizer.ggml.add_bos_token", 0).flag("tokenizer.ggml.add_eos_token", 1).flag("tokenizer.ggml.add_space_prefix", 0))
	if err != nil {
		t.Fatal(err)
	}
	ids = [6]int32{v.BOS, v.EOS, v.EOT, v.EOM, v.Unknown, v.Padding}
	if ids != [6]int32{2, 259, 5, 6, 3, 0} || v.AddBOS || !v.AddEOS || v.Pieces.SpacePrefix {
		t.Errorf("ids %v, bos %v, eos %v, space %v", ids, v.AddBOS, v.AddEOS, v.Pieces.SpacePrefix)
	}
	none := new(builder).vocabulary().number("tokenizer.ggml.bos_token_id", math.MaxUint32).number("tokenizer.ggml.padding_token_id", math.MaxUint32)
	none.key("tokenizer.ggml.eot_token_id", gguf.Int32, func() { none.u32(math.MaxUint32) })
	if n, err := parseVocabulary(t, none); err != nil || n.BOS != 1 || n.Padding != -1 || n.EOT != -1 {
		t.Errorf("ids of -1: %+v, %v", n, err)
	}
	compiled, err := tokenizer.CompilePieces(v.Pieces)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Open(compiled)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int32{2, 3, 4 + 'a', 0}, tok.Encode(nil, "<bos>  a ", tokenizer.MarkersAreTokens)); diff != "" {
		t.Errorf("Encode (-want +got):\n%s", diff)
	}
}

// TestVocabularyRefused reads vocabularies that are incomplete or of another kind.
func TestVocabularyRefused(t *testing.T) {
	model := func(kind string) *builder {
		b := new(builder)
		return b.key("tokenizer.ggml.model", gguf.String, func() { b.text(kind) })
	}
	texts := func() *builder {
		b := model("llama")
		return b.array("tokenizer.ggml.tokens", gguf.String, 1, func(int) { b.text("a") })
	}
	scored := func() *builder {
		b := texts()
		return b.array("tokenizer.ggml.scores", gguf.Float32, 1, func(int) { b.u32(0) })
	}
	typed := func(kind uint32) *builder {
		b := scored()
		return b.array("tokenizer.ggml.token_type", gguf.Int32, 1, func(int) { b.u32(kind) })
	}
	doubles := texts()
	doubles.array("tokenizer.ggml.scores", gguf.Float64, 1, func(int) { doubles.u64(0) })
	for key, b := range map[string]*builder{
		"tokenizer.ggml.model": new(builder), "tokenizer.ggml.tokens": model("llama"), "tokenizer.ggml.scores": texts(), "scores": doubles,
		"tokenizer.ggml.token_type": scored(), "token_type": typed(0), "from 1 to 6": typed(7),
		"tokenizer.ggml.add_bos_token": typed(1).number("tokenizer.ggml.add_bos_token", 1),
		"tokenizer.ggml.bos_token_id":  typed(1).flag("tokenizer.ggml.bos_token_id", 1),
		"there are 1 pieces":           typed(1).number("tokenizer.ggml.padding_token_id", 1),
	} {
		if _, err := parseVocabulary(t, b); !errors.Is(err, fault.ErrIntegrity) || !strings.Contains(err.Error(), key) {
			t.Errorf("%v, want an error about %s", err, key)
		}
	}
	if _, err := parseVocabulary(t, model("gpt2")); !errors.Is(err, fault.ErrUsage) || !strings.Contains(err.Error(), `"gpt2"`) || fault.Hint(err) == "" {
		t.Errorf("a vocabulary of another kind: %v", err)
	}
}
