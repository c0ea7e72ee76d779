package gate

import (
	"fmt"
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/program"
)

const (
	// ExactForkMargin is the fork margin of exact arithmetic, and
	// ExactLogitShare the largest error of a logit over the largest logit.
	ExactForkMargin = 1e-3
	ExactLogitShare = 3e-4

	// RoundedForkMargin is the fork margin of rounded arithmetic,
	// RoundedMatchedShare the smallest part of all reference tokens that must
	// match, and RoundedRelL2 the largest error of a run's logits by their length.
	RoundedForkMargin   = 1.0
	RoundedMatchedShare = 0.625
	RoundedRelL2        = 0.5
)

// Limits is what a pack's numbers are held to.
type Limits struct {
	// Rounded says that activations or cache are rounded on one side at least.
	Rounded bool
	// ForkMargin is the largest reference margin at which a token may differ.
	ForkMargin float64
	// LogitShare is the largest error of a logit over the run's largest logit; 0 where Rounded.
	LogitShare float64
	// MatchedShare is the smallest part of the reference tokens that must match; 0 where not Rounded.
	MatchedShare float64
	// RelL2 is the largest error of a run's logits by their length; 0 where not Rounded.
	RelL2 float64
}

// limits returns what applies to a program that is run with these options.
func limits(p *program.Program, o Options) Limits {
	l := Limits{ForkMargin: ExactForkMargin, LogitShare: ExactLogitShare}
	if rounded(p, o) {
		l = Limits{Rounded: true, ForkMargin: RoundedForkMargin, MatchedShare: RoundedMatchedShare, RelL2: RoundedRelL2}
	}
	if o.ForkMargin > 0 {
		l.ForkMargin = o.ForkMargin
	}
	return l
}

// rounded reports whether the pack's numbers or the reference's are rounded.
func rounded(p *program.Program, o Options) bool {
	if o.Cache == backends.CacheInt8 || o.Activations == backends.Activations16 || o.Activations == backends.Activations8 {
		return true
	}
	return slices.ContainsFunc(p.Ops, func(op program.Op) bool {
		var none program.Rounding
		switch {
		case op.Linear != nil:
			return slices.ContainsFunc(op.Linear.Parts, func(p program.Part) bool { return p.Rounding != none })
		case op.GateUp != nil:
			return op.GateUp.Gate != none || op.GateUp.Up != none
		}
		return false
	})
}

// allowance is how many exact answers of n may be missing.
func allowance(n int) int { return 1 + n/100 }

// judge reaches the verdict.
func (r *Report) judge() {
	matched, of := 0, 0
	for i, run := range r.Runs {
		matched += run.Matched
		of += run.Of
		r.judgeRun(i, run)
	}
	if share := r.Limits.MatchedShare; float64(matched) < share*float64(of) {
		r.fail("%d of %d reference tokens are matched, at least %g %% must be", matched, of, 100*share)
	}
	if s := r.Score; s != nil && s.Right < r.ReferenceRight-allowance(s.Of) {
		r.fail("%d of %d questions are answered exactly; the reference answers %d, and %d fewer are allowed", s.Right, s.Of, r.ReferenceRight, allowance(s.Of))
	}
	for _, c := range r.Checks {
		if c.Problem != "" {
			r.fail("%s: %s", c.Name, c.Problem)
		}
	}
	r.Pass = len(r.Failures) == 0
}

// judgeRun holds one run to the limits.
func (r *Report) judgeRun(i int, run RunReport) {
	if run.NotFinite > 0 {
		r.fail("run %d: logits are not finite at %d positions", i, run.NotFinite)
	}
	if m := run.ForkMargin; m != nil && *m > r.Limits.ForkMargin {
		r.fail("run %d: a token differs where the reference's margin is %.4g, above %g", i, *m, r.Limits.ForkMargin)
	}
	if e := run.MaxAbsLogitError; e != nil && !r.Limits.Rounded && *e > r.Limits.LogitShare*run.LargestLogit {
		r.fail("run %d: a logit is off by %.4g, more than %g of the largest, %.4g", i, *e, r.Limits.LogitShare, run.LargestLogit)
	}
	if e := run.RelL2; e != nil && r.Limits.Rounded && *e > r.Limits.RelL2 {
		r.fail("run %d: the logits are off by %.4g of their length, more than %g", i, *e, r.Limits.RelL2)
	}
}

// fail notes a reason.
func (r *Report) fail(format string, args ...any) {
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}
