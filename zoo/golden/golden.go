// Package golden reads the reference values that a gate holds a pack against: token
// sequences of a reference implementation with their margins and logits, and questions
// with their answers. Every family of models can have them in the same form:
//
//   - golden.json: {"runs": [{"prompt": [ids], "greedy": [ids], "margin": [numbers]}]},
//   - golden.safetensors: "logits.N", those after each token of the prompt of run N, and
//     "last_logits.N", those after its last greedy token, in float32. A run may have neither,
//     but the file must be there: one that was lost would go unnoticed. "hidden.N" may lie
//     there for a family's own tests, and nothing else,
//   - questions.jsonl, which may be missing: an object a line with "question", "expected" and
//     "reference".
package golden

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// Names of the files with reference values.
const (
	goldenFile    = "golden.json"
	goldenTensors = "golden.safetensors"
	questionsFile = "questions.jsonl"
)

// Bounds of reference values.
const (
	maxRuns          = 4096
	maxQuestions     = 1 << 20
	maxQuestionBytes = 1 << 20
)

// Model is what reference values are checked against.
type Model struct {
	// Vocab is the number of logits.
	Vocab int
	// TokenLimit is one more than the largest token id that may be fed.
	TokenLimit int
	// Context is the largest number of positions.
	Context int
}

// ReferenceError reports reference values that are malformed or belong to another
// model. It matches fault.ErrIntegrity.
type ReferenceError struct {
	// File is the file with the values.
	File string
	// Problem says what is wrong.
	Problem string
	// Err is the cause, or nil.
	Err error
}

// Error names the file and the problem.
func (e *ReferenceError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.File, e.Problem, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.File, e.Problem)
}

// Unwrap returns the cause, if any.
func (e *ReferenceError) Unwrap() error { return e.Err }

// Is reports whether target is fault.ErrIntegrity.
func (e *ReferenceError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says which values are needed.
func (e *ReferenceError) Hint() string {
	return "give the folder with the reference values of this very model, or none to check the pack against itself"
}

// Read returns the reference values in a folder: the runs of golden.json with the logits of
// golden.safetensors, and the questions of questions.jsonl if there are any. All ids and
// sizes are checked against the model. Errors are *ReferenceError and those of package checkpoint.
func Read(ctx context.Context, dir string, model Model) (*zoo.Reference, error) {
	ref := &zoo.Reference{}
	if err := readRuns(ref, dir, model); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := readLogits(ctx, ref, dir, model); err != nil {
		return nil, err
	}
	text, err := checkpoint.ReadFile(dir, questionsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return ref, nil
	}
	if err != nil {
		return nil, err
	}
	ref.Questions, err = parseQuestions(text)
	return ref, err
}

// readRuns reads golden.json.
func readRuns(ref *zoo.Reference, dir string, model Model) error {
	data, err := checkpoint.ReadFile(dir, goldenFile)
	if err != nil {
		return err
	}
	var golden struct {
		Runs []struct {
			Prompt []int32   `json:"prompt"`
			Greedy []int32   `json:"greedy"`
			Margin []float32 `json:"margin"`
		} `json:"runs"`
	}
	bad := func(format string, args ...any) error {
		return &ReferenceError{File: goldenFile, Problem: fmt.Sprintf(format, args...)}
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		return &ReferenceError{File: goldenFile, Problem: "not the JSON it should be", Err: err}
	}
	switch {
	case len(golden.Runs) == 0:
		return bad("no runs")
	case len(golden.Runs) > maxRuns:
		return bad("%d runs, at most %d are allowed", len(golden.Runs), maxRuns)
	}
	for i, run := range golden.Runs {
		switch {
		case len(run.Prompt) == 0:
			return bad("run %d has no prompt", i)
		case len(run.Greedy) == 0:
			return bad("run %d has no greedy tokens", i)
		case len(run.Margin) != len(run.Greedy):
			return bad("run %d has %d margins for %d greedy tokens", i, len(run.Margin), len(run.Greedy))
		case len(run.Prompt)+len(run.Greedy) > model.Context:
			return bad("run %d has %d tokens, the model's context %d", i, len(run.Prompt)+len(run.Greedy), model.Context)
		}
		for _, ids := range [][]int32{run.Prompt, run.Greedy} {
			for _, id := range ids {
				if id < 0 || int(id) >= model.TokenLimit {
					return bad("run %d has token %d, the model knows 0 to %d", i, id, model.TokenLimit-1)
				}
			}
		}
		for _, m := range run.Margin {
			if !(m >= 0) || math.IsInf(float64(m), 0) {
				return bad("run %d has the margin %v", i, m)
			}
		}
		ref.Runs = append(ref.Runs, zoo.ReferenceRun{Prompt: run.Prompt, Greedy: run.Greedy, Margin: run.Margin})
	}
	return nil
}

// readLogits reads golden.safetensors.
func readLogits(ctx context.Context, ref *zoo.Reference, dir string, model Model) error {
	c, err := checkpoint.OpenFile(dir, goldenTensors)
	if err != nil {
		return err
	}
	defer c.Close()
	known := map[string]bool{}
	read := func(name string, rows int) ([][]float32, error) {
		known[name] = true
		t, ok := c.Tensor(name)
		if !ok {
			return nil, nil
		}
		vocab := model.Vocab
		want := []int{rows, vocab}
		if rows == 0 {
			want = []int{vocab}
		}
		if got, want := checkpoint.Describe(t.DType, t.Shape), checkpoint.Describe(checkpoint.F32, want); got != want {
			return nil, &ReferenceError{File: goldenTensors, Problem: fmt.Sprintf("tensor %q is %s, the run and the model need %s", name, got, want)}
		}
		all, err := t.Floats()
		if err != nil {
			return nil, &ReferenceError{File: goldenTensors, Problem: "not reference values", Err: err}
		}
		out := make([][]float32, max(rows, 1))
		for r := range out {
			out[r] = all[r*vocab : (r+1)*vocab : (r+1)*vocab]
		}
		return out, context.Cause(ctx)
	}
	for i := range ref.Runs {
		run := &ref.Runs[i]
		if run.PromptLogits, err = read(fmt.Sprintf("logits.%d", i), len(run.Prompt)); err != nil {
			return err
		}
		last, err := read(fmt.Sprintf("last_logits.%d", i), 0)
		if err != nil {
			return err
		}
		if last != nil {
			run.LastLogits = last[0]
		}
		known[fmt.Sprintf("hidden.%d", i)] = true
	}
	for _, name := range c.Names() {
		if !known[name] {
			return &ReferenceError{File: goldenTensors, Problem: fmt.Sprintf("tensor %.200q belongs to none of the %d runs", name, len(ref.Runs))}
		}
	}
	return nil
}

// parseQuestions reads questions.jsonl: an object a line.
func parseQuestions(text []byte) ([]zoo.Question, error) {
	bad := func(line int, err error, problem string) error {
		return &ReferenceError{File: questionsFile, Problem: fmt.Sprintf("line %d: %s", line, problem), Err: err}
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxQuestionBytes)
	var questions []zoo.Question
	n := 0
	for lines.Scan() {
		n++
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var q zoo.Question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return nil, bad(n, err, "not the JSON it should be")
		}
		switch {
		case q.Question == "" || q.Expected == "":
			return nil, bad(n, nil, "question or expected is missing")
		case len(questions) == maxQuestions:
			return nil, bad(n, nil, fmt.Sprintf("more than %d questions", maxQuestions))
		}
		questions = append(questions, q)
	}
	if err := lines.Err(); err != nil {
		return nil, bad(n+1, err, fmt.Sprintf("longer than %d bytes", maxQuestionBytes))
	}
	return questions, nil
}
