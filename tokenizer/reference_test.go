package tokenizer_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode"
)

// reference is a second encoder, as plain as can be: it reads tokenizer.json
// into maps and follows the definition step by step, in quadratic time. What
// it takes for granted, testdata's golden file proves.
type reference struct {
	vocab map[string]int32
	rank  map[[2]string]int
	added map[string]int32
	// marker holds the added tokens that plain text must not become.
	marker map[string]bool
}

// newReference reads a tokenizer.json.
func newReference(t testing.TB, src []byte) *reference {
	t.Helper()
	var file struct {
		Added []struct {
			ID      int32
			Content string
			Special bool
		} `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int32
			Merges []any
		}
	}
	if err := json.Unmarshal(src, &file); err != nil {
		t.Fatal(err)
	}
	r := &reference{vocab: file.Model.Vocab, rank: map[[2]string]int{}, added: map[string]int32{}, marker: map[string]bool{}}
	for rank, m := range file.Model.Merges {
		switch m := m.(type) {
		case string:
			r.rank[[2]string(strings.Split(m, " "))] = rank
		case []any:
			r.rank[[2]string{m[0].(string), m[1].(string)}] = rank
		}
	}
	for _, a := range file.Added {
		r.added[a.Content] = a.ID
		blank := strings.TrimFunc(a.Content, func(c rune) bool { return c == '▁' || unicode.IsSpace(c) }) == ""
		r.marker[a.Content] = a.Special || !blank
	}
	return r
}

// encode returns the ids of a valid text.
func (r *reference) encode(text string, markers bool) []int32 {
	var ids []int32
	start := 0
	for i := 0; i < len(text); {
		longest := ""
		for token := range r.added {
			if strings.HasPrefix(text[i:], token) && len(token) > len(longest) && (markers || !r.marker[token]) {
				longest = token
			}
		}
		if longest == "" {
			i++
			continue
		}
		ids = append(append(ids, r.bpe(text[start:i], markers)...), r.added[longest])
		i += len(longest)
		start = i
	}
	return append(ids, r.bpe(text[start:], markers)...)
}

// bpe returns the ids of a text without added tokens.
func (r *reference) bpe(text string, markers bool) []int32 {
	blocked := func(piece string) bool {
		return !markers && (r.marker[piece] || len(piece) == 6 && strings.HasPrefix(piece, "<0x") && r.isByte(piece))
	}
	var parts []string
	for _, c := range strings.ReplaceAll(text, " ", "▁") {
		piece := string(c)
		if _, ok := r.vocab[piece]; ok && !blocked(piece) {
			parts = append(parts, piece)
			continue
		}
		for _, b := range []byte(piece) {
			parts = append(parts, fmt.Sprintf("<0x%02X>", b))
		}
	}
	for {
		best, at := math.MaxInt, -1
		for i := 1; i < len(parts); i++ {
			if rank, ok := r.rank[[2]string{parts[i-1], parts[i]}]; ok && rank < best && !blocked(parts[i-1]+parts[i]) {
				best, at = rank, i-1
			}
		}
		if at < 0 {
			break
		}
		parts[at] += parts[at+1]
		parts = append(parts[:at+1], parts[at+2:]...)
	}
	var ids []int32
	for _, piece := range parts {
		ids = append(ids, r.vocab[piece])
	}
	return ids
}

// isByte reports whether a piece of the form <0x..> stands for a byte.
func (r *reference) isByte(piece string) bool {
	var b byte
	n, err := fmt.Sscanf(piece, "<0x%02x>", &b)
	return n == 1 && err == nil
}
