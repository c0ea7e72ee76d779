package chat

import (
	"fmt"
	"strings"
)

// args is the arguments of one call.
type args struct {
	pos   []value
	named []namedArg
}

type namedArg struct {
	name string
	v    value
}

// callable is a value that can be called.
type callable interface {
	call(r *renderer, a args) (value, error)
}

// builtin is a function of the engine.
type builtin struct {
	name string
	fn   func(r *renderer, a args) (value, error)
}

func (b *builtin) call(r *renderer, a args) (value, error) { return b.fn(r, a) }

// signature is the parameters of a function of the engine. Those from required
// on may be left out, and are then missing. With rest, further positional
// arguments are allowed and follow the parameters.
type signature struct {
	params   []string
	required int
	rest     bool
}

// sig reads a signature such as "old new count?" or "start *".
func sig(spec string) signature {
	var s signature
	for p := range strings.FieldsSeq(spec) {
		name, optional := strings.CutSuffix(p, "?")
		switch {
		case p == "*":
			s.rest = true
			continue
		case !optional:
			s.required++
		}
		s.params = append(s.params, name)
	}
	return s
}

// bind lines the arguments of a call up with the parameters.
func (s *signature) bind(function string, a args) ([]value, error) {
	out := make([]value, max(len(s.params), len(a.pos)))
	for i := range out {
		out[i] = missing
	}
	if n := copy(out, a.pos); n > len(s.params) && !s.rest {
		return nil, failf("%s() takes at most %d arguments (%d given)", function, len(s.params), len(a.pos))
	}
next:
	for _, arg := range a.named {
		for i, p := range s.params {
			if p != arg.name {
				continue
			}
			if out[i] != missing {
				return nil, failf("%s() got multiple values for argument %s", function, pyQuote(p))
			}
			out[i] = arg.v
			continue next
		}
		return nil, failf("%s() got an unexpected keyword argument %s", function, pyQuote(arg.name))
	}
	for i := range s.required {
		if out[i] == missing {
			return nil, failf("%s() missing required argument: %s", function, pyQuote(s.params[i]))
		}
	}
	return out, nil
}

func (r *renderer) evalArgs(list *argList, s *scope) (args, error) {
	var a args
	var err error
	if n := len(list.pos) + len(list.named); n > 0 {
		if a.pos, err = r.evalAll(list.pos, s); err != nil {
			return a, err
		}
	}
	for i, e := range list.named {
		v, err := r.eval(e, s)
		if err != nil {
			return a, err
		}
		a.named = append(a.named, namedArg{list.names[i], v})
	}
	if list.star != nil {
		v, err := r.eval(list.star, s)
		if err != nil {
			return a, err
		}
		items, err := r.iterate(v)
		if err != nil {
			return a, err
		}
		if err := r.growItems(len(items), 16); err != nil {
			return a, err
		}
		a.pos = append(a.pos, items...)
	}
	if list.starStar != nil {
		v, err := r.eval(list.starStar, s)
		if err != nil {
			return a, err
		}
		d, ok := v.(*dict)
		if !ok {
			return a, failf("argument after ** must be a mapping, not %s", typeName(v))
		}
		for i, key := range d.keys {
			k, ok := key.(text)
			if !ok {
				return a, failf("keywords must be strings")
			}
			if err := r.grow(48); err != nil {
				return a, err
			}
			a.named = append(a.named, namedArg{k.s, d.vals[i]})
		}
	}
	return a, nil
}

func (r *renderer) evalCall(e *call, s *scope) (value, error) {
	// A method is called without making a bound method of it first.
	if at, ok := e.fn.(*attribute); ok {
		self, err := r.eval(at.of, s)
		if err != nil {
			return nil, err
		}
		if m := r.lib.methodOf(self, at.name.s); m != nil {
			a, err := r.evalArgs(&e.args, s)
			if err != nil {
				return nil, err
			}
			return m.invoke(r, self, a)
		}
		fn, err := r.attribute(self, at.name)
		if err != nil {
			return nil, err
		}
		return r.evalCallOf(fn, e, s)
	}
	fn, err := r.eval(e.fn, s)
	if err != nil {
		return nil, err
	}
	return r.evalCallOf(fn, e, s)
}

func (r *renderer) evalCallOf(fn value, e *call, s *scope) (value, error) {
	a, err := r.evalArgs(&e.args, s)
	if err != nil {
		return nil, err
	}
	return r.call(fn, a)
}

func (r *renderer) call(fn value, a args) (value, error) {
	switch fn := fn.(type) {
	case callable:
		return fn.call(r, a)
	case *undefined:
		return nil, fn.fail()
	}
	return nil, failf("%s object is not callable", pyQuote(typeName(fn)))
}

// methodDef is a method of one of Python's types, a filter or a test.
type methodDef struct {
	name string // more than one, with blanks between, for aliases
	sig  signature
	fn   func(r *renderer, self value, a []value) (value, error)
	raw  func(r *renderer, self value, a args) (value, error) // instead of sig and fn
}

func (m *methodDef) invoke(r *renderer, self value, a args) (value, error) {
	if m.raw != nil {
		return m.raw(r, self, a)
	}
	name, _, _ := strings.Cut(m.name, " ")
	bound, err := m.sig.bind(name, a)
	if err != nil {
		return nil, err
	}
	return m.fn(r, self, bound)
}

// method is a method bound to its object.
type method struct {
	def  *methodDef
	self value
}

func (m *method) call(r *renderer, a args) (value, error) { return m.def.invoke(r, m.self, a) }

// library is what templates can name: it is made once for each template, and
// not changed after.
type library struct {
	globals map[string]value
	filters map[string]*methodDef
	tests   map[string]*methodDef
	// The methods of strings, dicts, lists and tuples, floats and cyclers.
	text, dict, sequence, float, cycler map[string]*methodDef
}

func newLibrary() *library {
	return &library{
		globals:  globals(),
		filters:  byName(textFilters(), sequenceFilters(), valueFilters()),
		tests:    byName(tests()),
		text:     byName(textMethods(), textPredicates()),
		dict:     byName(dictMethods()),
		sequence: byName(sequenceMethods()),
		float:    byName(floatMethods()),
		cycler:   byName(cyclerMethods()),
	}
}

func byName(lists ...[]*methodDef) map[string]*methodDef {
	m := map[string]*methodDef{}
	for _, list := range lists {
		for _, d := range list {
			for name := range strings.FieldsSeq(d.name) {
				m[name] = d
			}
		}
	}
	return m
}

// def describes a function that takes its parameters in order.
func def(names, params string, fn func(r *renderer, self value, a []value) (value, error)) *methodDef {
	return &methodDef{name: names, sig: sig(params), fn: fn}
}

// methodOf finds a method of v's type; nil if there is none.
func (l *library) methodOf(v value, name string) *methodDef {
	switch v := v.(type) {
	case text:
		return l.text[name]
	case *dict:
		return l.dict[name]
	case *sequence:
		if v.indexable() {
			return l.sequence[name]
		}
	case float64:
		return l.float[name]
	case *cycler:
		return l.cycler[name]
	}
	return nil
}

// unsafeMethods are those that transformers' sandbox refuses, since they change
// their object.
var unsafeMethods = map[string]string{
	"append": "list", "extend": "list", "insert": "list", "remove": "list", "reverse": "list", "sort": "list",
	"pop": "list dict", "clear": "list dict", "popitem": "dict", "setdefault": "dict", "update": "dict",
}

// member finds what Python's getattr would; ok is false if there is nothing.
func (r *renderer) member(of value, name text) (v value, ok bool, err error) {
	if m := r.lib.methodOf(of, name.s); m != nil {
		return &method{m, of}, true, r.grow(64)
	}
	switch of := of.(type) {
	case *loopState:
		v, ok = of.attribute(r, name.s)
	case *namespace:
		v, ok = of.attrs.str(name.s)
	case *rangeValue:
		switch name.s {
		case "start":
			return of.start, true, nil
		case "stop":
			return of.stop, true, nil
		case "step":
			return of.step, true, nil
		}
	case *cycler:
		if name.s == "current" {
			return of.items[of.at], true, nil
		}
	case *macro:
		switch name.s {
		case "name":
			return literal(of.def.name), true, nil
		case "arguments":
			params := make([]value, len(of.def.params))
			for i, p := range of.def.params {
				params[i] = literal(p)
			}
			return tuple(params...), true, nil
		}
	case *builtin:
		if name.s == "fromkeys" && of.name == "dict" {
			return &builtin{"fromkeys", dictFromKeys}, true, nil
		}
	}
	if !ok && strings.HasPrefix(name.s, "__") || strings.Contains(unsafeMethods[name.s], typeName(of)) && unsafeMethods[name.s] != "" {
		return &undefined{fmt.Sprintf("access to attribute %s of %s object is unsafe.", pyQuote(name.s), pyQuote(typeName(of)))}, true, nil
	}
	return v, ok, nil
}

// attribute is of.name: a member, else an item, else undefined.
func (r *renderer) attribute(of value, name text) (value, error) {
	if u, ok := of.(*undefined); ok {
		return nil, u.fail()
	}
	if v, ok, err := r.member(of, name); ok || err != nil {
		return v, err
	}
	if d, ok := of.(*dict); ok {
		if v, ok := d.str(name.s); ok {
			return v, nil
		}
	}
	return undefinedMember(of, name), nil
}

// item is of[key]: an item, else a member, else undefined.
func (r *renderer) item(of, key value) (value, error) {
	switch of := of.(type) {
	case *undefined:
		return nil, of.fail()
	case *dict:
		if v, ok, err := of.get(key); ok && err == nil {
			return v, nil
		}
	case *sequence:
		if i, ok := index(key); ok && of.indexable() {
			if i < 0 {
				i += len(of.items)
			}
			if i >= 0 && i < len(of.items) {
				return of.items[i], nil
			}
		}
	case *rangeValue:
		if i, ok := index(key); ok {
			if i < 0 {
				i += of.length
			}
			if i >= 0 && i < of.length {
				return of.at(i), nil
			}
		}
	case text:
		if i, ok := index(key); ok {
			n, err := r.length(of)
			if err != nil {
				return nil, err
			}
			if i < 0 {
				i += n
			}
			if i >= 0 && i < n {
				return r.sliceText(of, i, 1, 1)
			}
		}
	}
	if name, ok := key.(text); ok {
		if v, ok, err := r.member(of, name); ok || err != nil {
			return v, err
		}
	}
	return undefinedMember(of, key), nil
}

func (r *renderer) evalFilter(e *filtered, of value, s *scope) (value, error) {
	a, err := r.evalArgs(&e.args, s)
	if err != nil {
		return nil, err
	}
	return r.filter(e.name, of, a)
}

// filter applies the filter called name.
func (r *renderer) filter(name string, of value, a args) (value, error) {
	f := r.lib.filters[name]
	if f == nil {
		return nil, failf("No filter named %s.", pyQuote(name))
	}
	return f.invoke(r, of, a)
}

func (r *renderer) evalTest(e *tested, s *scope) (value, error) {
	of, err := r.eval(e.of, s)
	if err != nil {
		return nil, err
	}
	a, err := r.evalArgs(&e.args, s)
	if err != nil {
		return nil, err
	}
	return r.test(e.name, of, a)
}

// test applies the test called name.
func (r *renderer) test(name string, of value, a args) (value, error) {
	t := r.lib.tests[name]
	if t == nil {
		return nil, failf("No test named %s.", pyQuote(name))
	}
	return t.invoke(r, of, a)
}
