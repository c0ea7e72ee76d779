package tokenizer

import (
	"encoding/binary"
	"slices"
	"strings"
)

// trie finds added tokens in raw text. Its nodes are stored level by level, so
// that the children of a node lie side by side, sorted by their byte, and
// behind it. A node is three words: the number of its first child; the id of
// the token that ends here plus one, or 0; its byte, and the number of its
// children times 256.
type trie []byte

// word returns one of the three words of a node.
func (t trie) word(node, i uint32) uint32 {
	return binary.LittleEndian.Uint32(t[uint64(node)*nodeBytes+uint64(i)*4:])
}

// child returns the child of node for the byte c, or 0.
func (t trie) child(node uint32, c byte) uint32 {
	low, n := t.word(node, 0), t.word(node, 2)>>8
	for n > 0 {
		half := n / 2
		switch label := byte(t.word(low+half, 2)); {
		case label == c:
			return low + half
		case label < c:
			low, n = low+half+1, n-half-1
		default:
			n = half
		}
	}
	return 0
}

// check proves that every index in the trie is in range. A walk is as short as
// the text, whatever the order of the nodes.
func (t trie) check(ids uint32) error {
	nodes := uint32(len(t) / nodeBytes)
	for node := range nodes {
		first, id, n := t.word(node, 0), t.word(node, 1), t.word(node, 2)>>8
		if n > 0 && (first >= nodes || n > nodes-first) {
			return formatError("nodes", "node %d has %d children at %d of %d", node, n, first, nodes)
		}
		if id > ids {
			return formatError("nodes", "node %d has the id %d, want less than %d", node, id-1, ids)
		}
	}
	return nil
}

// writeNodes writes the trie of all added tokens.
func (s *source) writeNodes(l *layout) {
	tokens := slices.Clone(s.added)
	slices.SortFunc(tokens, func(a, b added) int { return strings.Compare(a.text, b.text) })
	// A node stands for the tokens that share its prefix. One at which a "▁" ends has
	// the children of its twin, at which a space ends. There may be millions.
	type node struct {
		low, end int32 // its tokens
		twin     int32 // the twin of the node at which the "▁" will end, or 0
		depth    int16
		label    byte
		spelled  uint8 // how many bytes of the "▁" have been read
	}
	queue := []node{{end: int32(len(tokens))}}
	var b []byte
	for at := 0; at < len(queue); at++ {
		n := queue[at]
		if int(n.spelled) == len(space) {
			twin := trie(b)
			first, id, children := twin.word(uint32(n.twin), 0), twin.word(uint32(n.twin), 1), twin.word(uint32(n.twin), 2)>>8
			b = appendNode(b, first, id, children, n.label)
			continue
		}
		var id uint32
		low := n.low
		if low < n.end && len(tokens[low].text) == int(n.depth) {
			id = uint32(tokens[low].id) + 1
			low++
		}
		first, twin := len(queue), n.twin
		for low < n.end {
			c, end := tokens[low].text[n.depth], low+1
			for end < n.end && tokens[end].text[n.depth] == c {
				end++
			}
			if c == ' ' && s.spaced {
				twin = int32(len(queue))
			}
			queue = append(queue, node{low: low, end: end, depth: n.depth + 1, label: c})
			low = end
		}
		if twin > 0 {
			// The next byte of the "▁" may be that of other tokens' characters, too.
			c := space[n.spelled]
			i := first
			for i < len(queue) && queue[i].label < c {
				i++
			}
			if i == len(queue) || queue[i].label != c {
				queue = slices.Insert(queue, i, node{depth: n.depth + 1, label: c})
			}
			queue[i].twin, queue[i].spelled = twin, n.spelled+1
		}
		b = appendNode(b, uint32(first), id, uint32(len(queue)-first), n.label)
	}
	l.counts[countNodes] = uint32(len(queue))
	l.sections[sectionNodes] = b
}

// appendNode appends the three words of a node.
func appendNode(b []byte, first, id, children uint32, label byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, first)
	b = binary.LittleEndian.AppendUint32(b, id)
	return binary.LittleEndian.AppendUint32(b, children<<8|uint32(label))
}

// match returns the longest added token at the start of text and its length,
// or 0. Guarded tokens count only up to the length trusted.
func (t *Tokenizer) match(text []byte, trusted int) (id int32, length int) {
	node := uint32(0)
	for i, c := range text {
		if node = t.trie.child(node, c); node == 0 {
			break
		}
		if end := t.trie.word(node, 1); end > 0 && (i < trusted || t.flags[end-1]&flagGuarded == 0) {
			id, length = int32(end-1), i+1
		}
	}
	return id, length
}
