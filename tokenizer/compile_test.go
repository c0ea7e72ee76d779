package tokenizer_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/tokenizer"
)

// object is a JSON object that a test alters.
type object = map[string]any

// edited returns the tokenizer.json of a name in testdata after an edit.
func edited(t testing.TB, name string, edit func(file, model object)) []byte {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(readSource(t, name)))
	dec.UseNumber()
	var file object
	if err := dec.Decode(&file); err != nil {
		t.Fatal(err)
	}
	edit(file, file["model"].(object))
	b, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCompileReproducible pins the compiled bytes, which are part of a pack's
// digest: whoever changes them raises the format's version.
func TestCompileReproducible(t *testing.T) {
	want := map[string]string{
		"demo":  "68c028377ca2c43847c35c3d0c789b4f36ec0a5a8294c95e78f9d95b4ccf3953",
		"mixed": "fdacb38098a82bbe383d19e9549f67e22dcfa1e186e4c30f815310c9fa965e1a",
	}
	for name, digest := range want {
		src := readSource(t, name)
		first, second := compile(t, src), compile(t, src)
		if !bytes.Equal(first, second) {
			t.Errorf("%s: two runs differ", name)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(first)); got != digest {
			t.Errorf("%s: digest %s, want %s", name, got, digest)
		}
	}
}

// TestCompileAccepts lists files that mean the same.
func TestCompileAccepts(t *testing.T) {
	tests := []struct {
		name string
		edit func(file, model object)
	}{
		{"unchanged", func(_, _ object) {}},
		{"no pre-tokenizer", func(f, _ object) { f["pre_tokenizer"] = nil }},
		{"no post-processor", func(f, _ object) { delete(f, "post_processor") }},
		{"template post-processor", func(f, _ object) { f["post_processor"] = object{"type": "TemplateProcessing", "single": []any{}} }},
		{"empty affixes", func(_, m object) { m["continuing_subword_prefix"], m["end_of_word_suffix"] = "", "" }},
		{"fuse_unk false", func(_, m object) { m["fuse_unk"] = false }},
		{"no unknown token", func(_, m object) { m["unk_token"] = nil }},
		{"no ignore_merges", func(_, m object) { delete(m, "ignore_merges") }},
		{"merges as pairs", func(_, m object) {
			for i, line := range m["merges"].([]any) {
				m["merges"].([]any)[i] = strings.Split(line.(string), " ")
			}
		}},
		{"version line in the merges", func(_, m object) { m["merges"] = append([]any{"#version: 0.2"}, m["merges"].([]any)...) }},
	}
	want := compile(t, readSource(t, "mixed"))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := compile(t, edited(t, "mixed", tt.edit)); !bytes.Equal(got, want) {
				t.Error("compiles to other bytes")
			}
		})
	}
}

func TestCompileRejects(t *testing.T) {
	set := func(key string, v any) func(file, model object) {
		return func(f, _ object) { f[key] = v }
	}
	setModel := func(key string, v any) func(file, model object) {
		return func(_, m object) { m[key] = v }
	}
	drop := func(key string) func(file, model object) { return func(f, _ object) { delete(f, key) } }
	dropModel := func(key string) func(file, model object) { return func(_, m object) { delete(m, key) } }
	setAdded := func(key string, v any) func(file, model object) {
		return func(f, _ object) { f["added_tokens"].([]any)[6].(object)[key] = v }
	}
	piece := func(piece string, id any) func(file, model object) {
		return func(_, m object) { m["vocab"].(object)[piece] = id }
	}
	merge := func(rule any) func(file, model object) {
		return func(_, m object) { m["merges"] = append(m["merges"].([]any), rule) }
	}
	tests := []struct {
		name string
		edit func(file, model object)
		part string // that the error names
	}{
		{"version", set("version", "2.0"), "version"},
		{"no version", drop("version"), "version"},
		{"truncation", set("truncation", object{"max_length": 5}), "truncation"},
		{"padding", set("padding", object{}), "padding"},
		{"unknown field", set("extra", nil), "extra"},
		{"no normalizer", set("normalizer", nil), "normalizer"},
		{"missing normalizer", drop("normalizer"), "normalizer"},
		{"other normalizer", set("normalizer", object{"type": "NFC"}), "normalizer"},
		{"prepending normalizer", set("normalizer", object{"type": "Sequence", "normalizers": []any{object{"type": "Prepend", "prepend": "▁"}}}), "normalizer"},
		{"normalizer with an option", func(f, _ object) { f["normalizer"].(object)["extra"] = true }, "normalizer"},
		{"other pre-tokenizer", set("pre_tokenizer", object{"type": "ByteLevel"}), "pre_tokenizer"},
		{"inverted pre-tokenizer", func(f, _ object) { f["pre_tokenizer"].(object)["invert"] = true }, "pre_tokenizer"},
		{"other split", func(f, _ object) { f["pre_tokenizer"].(object)["pattern"] = object{"Regex": "\\d"} }, "pre_tokenizer"},
		{"other post-processor", set("post_processor", object{"type": "ByteLevel"}), "post_processor"},
		{"other decoder", set("decoder", object{"type": "ByteLevel"}), "decoder"},
		{"decoder that strips", func(f, _ object) {
			d := f["decoder"].(object)
			d["decoders"] = append(d["decoders"].([]any), object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
		}, "decoder"},
		{"model is a list", set("model", []any{}), "model"},
		{"other model", setModel("type", "Unigram"), "model.type"},
		{"no model type", dropModel("type"), "type"},
		{"unknown model field", setModel("extra", 1), "model.extra"},
		{"dropout", setModel("dropout", 0.1), "model.dropout"},
		{"prefix", setModel("continuing_subword_prefix", "##"), "model.continuing_subword_prefix"},
		{"suffix", setModel("end_of_word_suffix", "</w>"), "model.end_of_word_suffix"},
		{"ignore_merges", setModel("ignore_merges", true), "model.ignore_merges"},
		{"no byte fallback", setModel("byte_fallback", false), "model.byte_fallback"},
		{"missing byte fallback", dropModel("byte_fallback"), "byte_fallback"},
		{"fuse_unk is a number", setModel("fuse_unk", 1), "model.fuse_unk"},
		{"unknown token not in vocabulary", setModel("unk_token", "<nope>"), "model.unk_token"},
		{"unknown token is a number", setModel("unk_token", 3), "model.unk_token"},
		{"no vocabulary", dropModel("vocab"), "vocab"},
		{"vocabulary is a list", setModel("vocab", []any{}), "model.vocab"},
		{"empty vocabulary", func(_, m object) { m["vocab"], m["merges"], m["unk_token"] = object{}, []any{}, nil }, "model.vocab"},
		{"id negative", piece("new", -1), "model.vocab"},
		{"id fractional", piece("new", 1.5), "model.vocab"},
		{"id a text", piece("new", "7"), "model.vocab"},
		{"id absurd", piece("new", int64(1)<<40), "model.vocab"},
		{"id above the limit", piece("new", 1<<21-1), "model.vocab"},
		{"id far above the others", piece("z", 1<<20), "too large"},
		{"id shared", piece("z", 30), "share the id 30"},
		{"id of an added token", piece("z", 0), "share the id 0"},
		{"empty piece", piece("", 5), "model.vocab"},
		{"piece too long", piece(strings.Repeat("x", 513), 5), "model.vocab"},
		{"piece that mixes spaces", piece("a ▁", 5), "model.vocab"},
		{"byte piece missing", func(_, m object) { delete(m["vocab"].(object), "<0x80>") }, "<0x80>"},
		{"space missing", func(_, m object) {
			delete(m["vocab"].(object), "▁")
			m["merges"] = []any{}
		}, "▁"},
		{"no merges", dropModel("merges"), "merges"},
		{"merges is an object", setModel("merges", object{}), "model.merges"},
		{"merge of one", merge("ab"), "is not a pair"},
		{"merge of three", merge("a b c"), "is not a pair"},
		{"merge is a number", merge(7), "is not a pair"},
		{"merges of both kinds", merge([]any{"a", "b"}), "mixed"},
		{"merge pair of three", func(_, m object) { m["merges"] = []any{[]any{"a", "b", "c"}} }, "model.merges[0]"},
		{"merge left not in vocabulary", merge("zz a"), "zz"},
		{"merge right not in vocabulary", merge("a zz"), "zz"},
		{"merge result not in vocabulary", merge("a z"), "az"},
		{"merge result only an added token", merge("<ext ra>"), "not in the vocabulary"},
		{"merge of a byte piece", func(_, m object) {
			m["vocab"].(object)["<0x41>a"] = json.Number("9999")
			m["merges"] = append(m["merges"].([]any), "<0x41> a")
		}, "byte piece"},
		{"added tokens missing", drop("added_tokens"), "added_tokens"},
		{"added token is a text", func(f, _ object) { f["added_tokens"] = []any{"<x>"} }, "added_tokens[0]"},
		{"added token lstrip", setAdded("lstrip", true), "lstrip"},
		{"added token rstrip", setAdded("rstrip", true), "rstrip"},
		{"added token single_word", setAdded("single_word", true), "single_word"},
		{"added token normalized", setAdded("normalized", true), "normalized"},
		{"added token without normalized", func(f, _ object) { delete(f["added_tokens"].([]any)[6].(object), "normalized") }, "normalized"},
		{"added token without special", setAdded("special", nil), "special"},
		{"added token empty", setAdded("content", ""), "added_tokens[6]"},
		{"added token not a text", setAdded("content", 5), "added_tokens[6]"},
		{"added token too long", setAdded("content", strings.Repeat("x", 513)), "added_tokens[6]"},
		{"added token that mixes spaces", setAdded("content", " ▁"), "added_tokens[6]"},
		{"added token with another id than its piece", setAdded("id", 7), "added_tokens[6]"},
		{"added token with a negative id", setAdded("id", -7), "added_tokens[6]"},
		{"added token twice", func(f, _ object) { f["added_tokens"] = append(f["added_tokens"].([]any), f["added_tokens"].([]any)[0]) }, "given twice"},
		{"added token outside the vocabulary with a free id", func(f, _ object) {
			a := f["added_tokens"].([]any)
			a[len(a)-1].(object)["id"] = 5000
		}, "want"},
		{"added token that is a byte piece", func(f, m object) {
			a := f["added_tokens"].([]any)
			f["added_tokens"] = append(a, object{"id": m["vocab"].(object)["<0x41>"], "content": "<0x41>", "single_word": false,
				"lstrip": false, "rstrip": false, "normalized": false, "special": false})
		}, "byte piece"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkSourceError(t, edited(t, "mixed", tt.edit), tt.part)
		})
	}
}

// checkSourceError checks that src is refused with an error that has part in it.
func checkSourceError(t *testing.T, src []byte, part string) {
	t.Helper()
	got, err := tokenizer.Compile(src)
	if !errors.Is(err, fault.ErrIntegrity) || got != nil {
		t.Fatalf("Compile = %d bytes, %v, want fault.ErrIntegrity", len(got), err)
	}
	if !strings.Contains(err.Error(), part) || len(err.Error()) > 1000 {
		t.Errorf("error %q, want one about %q", err, part)
	}
	if fault.Hint(err) == "" {
		t.Errorf("error %q has no hint", err)
	}
}

// TestCompileRejectsText covers what cannot be made by editing values.
func TestCompileRejectsText(t *testing.T) {
	src := string(readSource(t, "mixed"))
	replace := func(old, new string) string {
		if strings.Count(src, old) == 0 {
			t.Fatalf("%q is not in the file", old)
		}
		return strings.Replace(src, old, new, 1)
	}
	tests := []struct{ name, src, part string }{
		{"empty", "", ""},
		{"space", " \n", ""},
		{"null", "null", ""},
		{"list", "[]", ""},
		{"number", "1", ""},
		{"empty object", "{}", "missing"},
		{"not JSON", "tokenizer", ""},
		{"not UTF-8", replace(`"漢"`, "\"\xff\""), "UTF-8"},
		{"trailing data", src + "{}", "more data"},
		{"key twice", replace(`"truncation": null`, `"truncation": null, "truncation": null`), "twice"},
		{"model key twice", replace(`"dropout": null`, `"dropout": null, "dropout": null`), "twice"},
		{"piece twice", replace(`"<unk>": 3`, `"<unk>": 3, "<unk>": 3`), "twice"},
		{"key in another case", replace(`"version"`, `"Version"`), "unknown field"},
		{"high surrogate alone", replace(`"漢"`, `"\ud83d"`), "surrogate"},
		{"low surrogate alone", replace(`"漢"`, `"\ude42"`), "surrogate"},
		{"surrogates in the wrong order", replace(`"漢"`, `"\ude42\ud83d"`), "surrogate"},
		{"surrogate before another escape", replace(`"漢"`, `"\ud83d\u0041"`), "surrogate"},
		{"surrogate at the end of the file", `{"\ud83d`, "surrogate"},
		{"backslash at the end of the file", `{"a\`, ""},
		{"deep nesting", `{"post_processor":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "}", ""},
		{"long value", replace(`"post_processor": null`, `"post_processor": "`+strings.Repeat("é", 5000)+`"`), "…"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { checkSourceError(t, []byte(tt.src), tt.part) })
	}
	for n := 0; n < len(src)-2; n += 97 { // cut anywhere but behind the last brace
		if _, err := tokenizer.Compile([]byte(src[:n])); !errors.Is(err, fault.ErrIntegrity) {
			t.Fatalf("the first %d bytes: error %v, want fault.ErrIntegrity", n, err)
		}
	}
	// A pair of halves is a character; escaped backslashes are no escapes.
	for _, same := range []string{replace(`"🙂"`, `"\ud83d\ude42"`), replace(`"漢"`, `"\u6f22"`)} {
		if !bytes.Equal(compile(t, []byte(same)), compile(t, []byte(src))) {
			t.Error("an escaped character compiles to other bytes")
		}
	}
	if _, err := tokenizer.Compile([]byte(replace(`"truncation"`, `"\\ud83d"`))); !strings.Contains(fmt.Sprint(err), "unknown field") {
		t.Errorf("escaped backslash: error %v, want one about an unknown field", err)
	}
}

// TestCompileGaps has ids that are not in use.
func TestCompileGaps(t *testing.T) {
	tok := open(t, compile(t, edited(t, "mixed", func(f, m object) {
		m["vocab"].(object)["z"] = 2000
		for i, a := range f["added_tokens"].([]any)[21:] {
			a.(object)["id"] = []int{len(m["vocab"].(object)), len(m["vocab"].(object)) + 1, len(m["vocab"].(object)) + 2}[i]
		}
	})))
	if got := tok.VocabSize(); got != 2001 {
		t.Errorf("VocabSize() = %d, want 2001", got)
	}
	if got := tok.Encode(nil, "z", tokenizer.MarkersAreText); len(got) != 1 || got[0] != 2000 {
		t.Errorf("Encode(z) = %v, want 2000", got)
	}
	if got := tok.Piece(1000); got != "" {
		t.Errorf("Piece(1000) = %q, want nothing", got)
	}
	if got := tok.Decode([]int32{1000, 2000, 1000}); got != "z" {
		t.Errorf("Decode = %q, want z", got)
	}
}
