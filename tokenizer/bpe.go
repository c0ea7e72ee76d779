package tokenizer

import (
	"math"
	"slices"
	"unicode/utf8"
)

// shortWord is the number of symbols up to which a search through all of them
// beats keeping them in order.
const shortWord = 32

// symbol is a part of a word while it is merged, in a doubly linked list.
type symbol struct {
	id         int32
	rank       uint32 // of the rule that merges it with the next symbol
	prev, next int32  // -1 at the ends
}

// merge appends the ids that the merge rules make of text: of all rules that
// apply, the one of the lowest rank is applied first, and where it applies in
// several places, the leftmost.
func (t *Tokenizer) merge(dst []int32, text []byte, w *work, m *mode) []int32 {
	w.ids = t.spell(w.ids[:0], text, m)
	if len(w.ids) <= shortWord {
		return append(dst, t.mergeShort(w, m)...)
	}
	return t.mergeLong(dst, w, m)
}

// spell appends the ids of the characters of text; those without a piece are
// spelled in bytes.
func (t *Tokenizer) spell(dst []int32, text []byte, m *mode) []int32 {
	for len(text) > 0 {
		size, id := 1, int32(-1)
		if text[0] < utf8.RuneSelf {
			id = m.chars[text[0]]
		} else {
			_, size = utf8.DecodeRune(text)
			id = t.char(text[:size], m)
		}
		if id >= 0 {
			dst = append(dst, id)
		} else {
			for _, b := range text[:size] {
				dst = append(dst, t.byteIDs[b])
			}
		}
		text = text[size:]
	}
	return dst
}

// mergeShort merges w.ids in place and returns what is left.
func (t *Tokenizer) mergeShort(w *work, m *mode) []int32 {
	ids, ranks := w.ids, w.ranks[:0]
	for i := 1; i < len(ids); i++ {
		ranks = append(ranks, t.rank(ids[i-1], ids[i], m))
	}
	w.ranks = ranks
	for {
		best, at := uint32(noRank), 0
		for i, r := range ranks {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			return ids
		}
		ids[at] = t.yield(best)
		copy(ids[at+1:], ids[at+2:])
		ids = ids[:len(ids)-1]
		copy(ranks[at:], ranks[at+1:])
		ranks = ranks[:len(ranks)-1]
		if at > 0 {
			ranks[at-1] = t.rank(ids[at-1], ids[at], m)
		}
		if at < len(ranks) {
			ranks[at] = t.rank(ids[at], ids[at+1], m)
		}
	}
}

// mergeLong merges w.ids by means of a heap and appends the result. A heap
// entry is the rank of a pair and the place of its left symbol; one whose
// symbol meanwhile has another rank is passed over.
func (t *Tokenizer) mergeLong(dst []int32, w *work, m *mode) []int32 {
	symbols, heap := slices.Grow(w.symbols[:0], len(w.ids)), slices.Grow(w.heap[:0], len(w.ids))
	for i, id := range w.ids {
		s := symbol{id: id, rank: noRank, prev: int32(i) - 1, next: int32(i) + 1}
		if i+1 == len(w.ids) {
			s.next = -1
		} else if s.rank = t.rank(id, w.ids[i+1], m); s.rank != noRank {
			heap = append(heap, heapEntry(s.rank, int32(i)))
		}
		symbols = append(symbols, s)
	}
	for i := (len(heap) - 2) / heapArity; i >= 0; i-- {
		siftDown(heap, i)
	}
	// pair looks up what merges the symbol at i with its next one.
	pair := func(i int32) {
		s := &symbols[i]
		s.rank = noRank
		if s.next >= 0 {
			if s.rank = t.rank(s.id, symbols[s.next].id, m); s.rank != noRank {
				heap = append(heap, heapEntry(s.rank, i))
				siftUp(heap)
			}
		}
	}
	for len(heap) > 0 {
		rank, i := uint32(heap[0]>>32), int32(heap[0]&math.MaxUint32)
		last := len(heap) - 1
		heap[0] = heap[last]
		heap = heap[:last]
		siftDown(heap, 0)
		s := &symbols[i]
		if s.rank != rank {
			continue
		}
		gone := s.next
		s.id = t.yield(rank)
		s.next = symbols[gone].next
		symbols[gone].rank = noRank
		if s.next >= 0 {
			symbols[s.next].prev = i
		}
		pair(i)
		if s.prev >= 0 {
			pair(s.prev)
		}
	}
	for i := int32(0); i >= 0; i = symbols[i].next {
		dst = append(dst, symbols[i].id)
	}
	w.symbols, w.heap = symbols, heap
	return dst
}

// heapArity is the number of children of a heap entry: four of them share a
// cache line.
const heapArity = 4

// heapEntry orders by rank, then by place.
func heapEntry(rank uint32, place int32) uint64 { return uint64(rank)<<32 | uint64(uint32(place)) }

// siftDown moves the entry at i down to where it belongs.
func siftDown(heap []uint64, i int) {
	if i >= len(heap) {
		return
	}
	e := heap[i]
	for {
		first := i*heapArity + 1
		if first >= len(heap) {
			break
		}
		least := first
		for c := first + 1; c < min(first+heapArity, len(heap)); c++ {
			if heap[c] < heap[least] {
				least = c
			}
		}
		if heap[least] >= e {
			break
		}
		heap[i] = heap[least]
		i = least
	}
	heap[i] = e
}

// siftUp moves the last entry up to where it belongs.
func siftUp(heap []uint64) {
	i := len(heap) - 1
	e := heap[i]
	for i > 0 {
		parent := (i - 1) / heapArity
		if heap[parent] <= e {
			break
		}
		heap[i] = heap[parent]
		i = parent
	}
	heap[i] = e
}
