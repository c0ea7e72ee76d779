package chat

import (
	"strings"
)

// maxRange is the longest range that transformers' sandbox allows.
const maxRange = 100000

// globals is the functions that every template can call.
func globals() map[string]value {
	m := map[string]value{}
	for _, b := range []*builtin{
		{"range", rangeFunc},
		{"dict", dictFunc},
		{"namespace", namespaceFunc},
		{"cycler", cyclerFunc},
		{"joiner", joinerFunc},
		{"raise_exception", raiseFunc},
		{"strftime_now", strftimeNow},
	} {
		m[b.name] = b
	}
	return m
}

func rangeFunc(r *renderer, a args) (value, error) {
	if len(a.named) > 0 {
		return nil, failf("range() takes no keyword arguments")
	}
	var n [3]int64
	for i, v := range a.pos {
		if u, ok := v.(*undefined); ok {
			return nil, u.fail()
		}
		x, ok := integer(v)
		if !ok || i > 2 {
			return nil, failf("range() takes one to three integers, not %s", typeName(v))
		}
		small, ok := x.(int64)
		const most = 1 << 60
		if !ok || small > most || small < -most {
			return nil, failf("range() argument is too large")
		}
		n[i] = small
	}
	out := &rangeValue{step: 1}
	switch len(a.pos) {
	case 1:
		out.stop = n[0]
	case 2, 3:
		out.start, out.stop = n[0], n[1]
		if len(a.pos) == 3 {
			out.step = n[2]
		}
	default:
		return nil, failf("range expected at least 1 argument, got 0")
	}
	distance := out.stop - out.start
	switch {
	case out.step == 0:
		return nil, failf("range() arg 3 must not be zero")
	case out.step > 0 && distance > 0:
		distance = (distance-1)/out.step + 1
	case out.step < 0 && distance < 0:
		distance = (-distance-1)/-out.step + 1
	default:
		distance = 0
	}
	if distance > maxRange {
		return nil, failf("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	out.length = int(distance)
	return out, nil
}

// dictOf is Python's dict(pairs or mapping, **named).
func dictOf(r *renderer, a args) (*dict, error) {
	d := newDict(len(a.named))
	if len(a.pos) > 1 {
		return nil, failf("dict expected at most 1 argument, got %d", len(a.pos))
	}
	if len(a.pos) == 1 {
		if from, ok := a.pos[0].(*dict); ok {
			for i, key := range from.keys {
				if err := r.put(d, key, from.vals[i]); err != nil {
					return nil, err
				}
			}
		} else {
			pairs, err := r.iterate(a.pos[0])
			if err != nil {
				return nil, err
			}
			for _, pair := range pairs {
				kv, err := r.iterate(pair)
				if err != nil {
					return nil, err
				}
				if len(kv) != 2 {
					return nil, failf("dictionary update sequence element has length %d; 2 is required", len(kv))
				}
				if err := r.put(d, kv[0], kv[1]); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, arg := range a.named {
		if err := r.put(d, literal(arg.name), arg.v); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func dictFunc(r *renderer, a args) (value, error) {
	d, err := dictOf(r, a)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func dictFromKeys(r *renderer, a args) (value, error) {
	if len(a.pos) < 1 || len(a.pos) > 2 || len(a.named) > 0 {
		return nil, failf("fromkeys() takes one or two arguments")
	}
	keys, err := r.iterate(a.pos[0])
	if err != nil {
		return nil, err
	}
	var val value
	if len(a.pos) == 2 {
		val = a.pos[1]
	}
	d := newDict(0)
	for _, key := range keys {
		if err := r.put(d, key, val); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func namespaceFunc(r *renderer, a args) (value, error) {
	d, err := dictOf(r, a)
	if err != nil {
		return nil, err
	}
	for _, key := range d.keys {
		if k, ok := key.(text); ok && strings.HasPrefix(k.s, "_") {
			return nil, failf("namespace attributes cannot start with an underscore: %s", pyQuote(k.s))
		}
	}
	return &namespace{d}, nil
}

func raiseFunc(r *renderer, a args) (value, error) {
	bound, err := (&signature{params: []string{"message"}, required: 1}).bind("raise_exception", a)
	if err != nil {
		return nil, err
	}
	message, err := r.str(bound[0])
	if err != nil {
		return nil, err
	}
	const most = 4096
	if s := message.s; len(s) > most {
		message.s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return nil, &TemplateError{Message: message.s, Raised: true}
}

// cycler is Jinja's cycler: its values in turn.
type cycler struct {
	items []value
	at    int
}

func cyclerFunc(_ *renderer, a args) (value, error) {
	if len(a.pos) == 0 || len(a.named) > 0 {
		return nil, failf("at least one item has to be provided")
	}
	return &cycler{items: a.pos}, nil
}

func cyclerMethods() []*methodDef {
	return []*methodDef{
		def("next", "", func(_ *renderer, self value, _ []value) (value, error) {
			c := self.(*cycler)
			v := c.items[c.at]
			c.at = (c.at + 1) % len(c.items)
			return v, nil
		}),
		def("reset", "", func(_ *renderer, self value, _ []value) (value, error) {
			self.(*cycler).at = 0
			return nil, nil
		}),
	}
}

// joiner is Jinja's joiner: nothing at its first call, the separator after.
type joiner struct {
	separator value
	used      bool
}

func joinerFunc(_ *renderer, a args) (value, error) {
	bound, err := (&signature{params: []string{"sep"}}).bind("joiner", a)
	if err != nil {
		return nil, err
	}
	if bound[0] == missing {
		bound[0] = literal(", ")
	}
	return &joiner{separator: bound[0]}, nil
}

func (j *joiner) call(*renderer, args) (value, error) {
	if !j.used {
		j.used = true
		return text{}, nil
	}
	return j.separator, nil
}
