package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/chzyer/readline"

	"github.com/zoo-sdk/zoo/sdk"
)

// typed is a person who types lines; "^C" is the key of that name.
type typed struct {
	lines   []string
	prompts []string
}

func (p *typed) Readline() (string, error) {
	if len(p.lines) == 0 {
		return "", io.EOF
	}
	line := p.lines[0]
	p.lines = p.lines[1:]
	if line == "^C" {
		return "", readline.ErrInterrupt
	}
	return line, nil
}

func (p *typed) SetPrompt(text string) { p.prompts = append(p.prompts, text) }

// talk runs a chat with a person who types lines, and returns what it printed.
func talk(t *testing.T, raw bool, lines ...string) (stdout, stderr string) {
	t.Helper()
	dir, err := sharedStore()
	if err != nil {
		t.Fatal(err)
	}
	m, err := sdk.Open("demo", sdk.WithHome(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var out, errs bytes.Buffer
	a := &app{streams: streams{out: &out, err: &errs}}
	a.progress = newProgress(a)
	s := &session{app: a, model: m, raw: raw}
	if raw {
		s.opts = append(s.opts, sdk.Raw(), sdk.MaxTokens(3))
	}
	if err := s.converse(t.Context(), &typed{lines: lines}); err != nil {
		t.Fatal(err)
	}
	return out.String(), errs.String()
}

func TestChat(t *testing.T) {
	t.Parallel()
	const france, italy = "What is the capital of France?", "What is the capital of Italy?"
	const paris, rome = "The capital of France is **Paris**.\n", "The capital of Italy is **Rome**.\n"
	for _, test := range []struct {
		name   string
		lines  []string
		stdout string
		stderr []string
	}{
		{"turns", []string{france, "", "  ", italy}, paris + rome, []string{"demo@1.0.0 on cpu; /help lists the commands\n"}},
		{"bye", []string{france, "/bye", italy}, paris, nil},
		{"interrupt at the prompt", []string{"^C", france}, paris, nil},
		{"help", []string{"/help"}, "", []string{"forget the conversation"}},
		{"unknown", []string{"/frobnicate", france}, paris, []string{"no command is named /frobnicate"}},
		{"not a command", []string{"/etc/passwd is a path. " + france}, "", nil},
		{"several lines", []string{`"""What is the capital`, `of France?"""`}, "", nil},
		{"several lines in one", []string{`"""` + france + `"""`}, paris, nil},
		{"too long", []string{strings.Repeat("word ", 5000), france}, paris, []string{"error: ", "do not fit in a context of 4096", "hint: "}},
		{"stats", []string{"/stats", france, italy}, paris + rome, []string{"prompt:  20 tokens, 0 of them cached", "31 of them cached"}},
		{"clear", []string{"/stats", france, "/clear", france}, paris + paris, []string{"prompt:  20 tokens, 0 of them cached"}},
		{"system", []string{"/system Be brief.", "/stats", france}, "", []string{" 0 of them cached"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr := talk(t, false, test.lines...)
			if test.stdout != "" && stdout != test.stdout {
				t.Errorf("standard output %q, want %q", stdout, test.stdout)
			}
			for _, want := range test.stderr {
				if !strings.Contains(stderr, want) {
					t.Errorf("standard error %q has no %q", stderr, want)
				}
			}
			if test.name == "clear" && strings.Contains(stderr, "31 of them cached") {
				t.Errorf("not forgotten: %q", stderr)
			}
		})
	}
	if stdout, _ := talk(t, true, "The capital of France is"); stdout == "" {
		t.Error("a raw prompt has no answer")
	}
}

// Ctrl-C stops the answer and not the chat; a second one stops the chat.
func TestInterruptOfAnAnswer(t *testing.T) {
	t.Parallel()
	dir, err := sharedStore()
	if err != nil {
		t.Fatal(err)
	}
	m, err := sdk.Open("demo", sdk.WithHome(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var errs bytes.Buffer
	a := &app{}
	// The person presses Ctrl-C when the first piece of the first answer appears.
	out := &trigger{f: func() {
		if f := a.interrupts.take(); f != nil {
			f()
		}
	}}
	a.streams = streams{out: out, err: &errs}
	a.progress = newProgress(a)
	s := &session{app: a, model: m}
	if err := s.converse(t.Context(), &typed{lines: []string{"What is the capital of France?", "What is the capital of Italy?"}}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(errs.String(), "(stopped)") || strings.Contains(out.String(), "Paris") || !strings.HasSuffix(out.String(), "\nThe capital of Italy is **Rome**.\n") {
		t.Errorf("standard output %q, standard error %q", out.String(), errs.String())
	}
	if a.interrupts.take() != nil {
		t.Error("an interrupt is still taken for one of an answer")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	if err := s.converse(ctx, &typed{lines: []string{"hello"}}); !errors.Is(err, errInterrupted) {
		t.Errorf("error %v", err)
	}
}

// trigger calls a function at the first write.
type trigger struct {
	text strings.Builder
	f    func()
	done bool
}

func (w *trigger) Write(p []byte) (int, error) {
	if !w.done {
		w.done = true
		w.f()
	}
	return w.text.Write(p)
}

func (w *trigger) String() string { return w.text.String() }

func TestChatCommand(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][2]string{
		"/bye":                 {"bye", ""},
		" /system  Be brief. ": {"system", "Be brief."},
		"/?":                   {"?", ""},
		"/":                    {},
		"/etc/hosts":           {},
		"hello /bye":           {},
		"/1":                   {},
	} {
		name, rest, ok := chatCommand(line)
		if got := [2]string{name, rest}; got != want || ok != (want[0] != "") {
			t.Errorf("%q: %q, %v, want %q", line, got, ok, want)
		}
	}
}
