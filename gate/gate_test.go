package gate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/gate"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// TestRun puts a model to its gate that has one fault each.
func TestRun(t *testing.T) {
	for _, tc := range []struct {
		name    string
		rounded bool
		unsure  bool // margins of 0.3
		options gate.Options
		backend fakeBackend
		text    fakeText
		change  func(*gate.Request)
		// reasons has a part of each failure, in order; none for a pass.
		reasons []string
	}{
		{name: "sound"},
		{name: "sound and rounded", rounded: true},
		{name: "short caches", backend: fakeBackend{short: true}},
		{
			name:    "noise within float's",
			backend: fakeBackend{bend: func(l []float32, _ situation) { l[7] += 1e-3 }},
		},
		{
			name:    "noise above float's",
			backend: fakeBackend{bend: func(l []float32, _ situation) { l[7] += 4e-3 }},
			reasons: []string{"run 0: a logit is off by", "run 1: a logit is off by"},
		},
		{
			name: "noise within rounding's", rounded: true,
			backend: fakeBackend{bend: func(l []float32, _ situation) { l[7] += 0.5 }},
		},
		{
			name: "noise within rounding's, int8 cache", options: gate.Options{Cache: backends.CacheInt8},
			backend: fakeBackend{bend: func(l []float32, _ situation) { l[7] += 0.5 }},
		},
		{
			name: "noise within rounding's, half cache", options: gate.Options{Cache: backends.CacheHalf},
			backend: fakeBackend{bend: func(l []float32, _ situation) { l[7] += 0.5 }},
		},
		{
			name: "noise within rounding's, 16-bit activations", options: gate.Options{Activations: backends.Activations16},
			backend: fakeBackend{bend: func(l []float32, _ situation) { l[7] += 0.5 }},
		},
		{
			name: "noise above rounding's", rounded: true,
			backend: fakeBackend{bend: func(l []float32, _ situation) { l[7] += 0.7 }},
			reasons: []string{"run 0: a logit is off by", "run 1: a logit is off by"},
		},
		{
			name: "noise where only the reference rounds", rounded: true, options: gate.Options{Activations: backends.ActivationsFloat},
			backend: fakeBackend{bend: func(l []float32, _ situation) { l[7] += 0.7 }},
		},
		{
			name: "noise of an unsure model", rounded: true, unsure: true,
			backend: fakeBackend{bend: func(l []float32, _ situation) { l[7] += 5 }},
		},
		{
			name: "noise on all logits", rounded: true,
			backend: fakeBackend{bend: func(l []float32, _ situation) {
				for i := range l {
					l[i] += 0.2
				}
			}},
			reasons: []string{"run 0: the logits are off by 0.2", "run 1: the logits are off by 0.2"},
		},
		{
			name: "logits of something else", rounded: true, unsure: true,
			backend: fakeBackend{bend: func(l []float32, at situation) {
				if !strings.Contains(at.text(), "\n") { // not where tokens are compared
					slices.Reverse(l)
				}
			}},
			reasons: []string{"run 0: the logits are off by", "run 1: the logits are off by"},
		},
		{
			name: "another token", rounded: true,
			backend: fakeBackend{bend: anotherToken},
			// One answer of five may be missing.
			reasons: []string{"run 1: a token differs where the reference's margin is 8, above 1", "24 of 25 reference tokens are matched, at least 98.44 % must be"},
		},
		{
			name: "another token of an unsure model", rounded: true, unsure: true,
			backend: fakeBackend{bend: anotherToken},
		},
		{
			name: "another token below a margin of one's own", rounded: true, unsure: true, options: gate.Options{ForkMargin: 0.31},
			backend: fakeBackend{bend: anotherToken},
		},
		{
			name: "another token above a margin of one's own", rounded: true, unsure: true, options: gate.Options{ForkMargin: 0.29},
			backend: fakeBackend{bend: anotherToken},
			reasons: []string{"run 1: a token differs where the reference's margin is 0.3, above 0.29"},
		},
		{
			name: "another token of an unsure model without rounding", unsure: true,
			backend: fakeBackend{bend: anotherToken},
			reasons: []string{"run 1: a token differs where the reference's margin is 0.3, above 0.001"},
		},
		{
			name: "many other tokens", rounded: true, unsure: true,
			backend: fakeBackend{bend: func(l []float32, at situation) {
				if text := at.text(); strings.Contains(text, "\n") && text[len(text)-1]%2 == 0 {
					l['k'] += 20
				}
			}},
			reasons: []string{"10 of 25 reference tokens are matched, at least 62.5 % must be", "questions are answered exactly; the reference answers 5, and 1 fewer are allowed"},
		},
		{
			name: "two wrong answers",
			backend: fakeBackend{bend: func(l []float32, at situation) {
				if text := at.text(); strings.HasPrefix(text, "One?") || strings.HasPrefix(text, "Three?") {
					l['k'] += 20
				}
			}},
			reasons: []string{"3 of 5 questions are answered exactly"},
		},
		{
			name: "an answer that does not end",
			backend: fakeBackend{bend: func(l []float32, at situation) {
				if text := at.text(); strings.HasSuffix(text, "1") || strings.HasSuffix(text, "3") {
					l[' '] += 20
				}
			}},
			reasons: []string{"3 of 5 questions are answered exactly"},
		},
		{
			name: "not a number",
			backend: fakeBackend{bend: func(l []float32, at situation) {
				if strings.HasSuffix(at.text(), "sky blue?\nLight") {
					l[3] = float32(math.NaN())
				}
			}},
			reasons: []string{"run 0: logits are not finite at 1 positions", "run 0: a token differs", "all logits are finite: those after 26 tokens are not"},
		},
		{
			name: "infinite in a prompt",
			backend: fakeBackend{bend: func(l []float32, at situation) {
				if at.text() == "Why" {
					l[3] = float32(math.Inf(-1))
				}
			}},
			reasons: []string{"run 0: logits are not finite at 1 positions"},
		},
		{
			name:    "all the same",
			backend: fakeBackend{bend: func(l []float32, _ situation) { clear(l) }},
			reasons: []string{"run 0: a token differs", "run 0: a logit is off", "run 1: a token differs", "run 1: a logit is off", "0 of 5 questions", "logits differ from token to token"},
		},
		{
			name: "chunks differ",
			backend: fakeBackend{bend: func(l []float32, at situation) {
				if at.rows > 1 {
					l[9] = math.Nextafter32(l[9], 9)
				}
			}},
			reasons: []string{"the same logits in chunks and token by token: they differ at position 21", "the same logits after a rewind"},
		},
		{
			name: "wanting differs",
			backend: fakeBackend{bend: func(l []float32, at situation) {
				if at.rows > 1 && at.wanted == 1 {
					l[9] = math.Nextafter32(l[9], 9)
				}
			}},
			reasons: []string{"the same logits where only the last token wants them: they differ at position 20", "the same logits after a rewind"},
		},
		{
			name:    "rewinding forgets",
			backend: fakeBackend{forgetful: true},
			reasons: []string{"3 of 5 questions are answered exactly", "the same logits after a rewind"},
		},
		{
			name: "threads differ",
			backend: fakeBackend{bend: func(l []float32, at situation) {
				if at.threads == 1 {
					l[9] = math.Nextafter32(l[9], 9)
				}
			}},
			reasons: []string{"the same logits with another number of threads: they differ at position 0"},
		},
		{
			name: "kernels differ",
			backend: fakeBackend{plain: &fakeBackend{bend: func(l []float32, at situation) {
				if len(at.tokens) == 3 {
					l[9] = math.Nextafter32(l[9], 9)
				}
			}}},
			reasons: []string{"the same logits with the plain kernels: they differ at position 2"},
		},
		{
			name:    "a tokenizer that loses spaces",
			text:    fakeText{lossy: true},
			change:  func(r *gate.Request) { r.Reference.Questions = nil },
			reasons: []string{`the tokenizer gives its text back: "Why is the sky blue?" comes back as "Whyistheskyblue?"`},
		},
		{
			name: "a continuation that is no text",
			backend: fakeBackend{bend: func(l []float32, at situation) {
				if strings.HasPrefix(at.text(), "Explain photosynthesis in one sentence.\n") {
					l[0xff] += 20
				}
			}},
			reasons: []string{"a continuation is valid text"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := fakeRequest()
			req.Program, req.Backend, req.Text, req.Options = fakeProgram(tc.rounded), &tc.backend, tc.text, tc.options
			if tc.unsure {
				for _, run := range req.Reference.Runs {
					for i := range run.Margin {
						run.Margin[i] = 0.3
					}
				}
			}
			if tc.change != nil {
				tc.change(&req)
			}
			report, err := gate.Run(t.Context(), req)
			if report == nil {
				t.Fatal(err)
			}
			if report.Pass != (len(tc.reasons) == 0) || report.Pass != (err == nil) {
				t.Errorf("pass %t with error %v, want reasons %q", report.Pass, err, tc.reasons)
			}
			for i, reason := range report.Failures {
				if i >= len(tc.reasons) || !strings.Contains(reason, tc.reasons[i]) {
					t.Errorf("reason %d is %q", i, reason)
				}
			}
			if len(report.Failures) < len(tc.reasons) {
				t.Errorf("reasons %q, want %q", report.Failures, tc.reasons)
			}
			if err == nil {
				return
			}
			var failed *gate.FailedError
			if !errors.As(err, &failed) || failed.Report != report || !errors.Is(err, fault.ErrGateFailed) || fault.Hint(err) == "" {
				t.Errorf("error %v: not a FailedError with a hint", err)
			}
		})
	}
}

// anotherToken makes the fake model say "Park" of France.
func anotherToken(logits []float32, at situation) {
	if strings.HasSuffix(at.text(), "France?\nPar") {
		logits['k'] += 20
	}
}

// TestReport checks the figures of a run with known faults.
func TestReport(t *testing.T) {
	req := fakeRequest()
	req.Program = fakeProgram(true)
	req.Options.Zoo = "9.9.9"
	req.Backend = &fakeBackend{bend: func(l []float32, at situation) {
		switch text := at.text(); {
		case strings.HasSuffix(text, "France?\nPar"), strings.HasPrefix(text, "One?\n"):
			l['k'] += 20
		case text == "Why":
			l[3] -= 0.5
		}
	}}
	req.Reference.Questions[0].Reference = "k"
	// The margins that the reference gives decide, not those that the pack finds.
	for _, run := range req.Reference.Runs {
		for i := range run.Margin {
			run.Margin[i] = 0.5
		}
	}
	req.Reference.Runs[1].Margin[3] = 0.25
	report, err := gate.Run(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	rel := *report.Runs[0].RelL2
	if rel < 1e-4 || rel > 1e-2 {
		t.Errorf("relative error %g, want one of a thousandth or so", rel)
	}
	want := map[string]any{
		"pass":    true,
		"pack":    fakePack{}.Digest().String(),
		"backend": "fake",
		"runs": []any{
			map[string]any{"prompt_tokens": 21.0, "matched": 15.0, "of": 15.0, "fork_margin": nil, "max_abs_logit_error": 0.5, "rel_l2": rel},
			map[string]any{"prompt_tokens": 31.0, "matched": 9.0, "of": 10.0, "fork_margin": 0.25, "max_abs_logit_error": 0.0, "rel_l2": 0.0},
		},
		"score": map[string]any{"right": 3.0, "of": 5.0}, // the run with the fork is one of the questions, too
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })); diff != "" {
		t.Errorf("json (-want +got):\n%s", diff)
	}
	wantMisses := []gate.Miss{
		{Question: req.Reference.Questions[0], Got: "k"},
		{Question: req.Reference.Questions[4], Got: "Park"},
	}
	if diff := cmp.Diff(wantMisses, report.Misses); diff != "" {
		t.Errorf("misses (-want +got):\n%s", diff)
	}
	wantForks := []gate.Fork{{Step: 3, Want: 'i', Got: 'k', WantText: "i", GotText: "k", Margin: 0.25}}
	if diff := cmp.Diff(wantForks, report.Runs[1].Forks); diff != "" {
		t.Errorf("forks (-want +got):\n%s", diff)
	}

	receipt := report.Receipt()
	if receipt.Time.IsZero() {
		t.Error("the receipt has no time")
	}
	receipt.Time = report.Time
	if diff := cmp.Diff(zoo.Receipt{
		Pack: fakePack{}.Digest(), Plugin: req.Plugin, Backend: "fake", Kernels: "fake <kernels>",
		Activations: "static", Cache: "float", Level: zoo.LevelOracle, Passed: true,
		Runs: 2, Matched: 24, Of: 25, SmallestMargin: new(0.25), ForkMargin: new(0.25), MaxLogitError: new(0.5),
		Score: &zoo.Score{Right: 3, Of: 5}, Time: report.Time, Zoo: "9.9.9",
	}, receipt, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}
}

// TestWithoutReference runs what can be run without reference values.
func TestWithoutReference(t *testing.T) {
	for name, reference := range map[string]*zoo.Reference{"none": nil, "prompts": {Prompts: []string{"One?", "Two?", "Three?", "Four?"}}} {
		t.Run(name, func(t *testing.T) {
			req := fakeRequest()
			req.Reference = reference
			report, err := gate.Run(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(report)
			if err != nil {
				t.Fatal(err)
			}
			want := `{"pass":true,"pack":"` + fakePack{}.Digest().String() + `","backend":"fake","runs":[],"score":null}`
			if string(text) != want {
				t.Errorf("got %s, want %s", text, want)
			}
			if r := report.Receipt(); r.Level != zoo.LevelSelf || !r.Passed || r.ForkMargin != nil || r.MaxLogitError != nil || r.SmallestMargin != nil {
				t.Errorf("receipt %+v", r)
			}
			if len(report.Checks) == 0 {
				t.Error("nothing was checked")
			}
		})
	}
}

func TestFailedReceipt(t *testing.T) {
	req := fakeRequest()
	req.Backend = &fakeBackend{bend: func(l []float32, _ situation) { clear(l) }}
	report, err := gate.Run(t.Context(), req)
	if !errors.Is(err, fault.ErrGateFailed) {
		t.Fatal(err)
	}
	if r := report.Receipt(); r.Passed || !strings.Contains(r.Reason, "run 0: a token differs") {
		t.Errorf("receipt %+v", r)
	}
	if msg := err.Error(); !strings.Contains(msg, fakePack{}.Digest().String()) || !strings.HasSuffix(msg, "; and 3 more") {
		t.Errorf("error %q names neither the pack nor how many reasons there are", msg)
	}
}

func TestQuestionStep(t *testing.T) {
	for _, tc := range []struct{ step, of int }{{0, 5}, {1, 5}, {2, 3}, {4, 2}, {5, 1}, {100, 1}} {
		req := fakeRequest()
		req.Options.QuestionStep = tc.step
		type call struct {
			stage       string
			done, total int
		}
		var calls []call
		req.Options.Progress = func(stage string, done, total int) { calls = append(calls, call{stage, done, total}) }
		report, err := gate.Run(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if want := (zoo.Score{Right: tc.of, Of: tc.of}); *report.Score != want {
			t.Errorf("step %d: score %+v, want %+v", tc.step, *report.Score, want)
		}
		if report.ReferenceRight != tc.of || report.Questions != 5 {
			t.Errorf("step %d: the reference has %d right of %d questions", tc.step, report.ReferenceRight, report.Questions)
		}
		for i, c := range calls {
			if c.done > c.total || i > 0 && c.stage == calls[i-1].stage && c.done < calls[i-1].done {
				t.Errorf("step %d: progress %+v", tc.step, calls)
			}
			if last := i == len(calls)-1 || calls[i+1].stage != c.stage; last && c.done != c.total {
				t.Errorf("step %d: stage %q ends at %d of %d", tc.step, c.stage, c.done, c.total)
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	nan := float32(math.NaN())
	run := func(change func(r *zoo.ReferenceRun)) func(*gate.Request) {
		return func(req *gate.Request) { change(&req.Reference.Runs[1]) }
	}
	for _, tc := range []struct {
		name   string
		change func(*gate.Request)
		want   error
	}{
		{"no pack", func(r *gate.Request) { r.Pack = nil }, fault.ErrUsage},
		{"no program", func(r *gate.Request) { r.Program = nil }, fault.ErrUsage},
		{"no backend", func(r *gate.Request) { r.Backend = nil }, fault.ErrUsage},
		{"no text", func(r *gate.Request) { r.Text = nil }, fault.ErrUsage},
		{"negative fork margin", func(r *gate.Request) { r.Options.ForkMargin = -1 }, fault.ErrUsage},
		{"fork margin not a number", func(r *gate.Request) { r.Options.ForkMargin = math.NaN() }, fault.ErrUsage},
		{"negative step", func(r *gate.Request) { r.Options.QuestionStep = -1 }, fault.ErrUsage},
		{"empty prompt", run(func(r *zoo.ReferenceRun) { r.Prompt, r.PromptLogits = nil, nil }), fault.ErrIntegrity},
		{"nothing to compare", run(func(r *zoo.ReferenceRun) { r.Greedy, r.Margin = nil, nil }), fault.ErrIntegrity},
		{"too long", run(func(r *zoo.ReferenceRun) { r.Greedy, r.Margin = make([]int32, 980), make([]float32, 980) }), fault.ErrIntegrity},
		{"margins missing", run(func(r *zoo.ReferenceRun) { r.Margin = r.Margin[1:] }), fault.ErrIntegrity},
		{"margin negative", run(func(r *zoo.ReferenceRun) { r.Margin[2] = -1 }), fault.ErrIntegrity},
		{"margin not a number", run(func(r *zoo.ReferenceRun) { r.Margin[2] = nan }), fault.ErrIntegrity},
		{"prompt token too large", run(func(r *zoo.ReferenceRun) { r.Prompt[2] = fakeVocab }), fault.ErrIntegrity},
		{"prompt token negative", run(func(r *zoo.ReferenceRun) { r.Prompt[2] = -1 }), fault.ErrIntegrity},
		{"token too large", run(func(r *zoo.ReferenceRun) { r.Greedy[2] = fakeVocab }), fault.ErrIntegrity},
		{"token negative", run(func(r *zoo.ReferenceRun) { r.Greedy[2] = -1 }), fault.ErrIntegrity},
		{"too few positions", run(func(r *zoo.ReferenceRun) { r.PromptLogits = r.PromptLogits[1:] }), fault.ErrIntegrity},
		{"too few prompt logits", run(func(r *zoo.ReferenceRun) { r.PromptLogits[3] = r.PromptLogits[3][1:] }), fault.ErrIntegrity},
		{"too few last logits", run(func(r *zoo.ReferenceRun) { r.LastLogits = r.LastLogits[1:] }), fault.ErrIntegrity},
		{"reference logits not numbers", run(func(r *zoo.ReferenceRun) { r.LastLogits[5] = nan }), fault.ErrIntegrity},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := fakeRequest()
			tc.change(&req)
			if report, err := gate.Run(t.Context(), req); report != nil || !errors.Is(err, tc.want) {
				t.Errorf("report %v, error %v, want %v", report, err, tc.want)
			}
		})
	}
}

// TestAbandoned ends a gate in each of its stages, from outside and by the backend.
func TestAbandoned(t *testing.T) {
	lost, stopped := errors.New("device lost"), errors.New("stopped")
	for stage, text := range map[string]string{
		"reference runs": "Why is the sky blue?\nLi",
		"questions":      "One?\n",
		"self checks":    "Explain photo",
	} {
		t.Run(stage, func(t *testing.T) {
			req := fakeRequest()
			req.Backend = &fakeBackend{fail: func(t string) error {
				if t == text {
					return lost
				}
				return nil
			}}
			if report, err := gate.Run(t.Context(), req); report != nil || !errors.Is(err, lost) {
				t.Errorf("report %v, error %v, want %v", report, err, lost)
			}

			ctx, cancel := context.WithCancelCause(t.Context())
			req = fakeRequest()
			req.Options.Progress = func(s string, _, _ int) {
				if s == stage {
					cancel(stopped)
				}
			}
			if report, err := gate.Run(ctx, req); report != nil || !errors.Is(err, stopped) {
				t.Errorf("report %v, error %v, want %v", report, err, stopped)
			}
		})
	}
}

func TestHTML(t *testing.T) {
	req := fakeRequest()
	req.Reference.Questions[0].Expected = `1 <script>alert("x")</script>`
	req.Backend = &fakeBackend{bend: anotherToken}
	report, err := gate.Run(t.Context(), req)
	if !errors.Is(err, fault.ErrGateFailed) {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := report.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, want := range []string{
		"<title>Gate failed: " + fakePack{}.Digest().String(), "fakes 1.2.3", "fake &lt;kernels&gt;", "Why it failed",
		"a token differs where the reference&#39;s margin is 8", "9 of 10", "3 of 5 questions",
		`class="grave" title="token 4: &#34;k&#34; (107) instead of &#34;i&#34; (105), margin 8"`,
		"1 &lt;script&gt;", "Checks without a reference",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, bad := range []string{"<script", "http://", "https://", "src=", "ZgotmplZ", "%!"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if strings.Count(text, `<i title=`)+strings.Count(text, `<i class=`) != 25 {
		t.Error("the page does not have a cell for each of 25 tokens")
	}

	broken := errors.New("disk full")
	if err := report.WriteHTML(failingWriter{broken}); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}

// failingWriter refuses every byte.
type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
