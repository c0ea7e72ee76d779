package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/chat"
	"github.com/zoo-sdk/zoo/internal/fault"
)

func TestSyntaxErrors(t *testing.T) {
	for _, c := range []struct {
		source, message string
		line            int
	}{
		{"{{ ", "tag has no end", 1},
		{"a\n{{ x", "tag has no end", 2},
		{"{% if x %}\na\n", "", 0},
		{"\n\n{% endif %}", "unknown tag", 3},
		{"{# a", "missing end of comment tag", 1},
		{"{{ 'a }}", "unterminated string", 1},
		{"{{ (1] }}", "unexpected", 1},
		{"{{ 1 $ 2 }}", "unexpected character", 1},
		{"{{ }}", "expected an expression", 1},
		{"x\n{% include 'secret' %}", "refused", 2},
		{"{% import 'a' as b %}", "refused", 1},
		{"{% from 'a' import b %}", "refused", 1},
		{"{% extends 'a' %}", "refused", 1},
		{"{% break %}", "outside of a loop", 1},
		{"{% set 1 = 2 %}", "", 1},
		{"{% set true = 2 %}", "can't assign", 1},
		{"{% for %}{% endfor %}", "", 1},
		{"{% raw %}{{", "missing end of raw", 1},
		{"{{ '\\N{DIGIT ONE}' }}", "not supported", 1},
		{"{{ '\\xZZ' }}", "invalid", 1},
		{"{% call x %}{% endcall %}", "expected a call", 1},
		{"\xff", "UTF-8", 0},
	} {
		_, err := chat.Parse(c.source, chat.Config{})
		se := new(chat.SyntaxError)
		if !errors.As(err, &se) || !errors.Is(err, fault.ErrIntegrity) || fault.Hint(err) == "" {
			t.Errorf("%q: error %v, want a syntax error", c.source, err)
			continue
		}
		if !strings.Contains(se.Message, c.message) || c.line != 0 && se.Line != c.line {
			t.Errorf("%q: error %v, want %q in line %d", c.source, err, c.message, c.line)
		}
	}
}

func TestTemplateErrors(t *testing.T) {
	for _, c := range []struct {
		source, message string
		line            int
		raised          bool
	}{
		{"{{ raise_exception('Roles must alternate') }}", "Roles must alternate", 1, true},
		{"\n\n{% if true %}\n{{ missing.x }}{% endif %}", "'missing' is undefined", 4, false},
		{"{{ messages[0].content.get('x') }}", "'str object' has no attribute 'get'", 1, false},
		{"{{ messages[0].nope.x }}", "'dict object' has no attribute 'nope'", 1, false},
		{"{{ none.x.y }}", "'None' has no attribute 'x'", 1, false},
		{"{{ messages[7].x }}", "list object has no element 7", 1, false},
		{"{% macro m() %}\n{{ 1 + 'a' }}{% endmacro %}\n{{ m() }}", "unsupported operand type(s) for +: 'int' and 'str'", 2, false},
		{"{{ [].append(1) }}", "access to attribute 'append' of 'list' object is unsafe.", 1, false},
		{"{{ ''.__class__ + 1 }}", "access to attribute '__class__' of 'str' object is unsafe.", 1, false},
		{"{{ 1|random }}", "No filter named 'random'.", 1, false},
	} {
		tmpl, err := chat.Parse(c.source, chat.Config{})
		if err != nil {
			t.Errorf("%q: %v", c.source, err)
			continue
		}
		_, err = tmpl.Render(t.Context(), []chat.Message{{Role: "user", Content: "x"}}, chat.Options{})
		te := new(chat.TemplateError)
		if !errors.As(err, &te) {
			t.Errorf("%q: error %v, want a template error", c.source, err)
			continue
		}
		if te.Message != c.message {
			t.Errorf("%q: message %q, want %q", c.source, te.Message, c.message)
		}
		if te.Line != c.line || te.Raised != c.raised || errors.Is(err, fault.ErrUsage) != c.raised || fault.Hint(err) == "" {
			t.Errorf("%q: error %#v, want line %d, raised %v", c.source, te, c.line, c.raised)
		}
	}
}

func TestThinking(t *testing.T) {
	tmpl, err := chat.Parse("{{ enable_thinking is defined }} {{ enable_thinking }}", chat.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for thinking, want := range map[chat.Thinking]string{chat.ThinkingDefault: "False ", chat.ThinkingOn: "True True", chat.ThinkingOff: "True False"} {
		segments, err := tmpl.Render(t.Context(), nil, chat.Options{Thinking: thinking})
		if got := joined(segments); err != nil || got != want {
			t.Errorf("%v: %q, %v, want %q", thinking, got, err, want)
		}
	}
	silent, err := chat.Parse("{{ messages }}", chat.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if silent.Mentions("tools") || !silent.Mentions("messages") {
		t.Error("Mentions is wrong about tools or messages")
	}
	if _, err := silent.Render(t.Context(), nil, chat.Options{Thinking: chat.ThinkingOn}); !errors.Is(err, fault.ErrUsage) {
		t.Errorf("error %v, want a usage error", err)
	}
	if _, err := silent.Render(t.Context(), nil, chat.Options{Thinking: chat.ThinkingOff}); err != nil {
		t.Error(err)
	}
}

// TestConcurrentUse renders one template from many goroutines.
func TestConcurrentUse(t *testing.T) {
	tmpl := parseFile(t, "rich.jinja", demoConfig)
	cases := readGoldens(t, "testdata/conversations.jsonl")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range cases {
				c := cases[(i+g*7)%len(cases)]
				if c.Template != "rich.jinja" || c.Text == nil {
					continue
				}
				segments, err := tmpl.Render(t.Context(), c.Messages, c.options(t))
				if err != nil || joined(segments) != *c.Text {
					t.Errorf("case %d: %q, %v", i, joined(segments), err)
				}
			}
		})
	}
	wg.Wait()
}

// TestGoValues renders values as programs hold them.
func TestGoValues(t *testing.T) {
	tmpl, err := chat.Parse("{{ messages | tojson }} {{ tools | tojson }} {{ v | tojson }}", chat.Config{})
	if err != nil {
		t.Fatal(err)
	}
	object := &chat.Object{}
	object.Set("z", 1)
	object.Set("a", []string{"x"})
	object.Set("gone", 1)
	object.Delete("gone")
	segments, err := tmpl.Render(t.Context(), []chat.Message{
		{Role: "user", Content: []chat.Part{{Type: "text", Text: "t"}, {Type: "image"}}},
		{Role: "assistant", Reasoning: "r", ToolCalls: []any{chat.ToolCall{ID: "1", Name: "f", Arguments: map[string]any{"b": 1, "a": 2}}}},
		{Role: "tool", Content: map[string]any{"b": 1.5, "a": nil}, ToolCallID: "1", Name: "f"},
	}, chat.Options{
		Tools: []any{object},
		Variables: map[string]any{"v": []any{int8(1), uint64(1) << 63, float32(0.5), json.Number("10"), json.Number("1e3"), json.Number("123456789012345678901234567890"),
			struct {
				B int `json:"b"`
				A any `json:"a"`
			}{1, []bool{true}}, time.Unix(0, 0).UTC(), []*chat.Object{object}, "a\xffb", (*chat.Object)(nil)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"role": "user", "content": [{"type": "text", "text": "t"}, {"type": "image"}]}, ` +
		`{"thinking": "r", "role": "assistant", "content": null, "reasoning": "r", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 2, "b": 1}}}], "reasoning_content": "r"}, ` +
		`{"role": "tool", "content": {"a": null, "b": 1.5}, "tool_call_id": "1", "name": "f"}] ` +
		`[{"z": 1, "a": ["x"]}] ` +
		`[1, 9223372036854775808, 0.5, 10, 1000.0, 123456789012345678901234567890, {"b": 1, "a": [true]}, "1970-01-01T00:00:00Z", [{"z": 1, "a": ["x"]}], "a` + "\ufffd" + `b", null]`
	if diff := cmp.Diff(want, joined(segments)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestMessageJSON checks that a message survives being read and written.
func TestMessageJSON(t *testing.T) {
	for _, in := range []string{
		`{"role":"user","content":"a<b>&\n"}`,
		`{"content":"x","role":"user"}`,
		`{"role":"user"}`,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"arguments":{"b":1,"a":1.50},"name":"f"},"index":0}],"refusal":null}`,
		`{"role":"tool","tool_call_id":"1","content":{"z":[{}],"a":1e3}}`,
		`{"name":null,"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}],"reasoning":""}`,
		`{"role":"user","content":"","name":"","tool_calls":null,"tool_call_id":5}`,
	} {
		var m chat.Message
		if err := json.Unmarshal([]byte(in), &m); err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		out, err := m.MarshalJSON()
		if err != nil || string(out) != in {
			t.Errorf("got %s, %v, want %s", out, err, in)
		}
	}
	var m chat.Message
	if err := json.Unmarshal([]byte(`{"role":"user","content":"old","x":1,"name":"n"}`), &m); err != nil {
		t.Fatal(err)
	}
	m.Content, m.Reasoning, m.Extra = "new", "r", nil
	out, err := m.MarshalJSON()
	if want := `{"role":"user","content":"new","name":"n","reasoning":"r"}`; err != nil || string(out) != want {
		t.Errorf("got %s, %v, want %s", out, err, want)
	}
	for _, in := range []string{`[]`, `"x"`, `{`, `{}`, `{"role":null}`, `{"role":5}`, `{"role":"user"} x`, strings.Repeat(`{"a":`, 300), strings.Repeat("[", 300) + strings.Repeat("]", 300)} {
		if err := m.UnmarshalJSON([]byte(in)); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("%.40s: error %v, want a usage error", in, err)
		}
	}
}

// FuzzParse parses anything, and renders what parses: neither may panic, run on,
// or fail with an error of no type.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"demo.jinja", "rich.jinja"} {
		source, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(source))
	}
	for i, c := range readGoldens(f, "testdata/expressions.jsonl") {
		if i%5 == 0 {
			f.Add(c.Template)
		}
	}
	for _, source := range []string{"{% raw %}", "{%- raw -%} a {%- endraw", "{{ '\\", "{%\n%}", "{{-}}", "{#-#}", "{% if x: %}{% else: %}{% endif %}", "{% for a in b recursive %}{{ loop(a) }}{% endfor %}", "{{ messages|map('upper')|list }}", "{{ x.y.z(*a, **b)[1:2:3] }}"} {
		f.Add(source)
	}
	limits := chat.Limits{SourceBytes: 1 << 16, Time: 200 * time.Millisecond, OutputBytes: 1 << 16, MemoryBytes: 8 << 20, Depth: 50}
	f.Fuzz(func(t *testing.T, source string) {
		start := time.Now()
		tmpl, err := chat.Parse(source, chat.Config{BOS: "<s>", Markers: []string{"<s>", "<a>"}, Limits: limits})
		if err != nil {
			if !errors.Is(err, fault.ErrIntegrity) {
				t.Fatalf("error %v has no type", err)
			}
			return
		}
		messages, opts := conversation("a", "<s>", "b c")
		segments, err := tmpl.Render(t.Context(), messages, opts)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("took %v", took)
		}
		if te := new(chat.TemplateError); err != nil && !errors.As(err, &te) && !errors.Is(err, chat.ErrLimit) {
			t.Fatalf("error %v has no type", err)
		}
		if n := len(joined(segments)); n > limits.OutputBytes {
			t.Errorf("%d bytes of output", n)
		}
		checkSegments(t, segments, []string{"<s>", "<a>"})
	})
}

func ExampleTemplate_Render() {
	source := "{{ bos_token }}{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content | trim }}<turn|>\n{% endfor %}" +
		"{% if add_generation_prompt %}<|turn>model\n{% endif %}"
	tmpl, err := chat.Parse(source, chat.Config{BOS: "<bos>", Markers: []string{"<bos>", "<|turn>", "<turn|>"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	segments, err := tmpl.Render(context.Background(), []chat.Message{{Role: "user", Content: "What does <|turn> mean?"}}, chat.Options{AddGenerationPrompt: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range segments {
		fmt.Printf("%-5v %q\n", s.Control, s.Text)
	}
	// Output:
	// true  "<bos>"
	// true  "<|turn>"
	// false "user\nWhat does <|turn> mean?"
	// true  "<turn|>"
	// false "\n"
	// true  "<|turn>"
	// false "model\n"
}
