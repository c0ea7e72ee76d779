package tokenizer

import (
	"bytes"
	"sort"
	"unicode/utf8"
)

// Markers says what becomes of added tokens that are spelled out in a text,
// such as <eos> or <|turn>.
type Markers uint8

const (
	// MarkersAreText takes a text for what it says: "<eos>" becomes the pieces
	// of an angle bracket, "eos" and an angle bracket. No id is ever returned
	// for which IsMarker is true. Use it for all text that people, files or
	// models wrote.
	MarkersAreText Markers = iota
	// MarkersAreTokens recognises added tokens, the longest of the leftmost
	// first, as the original library does. Use it for what a chat template
	// wrote, and for prompts that are meant to hold markers.
	MarkersAreTokens
)

// Part is a piece of a text whose parts are of different origin.
type Part struct {
	Text    string
	Markers Markers
}

const (
	// maxSpan bounds how much text is merged as one; there is no more than that
	// without a place to cut but in a text made for it.
	maxSpan = 1 << 30
	// keepBytes bounds the work space that is kept for the next call.
	keepBytes = 1 << 20
)

// work is the work space of one call.
type work struct {
	text    []byte
	trusted []region
	ids     []int32
	ranks   []uint32
	symbols []symbol
	heap    []uint64
}

// region is a stretch of text, from start to end, in which markers are tokens.
type region struct{ start, end int }

// Encode appends the ids of text to dst and returns the result. It adds no
// <bos>. The ids are those of the original library, of which MarkersAreText
// leaves out the markers: texts that spell out no marker give the same ids in
// both modes.
//
// Bytes that are not valid UTF-8 are read as U+FFFD, one for each maximal
// prefix of a character, as Python's errors="replace" does.
//
// The time grows with n log n for a text of n bytes at worst, and with n for
// ordinary text.
func (t *Tokenizer) Encode(dst []int32, text string, markers Markers) []int32 {
	w := t.pool.Get().(*work)
	w.reset()
	w.add(text, markers)
	dst = t.encode(dst, w)
	t.release(w)
	return dst
}

// EncodeParts appends the ids of the text that the parts make up to dst and
// returns the result. Only markers that lie within parts with MarkersAreTokens
// become tokens; otherwise the borders between parts leave no trace, so that
// the ids are those of the whole text in one, provided that no other part
// spells out a marker. That is how a chat template's output is encoded as the
// model saw it in training, with the messages of people in it.
func (t *Tokenizer) EncodeParts(dst []int32, parts []Part) []int32 {
	w := t.pool.Get().(*work)
	w.reset()
	for _, p := range parts {
		w.add(p.Text, p.Markers)
	}
	dst = t.encode(dst, w)
	t.release(w)
	return dst
}

// reset empties the text.
func (w *work) reset() {
	w.text, w.trusted = w.text[:0], w.trusted[:0]
}

// release gives the work space back, unless a long text has made it large.
func (t *Tokenizer) release(w *work) {
	if cap(w.text) <= keepBytes && cap(w.symbols) <= keepBytes/16 {
		t.pool.Put(w)
	}
}

// add appends a part of the text.
func (w *work) add(text string, markers Markers) {
	start := len(w.text)
	if utf8.ValidString(text) {
		w.text = append(w.text, text...)
	} else {
		w.text = appendValid(w.text, text)
	}
	if markers != MarkersAreTokens || len(w.text) == start {
		return
	}
	if n := len(w.trusted); n > 0 && w.trusted[n-1].end == start {
		w.trusted[n-1].end = len(w.text)
		return
	}
	w.trusted = append(w.trusted, region{start, len(w.text)})
}

// appendValid appends text with one U+FFFD for each maximal prefix of a
// character that is not whole, and for each byte that starts none.
func appendValid(dst []byte, text string) []byte {
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r != utf8.RuneError || size > 1 {
			dst = append(dst, text[:size]...)
			text = text[size:]
			continue
		}
		dst = append(dst, "\ufffd"...)
		text = text[prefixLen(text):]
	}
	return dst
}

// prefixLen returns the length of the longest prefix of text that could start
// a character, at least 1. text does not start with a whole character.
func prefixLen(text string) int {
	lead := text[0]
	if lead < 0xe0 || lead > 0xf4 || len(text) < 2 {
		return 1
	}
	low, high := byte(0x80), byte(0xbf) // the range of the second byte
	switch lead {
	case 0xe0: // below would be overlong
		low = 0xa0
	case 0xed: // above would be a surrogate
		high = 0x9f
	case 0xf0: // below would be overlong
		low = 0x90
	case 0xf4: // above would pass U+10FFFF
		high = 0x8f
	}
	if text[1] < low || text[1] > high {
		return 1
	}
	if lead < 0xf0 || len(text) < 3 || utf8.RuneStart(text[2]) {
		return 2
	}
	return 3
}

// encode appends the ids of w's text: added tokens where they are found, and
// what lies between them span by span.
func (t *Tokenizer) encode(dst []int32, w *work) []int32 {
	text, trusted := w.text, w.trusted
	span := 0
	for i := 0; i < len(text); {
		for len(trusted) > 0 && trusted[0].end <= i {
			trusted = trusted[1:]
		}
		// Up to border all text is trusted to the same degree: as far as its end,
		// or not at all.
		border, end, starts := len(text), 0, &t.starts[1]
		if len(trusted) > 0 && trusted[0].start > i {
			border = trusted[0].start
		} else if len(trusted) > 0 {
			border, end, starts = trusted[0].end, trusted[0].end, &t.starts[0]
		}
		for i < border && !starts[text[i]] {
			i++
		}
		if i == border {
			continue
		}
		id, n := t.match(text[i:], end-i)
		if n == 0 {
			i++
			continue
		}
		dst = t.span(dst, span, i, w)
		dst = append(dst, id)
		i += n
		span = i
	}
	return t.span(dst, span, len(text), w)
}

// span appends the ids of w's text from start to end, which holds no added
// token that is to be recognised. It alters this stretch of the text.
func (t *Tokenizer) span(dst []int32, start, end int, w *work) []int32 {
	if start == end {
		return dst
	}
	m := &t.plain
	// The last region that starts at or before start; it holds all of the span or not.
	if i := sort.Search(len(w.trusted), func(i int) bool { return w.trusted[i].start > start }); i > 0 && w.trusted[i-1].end >= end {
		m = &t.marked
	}
	text := toTextForm(w.text[start:end])
	for len(text) > maxSpan {
		cut := maxSpan
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		dst = t.words(dst, text[:cut], w, m)
		text = text[cut:]
	}
	return t.words(dst, text, w, m)
}

// toTextForm replaces every "▁" by a space, in place, and returns the result.
func toTextForm(text []byte) []byte {
	i := bytes.Index(text, []byte(space))
	if i < 0 {
		return text
	}
	out := text[:i]
	for {
		out = append(out, ' ')
		text = text[i+len(space):]
		if i = bytes.Index(text, []byte(space)); i < 0 {
			return append(out, text...)
		}
		out = append(out, text[:i]...)
	}
}

// words appends the ids of text, which is cut into words between characters
// that no merge can join.
func (t *Tokenizer) words(dst []int32, text []byte, w *work, m *mode) []int32 {
	start := 0
	last, size := utf8.DecodeRune(text)
	for i := size; i < len(text); i += size {
		next := rune(text[i])
		size = 1
		if next >= utf8.RuneSelf {
			next, size = utf8.DecodeRune(text[i:])
		}
		if !t.joins(last, next) {
			dst = t.word(dst, text[start:i], w, m)
			start = i
		}
		last = next
	}
	return t.word(dst, text[start:], w, m)
}

// joins reports whether a merge may join text that ends in x and text that
// starts with y. It may say so wrongly, but never deny it wrongly.
func (t *Tokenizer) joins(x, y rune) bool {
	if x|y < utf8.RuneSelf {
		return t.ascii[x][y>>6]>>(y&63)&1 != 0
	}
	bit := pairBit(x, y, t.pairBits)
	return t.pairs[bit>>3]>>(bit&7)&1 != 0
}

// word appends the ids of a word, which is not empty.
func (t *Tokenizer) word(dst []int32, text []byte, w *work, m *mode) []int32 {
	if len(text) == 1 && text[0] < utf8.RuneSelf && m.chars[text[0]] >= 0 {
		return append(dst, m.chars[text[0]])
	}
	if len(text) <= t.maxPiece {
		if id := t.find(text, 0); id >= 0 && t.flags[id]&(flagWhole|m.blocked) == flagWhole {
			return append(dst, id)
		}
	}
	return t.merge(dst, text, w, m)
}
