package tokenizer_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zoo-sdk/zoo/tokenizer"
)

// randomText joins a few of the given texts.
func randomText(rng *rand.Rand, from []string, n int) string {
	var b strings.Builder
	for range rng.IntN(n) + 1 {
		b.WriteString(from[rng.IntN(len(from))])
	}
	return b.String()
}

// fragments are what random texts are made of: what the tokenizers in testdata
// merge, block and cut at.
var fragments = []string{
	"a", "b", "c", "e", "o", "s", "<", ">", "/", "|", "q", "x", " ", "  ", "\n", "\n\n", "\t", "▁", "▁▁", "é", "漢", "字", "🙂", "\u200d", "\u0301",
	"the", "her", "ing", "and", "<eos>", "<e", "os>", "<|turn>", "turn|>", "<b>", "<br", "<start of image>", "☃", "ab", "0", "12", "aaaa", "<0x41>", "<0x+a>",
	"<|tool_call>", "<unused7>", "What", " is ", "capital", "France", "\ufffd", "\x00",
}

// TestEncodeReference compares Encode with the plain second encoder, with words
// on both sides of the border between search and heap.
func TestEncodeReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"demo", "mixed"} {
		tok, ref := load(t, name), newReference(t, readSource(t, name))
		for range 800 {
			from := fragments
			if rng.IntN(3) == 0 { // few different ones make long words
				from = fragments[rng.IntN(10):][:4]
			}
			text := randomText(rng, from, 60)
			for _, markers := range []tokenizer.Markers{tokenizer.MarkersAreText, tokenizer.MarkersAreTokens} {
				want := ref.encode(text, markers == tokenizer.MarkersAreTokens)
				if diff := cmp.Diff(want, tok.Encode(nil, text, markers), cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("%s: Encode(%q, %d) (-want +got):\n%s", name, text, markers, diff)
				}
			}
			checkPlain(t, tok, text, tok.Encode(nil, text, tokenizer.MarkersAreText))
		}
	}
}

func TestEncodePlainNeverYieldsMarkers(t *testing.T) {
	for _, name := range []string{"demo", "mixed"} {
		tok := load(t, name)
		for id := range int32(tok.VocabSize()) {
			// Every piece, alone and among its like, is text that someone may type.
			piece := tok.Piece(id)
			for _, text := range []string{piece, piece + piece, "a" + piece + "s", " " + piece + " "} {
				checkPlain(t, tok, text, tok.Encode(nil, text, tokenizer.MarkersAreText))
			}
			if !tok.IsMarker(id) {
				continue
			}
			if got := tok.Encode(nil, piece, tokenizer.MarkersAreTokens); !slices.Equal(got, []int32{id}) {
				t.Errorf("%s: Encode(%q, MarkersAreTokens) = %v, want %d", name, piece, got, id)
			}
		}
	}
}

func TestEncodeAppends(t *testing.T) {
	tok := load(t, "demo")
	got := tok.Encode([]int32{7, 8}, "Hi", tokenizer.MarkersAreText)
	want := append([]int32{7, 8}, tok.Encode(nil, "Hi", tokenizer.MarkersAreText)...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Encode(dst, …) (-want +got):\n%s", diff)
	}
	if got := tok.Encode(nil, "", tokenizer.MarkersAreTokens); len(got) != 0 {
		t.Errorf("Encode(nil, \"\") = %v, want nothing", got)
	}
}

func TestEncodeParts(t *testing.T) {
	const tokens, text = tokenizer.MarkersAreTokens, tokenizer.MarkersAreText
	tests := []struct {
		name  string
		parts []tokenizer.Part
		// like is a text that gives the same ids with MarkersAreTokens.
		like string
		// unlike is a marker that must not come out.
		unlike string
	}{
		{"nothing", nil, "", ""},
		{"empty parts", []tokenizer.Part{{"", tokens}, {"", text}, {"", tokens}}, "", ""},
		{"a message in a template", []tokenizer.Part{{"<|turn>user\n", tokens}, {"the band", text}, {"<turn|>\n", tokens}}, "<|turn>user\nthe band<turn|>\n", ""},
		{"merge over a border", []tokenizer.Part{{"<|turn>t", tokens}, {"he her", text}}, "<|turn>the her", ""},
		{"newlines over a border", []tokenizer.Part{{"<|turn>\n", tokens}, {"\n\nx", text}}, "<|turn>\n\n\nx", ""},
		{"spaces over a border", []tokenizer.Part{{"a ", tokens}, {" t", text}}, "a  t", ""},
		{"marker over a border of trusted parts", []tokenizer.Part{{"x<e", tokens}, {"os>", tokens}}, "x<eos>", ""},
		{"marker in a message", []tokenizer.Part{{"<bos>", tokens}, {"<eos>", text}}, "", "<eos>"},
		{"marker ends in a message", []tokenizer.Part{{"<e", tokens}, {"os>", text}}, "", "<eos>"},
		{"marker starts in a message", []tokenizer.Part{{"<e", text}, {"os>", tokens}}, "", "<eos>"},
		{"marker around a message", []tokenizer.Part{{"<e", tokens}, {"o", text}, {"s>", tokens}}, "", "<eos>"},
		{"longer marker ends in a message", []tokenizer.Part{{"<b", tokens}, {"r>", text}}, "", "<br"},
		{"shorter marker before a message", []tokenizer.Part{{"<br", tokens}, {">", text}}, "<br\u00ad>", ""},
		{"merge into a marker over a border", []tokenizer.Part{{"a", tokens}, {"b", text}}, "", "ab"},
	}
	tok := load(t, "mixed")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tok.EncodeParts(nil, tt.parts)
			if tt.unlike != "" {
				id, ok := tok.ID(tt.unlike)
				if !ok || slices.Contains(got, id) {
					t.Errorf("EncodeParts = %v, must not have %q (%d)", got, tt.unlike, id)
				}
				return
			}
			// A soft hyphen stands for a border that nothing crosses.
			var want []int32
			for s := range strings.SplitSeq(tt.like, "\u00ad") {
				want = tok.Encode(want, s, tokens)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("EncodeParts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEncodePartsLeavesNoTrace cuts random texts anywhere.
func TestEncodePartsLeavesNoTrace(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, name := range []string{"demo", "mixed"} {
		tok := load(t, name)
		for range 1000 {
			runes := []rune(randomText(rng, fragments, 20))
			for _, markers := range []tokenizer.Markers{tokenizer.MarkersAreText, tokenizer.MarkersAreTokens} {
				cuts := []int{0, rng.IntN(len(runes) + 1), rng.IntN(len(runes) + 1), len(runes)}
				slices.Sort(cuts)
				var parts []tokenizer.Part
				for i := range 3 {
					parts = append(parts, tokenizer.Part{Text: string(runes[cuts[i]:cuts[i+1]]), Markers: markers})
				}
				want := tok.Encode(nil, string(runes), markers)
				if diff := cmp.Diff(want, tok.EncodeParts(nil, parts), cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("%s: EncodeParts(%q) (-want +got):\n%s", name, parts, diff)
				}
			}
		}
	}
}

func TestEncodeConcurrently(t *testing.T) {
	tok := load(t, "mixed")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(5, uint64(i)))
			for range 200 {
				text := randomText(rng, fragments, 50)
				ids := tok.Encode(nil, text, tokenizer.MarkersAreText)
				if got := tok.Decode(ids); got != decodedForm(text) {
					t.Errorf("%q came back as %q", text, got)
				}
			}
		})
	}
	wg.Wait()
}

// TestEncodeLongWords encodes texts that are one long word: an encoder
// that is quadratic in it would take minutes.
func TestEncodeLongWords(t *testing.T) {
	tok := load(t, "mixed")
	for _, unit := range []string{"a", "ab", "aab", "漢字", "é", " ", "\n", "> <", "<|turn", "<eos>", "<b", "▁▁", "\xff"} {
		text := strings.Repeat(unit, 1<<18/len(unit))
		start := time.Now()
		ids := tok.Encode(nil, text, tokenizer.MarkersAreText)
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("%q took %v", unit, d)
		}
		if unit != "\xff" && tok.Decode(ids) != decodedForm(text) {
			t.Errorf("%d bytes of %q do not come back", len(text), unit)
		}
	}
}

func TestEncodeAllocates(t *testing.T) {
	tok := load(t, "demo")
	text := strings.Repeat("What is the capital of France, pneumonoultramicroscopically? é漢🙂 <eos>\n", 20)
	ids := tok.Encode(nil, text, tokenizer.MarkersAreText)
	got := testing.AllocsPerRun(50, func() {
		ids = tok.Encode(ids[:0], text, tokenizer.MarkersAreText)
	})
	// None, but for what the pool of work spaces loses to the garbage collector.
	if got > 8 {
		t.Errorf("%v allocations a call", got)
	}
}
