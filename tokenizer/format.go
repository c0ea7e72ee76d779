package tokenizer

import (
	"encoding/binary"
)

// The compiled form is one block of little-endian bytes:
//
//	header    magic, version, section count, counts, section table
//	sections  each at a multiple of 64 bytes, zero bytes between them
//
// A piece is stored in its text form, in which "▁" is a space: what Encode
// meets in a text and what Decode writes. A piece that holds a real space is
// stored as it is and marked literal; it can be an added token but never the
// outcome of a merge, as the normalizer leaves no spaces.
const (
	formatMagic   = "ZOOBPE\r\n" // the line end shows a transfer that altered it
	formatVersion = 1

	sectionAlign = 64
	headerBytes  = 8 + 4 + 4 + countWords*4 + sectionCount*16
)

// Limits on what is compiled and opened. Gemma's tokenizers have 262,144
// pieces, 514,906 merges and pieces of at most 93 bytes.
const (
	idBits        = 21
	rankBits      = 22
	maxIDs        = 1<<idBits - 1
	maxMerges     = 1<<rankBits - 1
	maxPieceBytes = 512
	maxPairBits   = 26
	// maxAddedBytes bounds all added tokens together, of which Gemma's have 77 kB. Each
	// byte makes a node of the trie at most, and a space three more: see writeNodes.
	maxAddedBytes = 4 << 20
	maxNodes      = 1 + 4*maxAddedBytes
	// maxCluster bounds how many occupied slots of a hash table lie in a row,
	// and with that the time of any look-up, also in tables not made by Compile.
	maxCluster = 1024
)

// The counts in the header, in the order in which they are stored.
const (
	countIDs        = iota // largest id + 1
	countMerges            // merge rules
	countNodes             // nodes of the added-token trie
	countPieceSlots        // slots of the piece hash table
	countMergeSlots        // slots of the merge hash table
	countPairBits          // log2 of the size of the pair filter in bits
	countMaxPiece          // length of the longest piece in bytes, in text form
	countBlocked           // merge rules into pieces that plain text must not become
	countWords
)

// The sections, in the order in which they are stored.
const (
	sectionOffsets = iota // [ids+1] u32: where each piece starts in sectionPieces
	sectionPieces         // the text forms of all pieces, by id
	sectionFlags          // [ids] u8: see the flag constants
	sectionSlots          // [piece slots] u32: id | tag<<21, or emptySlot
	sectionMerges         // [merge slots] u64: left<<43 | right<<22 | rank, or emptyMerge
	sectionMerged         // [merges] u32: the id that the rule of this rank yields
	sectionBytes          // [256] u32: the id that stands for each byte
	sectionNodes          // [nodes] 3*u32: see trie
	sectionASCII          // [128] 2*u64: bit y of row x: a merge may join x and y
	sectionPairs          // the same for other characters, as a filter of 2^bits bits
	sectionCount
)

// sectionNames names the sections in errors.
var sectionNames = [sectionCount]string{
	"offsets", "pieces", "flags", "slots", "merges", "merged", "bytes", "nodes", "ascii", "pairs",
}

// Flags of a piece.
const (
	flagPresent byte = 1 << iota // the id is in use
	flagSpecial                  // an added token that is marked special
	flagAdded                    // an added token
	flagGuarded                  // an added token that text must never become
	flagLiteral                  // holds a real space, so is not in text form
	flagByte                     // stands for one byte, such as <0x0A>
	flagWhole                    // merging its characters yields just this piece
	flagsKnown  = 1<<iota - 1

	// blockedInPlain are the pieces that plain text must not become.
	blockedInPlain = flagGuarded | flagByte
)

const (
	emptySlot  = 1<<32 - 1
	emptyMerge = 1<<64 - 1
	// tagMask takes those bits of a piece's hash that its slot can hold.
	tagMask = 1<<(32-idBits) - 1
	// noRank stands for a pair that no rule merges; it is above every rank.
	noRank = 1<<rankBits - 1
)

// nodeBytes is the size of a trie node.
const nodeBytes = 12

// layout holds the counts of a compiled tokenizer and its sections.
type layout struct {
	counts   [countWords]uint32
	sections [sectionCount][]byte
}

// sectionBytes returns the length that a section must have for the counts, or
// -1 when the counts leave it open.
func (l *layout) sectionBytes(section int) int64 {
	n := func(count int) int64 { return int64(l.counts[count]) }
	switch section {
	case sectionOffsets:
		return 4 * (n(countIDs) + 1)
	case sectionFlags:
		return n(countIDs)
	case sectionSlots:
		return 4 * n(countPieceSlots)
	case sectionMerges:
		return 8 * n(countMergeSlots)
	case sectionMerged:
		return 4 * n(countMerges)
	case sectionBytes:
		return 4 * 256
	case sectionNodes:
		return nodeBytes * n(countNodes)
	case sectionASCII:
		return 128 * 16
	case sectionPairs:
		return 1 << n(countPairBits) / 8
	}
	return -1
}

// pack writes the header and the sections as one block.
func (l *layout) pack() []byte {
	size := align(headerBytes)
	for _, s := range l.sections {
		size = align(size + len(s))
	}
	out := make([]byte, size)
	le := binary.LittleEndian
	copy(out, formatMagic)
	le.PutUint32(out[8:], formatVersion)
	le.PutUint32(out[12:], sectionCount)
	for i, n := range l.counts {
		le.PutUint32(out[16+4*i:], n)
	}
	table := out[16+4*countWords:]
	at := align(headerBytes)
	for i, s := range l.sections {
		le.PutUint64(table[16*i:], uint64(at))
		le.PutUint64(table[16*i+8:], uint64(len(s)))
		copy(out[at:], s)
		at = align(at + len(s))
	}
	return out
}

// unpack reads the header of b and cuts b into its sections, without copying.
// Every section lies where pack would put it and has the length that the
// counts ask for.
func unpack(b []byte) (*layout, error) {
	if len(b) < headerBytes {
		return nil, formatError("header", "%d bytes are too few", len(b))
	}
	if string(b[:8]) != formatMagic {
		return nil, formatError("header", "starts with %q, want %q", b[:8], formatMagic)
	}
	le := binary.LittleEndian
	if v := le.Uint32(b[8:]); v != formatVersion {
		return nil, formatError("header", "version %d, this program reads version %d", v, formatVersion)
	}
	if n := le.Uint32(b[12:]); n != sectionCount {
		return nil, formatError("header", "%d sections, want %d", n, sectionCount)
	}
	l := new(layout)
	for i := range l.counts {
		l.counts[i] = le.Uint32(b[16+4*i:])
	}
	if err := l.checkCounts(); err != nil {
		return nil, err
	}
	table := b[16+4*countWords:]
	at := uint64(align(headerBytes))
	for i, name := range sectionNames {
		off, n := le.Uint64(table[16*i:]), le.Uint64(table[16*i+8:])
		if off != at {
			return nil, formatError(name, "starts at byte %d, want %d", off, at)
		}
		if off > uint64(len(b)) || n > uint64(len(b))-off {
			return nil, formatError(name, "%d bytes at %d do not fit in %d bytes", n, off, len(b))
		}
		if want := l.sectionBytes(i); want >= 0 && n != uint64(want) {
			return nil, formatError(name, "%d bytes, want %d", n, want)
		}
		l.sections[i] = b[off : off+n : off+n]
		at = (off + n + sectionAlign - 1) &^ (sectionAlign - 1)
	}
	if at != uint64(len(b)) {
		return nil, formatError("header", "%d bytes in all, want %d", len(b), at)
	}
	return l, nil
}

// checkCounts compares the counts with the limits.
func (l *layout) checkCounts() error {
	limits := [countWords]struct {
		name     string
		min, max uint32
	}{
		countIDs:        {"ids", 256, maxIDs},
		countMerges:     {"merges", 0, maxMerges},
		countNodes:      {"nodes", 1, maxNodes},
		countPieceSlots: {"piece slots", 1, maxIDs * 4},
		countMergeSlots: {"merge slots", 1, maxMerges * 4},
		countPairBits:   {"pair bits", 6, maxPairBits},
		countMaxPiece:   {"longest piece", 6, maxPieceBytes},
		countBlocked:    {"blocked merges", 0, maxMerges},
	}
	for i, limit := range limits {
		if n := l.counts[i]; n < limit.min || n > limit.max {
			return formatError("header", "%s is %d, want %d to %d", limit.name, n, limit.min, limit.max)
		}
	}
	return nil
}

// align rounds n up to the next place where a section may start.
func align(n int) int { return (n + sectionAlign - 1) &^ (sectionAlign - 1) }
