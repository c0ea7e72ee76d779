package chat

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// Message is one turn of a conversation. In code, set what there is to say:
//
//	chat.Message{Role: "user", Content: "Hi"}
//
// It also holds any message in the JSON form of the OpenAI chat API without
// loss: what a field below has no room for is in Extra, and the order and
// presence of keys is kept, since templates can see both.
type Message struct {
	// Role is "system", "developer", "user", "assistant" or "tool"; templates may
	// know others.
	Role string
	// Content is a string; nil; []Part; or any JSON-like value: bool, integers,
	// floats, json.Number, []any, []string, map[string]any (whose keys are put in
	// order), *Object, and whatever else encoding/json can encode.
	Content any
	// Reasoning is the thinking that led to the content. Templates see it under
	// all the names that it goes by: reasoning, reasoning_content and thinking.
	Reasoning string
	// ToolCalls are the calls an assistant asks for: ToolCall or JSON-like values.
	ToolCalls []any
	// ToolCallID says which call a message of role "tool" answers.
	ToolCallID string
	// Name is the name of a participant or, in role "tool", of the function.
	Name string
	// Extra holds further fields, and those above whose value has another type.
	Extra *Object

	keys []string // of the JSON form that the message was read from
}

// Part is a piece of a message's content.
type Part struct {
	// Type is "text", "image", "audio" or "video"; templates may know others.
	Type string
	// Text is the text of a part of type "text".
	Text string
}

// ToolCall is an assistant's call of a function.
type ToolCall struct {
	// ID is what the message with the result refers to.
	ID string
	// Name is the function's name.
	Name string
	// Arguments is a JSON object: *Object, or map[string]any; nil for none. Most
	// templates cannot use arguments that are still a string of JSON.
	Arguments any
}

func (p Part) object() *Object {
	o := &Object{}
	o.Set("type", p.Type)
	if p.Text != "" || p.Type == "text" {
		o.Set("text", p.Text)
	}
	return o
}

func (c ToolCall) object() *Object {
	f := &Object{}
	f.Set("name", c.Name)
	f.Set("arguments", c.Arguments)
	o := &Object{}
	if c.ID != "" {
		o.Set("id", c.ID)
	}
	o.Set("type", "function")
	o.Set("function", f)
	return o
}

// fields lists the fields that have a JSON key, in the order of writing them.
func (m *Message) fields() []field {
	return []field{
		{"role", &m.Role, nil}, {"content", nil, &m.Content}, {"reasoning", &m.Reasoning, nil}, {"tool_calls", nil, nil},
		{"tool_call_id", &m.ToolCallID, nil}, {"name", &m.Name, nil},
	}
}

// field is a field of Message: a string, any value, or the tool calls.
type field struct {
	key string
	s   *string
	v   *any
}

// object is the message in its JSON form.
func (m Message) object() *Object {
	o := &Object{}
	for _, key := range m.keys {
		o.Set(key, nil) // to fix the order
	}
	given := func(key string) bool { return slices.Contains(m.keys, key) }
	for _, f := range m.fields() {
		_, extra := m.Extra.Get(f.key)
		switch {
		case extra:
		case f.s != nil:
			if *f.s != "" || f.key == "role" || given(f.key) {
				o.Set(f.key, *f.s)
			}
		case f.v != nil:
			if *f.v != nil || m.keys == nil || given(f.key) {
				o.Set(f.key, *f.v)
			}
		case m.ToolCalls != nil:
			o.Set(f.key, m.ToolCalls)
		}
	}
	for key, v := range m.Extra.All() {
		o.Set(key, v)
	}
	for _, key := range m.keys { // that were taken out of the message since
		if _, extra := m.Extra.Get(key); !extra && !slices.ContainsFunc(m.fields(), func(f field) bool { return f.key == key }) {
			o.Delete(key)
		}
	}
	return o
}

// MarshalJSON writes the message in the form of the OpenAI chat API.
func (m Message) MarshalJSON() ([]byte, error) {
	o := m.object()
	for key, v := range o.All() {
		o.Set(key, plainJSON(v))
	}
	return o.MarshalJSON()
}

// plainJSON turns parts and tool calls into their JSON form.
func plainJSON(v any) any {
	switch v := v.(type) {
	case Part:
		return v.object()
	case ToolCall:
		return v.object()
	case []Part:
		out := make([]any, len(v))
		for i, p := range v {
			out[i] = p.object()
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plainJSON(e)
		}
		return out
	}
	return v
}

// UnmarshalJSON reads a message in the form of the OpenAI chat API. It returns
// an error that matches fault.ErrUsage when the JSON is no such message.
func (m *Message) UnmarshalJSON(data []byte) error {
	var o Object
	if err := o.UnmarshalJSON(data); err != nil {
		return fmt.Errorf("message: %w", err)
	}
	*m = Message{keys: slices.Clone(o.keys)}
	for _, f := range m.fields() {
		v, ok := o.Get(f.key)
		if !ok {
			continue
		}
		switch {
		case f.s != nil:
			*f.s, ok = v.(string)
		case f.v != nil:
			*f.v = v
		default:
			m.ToolCalls, ok = v.([]any)
		}
		if ok {
			o.Delete(f.key)
		}
	}
	if _, ok := o.Get("role"); ok || !slices.Contains(m.keys, "role") {
		return fmt.Errorf("message has no role: %w", fault.ErrUsage)
	}
	if o.Len() > 0 {
		m.Extra = &o
	}
	return nil
}

var (
	_ json.Marshaler   = Message{}
	_ json.Unmarshaler = (*Message)(nil)
)
