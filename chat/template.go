package chat

import (
	"context"
	"fmt"
	"time"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// Config describes the tokenizer and the bounds that a template works with. The
// zero value knows no control tokens.
type Config struct {
	// BOS and EOS are the texts of the tokens that templates call bos_token and
	// eos_token.
	BOS, EOS string
	// Tokens holds further token texts by the variable they go by, such as
	// "pad_token".
	Tokens map[string]string
	// Markers are the texts of all the tokenizer's control tokens.
	Markers []string
	// Limits bounds parsing and rendering.
	Limits Limits
	// Now is the clock of strftime_now; time.Now by default.
	Now func() time.Time
}

// Template is a parsed chat template. It is safe for concurrent use.
type Template struct {
	body      []stmt
	mentioned map[string]bool
	lib       *library
	markers   *markerSet
	tokens    map[string]value
	limits    Limits
	now       func() time.Time
}

// Parse reads the source of a chat template. It returns a *SyntaxError
// (fault.ErrIntegrity) for one that is not valid, and a *LimitError (ErrLimit)
// for one longer than cfg.Limits.SourceBytes.
func Parse(source string, cfg Config) (*Template, error) {
	limits := cfg.Limits.withDefaults()
	if len(source) > limits.SourceBytes {
		return nil, &LimitError{Limit: LimitSource, Max: fmt.Sprintf("%d bytes", limits.SourceBytes)}
	}
	body, mentioned, err := parseTemplate(source)
	if err != nil {
		return nil, err
	}
	t := &Template{
		body:      body,
		mentioned: mentioned,
		lib:       newLibrary(),
		markers:   newMarkerSet(cfg.Markers),
		tokens:    map[string]value{},
		limits:    limits,
		now:       cfg.Now,
	}
	if t.now == nil {
		t.now = time.Now
	}
	for name, s := range cfg.Tokens {
		t.tokens[name] = literal(toValid(s))
	}
	for name, s := range map[string]string{"bos_token": cfg.BOS, "eos_token": cfg.EOS} {
		if s != "" {
			t.tokens[name] = literal(toValid(s))
		}
	}
	return t, nil
}

// Mentions reports whether the template reads a variable of some name anywhere.
// One that does not mention "tools" or "enable_thinking" cannot render them.
func (t *Template) Mentions(variable string) bool { return t.mentioned[variable] }

// Thinking says whether the model is to think before it answers.
type Thinking int

// What a template is told about thinking.
const (
	// ThinkingDefault leaves it to the template.
	ThinkingDefault Thinking = iota
	// ThinkingOn asks for it: enable_thinking is true.
	ThinkingOn
	// ThinkingOff asks for none: enable_thinking is false.
	ThinkingOff
)

// Options says what to render besides the messages. The zero value is valid.
type Options struct {
	// Tools describes the functions that the model may call, each a JSON-like
	// value (see Message.Content) in the form of the OpenAI chat API.
	Tools []any
	// Thinking sets enable_thinking. Asking for it of a template that does not
	// mention it is an error.
	Thinking Thinking
	// AddGenerationPrompt ends the text with the start of the assistant's turn.
	AddGenerationPrompt bool
	// Variables holds further variables of the template, JSON-like values. They
	// win over those that the fields above and Config make.
	Variables map[string]any
}

// Render renders a conversation. The segments' texts joined are the prompt; see
// Segment for how they are to be tokenized.
//
// No text from messages, tools or variables ends up in a control segment,
// whatever the template does with it: strings carry their origin through every
// operation of the template, and a control token is taken for one only where the
// template, or the token texts of Config, wrote it. The exception that some
// templates need is the roles system, developer, user, assistant, tool and
// function, which may be a part, but never the whole, of a control token.
//
// It returns a *TemplateError if the template gives up on the conversation
// (fault.ErrUsage if by raise_exception), a *LimitError (ErrLimit) if it goes
// past a limit, an error that matches fault.ErrUsage for values that are not
// JSON-like and for thinking that the template does not know, and the context's
// cause when ctx ends. Nothing goes on running after it returns.
func (t *Template) Render(ctx context.Context, messages []Message, opts Options) ([]Segment, error) {
	if opts.Thinking == ThinkingOn && !t.Mentions("enable_thinking") {
		return nil, fault.WithHint(fmt.Errorf("chat template has no thinking to enable: %w", fault.ErrUsage), "do not ask this model to think")
	}
	r := &renderer{ctx: ctx, lib: t.lib, limits: t.limits, deadline: time.Now().Add(t.limits.Time), now: t.now}
	if err := r.spend(clockEvery); err != nil {
		return nil, err
	}
	vars, err := r.variables(t, messages, opts)
	if err != nil {
		return nil, err
	}
	out := sink{max: t.limits.OutputBytes}
	if _, err := r.run(t.body, &scope{parent: vars}, &out); err != nil {
		return nil, err
	}
	return t.markers.split(out.text()), nil
}

// variables is the scope around the template's own.
func (r *renderer) variables(t *Template, messages []Message, opts Options) (*scope, error) {
	r.input = true
	defer func() { r.input = false }()
	s := &scope{}
	for name, v := range t.tokens {
		s.set(name, v)
	}
	m, err := r.messages(messages)
	if err != nil {
		return nil, err
	}
	s.set("messages", m)
	s.set("tools", nil)
	s.set("documents", nil)
	s.set("add_generation_prompt", opts.AddGenerationPrompt)
	if opts.Tools != nil {
		tools, err := r.fromGo(opts.Tools)
		if err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		s.set("tools", tools)
	}
	if opts.Thinking != ThinkingDefault {
		s.set("enable_thinking", opts.Thinking == ThinkingOn)
	}
	for name, v := range opts.Variables {
		val, err := r.fromGo(v)
		if err != nil {
			return nil, fmt.Errorf("variable %q: %w", name, err)
		}
		s.set(name, val)
	}
	return s, nil
}
