package rpc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/rpc/pluginpb"
)

// kinds pairs what errors.Is tells apart with its name on the wire.
var kinds = []struct {
	kind     pluginpb.Fault_Kind
	sentinel error
}{
	{pluginpb.Fault_USAGE, fault.ErrUsage},
	{pluginpb.Fault_NOT_FOUND, fault.ErrNotFound},
	{pluginpb.Fault_INTEGRITY, fault.ErrIntegrity},
	{pluginpb.Fault_GATE_FAILED, fault.ErrGateFailed},
	{pluginpb.Fault_NETWORK, fault.ErrNetwork},
	{pluginpb.Fault_NO_SPACE, fault.ErrNoSpace},
	{pluginpb.Fault_NOT_PERMITTED, fault.ErrNotPermitted},
	{pluginpb.Fault_CANCELLED, context.Canceled},
	{pluginpb.Fault_DEADLINE, context.DeadlineExceeded},
	{pluginpb.Fault_ANSWER, errAnswer},
}

// errAnswer reports that what a method of a plugin has returned cannot be sent.
var errAnswer = errors.New("the plugin returned what is no answer")

// encodeFault makes a frame of an error.
func encodeFault(err error) *pluginpb.PluginFrame {
	f := &pluginpb.Fault{Text: clean(err.Error(), maxTextBytes), Hint: cleanLine(fault.Hint(err), maxHintBytes)}
	for _, k := range kinds {
		if errors.Is(err, k.sentinel) {
			f.Kinds = append(f.Kinds, k.kind)
		}
	}
	return faultFrame(f)
}

// faultFrame puts a fault into a frame.
func faultFrame(f *pluginpb.Fault) *pluginpb.PluginFrame {
	return &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Fault{Fault: f}}
}

// decodeFault makes an error of a fault: it has the text and the hint of the
// plugin's error, and matches the sentinels that that one matched.
func decodeFault(f *pluginpb.Fault) error {
	e := &remoteError{text: clean(f.GetText(), maxTextBytes), panicked: slices.Contains(f.GetKinds(), pluginpb.Fault_PANIC)}
	if e.text == "" {
		e.text = "an error without a text"
	}
	for _, k := range kinds {
		if slices.Contains(f.GetKinds(), k.kind) {
			e.sentinels = append(e.sentinels, k.sentinel)
		}
	}
	if e.panicked || e.Is(errAnswer) {
		return &faultyError{e}
	}
	if hint := cleanLine(f.GetHint(), maxHintBytes); hint != "" {
		return fault.WithHint(e, hint)
	}
	return e
}

// remoteError is an error of a plugin's method.
type remoteError struct {
	text      string
	sentinels []error
	panicked  bool
}

// Error returns the text of the plugin's error.
func (e *remoteError) Error() string { return e.text }

// Is reports whether the plugin's error matched target.
func (e *remoteError) Is(target error) bool { return slices.Contains(e.sentinels, target) }

// faultyError is an error that nobody but the plugin is to blame for.
type faultyError struct{ *remoteError }

// Panicked reports whether a method panicked; otherwise what it returned cannot be sent.
func (e *faultyError) Panicked() bool { return e.panicked }

// Hint says who is at fault.
func (e *faultyError) Hint() string { return faultyHint }

// faultyHint is the hint of errors that the plugin is to blame for.
const faultyHint = "the plugin is faulty: report it to its author"

// clean makes a text from a plugin fit to be shown: valid, of about limit bytes at most,
// and without what would control a terminal or turn the direction of writing.
func clean(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Bidi_Control) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
}

// cleanLine makes a text from a plugin fit to be shown as one line, like clean.
func cleanLine(text string, limit int) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, clean(text, limit))
}
