package tokenizer

import (
	"encoding/binary"
)

// text returns the text form of a piece, in place. id must be in range.
func (t *Tokenizer) text(id int32) []byte {
	b := t.offsets[4*int(id):]
	return t.pieces[binary.LittleEndian.Uint32(b):binary.LittleEndian.Uint32(b[4:])]
}

// probe returns the slots of a hash table in which something at home may lie,
// of size bytes each: Compile leaves no longer runs of occupied slots.
func probe(table []byte, home, size int) []byte {
	return table[home*size : min((home+maxCluster+1)*size, len(table))]
}

// find returns the id of the piece with this text form, or -1. Literal pieces
// are found only if literal is flagLiteral, the others only if it is 0.
func (t *Tokenizer) find(text []byte, literal byte) int32 {
	hash := hashPiece(text)
	tag := pieceTag(hash)
	for b := probe(t.slots, homeSlot(hash, t.pieceHomes), 4); len(b) >= 4; b = b[4:] {
		slot := binary.LittleEndian.Uint32(b)
		if slot == emptySlot {
			break
		}
		if slot>>idBits != tag {
			continue
		}
		if id := int(slot & maxIDs); id < len(t.flags) && t.flags[id]&flagLiteral == literal && string(t.text(int32(id))) == string(text) {
			return int32(id)
		}
	}
	return -1
}

// char returns the id of a single character, or -1 when it is spelled in bytes.
func (t *Tokenizer) char(text []byte, m *mode) int32 {
	id := t.find(text, 0)
	if id >= 0 && t.flags[id]&m.blocked != 0 {
		return -1
	}
	return id
}

// rank returns the rank of the rule that merges left and right, or noRank.
func (t *Tokenizer) rank(left, right int32, m *mode) uint32 {
	key := mergeKey(left, right)
	for b := probe(t.merges, homeSlot(mix(key), t.mergeHomes), 8); len(b) >= 8; b = b[8:] {
		slot := binary.LittleEndian.Uint64(b)
		if slot>>rankBits == key {
			rank := uint32(slot & noRank)
			if int(rank) >= len(t.merged)/4 || m.checked && t.flags[t.yield(rank)]&m.blocked != 0 {
				return noRank
			}
			return rank
		}
		if slot == emptyMerge {
			break
		}
	}
	return noRank
}

// yield returns the id that a rule yields.
func (t *Tokenizer) yield(rank uint32) int32 {
	return int32(binary.LittleEndian.Uint32(t.merged[4*int(rank):]))
}
