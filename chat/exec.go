package chat

import (
	"errors"
	"fmt"
)

// sink receives what statements print.
type sink struct {
	textBuilder
	max int // bytes of output allowed; 0 for a captured piece, which counts as memory
}

func (r *renderer) print(out *sink, t text) error {
	if out.max > 0 && len(t.s) > out.max-out.b.Len() {
		return r.over(LimitOutput, fmt.Sprintf("%d bytes", out.max))
	}
	if err := r.grow(len(t.s) + 16*len(t.spans)); err != nil {
		return err
	}
	out.addText(t)
	return nil
}

// run executes statements.
func (r *renderer) run(body []stmt, s *scope, out *sink) (signal, error) {
	for _, st := range body {
		sig, err := r.step(st, s, out)
		if err != nil {
			if te, ok := errors.AsType[*TemplateError](err); ok && te.Line == 0 {
				te.Line = st.line()
			}
			return goOn, err
		}
		if sig != goOn {
			return sig, nil
		}
	}
	return goOn, nil
}

func (r *renderer) step(st stmt, s *scope, out *sink) (signal, error) {
	if err := r.spend(1); err != nil {
		return goOn, err
	}
	switch st := st.(type) {
	case *data:
		return goOn, r.print(out, st.text)
	case *output:
		for _, e := range st.exprs {
			v, err := r.eval(e, s)
			if err != nil {
				return goOn, err
			}
			t, err := r.str(v)
			if err != nil {
				return goOn, err
			}
			if err := r.print(out, t); err != nil {
				return goOn, err
			}
		}
	case *branch:
		for i, cond := range st.conds {
			v, err := r.eval(cond, s)
			if err != nil {
				return goOn, err
			}
			if truth(v) {
				return r.run(st.bodies[i], s, out)
			}
		}
		if len(st.bodies) > len(st.conds) {
			return r.run(st.bodies[len(st.conds)], s, out)
		}
	case *loop:
		over, err := r.eval(st.over, s)
		if err != nil {
			return goOn, err
		}
		return goOn, r.loop(st, over, s, out, 0)
	case *assign:
		v, err := r.eval(st.value, s)
		if err != nil {
			return goOn, err
		}
		return goOn, r.assign(st.target, v, s)
	case *capture:
		t, err := r.capture(st.body, s.inner(), st.filters, s)
		if err != nil {
			return goOn, err
		}
		return goOn, r.assign(st.target, t, s)
	case *define:
		s.set(st.macro.name, &macro{st.macro, s})
		return goOn, r.grow(256) // it keeps the scope
	case *callBlock:
		return goOn, r.callBlock(st, s, out)
	case *filterBlock:
		v, err := r.capture(st.body, s.inner(), st.filters, s)
		if err != nil {
			return goOn, err
		}
		t, err := r.str(v)
		if err != nil {
			return goOn, err
		}
		return goOn, r.print(out, t)
	case *scoped:
		inner := s.inner()
		for i, t := range st.targets {
			// Jinja evaluates the values outside of the block's scope.
			v, err := r.eval(st.values[i], s)
			if err != nil {
				return goOn, err
			}
			if err := r.assign(t, v, inner); err != nil {
				return goOn, err
			}
		}
		return r.run(st.body, inner, out)
	case *jump:
		return st.signal, nil
	}
	return goOn, nil
}

// capture runs a body and returns what it printed, put through filters, whose
// arguments are evaluated in the scope s.
func (r *renderer) capture(body []stmt, inner *scope, filters expr, s *scope) (value, error) {
	var piece sink
	if _, err := r.run(body, inner, &piece); err != nil {
		return nil, err
	}
	t := piece.text()
	return r.applyFilters(filters, t, s)
}

// applyFilters puts a value through filters that were written over nothing.
func (r *renderer) applyFilters(e expr, v value, s *scope) (value, error) {
	f, ok := e.(*filtered)
	if !ok {
		return v, nil
	}
	v, err := r.applyFilters(f.of, v, s)
	if err != nil {
		return nil, err
	}
	return r.evalFilter(f, v, s)
}

func (r *renderer) assign(t target, v value, s *scope) error {
	switch {
	case t.tuple:
		items, err := r.iterate(v)
		if _, ok := errors.AsType[*TemplateError](err); ok {
			return failf("cannot unpack non-iterable %s object", typeName(v))
		}
		if err != nil {
			return err
		}
		switch {
		case len(items) < len(t.parts):
			return failf("not enough values to unpack (expected %d, got %d)", len(t.parts), len(items))
		case len(items) > len(t.parts):
			return failf("too many values to unpack (expected %d)", len(t.parts))
		}
		for i, part := range t.parts {
			if err := r.assign(part, items[i], s); err != nil {
				return err
			}
		}
		return nil
	case t.attr != "":
		of, ok := s.get(t.name)
		if !ok {
			return undefinedName(t.name).fail()
		}
		ns, ok := of.(*namespace)
		if !ok {
			return failf("cannot assign attribute on non-namespace object")
		}
		if t.attr[0] == '_' {
			return failf("namespace attributes cannot start with an underscore: %s", pyQuote(t.attr))
		}
		// Only as many names as the source holds: that needs no account.
		return ns.attrs.set(literal(t.attr), v)
	}
	s.set(t.name, v)
	return nil
}

// loopState is the variable called loop.
type loopState struct {
	items   items
	at      int
	depth   int // of recursion, from 0
	recurse func(over value, depth int) (value, error)
	changed []value // the arguments of the last call of loop.changed; nil before
}

// items is what a loop goes through: values, or the numbers of a range, which
// are not made before they are needed.
type items struct {
	values  []value
	numbers *rangeValue
}

func (it items) len() int {
	if it.numbers != nil {
		return it.numbers.length
	}
	return len(it.values)
}

func (it items) get(i int) value {
	if it.numbers != nil {
		return it.numbers.at(i)
	}
	return it.values[i]
}

func (r *renderer) loop(st *loop, over value, s *scope, out *sink, depth int) error {
	var all items
	if n, ok := over.(*rangeValue); ok {
		all.numbers = n
	} else {
		var err error
		if all.values, err = r.iterate(over); err != nil {
			return err
		}
	}
	if st.cond != nil {
		var err error
		if all, err = r.filterItems(st, all, s); err != nil {
			return err
		}
	}
	state := &loopState{items: all, depth: depth}
	if st.recursive {
		state.recurse = func(over value, depth int) (value, error) {
			if err := r.enter(); err != nil {
				return nil, err
			}
			defer r.leave()
			var piece sink
			err := r.loop(st, over, s, &piece, depth)
			return piece.text(), err
		}
	}
	completed := false
	for i := range all.len() {
		state.at = i
		if err := r.spend(4); err != nil {
			return err
		}
		inner := &scope{few: make([]binding, 1, 4), parent: s}
		inner.few[0] = binding{"loop", state}
		if err := r.assign(st.target, all.get(i), inner); err != nil {
			return err
		}
		sig, err := r.run(st.body, inner, out)
		if err != nil {
			return err
		}
		if sig == breakLoop {
			break
		}
		completed = completed || sig == goOn
	}
	if !completed { // so it is in Jinja: an iteration that jumps away does not count
		_, err := r.run(st.other, s.inner(), out)
		return err
	}
	return nil
}

// filterItems keeps the items that the loop's condition holds for.
func (r *renderer) filterItems(st *loop, all items, s *scope) (items, error) {
	if err := r.growItems(all.len(), 32); err != nil {
		return items{}, err
	}
	var kept []value
	for i := range all.len() {
		item := all.get(i)
		inner := s.inner()
		if err := r.assign(st.target, item, inner); err != nil {
			return items{}, err
		}
		ok, err := r.eval(st.cond, inner)
		if err != nil {
			return items{}, err
		}
		if truth(ok) {
			kept = append(kept, item)
		}
	}
	return items{values: kept}, nil
}

func (l *loopState) attribute(r *renderer, name string) (value, bool) {
	n := l.items.len()
	switch name {
	case "index":
		return int64(l.at + 1), true
	case "index0":
		return int64(l.at), true
	case "revindex":
		return int64(n - l.at), true
	case "revindex0":
		return int64(n - l.at - 1), true
	case "first":
		return l.at == 0, true
	case "last":
		return l.at == n-1, true
	case "length":
		return int64(n), true
	case "depth":
		return int64(l.depth + 1), true
	case "depth0":
		return int64(l.depth), true
	case "previtem":
		if l.at == 0 {
			return &undefined{"there is no previous item"}, true
		}
		return l.items.get(l.at - 1), true
	case "nextitem":
		if l.at == n-1 {
			return &undefined{"there is no next item"}, true
		}
		return l.items.get(l.at + 1), true
	case "cycle":
		return &builtin{"cycle", func(r *renderer, a args) (value, error) {
			if len(a.pos) == 0 {
				return nil, failf("no items for cycling given")
			}
			return a.pos[l.at%len(a.pos)], nil
		}}, true
	case "changed":
		return &builtin{"changed", func(r *renderer, a args) (value, error) {
			if l.changed != nil {
				if same, err := r.equal(tuple(l.changed...), tuple(a.pos...)); same || err != nil {
					return false, err
				}
			}
			l.changed = append([]value{}, a.pos...)
			return true, nil
		}}, true
	}
	return nil, false
}

// call is loop(items) in a recursive loop.
func (l *loopState) call(r *renderer, a args) (value, error) {
	if l.recurse == nil {
		return nil, failf("The loop must have the 'recursive' marker to be called recursively.")
	}
	if len(a.pos) != 1 || len(a.named) > 0 {
		return nil, failf("loop() takes one argument")
	}
	return l.recurse(a.pos[0], l.depth+1)
}

// macro is a macro with the scope that it was defined in.
type macro struct {
	def     *macroDef
	closure *scope
}

// call runs the macro, binding arguments as Jinja does.
func (m *macro) call(r *renderer, a args) (value, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	def := m.def
	if err := r.growItems(len(def.params)+4, 64); err != nil {
		return nil, err
	}
	inner := m.closure.inner()
	named := a.named
	take := func(name string) (value, bool) {
		for i, arg := range named {
			if arg.name == name {
				named = append(append([]namedArg{}, named[:i]...), named[i+1:]...)
				return arg.v, true
			}
		}
		return nil, false
	}
	for i, name := range def.params {
		v, given := value(nil), i < len(a.pos)
		if given {
			v = a.pos[i]
		} else {
			v, given = take(name)
		}
		if given {
			inner.set(name, v)
			continue
		}
		if d := i - (len(def.params) - len(def.defaults)); d >= 0 {
			var err error
			if v, err = r.eval(def.defaults[d], inner); err != nil {
				return nil, err
			}
		} else {
			v = &undefined{"parameter " + pyQuote(name) + " was not provided"}
		}
		inner.set(name, v)
	}
	if def.caller {
		caller, ok := take("caller")
		if !ok {
			caller = &undefined{"No caller defined"}
		}
		inner.set("caller", caller)
	}
	if def.kwargs {
		d := newDict(len(named))
		for _, arg := range named {
			if err := r.put(d, literal(arg.name), arg.v); err != nil {
				return nil, err
			}
		}
		inner.set("kwargs", d)
	} else if len(named) > 0 {
		return nil, failf("macro %s takes no keyword argument %s", pyQuote(def.name), pyQuote(named[0].name))
	}
	extra := a.pos[min(len(def.params), len(a.pos)):]
	if def.varargs {
		inner.set("varargs", tuple(extra...))
	} else if len(extra) > 0 {
		return nil, failf("macro %s takes not more than %d argument(s)", pyQuote(def.name), len(def.params))
	}
	return r.capture(def.body, inner, nil, nil)
}

func (r *renderer) callBlock(st *callBlock, s *scope, out *sink) error {
	fn, err := r.eval(st.call.fn, s)
	if err != nil {
		return err
	}
	a, err := r.evalArgs(&st.call.args, s)
	if err != nil {
		return err
	}
	a.named = append(a.named, namedArg{"caller", &macro{st.caller, s}})
	v, err := r.call(fn, a)
	if err != nil {
		return err
	}
	t, err := r.str(v)
	if err != nil {
		return err
	}
	return r.print(out, t)
}
