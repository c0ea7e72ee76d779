package chat

import (
	"slices"
	"strings"
)

// sequenceFilters are the filters for lists, dicts and whatever can be gone through.
func sequenceFilters() []*methodDef {
	return []*methodDef{
		def("batch", "linecount fill_with?", filterBatch),
		def("dictsort", "case_sensitive? by? reverse?", filterDictSort),
		def("first", "", func(r *renderer, in value, _ []value) (value, error) {
			if s, ok := in.(*sequence); ok && s.kind == generatorKind && !s.drained && len(s.items) > 0 {
				first := s.items[0]
				s.items = s.items[1:]
				return first, nil
			}
			items, err := r.iterate(in)
			if err != nil || len(items) > 0 {
				return firstOf(items), err
			}
			return &undefined{"No first item, sequence was empty."}, nil
		}),
		def("groupby", "attribute default? case_sensitive?", filterGroupBy),
		def("items", "", func(r *renderer, in value, _ []value) (value, error) {
			switch in := in.(type) {
			case *undefined:
				return generator(nil), nil
			case *dict:
				pairs, err := r.pairs(in)
				return generator(pairs), err
			}
			return nil, failf("Can only get item pairs from a mapping.")
		}),
		def("join", "d? attribute?", filterJoin),
		def("last", "", func(r *renderer, in value, _ []value) (value, error) {
			if s, ok := in.(*sequence); ok && s.kind == generatorKind {
				return nil, failf("'generator' object is not reversible")
			}
			items, err := r.iterate(in)
			if err != nil || len(items) > 0 {
				return lastOf(items), err
			}
			return &undefined{"No last item, sequence was empty."}, nil
		}),
		def("list", "", func(r *renderer, in value, _ []value) (value, error) {
			items, err := r.copyItems(in)
			return list(items), err
		}),
		{name: "map", raw: filterMap},
		def("max", "case_sensitive? attribute?", func(r *renderer, in value, a []value) (value, error) { return r.extreme(in, a, 1) }),
		def("min", "case_sensitive? attribute?", func(r *renderer, in value, a []value) (value, error) { return r.extreme(in, a, -1) }),
		selectFilter("select", false, false),
		selectFilter("reject", false, true),
		selectFilter("selectattr", true, false),
		selectFilter("rejectattr", true, true),
		def("reverse", "", filterReverse),
		def("slice", "slices fill_with?", filterSlice),
		def("sort", "reverse? case_sensitive? attribute?", func(r *renderer, in value, a []value) (value, error) {
			items, err := r.sorted(in, r.getters(or(a[2], nil), !flag(a[1])), flag(a[0]))
			return list(items), err
		}),
		def("sum", "attribute? start?", func(r *renderer, in value, a []value) (value, error) {
			get := r.getter(or(a[0], nil), nil, false)
			items, err := r.iterate(in)
			total := or(a[1], int64(0))
			if _, ok := total.(text); ok {
				return nil, failf("sum() can't sum strings [use ''.join(seq) instead]")
			}
			for i := 0; i < len(items) && err == nil; i++ {
				var v value
				if v, err = get(items[i]); err == nil {
					total, err = r.binary("+", total, v)
				}
			}
			return total, err
		}),
		def("unique", "case_sensitive? attribute?", filterUnique),
	}
}

func firstOf(items []value) value {
	if len(items) == 0 {
		return nil
	}
	return items[0]
}

func lastOf(items []value) value {
	if len(items) == 0 {
		return nil
	}
	return items[len(items)-1]
}

// copyItems is iterate with a slice that the caller may keep and change.
func (r *renderer) copyItems(v value) ([]value, error) {
	items, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	return slices.Clone(items), r.growItems(len(items)+3, 16)
}

// pairs is the items of a dict as tuples.
func (r *renderer) pairs(d *dict) ([]value, error) {
	if err := r.growItems(len(d.keys), 96); err != nil {
		return nil, err
	}
	out := make([]value, len(d.keys))
	for i, key := range d.keys {
		out[i] = tuple(key, d.vals[i])
	}
	return out, nil
}

func (r *renderer) lower(v value) (value, error) {
	t, ok := v.(text)
	if !ok {
		return v, nil
	}
	return t.mapped(lowerCase), r.sized(t)
}

// getter makes the function that takes an attribute such as "a.b.0" of an item;
// def, if not nil, stands for what is undefined.
func (r *renderer) getter(attr, def value, lower bool) func(value) (value, error) {
	var parts []value
	switch attr := attr.(type) {
	case nil:
	case text:
		for part := range strings.SplitSeq(attr.s, ".") {
			if n, ok := parseInt(part, 10); ok && strings.Trim(part, "0123456789") == "" {
				parts = append(parts, n)
			} else {
				parts = append(parts, literal(part))
			}
		}
	default:
		parts = []value{attr}
	}
	return func(v value) (value, error) {
		var err error
		for _, part := range parts {
			if v, err = r.item(v, part); err != nil {
				return nil, err
			}
			if _, ok := v.(*undefined); ok && def != nil {
				v = def
			}
		}
		if lower {
			return r.lower(v)
		}
		return v, nil
	}
}

// getters is getter for several attributes with commas between, as a list.
func (r *renderer) getters(attr value, lower bool) func(value) (value, error) {
	attrs := []value{attr}
	if t, ok := attr.(text); ok {
		attrs = nil
		for part := range strings.SplitSeq(t.s, ",") {
			attrs = append(attrs, literal(part))
		}
	}
	get := make([]func(value) (value, error), len(attrs))
	for i, a := range attrs {
		get[i] = r.getter(a, nil, lower)
	}
	return func(v value) (value, error) {
		if err := r.growItems(len(get)+3, 16); err != nil {
			return nil, err
		}
		keys := make([]value, len(get))
		for i := range get {
			var err error
			if keys[i], err = get[i](v); err != nil {
				return nil, err
			}
		}
		return list(keys), nil
	}
}

// sorted is Python's sorted: stable, in reverse too.
func (r *renderer) sorted(in value, get func(value) (value, error), reverse bool) ([]value, error) {
	items, err := r.iterate(in)
	if err != nil {
		return nil, err
	}
	if err := r.growItems(len(items), 48); err != nil {
		return nil, err
	}
	type keyed struct{ key, v value }
	all := make([]keyed, len(items))
	for i, item := range items {
		key, err := get(item)
		if err != nil {
			return nil, err
		}
		all[i] = keyed{key, item}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		if err != nil {
			return 0
		}
		var c int
		if c, err = r.compare("<", a.key, b.key); c == 2 {
			c = 0
		}
		if reverse {
			return -c
		}
		return c
	})
	out := make([]value, len(all))
	for i := range all {
		out[i] = all[i].v
	}
	return out, err
}

func filterBatch(r *renderer, in value, a []value) (value, error) {
	n, err := intArg(a[0], 0)
	if err != nil {
		return nil, err
	}
	items, err := r.copyItems(in)
	if err != nil {
		return nil, err
	}
	if n <= 0 {
		n = max(len(items), 1)
	}
	var out []value
	for part := range slices.Chunk(items, n) {
		if fill := or(a[1], nil); fill != nil && len(part) < n {
			if err := r.growItems(n, 16); err != nil {
				return nil, err
			}
			for part = slices.Clone(part); len(part) < n; {
				part = append(part, fill)
			}
		}
		if err := r.grow(64); err != nil {
			return nil, err
		}
		out = append(out, list(part))
	}
	return generator(out), nil
}

func filterSlice(r *renderer, in value, a []value) (value, error) {
	n, err := intArg(a[0], 0)
	if err != nil {
		return nil, err
	}
	items, err := r.copyItems(in)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, failf("integer division or modulo by zero")
	}
	if err := r.growItems(max(n, 0), 96); err != nil {
		return nil, err
	}
	var out []value
	for i, begin := 0, 0; i < n; i++ {
		end := begin + len(items)/n
		extra := i < len(items)%n
		if extra {
			end++
		}
		part := slices.Clone(items[begin:end])
		if fill := or(a[1], nil); fill != nil && !extra {
			part = append(part, fill)
		}
		out = append(out, list(part))
		begin = end
	}
	return generator(out), nil
}

func filterDictSort(r *renderer, in value, a []value) (value, error) {
	d, ok := in.(*dict)
	if !ok {
		if u, isUndefined := in.(*undefined); isUndefined {
			return nil, u.fail()
		}
		return nil, failf("%s object has no attribute 'items'", pyQuote(typeName(in)))
	}
	by, ok := or(a[1], literal("key")).(text)
	if !ok || by.s != "key" && by.s != "value" {
		return nil, failf(`You can only sort by either "key" or "value"`)
	}
	pos := 0
	if by.s == "value" {
		pos = 1
	}
	pairs, err := r.pairs(d)
	if err != nil {
		return nil, err
	}
	sorted, err := r.sorted(list(pairs), func(pair value) (value, error) {
		v := pair.(*sequence).items[pos]
		if flag(a[0]) {
			return v, nil
		}
		return r.lower(v)
	}, flag(a[2]))
	return list(sorted), err
}

func filterGroupBy(r *renderer, in value, a []value) (value, error) {
	def := or(a[1], nil)
	get, exact := r.getter(a[0], def, !flag(a[2])), r.getter(a[0], def, false)
	items, err := r.sorted(in, get, false)
	if err != nil {
		return nil, err
	}
	var out []value
	var last value
	for i, item := range items {
		key, err := get(item)
		if err != nil {
			return nil, err
		}
		same := false
		if i > 0 {
			if same, err = r.equal(key, last); err != nil {
				return nil, err
			}
		}
		last = key
		if same {
			group := out[len(out)-1].(*sequence).items[1].(*sequence)
			group.items = append(group.items, item)
			continue
		}
		if key, err = exact(item); err != nil {
			return nil, err
		}
		if err := r.grow(160); err != nil {
			return nil, err
		}
		out = append(out, tuple(key, list([]value{item})))
	}
	return list(out), nil
}

func filterJoin(r *renderer, in value, a []value) (value, error) {
	get := r.getter(or(a[1], nil), nil, false)
	separator, err := r.str(or(a[0], text{}))
	if err != nil {
		return nil, err
	}
	items, err := r.iterate(in)
	if err != nil {
		return nil, err
	}
	var b textBuilder
	for i, item := range items {
		v, err := get(item)
		if err != nil {
			return nil, err
		}
		t, err := r.str(v)
		if err != nil {
			return nil, err
		}
		if err := r.sized(separator, t); err != nil {
			return nil, err
		}
		if i > 0 {
			b.addText(separator)
		}
		b.addText(t)
	}
	return b.text(), nil
}

func filterMap(r *renderer, in value, a args) (value, error) {
	var apply func(value) (value, error)
	if len(a.pos) == 0 {
		bound, err := (&signature{params: []string{"attribute", "default"}, required: 1}).bind("map", a)
		if err != nil {
			return nil, err
		}
		apply = r.getter(bound[0], or(bound[1], nil), false)
	} else {
		name, ok := a.pos[0].(text)
		if !ok {
			return nil, failf("No filter named %s.", pyQuote(typeName(a.pos[0])))
		}
		rest := args{a.pos[1:], a.named}
		apply = func(v value) (value, error) { return r.filter(name.s, v, rest) }
	}
	return r.each(in, func(v value) (value, bool, error) {
		v, err := apply(v)
		return v, true, err
	})
}

// each makes a generator of what f returns for each item, if it keeps it.
func (r *renderer) each(in value, f func(value) (v value, keep bool, err error)) (value, error) {
	if !truth(in) {
		return generator(nil), nil
	}
	items, err := r.iterate(in)
	if err != nil {
		return nil, err
	}
	if err := r.growItems(len(items)+3, 16); err != nil {
		return nil, err
	}
	out := make([]value, 0, len(items))
	for _, item := range items {
		v, keep, err := f(item)
		if err != nil {
			return nil, err
		}
		if keep {
			out = append(out, v)
		}
	}
	return generator(out), nil
}

// selectFilter is select, reject, selectattr or rejectattr.
func selectFilter(name string, byAttr, reject bool) *methodDef {
	return &methodDef{name: name, raw: func(r *renderer, in value, a args) (value, error) {
		get := func(v value) (value, error) { return v, nil }
		if byAttr {
			if len(a.pos) == 0 {
				return nil, failf("Missing parameter for attribute name")
			}
			get = r.getter(a.pos[0], nil, false)
			a.pos = a.pos[1:]
		}
		holds := func(v value) (value, error) { return truth(v), nil }
		if len(a.pos) > 0 {
			test, ok := a.pos[0].(text)
			if !ok {
				return nil, failf("No test named %s.", pyQuote(typeName(a.pos[0])))
			}
			rest := args{a.pos[1:], a.named}
			holds = func(v value) (value, error) { return r.test(test.s, v, rest) }
		}
		return r.each(in, func(item value) (value, bool, error) {
			v, err := get(item)
			if err != nil {
				return nil, false, err
			}
			ok, err := holds(v)
			return item, truth(ok) != reject, err
		})
	}}
}

// extreme is the largest item, or with want -1 the smallest; the first of equals.
func (r *renderer) extreme(in value, a []value, want int) (value, error) {
	get := r.getter(or(a[1], nil), nil, !flag(a[0]))
	items, err := r.iterate(in)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return &undefined{"No aggregated item, sequence was empty."}, nil
	}
	op := "<"
	if want > 0 {
		op = ">"
	}
	best := items[0]
	bestKey, err := get(best)
	for i := 1; i < len(items) && err == nil; i++ {
		var key value
		if key, err = get(items[i]); err != nil {
			break
		}
		var better bool
		if better, err = r.order(op, key, bestKey); better {
			best, bestKey = items[i], key
		}
	}
	return best, err
}

func filterReverse(r *renderer, in value, _ []value) (value, error) {
	if t, ok := in.(text); ok {
		step := -1
		return r.slice(t, nil, nil, &step)
	}
	items, err := r.copyItems(in)
	slices.Reverse(items)
	return generator(items), err
}

func filterUnique(r *renderer, in value, a []value) (value, error) {
	get := r.getter(or(a[1], nil), nil, !flag(a[0]))
	items, err := r.iterate(in)
	if err != nil {
		return nil, err
	}
	seen := newDict(0)
	var out []value
	for _, item := range items {
		key, err := get(item)
		if err != nil {
			return nil, err
		}
		if _, ok, err := seen.get(key); ok || err != nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		if err := r.put(seen, key, true); err != nil {
			return nil, err
		}
		out = append(out, item)
	}
	return generator(out), nil
}
