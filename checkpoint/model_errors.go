package checkpoint

import (
	"fmt"
	"strings"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// ConfigError reports a config.json that is malformed or contradicts itself. It
// matches fault.ErrIntegrity.
type ConfigError struct {
	// Field is the path of the field, such as "text_config.layer_types", or "" for the whole.
	Field string
	// Problem says what is wrong, with the values concerned.
	Problem string
	// Err is the cause, or nil.
	Err error
}

// Error names the field and the problem.
func (e *ConfigError) Error() string {
	s := "config.json: "
	if e.Field != "" {
		s += e.Field + ": "
	}
	s += e.Problem
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause, if any.
func (e *ConfigError) Unwrap() error { return e.Err }

// Is reports whether target is fault.ErrIntegrity.
func (e *ConfigError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says where a sound config.json comes from.
func (e *ConfigError) Hint() string {
	return "take config.json from the same repository and revision as the weights"
}

// UnsupportedError reports a checkpoint that is sound but of a kind that this
// plugin does not run. It matches fault.ErrUsage.
type UnsupportedError struct {
	// Field is the path of the field of config.json that says so.
	Field string
	// Got is its value, Want what is supported.
	Got, Want string
}

// Error names the field, its value and what is supported.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("config.json: %s is %s, which is not supported: it must be %s", e.Field, e.Got, e.Want)
}

// Is reports whether target is fault.ErrUsage.
func (e *UnsupportedError) Is(target error) bool { return target == fault.ErrUsage }

// Hint says how to go on.
func (e *UnsupportedError) Hint() string {
	return "choose a checkpoint that this plugin knows, or a plugin that knows this checkpoint (`zoo plugin list`)"
}

// TensorError reports a tensor that contradicts config.json, is missing, is not
// understood, or holds numbers that no model can have. It matches fault.ErrIntegrity.
type TensorError struct {
	// Tensor is its name in the checkpoint.
	Tensor string
	// Problem says what is wrong.
	Problem string
	// Want and Got are what config.json asks for and what the checkpoint has; both may be "".
	Want, Got string
	// Advice says what to do, or is "" for what mostly helps.
	Advice string
}

// Error names the tensor and what is wrong with it.
func (e *TensorError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tensor %q: %s", e.Tensor, e.Problem)
	if e.Want != "" {
		fmt.Fprintf(&b, ": want %s, got %s", e.Want, e.Got)
	}
	return b.String()
}

// Is reports whether target is fault.ErrIntegrity.
func (e *TensorError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says what to check.
func (e *TensorError) Hint() string {
	if e.Advice != "" {
		return e.Advice
	}
	return "check that config.json and the weights are of the same repository and revision, and that the plugin fits them"
}

// TokenizerError reports a tokenizer that is not the model's. It matches fault.ErrIntegrity.
type TokenizerError struct {
	// Pieces is the number of ids that tokenizer.json gives out.
	Pieces int
	// Rows is the number of tokens that the model's tables have rows for.
	Rows int
}

// Error gives both numbers.
func (e *TokenizerError) Error() string {
	return fmt.Sprintf("tokenizer.json is that of another model: it has %d tokens, the model's tables have rows for %d", e.Pieces, e.Rows)
}

// Is reports whether target is fault.ErrIntegrity.
func (e *TokenizerError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says where the right one is.
func (e *TokenizerError) Hint() string {
	return "take tokenizer.json from the same repository and revision as the weights"
}
