package chat

import (
	"iter"
	"sort"
	"strings"
	"unicode/utf8"
)

// origin says who wrote a piece of text. It travels with every string through
// the template's own string operations, so that the rendered text still knows.
type origin uint8

const (
	// byTemplate marks the literals of the template and the token texts of Config.
	byTemplate origin = iota
	// byEngine marks what rendering adds by itself: the digits of a number, the
	// brackets of a list, the quotes of JSON, the well-known role names.
	byEngine
	// byPeople marks every string of messages, tools and variables.
	byPeople
)

// span is one stretch of a text: it ends before byte end, and begins where the
// span before it ends.
type span struct {
	end int
	by  origin
}

// text is a string value of a template: valid UTF-8 that remembers who wrote
// which bytes. With no spans all of it has one origin. It is immutable.
type text struct {
	s  string
	by origin
	// spans is nil or covers s with non-empty spans, neighbours differing.
	spans []span
	// markup stands for Jinja's Markup type: HTML that is already escaped.
	markup bool
}

func literal(s string) text { return text{s: s} }
func engine(s string) text  { return text{s: s, by: byEngine} }

// slice returns bytes i to j, which must lie on rune borders.
func (t text) slice(i, j int) text {
	if t.spans == nil || i == j {
		return text{s: t.s[i:j], by: t.by, markup: t.markup}
	}
	b := textBuilder{markup: t.markup}
	b.addSlice(t, i, j)
	return b.text()
}

// runs yields the stretches of one origin in order.
func (t text) runs() iter.Seq2[string, origin] {
	return func(yield func(string, origin) bool) {
		if t.spans == nil {
			if t.s != "" {
				yield(t.s, t.by)
			}
			return
		}
		start := 0
		for _, sp := range t.spans {
			if !yield(t.s[start:sp.end], sp.by) {
				return
			}
			start = sp.end
		}
	}
}

// mapped applies f to every stretch; f must not look across its borders.
func (t text) mapped(f func(string) string) text {
	b := textBuilder{markup: t.markup}
	for s, by := range t.runs() {
		b.add(f(s), by)
	}
	return b.text()
}

// length is the number of code points.
func (t text) length() int { return utf8.RuneCountInString(t.s) }

// offset is the byte offset of code point n, which lies in 0 to length.
func (t text) offset(n int) int {
	if n == 0 {
		return 0
	}
	for i := range t.s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(t.s)
}

// textBuilder joins texts. The zero value is empty.
type textBuilder struct {
	b      strings.Builder
	spans  []span
	markup bool
}

func (b *textBuilder) add(s string, by origin) {
	if s == "" {
		return
	}
	b.b.WriteString(s)
	if n := len(b.spans); n > 0 && b.spans[n-1].by == by {
		b.spans[n-1].end = b.b.Len()
		return
	}
	b.spans = append(b.spans, span{b.b.Len(), by})
}

func (b *textBuilder) addText(t text) {
	for s, by := range t.runs() {
		b.add(s, by)
	}
}

// addSlice adds bytes i to j of t.
func (b *textBuilder) addSlice(t text, i, j int) {
	if t.spans == nil {
		b.add(t.s[i:j], t.by)
		return
	}
	first := sort.Search(len(t.spans), func(k int) bool { return t.spans[k].end > i })
	for _, sp := range t.spans[first:] {
		if i >= j {
			return
		}
		end := min(sp.end, j)
		b.add(t.s[i:end], sp.by)
		i = end
	}
}

// text returns what was added; the builder may go on to be used.
func (b *textBuilder) text() text {
	t := text{s: b.b.String(), markup: b.markup}
	switch len(b.spans) {
	case 0:
	case 1:
		t.by = b.spans[0].by
	default:
		t.spans = append([]span(nil), b.spans...)
	}
	return t
}

func concat(parts ...text) text {
	if len(parts) == 2 && parts[0].spans == nil && parts[1].spans == nil && parts[0].by == parts[1].by {
		return text{s: parts[0].s + parts[1].s, by: parts[0].by, markup: parts[0].markup}
	}
	b := textBuilder{markup: len(parts) > 0 && parts[0].markup}
	for _, p := range parts {
		b.addText(p)
	}
	return b.text()
}

// escapeHTML is markupsafe's escape.
func escapeHTML(t text) text {
	if t.markup {
		return t
	}
	t = t.mapped(strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;").Replace)
	t.markup = true
	return t
}
