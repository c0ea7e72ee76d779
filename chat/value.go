package chat

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"
)

// value is anything a template computes with: nil (None), bool, int64, *big.Int
// (only what int64 does not hold), float64, text, *sequence, *dict, span-less
// helpers such as *rangeValue, *namespace and *loopState, callables, and
// *undefined. Values are shared, so they are never changed once made, apart
// from namespaces, loops and drained generators.
type value any

// undefined is what Jinja gives for a missing name, attribute or item: it
// prints as nothing, and anything but printing or looping over it fails.
type undefined struct {
	message string
}

func undefinedName(name string) *undefined {
	return &undefined{pyQuote(name) + " is undefined"}
}

// undefinedMember words the failure of of.key or of[key].
func undefinedMember(of, key value) *undefined {
	if k, ok := key.(text); ok {
		return &undefined{pyQuote(objectName(of)) + " has no attribute " + pyQuote(k.s)}
	}
	return &undefined{objectName(of) + " has no element " + plainRepr(key)}
}

func (u *undefined) fail() error { return failf("%s", u.message) }

// missing stands for a parameter that a call did not give.
type missingValue struct{}

var missing value = missingValue{}

// kind tells Python's sequence types apart.
type kind uint8

const (
	listKind kind = iota
	tupleKind
	generatorKind // what filters such as map return: no length, can be gone through once
	keysKind
	valuesKind
	itemsKind
)

// sequence is a list, a tuple, a generator or a view of a dict.
type sequence struct {
	kind    kind
	items   []value
	drained bool
}

func list(items []value) *sequence      { return &sequence{kind: listKind, items: items} }
func tuple(items ...value) *sequence    { return &sequence{kind: tupleKind, items: items} }
func generator(items []value) *sequence { return &sequence{kind: generatorKind, items: items} }

func (s *sequence) indexable() bool { return s.kind == listKind || s.kind == tupleKind }

// rangeValue is Python's range: length numbers from start.
type rangeValue struct {
	start, stop, step int64
	length            int
}

func (r *rangeValue) at(i int) value { return r.start + int64(i)*r.step }

// dict is Python's dict: it keeps the order of insertion.
type dict struct {
	keys, vals []value
	at         map[any]int
}

func newDict(n int) *dict { return &dict{at: make(map[any]int, n)} }

// maxKeyParts bounds the values in a tuple that is a key, tuples inside included.
const maxKeyParts = 256

// hashKey maps values that Python finds equal to the same comparable Go value.
func hashKey(v value) (any, error) {
	parts := maxKeyParts
	return hashPart(v, &parts)
}

// hashPart is hashKey for a part of a key; it counts left down.
func hashPart(v value, left *int) (any, error) {
	type number string // kept apart from strings
	if *left--; *left < 0 {
		return nil, failf("tuple is too large for a key")
	}
	switch v := v.(type) {
	case text:
		return v.s, nil
	case nil:
		return struct{}{}, nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case int64:
		return v, nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return int64(v), nil
		}
		return v, nil
	case *big.Int:
		return number(v.String()), nil
	case *sequence:
		if v.kind == tupleKind {
			type parts string
			var key []byte
			for _, item := range v.items {
				k, err := hashPart(item, left)
				if err != nil {
					return nil, err
				}
				part := fmt.Sprintf("%T %v", k, k)
				key = append(strconv.AppendInt(key, int64(len(part)), 10), ':')
				key = append(key, part...)
			}
			return parts(key), nil
		}
	case *undefined:
		type absent struct{}
		return absent{}, nil
	}
	return nil, failf("unhashable type: %s", pyQuote(typeName(v)))
}

func (d *dict) set(key, val value) error {
	h, err := hashKey(key)
	if err != nil {
		return err
	}
	if i, ok := d.at[h]; ok {
		d.vals[i] = val
		return nil
	}
	d.at[h] = len(d.keys)
	d.keys = append(d.keys, key)
	d.vals = append(d.vals, val)
	return nil
}

func (d *dict) get(key value) (value, bool, error) {
	h, err := hashKey(key)
	if err != nil {
		return nil, false, err
	}
	i, ok := d.at[h]
	if !ok {
		return nil, false, nil
	}
	return d.vals[i], true, nil
}

// str is get for a key known to be a string.
func (d *dict) str(key string) (value, bool) {
	i, ok := d.at[key]
	if !ok {
		return nil, false
	}
	return d.vals[i], true
}

// namespace is Jinja's namespace object, the one thing a template can assign to.
type namespace struct{ attrs *dict }

// typeName is Python's name for the type of v.
func typeName(v value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case text:
		if v.markup {
			return "Markup"
		}
		return "str"
	case *sequence:
		return [...]string{"list", "tuple", "generator", "dict_keys", "dict_values", "dict_items"}[v.kind]
	case *dict:
		return "dict"
	case *rangeValue:
		return "range"
	case *undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	case *loopState:
		return "LoopContext"
	case *cycler:
		return "Cycler"
	case *joiner:
		return "Joiner"
	default:
		return "function"
	}
}

// objectName is how Jinja names the owner of a missing attribute.
func objectName(v value) string {
	switch v.(type) {
	case nil:
		return "None"
	case *undefined, *namespace, *macro, *loopState, *cycler, *joiner:
		return "jinja2." + typeName(v) + " object"
	}
	return typeName(v) + " object"
}

// truth is Python's bool(v).
func truth(v value) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case text:
		return v.s != ""
	case *sequence:
		return v.kind == generatorKind || len(v.items) > 0
	case *dict:
		return len(v.keys) > 0
	case *rangeValue:
		return v.length > 0
	case *loopState:
		return v.items.len() > 0
	}
	return true
}

// length is Python's len(v).
func (r *renderer) length(v value) (int, error) {
	switch v := v.(type) {
	case text:
		return v.length(), r.spend(len(v.s) / 64)
	case *sequence:
		if v.kind != generatorKind {
			return len(v.items), nil
		}
	case *dict:
		return len(v.keys), nil
	case *rangeValue:
		return v.length, nil
	case *undefined:
		return 0, nil
	case *loopState:
		return v.items.len(), nil
	}
	return 0, failf("object of type %s has no len()", pyQuote(typeName(v)))
}

// iterate returns what Python's iter(v) goes through. The result is not to be
// changed.
func (r *renderer) iterate(v value) ([]value, error) {
	switch v := v.(type) {
	case *undefined:
		return nil, nil
	case *sequence:
		if v.kind == generatorKind {
			if v.drained {
				return nil, nil
			}
			v.drained = true
		}
		return v.items, nil
	case *dict:
		return v.keys, nil
	case text:
		n := v.length()
		if err := r.growItems(n, textBytes+16); err != nil {
			return nil, err
		}
		items := make([]value, 0, n)
		for run, by := range v.runs() {
			for i, c := range run {
				items = append(items, text{s: run[i : i+utf8.RuneLen(c)], by: by})
			}
		}
		return items, nil
	case *rangeValue:
		if err := r.growItems(v.length, 32); err != nil {
			return nil, err
		}
		items := make([]value, v.length)
		for i := range items {
			items[i] = v.at(i)
		}
		return items, nil
	}
	return nil, failf("%s object is not iterable", pyQuote(typeName(v)))
}

// textBytes is what a text value takes besides its characters.
const textBytes = 96

// sized accounts for a text that is about to be made of parts, or was made.
func (r *renderer) sized(parts ...text) error {
	n := textBytes
	for _, t := range parts {
		n += len(t.s) + 16*len(t.spans)
		if n > r.limits.MemoryBytes {
			return r.grow(-1)
		}
	}
	return r.grow(n)
}
