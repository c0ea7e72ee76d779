package chat

import "slices"

// Segment is a piece of a rendered conversation.
type Segment struct {
	// Text is never empty. The texts of all segments joined are the prompt.
	Text string
	// Control says that Text is exactly one control token that the template
	// wrote; it becomes one special id. Other segments are to be tokenized as
	// plain text, in which no control token is recognised: they hold the
	// template's wording and the messages' text alike, as one run, so that
	// ordinary text gets the ids it would get in one piece.
	Control bool
}

// markerSet finds control tokens in text.
type markerSet struct {
	texts map[string]bool
	// lengths holds the lengths in bytes of the tokens that start with a byte,
	// longest first.
	lengths [256][]int
}

func newMarkerSet(markers []string) *markerSet {
	m := &markerSet{texts: make(map[string]bool, len(markers))}
	for _, s := range markers {
		if s == "" || m.texts[s] {
			continue
		}
		m.texts[s] = true
		if l := &m.lengths[s[0]]; !slices.Contains(*l, len(s)) {
			*l = append(*l, len(s))
		}
	}
	for i := range m.lengths {
		slices.Sort(m.lengths[i])
		slices.Reverse(m.lengths[i])
	}
	return m
}

// at returns the longest control token that s starts with, or "".
func (m *markerSet) at(s string) string {
	for _, n := range m.lengths[s[0]] {
		if n <= len(s) && m.texts[s[:n]] {
			return s[:n]
		}
	}
	return ""
}

// split cuts a rendered text into segments. A control token is taken for one,
// first and longest first as tokenizers do, only inside a stretch that holds
// nothing people wrote, and only if the template itself wrote part of it. What
// people wrote can thus neither be one, nor complete one, nor hide one.
func (m *markerSet) split(t text) []Segment {
	spans := t.spans
	if spans == nil && t.s != "" {
		spans = []span{{len(t.s), t.by}}
	}
	var out []Segment
	plain := 0 // where the pending plain text starts
	flush := func(end int) {
		if plain < end {
			out = append(out, Segment{Text: t.s[plain:end]})
		}
	}
	start := 0
	for len(spans) > 0 {
		n := slices.IndexFunc(spans, func(sp span) bool { return sp.by == byPeople })
		if n == 0 {
			start, spans = spans[0].end, spans[1:]
			continue
		}
		if n < 0 {
			n = len(spans)
		}
		stretch, end := spans[:n], spans[n-1].end
		for i := start; i < end; {
			for stretch[0].end <= i {
				stretch = stretch[1:]
			}
			tok := m.at(t.s[i:end])
			if tok == "" || !wroteAny(stretch, i+len(tok)) {
				i++
				continue
			}
			flush(i)
			i += len(tok)
			plain = i
			out = append(out, Segment{Text: tok, Control: true})
		}
		start, spans = end, spans[n:]
	}
	flush(len(t.s))
	return out
}

// wroteAny reports whether the template wrote any byte of spans before end.
func wroteAny(spans []span, end int) bool {
	for _, sp := range spans {
		if sp.by == byTemplate {
			return true
		}
		if sp.end >= end {
			break
		}
	}
	return false
}
