package chat

import "math"

// dictMethods are the methods of Python's dict that change nothing.
func dictMethods() []*methodDef {
	view := func(name string, k kind, items func(r *renderer, d *dict) ([]value, error)) *methodDef {
		return def(name, "", func(r *renderer, self value, _ []value) (value, error) {
			out, err := items(r, self.(*dict))
			return &sequence{kind: k, items: out}, err
		})
	}
	return []*methodDef{
		def("get", "key default?", func(_ *renderer, self value, a []value) (value, error) {
			v, ok, err := self.(*dict).get(a[0])
			if !ok && err == nil {
				v = or(a[1], nil)
			}
			return v, err
		}),
		view("items", itemsKind, func(r *renderer, d *dict) ([]value, error) { return r.pairs(d) }),
		view("keys", keysKind, func(_ *renderer, d *dict) ([]value, error) { return d.keys, nil }),
		view("values", valuesKind, func(_ *renderer, d *dict) ([]value, error) { return d.vals, nil }),
		def("copy", "", func(_ *renderer, self value, _ []value) (value, error) { return self, nil }),
	}
}

// sequenceMethods are the methods of Python's list and tuple that change nothing.
func sequenceMethods() []*methodDef {
	return []*methodDef{
		def("count", "value", func(r *renderer, self value, a []value) (value, error) {
			n := int64(0)
			for _, item := range self.(*sequence).items {
				ok, err := r.equal(item, a[0])
				if err != nil {
					return nil, err
				}
				if ok {
					n++
				}
			}
			return n, nil
		}),
		def("index", "value start? stop?", func(r *renderer, self value, a []value) (value, error) {
			items := self.(*sequence).items
			start, err := intArg(a[1], 0)
			if err != nil {
				return nil, err
			}
			stop, err := intArg(a[2], len(items))
			if err != nil {
				return nil, err
			}
			clip := func(i int) int {
				if i < 0 {
					i += len(items)
				}
				return min(max(i, 0), len(items))
			}
			for i := clip(start); i < clip(stop); i++ {
				ok, err := r.equal(items[i], a[0])
				if err != nil {
					return nil, err
				}
				if ok {
					return int64(i), nil
				}
			}
			return nil, failf("value is not in %s", typeName(self))
		}),
		def("copy", "", func(_ *renderer, self value, _ []value) (value, error) { return self, nil }),
	}
}

func floatMethods() []*methodDef {
	return []*methodDef{
		def("is_integer", "", func(_ *renderer, self value, _ []value) (value, error) {
			f := self.(float64)
			return f == math.Trunc(f) && !math.IsInf(f, 0), nil
		}),
	}
}
