package tokenizer

import (
	"fmt"
)

// source checks what was read against itself and numbers it.
func (p *parser) source() (*source, error) {
	s := &source{ids: p.vocab, added: p.added}
	if p.unknown != nil {
		name, ok := p.unknown.(string)
		if _, in := p.vocab[name]; !ok || !in {
			return nil, sourceError("model.unk_token", "%s is not in the vocabulary", inJSON(p.unknown))
		}
	}
	// Merges know the vocabulary alone, so they come before the added tokens.
	if err := s.placeMerges(p.merges); err != nil {
		return nil, err
	}
	if err := s.checkBytes(); err != nil {
		return nil, err
	}
	if err := s.placeAdded(len(p.vocab)); err != nil {
		return nil, err
	}
	return s, s.placePieces()
}

// placeAdded checks that every added token has the id that the original
// library gives it when it loads the file: that of its piece, or, if it is not
// in the vocabulary, the next one above all pieces and added tokens.
func (s *source) placeAdded(vocabSize int) error {
	next, seen := int32(vocabSize), make(map[string]bool, len(s.added))
	for n, a := range s.added {
		part := item("added_tokens", n)
		if seen[a.text] {
			return sourceError(part, "%q is given twice", a.text)
		}
		seen[a.text] = true
		id, in := s.ids[a.text]
		if !in {
			id = next
			s.ids[a.text] = id
		}
		if a.id != id {
			return sourceError(part, "%q has the id %d, want %d", a.text, a.id, id)
		}
		next = max(next, id+1)
	}
	return nil
}

// placePieces lists the pieces by id. Ids may be left out, but not so many that
// the tables would be mostly holes.
func (s *source) placePieces() error {
	largest, count := int32(-1), len(s.ids)
	for _, id := range s.ids {
		largest = max(largest, id)
	}
	if int(largest) >= 4*count+1024 || largest >= maxIDs {
		return sourceError("model.vocab", "the largest id is %d, too large for %d pieces", largest, count)
	}
	s.pieces = make([]string, largest+1)
	for piece, id := range s.ids {
		if other := s.pieces[id]; other != "" {
			// Name the two in one order, whatever the order of the map.
			return sourceError("model.vocab", "%.80q and %.80q share the id %d", min(piece, other), max(piece, other), id)
		}
		s.pieces[id] = piece
	}
	return nil
}

// checkBytes checks that every byte has a piece, and none of these pieces is an
// added token: Encode must always be able to spell a text out. The space needs a
// piece, too, as what would be spelled is "▁".
func (s *source) checkBytes() error {
	if _, ok := s.ids[space]; !ok {
		return sourceError("model.vocab", "the piece %q is missing", space)
	}
	for b := range 256 {
		if _, ok := s.ids[bytePiece(byte(b))]; !ok {
			return sourceError("model.vocab", "the byte piece %q is missing", bytePiece(byte(b)))
		}
	}
	for n, a := range s.added {
		if _, ok := parseBytePiece(a.text); ok {
			return sourceError(item("added_tokens", n), "%q is a byte piece", a.text)
		}
	}
	return nil
}

// checkAdded bounds the trie of added tokens, in which a byte of a text takes fifty, while
// the other tables are about as large as what they are made of.
func (s *source) checkAdded() error {
	total := 0
	for _, a := range s.added {
		total += len(a.text)
	}
	if total > maxAddedBytes {
		return sourceError("", "%d added tokens have %d bytes together, at most %d", len(s.added), total, maxAddedBytes)
	}
	return nil
}

// placeMerges turns the rules into ids. A rule that takes a byte piece is
// refused, so that characters which are spelled in bytes never take part in a
// merge. Of equal rules the last counts, as in the original library.
func (s *source) placeMerges(rules [][2]string) error {
	s.merges = make([][3]int32, len(rules))
	for n, rule := range rules {
		var ids [3]int32
		for i, piece := range []string{rule[0], rule[1], rule[0] + rule[1]} {
			id, ok := s.ids[piece]
			if !ok {
				return sourceError(item("model.merges", n), "%.80q is not in the vocabulary", piece)
			}
			if _, ok := parseBytePiece(piece); ok && i < 2 {
				return sourceError(item("model.merges", n), "merges the byte piece %q", piece)
			}
			ids[i] = id
		}
		s.merges[n] = ids
	}
	return nil
}

// bytePiece returns the piece that stands for b.
func bytePiece(b byte) string { return fmt.Sprintf("<0x%02X>", b) }

// parseBytePiece returns the byte that piece stands for when decoded. The
// original library reads the two digits as a number of either case that may
// have a sign, so "<0x+a>" is a byte, too.
func parseBytePiece(piece string) (byte, bool) {
	if len(piece) != 6 || piece[:3] != "<0x" || piece[5] != '>' {
		return 0, false
	}
	high, low := hexDigit(piece[3]), hexDigit(piece[4])
	if piece[3] == '+' {
		high = 0
	}
	if high < 0 || low < 0 {
		return 0, false
	}
	return byte(high<<4 | low), true
}

// hexDigit returns the value of a hexadecimal digit, or -1.
func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
