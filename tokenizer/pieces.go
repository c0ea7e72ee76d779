package tokenizer

import (
	"slices"
	"strings"
)

// VocabSize returns the largest id plus one.
func (t *Tokenizer) VocabSize() int { return len(t.flags) }

// ID returns the id of a piece as its source spells it: "▁the", "<eos>",
// "<0x0A>". It reports false when there is no such piece.
func (t *Tokenizer) ID(piece string) (int32, bool) {
	text, literal := textForm(piece)
	if literal && strings.Contains(piece, space) {
		return 0, false // no piece has both
	}
	var flag byte
	if literal {
		flag = flagLiteral
	}
	id := t.find([]byte(text), flag)
	return max(id, 0), id >= 0
}

// Piece returns the piece with this id as its source spells it, or "" when
// there is none.
func (t *Tokenizer) Piece(id int32) string {
	if !t.has(id) {
		return ""
	}
	if t.flags[id]&flagLiteral != 0 {
		return string(t.text(id))
	}
	return strings.ReplaceAll(string(t.text(id)), " ", space)
}

// IsSpecial reports whether id is an added token marked special, such as <eos>.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return t.has(id) && t.flags[id]&flagSpecial != 0
}

// IsAdded reports whether id is an added token, special or not.
func (t *Tokenizer) IsAdded(id int32) bool {
	return t.has(id) && t.flags[id]&flagAdded != 0
}

// IsMarker reports whether id is an added token that plain text never becomes:
// all of them but those that are nothing but white space, and SentencePiece's
// user-defined pieces.
func (t *Tokenizer) IsMarker(id int32) bool {
	return t.has(id) && t.flags[id]&flagGuarded != 0
}

// SpecialTokens returns the ids of the special tokens in ascending order, as a
// new slice.
func (t *Tokenizer) SpecialTokens() []int32 {
	return slices.Clone(t.specials)
}

// has reports whether id is in use.
func (t *Tokenizer) has(id int32) bool {
	return id >= 0 && int(id) < len(t.flags) && t.flags[id] != 0
}
