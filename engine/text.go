package engine

import (
	"fmt"
	"unicode/utf8"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// Decoder turns tokens into text as far as whole characters are known. A
// stream of package tokenizer is one.
type Decoder interface {
	// Push takes a token and returns the text that it completes.
	Push(id int32) string
	// Flush returns what is left at the end.
	Flush() string
}

// TextStream turns tokens into text up to the first stop string, wherever the
// borders of tokens lie. Of several stop strings the one that is complete
// first counts, and of those that end at the same character the longest. Text
// that may be the beginning of a stop string is held back until that is
// decided; nothing of a stop string is given.
//
// It works in time proportional to the text for each stop string. It is used
// by one goroutine at a time.
type TextStream struct {
	decoder Decoder
	stops   []matcher
	buf     []byte // held back text starts at head
	head    int
	stopped bool
}

// NewTextStream returns a stream at the start of a text. Stop strings must be
// valid UTF-8 and not empty; otherwise the error matches fault.ErrUsage.
func NewTextStream(d Decoder, stops []string) (*TextStream, error) {
	t := &TextStream{decoder: d, stops: make([]matcher, 0, len(stops))}
	for i, s := range stops {
		if s == "" || !utf8.ValidString(s) {
			return nil, fmt.Errorf("%w: stop string %d is %q, which is empty or not valid UTF-8", fault.ErrUsage, i, s)
		}
		t.stops = append(t.stops, newMatcher(s))
	}
	return t, nil
}

// Push takes a token and returns the text that is decided by it, often "".
// After a stop string everything is ignored.
func (t *TextStream) Push(id int32) string {
	if t.stopped {
		return ""
	}
	return t.add(t.decoder.Push(id))
}

// Flush ends the text: it returns what was held back, up to a stop string.
func (t *TextStream) Flush() string {
	if t.stopped {
		return ""
	}
	text := t.add(t.decoder.Flush())
	if !t.stopped {
		text += string(t.buf[t.head:])
		t.buf, t.head = nil, 0
	}
	return text
}

// Stopped reports whether a stop string was found: generation can end.
func (t *TextStream) Stopped() bool { return t.stopped }

// add takes a piece of text and returns what is decided.
func (t *TextStream) add(piece string) string {
	if len(t.stops) == 0 {
		return piece
	}
	before := len(t.buf) - t.head // bytes held back so far
	t.buf = append(t.buf, piece...)
	for i := range len(piece) {
		stop := 0
		for j := range t.stops {
			if m := &t.stops[j]; m.next(piece[i]) {
				stop = max(stop, len(m.pattern))
			}
		}
		if stop > 0 {
			text := string(t.buf[t.head : t.head+before+i+1-stop])
			t.stopped, t.buf = true, nil
			return text
		}
	}
	hold := 0
	for _, m := range t.stops {
		hold = max(hold, m.matched)
	}
	end := len(t.buf) - hold
	text := string(t.buf[t.head:end])
	t.head = end
	if t.head > len(t.buf)/2 { // moves each byte once on average
		t.buf = t.buf[:copy(t.buf, t.buf[t.head:])]
		t.head = 0
	}
	return text
}

// matcher finds a pattern in a stream of bytes as Knuth, Morris and Pratt do.
type matcher struct {
	pattern string
	// border[i] is the length of the longest proper prefix of the pattern that ends pattern[:i+1].
	border  []int
	matched int // length of the longest prefix that ends the text so far
}

// newMatcher prepares a pattern.
func newMatcher(pattern string) matcher {
	m := matcher{pattern: pattern, border: make([]int, len(pattern))}
	n := 0
	for i := 1; i < len(pattern); i++ {
		for n > 0 && pattern[i] != pattern[n] {
			n = m.border[n-1]
		}
		if pattern[i] == pattern[n] {
			n++
		}
		m.border[i] = n
	}
	return m
}

// next takes one byte and reports whether the pattern ends with it. It is not used after that.
func (m *matcher) next(b byte) bool {
	for m.matched > 0 && m.pattern[m.matched] != b {
		m.matched = m.border[m.matched-1]
	}
	if m.pattern[m.matched] == b {
		m.matched++
	}
	return m.matched == len(m.pattern)
}
