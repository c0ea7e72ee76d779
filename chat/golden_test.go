package chat_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/chat"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// goldenCase is one line of a golden file: what to render, and what Jinja makes
// of it: text, or the error that it ends in.
type goldenCase struct {
	Template string          `json:"template"`
	Messages []chat.Message  `json:"messages"`
	Tools    json.RawMessage `json:"tools"`
	Options  json.RawMessage `json:"options"`
	Prompt   bool            `json:"add_generation_prompt"`
	Text     *string         `json:"text"`
	Error    string          `json:"error"`
}

func (c *goldenCase) options(t testing.TB) chat.Options {
	t.Helper()
	opts := chat.Options{AddGenerationPrompt: c.Prompt, Variables: map[string]any{}}
	for raw, set := range map[*json.RawMessage]func(v any){
		&c.Tools: func(v any) { opts.Tools, _ = v.([]any) },
		&c.Options: func(v any) {
			if o, ok := v.(*chat.Object); ok {
				maps.Insert(opts.Variables, o.All())
			}
		},
	} {
		if len(*raw) == 0 {
			continue
		}
		v, err := chat.DecodeJSON(*raw)
		if err != nil {
			t.Fatal(err)
		}
		set(v)
	}
	return opts
}

func readGoldens(t testing.TB, path string) []goldenCase {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var cases []goldenCase
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var c goldenCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatalf("line %d: %v", len(cases)+1, err)
		}
		cases = append(cases, c)
	}
	return cases
}

func joined(segments []chat.Segment) string {
	var b bytes.Buffer
	for _, s := range segments {
		b.WriteString(s.Text)
	}
	return b.String()
}

func parseFile(t testing.TB, name string, cfg chat.Config) *chat.Template {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := chat.Parse(string(source), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

var demoConfig = chat.Config{BOS: "<bos>", EOS: "<eos>", Markers: []string{"<bos>", "<eos>", "<|turn>", "<turn|>", "<|think|>", "<|call>"}}

func TestConversations(t *testing.T) {
	templates := map[string]*chat.Template{}
	for i, c := range readGoldens(t, "testdata/conversations.jsonl") {
		if templates[c.Template] == nil {
			templates[c.Template] = parseFile(t, c.Template, demoConfig)
		}
		segments, err := templates[c.Template].Render(t.Context(), c.Messages, c.options(t))
		if c.Text == nil {
			var te *chat.TemplateError
			if !errors.As(err, &te) || te.Message != c.Error {
				t.Errorf("line %d: error %v, want %q", i+1, err, c.Error)
			}
			continue
		}
		if err != nil {
			t.Errorf("line %d: %v", i+1, err)
			continue
		}
		if diff := cmp.Diff(*c.Text, joined(segments)); diff != "" {
			t.Errorf("line %d (-want +got):\n%s", i+1, diff)
		}
		checkSegments(t, segments, demoConfig.Markers)
	}
}

// checkSegments checks that segments are maximal, and control ones single tokens.
func checkSegments(t *testing.T, segments []chat.Segment, markers []string) {
	t.Helper()
	for i, s := range segments {
		known := false
		for _, m := range markers {
			known = known || s.Text == m
		}
		switch {
		case s.Text == "":
			t.Errorf("segment %d is empty", i)
		case s.Control && !known:
			t.Errorf("segment %d: %q is no control token", i, s.Text)
		case !s.Control && i > 0 && !segments[i-1].Control:
			t.Errorf("segments %d and %d are both plain: %q, %q", i-1, i, segments[i-1].Text, s.Text)
		}
	}
}

func TestExpressions(t *testing.T) {
	raw, err := os.ReadFile("testdata/variables.json")
	if err != nil {
		t.Fatal(err)
	}
	var variables chat.Object
	if err := json.Unmarshal(raw, &variables); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open("testdata/expressions.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cfg := chat.Config{Now: func() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }}
	lines := bufio.NewScanner(file)
	n := 0
	for ; lines.Scan(); n++ {
		var c struct {
			Template    string
			Text        *string
			Error, Kind string
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		var segments []chat.Segment
		tmpl, err := chat.Parse(c.Template, cfg)
		if err == nil {
			segments, err = tmpl.Render(t.Context(), nil, chat.Options{Variables: maps.Collect(variables.All())})
		}
		switch {
		case c.Text != nil && err != nil:
			t.Errorf("%s\n  error %v, want %q", c.Template, err, *c.Text)
		case c.Text != nil:
			if got := joined(segments); got != *c.Text {
				t.Errorf("%s\n  got  %q\n  want %q", c.Template, got, *c.Text)
			}
		case err == nil:
			t.Errorf("%s\n  got %q, want error %q", c.Template, joined(segments), c.Error)
		case c.Kind == "syntax":
			// Some of what Jinja refuses while compiling fails here when it is reached.
			var te *chat.TemplateError
			if !errors.Is(err, fault.ErrIntegrity) && !errors.As(err, &te) {
				t.Errorf("%s\n  error %v, want a syntax error like %q", c.Template, err, c.Error)
			}
		default:
			var te *chat.TemplateError
			if !errors.As(err, &te) {
				t.Errorf("%s\n  error %v, want a template error like %q", c.Template, err, c.Error)
			} else if undefined := strings.HasSuffix(c.Error, "is undefined") || strings.Contains(c.Error, "has no attribute"); undefined && te.Message != c.Error {
				t.Errorf("%s\n  error %q, want %q", c.Template, te.Message, c.Error)
			}
		}
	}
	if err := lines.Err(); err != nil || n < 1000 {
		t.Errorf("read %d lines: %v", n, err)
	}
}
