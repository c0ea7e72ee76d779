package chat

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode/utf16"
)

// jsonWriter is json.dumps with the options that transformers lets a template
// set.
type jsonWriter struct {
	r           *renderer
	b           textBuilder
	indent      string
	indented    bool
	item, key   text // separators
	ascii, sort bool
}

func (w *jsonWriter) write(v value, depth int) error {
	switch v := v.(type) {
	case text:
		return w.writeString(v)
	case nil:
		return w.constant("null")
	case bool:
		if v {
			return w.constant("true")
		}
		return w.constant("false")
	case float64:
		switch {
		case math.IsNaN(v):
			return w.constant("NaN")
		case math.IsInf(v, 1):
			return w.constant("Infinity")
		case math.IsInf(v, -1):
			return w.constant("-Infinity")
		}
		return w.constant(formatFloat(v))
	case int64, *big.Int:
		return w.constant(plainRepr(v))
	case *sequence:
		if v.indexable() {
			return w.writeItems("[", "]", depth, len(v.items), func(i int) error { return w.write(v.items[i], depth+1) })
		}
	case *dict:
		return w.writeDict(v, depth)
	}
	return failf("Object of type %s is not JSON serializable", typeName(v))
}

func (w *jsonWriter) constant(s string) error {
	w.b.add(s, byEngine)
	return w.r.grow(textBytes)
}

// writeItems writes n items between brackets, one a line if indented.
func (w *jsonWriter) writeItems(opening, closing string, depth, n int, write func(int) error) error {
	if err := w.r.enter(); err != nil {
		return err
	}
	defer w.r.leave()
	w.b.add(opening, byEngine)
	newline := func(depth int) error {
		if !w.indented {
			return nil
		}
		if err := w.r.growItems(depth+1, 1+len(w.indent)); err != nil {
			return err
		}
		w.b.add("\n"+strings.Repeat(w.indent, depth), byEngine)
		return nil
	}
	for i := range n {
		if i > 0 {
			if err := w.r.sized(w.item); err != nil {
				return err
			}
			w.b.addText(w.item)
		}
		if err := newline(depth + 1); err != nil {
			return err
		}
		if err := write(i); err != nil {
			return err
		}
	}
	if n > 0 {
		if err := newline(depth); err != nil {
			return err
		}
	}
	return w.constant(closing)
}

func (w *jsonWriter) writeDict(d *dict, depth int) error {
	keys := make([]text, len(d.keys))
	order := make([]int, len(d.keys))
	for i, k := range d.keys {
		order[i] = i
		switch k := k.(type) {
		case text:
			keys[i] = k
		case nil:
			keys[i] = engine("null")
		case bool:
			keys[i] = engine(strings.ToLower(plainRepr(k)))
		case int64, float64, *big.Int:
			keys[i] = engine(plainRepr(k))
		default:
			return failf("keys must be str, int, float, bool or None, not %s", typeName(k))
		}
	}
	if w.sort {
		if err := w.r.spend(8 * len(keys)); err != nil {
			return err
		}
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(keys[i].s, keys[j].s) })
	}
	return w.writeItems("{", "}", depth, len(order), func(i int) error {
		if err := w.writeString(keys[order[i]]); err != nil {
			return err
		}
		if err := w.r.sized(w.key); err != nil {
			return err
		}
		w.b.addText(w.key)
		return w.write(d.vals[order[i]], depth+1)
	})
}

func (w *jsonWriter) writeString(t text) error {
	if err := w.r.growItems(len(t.s)+textBytes/8+2*len(t.spans), 8); err != nil {
		return err
	}
	w.b.add(`"`, byEngine)
	for s, by := range t.runs() {
		w.b.add(jsonBody(s, w.ascii), by)
	}
	w.b.add(`"`, byEngine)
	return nil
}

// jsonBody escapes s as Python's json module does.
func jsonBody(s string, ascii bool) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\b':
			b.WriteString(`\b`)
		case c == '\f':
			b.WriteString(`\f`)
		case c < ' ' || ascii && c > '~' && c <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, c)
		case ascii && c > 0xffff:
			hi, lo := utf16.EncodeRune(c)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// toJSON is the tojson filter of transformers: it escapes no HTML.
func toJSON(r *renderer, in value, a []value) (value, error) {
	w := jsonWriter{r: r, ascii: truth(a[0]), sort: truth(a[3]), item: engine(", "), key: engine(": ")}
	switch indent := a[1].(type) {
	case nil:
	case text:
		w.indent, w.indented = indent.s, true
	default:
		n, ok := index(indent)
		if !ok {
			return nil, failf("indent must be an integer or a string, not %s", typeName(indent))
		}
		if err := r.grow(max(n, 0)); err != nil {
			return nil, err
		}
		w.indent, w.indented = strings.Repeat(" ", max(n, 0)), true
	}
	if w.indented {
		w.item = engine(",")
	}
	if a[2] != nil {
		pair, err := r.iterate(a[2])
		if err != nil {
			return nil, err
		}
		if len(pair) != 2 {
			return nil, failf("separators must be a pair of strings")
		}
		item, ok1 := pair[0].(text)
		key, ok2 := pair[1].(text)
		if !ok1 || !ok2 {
			return nil, failf("separators must be a pair of strings")
		}
		w.item, w.key = item, key
	}
	if err := w.write(in, 0); err != nil {
		return nil, err
	}
	return w.b.text(), nil
}
