package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
)

// AutoBackend is the name that stands for the best backend that is available. Where a
// program cannot be compiled for it because of its device or its kernels, the next one
// takes its place, with a notice.
const AutoBackend = "auto"

// choice is the backend that was chosen, and those that "auto" takes in its stead if
// its device fails when a program is compiled for it.
type choice struct {
	device backends.Backend
	why    string // it was chosen
	// rest are the backends that come after it; none for one that was asked for.
	rest []backends.Backend
	// passed tells of the backends before it why they were not taken, and amiss of
	// those among them that could be here.
	passed, amiss []error
}

// chooseBackend returns the named backend, or for "auto" the first that is available.
func chooseBackend(all []backends.Backend, name string) (*choice, error) {
	if name == "" || name == AutoBackend {
		return firstBackend(all)
	}
	for _, b := range all {
		if b.Name() == name {
			if err := b.Available(); err != nil {
				return nil, fmt.Errorf("backend %q is not available here: %w", name, err)
			}
			return &choice{device: b, why: "asked for"}, nil
		}
	}
	return nil, fault.WithHint(fmt.Errorf("%w: this build has no backend %q", fault.ErrUsage, name),
		"choose "+strings.Join(append(backendNames(all), AutoBackend), " or "))
}

// firstBackend returns the first backend that is available. Where there is none the
// error is about those that could be here, if there are such.
func firstBackend(all []backends.Backend) (*choice, error) {
	if len(all) == 0 {
		return nil, errors.New("this build has no backend")
	}
	c := &choice{rest: all}
	if err := c.next(); err != nil {
		return nil, err
	}
	switch {
	case len(all) == 1:
		c.why = "the only backend of this build"
	case len(c.passed) == 0:
		c.why = "the first that is available of " + strings.Join(backendNames(all), ", ")
	}
	return c, nil
}

// next goes on to the first of the rest that is available. Where none is, what was chosen stays.
func (c *choice) next() error {
	for i, b := range c.rest {
		err := b.Available()
		if err == nil {
			c.device, c.rest = b, c.rest[i+1:]
			if len(c.passed) > 0 {
				c.why = onOneLine(c.passed).Error()
			}
			return nil
		}
		err = fmt.Errorf("%s is not available: %w", b.Name(), err)
		c.passed = append(c.passed, err)
		if !errors.Is(err, errors.ErrUnsupported) {
			c.amiss = append(c.amiss, err)
		}
	}
	c.rest = nil
	if len(c.amiss) > 0 {
		return onOneLine(c.amiss)
	}
	return onOneLine(c.passed)
}

// compile has run compile a program on the backend that was chosen. Where that fails
// over the device or its kernels, "auto" goes on to the next backend and says so, and
// the choice stays with that one.
func (c *choice) compile(ctx context.Context, events Events, run func(backends.Backend) error) error {
	for {
		err := run(c.device)
		if err == nil || ctx.Err() != nil || !deviceFailed(err) {
			return err
		}
		name, short := c.device.Name(), shorten(err)
		if len(c.rest) == 0 {
			return withAdvice(short)
		}
		what, more := "failed", "; `zoo doctor --metal` tells more"
		if errors.Is(err, errors.ErrUnsupported) { // nothing is wrong with the device
			what, more = "does not run this model", ""
		}
		failure := fmt.Errorf("%s %s: %w", name, what, short)
		c.passed, c.amiss = append(c.passed, failure), append(c.amiss, failure)
		if err := c.next(); err != nil {
			return withAdvice(err)
		}
		events.Notice(fmt.Sprintf("backend %q is passed over for %q, since it %s: %v%s", name, c.device.Name(), what, short, more))
	}
}

// withAdvice adds to the error of a device what to do about it, unless it says so itself.
func withAdvice(err error) error {
	if fault.Hint(err) != "" {
		return err
	}
	return fault.WithHint(err, "run on the processor with `--backend cpu`; `zoo doctor --metal` tells what is wrong")
}

// deviceFailed reports whether a program could not be compiled because of the device
// or its kernels. Another backend may do better, as it would not with another kind of error.
func deviceFailed(err error) bool {
	is := func(target error) bool { return errors.Is(err, target) }
	return slices.ContainsFunc([]error{metal.ErrKernel, metal.ErrDevice, metal.ErrMemory, metal.ErrNoDevice, errors.ErrUnsupported}, is) &&
		!slices.ContainsFunc([]error{fault.ErrUsage, fault.ErrIntegrity, context.Canceled, context.DeadlineExceeded}, is)
}

// shortError is an error whose text leaves out most of what it wraps.
type shortError struct {
	error
	text string
}

// Error implements error.
func (e *shortError) Error() string { return e.text }

// Unwrap returns the whole error.
func (e *shortError) Unwrap() error { return e.error }

// shorten returns an error with as much of its text as fits a line or two: what a
// compiler has to say may go on for pages.
func shorten(err error) error {
	const mostLines, mostRunes = 3, 400
	var lines []string
	more := false
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if more = len(lines) == mostLines; more {
			break
		}
		lines = append(lines, line)
	}
	text := []rune(strings.Join(lines, " "))
	if len(text) > mostRunes {
		text, more = text[:mostRunes], true
	}
	short := string(text)
	if more {
		short += " ..."
	}
	if short == err.Error() {
		return err
	}
	return &shortError{err, short}
}

// watchedCompiler is a backend that keeps the error with which it last compiled.
type watchedCompiler struct {
	backends.Backend
	err error
}

// Compile implements backends.Backend.
func (w *watchedCompiler) Compile(ctx context.Context, p *program.Program, weights backends.Weights, opts backends.Options) (e backends.Executor, err error) {
	e, w.err = w.Backend.Compile(ctx, p, weights, opts)
	return e, w.err
}

// Plain implements backends.Plain.
func (w *watchedCompiler) Plain() backends.Backend {
	if p, ok := w.Backend.(backends.Plain); ok {
		return p.Plain()
	}
	return nil
}

// onOneLine joins errors, of which there is at least one.
func onOneLine(errs []error) error {
	all := errs[0]
	for _, err := range errs[1:] {
		all = fmt.Errorf("%w; %w", all, err)
	}
	return all
}

// backendNames returns the names of backends.
func backendNames(all []backends.Backend) []string {
	names := make([]string, 0, len(all))
	for _, b := range all {
		names = append(names, b.Name())
	}
	return names
}

// passedOver tells of each backend that "auto" would rather take than the one it
// takes, and that could be here but is not available.
func (z *Zoo) passedOver(set settings) {
	if set.backend != "" && set.backend != AutoBackend {
		return
	}
	for _, b := range z.backends {
		err := b.Available()
		if err == nil {
			return
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			set.events.Notice(fmt.Sprintf("backend %q is passed over, since it is not available: %v", b.Name(), err))
		}
	}
}
