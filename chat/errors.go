package chat

import (
	"fmt"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// ErrLimit reports a rendering that went past one of its Limits. The error in
// the chain is a *LimitError, which says which limit.
var ErrLimit = fmt.Errorf("chat template limit: %w", fault.ErrIntegrity)

// Limit names one of the bounds of Limits.
type Limit string

// The bounds that a LimitError can name.
const (
	LimitSource Limit = "source size"
	LimitTime   Limit = "time"
	LimitOutput Limit = "output size"
	LimitMemory Limit = "memory"
	LimitDepth  Limit = "nesting depth"
)

// LimitError reports the bound that a rendering went past. It matches ErrLimit. It
// matches fault.ErrUsage if the input alone is too much, else fault.ErrIntegrity:
// an honest template stays far below the limits.
type LimitError struct {
	// Limit says which bound.
	Limit Limit
	// Max is the bound itself, with its unit, for people to read.
	Max string
	// Input says that the messages, tools or variables alone are too much.
	Input bool
}

// Error returns the limit and its value.
func (e *LimitError) Error() string {
	what := "chat template"
	if e.Input {
		what = "input of the chat template"
	}
	return fmt.Sprintf("%s: %s is over the limit of %s", what, e.Limit, e.Max)
}

// Is matches ErrLimit and one of fault.ErrUsage and fault.ErrIntegrity.
func (e *LimitError) Is(target error) bool {
	return target == ErrLimit || target == fault.ErrUsage && e.Input || target == fault.ErrIntegrity && !e.Input
}

// Hint says what to do about the limit.
func (e *LimitError) Hint() string {
	if e.Input {
		return "shorten the conversation"
	}
	return "check the model's chat template, it may be broken or hostile; or shorten the conversation"
}

// SyntaxError reports a template source that is not valid. It matches
// fault.ErrIntegrity.
type SyntaxError struct {
	// Line is where in the source, from 1; 0 where that is not known.
	Line int
	// Message says what is wrong.
	Message string
}

// Error returns the message with its line.
func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return "chat template: " + e.Message
	}
	return fmt.Sprintf("chat template, line %d: %s", e.Line, e.Message)
}

// Unwrap returns fault.ErrIntegrity.
func (e *SyntaxError) Unwrap() error { return fault.ErrIntegrity }

// Hint says what to do about a broken template.
func (e *SyntaxError) Hint() string {
	return "fetch the model's files again; if that does not help, its chat template is not supported"
}

// TemplateError reports a template that gave up on a conversation: either it
// said so itself (raise_exception), or it asked for something that its
// input does not have, as in "'str object' has no attribute 'get'". Messages of
// the second kind are worded as Jinja words them.
type TemplateError struct {
	// Message is the template's own text, or Jinja's.
	Message string
	// Line is where in the source, from 1; 0 where that is not known.
	Line int
	// Raised tells the template's own refusal from an error in running it.
	Raised bool
}

// Error returns the message, with its line unless the template raised it.
func (e *TemplateError) Error() string {
	switch {
	case e.Raised:
		return "chat template refuses the conversation: " + e.Message
	case e.Line > 0:
		return fmt.Sprintf("chat template, line %d: %s", e.Line, e.Message)
	default:
		return "chat template: " + e.Message
	}
}

// Is matches fault.ErrUsage when the template refused the conversation.
func (e *TemplateError) Is(target error) bool { return e.Raised && target == fault.ErrUsage }

// Hint says what to do about the refusal.
func (e *TemplateError) Hint() string {
	return "change the messages: this model's chat template cannot render them as they are"
}

// failf makes the error of a template that cannot go on; the line is filled in
// by the statement it happened in.
func failf(format string, args ...any) error {
	return &TemplateError{Message: fmt.Sprintf(format, args...)}
}
