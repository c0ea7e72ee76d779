package chat

import (
	"cmp"
	"math/big"
	"strings"
)

// equal is Python's a == b.
func (r *renderer) equal(a, b value) (bool, error) {
	if err := r.spend(1); err != nil {
		return false, err
	}
	if c, ok := compareNumbers(a, b); ok {
		return c == 0, nil
	}
	switch a := a.(type) {
	case nil:
		return b == nil, nil
	case *undefined:
		_, ok := b.(*undefined)
		return ok, nil
	case text:
		b, ok := b.(text)
		return ok && a.s == b.s, r.spend(len(a.s) / 64)
	case *sequence:
		b, ok := b.(*sequence)
		if !ok || a.kind != b.kind || a.kind == generatorKind || a.kind == valuesKind {
			return ok && a == b, nil
		}
		if len(a.items) != len(b.items) {
			return false, nil
		}
		if a.kind == keysKind || a.kind == itemsKind {
			return r.containsAll(b, a.items)
		}
		return r.equalItems(a.items, b.items)
	case *dict:
		b, ok := b.(*dict)
		if !ok || len(a.keys) != len(b.keys) {
			return false, nil
		}
		return r.equalDicts(a, b)
	case *rangeValue:
		b, ok := b.(*rangeValue)
		return ok && a.length == b.length && (a.length == 0 || a.start == b.start && (a.length == 1 || a.step == b.step)), nil
	case bool, int64, float64, *big.Int:
		return false, nil
	}
	if _, ok := b.(text); ok { // texts hold slices: Go cannot compare them
		return false, nil
	}
	return a == b, nil // the rest are pointers, compared by identity
}

func (r *renderer) equalItems(a, b []value) (bool, error) {
	if err := r.enter(); err != nil {
		return false, err
	}
	defer r.leave()
	for i := range a {
		if ok, err := r.equal(a[i], b[i]); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (r *renderer) equalDicts(a, b *dict) (bool, error) {
	if err := r.enter(); err != nil {
		return false, err
	}
	defer r.leave()
	for i, key := range a.keys {
		other, ok, err := b.get(key)
		if err != nil || !ok {
			return false, err
		}
		if ok, err := r.equal(a.vals[i], other); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (r *renderer) containsAll(in value, items []value) (bool, error) {
	for _, item := range items {
		if ok, err := r.contains(in, item); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// compareNumbers orders two numbers; ok is false if either is none. NaN is
// unequal to everything and neither less nor greater, which 2 stands for.
func compareNumbers(a, b value) (c int, ok bool) {
	x, xInt := integer(a)
	y, yInt := integer(b)
	if xInt && yInt {
		if n, ok := x.(int64); ok {
			if m, ok := y.(int64); ok {
				return cmp.Compare(n, m), true
			}
		}
		return bigOf(x).Cmp(bigOf(y)), true
	}
	f, xNum := floatOf(a)
	g, yNum := floatOf(b)
	switch {
	case !xNum || !yNum:
		return 0, false
	case f != f || g != g:
		return 2, true
	}
	return cmp.Compare(f, g), true
}

// order is Python's ordering for the operator op, one of < <= > >=.
func (r *renderer) order(op string, a, b value) (bool, error) {
	c, err := r.compare(op, a, b)
	if err != nil || c == 2 {
		return false, err
	}
	switch op {
	case "<":
		return c < 0, nil
	case "<=":
		return c <= 0, nil
	case ">":
		return c > 0, nil
	default:
		return c >= 0, nil
	}
}

// compare orders a and b; op only words the error.
func (r *renderer) compare(op string, a, b value) (int, error) {
	if err := r.spend(1); err != nil {
		return 0, err
	}
	if c, ok := compareNumbers(a, b); ok {
		return c, nil
	}
	switch x := a.(type) {
	case *undefined:
		return 0, x.fail()
	case text:
		if y, ok := b.(text); ok {
			return strings.Compare(x.s, y.s), r.spend(min(len(x.s), len(y.s)) / 64)
		}
	case *sequence:
		if y, ok := b.(*sequence); ok && x.indexable() && x.kind == y.kind {
			return r.compareItems(op, x.items, y.items)
		}
	}
	if u, ok := b.(*undefined); ok {
		return 0, u.fail()
	}
	return 0, failf("%s not supported between instances of %s and %s", pyQuote(op), pyQuote(typeName(a)), pyQuote(typeName(b)))
}

func (r *renderer) compareItems(op string, a, b []value) (int, error) {
	if err := r.enter(); err != nil {
		return 0, err
	}
	defer r.leave()
	for i := range min(len(a), len(b)) {
		same, err := r.equal(a[i], b[i])
		if err != nil {
			return 0, err
		}
		if !same {
			return r.compare(op, a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b)), nil
}

// contains is Python's item in container.
func (r *renderer) contains(container, item value) (bool, error) {
	switch c := container.(type) {
	case text:
		sub, ok := item.(text)
		if !ok {
			return false, failf("'in <string>' requires string as left operand, not %s", typeName(item))
		}
		return strings.Contains(c.s, sub.s), r.spend(len(c.s) / 64)
	case *dict:
		_, ok, err := c.get(item)
		return ok, err
	case *rangeValue:
		n, ok := compareNumbers(item, item)
		if !ok || n != 0 {
			return false, nil
		}
	case nil, bool, int64, float64, *big.Int, *namespace, *macro, *cycler, *joiner, *builtin, *method:
		return false, failf("argument of type %s is not iterable", pyQuote(typeName(container)))
	}
	items, err := r.iterate(container)
	if err != nil {
		return false, err
	}
	for _, it := range items {
		if ok, err := r.equal(it, item); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}
