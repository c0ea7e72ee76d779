package tokenizer_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/tokenizer"
)

// exercise puts bytes that may be anything to use: Open says no with the right
// error, or all methods do their work and keep to the ids.
func exercise(t testing.TB, compiled []byte) {
	t.Helper()
	tok, err := tokenizer.Open(compiled)
	if err != nil {
		if !errors.Is(err, fault.ErrIntegrity) || fault.Hint(err) == "" {
			t.Fatalf("Open: %v, want fault.ErrIntegrity with a hint", err)
		}
		return
	}
	const text = "<bos><|turn>user\n\n the her band abc <eos>s漢字🙂\u200d <b><br> > <\t☃ What is the capital?"
	for _, markers := range []tokenizer.Markers{tokenizer.MarkersAreText, tokenizer.MarkersAreTokens} {
		ids := tok.Encode(nil, text+strings.Repeat("a", 60), markers)
		for _, id := range ids {
			if id < 0 || int(id) >= tok.VocabSize() {
				t.Fatalf("Encode gives the id %d of %d", id, tok.VocabSize())
			}
			if markers == tokenizer.MarkersAreText && tok.IsMarker(id) {
				t.Fatalf("Encode gives the marker %d", id)
			}
		}
		tok.Decode(ids)
	}
	stream := tok.Stream()
	for id := int32(-1); int(id) <= tok.VocabSize() && id < 3000; id++ {
		stream.Push(id)
		tok.ID(tok.Piece(id))
		tok.IsSpecial(id)
	}
	stream.Flush()
	tok.SpecialTokens()
}

func TestOpenTruncated(t *testing.T) {
	compiled := compile(t, readSource(t, "mixed"))
	for n := range len(compiled) {
		if _, err := tokenizer.Open(compiled[:n:n]); !errors.Is(err, fault.ErrIntegrity) {
			t.Fatalf("the first %d of %d bytes: error %v, want fault.ErrIntegrity", n, len(compiled), err)
		}
	}
	if _, err := tokenizer.Open(append(slices.Clone(compiled), 0)); !errors.Is(err, fault.ErrIntegrity) {
		t.Errorf("one byte more: error %v, want fault.ErrIntegrity", err)
	}
}

// TestOpenHeader alters each word of the header in ways that mean trouble.
func TestOpenHeader(t *testing.T) {
	compiled := compile(t, readSource(t, "mixed"))
	const headerBytes = 8 + 4 + 4 + 8*4 + 10*16
	refused := 0
	for at := 0; at < headerBytes; at += 4 {
		was := binary.LittleEndian.Uint32(compiled[at:])
		for _, v := range []uint32{0, 1, was - 1, was + 1, was + 64, was * 2, 1 << 21, 1 << 31, 1<<32 - 1} {
			if v == was {
				continue
			}
			b := slices.Clone(compiled)
			binary.LittleEndian.PutUint32(b[at:], v)
			if _, err := tokenizer.Open(b); err != nil {
				refused++
			}
			exercise(t, b)
		}
	}
	// Two counts are free within their limits: that of blocked merges and that of
	// the longest piece.
	if refused < 400 {
		t.Errorf("only %d of about 490 altered headers are refused", refused)
	}
	for name, alter := range map[string]func(b []byte){
		"magic":   func(b []byte) { b[0] = 'Z' + 1 },
		"version": func(b []byte) { b[8]++ },
		"section": func(b []byte) { b[12]++ },
	} {
		b := slices.Clone(compiled)
		alter(b)
		if _, err := tokenizer.Open(b); err == nil {
			t.Errorf("Open took another %s", name)
		}
	}
}

// TestOpenAltered alters bytes all over, one at a time and many at once.
func TestOpenAltered(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector, and nothing in it is concurrent")
	}
	compiled := compile(t, readSource(t, "mixed"))
	b := slices.Clone(compiled)
	for at := range b {
		for _, v := range []byte{b[at] ^ 1, b[at] ^ 8, b[at] ^ 0x80, 0xff} {
			b[at], v = v, b[at]
			exercise(t, b)
			b[at] = v
		}
	}
	rng := rand.New(rand.NewPCG(6, 7))
	for range 1000 {
		b := slices.Clone(compiled)
		start := 256 + rng.IntN(len(b)-256)
		for range 1 + rng.IntN(200) {
			b[min(start+rng.IntN(400), len(b)-1)] = byte(rng.Uint32())
		}
		exercise(t, b)
	}
	full := slices.Clone(compiled) // hash tables without an empty slot
	for at := 256; at < len(full); at++ {
		full[at] &= 0x01
	}
	exercise(t, full)
}

func TestPieces(t *testing.T) {
	tok := load(t, "mixed")
	if got, want := tok.VocabSize(), 380; got != want {
		t.Errorf("VocabSize() = %d, want %d", got, want)
	}
	for id := range int32(tok.VocabSize()) {
		piece := tok.Piece(id)
		if got, ok := tok.ID(piece); got != id || !ok || piece == "" {
			t.Errorf("ID(%q) = %d, %t, want %d", piece, got, ok, id)
		}
	}
	tests := []struct {
		piece                  string
		known                  bool
		special, added, marker bool
	}{
		{"<eos>", true, true, true, true},
		{"<|turn>", true, true, true, true},
		{"<unused7>", true, false, true, true},
		{"<start of image>", true, false, true, true},
		{"<start▁of▁image>", false, false, false, false},
		{"<extra>", true, false, true, true},
		{"\n\n", true, false, true, false},
		{"▁▁", true, false, true, false},
		{"  ", false, false, false, false},
		{" ▁", false, false, false, false},
		{"▁the", true, false, false, false},
		{" the", false, false, false, false},
		{"<0x0A>", true, false, false, false},
		{"nope", false, false, false, false},
		{"", false, false, false, false},
		{strings.Repeat("x", 10000), false, false, false, false},
	}
	for _, tt := range tests {
		id, ok := tok.ID(tt.piece)
		if ok != tt.known {
			t.Errorf("ID(%q) = %d, %t, want %t", tt.piece, id, ok, tt.known)
		}
		if !ok {
			continue
		}
		if tok.IsSpecial(id) != tt.special || tok.IsAdded(id) != tt.added || tok.IsMarker(id) != tt.marker {
			t.Errorf("%q: special %t, added %t, marker %t, want %t, %t, %t", tt.piece, tok.IsSpecial(id), tok.IsAdded(id),
				tok.IsMarker(id), tt.special, tt.added, tt.marker)
		}
	}
	for _, id := range []int32{-1, 380, 1 << 30, -1 << 31} {
		if tok.Piece(id) != "" || tok.IsSpecial(id) || tok.IsAdded(id) || tok.IsMarker(id) {
			t.Errorf("the id %d is known", id)
		}
	}
	specials := tok.SpecialTokens()
	var names []string
	for _, id := range specials {
		names = append(names, tok.Piece(id))
	}
	if got, want := strings.Join(names, " "), "<pad> <eos> <bos> <unk> <|turn> <turn|> <end of image>"; got != want {
		t.Errorf("SpecialTokens() = %s, want %s", got, want)
	}
	specials[0] = 99 // must not reach the tokenizer
	if got := tok.SpecialTokens()[0]; got != 0 {
		t.Errorf("SpecialTokens()[0] = %d after a change to an earlier result", got)
	}
}

func TestStream(t *testing.T) {
	tok := load(t, "mixed")
	ids := func(pieces ...string) []int32 {
		var out []int32
		for _, p := range pieces {
			id, ok := tok.ID(p)
			if !ok {
				t.Fatalf("no piece %q", p)
			}
			out = append(out, id)
		}
		return out
	}
	tests := []struct {
		name    string
		ids     []int32
		options tokenizer.DecodeOptions
		want    string // pieces with | between them, and what Flush returns behind ||
	}{
		{"text", ids("▁the", "h", "▁"), tokenizer.DecodeOptions{}, " the|h| ||"},
		{"character in bytes", ids("<0xE2>", "<0x82>", "<0xAC>", "a"), tokenizer.DecodeOptions{}, "||€|a||"},
		{"character after another", ids("<0xC3>", "<0xA9>", "<0xC3>", "<0xA9>"), tokenizer.DecodeOptions{}, "|é||é||"},
		{"unfinished at the end", ids("a", "<0xE2>", "<0x82>"), tokenizer.DecodeOptions{}, "a||||��"},
		{"unfinished before text", ids("<0xE2>", "<0x82>", "a"), tokenizer.DecodeOptions{}, "||��a||"},
		{"broken from the start", ids("<0xFF>", "<0xC3>", "<0xA9>", "a"), tokenizer.DecodeOptions{}, "|||���a||"},
		{"broken after a character", ids("<0xC3>", "<0xA9>", "<0xFF>", "a"), tokenizer.DecodeOptions{}, "|é||�a||"},
		{"replacement character held", ids("a", "\ufffd", "\ufffd", "b"), tokenizer.DecodeOptions{}, "a|||��b||"},
		{"replacement character at the end", ids("\ufffd"), tokenizer.DecodeOptions{}, "||�"},
		{"replacement character in bytes", ids("<0xEF>", "<0xBF>", "<0xBD>", "a"), tokenizer.DecodeOptions{}, "|||�a||"},
		{"replacement character in broken bytes", ids("<0xEF>", "<0xBF>", "<0xBD>", "<0xC3>", "a"), tokenizer.DecodeOptions{}, "||||����a||"},
		{"replacement character, then another in bytes", ids("\ufffd", "<0xC3>", "<0xA9>"), tokenizer.DecodeOptions{}, "||�é||"},
		{"special kept", ids("a", "<eos>"), tokenizer.DecodeOptions{}, "a|<eos>||"},
		{"special dropped", ids("<bos>", "a", "<eos>", "<unused7>"), tokenizer.DecodeOptions{DropSpecial: true}, "|a||<unused7>||"},
		{"special dropped within a character", ids("<0xC3>", "<eos>", "<0xA9>"), tokenizer.DecodeOptions{DropSpecial: true}, "||é||"},
		{"special within a character", ids("<0xC3>", "<eos>", "<0xA9>"), tokenizer.DecodeOptions{}, "|�<eos>|||�"},
		{"ids not in use", []int32{-1, 9999, 1 << 30}, tokenizer.DecodeOptions{}, "||||"},
		{"nothing", nil, tokenizer.DecodeOptions{}, "||"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stream := tok.StreamWith(tt.options)
			for round := range 2 { // Flush leaves the stream as new
				var parts []string
				for _, id := range tt.ids {
					parts = append(parts, stream.Push(id))
				}
				if got := strings.Join(parts, "|") + "||" + stream.Flush(); got != tt.want {
					t.Errorf("round %d: %q, want %q", round, got, tt.want)
				}
			}
		})
	}
}

// TestStreamIsWhole pushes random ids and looks for parts of characters.
func TestStreamIsWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	for _, name := range []string{"demo", "mixed"} {
		tok := load(t, name)
		first, _ := tok.ID("<0x00>")
		for range 2000 {
			stream := tok.Stream()
			for range rng.IntN(12) {
				id := first + int32(rng.IntN(256))
				if rng.IntN(3) == 0 {
					id = int32(rng.IntN(tok.VocabSize()))
				}
				if got := stream.Push(id); !utf8.ValidString(got) {
					t.Fatalf("Push(%d) = %q", id, got)
				}
			}
			if got := stream.Flush(); !utf8.ValidString(got) {
				t.Fatalf("Flush() = %q", got)
			}
		}
	}
}
