package sdk

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// CallOption is a setting of one answer, or, given to [Model.NewChat], of all
// answers of a conversation. What is not set is as the model's
// generation_config.json has it. Values are checked when an answer is asked for;
// the error then matches zoo.ErrUsage.
type CallOption func(*call)

// call is what call options set.
type call struct {
	system   string
	history  []Message
	sampling engine.Sampling
	// tempered says that a temperature was given, shaped names an option that only a temperature gives a meaning.
	tempered  bool
	shaped    string
	seeded    bool
	maxTokens int
	stops     []string
	raw       bool
	think     bool
	usage     *Usage
}

// with returns the call with further options applied.
func (c call) with(opts []CallOption) call {
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	return c
}

// System sets the system prompt, which tells the model how to behave.
func System(text string) CallOption { return func(c *call) { c.system = text } }

// History sets what was said before the first message.
func History(messages ...Message) CallOption {
	return func(c *call) { c.history = append([]Message(nil), messages...) }
}

// Temperature flattens (above 1) or sharpens (below 1) the distribution that
// tokens are drawn from; 0 always takes the likeliest token.
func Temperature(t float64) CallOption {
	return func(c *call) { c.sampling.Temperature, c.tempered = float32(t), true }
}

// TopK draws from the k likeliest tokens only; 0 from all.
func TopK(k int) CallOption { return func(c *call) { c.sampling.TopK, c.shaped = k, "top-k" } }

// TopP draws from the likeliest tokens only that together have this share of the
// probability; 1 draws from all.
func TopP(p float64) CallOption {
	return func(c *call) { c.sampling.TopP, c.shaped = float32(p), "top-p" }
}

// MinP draws from the tokens only that are at least this many times as likely as
// the likeliest; 0 draws from all.
func MinP(p float64) CallOption {
	return func(c *call) { c.sampling.MinP, c.shaped = float32(p), "min-p" }
}

// RepeatPenalty makes tokens that occurred lately less likely; 1 leaves them alone.
func RepeatPenalty(p float64) CallOption {
	return func(c *call) { c.sampling.RepeatPenalty = float32(p) }
}

// Seed makes drawing repeatable: the same seed, prompt and settings give the same
// text on every machine. Without it every answer has a seed of its own.
func Seed(n uint64) CallOption { return func(c *call) { c.sampling.Seed, c.seeded = n, true } }

// MaxTokens bounds the answer; 0 lets it go on until the model ends it or the
// context is full.
func MaxTokens(n int) CallOption { return func(c *call) { c.maxTokens = n } }

// Stop adds strings that end the answer wherever they occur in it. They are not
// part of the answer.
func Stop(texts ...string) CallOption {
	return func(c *call) { c.stops = append(c.stops[:len(c.stops):len(c.stops)], texts...) }
}

// Raw gives the prompt to the model as it is, after the begin-of-text token, for
// it to go on with, without the chat template.
func Raw() CallOption { return func(c *call) { c.raw = true } }

// Think asks a model that can do so to think before it answers.
func Think() CallOption { return func(c *call) { c.think = true } }

// Measure has *u filled in when an answer ends, whatever ends it.
func Measure(u *Usage) CallOption { return func(c *call) { c.usage = u } }

// Finish says why an answer ended.
type Finish string

const (
	// FinishStop: the model ended it.
	FinishStop Finish = "stop"
	// FinishText: a stop string came up.
	FinishText Finish = "stop-string"
	// FinishLength: it reached MaxTokens, or the end of the context.
	FinishLength Finish = "length"
	// FinishBreak: the caller left the loop.
	FinishBreak Finish = "break"
	// FinishError: it ended with an error, such as the end of its context.Context.
	FinishError Finish = "error"
)

// Usage tells what an answer took.
type Usage struct {
	// PromptTokens is the length of the prompt, and CachedTokens how much of it
	// was in the cache from before and did not have to be computed.
	PromptTokens, CachedTokens int
	// OutputTokens is the number of tokens given.
	OutputTokens int
	// PromptTime is the time until the first token could be picked, OutputTime the time from then to the end.
	PromptTime, OutputTime time.Duration
	// Submissions is how often the backend was asked to go on after the first token,
	// and Steps how many tokens it fed for that. SingleStep says why each time it was
	// one, such as "repeat penalty"; it is "" where the backend could go on by itself.
	Submissions, Steps int
	SingleStep         string
	// Finish says why the answer ended.
	Finish Finish
}

// Message is one turn of a conversation.
type Message struct {
	// Role is "system", "user" or "assistant".
	Role string
	// Content is the text. It is never taken for control tokens, whatever it holds.
	Content string
}

// EmptyPromptError reports a prompt that says nothing. It matches zoo.ErrUsage.
type EmptyPromptError struct{}

// Error implements error.
func (*EmptyPromptError) Error() string { return "the prompt is empty" }

// Is matches zoo.ErrUsage.
func (*EmptyPromptError) Is(target error) bool { return target == fault.ErrUsage }

// Hint tells how to give one.
func (*EmptyPromptError) Hint() string {
	return "give a prompt as an argument or on standard input"
}

// checkPrompt refuses a prompt that says nothing. Without a template white space
// may be meant.
func (c call) checkPrompt(prompt string) error {
	if prompt == "" || !c.raw && strings.TrimSpace(prompt) == "" {
		return &EmptyPromptError{}
	}
	return nil
}

// sampler makes the sampler of one answer.
func (c call) sampler() (*engine.Sampler, error) {
	switch {
	case c.maxTokens < 0:
		return nil, fmt.Errorf("%w: at most %d tokens", fault.ErrUsage, c.maxTokens)
	case c.shaped != "" && !c.tempered && c.sampling.Temperature == 0:
		return nil, fault.WithHint(fmt.Errorf("%w: %s changes nothing, since this model takes the likeliest token by default", fault.ErrUsage, c.shaped),
			"set a temperature as well, such as 1")
	}
	s := c.sampling
	if !c.seeded {
		s.Seed = rand.Uint64()
	}
	return engine.NewSampler(s)
}

// opening returns what a conversation begins with: the system prompt and the history.
func (c call) opening() []Message {
	var list []Message
	if c.system != "" {
		list = append(list, Message{Role: "system", Content: c.system})
	}
	return append(list, c.history...)
}

// messages returns the conversation that ends with a prompt.
func (c call) messages(prompt string) []Message {
	return append(c.opening(), Message{Role: "user", Content: prompt})
}
