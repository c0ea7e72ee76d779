package gemma3_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/plugins/gemma3"
	"github.com/zoo-sdk/zoo/tokenizer"
	"github.com/zoo-sdk/zoo/zoo"
)

// described describes a file of these keys, of which only the embedding is there.
func described(t testing.TB, all []key) (*gemma3.Description, error) {
	t.Helper()
	return gemma3.Describe(parse(t, encode(all, []tensor{random("token_embd.weight", gguf.Q8_0, vocab(), hidden)})))
}

// TestDescribe holds the small files against the ones of the checkpoint that a file was made of.
func TestDescribe(t *testing.T) {
	d, err := described(t, with(keys(), key{"tokenizer.chat_template", "{{ bos_token }}"}, key{"general.sampling.temp", float32(0.7)}, key{"general.sampling.top_k", 64}, key{"general.sampling.top_p", float32(0.95)}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := gemma3.ParseConfig(d.Files[zoo.ConfigFile])
	if err != nil {
		t.Fatal(err)
	}
	want, err := gemma3.ParseConfig(changed(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-safetensors +GGUF):\n%s", diff)
	}
	if n := len(d.Pieces.Texts); n != vocab() {
		t.Errorf("%d pieces", n)
	}
	for name, want := range map[string]string{
		zoo.GenerationFile:      `{"bos_token_id":2,"do_sample":true,"eos_token_id":[1,4],"pad_token_id":0,"temperature":0.7,"top_k":64,"top_p":0.95}`,
		zoo.TokenizerConfigFile: `{"add_bos_token":true,"add_eos_token":false,"bos_token":"<bos>","eos_token":"<eos>","pad_token":"<pad>","tokenizer_class":"GemmaTokenizer","unk_token":"<unk>"}`,
	} {
		var short bytes.Buffer
		if err := json.Compact(&short, d.Files[name]); err != nil || short.String() != want {
			t.Errorf("%s: %v\nwant %s\ngot  %s", name, err, want, short.String())
		}
	}
	if s := string(d.Files[zoo.TemplateFile]); s != "{{ bos_token }}" {
		t.Errorf("template %q", s)
	}
}

// TestDescribeVariants reads what files may say otherwise.
func TestDescribeVariants(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes []key
		check   func(*gemma3.Config) bool
	}{
		{"no window", []key{{"gemma3.attention.sliding_window", nil}}, func(c *gemma3.Config) bool { return !slices.Contains(c.Full, false) }},
		{"a distance", []key{{"gemma3.attention.sliding_window_pattern", 3}}, func(c *gemma3.Config) bool { return slices.Equal(c.Full, full(layers, 2, 5)) }},
		{"a list", []key{{"gemma3.attention.sliding_window_pattern", []bool{true, true, false, true, true, true, false}}},
			func(c *gemma3.Config) bool { return slices.Equal(c.Full, full(layers, 2, 6)) }},
		{"62 layers", []key{{"gemma3.block_count", 62}}, func(c *gemma3.Config) bool { return c.QueryPreAttnScalar == hidden/heads && len(c.Full) == 62 }},
		{"stretched", []key{{"gemma3.rope.scaling.type", "linear"}, {"gemma3.rope.scaling.factor", float32(8)}}, func(c *gemma3.Config) bool { return c.Global.Factor == 8 && c.Local.Factor == 1 }},
		{"stretched without a kind", []key{{"gemma3.rope.scaling.factor", float32(8)}}, func(c *gemma3.Config) bool { return c.Global.Factor == 8 && c.Local.Factor == 1 }},
		{"stretched, the older way", []key{{"gemma3.rope.scale_linear", float32(4)}}, func(c *gemma3.Config) bool { return c.Global.Factor == 4 && c.Local.Factor == 1 }},
		{"stretched both ways", []key{{"gemma3.rope.scaling.type", "linear"}, {"gemma3.rope.scaling.factor", float32(8)}, {"gemma3.rope.scale_linear", float32(4)}},
			func(c *gemma3.Config) bool { return c.Global.Factor == 8 }},
		{"a factor without a use", []key{{"gemma3.rope.scaling.type", "none"}, {"gemma3.rope.scaling.factor", float32(8)}}, func(c *gemma3.Config) bool { return c.Global.Factor == 1 }},
		{"a factor of 0", []key{{"gemma3.rope.scaling.type", "linear"}, {"gemma3.rope.scaling.factor", float32(0)}}, func(c *gemma3.Config) bool { return c.Global.Factor == 1 }},
		{"all of a head is rotated", []key{{"gemma3.rope.dimension_count", width}}, func(c *gemma3.Config) bool { return c.HeadDim == width }},
		{"a window of 0", []key{{"gemma3.attention.sliding_window", 0}, {"gemma3.attention.sliding_window_pattern", 2}}, func(c *gemma3.Config) bool { return !slices.Contains(c.Full, false) }},
		{"a cap of 0", []key{{"gemma3.final_logit_softcapping", float32(0)}}, func(c *gemma3.Config) bool { return c.FinalLogitSoftcapping == 0 }},
		{"not stretched", []key{{"gemma3.rope.scaling.type", "none"}}, func(c *gemma3.Config) bool { return c.Global.Factor == 1 }},
		{"another base", []key{{"gemma3.rope.freq_base_swa", float32(2e4)}}, func(c *gemma3.Config) bool { return c.Local.Theta == 2e4 }},
		{"capped", []key{{"gemma3.final_logit_softcapping", float32(30)}}, func(c *gemma3.Config) bool { return c.FinalLogitSoftcapping == 30 }},
	} {
		d, err := described(t, with(keys(), c.changes...))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if cfg, err := gemma3.ParseConfig(d.Files[zoo.ConfigFile]); err != nil || !c.check(cfg) {
			t.Errorf("%s: %v, %+v", c.name, err, cfg)
		}
	}
}

// marked returns the vocabulary of keys with one more piece, which begins turns, and with
// <end_of_turn> of the same type.
func marked(kind int32) []key {
	texts, types := pieces()
	texts, types = append(texts, "<start_of_turn>"), append(types, kind)
	types[slices.Index(texts, "<end_of_turn>")] = kind
	scores := make([]float32, len(texts))
	for i := range scores {
		scores[i] = -float32(i)
	}
	return []key{{"tokenizer.ggml.tokens", texts}, {"tokenizer.ggml.scores", scores}, {"tokenizer.ggml.token_type", types}}
}

// TestMarkers reads files that type the pieces of turns as they should not.
func TestMarkers(t *testing.T) {
	const text = "a<end_of_turn> <start_of_turn>b<eos>"
	for name, c := range map[string]struct {
		changes []key
		// marker is one more piece that must be a marker, and ends are the ids that end an answer.
		marker string
		ends   []int32
	}{
		"control":         {marked(3), "<bos>", []int32{1, 4}},
		"ordinary":        {marked(1), "<eos>", []int32{1, 4}},
		"user-defined":    {marked(4), "<unk>", []int32{1, 4}},
		"turn ends texts": {append(marked(1), key{"tokenizer.ggml.eos_token_id", 4}), "<eos>", []int32{4, 1}},
		"turns named":     {append(marked(1), key{"tokenizer.ggml.eot_token_id", 4}, key{"tokenizer.ggml.eom_token_id", 288}), "he", []int32{1, 4, 288}},
		"a piece to fill": {append(marked(1), key{"tokenizer.ggml.padding_token_id", 288}), "he", []int32{1, 4}},
		"without names":   {append(marked(1), key{"tokenizer.ggml.padding_token_id", -1}, key{"tokenizer.ggml.unknown_token_id", -1}), "<bos>", []int32{1, 4}},
	} {
		d, err := described(t, with(keys(), c.changes...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var generation struct {
			EOS []int32 `json:"eos_token_id"`
		}
		if err := json.Unmarshal(d.Files[zoo.GenerationFile], &generation); err != nil || !slices.Equal(generation.EOS, c.ends) {
			t.Errorf("%s: %v ends an answer, want %v (%v)", name, generation.EOS, c.ends, err)
		}
		compiled, err := tokenizer.CompilePieces(d.Pieces)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		tok, err := tokenizer.Open(compiled)
		if err != nil {
			t.Fatal(err)
		}
		for _, piece := range []string{"<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", c.marker} {
			if id, ok := tok.ID(piece); !ok || !tok.IsMarker(id) {
				t.Errorf("%s: %q is no marker", name, piece)
			}
		}
		for _, id := range tok.Encode(nil, text, tokenizer.MarkersAreText) {
			if tok.IsMarker(id) {
				t.Errorf("%s: text gives the marker %q", name, tok.Piece(id))
			}
		}
		if diff := cmp.Diff([]int32{262, 4, 261, 290, 263, 1}, tok.Encode(nil, text, tokenizer.MarkersAreTokens)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	// The pieces are checked later; that there are fewer types is none of this function's business.
	if _, err := described(t, with(keys(), key{"tokenizer.ggml.token_type", []int32{3, 3}})); err != nil {
		t.Error(err)
	}
}

func TestDescribeRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		key  key
		kind error
		text string
	}{
		{"another architecture", key{"general.architecture", "gemma2"}, zoo.ErrUsage, `"gemma2"`},
		{"no architecture", key{"general.architecture", nil}, zoo.ErrIntegrity, "missing"},
		{"another vocabulary", key{"tokenizer.ggml.model", "gpt2"}, zoo.ErrUsage, `"gpt2"`},
		{"no width", key{"gemma3.embedding_length", nil}, zoo.ErrIntegrity, "embedding_length"},
		{"a width that is a text", key{"gemma3.embedding_length", "wide"}, zoo.ErrIntegrity, "embedding_length"},
		{"widths by layer", key{"gemma3.feed_forward_length", []int32{1, 2}}, zoo.ErrIntegrity, "feed_forward_length"},
		{"values of another length", key{"gemma3.attention.value_length", width + 2}, zoo.ErrIntegrity, "value_length"},
		{"no epsilon", key{"gemma3.attention.layer_norm_rms_epsilon", nil}, zoo.ErrIntegrity, "epsilon"},
		{"infinite base", key{"gemma3.rope.freq_base", float32(math.Inf(1))}, zoo.ErrIntegrity, "freq_base"},
		{"unknown stretch", key{"gemma3.rope.scaling.type", "yarn"}, zoo.ErrIntegrity, `"yarn"`},
		{"stretch without a factor", key{"gemma3.rope.scaling.type", "linear"}, zoo.ErrIntegrity, "factor"},
		{"stretch that is no number", key{"gemma3.rope.scaling.factor", float32(math.NaN())}, zoo.ErrIntegrity, "factor"},
		{"a part of a head is rotated", key{"gemma3.rope.dimension_count", width / 2}, zoo.ErrIntegrity, "only a part is rotated"},
		{"no distance", key{"gemma3.attention.sliding_window_pattern", 0}, zoo.ErrIntegrity, "sliding_window_pattern"},
		{"a list of another length", key{"gemma3.attention.sliding_window_pattern", []bool{true}}, zoo.ErrIntegrity, "1 elements for 7 layers"},
		{"unknown piece", key{"tokenizer.ggml.unknown_token_id", 1 << 20}, zoo.ErrIntegrity, "unknown_token_id"},
		{"below all temperatures", key{"general.sampling.temp", float32(-1)}, zoo.ErrIntegrity, "sampling.temp"},
		{"more than all", key{"general.sampling.top_p", float32(1.5)}, zoo.ErrIntegrity, "sampling.top_p"},
		{"likelier than the likeliest", key{"general.sampling.min_p", float32(1.5)}, zoo.ErrIntegrity, "sampling.min_p"},
		{"template that is a number", key{"tokenizer.chat_template", 1}, zoo.ErrIntegrity, "chat_template"},
	} {
		_, err := described(t, with(keys(), c.key))
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || zoo.Hint(err) == "" {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// FuzzDescribe reads files with other numbers and texts in them, up to the configuration.
func FuzzDescribe(f *testing.F) {
	small := []key{{"tokenizer.ggml.tokens", []string{"<pad>", "<eos>", "<bos>", "<unk>"}}, {"tokenizer.ggml.scores", []float32{0, -1, -2, -3}}, {"tokenizer.ggml.token_type", []int32{3, 3, 3, 3}}}
	embedding := tensor{"token_embd.weight", gguf.F32, []int{4, 2}, make([]byte, 32)}
	f.Add(encode(with(keys(), small...), []tensor{embedding}))
	f.Add(encode(with(keys(), append(small, key{"gemma3.attention.sliding_window_pattern", []bool{true, true, false, true, true, true, false}}, key{"gemma3.rope.scaling.type", "linear"}, key{"gemma3.rope.scaling.factor", float32(8)})...), []tensor{embedding}))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse("model.gguf", data)
		if err != nil {
			return
		}
		d, err := gemma3.Describe(file)
		if err == nil {
			for _, name := range []string{zoo.ConfigFile, zoo.GenerationFile, zoo.TokenizerConfigFile} {
				if !json.Valid(d.Files[name]) {
					t.Errorf("%s is not JSON: %q", name, d.Files[name])
				}
			}
			_, err = gemma3.ParseConfig(d.Files[zoo.ConfigFile])
		}
		if err != nil && !errors.Is(err, zoo.ErrIntegrity) && !errors.Is(err, zoo.ErrUsage) {
			t.Errorf("an error of no kind: %v", err)
		}
	})
}
