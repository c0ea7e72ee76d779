package chat

import (
	"math/big"
)

// tests are what may follow is.
func tests() []*methodDef {
	yes := func(names string, f func(v value) bool) *methodDef {
		return def(names, "", func(_ *renderer, in value, _ []value) (value, error) { return f(in), nil })
	}
	order := func(names, op string) *methodDef {
		return def(names, "other", func(r *renderer, in value, a []value) (value, error) { return r.order(op, in, a[0]) })
	}
	known := func(name string, in func(l *library) map[string]*methodDef) *methodDef {
		return def(name, "", func(r *renderer, v value, _ []value) (value, error) {
			t, ok := v.(text)
			return ok && in(r.lib)[t.s] != nil, nil
		})
	}
	return []*methodDef{
		yes("boolean", func(v value) bool { _, ok := v.(bool); return ok }),
		yes("callable", func(v value) bool {
			_, ok := v.(callable)
			return ok || isUndefined(v) // which has the method that fails
		}),
		yes("defined", func(v value) bool { return !isUndefined(v) }),
		yes("undefined", isUndefined),
		def("divisibleby", "num", func(r *renderer, in value, a []value) (value, error) {
			rest, err := r.binary("%", in, a[0])
			if err != nil {
				return nil, err
			}
			return r.equal(rest, int64(0))
		}),
		def("eq == equalto", "other", func(r *renderer, in value, a []value) (value, error) { return r.equal(in, a[0]) }),
		def("ne !=", "other", func(r *renderer, in value, a []value) (value, error) {
			ok, err := r.equal(in, a[0])
			return !ok, err
		}),
		yes("escaped", func(v value) bool { t, ok := v.(text); return ok && t.markup }),
		parity("even", 0),
		parity("odd", 1),
		yes("false", func(v value) bool { return v == false }),
		yes("true", func(v value) bool { return v == true }),
		known("filter", func(l *library) map[string]*methodDef { return l.filters }),
		known("test", func(l *library) map[string]*methodDef { return l.tests }),
		yes("float", func(v value) bool { _, ok := v.(float64); return ok }),
		order("ge >=", ">="),
		order("gt > greaterthan", ">"),
		order("le <=", "<="),
		order("lt < lessthan", "<"),
		def("in", "seq", func(r *renderer, in value, a []value) (value, error) { return r.contains(a[0], in) }),
		yes("integer", isInteger),
		def("iterable", "", func(_ *renderer, in value, _ []value) (value, error) {
			switch in.(type) {
			case text, *sequence, *dict, *rangeValue, *undefined, *loopState:
				return true, nil
			}
			return false, nil
		}),
		def("lower", "", func(r *renderer, in value, _ []value) (value, error) {
			t, err := r.str(in)
			return isLower(t.s), err
		}),
		def("upper", "", func(r *renderer, in value, _ []value) (value, error) {
			t, err := r.str(in)
			return isUpper(t.s), err
		}),
		yes("mapping", func(v value) bool { _, ok := v.(*dict); return ok }),
		yes("none", func(v value) bool { return v == nil }),
		yes("number", func(v value) bool { _, ok := floatOf(v); return ok }),
		def("sameas", "other", func(r *renderer, in value, a []value) (value, error) { return same(in, a[0]), nil }),
		yes("sequence", func(v value) bool {
			// Python asks for len() and subscripts.
			switch v := v.(type) {
			case text, *dict, *rangeValue:
				return true
			case *sequence:
				return v.indexable()
			case *undefined:
				return true
			}
			return false
		}),
		yes("string", func(v value) bool { _, ok := v.(text); return ok }),
	}
}

func isUndefined(v value) bool { _, ok := v.(*undefined); return ok }

func isInteger(v value) bool {
	switch v.(type) {
	case int64, *big.Int:
		return true
	}
	return false
}

func parity(name string, want int64) *methodDef {
	return def(name, "", func(r *renderer, in value, _ []value) (value, error) {
		rest, err := r.binary("%", in, int64(2))
		if err != nil {
			return nil, err
		}
		return r.equal(rest, want)
	})
}

// same is Python's is, for values whose identity Python keeps.
func same(a, b value) bool {
	x, ok := a.(text)
	if y, alsoText := b.(text); ok || alsoText {
		return ok && alsoText && x.s == y.s
	}
	return a == b
}
