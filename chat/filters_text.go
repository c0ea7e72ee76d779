package chat

import (
	"net/url"
	"strings"
	"unicode"
)

// textFilters are the filters for strings. They take any value, as its str.
func textFilters() []*methodDef {
	return []*methodDef{
		onText("capitalize", "", func(r *renderer, t text, _ []value) (value, error) { return capitalized(t), r.sized(t) }),
		onText("center", "width?", func(r *renderer, t text, a []value) (value, error) {
			width, err := intArg(a[0], 80)
			if err != nil {
				return nil, err
			}
			return r.pad(t, width, centered, engine(" "))
		}),
		onText("escape e", "", func(r *renderer, t text, _ []value) (value, error) {
			return escapeHTML(t), r.growItems(len(t.s), 6)
		}),
		onText("forceescape", "", func(r *renderer, t text, _ []value) (value, error) {
			t.markup = false
			return escapeHTML(t), r.growItems(len(t.s), 6)
		}),
		{name: "format", raw: func(r *renderer, in value, a args) (value, error) {
			t, err := r.str(in)
			switch {
			case err != nil:
				return nil, err
			case len(a.named) == 0:
				return r.percentFormat(t, tuple(a.pos...))
			case len(a.pos) > 0:
				return nil, failf("can't handle positional and keyword arguments at the same time")
			}
			d, err := dictOf(r, args{named: a.named})
			if err != nil {
				return nil, err
			}
			return r.percentFormat(t, d)
		}},
		{name: "indent", sig: sig("width? first? blank?"), fn: filterIndent},
		onText("lower", "", func(r *renderer, t text, _ []value) (value, error) { return t.mapped(lowerCase), r.sized(t) }),
		onText("replace", "old new count?", func(r *renderer, t text, a []value) (value, error) {
			count := -1
			if c := or(a[2], nil); c != nil {
				n, err := intArg(c, -1)
				if err != nil {
					return nil, err
				}
				count = n
			}
			from, err := r.str(a[0])
			if err != nil {
				return nil, err
			}
			to, err := r.str(a[1])
			if err != nil {
				return nil, err
			}
			return r.replace(t, from, to, count)
		}),
		onText("safe", "", func(_ *renderer, t text, _ []value) (value, error) {
			t.markup = true
			return t, nil
		}),
		onText("title", "", func(r *renderer, t text, _ []value) (value, error) {
			// Not str.title: Jinja's words start after blanks, hyphens and opening brackets.
			return perChar(t, func(c, before rune) string {
				if before == 0 || isSpace(before) || strings.ContainsRune("-({[<", before) {
					return upperCase(string(c))
				}
				return lowerCase(string(c))
			}), r.growItems(len(t.s), 24)
		}),
		onText("trim", "chars?", func(r *renderer, t text, a []value) (value, error) { return r.strip(t, or(a[0], nil), true, true) }),
		{name: "truncate", sig: sig("length? killwords? end? leeway?"), fn: filterTruncate},
		onText("upper", "", func(r *renderer, t text, _ []value) (value, error) { return t.mapped(upperCase), r.sized(t, t) }),
		{name: "urlencode", fn: filterURLEncode},
		onText("wordcount", "", func(r *renderer, t text, _ []value) (value, error) {
			words, inside := int64(0), false
			for _, c := range t.s {
				in := c == '_' || unicode.IsLetter(c) || unicode.IsNumber(c)
				if in && !inside {
					words++
				}
				inside = in
			}
			return words, r.spend(len(t.s) / 16)
		}),
	}
}

// onText describes a filter that works on the str of its input.
func onText(names, params string, fn func(r *renderer, t text, a []value) (value, error)) *methodDef {
	return def(names, params, func(r *renderer, in value, a []value) (value, error) {
		t, err := r.str(in)
		if err != nil {
			return nil, err
		}
		return fn(r, t, a)
	})
}

func filterIndent(r *renderer, in value, a []value) (value, error) {
	t, ok := in.(text)
	if !ok {
		if u, isUndefined := in.(*undefined); isUndefined {
			return nil, u.fail()
		}
		return nil, failf("unsupported operand type(s) for +=: %s and 'str'", pyQuote(typeName(in)))
	}
	var by text
	if width, ok := or(a[0], int64(4)).(text); ok {
		by = width
	} else {
		n, err := intArg(a[0], 4)
		if err != nil {
			return nil, err
		}
		spaces, err := r.repeatText(engine(" "), n)
		if err != nil {
			return nil, err
		}
		by = spaces.(text)
	}
	first, blank := flag(a[1]), flag(a[2])
	b := textBuilder{markup: t.markup}
	lines, err := r.splitLines(concat(t, engine("\n")), false)
	if err != nil {
		return nil, err
	}
	for i, line := range lines {
		if err := r.sized(line, by); err != nil {
			return nil, err
		}
		if i > 0 {
			b.add("\n", byEngine)
		}
		if i == 0 && first || i > 0 && (blank || line.s != "") {
			b.addText(by)
		}
		b.addText(line)
	}
	return b.text(), nil
}

func filterTruncate(r *renderer, in value, a []value) (value, error) {
	length, err := intArg(a[0], 255)
	if err != nil {
		return nil, err
	}
	end, ok := or(a[2], engine("...")).(text)
	if !ok {
		return nil, failf("truncate: end must be a string, not %s", typeName(a[2]))
	}
	leeway := 5
	if v := or(a[3], nil); v != nil {
		if leeway, err = intArg(v, 5); err != nil {
			return nil, err
		}
	}
	keep := length - end.length()
	if keep < 0 {
		return nil, failf("expected length >= %d, got %d", end.length(), length)
	}
	if leeway < 0 {
		return nil, failf("expected leeway >= 0, got %d", leeway)
	}
	n, err := r.length(in)
	if err != nil || n <= length+leeway {
		return in, err
	}
	t, ok := in.(text)
	if !ok {
		return nil, failf("object of type %s cannot be truncated", pyQuote(typeName(in)))
	}
	cut := t.slice(0, t.offset(keep))
	if !flag(a[1]) {
		if i := strings.LastIndexByte(cut.s, ' '); i >= 0 {
			cut = cut.slice(0, i)
		}
	}
	return r.concat(cut.markup, cut, end)
}

func filterURLEncode(r *renderer, in value, _ []value) (value, error) {
	quote := func(v value, query bool) (text, error) {
		t, err := r.str(v)
		if err != nil {
			return t, err
		}
		return t.mapped(func(s string) string {
			s = strings.ReplaceAll(url.QueryEscape(s), "%7E", "~")
			if query {
				return s
			}
			return strings.ReplaceAll(strings.ReplaceAll(s, "+", "%20"), "%2F", "/")
		}), r.growItems(len(t.s), 12)
	}
	var pairs []value
	switch in := in.(type) {
	case *dict:
		var err error
		if pairs, err = r.pairs(in); err != nil {
			return nil, err
		}
	case *sequence:
		pairs = in.items
	default:
		return quote(in, false)
	}
	var b textBuilder
	for i, pair := range pairs {
		kv, err := r.iterate(pair)
		if err != nil {
			return nil, err
		}
		if len(kv) != 2 {
			return nil, failf("urlencode needs pairs")
		}
		key, err := quote(kv[0], true)
		if err != nil {
			return nil, err
		}
		val, err := quote(kv[1], true)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.add("&", byEngine)
		}
		b.addText(key)
		b.add("=", byEngine)
		b.addText(val)
	}
	return b.text(), nil
}
