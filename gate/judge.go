package gate

import (
	"fmt"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/zoo"
)

// What exact arithmetic is held to.
const (
	// ExactForkMargin is the fork margin.
	ExactForkMargin = 1e-3
	// ExactLogitShare is the largest error of a logit over the run's largest logit.
	ExactLogitShare = 3e-4
)

// What rounded arithmetic is held to.
const (
	// RoundedForkMargin is the fork margin.
	RoundedForkMargin = 1.0
	// SureMargin is the median margin from which on a reference is sure of itself.
	SureMargin = 1.0

	// SureMatchedShare is the smallest part of all reference tokens that must
	// match, SureLogitShare the largest error of a logit over the run's largest,
	// and SureRelL2 the largest error of a run's logits by their length.
	SureMatchedShare = 63.0 / 64
	SureLogitShare   = 1.0 / 16
	SureRelL2        = 0.1
	// OtherLogitShare is SureLogitShare where the reference rounds activations
	// on the checkpoint's grids and the pack is run without.
	OtherLogitShare = 1.0 / 12

	// UnsureMatchedShare and UnsureRelL2 are the same for a reference that is not sure of itself.
	UnsureMatchedShare = 5.0 / 8
	UnsureRelL2        = 0.5
)

// Limits is what a pack's numbers are held to. A limit of 0 but for ForkMargin does not apply.
type Limits struct {
	// Rounded says that activations or cache are rounded on one side at least.
	Rounded bool
	// Sure says that the reference's median margin is SureMargin or more.
	Sure bool
	// ForkMargin is the largest reference margin at which a token may differ.
	ForkMargin float64
	// MatchedShare is the smallest part of the reference tokens that must match.
	MatchedShare float64
	// LogitShare is the largest error of a logit over the run's largest logit.
	LogitShare float64
	// RelL2 is the largest error of a run's logits by their length.
	RelL2 float64
}

// limits returns what applies to a request.
func limits(req Request) Limits {
	o, grids := req.Options, req.Program.HasGrids()
	l := Limits{Sure: sure(req.Reference.Runs)}
	l.Rounded = grids || o.Cache != backends.CacheFloat || o.Activations == backends.Activations16 || o.Activations == backends.Activations8
	switch {
	case !l.Rounded:
		l.ForkMargin, l.LogitShare = ExactForkMargin, ExactLogitShare
	case !l.Sure:
		l.ForkMargin, l.MatchedShare, l.RelL2 = RoundedForkMargin, UnsureMatchedShare, UnsureRelL2
	default:
		l.ForkMargin, l.MatchedShare, l.LogitShare, l.RelL2 = RoundedForkMargin, SureMatchedShare, SureLogitShare, SureRelL2
		if grids && o.Activations != backends.ActivationsStatic {
			l.LogitShare = OtherLogitShare
		}
	}
	if o.ForkMargin > 0 {
		l.ForkMargin = o.ForkMargin
	}
	return l
}

// sure reports whether half of all margins are SureMargin or more.
func sure(runs []zoo.ReferenceRun) bool {
	wide, all := 0, 0
	for _, r := range runs {
		all += len(r.Margin)
		for _, m := range r.Margin {
			if m >= SureMargin {
				wide++
			}
		}
	}
	return 2*wide >= all
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
		r.fail("%d of %d reference tokens are matched, at least %.4g %% must be", matched, of, 100*share)
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
	if e, share := run.MaxAbsLogitError, r.Limits.LogitShare; e != nil && share > 0 && *e > share*run.LargestLogit {
		r.fail("run %d: a logit is off by %.4g, more than %.4g of the largest, %.4g", i, *e, share, run.LargestLogit)
	}
	if e, most := run.RelL2, r.Limits.RelL2; e != nil && most > 0 && *e > most {
		r.fail("run %d: the logits are off by %.4g of their length, more than %g", i, *e, most)
	}
}

// fail notes a reason.
func (r *Report) fail(format string, args ...any) {
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}
