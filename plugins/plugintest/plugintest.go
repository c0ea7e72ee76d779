package plugintest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/timeout"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// Options says what a plugin is tried with.
type Options struct {
	// Checkpoint is the folder of a small checkpoint: it is copied and converted dozens
	// of times. Without one only that is checked which needs none.
	Checkpoint string
	// Recipe is the recipe of its conversion.
	Recipe map[string]string
	// Reference is a folder of reference values of the checkpoint, or "".
	Reference string
	// Synthetic is the name of a model that is small enough to make up, if the plugin
	// is a zoo.Synthesizer that knows one.
	Synthetic string
	// Backend runs the programs; nil runs none.
	Backend backends.Backend
	// Dir is where the suite makes a folder for its files; "" stands for the system's
	// folder of temporary files.
	Dir string
	// Timeout is how long any call may take; 0 stands for two minutes.
	Timeout time.Duration
	// Prompt is how long a cancelled call may take to return; 0 stands for ten seconds.
	Prompt time.Duration
	// Process is given for a plugin in a process of its own.
	Process *Process
	// Part, if set, is told each part of the suite before it begins, and says whether it
	// is to be run. Without "convert" there is no pack for later parts.
	Part func(part string) bool
}

// Process is what the suite can do to the process of a plugin.
type Process struct {
	// Kill ends the process of the plugin at once, as the system would; nil leaves that out.
	Kill func() error
	// Pause stops the process without ending it, so that it hangs; nil leaves that out.
	// The host must notice by itself within [Options.Timeout].
	Pause func() error
	// Running reports whether the process runs, so that a host is noticed that had to end
	// it; nil leaves that out.
	Running func() bool
	// Start returns the same plugin in another process with further variables of the
	// environment, "NAME=value", and what closes it, which is called even after an
	// error unless it is nil. A Start that is nil leaves that out.
	Start func(env ...string) (zoo.Plugin, func() error, error)
	// Confine returns the same plugin in another process that gets no more memory than
	// this, or ends, and what closes it, as Start does; nil leaves out what needs it,
	// which is whether Fetch reads huge files.
	Confine func(memoryBytes int64) (zoo.Plugin, func() error, error)
	// Skewed is the plugin as a host sees it that speaks only versions of the protocol
	// that the plugin cannot know, and Newer as one that speaks such a version, too; nil
	// leaves that out.
	Skewed, Newer zoo.Plugin
}

// Test returns nil, or every way found in which a plugin differs from the contract, as
// [Finding]s. Options that cannot be used are fault.ErrUsage; when ctx ends, its cause is
// returned with what was found before. In between it changes GOMAXPROCS for a while, if the
// plugin is in this process.
func Test(ctx context.Context, p zoo.Plugin, o Options) (err error) {
	if p == nil {
		return fmt.Errorf("%w: there is no plugin to check", fault.ErrUsage)
	}
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Minute
	}
	if o.Prompt <= 0 {
		o.Prompt = 10 * time.Second
	}
	dir, err := os.MkdirTemp(o.Dir, "plugintest")
	if err != nil {
		return err
	}
	s := &suite{plugin: p, o: o, dir: dir, ended: ctx.Done(), counts: map[Rule]int{}}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.prepare(); err != nil {
		return err
	}
	return errors.Join(s.run(ctx), s.result())
}

// suite is one run of the suite.
type suite struct {
	plugin zoo.Plugin
	o      Options
	dir    string
	next   int             // the number of the next folder
	ended  <-chan struct{} // closed when the context of the suite ends

	about   zoo.Description
	sources []catalog.File // of the checkpoint
	planned []catalog.File // that Fetch asks for
	pack    *zoo.Pack      // nil if there is none
	info    zoo.PackInfo
	program *program.Program // nil if there is none
	gated   *zoo.Reference
	meters  []*meter

	mu       sync.Mutex
	findings []error
	counts   map[Rule]int
	hung     bool // a call did not return: no more are made
}

// prepare looks at the checkpoint.
func (s *suite) prepare() (err error) {
	for _, dir := range []*string{&s.o.Checkpoint, &s.o.Reference, &s.dir} {
		if *dir == "" {
			continue
		}
		if *dir, err = filepath.EvalSymlinks(*dir); err == nil {
			*dir, err = filepath.Abs(*dir)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", fault.ErrUsage, err)
		}
	}
	if s.o.Checkpoint == "" {
		return nil
	}
	if s.sources, err = listFiles(s.o.Checkpoint); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := catalog.ValidateFiles(s.sources); err != nil {
		return fmt.Errorf("checkpoint %q: %w", s.o.Checkpoint, err)
	}
	return nil
}

// close removes what the suite has made.
func (s *suite) close() error {
	var err error
	if s.pack != nil {
		err = s.pack.Close()
	}
	s.mu.Lock()
	hung := s.hung
	s.mu.Unlock()
	if removed := os.RemoveAll(s.dir); !hung { // else something may still write there
		err = errors.Join(err, removed)
	}
	return err
}

// run checks everything. What is missing for a part leaves it out.
func (s *suite) run(ctx context.Context) error {
	kept := map[string]tree{}
	for _, dir := range []string{s.o.Checkpoint, s.o.Reference} {
		if dir == "" {
			continue
		}
		var err error
		if kept[dir], err = readTree(dir); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		name string
		run  func(ctx context.Context) error
	}{
		{"describe", s.describe},
		{"fetch", s.fetch},
		{"convert", s.convert},
		{"convert again", s.convertAgain},
		{"convert what is broken", s.convertBroken},
		{"run", s.runProgram},
		{"run bad packs", s.runBad},
		{"gate", s.gate},
		{"gate what is broken", s.gateBroken},
		{"synthesize", s.synthesize},
		{"estimate", s.estimate},
		{"cancel", s.cancel},
		{"calls at the same time", s.together},
		{"crash and hang", s.process},
	} {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if s.o.Part != nil && !s.o.Part(part.name) {
			continue
		}
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	for _, m := range s.meters {
		m.checkLate(s)
	}
	for dir, before := range kept {
		after, err := readTree(dir)
		if err != nil {
			return err
		}
		if diff := before.diff(after); diff != "" {
			s.find(RuleOutside, "any call", "folder %q has changed: %s", dir, diff)
		}
	}
	return context.Cause(ctx)
}

// maxFindings is how many findings of a rule are told.
const maxFindings = 12

// over reports whether the context of the suite has ended. What the plugin does from then
// on tells nothing of it: its calls fail as they should.
func (s *suite) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// find takes note of a finding, unless the suite is over.
func (s *suite) find(rule Rule, call, format string, args ...any) {
	if s.over() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts[rule]++; s.counts[rule] <= maxFindings {
		s.findings = append(s.findings, &Finding{rule, call, fmt.Errorf(format, args...)})
	}
}

// result returns all findings.
func (s *suite) result() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rule := range slices.Sorted(maps.Keys(s.counts)) {
		if n := s.counts[rule]; n > maxFindings {
			s.findings = append(s.findings, &Finding{rule, "more calls", fmt.Errorf("there are %d more findings", n-maxFindings)})
		}
	}
	return errors.Join(s.findings...)
}

// folder makes an empty folder with a file beside it that nobody is to touch, and
// returns a function that reports what has changed around the folder.
func (s *suite) folder() (dir string, check func(call string), err error) {
	s.mu.Lock()
	s.next++
	around := filepath.Join(s.dir, strconv.Itoa(s.next))
	s.mu.Unlock()
	dir = filepath.Join(around, "folder")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	if err := os.WriteFile(filepath.Join(around, "bystander"), []byte("not to be touched\n"), 0o600); err != nil {
		return "", nil, err
	}
	before, err := readTree(around)
	return dir, func(call string) {
		after, err := readTree(around)
		if err != nil {
			s.find(RuleOutside, call, "what lies around its folder cannot be read: %w", err)
			return
		}
		if diff := before.outside("folder").diff(after.outside("folder")); diff != "" {
			s.find(RuleOutside, call, "around its folder: %s", diff)
		}
	}, err
}

// errFaulty stands for a call that has been reported already, or that was made when the suite was over.
var errFaulty = errors.New("a call that does not count")

// ask makes a call of the plugin. One that panics or does not return is reported, and its
// error is errFaulty, as is that of any call once ctx, which is the suite's, has ended.
func ask[T any](ctx context.Context, s *suite, name string, call func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return askWith(ctx, s, RuleReturns, s.o.Timeout, name, call)
}

// askWith is ask with a context and a limit of time, which is that of a rule.
func askWith[T any](ctx context.Context, s *suite, rule Rule, limit time.Duration, name string, call func(ctx context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	none := outcome{err: errFaulty}
	s.mu.Lock()
	hung := s.hung
	s.mu.Unlock()
	if hung || s.over() {
		return none.value, none.err
	}
	done := make(chan outcome, 1)
	go func() {
		got, returned := none, false
		defer func() {
			if v := recover(); v != nil {
				s.find(RulePanics, name, "%v\n%s", v, debug.Stack())
			} else if !returned {
				s.find(RulePanics, name, "it ended its goroutine (runtime.Goexit) and did not return")
			}
			done <- got
		}()
		value, err := call(ctx)
		got, returned = outcome{value, err}, true
	}()
	late := make(chan struct{})
	defer timeout.Deadline(limit, func() { close(late) })()
	select {
	case got := <-done:
		if s.over() {
			return none.value, none.err
		}
		if blame, ok := errors.AsType[Blame](got.err); ok && blame.Panicked() {
			s.find(RulePanics, name, "%w", got.err)
			return none.value, none.err
		}
		return got.value, got.err
	case <-late:
	case <-s.ended:
		select {
		case <-done:
			return none.value, none.err
		case <-time.After(s.o.Prompt):
		}
	}
	s.mu.Lock()
	s.hung = true
	s.mu.Unlock()
	s.find(rule, name, "it has not returned within %v; no further calls were made", limit)
	return none.value, none.err
}

// kinds are the errors that callers tell apart.
var kinds = []error{fault.ErrUsage, fault.ErrNotFound, fault.ErrIntegrity, fault.ErrGateFailed, fault.ErrNetwork, fault.ErrNoSpace, fault.ErrNotPermitted}

// Blame is an error by which a host says that the plugin is at fault, whatever it was given.
type Blame interface {
	error
	// Panicked reports whether the plugin panicked; otherwise its answer was refused.
	Panicked() bool
}

// hasKind reports whether an error is of a kind, or none.
func hasKind(err error) bool {
	return err == nil || slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// judge checks that an error is of a kind. An answer that the host had to refuse breaks the rule.
func (s *suite) judge(rule Rule, call string, err error) {
	if errors.Is(err, errFaulty) {
		return
	}
	if _, ok := errors.AsType[Blame](err); ok {
		s.find(rule, call, "%w", err)
		return
	}
	if !hasKind(err) {
		s.find(RuleErrors, call, "the error matches none of the sentinels of package zoo: %w", err)
	}
}

// judgeData checks an error about data of the user's, who wants to know what to do.
func (s *suite) judgeData(rule Rule, call string, err error) {
	s.judge(rule, call, err)
	if !errors.Is(err, errFaulty) && fault.Hint(err) == "" {
		s.find(RuleHints, call, "the error has no hint: %w", err)
	}
}

// refused checks that a call failed, and with an error of a kind.
func (s *suite) refused(rule Rule, call string, err error) {
	if err == nil {
		s.find(rule, call, "it was not refused")
		return
	}
	s.judge(rule, call, err)
}

// works checks that a call did not fail, and reports whether that is so.
func (s *suite) works(rule Rule, call string, err error) bool {
	if err == nil {
		return true
	}
	if !errors.Is(err, errFaulty) {
		s.find(rule, call, "it failed: %w", err)
	}
	return false
}
