package tokenizer

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// PieceType says what a piece of a SentencePiece vocabulary is for. Its numbers are SentencePiece's own.
type PieceType uint8

const (
	// NormalPiece comes out of merges.
	NormalPiece PieceType = 1 + iota
	// UnknownPiece stands for what has no piece.
	UnknownPiece
	// ControlPiece is a marker, which no text spells.
	ControlPiece
	// UserDefinedPiece is found in every text, before anything is merged.
	UserDefinedPiece
	// UnusedPiece fills up a vocabulary: no text has it. What merges give it would be taken
	// apart again, which is not supported, so none may.
	UnusedPiece
	// BytePiece stands for one byte.
	BytePiece
)

// Pieces is a SentencePiece vocabulary of the kind BPE, as GGUF files hold it under the
// name "llama".
type Pieces struct {
	// Texts are the pieces by id. In those that are found in a text as a whole, the
	// user-defined and control pieces, "▁" and a space mean the same; Piece gives spaces.
	Texts []string
	// Scores say which piece is merged first, that of the highest score.
	Scores []float32
	// Types say what the pieces are for.
	Types []PieceType
	// SpacePrefix says that a text gets a space in front. It is not supported.
	SpacePrefix bool
}

// CompilePieces is [Compile] for a SentencePiece vocabulary: the compiled form gives the
// ids that SentencePiece gives. It has no merge rules, it merges whatever gives a piece,
// so each split of a piece into two becomes a rule; they share the rank that the score
// of the piece gives them, so that the leftmost is applied first, as there.
//
// Control pieces and those for the unknown are markers: with MarkersAreTokens they are
// recognised, which SentencePiece itself never does. User-defined pieces are recognised
// in every text, and IsMarker is false for them. Unused pieces are left out: their ids are
// not in use. That a text in front of which the model expects a <bos> gets one is up to
// the caller.
//
// A vocabulary that is malformed, or asks for anything else, gets a *SourceError, which
// matches fault.ErrIntegrity. For 262,144 pieces it takes about two seconds of one core.
func CompilePieces(p Pieces) ([]byte, error) {
	s, err := p.source()
	if err != nil {
		return nil, ofPieces(err)
	}
	out, err := s.compile()
	return out, ofPieces(err)
}

// ofPieces says in a SourceError that a vocabulary is concerned.
func ofPieces(err error) error {
	if se, ok := errors.AsType[*SourceError](err); ok {
		se.Pieces = true
	}
	return err
}

// source checks the vocabulary and finds its rules.
func (p Pieces) source() (*source, error) {
	switch {
	case len(p.Texts) != len(p.Scores) || len(p.Texts) != len(p.Types):
		return nil, sourceError("", "%d pieces have %d scores and %d types", len(p.Texts), len(p.Scores), len(p.Types))
	case len(p.Texts) > maxIDs:
		return nil, sourceError("", "more than %d pieces", maxIDs)
	case p.SpacePrefix:
		return nil, sourceError("", "a space in front of every text is not supported")
	}
	s := &source{pieces: make([]string, len(p.Texts)), ids: make(map[string]int32, len(p.Texts)), scored: true, spaced: true}
	for id, text := range p.Texts {
		kind := p.Types[id]
		if kind == UnknownPiece || kind == ControlPiece || kind == UserDefinedPiece {
			text = strings.ReplaceAll(text, space, " ")
			s.added = append(s.added, added{id: int32(id), text: text, special: kind != UserDefinedPiece, open: kind == UserDefinedPiece})
		}
		if err := p.checkPiece(id, text); err != nil {
			return nil, err
		}
		if first, twice := s.ids[text]; twice {
			return nil, sourceError(item("pieces", id), "%.80q is piece %d as well", text, first)
		}
		s.pieces[id], s.ids[text] = text, int32(id)
	}
	if err := p.dropUnused(s); err != nil {
		return nil, err
	}
	if err := s.checkBytes(); err != nil {
		return nil, err
	}
	return s, p.placeRules(s)
}

// checkPiece checks one piece by itself.
func (p Pieces) checkPiece(id int, text string) error {
	bad := func(format string, args ...any) error { return sourceError(item("pieces", id), format, args...) }
	_, isByte := parseBytePiece(text)
	switch kind, score := p.Types[id], p.Scores[id]; {
	case text == "":
		return bad("it is empty")
	case len(text) > maxPieceBytes:
		return bad("%.80q… has %d bytes, at most %d", text, len(text), maxPieceBytes)
	case !utf8.ValidString(text):
		return bad("%.80q is not valid UTF-8", text)
	case strings.Contains(text, " ") && strings.Contains(text, space):
		return bad("%.80q mixes spaces and %q", text, space)
	case kind < NormalPiece || kind > BytePiece:
		return bad("%.80q is of type %d, which is not supported", text, kind)
	case isByte != (kind == BytePiece):
		return bad("%.80q is of type %d, that of the pieces of bytes is %d", text, kind, BytePiece)
	case score-score != 0:
		return bad("%.80q has the score %v", text, score)
	}
	return nil
}

// isChar reports whether a piece is a single character, which needs no merge.
func isChar(text string) bool {
	return len(text) <= utf8.UTFMax && utf8.RuneCountInString(text) == 1
}

// normal returns the id of a normal piece.
func (p Pieces) normal(s *source, text string) (int32, bool) {
	id, ok := s.ids[text]
	return id, ok && p.Types[id] == NormalPiece
}

// dropUnused leaves the unused pieces out. None of them can come up on the way to another
// piece either: as long as no two normal ones make up an unused one, there is never any.
func (p Pieces) dropUnused(s *source) error {
	for id, kind := range p.Types {
		if kind != UnusedPiece {
			continue
		}
		text := s.pieces[id]
		if isChar(text) {
			return sourceError(item("pieces", id), "%.80q is of type %d, unused, which is not supported for a character", text, kind)
		}
		for i := range text {
			_, left := p.normal(s, text[:i])
			if _, right := p.normal(s, text[i:]); left && right {
				return sourceError(item("pieces", id), "%.80q is of type %d, unused, and %.80q and %.80q make it up, which is not supported", text, kind, text[:i], text[i:])
			}
		}
		s.pieces[id] = ""
		delete(s.ids, text)
	}
	return nil
}

// placeRules makes a rule of each way to split a normal piece into two.
func (p Pieces) placeRules(s *source) error {
	var order []int32
	for id, text := range s.pieces {
		if p.Types[id] != NormalPiece || isChar(text) {
			continue
		}
		// SentencePiece would merge a character that has no piece, too.
		for _, r := range text {
			if c, ok := s.ids[string(r)]; !ok || p.Types[c] != NormalPiece && p.Types[c] != UserDefinedPiece {
				return sourceError(item("pieces", id), "%.80q has the character %q, which has no piece", text, r)
			}
		}
		order = append(order, int32(id))
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(p.Scores[b], p.Scores[a]), cmp.Compare(a, b)) })
	last := math.Inf(1)
	for _, id := range order {
		text, before := s.pieces[id], len(s.merges)
		for i := range text {
			left, lok := p.normal(s, text[:i])
			right, rok := p.normal(s, text[i:])
			if lok && rok {
				s.merges = append(s.merges, [3]int32{left, right, id})
			}
		}
		switch score := float64(p.Scores[id]); {
		case len(s.merges) == before:
		case score == last:
			// Of two outcomes of one score the leftmost comes first, whichever it is.
			return sourceError(item("pieces", int(id)), "%.80q has the score of another piece, %v", text, score)
		default:
			last = score
		}
		if len(s.merges) > maxMerges {
			return sourceError("pieces", "they can be split in more than %d ways", maxMerges)
		}
	}
	return nil
}
