package tokenizer

import (
	"encoding/binary"
	"math/bits"
)

// Odd constants with well-mixed bits.
const (
	mixA = 0x9e3779b97f4a7c15
	mixB = 0xd6e8feb86659fd93
)

// hashPiece returns a hash of b that is the same on every machine: it is part
// of the compiled form.
func hashPiece(b []byte) uint64 {
	le := binary.LittleEndian
	h := uint64(len(b)) * mixA
	for len(b) > 8 {
		h = mix(h ^ le.Uint64(b))
		b = b[8:]
	}
	var last uint64
	switch n := len(b); {
	case n == 8:
		last = le.Uint64(b)
	case n >= 4:
		last = uint64(le.Uint32(b)) | uint64(le.Uint32(b[n-4:]))<<32
	case n > 0:
		last = uint64(b[0]) | uint64(b[n/2])<<8 | uint64(b[n-1])<<16
	}
	return mix(h ^ last)
}

// mix spreads every bit of x over the result.
func mix(x uint64) uint64 {
	high, low := bits.Mul64(x^mixB, mixA)
	return high ^ low
}

// homeSlot maps a hash to one of n slots, by its upper bits.
func homeSlot(hash uint64, n uint32) int {
	high, _ := bits.Mul64(hash, uint64(n))
	return int(high)
}

// pieceTag returns the bits of a hash that are kept in a piece's slot.
func pieceTag(hash uint64) uint32 { return uint32(hash) & tagMask }

// mergeKey joins the ids of a pair.
func mergeKey(left, right int32) uint64 {
	return uint64(uint32(left))<<idBits | uint64(uint32(right))
}

// pairBit returns the bit that stands for the characters x and y, in this
// order, in a filter of 2^log2 bits.
func pairBit(x, y rune, log2 uint32) uint64 {
	return (uint64(uint32(x))<<21 | uint64(uint32(y))) * mixA >> (64 - log2)
}

// pieceHomes returns how many slots of the piece table are a home: the table
// is half full.
func pieceHomes(ids uint32) uint32 { return 2*ids + 1 }

// mergeHomes returns how many slots of the merge table are a home: the table
// is 60% full.
func mergeHomes(merges uint32) uint32 { return uint32(uint64(merges)*5/3) + 1 }
