package chat

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// str is Python's str(v), the text that printing v gives.
func (r *renderer) str(v value) (text, error) {
	switch v := v.(type) {
	case text:
		return v, nil
	case *undefined:
		return text{}, nil
	case nil, bool, int64, float64, *big.Int:
		t := engine(plainRepr(v))
		return t, r.sized(t)
	}
	return r.repr(v)
}

// repr is Python's repr(v).
func (r *renderer) repr(v value) (text, error) {
	var b textBuilder
	if err := r.writeRepr(&b, v); err != nil {
		return text{}, err
	}
	return b.text(), nil
}

func (r *renderer) writeRepr(b *textBuilder, v value) error {
	switch v := v.(type) {
	case text:
		return r.writeQuoted(b, v)
	case *sequence:
		return r.writeSequence(b, v)
	case *dict:
		return r.writeDict(b, v)
	case *namespace:
		b.add("<Namespace ", byEngine)
		if err := r.writeDict(b, v.attrs); err != nil {
			return err
		}
		b.add(">", byEngine)
		return nil
	}
	s := plainRepr(v)
	b.add(s, byEngine)
	return r.grow(textBytes + len(s))
}

// plainRepr is the repr of values that hold no others.
func plainRepr(v value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case *big.Int:
		return v.String()
	case float64:
		return formatFloat(v)
	case text:
		return pyQuote(v.s)
	case *undefined:
		return "Undefined"
	case *rangeValue:
		if v.step == 1 {
			return fmt.Sprintf("range(%d, %d)", v.start, v.stop)
		}
		return fmt.Sprintf("range(%d, %d, %d)", v.start, v.stop, v.step)
	case *macro:
		return "<Macro " + pyQuote(v.def.name) + ">"
	case *loopState:
		return fmt.Sprintf("<LoopContext %d/%d>", v.at+1, v.items.len())
	}
	return "<" + typeName(v) + ">"
}

func (r *renderer) writeSequence(b *textBuilder, s *sequence) error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	opening, closing := "[", "]"
	switch s.kind {
	case tupleKind:
		if opening, closing = "(", ")"; len(s.items) == 1 {
			closing = ",)"
		}
	case generatorKind:
		b.add("<generator>", byEngine)
		return nil
	case keysKind, valuesKind, itemsKind:
		opening, closing = typeName(s)+"([", "])"
	}
	b.add(opening, byEngine)
	for i, item := range s.items {
		if i > 0 {
			b.add(", ", byEngine)
		}
		if err := r.writeRepr(b, item); err != nil {
			return err
		}
	}
	b.add(closing, byEngine)
	return r.grow(textBytes)
}

func (r *renderer) writeDict(b *textBuilder, d *dict) error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	b.add("{", byEngine)
	for i, key := range d.keys {
		if i > 0 {
			b.add(", ", byEngine)
		}
		if err := r.writeRepr(b, key); err != nil {
			return err
		}
		b.add(": ", byEngine)
		if err := r.writeRepr(b, d.vals[i]); err != nil {
			return err
		}
	}
	b.add("}", byEngine)
	return r.grow(textBytes)
}

// writeQuoted writes the repr of a string. What stands for a character of the
// string keeps its origin, the quotes are the engine's.
func (r *renderer) writeQuoted(b *textBuilder, t text) error {
	if err := r.growItems(len(t.s)+textBytes/8+2*len(t.spans), 8); err != nil {
		return err
	}
	quote := quoteFor(t.s)
	if t.markup {
		b.add("Markup(", byEngine)
	}
	b.add(string(quote), byEngine)
	for s, by := range t.runs() {
		b.add(quoteBody(s, quote), by)
	}
	b.add(string(quote), byEngine)
	if t.markup {
		b.add(")", byEngine)
	}
	return nil
}

// quoteFor is the quote that Python's repr takes.
func quoteFor(s string) rune {
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		return '"'
	}
	return '\''
}

func quoteBody(s string, quote rune) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case c == quote || c == '\\':
			b.WriteRune('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case c <= 0xff:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			fmt.Fprintf(&b, `\U%08x`, c)
		}
	}
	return b.String()
}

// pyQuote is the repr of a string for error messages, shortened if it is long.
func pyQuote(s string) string {
	const most = 200
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	quote := quoteFor(s)
	return string(quote) + quoteBody(s, quote) + string(quote)
}
