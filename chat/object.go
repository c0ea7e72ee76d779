package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// maxJSONDepth bounds the nesting of JSON that is decoded.
const maxJSONDepth = 200

// Object is a JSON object that keeps the order of its keys, which templates can
// see: they print tools and arguments as they were sent. The zero value is an
// empty object. It is not safe for concurrent use while it is being changed.
type Object struct {
	keys   []string
	values map[string]any
}

// Len is the number of keys.
func (o *Object) Len() int {
	if o == nil {
		return 0
	}
	return len(o.keys)
}

// Get returns the value of key; ok is false if there is none.
func (o *Object) Get(key string) (v any, ok bool) {
	if o == nil {
		return nil, false
	}
	v, ok = o.values[key]
	return v, ok
}

// Set gives key a value: in its place, or as the last key if it is new. See
// Message.Content for what values can be.
func (o *Object) Set(key string, v any) {
	if o.values == nil {
		o.values = map[string]any{}
	}
	if _, ok := o.values[key]; !ok {
		o.keys = append(o.keys, key)
	}
	o.values[key] = v
}

// Delete removes key.
func (o *Object) Delete(key string) {
	if _, ok := o.Get(key); ok {
		delete(o.values, key)
		o.keys = slices.DeleteFunc(o.keys, func(k string) bool { return k == key })
	}
}

// All yields keys and values in order.
func (o *Object) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		if o == nil {
			return
		}
		for _, k := range o.keys {
			if !yield(k, o.values[k]) {
				return
			}
		}
	}
}

// MarshalJSON writes the object with its keys in order.
func (o *Object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for k, v := range o.All() {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		key, err := marshal(k)
		if err != nil {
			return nil, err
		}
		val, err := marshal(v)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", k, err)
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(val)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// marshal is json.Marshal that leaves <, > and & as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON reads an object. Values become string, bool, nil, json.Number,
// []any and *Object. It returns an error that matches fault.ErrUsage when the
// JSON is malformed, no object, or nested too deeply.
func (o *Object) UnmarshalJSON(data []byte) error {
	v, err := DecodeJSON(data)
	if err != nil {
		return err
	}
	obj, ok := v.(*Object)
	if !ok {
		return fmt.Errorf("want a JSON object, got %T: %w", v, fault.ErrUsage)
	}
	*o = *obj
	return nil
}

// DecodeJSON reads one JSON value the way templates want it: objects become
// *Object, which keeps the order of keys, numbers json.Number, arrays []any.
// Of a key given twice the last value counts. It returns an error that matches
// fault.ErrUsage when the JSON is malformed or nested more than 200 levels deep.
func DecodeJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := decode(dec, 0)
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return v, nil
		}
		if err == nil {
			err = errors.New("data after the value")
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("decode JSON: %w: %w", err, fault.ErrUsage)
}

func decode(dec *json.Decoder, depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("nested more than %d levels deep", maxJSONDepth)
	}
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('['):
		out := []any{}
		for dec.More() {
			v, err := decode(dec, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		_, err := dec.Token()
		return out, err
	case json.Delim('{'):
		out := &Object{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			v, err := decode(dec, depth+1)
			if err != nil {
				return nil, err
			}
			out.Set(key.(string), v)
		}
		_, err := dec.Token()
		return out, err
	}
	return t, nil
}

// toValid replaces what is not UTF-8.
func toValid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
