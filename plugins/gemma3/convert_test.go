package gemma3_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/plugins/gemma3"
	"github.com/zoo-sdk/zoo/zoo"
)

var update = flag.Bool("update", false, "rewrite the golden files of this package")

// like270M are types in the mixture of a file that llama.cpp calls Q4_K_M.
var like270M = []gguf.Type{gguf.Q8_0, gguf.Q5_0, gguf.Q5_0, gguf.Q8_0, gguf.Q4_K, gguf.Q6_K}

// TestConvert holds the packs' digests against golden ones, and converts twice.
func TestConvert(t *testing.T) {
	t.Parallel()
	template := key{"tokenizer.chat_template", "{{ bos_token }}{{ messages[0]['content'] }}"}
	floats := safetensors(t, tensors(gguf.BF16), config())
	got := map[string]string{}
	for name, c := range map[string]struct {
		files map[string][]byte
		grid  string
	}{
		"gguf":    {map[string][]byte{"a.gguf": encode(with(keys(), template), tensors(like270M...))}, ""},
		"bf16":    {map[string][]byte{"b.gguf": encode(keys(), tensors(gguf.BF16))}, "none"},
		"q4_0":    {floats, ""},
		"absmax7": {floats, "absmax7"},
		"none":    {floats, "none"},
	} {
		dir := folder(t, c.files)
		pack := converted(t, dir, c.grid)
		if err := pack.Verify(t.Context(), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got[name] = pack.Digest().String()
		if again := converted(t, dir, c.grid); again.Digest() != pack.Digest() {
			t.Errorf("%s: converted again it differs", name)
		}
		if name != "gguf" {
			continue
		}
		// The name of a file, and others beside it, do not matter.
		other := map[string][]byte{"other.gguf": c.files["a.gguf"], "README.md": []byte("x")}
		if again := converted(t, folder(t, other), ""); again.Digest() != pack.Digest() {
			t.Error("under another name the same file makes another pack")
		}
	}
	file := filepath.Join("testdata", "digests.json")
	if *update {
		text, err := json.MarshalIndent(got, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
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
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRefused converts what is no model, or not this one.
func TestRefused(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long under the race detector, and nothing in it is concurrent")
	}
	list := tensors(like270M...)
	without := func(name string) []tensor {
		return slices.DeleteFunc(slices.Clone(list), func(t tensor) bool { return t.name == name })
	}
	and := func(more ...tensor) []tensor { return append(slices.Clone(list), more...) }
	swap := func(t tensor) []tensor { return append(without(t.name), t) }
	file := func(list []tensor, changes ...key) map[string][]byte {
		return map[string][]byte{"model.gguf": encode(with(keys(), changes...), list)}
	}
	norm := random("blk.3.ffn_norm.weight", gguf.F32, hidden)
	norm.data = bytes.Clone(norm.data)
	binary.LittleEndian.PutUint32(norm.data[8:], 0x7fc00000)
	scale := random("blk.3.attn_q.weight", gguf.Q5_0, heads*width, hidden)
	binary.LittleEndian.PutUint16(scale.data[22:], 0x7c00)

	plain := tensors(gguf.BF16)
	floats := func(list []tensor, changes map[string]any) map[string][]byte {
		c := config()
		maps.Copy(c, changes)
		return safetensors(t, list, c)
	}
	lacking := func(name string) map[string][]byte {
		files := floats(plain, nil)
		delete(files, name)
		return files
	}
	infinite := slices.Clone(plain)
	infinite[0].data = bytes.Clone(infinite[0].data)
	binary.LittleEndian.PutUint16(infinite[0].data[600:], 0x7f80)

	texts, types := pieces()
	scores := make([]float32, len(texts))
	for i := range scores {
		scores[i] = -float32(i)
	}
	// beyond adds a piece for which the embedding has no row.
	beyond := func(kind int32) []key {
		return []key{{"tokenizer.ggml.tokens", append(slices.Clone(texts), "zz")}, {"tokenizer.ggml.token_type", append(slices.Clone(types), kind)},
			{"tokenizer.ggml.scores", append(slices.Clone(scores), -1000)}}
	}
	for _, c := range []struct {
		name  string
		files map[string][]byte
		grid  string
		kind  error
		text  string
	}{
		{"nothing", nil, "", zoo.ErrNotFound, "model.safetensors"},
		{"two files", map[string][]byte{"a.gguf": nil, "b.gguf": nil}, "", zoo.ErrUsage, `"a.gguf" and "b.gguf"`},
		{"a part of a model", map[string][]byte{"a-00002-of-00003.gguf": nil}, "", zoo.ErrUsage, "part of a model"},
		{"no GGUF", map[string][]byte{"a.gguf": []byte("hello")}, "", zoo.ErrIntegrity, "GGUF"},
		{"no embedding", file(without("token_embd.weight")), "", zoo.ErrIntegrity, "vocab_size"},
		{"no query", file(without("blk.2.attn_q.weight")), "", zoo.ErrIntegrity, "blk.2.attn_q.weight"},
		{"no norm", file(without("blk.2.attn_q_norm.weight")), "", zoo.ErrIntegrity, "blk.2.attn_q_norm.weight"},
		{"a tensor too many", file(and(random("blk.2.attn_sinks.weight", gguf.F32, heads))), "", zoo.ErrIntegrity, "blk.2.attn_sinks.weight"},
		{"a layer too many", file(list, key{"gemma3.block_count", layers - 1}), "", zoo.ErrIntegrity, "blk.6."},
		{"a layer too few", file(list, key{"gemma3.block_count", layers + 1}), "", zoo.ErrIntegrity, "blk.7."},
		{"another shape", file(swap(random("blk.1.ffn_up.weight", gguf.Q5_0, hidden, ffn))), "", zoo.ErrIntegrity, "blk.1.ffn_up.weight"},
		{"a norm of another size", file(swap(random("blk.1.ffn_norm.weight", gguf.F32, hidden+1))), "", zoo.ErrIntegrity, "blk.1.ffn_norm.weight"},
		{"a quantised norm", file(swap(random("blk.1.ffn_norm.weight", gguf.Q8_0, hidden))), "", zoo.ErrIntegrity, "not a list of floats"},
		{"a number that is none", file(swap(norm)), "", zoo.ErrIntegrity, "blk.3.ffn_norm.weight"},
		{"an infinite scale", file(swap(scale)), "", zoo.ErrIntegrity, "blk.3.attn_q.weight"},
		{"a type that is not decoded", file(swap(tensor{"blk.0.attn_q.weight", 10, []int{heads * width, hidden}, make([]byte, heads*width*84)})), "", zoo.ErrUsage, "Q2_K"},
		{"a context that no program has", file(list, key{"gemma3.context_length", 1 << 25}), "", zoo.ErrIntegrity, "max_position_embeddings"},
		{"caches that no program has", map[string][]byte{"model.gguf": wideCaches()}, "", zoo.ErrIntegrity, "no program can run this model"},
		{"heads that do not share", file(list, key{"gemma3.attention.head_count_kv", 3}), "", zoo.ErrIntegrity, "num_key_value_heads"},
		{"a grid for codes", file(list), "q4_0", zoo.ErrUsage, "q4_0"},
		{"no vocabulary", file(list, key{"tokenizer.ggml.tokens", nil}), "", zoo.ErrIntegrity, "tokens"},
		{"a vocabulary of two sizes", file(list, key{"tokenizer.ggml.scores", scores[2:]}), "", zoo.ErrIntegrity, "scores"},
		{"more pieces than rows", file(swap(random("token_embd.weight", gguf.Q8_0, vocab()-1, hidden))), "", zoo.ErrIntegrity, "tokens"},
		{"a user-defined piece without a row", file(list, beyond(4)...), "", zoo.ErrIntegrity, "291 tokens"},
		{"pieces of an unknown type", file(list, key{"tokenizer.ggml.token_type", append(slices.Clone(types[1:]), 7)}), "", zoo.ErrIntegrity, "token_type"},

		{"no config.json", lacking("config.json"), "none", zoo.ErrNotFound, "config.json"},
		{"no tokenizer.json", lacking("tokenizer.json"), "none", zoo.ErrNotFound, "tokenizer.json"},
		{"no head", floats(plain, map[string]any{"tie_word_embeddings": false}), "none", zoo.ErrIntegrity, "lm_head"},
		{"another head", floats(append(slices.Clone(plain), random("output.weight", gguf.BF16, vocab(), hidden)), nil), "none", zoo.ErrIntegrity, "tie_word_embeddings"},
		{"a layer too few in config.json", floats(plain, map[string]any{"num_hidden_layers": layers - 1}), "none", zoo.ErrIntegrity, "model.layers.6."},
		{"another width", floats(plain, map[string]any{"intermediate_size": 2 * ffn}), "none", zoo.ErrIntegrity, "mlp"},
		{"a norm of another size in safetensors", floats(slices.Concat(plain[:1], []tensor{random("output_norm.weight", gguf.F32, hidden-2)}, plain[2:]), nil), "none", zoo.ErrIntegrity, "model.norm.weight"},
		{"an infinite number", floats(infinite, nil), "none", zoo.ErrIntegrity, "number 300 is +Inf"},
		{"an infinite number to round", floats(infinite, nil), "q4_0", zoo.ErrIntegrity, "number 300 is +Inf"},
		{"no such grid", floats(plain, nil), "q5_0", zoo.ErrUsage, "q5_0"},
	} {
		out, err := convert(t, folder(t, c.files), c.grid)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || zoo.Hint(err) == "" {
			t.Errorf("%s: %v (%s)", c.name, err, zoo.Hint(err))
		}
		if _, err := os.Stat(filepath.Join(out, zoo.ManifestFile)); err == nil {
			t.Errorf("%s: there is a pack", c.name)
		}
	}
}

// wideCaches returns a GGUF file whose sizes are allowed one by one, but whose caches
// together are wider than those of any program.
func wideCaches() []byte {
	const layers, width, heads, length = 33, 1, 2, 1 << 14
	list := []tensor{random("token_embd.weight", gguf.BF16, vocab(), width), random("output_norm.weight", gguf.F32, width)}
	for i := range layers {
		add := func(name string, kind gguf.Type, shape ...int) {
			list = append(list, random(fmt.Sprintf("blk.%d.%s.weight", i, name), kind, shape...))
		}
		for _, name := range []string{"attn_q", "attn_k", "attn_v"} {
			add(name, gguf.BF16, heads*length, width)
		}
		add("attn_output", gguf.BF16, width, heads*length)
		for _, name := range []string{"ffn_gate", "ffn_up", "ffn_down"} {
			add(name, gguf.BF16, 1, 1)
		}
		for _, name := range []string{"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"} {
			add(name, gguf.F32, width)
		}
		add("attn_q_norm", gguf.F32, length)
		add("attn_k_norm", gguf.F32, length)
	}
	return encode(with(keys(), key{"gemma3.block_count", layers}, key{"gemma3.embedding_length", width}, key{"gemma3.feed_forward_length", 1},
		key{"gemma3.attention.head_count", heads}, key{"gemma3.attention.head_count_kv", heads},
		key{"gemma3.attention.key_length", length}, key{"gemma3.attention.value_length", length}), list)
}

// TestTemplate converts safetensors with a chat template in a file of its own, in
// tokenizer_config.json, in both or in neither.
func TestTemplate(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long under the race detector, and nothing in it is concurrent")
	}
	for name, c := range map[string]struct{ field, file, want string }{
		"none":          {"", "", ""},
		"a file":        {"", "{{ bos_token }}", "{{ bos_token }}"},
		"a field":       {`"{{ \"\u00e4\" }}"`, "", `{{ "ä" }}`},
		"both":          {`["x"]`, "{{ bos_token }}", "{{ bos_token }}"},
		"an empty text": {`""`, "", ""},
		"null":          {"null", "", ""},
		"a list":        {`[{"name":"default","template":"x"}]`, "", "refused"},
	} {
		files := safetensors(t, tensors(gguf.BF16), config())
		if c.field != "" {
			files["tokenizer_config.json"] = []byte(`{"bos_token":"<bos>","eos_token":"<eos>","chat_template":` + c.field + `}`)
		}
		if c.file != "" {
			files["chat_template.jinja"] = []byte(c.file)
		}
		dir := folder(t, files)
		if c.want == "refused" {
			if _, err := convert(t, dir, "none"); !errors.Is(err, zoo.ErrUsage) || !strings.Contains(err.Error(), "chat_template") || zoo.Hint(err) == "" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		got, err := converted(t, dir, "none").File(zoo.TemplateFile)
		if string(got) != c.want || c.want == "" && !errors.Is(err, zoo.ErrNotFound) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}

// TestSources leaves out one of the sources.
func TestSources(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string][]byte{"model.gguf": {"model.gguf": encode(keys(), tensors(gguf.Q8_0))}, "config.json": safetensors(t, tensors(gguf.BF16), config())} {
		dir := folder(t, files)
		given := slices.DeleteFunc(sources(t, dir), func(f catalog.File) bool { return f.Path == name })
		_, err := gemma3.New().Convert(t.Context(), zoo.ConvertRequest{Checkpoint: dir, Sources: given, Dir: t.TempDir()})
		if !errors.Is(err, zoo.ErrUsage) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFetch(t *testing.T) {
	t.Parallel()
	list := func(names ...string) (files []catalog.File) {
		for _, name := range names {
			files = append(files, catalog.File{Path: name})
		}
		return files
	}
	small := list("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json")
	template := catalog.File{Path: "chat_template.jinja", Optional: true}
	for _, c := range []struct {
		name   string
		listed []catalog.File
		want   []catalog.File
	}{
		{"a GGUF file", []catalog.File{{Path: "README.md"}, {Path: "x.gguf", SizeBytes: 5}}, []catalog.File{{Path: "x.gguf", SizeBytes: 5}}},
		{"the only part", list("x-00001-of-00001.gguf"), list("x-00001-of-00001.gguf")},
		{"both", list("x.gguf", "a/x-00001-of-00002.gguf", "model.safetensors"), append(slices.Clone(small), template, catalog.File{Path: "model.safetensors"})},
		{"with a template", list("chat_template.jinja", "model.safetensors"), append(slices.Clone(small), list("chat_template.jinja", "model.safetensors")...)},
		{"nothing listed", nil, append(slices.Clone(small), template, catalog.File{Path: checkpoint.WeightsFile, Optional: true}, catalog.File{Path: checkpoint.IndexFile, Optional: true})},
	} {
		got, err := gemma3.New().Fetch(t.Context(), zoo.FetchRequest{Release: catalog.Release{Source: catalog.Source{Files: c.listed}}})
		if diff := cmp.Diff(c.want, got.Files); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, diff)
		}
	}
	for _, c := range []struct {
		listed []catalog.File
		text   string
		hint   string
	}{
		{list("a.gguf", "b.gguf"), `"a.gguf" and "b.gguf"`, "release"},
		{list("mmproj-x.gguf", "x.gguf"), "several", "mmproj"},
		{list("a/x.gguf"), `"a/x.gguf"`, "top of its repository"},
		{list("a/y.gguf", "x.gguf"), `"a/y.gguf"`, "top of its repository"},
		{list("x-00001-of-00002.gguf", "x-00002-of-00002.gguf"), `"x-00001-of-00002.gguf"`, "llama-gguf-split"},
		{list("a/x-00001-of-00002.gguf"), "part of a model", "llama-gguf-split"},
	} {
		_, err := gemma3.New().Fetch(t.Context(), zoo.FetchRequest{Release: catalog.Release{Source: catalog.Source{Files: c.listed}}})
		if !errors.Is(err, zoo.ErrUsage) || !strings.Contains(err.Error(), c.text) || !strings.Contains(zoo.Hint(err), c.hint) {
			t.Errorf("%v: %v (%s)", c.listed, err, zoo.Hint(err))
		}
	}
}
