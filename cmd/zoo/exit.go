package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/zoo-sdk/zoo/zoo"
)

// Exit codes. They are part of the command's interface; see docs of package main.
const (
	exitDone = iota
	exitOther
	exitUsage
	exitNotFound
	exitIntegrity
	exitGateFailed
	exitNetwork
	exitNoSpace
	exitNotPermitted

	exitInterrupted = 130
)

// errInterrupted is the cause of a context that Ctrl-C has ended.
var errInterrupted = errors.New("interrupted")

// kinds maps the kinds of errors to exit codes. Where an error is of several kinds
// the first one counts: what stopped the command comes before what it was doing.
var kinds = [...]struct {
	kind error
	code int
}{
	{errInterrupted, exitInterrupted},
	{zoo.ErrNoSpace, exitNoSpace},
	{zoo.ErrNotPermitted, exitNotPermitted},
	{zoo.ErrGateFailed, exitGateFailed},
	{zoo.ErrIntegrity, exitIntegrity},
	{zoo.ErrNetwork, exitNetwork},
	{zoo.ErrNotFound, exitNotFound},
	{zoo.ErrUsage, exitUsage},
}

// exitCode returns the exit code of an error.
func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return k.code
		}
	}
	return exitOther
}

// report prints an error and what to do about it, and returns the exit code.
func (a *app) report(err error) int {
	code := exitCode(err)
	switch code {
	case exitDone:
		return code
	case exitInterrupted:
		fmt.Fprintln(a.err, "interrupted")
		return code
	}
	// The kind is the exit code's business.
	text := strings.TrimPrefix(err.Error(), zoo.ErrUsage.Error()+": ")
	fmt.Fprintf(a.err, "%s %s\n", a.style(styleError, "error:"), text)
	if hint := zoo.Hint(err); hint != "" {
		fmt.Fprintf(a.err, "%s %s\n", a.style(styleHint, "hint:"), hint)
	}
	return code
}

// usageError is a wrong use of the command line.
type usageError struct {
	text, hint string
}

// Error returns what is wrong.
func (e *usageError) Error() string { return e.text }

// Is reports whether target is zoo.ErrUsage.
func (e *usageError) Is(target error) bool { return target == zoo.ErrUsage }

// Hint returns what is right.
func (e *usageError) Hint() string { return e.hint }

// interrupted replaces what an interrupt has made of an error: whatever was going
// on failed because of it.
func interrupted(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errInterrupted) {
		return errInterrupted
	}
	return err
}
