package tokenizer

import (
	"encoding/binary"
	"sync"
)

// Tokenizer turns text into token ids and back. It reads the compiled bytes it
// was opened with in place. All its methods are safe for concurrent use.
type Tokenizer struct {
	offsets, pieces, flags []byte // by id
	slots                  []byte // hash table: text form -> id
	merges, merged         []byte // hash table: pair -> rank; rank -> id
	pairs                  []byte // which characters outside ASCII may be joined
	trie                   trie
	pieceHomes, mergeHomes uint32
	pairBits               uint32
	maxPiece               int

	ascii    [128][2]uint64 // which ASCII characters may be joined
	byteIDs  [256]int32
	starts   [2][256]bool // bytes at which an added token may start: any; not guarded
	marked   mode
	plain    mode
	specials []int32

	pool sync.Pool // of *work
}

// mode is what differs between text with and without markers.
type mode struct {
	// blocked are the flags of pieces that characters and merges do not become.
	blocked byte
	// checked says that there are merges into blocked pieces.
	checked bool
	// chars holds the ids of the ASCII characters, or -1.
	chars [128]int32
}

// Open makes a Tokenizer of bytes that Compile wrote. They may be memory-mapped;
// they are used in place, must not change, and must stay readable as long as
// the Tokenizer is in use. Opening takes about a millisecond for Gemma's
// 262,144 pieces.
//
// Bytes that are truncated, written by another version, or altered so that an
// index in them leads astray get a *FormatError, which matches
// fault.ErrIntegrity; the hash tables are bound by their look-ups instead.
// Whatever the bytes, no method panics or loops, and every id it returns is
// below VocabSize. Whether they are the right bytes is for their owner to know,
// who keeps a digest.
func Open(compiled []byte) (*Tokenizer, error) {
	l, err := unpack(compiled)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{
		offsets:    l.sections[sectionOffsets],
		pieces:     l.sections[sectionPieces],
		flags:      l.sections[sectionFlags],
		slots:      l.sections[sectionSlots],
		merges:     l.sections[sectionMerges],
		merged:     l.sections[sectionMerged],
		pairs:      l.sections[sectionPairs],
		trie:       l.sections[sectionNodes],
		pieceHomes: pieceHomes(l.counts[countIDs]),
		mergeHomes: mergeHomes(l.counts[countMerges]),
		pairBits:   l.counts[countPairBits],
		maxPiece:   int(l.counts[countMaxPiece]),
		plain:      mode{blocked: blockedInPlain, checked: l.counts[countBlocked] > 0},
	}
	t.pool.New = func() any { return new(work) }
	if t.pieceHomes >= l.counts[countPieceSlots] || t.mergeHomes >= l.counts[countMergeSlots] {
		return nil, formatError("header", "%d and %d slots are too few for %d ids and %d merges", l.counts[countPieceSlots],
			l.counts[countMergeSlots], l.counts[countIDs], l.counts[countMerges])
	}
	if err := t.checkPieces(); err != nil {
		return nil, err
	}
	if err := t.checkMerged(); err != nil {
		return nil, err
	}
	if err := t.trie.check(l.counts[countIDs]); err != nil {
		return nil, err
	}
	if err := t.readBytes(l.sections[sectionBytes]); err != nil {
		return nil, err
	}
	for x := range t.ascii {
		for half := range t.ascii[x] {
			t.ascii[x][half] = binary.LittleEndian.Uint64(l.sections[sectionASCII][x*16+half*8:])
		}
	}
	t.readChars(&t.marked)
	t.readChars(&t.plain)
	return t, nil
}

// checkPieces proves that every piece lies within the pieces, and reads the
// flags: where an added token may start, in raw text, and which are special.
func (t *Tokenizer) checkPieces() error {
	start := uint32(0)
	for at := 0; at < len(t.offsets); at += 4 {
		end := binary.LittleEndian.Uint32(t.offsets[at:])
		if end < start || uint64(end) > uint64(len(t.pieces)) {
			return formatError("offsets", "piece %d starts at %d of %d bytes, the one before at %d", at/4, end, len(t.pieces), start)
		}
		start = end
	}
	for id, flags := range t.flags {
		if flags&^flagsKnown != 0 {
			return formatError("flags", "piece %d has the flags %#x", id, flags)
		}
		if flags&flagAdded == 0 {
			continue
		}
		text := t.text(int32(id))
		if len(text) == 0 {
			return formatError("flags", "added token %d is empty", id)
		}
		first := text[0]
		places := []byte{first}
		if first == ' ' {
			// A literal space may be written as "▁", too: the trie tells.
			places = []byte{first, space[0]}
			if flags&flagLiteral == 0 {
				places = places[1:]
			}
		}
		for _, c := range places {
			t.starts[0][c] = true
			if flags&flagGuarded == 0 {
				t.starts[1][c] = true
			}
		}
		if flags&flagSpecial != 0 {
			t.specials = append(t.specials, int32(id))
		}
	}
	return nil
}

// checkMerged proves that rules yield ids. The hash tables are checked where
// they are used, as most of them never are.
func (t *Tokenizer) checkMerged() error {
	for b := t.merged; len(b) >= 4; b = b[4:] {
		if id := binary.LittleEndian.Uint32(b); uint64(id) >= uint64(len(t.flags)) {
			return formatError("merged", "a rule yields the id %d, want less than %d", id, len(t.flags))
		}
	}
	return nil
}

// readBytes reads the ids of the byte pieces and checks that each decodes to
// its byte.
func (t *Tokenizer) readBytes(section []byte) error {
	for c := range t.byteIDs {
		id := binary.LittleEndian.Uint32(section[4*c:])
		if uint64(id) >= uint64(len(t.flags)) || t.flags[id]&(flagByte|flagGuarded) != flagByte {
			return formatError("bytes", "the id %d does not stand for the byte %#02x", id, c)
		}
		if b, ok := parseBytePiece(string(t.text(int32(id)))); !ok || b != byte(c) {
			return formatError("bytes", "piece %d does not stand for the byte %#02x", id, c)
		}
		t.byteIDs[c] = int32(id)
	}
	return nil
}

// readChars looks the ASCII characters up.
func (t *Tokenizer) readChars(m *mode) {
	for c := range m.chars {
		m.chars[c] = t.char([]byte{byte(c)}, m)
	}
}
