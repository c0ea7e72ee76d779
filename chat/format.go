package chat

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatSpec is what both of Python's formatting languages can ask for.
type formatSpec struct {
	fill         string
	align        byte // < > = ^, or 0
	sign         byte // + or blank, or 0
	alternate    bool
	width        int
	grouping     byte // , or _, or 0
	precision    int  // -1 where left out
	verb         byte // 0 where left out
	defaultAlign byte
}

// digits reads a number at the start of s, capped far above every limit.
func digits(s string) (n int, rest string) {
	for s != "" && '0' <= s[0] && s[0] <= '9' {
		n, s = min(n*10+int(s[0]-'0'), math.MaxInt32), s[1:]
	}
	return n, s
}

// padded applies width and alignment to a formatted value.
func (r *renderer) padded(t text, f *formatSpec, signLen int) (text, error) {
	gap := f.width - t.length()
	if gap <= 0 {
		return t, r.sized(t)
	}
	align := f.align
	if align == 0 {
		align = f.defaultAlign
	}
	fill := f.fill
	if fill == "" {
		fill = " "
	}
	left := 0
	switch align {
	case '>', '=':
		left = gap
	case '^':
		left = gap / 2
	}
	if err := r.growItems(gap, len(fill)); err != nil {
		return t, err
	}
	before, after := engine(strings.Repeat(fill, left)), engine(strings.Repeat(fill, gap-left))
	if align != '=' {
		signLen = 0
	}
	return concat(t.slice(0, signLen), before, t.slice(signLen, len(t.s)), after), r.sized(t)
}

// number formats an int or float; both languages share these verbs.
func (r *renderer) number(v value, f *formatSpec) (text, error) {
	const mostPrecision = 1000
	if f.precision > mostPrecision {
		return text{}, failf("precision %d is too large", f.precision)
	}
	var s string
	n, isInt := integer(v)
	switch f.verb {
	case 'd', 'i', 'u', 'b', 'o', 'x', 'X', 'n', 0:
		if !isInt {
			return r.float(v, f)
		}
		base := map[byte]int{'b': 2, 'o': 8, 'x': 16, 'X': 16}[f.verb]
		s = bigOf(n).Text(max(base, 2))
		if base == 0 {
			s = bigOf(n).Text(10)
		}
		if f.verb == 'X' {
			s = strings.ToUpper(s)
		}
		if base != 0 && f.alternate {
			prefix := "0" + string(f.verb)
			if after, negative := strings.CutPrefix(s, "-"); negative {
				s = "-" + prefix + after
			} else {
				s = prefix + s
			}
		}
	case 'c':
		code, ok := index(v)
		if !ok || code < 0 || code > utf8.MaxRune || !utf8.ValidRune(rune(code)) {
			return text{}, failf("%%c arg not in range(0x110000)")
		}
		return r.padded(engine(string(rune(code))), f, 0)
	default:
		return r.float(v, f)
	}
	return r.signed(s, f)
}

func (r *renderer) float(v value, f *formatSpec) (text, error) {
	x, ok := floatOf(v)
	if !ok {
		return text{}, failf("must be real number, not %s", typeName(v))
	}
	precision := f.precision
	if precision < 0 {
		precision = 6
	}
	verb := f.verb
	if verb == '%' {
		x *= 100
	}
	var s string
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		s = formatFloat(x)
	case verb == 0 && f.precision < 0:
		s = formatFloat(x)
	case verb == 'f' || verb == 'F' || verb == '%':
		s = strconv.FormatFloat(x, 'f', precision, 64)
	case verb == 'e' || verb == 'E':
		s = strconv.FormatFloat(x, verb, precision, 64)
	case verb == 'g' || verb == 'G' || verb == 'n' || verb == 0:
		s = general(x, max(precision, 1))
		if verb == 0 && !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		if verb == 'G' {
			s = strings.ToUpper(s)
		}
	default:
		return text{}, failf("Unknown format code '%c' for object of type '%s'", verb, typeName(v))
	}
	if verb == '%' {
		s += "%"
	}
	return r.signed(s, f)
}

// general is C's %g.
func general(x float64, precision int) string {
	mantissa, exp, _ := strings.Cut(strconv.FormatFloat(x, 'e', precision-1, 64), "e")
	e, _ := strconv.Atoi(exp)
	trim := func(s string) string {
		if strings.Contains(s, ".") {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		return s
	}
	if e < -4 || e >= precision {
		return trim(mantissa) + "e" + exp
	}
	return trim(strconv.FormatFloat(x, 'f', precision-1-e, 64))
}

// signed adds a sign and grouping to a formatted number, and pads it.
func (r *renderer) signed(s string, f *formatSpec) (text, error) {
	sign := ""
	if after, negative := strings.CutPrefix(s, "-"); negative {
		sign, s = "-", after
	} else if f.sign != 0 {
		sign = string(f.sign)
	}
	if f.grouping != 0 {
		whole := len(s)
		if i := strings.IndexAny(s, ".e%"); i >= 0 {
			whole = i
		}
		for i := whole - 3; i > 0; i -= 3 {
			s = s[:i] + string(f.grouping) + s[i:]
		}
	}
	return r.padded(engine(sign+s), f, len(sign))
}

// percentFormat is Python's format % values.
func (r *renderer) percentFormat(format text, values value) (value, error) {
	args := []value{values}
	mapping, isMapping := values.(*dict)
	optional := isMapping // whatever has subscripts need not be used
	switch v := values.(type) {
	case *sequence:
		if v.kind == tupleKind {
			args = v.items
		} else {
			optional = v.indexable()
		}
	case *rangeValue, *undefined:
		optional = true
	}
	next := func() (value, error) {
		if len(args) == 0 {
			return nil, failf("not enough arguments for format string")
		}
		v := args[0]
		args = args[1:]
		return v, nil
	}
	b := textBuilder{markup: format.markup}
	s, pos := format.s, 0
	for {
		i := strings.IndexByte(s[pos:], '%')
		if i < 0 {
			b.addSlice(format, pos, len(s))
			break
		}
		b.addSlice(format, pos, pos+i)
		rest := s[pos+i+1:]
		if after, ok := strings.CutPrefix(rest, "%"); ok {
			b.addSlice(format, pos+i, pos+i+1)
			pos = len(s) - len(after)
			continue
		}
		f := formatSpec{precision: -1, defaultAlign: '>'}
		var v value
		named := false
		if strings.HasPrefix(rest, "(") {
			key, after, ok := strings.Cut(rest[1:], ")")
			if !ok {
				return nil, failf("incomplete format key")
			}
			if !isMapping {
				return nil, failf("format requires a mapping")
			}
			if v, ok = mapping.str(key); !ok {
				return nil, failf("%s", pyQuote(key))
			}
			rest, named = after, true
		}
		for ; rest != "" && strings.IndexByte("-+ #0", rest[0]) >= 0; rest = rest[1:] {
			switch rest[0] {
			case '-':
				f.align = '<'
			case '+':
				f.sign = '+'
			case ' ':
				if f.sign == 0 {
					f.sign = ' '
				}
			case '#':
				f.alternate = true
			case '0':
				if f.align == 0 {
					f.fill, f.align = "0", '='
				}
			}
		}
		number := func(def int) (int, error) {
			if after, ok := strings.CutPrefix(rest, "*"); ok {
				rest = after
				v, err := next()
				if err != nil {
					return 0, err
				}
				return intArg(v, 0)
			}
			n, after := digits(rest)
			if len(after) == len(rest) {
				n = def
			}
			rest = after
			return n, nil
		}
		var err error
		if f.width, err = number(0); err != nil {
			return nil, err
		}
		if after, ok := strings.CutPrefix(rest, "."); ok {
			rest = after
			if f.precision, err = number(0); err != nil {
				return nil, err
			}
		}
		rest = strings.TrimLeft(rest, "hlL")
		if rest == "" {
			return nil, failf("incomplete format")
		}
		f.verb, rest = rest[0], rest[1:]
		if f.align == '<' {
			f.fill = ""
		}
		if !named {
			if v, err = next(); err != nil {
				return nil, err
			}
		}
		t, err := r.percentValue(v, &f)
		if err != nil {
			return nil, err
		}
		b.addText(t)
		pos = len(s) - len(rest)
	}
	if len(args) > 0 && !optional {
		return nil, failf("not all arguments converted during string formatting")
	}
	out := b.text()
	return out, r.sized(out)
}

func (r *renderer) percentValue(v value, f *formatSpec) (text, error) {
	switch f.verb {
	case 's', 'r', 'a':
		t, err := r.str(v)
		if f.verb != 's' {
			t, err = r.repr(v)
		}
		if err != nil {
			return t, err
		}
		if f.precision >= 0 && f.precision < t.length() {
			t = t.slice(0, t.offset(f.precision))
		}
		f.fill = ""
		if f.align == '=' {
			f.align = 0
		}
		return r.padded(t, f, 0)
	case 'c':
		if t, ok := v.(text); ok && t.length() == 1 {
			return r.padded(t, f, 0)
		}
	case 'd', 'i', 'u':
		if x, ok := v.(float64); ok {
			n, err := truncate(x, nil)
			if err != nil || n == nil {
				return text{}, failf("cannot convert float to integer")
			}
			v = n
		}
	case 'x', 'X', 'o':
		if _, ok := integer(v); !ok {
			return text{}, failf("%%%c format: an integer is required, not %s", f.verb, typeName(v))
		}
	case 'e', 'E', 'f', 'F', 'g', 'G':
	default:
		return text{}, failf("unsupported format character %s", pyQuote(string(rune(f.verb))))
	}
	if u, ok := v.(*undefined); ok {
		return text{}, u.fail()
	}
	if _, ok := floatOf(v); !ok {
		return text{}, failf("%%%c format: a real number is required, not %s", f.verb, typeName(v))
	}
	if f.precision > 0 && strings.IndexByte("diu", f.verb) >= 0 {
		n, _ := integer(v)
		s := new(big.Int).Abs(bigOf(n)).String()
		if f.precision > len(s) {
			if f.precision > 1000 {
				return text{}, failf("precision %d is too large", f.precision)
			}
			s = strings.Repeat("0", f.precision-len(s)) + s
		}
		if bigOf(n).Sign() < 0 {
			s = "-" + s
		}
		return r.signed(s, f)
	}
	return r.number(v, f)
}

// braceFormat is str.format.
func (r *renderer) braceFormat(format text, a args) (value, error) {
	b := textBuilder{markup: format.markup}
	auto := 0
	if err := r.braces(&b, format, a, &auto, 2); err != nil {
		return nil, err
	}
	out := b.text()
	return out, r.sized(out)
}

// braces writes format with its replacement fields filled; specs may hold fields
// themselves, levels deep.
func (r *renderer) braces(b *textBuilder, format text, a args, auto *int, levels int) error {
	if levels == 0 {
		return failf("Max string recursion exceeded")
	}
	s := format.s
	for pos := 0; pos < len(s); {
		i := strings.IndexAny(s[pos:], "{}")
		if i < 0 {
			b.addSlice(format, pos, len(s))
			return nil
		}
		b.addSlice(format, pos, pos+i)
		pos += i
		if pos+1 < len(s) && s[pos+1] == s[pos] {
			b.addSlice(format, pos, pos+1)
			pos += 2
			continue
		}
		if s[pos] == '}' {
			return failf("Single '}' encountered in format string")
		}
		end, depth := pos+1, 1
		for ; end < len(s) && depth > 0; end++ {
			switch s[end] {
			case '{':
				depth++
			case '}':
				depth--
			}
		}
		if depth > 0 {
			return failf("Single '{' encountered in format string")
		}
		if err := r.spend(end - pos); err != nil {
			return err
		}
		t, err := r.field(format.slice(pos+1, end-1), a, auto, levels)
		if err != nil {
			return err
		}
		if err := r.sized(t); err != nil {
			return err
		}
		b.addText(t)
		pos = end
	}
	return nil
}

// field formats one replacement field: name, !conversion and :spec.
func (r *renderer) field(field text, a args, auto *int, levels int) (text, error) {
	name, spec := field.s, text{}
	if i := strings.IndexByte(name, ':'); i >= 0 {
		name, spec = field.s[:i], field.slice(i+1, len(field.s))
	}
	name, conversion, converted := strings.Cut(name, "!")
	v, err := r.fieldValue(name, a, auto)
	if err != nil {
		return text{}, err
	}
	switch {
	case converted && conversion == "s":
		v, err = r.str(v)
	case converted && (conversion == "r" || conversion == "a"):
		v, err = r.repr(v)
	case converted:
		err = failf("Unknown conversion specifier %s", pyQuote(conversion))
	}
	if err != nil {
		return text{}, err
	}
	var inner textBuilder
	if err := r.braces(&inner, spec, a, auto, levels-1); spec.s != "" && err != nil {
		return text{}, err
	}
	return r.formatValue(v, inner.text().s)
}

func (r *renderer) fieldValue(name string, a args, auto *int) (value, error) {
	first := name
	if i := strings.IndexAny(name, ".["); i >= 0 {
		first = name[:i]
	}
	rest := name[len(first):]
	var v value
	n, isNumber := parseInt(first, 10)
	switch {
	case first == "" || isNumber:
		i, _ := index(n)
		if first == "" {
			i = *auto
			*auto++
		}
		if i < 0 || i >= len(a.pos) {
			return nil, failf("Replacement index %d out of range for positional args tuple", i)
		}
		v = a.pos[i]
	default:
		found := false
		for _, arg := range a.named {
			if arg.name == first {
				v, found = arg.v, true
			}
		}
		if !found {
			return nil, failf("%s", pyQuote(first))
		}
	}
	var err error
	for rest != "" && err == nil {
		if after, ok := strings.CutPrefix(rest, "["); ok {
			key, tail, closed := strings.Cut(after, "]")
			if !closed {
				return nil, failf("expected '}' before end of string")
			}
			rest = tail
			if n, ok := parseInt(key, 10); ok {
				v, err = r.item(v, n)
			} else {
				v, err = r.item(v, literal(key))
			}
			continue
		}
		if rest[0] != '.' {
			return nil, failf("Only '.' or '[' may follow ']' in format field specifier")
		}
		attr := rest[1:]
		if i := strings.IndexAny(attr, ".["); i >= 0 {
			attr = attr[:i]
		}
		rest = rest[1+len(attr):]
		v, err = r.attribute(v, literal(attr))
	}
	return v, err
}

// formatValue is Python's format(v, spec).
func (r *renderer) formatValue(v value, spec string) (text, error) {
	if spec == "" {
		return r.str(v)
	}
	f := formatSpec{precision: -1, defaultAlign: '<'}
	rest := spec
	if _, size := utf8.DecodeRuneInString(rest); len(rest) > size && strings.IndexByte("<>=^", rest[size]) >= 0 {
		f.fill, f.align, rest = rest[:size], rest[size], rest[size+1:]
	} else if strings.IndexByte("<>=^", rest[0]) >= 0 {
		f.align, rest = rest[0], rest[1:]
	}
	next := func(set string) byte {
		if rest == "" || strings.IndexByte(set, rest[0]) < 0 {
			return 0
		}
		c := rest[0]
		rest = rest[1:]
		return c
	}
	if c := next("+- "); c != '-' {
		f.sign = c
	}
	f.alternate = next("#") != 0
	if next("0") != 0 && f.align == 0 {
		f.fill, f.align = "0", '='
	}
	f.width, rest = digits(rest)
	f.grouping = next(",_")
	if next(".") != 0 {
		n, after := digits(rest)
		if len(after) == len(rest) {
			return text{}, failf("Format specifier missing precision")
		}
		f.precision, rest = n, after
	}
	if len(rest) > 1 {
		return text{}, failf("Invalid format specifier %s for object of type %s", pyQuote(spec), pyQuote(typeName(v)))
	}
	if rest != "" {
		f.verb = rest[0]
	}
	switch v := v.(type) {
	case text:
		if f.verb != 0 && f.verb != 's' || f.align == '=' || f.sign != 0 {
			return text{}, failf("Unknown format code for object of type 'str'")
		}
		t := v
		if f.precision >= 0 && f.precision < t.length() {
			t = t.slice(0, t.offset(f.precision))
		}
		return r.padded(t, &f, 0)
	case bool, int64, *big.Int, float64:
		f.defaultAlign = '>'
		if _, ok := v.(float64); ok && f.verb != 0 && strings.IndexByte("eEfFgGn%", f.verb) < 0 {
			return text{}, failf("Unknown format code '%c' for object of type 'float'", f.verb)
		}
		if f.verb == 'i' || f.verb == 'u' || f.verb != 0 && strings.IndexByte("bcdeEfFgGnoxX%", f.verb) < 0 {
			return text{}, failf("Unknown format code '%c' for object of type %s", f.verb, pyQuote(typeName(v)))
		}
		return r.number(v, &f)
	case *undefined:
		return text{}, v.fail()
	}
	return text{}, failf("unsupported format string passed to %s.__format__", typeName(v))
}
