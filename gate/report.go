package gate

import (
	"fmt"
	"strings"
	"time"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// Report is how a pack did. Its JSON is the object of `zoo gate --json`; what
// that leaves out is for receipts and for people.
type Report struct {
	// Pass is the verdict.
	Pass bool `json:"pass"`
	// Pack is the pack's digest.
	Pack string `json:"pack"`
	// Backend is the backend's name.
	Backend string `json:"backend"`
	// Runs are the reference runs, in their order; empty, not nil, without any.
	Runs []RunReport `json:"runs"`
	// Score counts exact answers; nil when no question was asked.
	Score *zoo.Score `json:"score"`

	// Level is what the pack was held against.
	Level zoo.Level `json:"-"`
	// Plugin made the program.
	Plugin zoo.PluginID `json:"-"`
	// Kernels says what the backend ran on.
	Kernels string `json:"-"`
	// Activations, Cache and Threads are those that were used.
	Activations backends.Activations `json:"-"`
	Cache       backends.CacheType   `json:"-"`
	Threads     int                  `json:"-"`
	// Limits is what the numbers were held to.
	Limits Limits `json:"-"`
	// SmallestMargin is the smallest reference margin at any step; nil without runs.
	SmallestMargin *float64 `json:"-"`
	// ReferenceRight is how many of the questions asked the reference answers
	// exactly, and Questions how many there are.
	ReferenceRight int `json:"-"`
	Questions      int `json:"-"`
	// Misses are the questions that were answered otherwise than expected.
	Misses []Miss `json:"-"`
	// Checks need no reference.
	Checks []Check `json:"-"`
	// Failures says in words why the pack does not pass; empty when it does.
	Failures []string `json:"-"`
	// Elapsed is how long the gate took, and Time when it ended.
	Elapsed time.Duration `json:"-"`
	Time    time.Time     `json:"-"`
	// Zoo is the version of the program that ran the gate.
	Zoo string `json:"-"`
}

// RunReport is how a pack did on one reference run.
type RunReport struct {
	// PromptTokens is the number of tokens fed first.
	PromptTokens int `json:"prompt_tokens"`
	// Matched counts the reference tokens that were the pack's likeliest ones,
	// each after all reference tokens before it, Of all reference tokens.
	Matched int `json:"matched"`
	Of      int `json:"of"`
	// ForkMargin is the largest reference margin at a step where the token differed; nil when none did.
	ForkMargin *float64 `json:"fork_margin"`
	// MaxAbsLogitError is the largest difference of a logit, and RelL2 the
	// length of all differences over that of the reference logits; nil where no
	// reference logits are known.
	MaxAbsLogitError *float64 `json:"max_abs_logit_error"`
	RelL2            *float64 `json:"rel_l2"`

	// LargestLogit is the largest magnitude of the reference logits that were compared.
	LargestLogit float64 `json:"-"`
	// NotFinite counts the positions with logits that are infinite or not a number.
	NotFinite int `json:"-"`
	// Forks are the steps where the token differed.
	Forks []Fork `json:"-"`
}

// NoToken stands for the token of logits that none can be picked from.
const NoToken = -1

// Fork is a step of a reference run where the pack's likeliest token is another.
type Fork struct {
	// Step is the number of reference tokens before it.
	Step int
	// Want is the reference's token, Got the pack's, or NoToken.
	Want, Got int32
	// WantText and GotText are the texts of the tokens.
	WantText, GotText string
	// Margin is the reference's between its two best tokens.
	Margin float64
}

// Miss is a question that was not answered exactly as expected.
type Miss struct {
	zoo.Question
	// Got is the answer, at least up to where it departs from the expected one.
	Got string
}

// Check is one that needs no reference.
type Check struct {
	// Name says what holds where the check passes.
	Name string
	// Problem is what was found instead, or "".
	Problem string
}

// Receipt returns what is kept of the report.
func (r *Report) Receipt() zoo.Receipt {
	receipt := zoo.Receipt{
		Pack:           catalog.Digest(r.Pack),
		Plugin:         r.Plugin,
		Backend:        r.Backend,
		Kernels:        r.Kernels,
		Activations:    string(r.Activations),
		Cache:          string(r.Cache),
		Level:          r.Level,
		Passed:         r.Pass,
		Reason:         strings.Join(r.Failures, "; "),
		Runs:           len(r.Runs),
		SmallestMargin: r.SmallestMargin,
		Score:          r.Score,
		Time:           r.Time,
		Zoo:            r.Zoo,
	}
	for _, run := range r.Runs {
		receipt.Matched += run.Matched
		receipt.Of += run.Of
		receipt.ForkMargin = larger(receipt.ForkMargin, run.ForkMargin)
		receipt.MaxLogitError = larger(receipt.MaxLogitError, run.MaxAbsLogitError)
	}
	return receipt
}

// larger returns the larger of two numbers that may be unknown.
func larger(a, b *float64) *float64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// FailedError reports a pack that did not pass its gate. It matches fault.ErrGateFailed.
type FailedError struct {
	// Report has the figures.
	Report *Report
}

// Error gives the first reasons.
func (e *FailedError) Error() string {
	const most = 3
	reasons := e.Report.Failures
	more := ""
	if len(reasons) > most {
		reasons, more = reasons[:most], fmt.Sprintf("; and %d more", len(reasons)-most)
	}
	return fmt.Sprintf("pack %s failed its gate: %s%s", e.Report.Pack, strings.Join(reasons, "; "), more)
}

// Is reports whether target is fault.ErrGateFailed.
func (e *FailedError) Is(target error) bool { return target == fault.ErrGateFailed }

// Hint tells what to do.
func (e *FailedError) Hint() string {
	return "see every figure with `zoo gate --report FILE.html`, and convert the checkpoint again; if the new pack fails too, report it"
}
