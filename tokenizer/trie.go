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
	// A node stands for the tokens that share its prefix.
	type node struct {
		tokens []added
		depth  int
		label  byte
	}
	queue := []node{{tokens: tokens}}
	var b []byte
	for at := 0; at < len(queue); at++ {
		n := queue[at]
		var id uint32
		rest := n.tokens
		if len(rest) > 0 && len(rest[0].text) == n.depth {
			id = uint32(rest[0].id) + 1
			rest = rest[1:]
		}
		first := len(queue)
		for len(rest) > 0 {
			c, end := rest[0].text[n.depth], 1
			for end < len(rest) && rest[end].text[n.depth] == c {
				end++
			}
			queue = append(queue, node{rest[:end], n.depth + 1, c})
			rest = rest[end:]
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(first))
		b = binary.LittleEndian.AppendUint32(b, id)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(queue)-first)<<8|uint32(n.label))
	}
	l.counts[countNodes] = uint32(len(queue))
	l.sections[sectionNodes] = b
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
