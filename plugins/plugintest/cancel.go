package plugintest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/zoo-sdk/zoo/zoo"
)

// errEnough is why the suite cancels calls.
var errEnough = errors.New("the suite has had enough")

// method is a call that can be made on its own.
type method struct {
	name string
	// call makes it; dir is an empty folder.
	call func(ctx context.Context, dir string) error
	// writes says that it makes a pack in the folder.
	writes bool
	// reads says that there is something to read or to work out, so that a context that
	// has ended is to be noticed.
	reads bool
}

// methods lists the calls of the plugin that have something to work on.
func (s *suite) methods() []method {
	p := s.plugin
	all := []method{
		{name: "Describe", reads: true, call: func(ctx context.Context, _ string) error { _, err := p.Describe(ctx); return err }},
		{name: "Fetch", reads: true, call: func(ctx context.Context, dir string) error {
			from := s.o.Checkpoint
			if from == "" {
				from = dir
			}
			_, err := s.callFetch(ctx, p, "Fetch", zoo.FetchRequest{Release: s.release(s.sources), Dir: from})
			return err
		}},
	}
	if s.pack == nil {
		return all
	}
	all = append(all,
		method{name: "Convert", writes: true, reads: true, call: func(ctx context.Context, dir string) error {
			return s.callConvert(ctx, p, "Convert", s.request(dir))
		}},
		method{name: "Convert, with a report", writes: true, reads: true, call: func(ctx context.Context, dir string) error {
			req := s.request(dir)
			req.Report = true
			return s.callConvert(ctx, p, "Convert, with a report", req)
		}},
		method{name: "Gate, without a folder", call: func(ctx context.Context, _ string) error {
			_, err := s.callGate(ctx, p, "Gate, without a folder", zoo.GateRequest{Pack: s.info})
			return err
		}},
		method{name: "Run", reads: true, call: func(ctx context.Context, _ string) error {
			_, err := s.callRun(ctx, p, "Run", zoo.RunRequest{Pack: s.info})
			return err
		}},
	)
	if s.o.Reference != "" {
		all = append(all, method{name: "Gate, with a folder", reads: true, call: func(ctx context.Context, _ string) error {
			_, err := s.callGate(ctx, p, "Gate, with a folder", zoo.GateRequest{Pack: s.info, Dir: s.o.Reference})
			return err
		}})
	}
	if maker, ok := p.(zoo.Synthesizer); ok && s.o.Synthetic != "" {
		all = append(all, method{name: "Synthesize", writes: true, reads: true, call: func(ctx context.Context, dir string) error {
			return maker.Synthesize(ctx, zoo.SynthesizeRequest{Model: s.o.Synthetic, Dir: dir})
		}})
	}
	if estimator, ok := p.(zoo.Estimator); ok && s.info.Config != nil {
		all = append(all, method{name: "Estimate", reads: true, call: func(ctx context.Context, _ string) error {
			_, err := s.callEstimate(ctx, estimator, "Estimate", zoo.EstimateRequest{Release: s.release(s.sources), Sources: s.sources, Config: s.info.Config})
			return err
		}})
	}
	return all
}

// cancel ends the contexts of all calls, before and while they are made.
func (s *suite) cancel(ctx context.Context) error {
	if s.about.Name == "" {
		return nil
	}
	for _, m := range s.methods() {
		if works, err := s.uncancelled(ctx, m); err != nil {
			return err
		} else if !works {
			continue // nor would it if it were cancelled, which tells nothing of that
		}
		ended, cancel := context.WithCancelCause(ctx)
		cancel(errEnough)
		done, err := s.cancelled(ctx, ended, m, m.name+", whose context has ended")
		if err != nil {
			return err
		}
		if done && m.reads {
			s.find(RuleCancelled, m.name, "it did not fail though its context had ended")
		}
		if err := s.cancelLater(ctx, m); err != nil {
			return err
		}
	}
	return s.cancelProgress(ctx)
}

// uncancelled makes a call and reports whether it works, which other parts of the suite judge.
func (s *suite) uncancelled(ctx context.Context, m method) (bool, error) {
	dir, around, err := s.folder()
	if err != nil {
		return false, err
	}
	_, err = ask(ctx, s, m.name, func(ctx context.Context) (struct{}, error) { return struct{}{}, m.call(ctx, dir) })
	around(m.name)
	return err == nil, os.RemoveAll(filepath.Dir(dir))
}

// cancelled makes a call with a context that ends, and reports whether it succeeded all the same.
func (s *suite) cancelled(ctx, ending context.Context, m method, call string) (done bool, err error) {
	dir, around, err := s.folder()
	if err != nil {
		return false, err
	}
	before := context.Cause(ending) != nil
	_, err = askWith(ending, s, RuleCancel, s.o.Prompt, call, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, m.call(ctx, dir)
	})
	around(call)
	if p := s.o.Process; p != nil && p.Running != nil && !before && !p.Running() {
		s.find(RuleCancel, call, "it did not end, and the host has ended its process")
	}
	switch {
	case errors.Is(err, errFaulty):
		return false, nil
	case err == nil:
		done = true
	case !errors.Is(err, errEnough) && (s.o.Process == nil || !errors.Is(err, context.Canceled)):
		rule := RuleCancel
		if before {
			rule = RuleCancelled
		}
		s.find(rule, call, "the error is not the cause of the context: %w", err)
	}
	switch {
	case !m.writes:
	case err != nil && s.o.Process == nil:
		s.noPack(RuleCancel, call, dir)
	case err != nil:
		s.wholeOrNone(ctx, RuleCancel, call, dir)
	case before: // which is reported by itself
	default:
		if pack := s.openPack(ctx, RuleCancel, call, dir); pack != nil {
			_ = pack.Close()
		}
	}
	return done, os.RemoveAll(filepath.Dir(dir))
}

// cancelLater ends contexts after they have been looked at so many times, and of a
// process after so much time. A call may be done by then.
func (s *suite) cancelLater(ctx context.Context, m method) error {
	for n := 1; n < 1<<20; n *= 2 {
		inner, cancel := context.WithCancelCause(ctx)
		late := &fleeting{Context: inner, end: func() { cancel(errEnough) }}
		what := fmt.Sprintf("%s, whose context ended when it was looked at %d times", m.name, n)
		if s.o.Process == nil {
			late.left = int64(n)
		} else {
			what = fmt.Sprintf("%s, whose context ended after %d ms", m.name, n)
			stop := time.AfterFunc(time.Duration(n)*time.Millisecond, late.end)
			defer stop.Stop()
		}
		done, err := s.cancelled(ctx, late, m, what)
		ended := inner.Err() != nil
		cancel(nil)
		if err != nil {
			return err
		}
		if done && !ended {
			return nil // it had been done before
		}
	}
	return nil
}

// fleeting is a context that ends when it has been looked at so many times, or never if left is 0.
type fleeting struct {
	context.Context
	left int64
	end  func()
}

// look counts.
func (f *fleeting) look() {
	if atomic.AddInt64(&f.left, -1) == 0 {
		f.end()
	}
}

// Done implements context.Context.
func (f *fleeting) Done() <-chan struct{} {
	f.look()
	return f.Context.Done()
}

// Err implements context.Context.
func (f *fleeting) Err() error {
	f.look()
	return f.Context.Err()
}

// cancelProgress ends the context of a conversion when it first reports progress. What
// it has not done by then it must not do.
func (s *suite) cancelProgress(ctx context.Context) error {
	if s.pack == nil {
		return nil
	}
	const call = "Convert, whose context ended at the first progress"
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var early atomic.Bool
	m := method{name: call, writes: true, reads: true, call: func(ctx context.Context, dir string) error {
		req := s.request(dir)
		req.Progress = func(done, total int64) {
			if done < total && context.Cause(ctx) == nil {
				early.Store(true)
			}
			cancel(errEnough)
		}
		return s.callConvert(ctx, s.plugin, call, req)
	}}
	done, err := s.cancelled(ctx, inner, m, call)
	// A process may have gone on before it heard of that.
	if done && early.Load() && s.o.Process == nil {
		s.find(RuleCancel, call, "it went on and made a pack")
	}
	return err
}
