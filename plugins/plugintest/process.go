package plugintest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

const (
	// maxKills is how often a process is killed until a call fails by it.
	maxKills = 50
	// maxPauses is how often a process that is to hang is called.
	maxPauses = 50
	// callers is how many calls go on while that is done.
	callers = 4
	// patience is how long the suite waits for a call of a process that hangs before it ends the call's context.
	patience = 100 * time.Millisecond
)

// process does to the process of the plugin what only processes can suffer.
func (s *suite) process(ctx context.Context) error {
	if s.o.Process == nil || s.about.Name == "" {
		return nil
	}
	if err := s.crash(ctx); err != nil {
		return err
	}
	if err := s.hang(ctx); err != nil {
		return err
	}
	s.skew(ctx)
	return s.twoHosts(ctx)
}

// another returns the plugin in another process, which start starts, and what closes
// it. That it does not start is a finding.
func (s *suite) another(rule Rule, call string, start func() (zoo.Plugin, func() error, error)) (p zoo.Plugin, stop func() error, ok bool) {
	p, stop, err := start()
	if err == nil {
		return p, stop, true
	}
	if stop != nil {
		err = errors.Join(err, stop())
	}
	s.find(rule, call, "another process of it does not start: %w", err)
	return nil, nil, false
}

// goesOn checks that the plugin can be called.
func (s *suite) goesOn(ctx context.Context, rule Rule, call string) {
	about, err := ask(ctx, s, call, s.plugin.Describe)
	if s.works(rule, call, err) && about != s.about {
		s.find(rule, call, "it said %+v, before %+v", about, s.about)
	}
}

// crash kills the process while calls go on, until one of them fails by that.
func (s *suite) crash(ctx context.Context) error {
	if s.o.Process.Kill == nil {
		return nil
	}
	const call = "a call during which the process was killed"
	failed := false
	for i := 0; i < maxKills && !failed && context.Cause(ctx) == nil; i++ {
		var group sync.WaitGroup
		errs := make([]error, callers)
		var setup error
		begun, killed := make(chan struct{}, callers), make(chan struct{})
		for j := range errs {
			dir, around, err := s.folder()
			if err != nil {
				setup = err
				break
			}
			group.Go(func() {
				begun <- struct{}{}
				errs[j] = s.work(ctx, call, dir, killed)
				around(call)
				s.wholeOrNone(ctx, RuleCrash, call, dir)
				_ = os.RemoveAll(filepath.Dir(dir))
			})
		}
		if setup == nil {
			<-begun
			// Later each time, so that some kill falls into a call.
			select {
			case <-time.After(time.Duration(i) * time.Millisecond):
			case <-ctx.Done():
			}
			setup = s.o.Process.Kill()
		}
		close(killed)
		group.Wait()
		if setup != nil {
			return setup
		}
		for _, err := range errs {
			if err == nil || errors.Is(err, errFaulty) {
				continue
			}
			failed = true
			if fault.Hint(err) == "" {
				s.find(RuleHints, call, "the error has no hint: %w", err)
			}
		}
		s.goesOn(ctx, RuleCrash, "Describe, after the process was killed")
	}
	if !failed {
		s.find(RuleCrash, call, "none of %d calls failed", maxKills*callers)
	}
	return s.convertAfter(ctx, RuleCrash, "Convert, after the process was killed")
}

// work makes the longest call that there is. Where none takes long, it calls until a call
// fails or the process has been killed.
func (s *suite) work(ctx context.Context, call, dir string, killed <-chan struct{}) error {
	if s.pack != nil {
		return s.toPack(ctx, s.plugin, call, s.request(dir))
	}
	for {
		if _, err := ask(ctx, s, call, s.plugin.Describe); err != nil {
			return err
		}
		select {
		case <-killed:
			return nil
		default:
		}
	}
}

// convertAfter checks that a conversion works as before.
func (s *suite) convertAfter(ctx context.Context, rule Rule, call string) error {
	if s.pack == nil {
		return nil
	}
	dir, around, err := s.folder()
	if err != nil {
		return err
	}
	if s.works(rule, call, s.toPack(ctx, s.plugin, call, s.request(dir))) {
		around(call)
		s.same(ctx, rule, call, dir)
	}
	return os.RemoveAll(filepath.Dir(dir))
}

// hang pauses the process, and calls it until a call fails: a process may answer some
// more before it stops, and a host may start it anew.
func (s *suite) hang(ctx context.Context) error {
	if s.o.Process.Pause == nil {
		return nil
	}
	for _, way := range []struct {
		call     string
		patience time.Duration // 0 for as long as it takes
	}{
		{"a call of a process that hangs, which was cancelled", patience},
		{"a call of a process that hangs, which was not cancelled", 0},
	} {
		if err := s.o.Process.Pause(); err != nil {
			return err
		}
		err := s.failing(ctx, way.call, way.patience)
		switch {
		case errors.Is(err, errFaulty):
			return nil
		case err == nil && way.patience > 0:
			s.find(RuleHang, way.call, "%d calls did not fail", maxPauses)
		case err == nil:
		case way.patience > 0:
			if !errors.Is(err, errEnough) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				s.find(RuleHang, way.call, "the error is not the cause of the context: %w", err)
			}
		case fault.Hint(err) == "":
			s.find(RuleHints, way.call, "the error has no hint: %w", err)
		}
		s.goesOn(ctx, RuleHang, "Describe, after the process hung")
		if err := s.convertAfter(ctx, RuleHang, "Convert, after the process hung"); err != nil {
			return err
		}
	}
	return nil
}

// failing calls the plugin until a call fails, and returns its error, or nil if none does.
func (s *suite) failing(ctx context.Context, call string, patience time.Duration) error {
	for range maxPauses {
		limit, with := s.o.Timeout, ctx
		if patience > 0 {
			var cancel context.CancelFunc
			with, cancel = context.WithTimeoutCause(ctx, patience, errEnough)
			defer cancel()
			limit = s.o.Prompt
		}
		if _, err := askWith(with, s, RuleHang, limit, call, s.plugin.Describe); err != nil {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// skew calls the plugin as hosts that speak other versions of the protocol.
func (s *suite) skew(ctx context.Context) {
	if p := s.o.Process.Skewed; p != nil {
		const call = "Describe, by a host of other versions of the protocol"
		_, err := ask(ctx, s, call, p.Describe)
		switch {
		case errors.Is(err, errFaulty):
		case err == nil:
			s.find(RuleSkew, call, "it did not fail")
		case fault.Hint(err) == "":
			s.find(RuleSkew, call, "the error does not say what to do: %w", err)
		}
	}
	if p := s.o.Process.Newer; p != nil {
		const call = "Describe, by a host of a newer version of the protocol, too"
		about, err := ask(ctx, s, call, p.Describe)
		if s.works(RuleSkew, call, err) && about != s.about {
			s.find(RuleSkew, call, "it said %+v, to others %+v", about, s.about)
		}
	}
}

// twoHosts calls the plugin from a second host, whose process ends while the first one's goes on.
func (s *suite) twoHosts(ctx context.Context) error {
	if s.o.Process.Start == nil {
		return nil
	}
	const call = "Describe, by a second host"
	p, stop, ok := s.another(RuleTogether, call, func() (zoo.Plugin, func() error, error) { return s.o.Process.Start() })
	if !ok {
		return nil
	}
	about, err := ask(ctx, s, call, func(ctx context.Context) (zoo.Description, error) { return p.Describe(ctx) })
	if s.works(RuleTogether, call, err) && about != s.about {
		s.find(RuleTogether, call, "it said %+v, to the first %+v", about, s.about)
	}
	if err := stop(); err != nil {
		return err
	}
	s.goesOn(ctx, RuleTogether, "Describe, after a second host has ended")
	return nil
}
