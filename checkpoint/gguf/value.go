package gguf

import (
	"encoding/binary"
	"iter"
	"math"
	"strconv"
)

// ValueType is the type of a value of the metadata.
type ValueType uint32

// The types of values.
const (
	Uint8 ValueType = iota
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Float32
	Bool
	String
	Array
	Uint64
	Int64
	Float64
)

// bytes returns the size of a value, or 0 where it is not the same for all, or the type is not known.
func (t ValueType) bytes() int {
	switch t {
	case Uint8, Int8, Bool:
		return 1
	case Uint16, Int16:
		return 2
	case Uint32, Int32, Float32:
		return 4
	case Uint64, Int64, Float64:
		return 8
	}
	return 0
}

// String returns the type's name, or its number.
func (t ValueType) String() string {
	names := [...]string{"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "string", "array", "uint64", "int64", "float64"}
	if int64(t) < int64(len(names)) {
		return names[t]
	}
	return "type " + strconv.FormatUint(uint64(t), 10)
}

// Value is a value of the metadata. Its zero value is of no use.
type Value struct {
	kind, elem ValueType
	n          int
	// data is the number, the text, or the elements of the array as they lie in the file.
	data []byte
}

// Type returns the value's type.
func (v Value) Type() ValueType { return v.kind }

// Elem returns the type of an array's elements.
func (v Value) Elem() ValueType { return v.elem }

// Len returns the number of an array's elements, 0 for other values.
func (v Value) Len() int { return v.n }

// String returns the type, with that and the number of elements for an array.
func (v Value) String() string {
	if v.kind != Array {
		return v.kind.String()
	}
	return "array of " + strconv.Itoa(v.n) + " " + v.elem.String()
}

// Int returns the value of an integer of any type that fits an int64.
func (v Value) Int() (int64, bool) {
	le := binary.LittleEndian
	switch v.kind {
	case Uint8:
		return int64(v.data[0]), true
	case Int8:
		return int64(int8(v.data[0])), true
	case Uint16:
		return int64(le.Uint16(v.data)), true
	case Int16:
		return int64(int16(le.Uint16(v.data))), true
	case Uint32:
		return int64(le.Uint32(v.data)), true
	case Int32:
		return int64(int32(le.Uint32(v.data))), true
	case Int64:
		return int64(le.Uint64(v.data)), true
	case Uint64:
		n := le.Uint64(v.data)
		return int64(n), n <= math.MaxInt64
	}
	return 0, false
}

// Uint returns the value of an integer of any type that is not negative.
func (v Value) Uint() (uint64, bool) {
	if v.kind == Uint64 {
		return binary.LittleEndian.Uint64(v.data), true
	}
	n, ok := v.Int()
	return uint64(n), ok && n >= 0
}

// Float returns the value of a float of either type.
func (v Value) Float() (float64, bool) {
	switch v.kind {
	case Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.data))), true
	case Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.data)), true
	}
	return 0, false
}

// Bool returns a truth value.
func (v Value) Bool() (value, ok bool) {
	return v.kind == Bool && v.data[0] != 0, v.kind == Bool
}

// Text returns a copy of a text. It need not be UTF-8.
func (v Value) Text() (string, bool) {
	if v.kind != String {
		return "", false
	}
	return string(v.data), true
}

// All yields the elements of an array; of other values it yields none.
func (v Value) All() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		c := cursor{data: v.data}
		for range v.n {
			if e := c.value(v.elem, maxDepth); c.problem != "" || !yield(e) {
				return
			}
		}
	}
}

// list reads all elements of an array.
func list[T any](v Value, read func(Value) (T, bool)) ([]T, bool) {
	if v.kind != Array {
		return nil, false
	}
	all := make([]T, 0, v.n) // an element takes at least a byte of the file
	for e := range v.All() {
		t, ok := read(e)
		if !ok {
			return nil, false
		}
		all = append(all, t)
	}
	return all, true
}

// get reads the value of a key that must be there.
func get[T any](f *File, key, want string, read func(Value) (T, bool)) (T, error) {
	v, ok := f.values[key]
	if !ok {
		var none T
		return none, &KeyError{File: f.Name, Key: key, Problem: "it is missing"}
	}
	t, ok := read(v)
	if !ok {
		var none T
		return none, &KeyError{File: f.Name, Key: key, Problem: "it is of type " + v.String() + ", or out of range, and should be " + want}
	}
	return t, nil
}

// Int returns the integer of a key. As in the methods beside it, a key that is not
// there or has no such value is a *KeyError.
func (f *File) Int(key string) (int64, error) { return get(f, key, "an integer", Value.Int) }

// Uint returns the integer of a key, which is not negative.
func (f *File) Uint(key string) (uint64, error) {
	return get(f, key, "an integer that is not negative", Value.Uint)
}

// Float returns the float of a key.
func (f *File) Float(key string) (float64, error) { return get(f, key, "a float", Value.Float) }

// Bool returns the truth value of a key.
func (f *File) Bool(key string) (bool, error) { return get(f, key, "a bool", Value.Bool) }

// Text returns the text of a key.
func (f *File) Text(key string) (string, error) { return get(f, key, "a string", Value.Text) }

// Ints returns the integers of a key.
func (f *File) Ints(key string) ([]int64, error) {
	return get(f, key, "an array of integers", func(v Value) ([]int64, bool) { return list(v, Value.Int) })
}

// Floats returns the floats of a key.
func (f *File) Floats(key string) ([]float64, error) {
	return get(f, key, "an array of floats", func(v Value) ([]float64, bool) { return list(v, Value.Float) })
}

// Bools returns the truth values of a key.
func (f *File) Bools(key string) ([]bool, error) {
	return get(f, key, "an array of bools", func(v Value) ([]bool, bool) { return list(v, Value.Bool) })
}

// Texts returns the texts of a key.
func (f *File) Texts(key string) ([]string, error) {
	return get(f, key, "an array of strings", func(v Value) ([]string, bool) { return list(v, Value.Text) })
}
