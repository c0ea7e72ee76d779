package rpc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// CrashError reports that the process of a plugin ended, or had to be ended, during
// a call. The next call starts it anew.
type CrashError struct {
	// Plugin is the program's path.
	Plugin string
	// Reason says how it ended, such as "signal: killed".
	Reason string
	// Log holds the last lines that it wrote, oldest first, or if it panicked those that
	// begin with the panic's.
	Log []string

	telling []string // those of them that the text has
}

// shownLines is how many lines of the log an error's text has.
const shownLines = 3

// Error gives the reason and the most telling lines.
func (e *CrashError) Error() string {
	return fmt.Sprintf("plugin %q ended during the call: %s", e.Plugin, e.Reason) + wrote(e.telling)
}

// Hint says that the plugin is at fault.
func (e *CrashError) Hint() string {
	return "try again: the plugin is started anew; if it happens again, report it to the plugin's author"
}

// wrote spells lines of a plugin out.
func wrote(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return "; it wrote: " + strings.Join(lines, " | ")
}

// ClosedError reports the use of a client that was closed, before or during the call. It
// matches fault.ErrUsage.
type ClosedError struct {
	// Plugin is the program's path.
	Plugin string
}

// Error names the program.
func (e *ClosedError) Error() string { return fmt.Sprintf("plugin %q was closed", e.Plugin) }

// Is reports whether target is fault.ErrUsage.
func (e *ClosedError) Is(target error) bool { return target == fault.ErrUsage }

// StartError reports a program that could not be started, or that is no plugin. It
// matches fault.ErrNotFound if there is no such file.
type StartError struct {
	// Plugin is the program's path.
	Plugin string
	// Err says what went wrong.
	Err error
	// Log is as in [CrashError].
	Log []string

	telling []string
}

// Error gives the reason and the most telling lines.
func (e *StartError) Error() string {
	return fmt.Sprintf("start plugin %q: %v", e.Plugin, e.Err) + wrote(e.telling)
}

// Unwrap returns the reason.
func (e *StartError) Unwrap() error { return e.Err }

// Hint returns the reason's hint, or says what a plugin is.
func (e *StartError) Hint() string {
	if hint := fault.Hint(e.Err); hint != "" {
		return hint
	}
	return "a plugin is a program for this system that serves zoo's protocol; `zoo plugin check` tells more"
}

// ChecksumError reports a program whose bytes are not those that were pinned. It
// was not started. It matches fault.ErrIntegrity.
type ChecksumError struct {
	// Plugin is the program's path.
	Plugin string
	// Want is the pinned digest in hexadecimal.
	Want string
}

// Error names the program.
func (e *ChecksumError) Error() string {
	return fmt.Sprintf("plugin %q is not the program with sha256 %s", e.Plugin, e.Want)
}

// Is reports whether target is fault.ErrIntegrity.
func (e *ChecksumError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says how to get the right program.
func (e *ChecksumError) Hint() string { return "install the plugin again with `zoo plugin install`" }

// ProtocolError reports a plugin that speaks no version of the protocol that this
// host speaks.
type ProtocolError struct {
	// Plugin is the version that the plugin speaks.
	Plugin int
	// Host lists what the host speaks.
	Host []int
}

// Error gives the versions.
func (e *ProtocolError) Error() string {
	return fmt.Sprintf("it speaks version %d of the protocol, this host %s", e.Plugin, strings.Trim(fmt.Sprint(e.Host), "[]"))
}

// Hint says which side is the older one.
func (e *ProtocolError) Hint() string {
	if !slices.ContainsFunc(e.Host, func(v int) bool { return v > e.Plugin }) {
		return "use a newer zoo, or an older version of the plugin"
	}
	return "use a newer version of the plugin"
}

// AnswerError reports an answer that breaks the rules: of the protocol, or of what
// it is about. It matches fault.ErrIntegrity.
type AnswerError struct {
	// Plugin is the program's path.
	Plugin string
	// Problem says what is wrong.
	Problem error
}

// Error names the plugin and the problem.
func (e *AnswerError) Error() string {
	return fmt.Sprintf("plugin %q gave an answer that is refused: %v", e.Plugin, e.Problem)
}

// Is reports whether target is fault.ErrIntegrity. The problem is not unwrapped: a
// wrong path in an answer is not a wrong use of the command.
func (e *AnswerError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says who is at fault.
func (e *AnswerError) Hint() string { return faultyHint }

// Panicked reports that the plugin has not: it gave an answer.
func (e *AnswerError) Panicked() bool { return false }
