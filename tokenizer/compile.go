package tokenizer

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"
)

// Compile turns a Hugging Face tokenizer.json into the compiled form that Open
// uses in place. The result depends on src alone: it is the same on every
// machine. For Gemma's 262,144 pieces it takes about two seconds of one core and
// 140 MB beside src.
//
// A file that is malformed, or that asks for anything Encode and Decode do not
// do exactly, gets a *SourceError, which matches fault.ErrIntegrity.
func Compile(src []byte) ([]byte, error) {
	s, err := parseSource(src)
	if err != nil {
		return nil, err
	}
	return s.compile()
}

// compile writes the compiled form.
func (s *source) compile() ([]byte, error) {
	if err := s.checkAdded(); err != nil {
		return nil, err
	}
	l := new(layout)
	s.writePieces(l)
	if err := s.writeSlots(l); err != nil {
		return nil, err
	}
	if err := s.writeMerges(l); err != nil {
		return nil, err
	}
	s.writeBytes(l)
	s.writeNodes(l)
	s.writePairs(l)
	out := l.pack()
	t, err := Open(out)
	if err != nil {
		return nil, err
	}
	t.markWhole(s)
	return out, nil
}

// textForm returns a piece as it stands in a text, and whether it is literal.
func textForm(piece string) (text string, literal bool) {
	if strings.Contains(piece, " ") {
		return piece, true
	}
	return strings.ReplaceAll(piece, space, " "), false
}

// textRune is textForm for one character.
func textRune(r rune) rune {
	if string(r) == space {
		return ' '
	}
	return r
}

// writePieces writes the pieces, where they start, and their flags.
func (s *source) writePieces(l *layout) {
	offsets := make([]byte, 0, 4*(len(s.pieces)+1))
	flags := make([]byte, len(s.pieces))
	var pieces []byte
	longest := 0
	for id, piece := range s.pieces {
		offsets = binary.LittleEndian.AppendUint32(offsets, uint32(len(pieces)))
		if piece == "" {
			continue
		}
		text, literal := textForm(piece)
		pieces = append(pieces, text...)
		longest = max(longest, len(text))
		flags[id] = flagPresent
		if literal {
			flags[id] |= flagLiteral
		}
		if _, ok := parseBytePiece(piece); ok {
			flags[id] |= flagByte
		}
	}
	for _, a := range s.added {
		flags[a.id] |= flagAdded
		if a.special {
			flags[a.id] |= flagSpecial
		}
		if a.guarded() {
			flags[a.id] |= flagGuarded
		}
	}
	l.counts[countIDs] = uint32(len(s.pieces))
	l.counts[countMaxPiece] = uint32(longest)
	l.sections[sectionOffsets] = binary.LittleEndian.AppendUint32(offsets, uint32(len(pieces)))
	l.sections[sectionPieces] = pieces
	l.sections[sectionFlags] = flags
}

// entry is something to put into a hash table: value, at home or behind it.
type entry struct {
	home  int
	value uint64
}

// spread assigns a slot to each entry by linear probing from its home, one of
// the first homes slots, and returns a table that ends with an empty slot, so
// that a search needs no wrap. It reports false when more than maxCluster slots
// in a row would be occupied.
func spread(entries []entry, homes uint32, empty uint64) ([]uint64, bool) {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.home, b.home), cmp.Compare(a.value, b.value))
	})
	table := make([]uint64, 0, int(homes)+1)
	run := 0
	for _, e := range entries {
		for len(table) < e.home {
			table = append(table, empty)
			run = 0
		}
		table = append(table, e.value)
		if run++; run > maxCluster {
			return nil, false
		}
	}
	for len(table) < int(homes) {
		table = append(table, empty)
	}
	return append(table, empty), true
}

// writeSlots writes the hash table from text form to id, half full.
func (s *source) writeSlots(l *layout) error {
	homes := pieceHomes(l.counts[countIDs])
	var entries []entry
	for id, piece := range s.pieces {
		if piece == "" {
			continue
		}
		text, _ := textForm(piece)
		hash := hashPiece([]byte(text))
		entries = append(entries, entry{homeSlot(hash, homes), uint64(pieceTag(hash)<<idBits | uint32(id))})
	}
	table, ok := spread(entries, homes, emptySlot)
	if !ok {
		return sourceError("vocabulary", "too many pieces share a hash")
	}
	b := make([]byte, 0, 4*len(table))
	for _, v := range table {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	l.counts[countPieceSlots] = uint32(len(table))
	l.sections[sectionSlots] = b
	return nil
}

// writeMerges writes the hash table from a pair of ids to the rank of its rule,
// 60% full, and the ids that the rules yield.
func (s *source) writeMerges(l *layout) error {
	merged := make([]byte, 0, 4*len(s.merges))
	ranks := make(map[uint64]int, len(s.merges))
	rank := 0
	for n, m := range s.merges {
		merged = binary.LittleEndian.AppendUint32(merged, uint32(m[2]))
		if !s.scored || n == 0 || s.merges[n-1][2] != m[2] {
			rank = n
		}
		ranks[mergeKey(m[0], m[1])] = rank
	}
	homes := mergeHomes(uint32(len(s.merges)))
	entries := make([]entry, 0, len(ranks))
	for key, rank := range ranks {
		entries = append(entries, entry{homeSlot(mix(key), homes), key<<rankBits | uint64(rank)})
	}
	table, ok := spread(entries, homes, emptyMerge)
	if !ok {
		return sourceError("merges", "too many pairs share a hash")
	}
	b := make([]byte, 0, 8*len(table))
	for _, v := range table {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	for _, m := range s.merges {
		if l.sections[sectionFlags][m[2]]&blockedInPlain != 0 {
			l.counts[countBlocked]++
		}
	}
	l.counts[countMerges] = uint32(len(s.merges))
	l.counts[countMergeSlots] = uint32(len(table))
	l.sections[sectionMerges] = b
	l.sections[sectionMerged] = merged
	return nil
}

// writeBytes writes the ids that stand for the bytes.
func (s *source) writeBytes(l *layout) {
	var b []byte
	for c := range 256 {
		b = binary.LittleEndian.AppendUint32(b, uint32(s.ids[bytePiece(byte(c))]))
	}
	l.sections[sectionBytes] = b
}

// writePairs writes which characters a merge may join, the last one of its left
// piece and the first one of its right piece. Between any other two characters
// no merge can ever happen, so that Encode may cut there: the first merge over
// a border joins a piece that ends at it and one that starts at it.
func (s *source) writePairs(l *layout) {
	pairs := make(map[[2]rune]bool)
	for _, m := range s.merges {
		x, _ := utf8.DecodeLastRuneInString(s.pieces[m[0]])
		y, _ := utf8.DecodeRuneInString(s.pieces[m[1]])
		pairs[[2]rune{textRune(x), textRune(y)}] = true
	}
	ascii := make([]byte, 128*16)
	others := 0
	for p := range pairs {
		if p[0] < utf8.RuneSelf && p[1] < utf8.RuneSelf {
			ascii[p[0]*16+p[1]/8] |= 1 << (p[1] % 8)
		} else {
			others++
		}
	}
	// Eight bits a pair leave one of eight other pairs uncut, at most.
	log2 := uint32(max(6, bits.Len(uint(8*others))))
	filter := make([]byte, 1<<log2/8)
	for p := range pairs {
		if p[0] >= utf8.RuneSelf || p[1] >= utf8.RuneSelf {
			bit := pairBit(p[0], p[1], log2)
			filter[bit/8] |= 1 << (bit % 8)
		}
	}
	l.counts[countPairBits] = log2
	l.sections[sectionASCII] = ascii
	l.sections[sectionPairs] = filter
}

// markWhole sets flagWhole, in the bytes that t was opened with, on the pieces that their own characters merge into,
// whether or not guarded tokens may come out of merges. A word that is such a
// piece needs no merging.
func (t *Tokenizer) markWhole(s *source) {
	w := new(work)
	flags := t.flags
	for id, piece := range s.pieces {
		text, literal := textForm(piece)
		if piece == "" || literal {
			continue
		}
		whole := true
		for _, mode := range []*mode{&t.marked, &t.plain} {
			w.ids = t.merge(w.ids[:0], []byte(text), w, mode)
			whole = whole && len(w.ids) == 1 && w.ids[0] == int32(id)
		}
		if whole {
			flags[id] |= flagWhole
		}
	}
}
