package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// textArg returns a parameter that must be a string.
func textArg(v value) (text, error) {
	switch v := v.(type) {
	case text:
		return v, nil
	case *undefined:
		return text{}, v.fail()
	}
	return text{}, failf("must be str, not %s", typeName(v))
}

// onSelf describes a method of str.
func onSelf(name, params string, fn func(r *renderer, t text, a []value) (value, error)) *methodDef {
	return def(name, params, func(r *renderer, self value, a []value) (value, error) { return fn(r, self.(text), a) })
}

// textMethods are the methods of Python's str, but for those that only tell
// something about it.
func textMethods() []*methodDef {
	return []*methodDef{
		onSelf("capitalize", "", func(r *renderer, t text, _ []value) (value, error) { return capitalized(t), r.sized(t) }),
		onSelf("casefold", "", func(r *renderer, t text, _ []value) (value, error) { return t.mapped(foldCase), r.sized(t, t) }),
		onSelf("center", "width fillchar?", padMethod(centered)),
		onSelf("count", "sub start? end?", func(r *renderer, t text, a []value) (value, error) {
			n := 0
			_, err := r.search(t, a, func(s, sub string) int {
				n = strings.Count(s, sub)
				return 0
			})
			return int64(n), err
		}),
		onSelf("endswith", "suffix start? end?", affixMethod(strings.HasSuffix)),
		onSelf("expandtabs", "tabsize?", expandTabs),
		onSelf("find", "sub start? end?", findMethod(strings.Index, false)),
		{name: "format", raw: func(r *renderer, self value, a args) (value, error) { return r.braceFormat(self.(text), a) }},
		onSelf("format_map", "mapping", func(r *renderer, t text, a []value) (value, error) {
			d, ok := a[0].(*dict)
			if !ok {
				return nil, failf("format_map() needs a mapping, not %s", typeName(a[0]))
			}
			var named []namedArg
			for i, key := range d.keys {
				if k, ok := key.(text); ok {
					named = append(named, namedArg{k.s, d.vals[i]})
				}
			}
			return r.braceFormat(t, args{named: named})
		}),
		onSelf("index", "sub start? end?", findMethod(strings.Index, true)),
		onSelf("join", "iterable", joinMethod),
		onSelf("ljust", "width fillchar?", padMethod(leftward)),
		onSelf("lower", "", func(r *renderer, t text, _ []value) (value, error) { return t.mapped(lowerCase), r.sized(t) }),
		onSelf("lstrip", "chars?", stripMethod(true, false)),
		onSelf("partition", "sep", partitionMethod(strings.Index, false)),
		onSelf("removeprefix", "prefix", func(r *renderer, t text, a []value) (value, error) {
			p, err := textArg(a[0])
			if err == nil && strings.HasPrefix(t.s, p.s) {
				return t.slice(len(p.s), len(t.s)), r.sized(text{spans: t.spans})
			}
			return t, err
		}),
		onSelf("removesuffix", "suffix", func(r *renderer, t text, a []value) (value, error) {
			p, err := textArg(a[0])
			if err == nil && strings.HasSuffix(t.s, p.s) {
				return t.slice(0, len(t.s)-len(p.s)), r.sized(text{spans: t.spans})
			}
			return t, err
		}),
		onSelf("replace", "old new count?", func(r *renderer, t text, a []value) (value, error) {
			from, err := textArg(a[0])
			if err != nil {
				return nil, err
			}
			to, err := textArg(a[1])
			if err != nil {
				return nil, err
			}
			count, err := intArg(a[2], -1)
			if err != nil {
				return nil, err
			}
			return r.replace(t, from, to, count)
		}),
		onSelf("rfind", "sub start? end?", findMethod(strings.LastIndex, false)),
		onSelf("rindex", "sub start? end?", findMethod(strings.LastIndex, true)),
		onSelf("rjust", "width fillchar?", padMethod(rightward)),
		onSelf("rpartition", "sep", partitionMethod(strings.LastIndex, true)),
		onSelf("rsplit", "sep? maxsplit?", func(r *renderer, t text, a []value) (value, error) { return r.split(t, a, true) }),
		onSelf("rstrip", "chars?", stripMethod(false, true)),
		onSelf("split", "sep? maxsplit?", func(r *renderer, t text, a []value) (value, error) { return r.split(t, a, false) }),
		onSelf("splitlines", "keepends?", func(r *renderer, t text, a []value) (value, error) {
			lines, err := r.splitLines(t, flag(a[0]))
			items := make([]value, len(lines))
			for i, l := range lines {
				items[i] = l
			}
			return list(items), err
		}),
		onSelf("startswith", "prefix start? end?", affixMethod(strings.HasPrefix)),
		onSelf("strip", "chars?", stripMethod(true, true)),
		onSelf("swapcase", "", func(r *renderer, t text, _ []value) (value, error) {
			return perChar(t, func(c, _ rune) string {
				if unicode.IsUpper(c) {
					return lowerCase(string(c))
				}
				return upperCase(string(c))
			}), r.growItems(len(t.s), 24)
		}),
		onSelf("title", "", func(r *renderer, t text, _ []value) (value, error) { return titled(t), r.growItems(len(t.s), 24) }),
		onSelf("upper", "", func(r *renderer, t text, _ []value) (value, error) { return t.mapped(upperCase), r.sized(t, t) }),
		onSelf("zfill", "width", func(r *renderer, t text, a []value) (value, error) {
			width, err := intArg(a[0], 0)
			if err != nil {
				return nil, err
			}
			signed := 0
			if t.s != "" && (t.s[0] == '-' || t.s[0] == '+') {
				signed = 1
			}
			rest, err := r.pad(t.slice(signed, len(t.s)), width-signed, rightward, engine("0"))
			if err != nil {
				return nil, err
			}
			return concat(t.slice(0, signed), rest.(text)), nil
		}),
	}
}

// textPredicates are the methods of str that answer yes or no.
func textPredicates() []*methodDef {
	all := func(name string, emptyIs bool, f func(rune) bool) *methodDef {
		return onSelf(name, "", func(r *renderer, t text, _ []value) (value, error) {
			return (t.s != "" || emptyIs) && strings.IndexFunc(t.s, func(c rune) bool { return !f(c) }) < 0, r.spend(len(t.s) / 16)
		})
	}
	letter := unicode.IsLetter
	digit := func(c rune) bool { return unicode.Is(unicode.Nd, c) }
	return []*methodDef{
		all("isalnum", false, func(c rune) bool { return letter(c) || unicode.IsNumber(c) }),
		all("isalpha", false, letter),
		all("isascii", true, func(c rune) bool { return c < utf8.RuneSelf }),
		all("isdecimal", false, digit),
		all("isdigit", false, func(c rune) bool {
			return digit(c) || strings.ContainsRune("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", c)
		}),
		all("isnumeric", false, unicode.IsNumber),
		all("isprintable", true, unicode.IsPrint),
		all("isspace", false, isSpace),
		onSelf("islower", "", func(r *renderer, t text, _ []value) (value, error) { return isLower(t.s), r.spend(len(t.s) / 16) }),
		onSelf("isupper", "", func(r *renderer, t text, _ []value) (value, error) { return isUpper(t.s), r.spend(len(t.s) / 16) }),
		onSelf("isidentifier", "", func(r *renderer, t text, _ []value) (value, error) {
			for i, c := range t.s {
				if c != '_' && !letter(c) && (i == 0 || !digit(c)) {
					return false, nil
				}
			}
			return t.s != "", r.spend(len(t.s) / 16)
		}),
		onSelf("istitle", "", func(r *renderer, t text, _ []value) (value, error) {
			before, any := rune(0), false
			for _, c := range t.s {
				upper := unicode.IsUpper(c) || unicode.IsTitle(c)
				if isCased(c) && upper == isCased(before) {
					return false, nil
				}
				any = any || isCased(c)
				before = c
			}
			return any, r.spend(len(t.s) / 16)
		}),
	}
}

func isLower(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return unicode.IsUpper(c) || unicode.IsTitle(c) }) < 0 && strings.IndexFunc(s, isCased) >= 0
}

func isUpper(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool {
		return unicode.IsLower(c) || unicode.IsTitle(c) || unicode.Is(unicode.Other_Lowercase, c)
	}) < 0 && strings.IndexFunc(s, isCased) >= 0
}

// strip takes characters off the ends: those of chars, or blanks for nil.
func (r *renderer) strip(t text, chars value, left, right bool) (value, error) {
	cut := isSpace
	switch c := chars.(type) {
	case nil:
	case text:
		if err := r.spend(len(c.s)); err != nil {
			return nil, err
		}
		set := make(map[rune]bool)
		for _, ch := range c.s {
			set[ch] = true
		}
		cut = func(ch rune) bool { return set[ch] }
	case *undefined:
		return nil, c.fail()
	default:
		return nil, failf("strip arg must be None or str")
	}
	lo, hi := 0, len(t.s)
	if right {
		hi = len(strings.TrimRightFunc(t.s, cut))
	}
	if left {
		lo = hi - len(strings.TrimLeftFunc(t.s[:hi], cut))
	}
	out := t.slice(lo, hi)
	return out, r.sized(text{spans: out.spans})
}

func stripMethod(left, right bool) func(*renderer, text, []value) (value, error) {
	return func(r *renderer, t text, a []value) (value, error) { return r.strip(t, or(a[0], nil), left, right) }
}

// replace is str.replace; a negative count replaces all.
func (r *renderer) replace(t, from, to text, count int) (value, error) {
	n := strings.Count(t.s, from.s)
	if count >= 0 {
		n = min(n, count)
	}
	if n == 0 {
		return t, r.spend(len(t.s) / 64)
	}
	if err := r.growItems(n, len(to.s)+16*(2+len(to.spans))); err != nil {
		return nil, err
	}
	if err := r.sized(t); err != nil {
		return nil, err
	}
	b := textBuilder{markup: t.markup}
	pos := 0
	for k := range n {
		i := strings.Index(t.s[pos:], from.s)
		if from.s == "" && k > 0 {
			_, i = utf8.DecodeRuneInString(t.s[pos:])
		}
		b.addSlice(t, pos, pos+i)
		b.addText(to)
		pos += i + len(from.s)
	}
	b.addSlice(t, pos, len(t.s))
	return b.text(), nil
}

// side says where padding goes the text.
type side int

const (
	leftward side = iota
	rightward
	centered
)

func (r *renderer) pad(t text, width int, to side, fill text) (value, error) {
	n, err := r.length(t)
	if err != nil || width <= n {
		return t, err
	}
	gap := width - n
	left := 0
	switch to {
	case rightward:
		left = gap
	case centered:
		left = gap/2 + gap&width&1
	}
	before, err := r.repeatText(fill, left)
	if err != nil {
		return nil, err
	}
	after, err := r.repeatText(fill, gap-left)
	if err != nil {
		return nil, err
	}
	return r.concat(t.markup, before.(text), t, after.(text))
}

func padMethod(to side) func(*renderer, text, []value) (value, error) {
	return func(r *renderer, t text, a []value) (value, error) {
		width, err := intArg(a[0], 0)
		if err != nil {
			return nil, err
		}
		fill, ok := or(a[1], engine(" ")).(text)
		if !ok || fill.length() != 1 {
			return nil, failf("The fill character must be exactly one character long")
		}
		return r.pad(t, width, to, fill)
	}
}

// window returns the bytes of t between the optional code points a[0] and a[1].
func (r *renderer) window(t text, a []value) (lo, hi int, err error) {
	hi = len(t.s)
	if or(a[0], nil) == nil && or(a[1], nil) == nil {
		return 0, hi, nil
	}
	n, err := r.length(t)
	if err != nil {
		return 0, 0, err
	}
	bound := func(v value, def int) (int, error) {
		if or(v, nil) == nil {
			return def, nil
		}
		i, err := intArg(v, def)
		if i < 0 {
			i = max(i+n, 0)
		}
		return i, err
	}
	start, err := bound(a[0], 0)
	if err != nil {
		return 0, 0, err
	}
	end, err := bound(a[1], n)
	if err != nil {
		return 0, 0, err
	}
	if start > n || start > end {
		return -1, -1, nil
	}
	return t.offset(start), t.offset(min(end, n)), nil
}

// search finds a[0] in t between a[1] and a[2]: in code points, -1 if it is not there.
func (r *renderer) search(t text, a []value, find func(s, sub string) int) (int, error) {
	sub, err := textArg(a[0])
	if err != nil {
		return 0, err
	}
	lo, hi, err := r.window(t, a[1:])
	if err != nil || lo < 0 {
		return -1, err
	}
	i := find(t.s[lo:hi], sub.s)
	if i < 0 {
		return -1, r.spend(len(t.s) / 64)
	}
	return utf8.RuneCountInString(t.s[:lo+i]), r.spend(len(t.s) / 64)
}

func findMethod(find func(s, sub string) int, must bool) func(*renderer, text, []value) (value, error) {
	return func(r *renderer, t text, a []value) (value, error) {
		i, err := r.search(t, a, find)
		if err == nil && i < 0 && must {
			err = failf("substring not found")
		}
		return int64(i), err
	}
}

func affixMethod(has func(s, affix string) bool) func(*renderer, text, []value) (value, error) {
	return func(r *renderer, t text, a []value) (value, error) {
		lo, hi, err := r.window(t, a[1:])
		if err != nil {
			return nil, err
		}
		affixes := []value{a[0]}
		if s, ok := a[0].(*sequence); ok && s.kind == tupleKind {
			affixes = s.items
		}
		for _, v := range affixes {
			affix, err := textArg(v)
			if err != nil {
				return nil, err
			}
			if lo >= 0 && has(t.s[lo:hi], affix.s) {
				return true, nil
			}
		}
		return false, nil
	}
}

func partitionMethod(find func(s, sub string) int, last bool) func(*renderer, text, []value) (value, error) {
	return func(r *renderer, t text, a []value) (value, error) {
		sep, err := textArg(a[0])
		if err != nil {
			return nil, err
		}
		if sep.s == "" {
			return nil, failf("empty separator")
		}
		if err := r.sized(t, text{spans: t.spans}); err != nil {
			return nil, err
		}
		i := find(t.s, sep.s)
		switch {
		case i >= 0:
			return tuple(t.slice(0, i), t.slice(i, i+len(sep.s)), t.slice(i+len(sep.s), len(t.s))), nil
		case last:
			return tuple(text{}, text{}, t), nil
		}
		return tuple(t, text{}, text{}), nil
	}
}

func joinMethod(r *renderer, t text, a []value) (value, error) {
	items, err := r.iterate(a[0])
	if err != nil {
		return nil, err
	}
	b := textBuilder{markup: t.markup}
	for i, item := range items {
		part, ok := item.(text)
		if !ok {
			return nil, failf("sequence item %d: expected str instance, %s found", i, typeName(item))
		}
		if err := r.sized(t, part); err != nil {
			return nil, err
		}
		if i > 0 {
			b.addText(t)
		}
		b.addText(part)
	}
	return b.text(), nil
}

// split is str.split and, from the right, str.rsplit.
func (r *renderer) split(t text, a []value, fromRight bool) (value, error) {
	most, err := intArg(a[1], -1)
	if err != nil {
		return nil, err
	}
	var parts []text
	take := func(lo, hi int) error {
		part := t.slice(lo, hi)
		parts = append(parts, part)
		return r.sized(text{spans: part.spans})
	}
	if or(a[0], nil) == nil {
		err = splitBlanks(t.s, most, fromRight, take)
	} else {
		var sep text
		if sep, err = textArg(a[0]); err != nil {
			return nil, err
		}
		if sep.s == "" {
			return nil, failf("empty separator")
		}
		err = splitAt(t.s, sep.s, most, fromRight, take)
	}
	if err != nil {
		return nil, err
	}
	items := make([]value, len(parts))
	for i, p := range parts {
		if fromRight {
			i = len(parts) - 1 - i
		}
		items[i] = p
	}
	return list(items), r.spend(len(t.s) / 64)
}

func splitAt(s, sep string, most int, fromRight bool, take func(lo, hi int) error) error {
	lo, hi := 0, len(s)
	for ; most != 0; most-- {
		if fromRight {
			i := strings.LastIndex(s[:hi], sep)
			if i < 0 {
				break
			}
			if err := take(i+len(sep), hi); err != nil {
				return err
			}
			hi = i
			continue
		}
		i := strings.Index(s[lo:], sep)
		if i < 0 {
			break
		}
		if err := take(lo, lo+i); err != nil {
			return err
		}
		lo += i + len(sep)
	}
	return take(lo, hi)
}

func splitBlanks(s string, most int, fromRight bool, take func(lo, hi int) error) error {
	blank := func(c rune) bool { return !isSpace(c) }
	lo, hi := 0, len(s)
	for {
		if fromRight {
			hi = len(strings.TrimRightFunc(s[:hi], isSpace))
		} else {
			lo = len(s) - len(strings.TrimLeftFunc(s[lo:], isSpace))
		}
		if lo >= hi {
			return nil
		}
		if most == 0 {
			if fromRight {
				return take(0, hi)
			}
			return take(lo, len(s))
		}
		most--
		if fromRight {
			i := len(strings.TrimRightFunc(s[:hi], blank))
			if err := take(i, hi); err != nil {
				return err
			}
			hi = i
			continue
		}
		i := len(s) - len(strings.TrimLeftFunc(s[lo:], blank))
		if err := take(lo, i); err != nil {
			return err
		}
		lo = i
	}
}

// splitLines is str.splitlines.
func (r *renderer) splitLines(t text, keepEnds bool) ([]text, error) {
	var lines []text
	for lo := 0; lo < len(t.s); {
		n := strings.IndexAny(t.s[lo:], "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		end, next := len(t.s), len(t.s)
		if n >= 0 {
			end = lo + n
			_, size := utf8.DecodeRuneInString(t.s[end:])
			if strings.HasPrefix(t.s[end:], "\r\n") {
				size = 2
			}
			next = end + size
		}
		if keepEnds {
			end = next
		}
		line := t.slice(lo, end)
		if err := r.sized(text{spans: line.spans}); err != nil {
			return nil, err
		}
		lines = append(lines, line)
		lo = next
	}
	return lines, r.spend(len(t.s) / 64)
}

func expandTabs(r *renderer, t text, a []value) (value, error) {
	size, err := intArg(a[0], 8)
	if err != nil {
		return nil, err
	}
	if err := r.growItems(strings.Count(t.s, "\t"), max(size, 0)+16); err != nil {
		return nil, err
	}
	column := 0
	return perChar(t, func(c, _ rune) string {
		switch {
		case c == '\t' && size > 0:
			n := size - column%size
			column += n
			return strings.Repeat(" ", n)
		case c == '\t':
			return ""
		case c == '\n' || c == '\r':
			column = 0
		default:
			column++
		}
		return string(c)
	}), r.growItems(len(t.s), 24)
}
