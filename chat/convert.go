package chat

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// wellKnownRoles are protocol words, not what people wrote: some templates build
// a turn's control token from them.
var wellKnownRoles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// reasoningNames are the keys that reasoning goes by, the first being what
// transformers makes sure of.
var reasoningNames = []string{"reasoning_content", "thinking", "reasoning"}

// messages converts a conversation to what templates see.
func (r *renderer) messages(conversation []Message) (value, error) {
	out := make([]value, len(conversation))
	for i, m := range conversation {
		d, err := r.message(m.object())
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		out[i] = d
	}
	return list(out), r.growItems(len(out), 16)
}

func (r *renderer) message(o *Object) (value, error) {
	for _, name := range reasoningNames {
		if v, ok := o.Get(name); ok && v != nil {
			// As transformers does: thinking, unless given, comes first.
			aliased := &Object{}
			aliased.Set("thinking", v)
			for key, v := range o.All() {
				aliased.Set(key, v)
			}
			aliased.Set("reasoning_content", v)
			o = aliased
			break
		}
	}
	v, err := r.fromGo(o)
	if err != nil {
		return nil, err
	}
	d := v.(*dict)
	if role, ok := d.str("role"); ok {
		if t, ok := role.(text); ok && slices.Contains(wellKnownRoles, t.s) {
			d.vals[d.at["role"]] = engine(t.s)
		}
	}
	return d, nil
}

// fromGo converts a JSON-like Go value. Its strings are what people wrote.
func (r *renderer) fromGo(v any) (value, error) {
	if err := r.grow(32); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil, bool:
		return v, nil
	case string:
		t := text{s: toValid(v), by: byPeople}
		return t, r.sized(t)
	case json.Number:
		return fromNumber(v)
	case float64:
		return v, nil
	case int:
		return int64(v), nil
	case Part:
		return r.fromGo(v.object())
	case ToolCall:
		return r.fromGo(v.object())
	case Message:
		return r.fromGo(v.object())
	case *Object:
		return r.fromObject(v)
	case []any:
		return fromSlice(r, v)
	case []string:
		return fromSlice(r, v)
	case []Part:
		return fromSlice(r, v)
	case []*Object:
		return fromSlice(r, v)
	}
	return r.fromOther(v)
}

func fromSlice[T any](r *renderer, s []T) (value, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	items := make([]value, len(s))
	for i, e := range s {
		var err error
		if items[i], err = r.fromGo(e); err != nil {
			return nil, err
		}
	}
	return list(items), r.growItems(len(s), 16)
}

func (r *renderer) fromObject(o *Object) (value, error) {
	if o == nil {
		return nil, nil
	}
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	d := newDict(o.Len())
	for key, v := range o.All() {
		val, err := r.fromGo(v)
		if err != nil {
			return nil, err
		}
		if err := r.put(d, text{s: toValid(key), by: byPeople}, val); err != nil {
			return nil, err
		}
		if err := r.grow(len(key)); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func fromNumber(n json.Number) (value, error) {
	if !strings.ContainsAny(n.String(), ".eE") {
		if i, ok := new(big.Int).SetString(n.String(), 10); ok && len(n) < maxIntBits/4 {
			return fromBig(i)
		}
	}
	f, ok := parseFloat(n.String())
	if !ok {
		return nil, fmt.Errorf("invalid number %q: %w", n, fault.ErrUsage)
	}
	return f, nil
}

// fromOther converts maps in the order of their keys, numbers of other sizes, and
// anything else by way of encoding/json.
func (r *renderer) fromOther(v any) (value, error) {
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return rv.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fromBig(new(big.Int).SetUint64(rv.Uint()))
	case reflect.Float32, reflect.Float64:
		return rv.Float(), nil
	}
	if m, ok := v.(map[string]any); ok {
		o := &Object{}
		keys := make([]string, 0, len(m))
		for key := range m {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			o.Set(key, m[key])
		}
		return r.fromObject(o)
	}
	data, err := marshal(v)
	if err != nil {
		return nil, fmt.Errorf("value of type %T: %w: %w", v, err, fault.ErrUsage)
	}
	plain, err := DecodeJSON(data)
	if err != nil {
		return nil, fmt.Errorf("value of type %T: %w", v, err)
	}
	return r.fromGo(plain)
}
