package chat

import (
	"math"
	"strings"
)

// scope holds the variables of one block of a template; names not in it are
// looked up in the scope around it. Most scopes hold a few names, for a short
// time: a list serves them better than a map.
type scope struct {
	few    []binding
	many   map[string]value // instead, once there are more than fewBindings
	parent *scope
}

type binding struct {
	name string
	v    value
}

const fewBindings = 16

func (s *scope) inner() *scope { return &scope{parent: s} }

func (s *scope) set(name string, v value) {
	if s.many != nil {
		s.many[name] = v
		return
	}
	for i := range s.few {
		if s.few[i].name == name {
			s.few[i].v = v
			return
		}
	}
	if s.few = append(s.few, binding{name, v}); len(s.few) > fewBindings {
		s.many = make(map[string]value, 2*fewBindings)
		for _, b := range s.few {
			s.many[b.name] = b.v
		}
		s.few = nil
	}
}

func (s *scope) get(name string) (value, bool) {
	for ; s != nil; s = s.parent {
		if s.many != nil {
			if v, ok := s.many[name]; ok {
				return v, true
			}
			continue
		}
		for i := range s.few {
			if s.few[i].name == name {
				return s.few[i].v, true
			}
		}
	}
	return nil, false
}

// eval computes an expression.
func (r *renderer) eval(e expr, s *scope) (value, error) {
	if err := r.spend(1); err != nil {
		return nil, err
	}
	switch e := e.(type) {
	case *constant:
		return e.v, nil
	case *variable:
		if v, ok := s.get(e.name); ok {
			return v, nil
		}
		if g, ok := r.lib.globals[e.name]; ok {
			return g, nil
		}
		return undefinedName(e.name), nil
	case *attribute:
		of, err := r.eval(e.of, s)
		if err != nil {
			return nil, err
		}
		return r.attribute(of, e.name)
	case *subscript:
		return r.evalSubscript(e, s)
	case *slicing:
		return r.evalSlicing(e, s)
	case *call:
		return r.evalCall(e, s)
	case *filtered:
		of, err := r.eval(e.of, s)
		if err != nil {
			return nil, err
		}
		return r.evalFilter(e, of, s)
	case *tested:
		return r.evalTest(e, s)
	case *negation:
		v, err := r.eval(e.of, s)
		return !truth(v), err
	case *unary:
		v, err := r.eval(e.of, s)
		if err != nil {
			return nil, err
		}
		return sign(e.op, v)
	case *binary:
		return r.evalBinary(e, s)
	case *comparison:
		return r.evalComparison(e, s)
	case *joined:
		return r.evalJoined(e, s)
	case *logical:
		v, err := r.eval(e.l, s)
		if err != nil || truth(v) == e.or {
			return v, err
		}
		return r.eval(e.r, s)
	case *ternary:
		return r.evalTernary(e, s)
	case *collection:
		items, err := r.evalAll(e.items, s)
		return &sequence{kind: e.kind, items: items}, err
	case *dictionary:
		return r.evalDict(e, s)
	}
	return nil, failf("unexpected expression %T", e)
}

func (r *renderer) evalAll(list []expr, s *scope) ([]value, error) {
	if err := r.growItems(len(list)+3, 32); err != nil {
		return nil, err
	}
	out := make([]value, len(list))
	for i, e := range list {
		v, err := r.eval(e, s)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

func (r *renderer) evalDict(e *dictionary, s *scope) (value, error) {
	d := newDict(len(e.keys))
	for i := range e.keys {
		key, err := r.eval(e.keys[i], s)
		if err != nil {
			return nil, err
		}
		val, err := r.eval(e.vals[i], s)
		if err != nil {
			return nil, err
		}
		if err := r.put(d, key, val); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// put sets a key of a dict under construction.
func (r *renderer) put(d *dict, key, val value) error {
	if err := r.grow(96); err != nil {
		return err
	}
	return d.set(key, val)
}

func (r *renderer) evalTernary(e *ternary, s *scope) (value, error) {
	cond, err := r.eval(e.cond, s)
	switch {
	case err != nil:
		return nil, err
	case truth(cond):
		return r.eval(e.then, s)
	case e.other == nil:
		return &undefined{"the inline if-expression evaluated to false and no else section was defined."}, nil
	}
	return r.eval(e.other, s)
}

func (r *renderer) evalJoined(e *joined, s *scope) (value, error) {
	parts := make([]text, len(e.parts))
	for i, part := range e.parts {
		v, err := r.eval(part, s)
		if err != nil {
			return nil, err
		}
		if parts[i], err = r.str(v); err != nil {
			return nil, err
		}
		parts[i].markup = false // without autoescape, ~ knows no markup
	}
	return r.concat(false, parts...)
}

// concat joins texts; with markup, those that are none are escaped first.
func (r *renderer) concat(markup bool, parts ...text) (value, error) {
	if markup {
		for i, p := range parts {
			if err := r.growItems(len(p.s), 6); err != nil {
				return nil, err
			}
			parts[i] = escapeHTML(p)
		}
	}
	if err := r.sized(parts...); err != nil {
		return nil, err
	}
	return concat(parts...), nil
}

func sign(op string, v value) (value, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if op == "-" {
		v, ok, err := arithmetic("-", int64(0), v)
		if f, isFloat := v.(float64); isFloat && f == 0 {
			return math.Copysign(0, -1), nil // 0 - 0.0 lacks the sign
		}
		if ok {
			return v, err
		}
	} else if n, ok := integer(v); ok {
		return n, nil
	} else if f, ok := v.(float64); ok {
		return f, nil
	}
	return nil, failf("bad operand type for unary %s: %s", op, pyQuote(typeName(v)))
}

func (r *renderer) evalBinary(e *binary, s *scope) (value, error) {
	a, err := r.eval(e.l, s)
	if err != nil {
		return nil, err
	}
	b, err := r.eval(e.r, s)
	if err != nil {
		return nil, err
	}
	return r.binary(e.op, a, b)
}

// binary is a op b for the operators of arithmetic, on any values.
func (r *renderer) binary(op string, a, b value) (value, error) {
	if v, ok, err := arithmetic(op, a, b); ok {
		return v, err
	}
	if t, ok := a.(text); ok && op == "%" {
		return r.percentFormat(t, b)
	}
	for _, v := range []value{a, b} {
		if u, ok := v.(*undefined); ok {
			return nil, u.fail()
		}
	}
	switch x := a.(type) {
	case text:
		switch op {
		case "+":
			if y, ok := b.(text); ok {
				return r.concat(x.markup || y.markup, x, y)
			}
			return nil, failf("can only concatenate str (not %q) to str", typeName(b))
		case "*":
			if n, ok := index(b); ok {
				return r.repeatText(x, n)
			}
		}
	case *sequence:
		switch y := b.(type) {
		case *sequence:
			if op == "+" && x.indexable() && x.kind == y.kind {
				if err := r.growItems(len(x.items)+len(y.items)+3, 16); err != nil {
					return nil, err
				}
				return &sequence{kind: x.kind, items: append(append([]value{}, x.items...), y.items...)}, nil
			}
		default:
			if n, ok := index(b); ok && op == "*" && x.indexable() {
				return r.repeatItems(x, n)
			}
		}
		if op == "+" && x.indexable() {
			return nil, failf("can only concatenate %s (not %q) to %s", typeName(a), typeName(b), typeName(a))
		}
	default:
		if n, ok := index(a); ok && op == "*" {
			switch y := b.(type) {
			case text:
				return r.repeatText(y, n)
			case *sequence:
				if y.indexable() {
					return r.repeatItems(y, n)
				}
			}
		}
	}
	return nil, failf("unsupported operand type(s) for %s: %s and %s", op, pyQuote(typeName(a)), pyQuote(typeName(b)))
}

func (r *renderer) repeatText(t text, n int) (value, error) {
	n = max(n, 0)
	if len(t.spans) > 0 {
		if err := r.growItems(n, 16*len(t.spans)); err != nil {
			return nil, err
		}
	}
	if err := r.growItems(n, len(t.s)+1); err != nil {
		return nil, err
	}
	if t.spans == nil {
		return text{s: strings.Repeat(t.s, n), by: t.by, markup: t.markup}, nil
	}
	b := textBuilder{markup: t.markup}
	for range n {
		b.addText(t)
	}
	return b.text(), nil
}

func (r *renderer) repeatItems(s *sequence, n int) (value, error) {
	n = max(n, 0)
	if err := r.growItems(n, 16*len(s.items)+1); err != nil {
		return nil, err
	}
	items := make([]value, 0, n*len(s.items))
	for range n {
		items = append(items, s.items...)
	}
	return &sequence{kind: s.kind, items: items}, nil
}

func (r *renderer) evalComparison(e *comparison, s *scope) (value, error) {
	a, err := r.eval(e.first, s)
	if err != nil {
		return nil, err
	}
	for i, op := range e.ops {
		b, err := r.eval(e.rest[i], s)
		if err != nil {
			return nil, err
		}
		var ok bool
		switch op {
		case "==":
			ok, err = r.equal(a, b)
		case "!=":
			ok, err = r.equal(a, b)
			ok = !ok
		case "in":
			ok, err = r.contains(b, a)
		case "not in":
			ok, err = r.contains(b, a)
			ok = !ok
		default:
			ok, err = r.order(op, a, b)
		}
		if err != nil {
			return nil, err
		}
		if !ok {
			return false, nil
		}
		a = b
	}
	return true, nil
}

func (r *renderer) evalSubscript(e *subscript, s *scope) (value, error) {
	of, err := r.eval(e.of, s)
	if err != nil {
		return nil, err
	}
	key, err := r.eval(e.key, s)
	if err != nil {
		return nil, err
	}
	return r.item(of, key)
}

func (r *renderer) evalSlicing(e *slicing, s *scope) (value, error) {
	of, err := r.eval(e.of, s)
	if err != nil {
		return nil, err
	}
	var bounds [3]*int
	for i, b := range []expr{e.start, e.stop, e.step} {
		if b == nil {
			continue
		}
		v, err := r.eval(b, s)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		n, ok := index(v)
		if !ok {
			if u, isUndefined := v.(*undefined); isUndefined {
				return nil, u.fail()
			}
			return nil, failf("slice indices must be integers or None or have an __index__ method")
		}
		bounds[i] = &n
	}
	return r.slice(of, bounds[0], bounds[1], bounds[2])
}

// slice is of[start:stop:step]; bounds left out are nil.
func (r *renderer) slice(of value, start, stop, step *int) (value, error) {
	switch of := of.(type) {
	case *undefined:
		return nil, of.fail()
	case text, *rangeValue:
	case *dict:
		return nil, failf("unhashable type: 'slice'")
	default:
		if s, ok := of.(*sequence); !ok || !s.indexable() {
			return nil, failf("%s object is not subscriptable", pyQuote(typeName(of)))
		}
	}
	n, err := r.length(of)
	if err != nil {
		return nil, err
	}
	by := 1
	if step != nil {
		by = *step
	}
	if by == 0 {
		return nil, failf("slice step cannot be zero")
	}
	first, last := 0, n // last is one past the end in the direction of by
	if by < 0 {
		first, last = n-1, -1
	}
	clip := func(p *int, def int) int {
		if p == nil {
			return def
		}
		i := *p
		if i < 0 {
			i += n
		}
		if by < 0 {
			return min(max(i, -1), n-1)
		}
		return min(max(i, 0), n)
	}
	first, last = clip(start, first), clip(stop, last)
	count := 0
	if by > 0 && last > first {
		count = (last-first-1)/by + 1
	} else if by < 0 && first > last {
		count = (first-last-1)/-by + 1
	}
	switch of := of.(type) {
	case text:
		return r.sliceText(of, first, by, count)
	case *rangeValue:
		out := &rangeValue{start: of.start + int64(first)*of.step, step: of.step * int64(by), length: count}
		out.stop = out.start + int64(count)*out.step
		return out, nil
	case *sequence:
		if err := r.growItems(count+3, 16); err != nil {
			return nil, err
		}
		items := make([]value, count)
		for i := range items {
			items[i] = of.items[first+i*by]
		}
		return &sequence{kind: of.kind, items: items}, nil
	}
	return nil, failf("cannot slice %s", typeName(of))
}

func (r *renderer) sliceText(t text, first, by, count int) (value, error) {
	if by == 1 {
		lo := t.offset(first)
		hi := lo + text{s: t.s[lo:]}.offset(count)
		part := t.slice(lo, hi)
		return part, r.sized(text{spans: part.spans})
	}
	chars, err := r.iterate(t)
	if err != nil {
		return nil, err
	}
	b := textBuilder{markup: t.markup}
	for i := range count {
		b.addText(chars[first+i*by].(text))
	}
	out := b.text()
	return out, r.sized(out)
}
