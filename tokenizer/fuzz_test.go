package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/tokenizer"
)

// smallSource returns a tokenizer.json with the byte pieces, a few letters and
// the given merges.
func smallSource(t testing.TB, merges ...string) []byte {
	t.Helper()
	return edited(t, "mixed", func(f, m object) {
		vocab, n := object{"<eos>": 0, "<unk>": 1, "a": 2, "b": 3, "▁": 4}, 5
		for b := range 256 {
			vocab[fmt.Sprintf("<0x%02X>", b)] = n
			n++
		}
		for _, line := range merges {
			piece := strings.ReplaceAll(line, " ", "")
			if _, ok := vocab[piece]; !ok {
				vocab[piece] = n
				n++
			}
		}
		m["vocab"], m["merges"] = vocab, append([]string{}, merges...)
		f["added_tokens"] = f["added_tokens"].([]any)[1:2]
		f["added_tokens"].([]any)[0].(object)["id"] = 0
	})
}

func FuzzCompile(f *testing.F) {
	f.Add(smallSource(f))
	f.Add(smallSource(f, "a b", "ab a", "▁ a"))
	f.Add([]byte(`{"version": "1.0", "model": {"vocab": {"a": 1e9}, "merges": [["a"]]}}`))
	f.Add([]byte(`{"added_tokens": [{"id": 0, "content": "\ud800"}]}`))
	f.Add(readSource(f, "mixed"))
	f.Fuzz(func(t *testing.T, src []byte) {
		compiled, err := tokenizer.Compile(src)
		if err != nil {
			if !errors.Is(err, fault.ErrIntegrity) {
				t.Fatalf("error %v, want fault.ErrIntegrity", err)
			}
			return
		}
		again, err := tokenizer.Compile(src)
		if err != nil || !bytes.Equal(compiled, again) {
			t.Fatalf("a second run differs: %v", err)
		}
		exercise(t, compiled)
		if !json.Valid(src) {
			t.Fatal("compiled what is not JSON")
		}
		tok, ref := open(t, compiled), newReference(t, src)
		for _, text := range []string{"", "abaab ab<eos>", " a  b\n\n\t漢<0x41>", string(src[:min(len(src), 200)])} {
			if !utf8.ValidString(text) {
				continue
			}
			compareEncoders(t, tok, ref, text)
		}
	})
}

// compareEncoders holds Encode against the second encoder.
func compareEncoders(t *testing.T, tok *tokenizer.Tokenizer, ref *reference, text string) {
	t.Helper()
	for _, markers := range []tokenizer.Markers{tokenizer.MarkersAreText, tokenizer.MarkersAreTokens} {
		want := ref.encode(text, markers == tokenizer.MarkersAreTokens)
		if diff := cmp.Diff(want, tok.Encode(nil, text, markers), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("Encode(%q, %d) (-want +got):\n%s", text, markers, diff)
		}
	}
}

func FuzzOpen(f *testing.F) {
	for _, src := range [][]byte{smallSource(f), smallSource(f, "a b", "ab a"), readSource(f, "mixed")} {
		f.Add(compile(f, src))
	}
	f.Add([]byte("ZOOBPE\r\n"))
	f.Fuzz(func(t *testing.T, compiled []byte) { exercise(t, compiled) })
}

func FuzzEncode(f *testing.F) {
	for _, text := range []string{"", "Hello, world!", "<eos>s<|turn>", "ab abc <b><br>", " ▁ \n\n\n\t", "漢字🙂\u200d", "a\xff\xe2\x82b", strings.Repeat("ab", 40)} {
		f.Add(text, uint8(len(text)/2))
	}
	toks := []*tokenizer.Tokenizer{load(f, "demo"), load(f, "mixed")}
	refs := []*reference{newReference(f, readSource(f, "demo")), newReference(f, readSource(f, "mixed"))}
	f.Fuzz(func(t *testing.T, text string, cut uint8) {
		if len(text) > 400 {
			return // the second encoder is quadratic
		}
		for i, tok := range toks {
			for _, markers := range []tokenizer.Markers{tokenizer.MarkersAreText, tokenizer.MarkersAreTokens} {
				checkRoundTrip(t, tok, text, markers)
			}
			if utf8.ValidString(text) {
				compareEncoders(t, tok, refs[i], text)
				checkPlain(t, tok, text, tok.Encode(nil, text, tokenizer.MarkersAreText))
			}
			at := min(int(cut), len(text))
			mixed := tok.EncodeParts(nil, []tokenizer.Part{{Text: text[:at], Markers: tokenizer.MarkersAreTokens}, {Text: text[at:]}})
			for _, id := range mixed {
				if tok.IsMarker(id) && !strings.Contains(text[:at], tok.Piece(id)) {
					t.Fatalf("%q and %q give the marker %q", text[:at], text[at:], tok.Piece(id))
				}
			}
		}
	})
}

// checkRoundTrip checks that ids decode to the text that was encoded, at once
// and as a stream, without half a character in between.
func checkRoundTrip(t *testing.T, tok *tokenizer.Tokenizer, text string, markers tokenizer.Markers) {
	t.Helper()
	ids := tok.Encode(nil, text, markers)
	decoded := tok.Decode(ids)
	if want := decodedForm(text); utf8.ValidString(text) && decoded != want {
		t.Fatalf("Encode(%q, %d) = %v comes back as %q, want %q", text, markers, ids, decoded, want)
	}
	// Bytes that are no character come back as U+FFFD, what is around them as it was.
	if got, want := strings.ReplaceAll(decoded, "\ufffd", ""), decodedForm(strings.ToValidUTF8(text, "")); got != strings.ReplaceAll(want, "\ufffd", "") {
		t.Fatalf("Encode(%q, %d) = %v comes back as %q", text, markers, ids, decoded)
	}
	pieces, rest := streamOf(tok, ids)
	if got := strings.Join(pieces, "") + rest; got != decoded {
		t.Fatalf("stream of %v = %q, want %q", ids, got, decoded)
	}
	if !slices.ContainsFunc(append(pieces, rest), func(s string) bool { return !utf8.ValidString(s) }) {
		return
	}
	t.Fatalf("stream of %v = %q, cuts a character", ids, pieces)
}
