package tokenizer_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zoo-sdk/zoo/tokenizer"
)

// streamOf returns what Push returns for each id, and what Flush returns.
func streamOf(tok *tokenizer.Tokenizer, ids []int32) (pieces []string, rest string) {
	s := tok.Stream()
	for _, id := range ids {
		pieces = append(pieces, s.Push(id))
	}
	return pieces, s.Flush()
}

// checkDecoding compares Decode and Stream with a row.
func checkDecoding(t *testing.T, tok *tokenizer.Tokenizer, row goldenRow) {
	t.Helper()
	if got := tok.Decode(row.IDs); got != row.Decoded {
		t.Errorf("Decode(%v) = %q, want %q", row.IDs, got, row.Decoded)
	}
	if row.Stream == nil {
		return // the original library gives up on these ids
	}
	pieces, rest := streamOf(tok, row.IDs)
	if diff := cmp.Diff(row.Stream, pieces, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Push of each of %v (-want +got):\n%s", row.IDs, diff)
	}
	// Ids that no text has may break a run of bytes of which a part is out already.
	if got := strings.Join(pieces, "") + rest; got != row.Decoded && (row.Text != nil || row.Base64 != nil) {
		t.Errorf("stream of %v in all = %q, want %q", row.IDs, got, row.Decoded)
	}
}

func TestGolden(t *testing.T) {
	toks := map[string]*tokenizer.Tokenizer{"demo": load(t, "demo"), "mixed": load(t, "mixed")}
	texts := 0
	for _, row := range readGolden(t, "testdata/golden.jsonl.gz") {
		tok := toks[row.Tokenizer]
		if text, ok := row.text(t); ok {
			texts++
			if diff := cmp.Diff(row.IDs, tok.Encode(nil, text, tokenizer.MarkersAreTokens), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: Encode(%q, MarkersAreTokens) (-want +got):\n%s", row.Tokenizer, text, diff)
			}
			if diff := cmp.Diff(row.Plain, tok.Encode(nil, text, tokenizer.MarkersAreText), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: Encode(%q, MarkersAreText) (-want +got):\n%s", row.Tokenizer, text, diff)
			}
		}
		if got := tok.DecodeWith(row.IDs, tokenizer.DecodeOptions{DropSpecial: true}); got != row.Visible {
			t.Errorf("%s: DecodeWith(%v, DropSpecial) = %q, want %q", row.Tokenizer, row.IDs, got, row.Visible)
		}
		checkDecoding(t, tok, row)
	}
	if texts < 900 {
		t.Errorf("only %d texts in the golden file", texts)
	}
}

// TestGemma holds Gemma's own tokenizer against 4,000 texts.
func TestGemma(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector, and nothing in it is concurrent")
	}
	compiled, dir := loadGemma(t)
	tok := open(t, compiled)
	if got := tok.VocabSize(); got != 262145 {
		t.Errorf("VocabSize() = %d, want 262145", got)
	}
	var markers []string
	for id := range int32(tok.VocabSize()) {
		if tok.IsMarker(id) {
			markers = append(markers, tok.Piece(id))
		}
	}
	rows := readGolden(t, filepath.Join(dir, "tokenizer_golden.jsonl.gz"))
	if len(rows) != 4000 {
		t.Errorf("%d rows, want 4000", len(rows))
	}
	unmarked := 0
	for _, row := range rows {
		text, _ := row.text(t)
		if diff := cmp.Diff(row.IDs, tok.Encode(nil, text, tokenizer.MarkersAreTokens), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("Encode(%q, MarkersAreTokens) (-want +got):\n%s", text, diff)
		}
		plain := tok.Encode(nil, text, tokenizer.MarkersAreText)
		checkPlain(t, tok, text, plain)
		marked := false
		for _, m := range markers {
			marked = marked || strings.Contains(text, m)
		}
		if !marked {
			unmarked++
			if diff := cmp.Diff(row.IDs, plain, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Encode(%q, MarkersAreText) (-want +got):\n%s", text, diff)
			}
		}
		checkDecoding(t, tok, row)
	}
	if unmarked < 3000 {
		t.Errorf("only %d texts without a marker", unmarked)
	}
}

// checkPlain checks that ids hold no marker and decode to the text.
func checkPlain(t *testing.T, tok *tokenizer.Tokenizer, text string, ids []int32) {
	t.Helper()
	for _, id := range ids {
		if tok.IsMarker(id) || tok.IsSpecial(id) {
			t.Errorf("plain %q gives the marker %d, %q", text, id, tok.Piece(id))
		}
		if tok.IsAdded(id) && strings.TrimLeft(tok.Piece(id), "▁\n\t") != "" {
			t.Errorf("plain %q gives the added token %d, %q", text, id, tok.Piece(id))
		}
	}
	if got, want := tok.Decode(ids), decodedForm(text); got != want {
		t.Errorf("plain %q comes back as %q, want %q", text, got, want)
	}
}

// decodedForm returns what is left of a valid text after Encode and Decode.
func decodedForm(text string) string { return strings.ReplaceAll(text, "▁", " ") }
