package chat

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
)

// or returns v, or def if the call did not give it.
func or(v, def value) value {
	if v == missing {
		return def
	}
	return v
}

// flag returns whether v was given and holds.
func flag(v value) bool { return v != missing && truth(v) }

// intArg returns a parameter that must be an integer.
func intArg(v value, def int) (int, error) {
	if v == missing {
		return def, nil
	}
	if u, ok := v.(*undefined); ok {
		return 0, u.fail()
	}
	n, ok := index(v)
	if !ok {
		return 0, failf("%s object cannot be interpreted as an integer", pyQuote(typeName(v)))
	}
	return n, nil
}

// valueFilters are the filters for numbers and for values of any kind.
func valueFilters() []*methodDef {
	return []*methodDef{
		def("abs", "", filterAbs),
		def("attr", "name", func(r *renderer, in value, a []value) (value, error) {
			name, ok := a[0].(text)
			if u, isUndefined := in.(*undefined); isUndefined {
				return nil, u.fail()
			}
			if !ok {
				return nil, failf("attribute name must be string, not %s", pyQuote(typeName(a[0])))
			}
			if v, ok, err := r.member(in, name); ok || err != nil {
				return v, err
			}
			return undefinedMember(in, name), nil
		}),
		def("default d", "default_value? boolean?", func(_ *renderer, in value, a []value) (value, error) {
			if _, ok := in.(*undefined); ok || flag(a[1]) && !truth(in) {
				return or(a[0], text{}), nil
			}
			return in, nil
		}),
		def("filesizeformat", "binary?", filterFileSize),
		def("float", "default?", func(_ *renderer, in value, a []value) (value, error) {
			if f, ok := floatOf(in); ok {
				return f, nil
			}
			if t, ok := in.(text); ok {
				if f, ok := parseFloat(t.s); ok {
					return f, nil
				}
			}
			if u, ok := in.(*undefined); ok {
				return nil, u.fail()
			}
			return or(a[0], 0.0), nil
		}),
		def("int", "default? base?", filterInt),
		def("length count", "", func(r *renderer, in value, _ []value) (value, error) {
			n, err := r.length(in)
			return int64(n), err
		}),
		def("round", "precision? method?", filterRound),
		def("string", "", func(r *renderer, in value, _ []value) (value, error) { return r.str(in) }),
		{name: "tojson", sig: sig("ensure_ascii? indent? separators? sort_keys?"),
			fn: func(r *renderer, in value, a []value) (value, error) {
				return toJSON(r, in, []value{or(a[0], false), or(a[1], nil), or(a[2], nil), or(a[3], false)})
			}},
	}
}

func filterAbs(_ *renderer, in value, _ []value) (value, error) {
	if u, ok := in.(*undefined); ok {
		return nil, failf("bad operand type for abs(): %s", pyQuote(typeName(u)))
	}
	if f, ok := in.(float64); ok {
		return math.Abs(f), nil
	}
	n, ok := integer(in)
	if !ok {
		return nil, failf("bad operand type for abs(): %s", pyQuote(typeName(in)))
	}
	if c, _ := compareNumbers(n, int64(0)); c >= 0 {
		return n, nil
	}
	return integerArithmetic("-", int64(0), n)
}

func filterInt(_ *renderer, in value, a []value) (value, error) {
	base, err := intArg(a[1], 10)
	if err != nil {
		return nil, err
	}
	switch v := in.(type) {
	case *undefined:
		return nil, v.fail()
	case text:
		if base != 0 && (base < 2 || base > 36) {
			return or(a[0], int64(0)), nil
		}
		if n, ok := parseInt(v.s, base); ok {
			return n, nil
		}
		if f, ok := parseFloat(v.s); ok {
			return truncate(f, or(a[0], int64(0)))
		}
	case float64:
		return truncate(v, or(a[0], int64(0)))
	}
	if n, ok := integer(in); ok {
		return n, nil
	}
	return or(a[0], int64(0)), nil
}

// truncate is Python's int(f); def stands for what is not finite.
func truncate(f float64, def value) (value, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return def, nil
	}
	n, _ := big.NewFloat(f).Int(nil)
	return fromBig(n)
}

func filterRound(r *renderer, in value, a []value) (value, error) {
	precision, err := intArg(a[0], 0)
	if err != nil {
		return nil, err
	}
	method, ok := or(a[1], literal("common")).(text)
	if !ok || method.s != "common" && method.s != "ceil" && method.s != "floor" {
		return nil, failf("method must be common, ceil or floor")
	}
	if u, ok := in.(*undefined); ok {
		return nil, u.fail()
	}
	f, ok := floatOf(in)
	if !ok {
		return nil, failf("type %s doesn't define __round__ method", typeName(in))
	}
	if precision = min(max(precision, -400), 400); method.s != "common" {
		scale := math.Pow(10, float64(precision))
		f *= scale
		if method.s == "ceil" {
			f = math.Ceil(f)
		} else {
			f = math.Floor(f)
		}
		return f / scale, nil
	}
	if n, ok := integer(in); ok {
		return roundInteger(n, precision)
	}
	if precision >= 0 { // rounding the exact decimal value, half to even
		f, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64)
		if err != nil {
			return nil, failf("cannot round: %v", err)
		}
		return f, nil
	}
	scale := math.Pow(10, float64(-precision))
	return math.RoundToEven(f/scale) * scale, nil
}

// roundInteger rounds to a power of ten, half to even.
func roundInteger(n value, precision int) (value, error) {
	if precision >= 0 {
		return n, nil
	}
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-precision)), nil)
	q, rest := new(big.Int).DivMod(bigOf(n), scale, new(big.Int))
	if c := new(big.Int).Lsh(rest, 1).Cmp(scale); c > 0 || c == 0 && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(1))
	}
	return fromBig(q.Mul(q, scale))
}

func filterFileSize(_ *renderer, in value, a []value) (value, error) {
	f, ok := floatOf(in)
	if t, isText := in.(text); isText {
		f, ok = parseFloat(t.s)
	}
	if !ok {
		return nil, failf("could not convert %s to float", typeName(in))
	}
	base, units := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if flag(a[0]) {
		base, units = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	switch {
	case f == 1:
		return engine("1 Byte"), nil
	case f < base:
		return engine(fmt.Sprintf("%.0f Bytes", math.Trunc(f))), nil
	}
	unit := base
	for i, name := range units {
		if unit *= base; f < unit || i == len(units)-1 {
			return engine(fmt.Sprintf("%.1f %s", base*f/unit, name)), nil
		}
	}
	return nil, failf("no unit for the size")
}
