package tokenizer_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/tokenizer"
)

// add adds a piece.
func add(p *tokenizer.Pieces, text string, score float32, kind tokenizer.PieceType) {
	p.Texts, p.Scores, p.Types = append(p.Texts, text), append(p.Scores, score), append(p.Types, kind)
}

// readPieces returns the vocabulary of testdata.
func readPieces(t testing.TB) tokenizer.Pieces {
	t.Helper()
	b, err := os.ReadFile("testdata/pieces.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows [][3]any
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	var p tokenizer.Pieces
	for _, r := range rows {
		add(&p, r[0].(string), float32(r[1].(float64)), tokenizer.PieceType(r[2].(float64)))
	}
	return p
}

// compilePieces compiles or fails.
func compilePieces(t testing.TB, p tokenizer.Pieces) []byte {
	t.Helper()
	b, err := tokenizer.CompilePieces(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSentencePiece holds a vocabulary against SentencePiece itself.
func TestSentencePiece(t *testing.T) {
	tok := open(t, compilePieces(t, readPieces(t)))
	rows := readGolden(t, "testdata/pieces.jsonl.gz")
	if len(rows) < 1000 {
		t.Errorf("only %d rows", len(rows))
	}
	for _, row := range rows {
		text, _ := row.text(t)
		if diff := cmp.Diff(row.Plain, tok.Encode(nil, text, tokenizer.MarkersAreText), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("Encode(%q, MarkersAreText) (-want +got):\n%s", text, diff)
		}
		if diff := cmp.Diff(row.IDs, tok.Encode(nil, text, tokenizer.MarkersAreTokens), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("Encode(%q, MarkersAreTokens) (-want +got):\n%s", text, diff)
		}
		// Control pieces are spelled with spaces here.
		checkDecoding(t, tok, row)
		if got := tok.Decode(row.Plain); got != row.Decoded {
			t.Errorf("Decode(%v) = %q, want %q", row.Plain, got, row.Decoded)
		}
	}
}

// TestPiecesReproducible pins the compiled bytes, which are part of a pack's digest.
func TestPiecesReproducible(t *testing.T) {
	const want = "52d012bcca8ce8ff5b9042a5e7aa7db32d89d49336f148ada22d296b81dbb5da"
	p := readPieces(t)
	for range 2 {
		if got := fmt.Sprintf("%x", sha256.Sum256(compilePieces(t, p))); got != want {
			t.Errorf("digest %s, want %s", got, want)
		}
	}
}

// TestPieceKinds asks what the pieces are.
func TestPieceKinds(t *testing.T) {
	p := readPieces(t)
	tok := open(t, compilePieces(t, p))
	if tok.VocabSize() != len(p.Texts) {
		t.Errorf("VocabSize() = %d, want %d", tok.VocabSize(), len(p.Texts))
	}
	for id, text := range p.Texts {
		kind, n := p.Types[id], int32(id)
		if kind == tokenizer.ControlPiece {
			text = strings.ReplaceAll(text, "▁", " ")
		}
		if got, ok := tok.ID(text); !ok || got != n || tok.Piece(n) != text {
			t.Errorf("ID(%q) = %d, %v; Piece(%d) = %q", text, got, ok, id, tok.Piece(n))
		}
		marker := kind == tokenizer.ControlPiece || kind == tokenizer.UnknownPiece
		if tok.IsMarker(n) != marker || tok.IsSpecial(n) != marker || tok.IsAdded(n) != (marker || kind == tokenizer.UserDefinedPiece) {
			t.Errorf("%q of type %d: marker %v, special %v, added %v", text, kind, tok.IsMarker(n), tok.IsSpecial(n), tok.IsAdded(n))
		}
	}
}

// TestPiecesSpellings finds user-defined pieces however their spaces are written, also
// where the bytes of "▁" begin other pieces.
func TestPiecesSpellings(t *testing.T) {
	p := readPieces(t)
	add(&p, "▂", -1e6, tokenizer.UserDefinedPiece)
	add(&p, " ▂", -1e6, tokenizer.UserDefinedPiece)
	add(&p, "▁a▁▁b", -1e6, tokenizer.UserDefinedPiece)
	add(&p, " a ▂", -1e6, tokenizer.UserDefinedPiece)
	last := int32(len(p.Texts) - 1)
	tok := open(t, compilePieces(t, p))
	for text, want := range map[string][]int32{
		"▂": {last - 3}, " ▂": {last - 2}, "▁▂": {last - 2}, "▂▂": {last - 3, last - 3},
		" a  b": {last - 1}, "▁a▁▁b": {last - 1}, " a▁ b": {last - 1}, "▁a ▁b": {last - 1}, " a ▂": {last}, "▁a▁▂": {last}, " a▁▂▂": {last, last - 3},
	} {
		for _, m := range []tokenizer.Markers{tokenizer.MarkersAreText, tokenizer.MarkersAreTokens} {
			if diff := cmp.Diff(want, tok.Encode(nil, text, m)); diff != "" {
				t.Errorf("Encode(%q, %d) (-want +got):\n%s", text, m, diff)
			}
		}
	}
}

// TestUnusedPieces fills a vocabulary up, which changes no ids.
func TestUnusedPieces(t *testing.T) {
	p := readPieces(t)
	before := open(t, compilePieces(t, p))
	n := len(p.Texts)
	for i := range 64 {
		add(&p, fmt.Sprintf("[PAD%d]", n+i), -1000, tokenizer.UnusedPiece)
	}
	tok := open(t, compilePieces(t, p))
	if tok.VocabSize() != n+64 {
		t.Errorf("VocabSize() = %d, want %d", tok.VocabSize(), n+64)
	}
	last := p.Texts[n+63]
	if id, ok := tok.ID(last); ok || tok.Piece(int32(n+63)) != "" || tok.Decode([]int32{int32(n + 63)}) != "" {
		t.Errorf("piece %d is there as %d", n+63, id)
	}
	for _, text := range []string{last, "a" + last + "band", "▁" + last} {
		for _, m := range []tokenizer.Markers{tokenizer.MarkersAreText, tokenizer.MarkersAreTokens} {
			if diff := cmp.Diff(before.Encode(nil, text, m), tok.Encode(nil, text, m)); diff != "" {
				t.Errorf("Encode(%q, %d) (-without +with):\n%s", text, m, diff)
			}
		}
	}
}

// TestMuchAdded gives more to search texts for than any tokenizer has.
func TestMuchAdded(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var texts []string
	for range 4<<20/512 + 1 {
		text := make([]byte, 512)
		for i := range text {
			text[i] = 'a' + byte(rng.IntN(26))
		}
		texts = append(texts, string(text))
	}
	p := readPieces(t)
	for _, text := range texts {
		add(&p, text, -1e6, tokenizer.UserDefinedPiece)
	}
	_, err := tokenizer.CompilePieces(p)
	checkMuch(t, "pieces", err)
	src := readSource(t, "mixed")
	var file map[string]any
	if err := json.Unmarshal(src, &file); err != nil {
		t.Fatal(err)
	}
	list := file["added_tokens"].([]any)
	next := open(t, compile(t, src)).VocabSize()
	for i, text := range texts {
		list = append(list, map[string]any{"id": next + i, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false})
	}
	file["added_tokens"] = list
	if src, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	_, err = tokenizer.Compile(src)
	checkMuch(t, "tokenizer.json", err)
}

// checkMuch wants an error about the size of all added tokens.
func checkMuch(t *testing.T, name string, err error) {
	t.Helper()
	if !errors.Is(err, fault.ErrIntegrity) || !strings.Contains(err.Error(), "bytes together, at most 4194304") {
		t.Errorf("%s: %v", name, err)
	}
}

// TestPiecesRejects gives vocabularies that are wrong, or ask for what there is not.
func TestPiecesRejects(t *testing.T) {
	plus := func(text string, score float32, kind tokenizer.PieceType) func(*tokenizer.Pieces) {
		return func(p *tokenizer.Pieces) { add(p, text, score, kind) }
	}
	tests := []struct {
		name string
		edit func(p *tokenizer.Pieces)
		part string // that the error names
	}{
		{"no pieces", func(p *tokenizer.Pieces) { *p = tokenizer.Pieces{} }, "is missing"},
		{"no piece for the space", func(p *tokenizer.Pieces) { p.Types[slices.Index(p.Texts, "▁")] = tokenizer.ControlPiece }, `"▁" is missing`},
		{"a score is missing", func(p *tokenizer.Pieces) { p.Scores = p.Scores[1:] }, "scores"},
		{"a type is missing", func(p *tokenizer.Pieces) { p.Types = p.Types[1:] }, "types"},
		{"a space in front", func(p *tokenizer.Pieces) { p.SpacePrefix = true }, "in front"},
		{"empty piece", plus("", -1e6, tokenizer.NormalPiece), "it is empty"},
		{"piece too long", plus(strings.Repeat("a", 513), -1e6, tokenizer.NormalPiece), "513 bytes"},
		{"piece that is no text", plus("a\xff", -1e6, tokenizer.NormalPiece), "UTF-8"},
		{"piece that mixes spaces", plus("a ▁", -1e6, tokenizer.NormalPiece), "mixes"},
		{"piece twice", plus("aa", -1e6, tokenizer.NormalPiece), "is piece"},
		{"piece twice, with spaces of both kinds", plus("▁▁", -1e6, tokenizer.UserDefinedPiece), "is piece"},
		{"type 0", plus("zz", -1e6, 0), "type 0"},
		{"type 7", plus("zz", -1e6, 7), "type 7"},
		{"unused piece that merges give", plus("bb", -1e6, tokenizer.UnusedPiece), `unused, and "b" and "b" make it up`},
		{"unused character", plus("語", -1e6, tokenizer.UnusedPiece), "not supported for a character"},
		{"unused space", func(p *tokenizer.Pieces) { p.Types[slices.Index(p.Texts, "▁")] = tokenizer.UnusedPiece }, "not supported for a character"},
		{"unused piece twice", func(p *tokenizer.Pieces) {
			add(p, "[P]", -1e6, tokenizer.UnusedPiece)
			add(p, "[P]", -1e6, tokenizer.UnusedPiece)
		}, "is piece"},
		{"byte piece of another type", plus("<0xfe>", -1e6, tokenizer.NormalPiece), "of bytes"},
		{"no byte piece", plus("zz", -1e6, tokenizer.BytePiece), "of bytes"},
		{"byte piece missing", func(p *tokenizer.Pieces) {
			i := slices.Index(p.Texts, "<0x80>")
			p.Texts[i], p.Types[i] = "<>", tokenizer.ControlPiece
		}, "<0x80>"},
		{"score that is no number", plus("zz", float32(math.NaN()), tokenizer.NormalPiece), "score NaN"},
		{"score beyond all", plus("zz", float32(math.Inf(-1)), tokenizer.NormalPiece), "score -Inf"},
		{"two outcomes of one score", plus("bb", -10.5, tokenizer.NormalPiece), "has the score of another piece, -10.5"},
		{"character without a piece", plus("a語", -1e6, tokenizer.NormalPiece), "the character '語'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := readPieces(t)
			tt.edit(&p)
			got, err := tokenizer.CompilePieces(p)
			se, ok := errors.AsType[*tokenizer.SourceError](err)
			if !ok || !se.Pieces || !errors.Is(err, fault.ErrIntegrity) || got != nil {
				t.Fatalf("CompilePieces = %d bytes, %v, want fault.ErrIntegrity", len(got), err)
			}
			if !strings.Contains(err.Error(), tt.part) || !strings.HasPrefix(err.Error(), "SentencePiece vocabulary: ") || len(err.Error()) > 400 {
				t.Errorf("error %q, want one about %q", err, tt.part)
			}
			if !strings.Contains(fault.Hint(err), "SentencePiece") {
				t.Errorf("the hint is %q", fault.Hint(err))
			}
		})
	}
}

// piecesEncode is a second encoder, as plain as can be: user-defined pieces and, with
// markers, control pieces are found, the longest at each place; what lies between is
// merged, whatever gives the piece of the highest score first, the leftmost of equals, and
// unused pieces are taken apart again.
func piecesEncode(p tokenizer.Pieces, text string, markers tokenizer.Markers) []int32 {
	normal, found := map[string]int32{}, map[string]int32{}
	for id, piece := range p.Texts {
		switch p.Types[id] {
		case tokenizer.NormalPiece, tokenizer.UnusedPiece:
			normal[piece] = int32(id)
		case tokenizer.UserDefinedPiece:
			found[strings.ReplaceAll(piece, " ", "▁")] = int32(id)
		case tokenizer.ControlPiece, tokenizer.UnknownPiece:
			if markers == tokenizer.MarkersAreTokens {
				found[strings.ReplaceAll(piece, " ", "▁")] = int32(id)
			}
		}
	}
	type part struct {
		text  string
		fixed bool
	}
	var parts []part
	for text = strings.ReplaceAll(text, " ", "▁"); text != ""; {
		longest := ""
		for piece := range maps.Keys(found) {
			if strings.HasPrefix(text, piece) && len(piece) > len(longest) {
				longest = piece
			}
		}
		n := len(longest)
		if n == 0 {
			_, n = utf8.DecodeRuneInString(text)
		}
		parts = append(parts, part{text[:n], longest != ""})
		text = text[n:]
	}
	made := map[string][2]string{} // what each merge was made of
	for {
		at, best := -1, math.Inf(-1)
		for i := 1; i < len(parts); i++ {
			if id, ok := normal[parts[i-1].text+parts[i].text]; ok && !parts[i-1].fixed && !parts[i].fixed && float64(p.Scores[id]) > best {
				at, best = i, float64(p.Scores[id])
			}
		}
		if at < 0 {
			break
		}
		made[parts[at-1].text+parts[at].text] = [2]string{parts[at-1].text, parts[at].text}
		parts[at-1].text += parts[at].text
		parts = slices.Delete(parts, at, at+1)
	}
	for i := 0; i < len(parts); i++ {
		halves, ok := made[parts[i].text]
		if ok && !parts[i].fixed && p.Types[normal[parts[i].text]] == tokenizer.UnusedPiece {
			parts = slices.Replace(parts, i, i+1, part{text: halves[0]}, part{text: halves[1]})
			i-- // they may be unused, too
		}
	}
	var ids []int32
	for _, part := range parts {
		id, ok := normal[part.text]
		if part.fixed {
			id, ok = found[part.text]
		}
		if ok {
			ids = append(ids, id)
			continue
		}
		for _, b := range []byte(part.text) {
			ids = append(ids, int32(slices.Index(p.Texts, fmt.Sprintf("<0x%02X>", b))))
		}
	}
	return ids
}

// FuzzCompilePieces compiles vocabularies of a line for each piece, its type, its score
// and its text, and holds Encode against the second encoder.
func FuzzCompilePieces(f *testing.F) {
	f.Add("1 -1 a\n1 -2 b\n1 -3 ab\n1 -4 aa\n1 -5 aab\n4 0   \n1 -9 ▁\n3 0 <x>", "aabaab  a▁ b<x>")
	f.Add("1 0 ▁\n1 -1 a\n1 -2 aa\n1 -3 aaa\n1 -4 aaaaa\n2 0 a a\n4 0 \n", "aaaaaaaa a")
	f.Add("1 0 ▁\n1 -1 a\n1 -2 b\n1 -3 ab\n5 -4 bbb\n5 0 [P]\n1 -5 [\n1 -6 ba", "ababb[P]abbb")
	f.Add("1 0 ▁\n4 0 ▁▂\n4 0 ▂\n4 0  a▁\n1 1 ▁", "▁▂▂ a ▁▂")
	f.Fuzz(func(t *testing.T, lines, text string) {
		if len(lines)+len(text) > 400 || !utf8.ValidString(text) {
			return // the second encoder is slow
		}
		var p tokenizer.Pieces
		for b := range 256 {
			add(&p, fmt.Sprintf("<0x%02X>", b), 0, tokenizer.BytePiece)
		}
		for line := range strings.SplitSeq(lines, "\n") {
			kind, rest, _ := strings.Cut(line, " ")
			number, piece, _ := strings.Cut(rest, " ")
			k, _ := strconv.Atoi(kind)
			score, _ := strconv.ParseFloat(number, 32)
			add(&p, piece, float32(score), tokenizer.PieceType(k))
		}
		compiled, err := tokenizer.CompilePieces(p)
		if err != nil {
			if !errors.Is(err, fault.ErrIntegrity) {
				t.Fatalf("error %v, want fault.ErrIntegrity", err)
			}
			return
		}
		exercise(t, compiled)
		tok := open(t, compiled)
		for _, m := range []tokenizer.Markers{tokenizer.MarkersAreText, tokenizer.MarkersAreTokens} {
			if diff := cmp.Diff(piecesEncode(p, text, m), tok.Encode(nil, text, m), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("Encode(%q, %d) (-want +got):\n%s", text, m, diff)
			}
			checkRoundTrip(t, tok, text, m)
		}
	})
}
