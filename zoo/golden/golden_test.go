package golden_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/golden"
)

// model is what the values of these tests belong to.
var model = golden.Model{Vocab: 10, TokenLimit: 10, Context: 8}

// values are reference values as they are written: "" and nil stand for a file that is missing.
type values struct {
	runs, questions string
	// tensors are their shapes, and from the number that they count up from.
	tensors map[string][]int
	from    float32
}

// write writes the values into dir.
func (v values) write(dir string) error {
	files := map[string]string{"golden.json": v.runs, "questions.jsonl": v.questions}
	if v.tensors != nil {
		var specs []checkpoint.Spec
		for name, shape := range v.tensors {
			specs = append(specs, checkpoint.Spec{Name: name, DType: checkpoint.F32, Shape: shape})
		}
		layout, err := checkpoint.NewLayout(specs, checkpoint.LayoutOptions{})
		if err != nil {
			return err
		}
		var out bytes.Buffer
		w, err := checkpoint.NewWriter(&out, layout)
		if err != nil {
			return err
		}
		for _, p := range layout.Tensors() {
			var data []byte
			for i := range p.SizeBytes / 4 {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v.from+float32(i)))
			}
			if err := w.WriteTensor(p.Name, func(w io.Writer) error { _, err := w.Write(data); return err }); err != nil {
				return err
			}
		}
		if err := w.Close(); err != nil {
			return err
		}
		files["golden.safetensors"] = out.String()
	}
	for name, content := range files {
		if content == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// read writes the values and reads them back.
func read(t *testing.T, v values) (*zoo.Reference, error) {
	t.Helper()
	dir := t.TempDir()
	if err := v.write(dir); err != nil {
		t.Fatal(err)
	}
	return golden.Read(t.Context(), dir, model)
}

func ExampleRead() {
	dir, err := os.MkdirTemp("", "golden")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	v := values{runs: `{"runs":[{"prompt":[2,9],"greedy":[5,6,7],"margin":[0.5,2,1.25]}]}`, tensors: map[string][]int{"last_logits.0": {10}}}
	if err := v.write(dir); err != nil {
		log.Fatal(err)
	}
	ref, err := golden.Read(context.Background(), dir, golden.Model{Vocab: 10, TokenLimit: 10, Context: 64})
	if err != nil {
		log.Fatal(err)
	}
	run := ref.Runs[0]
	fmt.Println(run.Prompt, run.Greedy, run.Margin, run.LastLogits)
	// Output: [2 9] [5 6 7] [0.5 2 1.25] [0 1 2 3 4 5 6 7 8 9]
}

// goodRuns are two runs that the model can have.
const goodRuns = `{"runs":[{"prompt":[2,5],"greedy":[7],"margin":[0.5]},{"prompt":[1],"greedy":[9,0],"margin":[0,3]}]}`

// TestRead reads values of every kind, and none but the runs.
func TestRead(t *testing.T) {
	t.Parallel()
	runs := []zoo.ReferenceRun{{Prompt: []int32{2, 5}, Greedy: []int32{7}, Margin: []float32{0.5}}, {Prompt: []int32{1}, Greedy: []int32{9, 0}, Margin: []float32{0, 3}}}
	count := func(from, n int) (row []float32) {
		for i := range n {
			row = append(row, float32(from+i))
		}
		return row
	}
	all := slices.Clone(runs)
	all[0].PromptLogits, all[0].LastLogits = [][]float32{count(100, 10), count(110, 10)}, count(100, 10)
	all[1].LastLogits = count(100, 10)
	for name, c := range map[string]struct {
		values values
		want   zoo.Reference
	}{
		"no logits": {values{runs: goodRuns, tensors: map[string][]int{}}, zoo.Reference{Runs: runs}},
		"logits": {values{runs: goodRuns, from: 100, tensors: map[string][]int{"logits.0": {2, 10}, "last_logits.0": {10}, "last_logits.1": {10}, "hidden.1": {3, 1, 4}}},
			zoo.Reference{Runs: all}},
		"questions": {values{runs: goodRuns, tensors: map[string][]int{}, questions: "{\"question\":\"a\",\"expected\":\"b\",\"reference\":\"c\"}\n\n {\"question\":\"d\",\"expected\":\"e\",\"other\":1}"},
			zoo.Reference{Runs: runs, Questions: []zoo.Question{{Question: "a", Expected: "b", Reference: "c"}, {Question: "d", Expected: "e"}}}},
	} {
		got, err := read(t, c.values)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(&c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestRefused reads values that belong to another model, or to none.
func TestRefused(t *testing.T) {
	t.Parallel()
	run := func(prompt, greedy, margin string) values {
		return values{runs: fmt.Sprintf(`{"runs":[{"prompt":%s,"greedy":%s,"margin":%s}]}`, prompt, greedy, margin)}
	}
	tensor := func(name string, shape ...int) values {
		return values{runs: goodRuns, tensors: map[string][]int{name: shape}}
	}
	questions := func(text string) values {
		return values{runs: goodRuns, tensors: map[string][]int{}, questions: text}
	}
	noNumbers := tensor("last_logits.0", 10)
	noNumbers.from = float32(math.NaN())
	for _, c := range []struct {
		name   string
		values values
		kind   error
		text   string
	}{
		{"an empty folder", values{}, zoo.ErrNotFound, "golden.json"},
		{"no runs file", values{tensors: map[string][]int{}}, zoo.ErrNotFound, "golden.json"},
		{"no logits file", values{runs: goodRuns}, zoo.ErrNotFound, "golden.safetensors"},
		{"not JSON", values{runs: "{"}, zoo.ErrIntegrity, "JSON"},
		{"no runs", values{runs: `{"runs":[]}`}, zoo.ErrIntegrity, "no runs"},
		{"too many runs", values{runs: `{"runs":[` + strings.Repeat("{},", 5000) + `{}]}`}, zoo.ErrIntegrity, "at most"},
		{"no prompt", run("[]", "[1]", "[1]"), zoo.ErrIntegrity, "no prompt"},
		{"no tokens", run("[1]", "[]", "[]"), zoo.ErrIntegrity, "no greedy"},
		{"no margin", run("[1]", "[1]", "[]"), zoo.ErrIntegrity, "0 margins"},
		{"fewer margins", run("[1]", "[1,2]", "[1]"), zoo.ErrIntegrity, "1 margins for 2"},
		{"unknown token", run("[1]", "[10]", "[1]"), zoo.ErrIntegrity, "token 10"},
		{"unknown token in a prompt", run("[10]", "[1]", "[1]"), zoo.ErrIntegrity, "token 10"},
		{"negative token", run("[1]", "[-1]", "[1]"), zoo.ErrIntegrity, "token -1"},
		{"token beyond int32", run("[4294967298]", "[1]", "[1]"), zoo.ErrIntegrity, "JSON"},
		{"negative margin", run("[1]", "[1]", "[-1]"), zoo.ErrIntegrity, "margin -1"},
		{"margin beyond float32", run("[1]", "[1]", "[1e39]"), zoo.ErrIntegrity, "JSON"},
		{"too long", run("[1,1,1,1,1,1,1]", "[1,1]", "[1,1]"), zoo.ErrIntegrity, "9 tokens, the model's context 8"},
		{"logits of fewer positions", tensor("logits.0", 1, 10), zoo.ErrIntegrity, "logits.0"},
		{"logits of another vocabulary", tensor("logits.0", 2, 9), zoo.ErrIntegrity, "logits.0"},
		{"last logits of two positions", tensor("last_logits.0", 1, 10), zoo.ErrIntegrity, "last_logits.0"},
		{"logits that are no numbers", noNumbers, zoo.ErrIntegrity, "NaN"},
		{"logits under another name", tensor("last_logit.0", 10), zoo.ErrIntegrity, `"last_logit.0" belongs to none of the 2 runs`},
		{"logits of no run", tensor("logits.2", 1, 10), zoo.ErrIntegrity, `"logits.2"`},
		{"hidden states of no run", tensor("hidden.2", 1, 10), zoo.ErrIntegrity, `"hidden.2"`},
		{"questions not JSON", questions("{}x"), zoo.ErrIntegrity, "line 1"},
		{"question missing", questions("\n{\"expected\":\"a\"}"), zoo.ErrIntegrity, "line 2"},
		{"answer missing", questions(`{"question":"a"}`), zoo.ErrIntegrity, "missing"},
		{"endless line", questions(strings.Repeat(" ", 1<<20+10)), zoo.ErrIntegrity, "longer than"},
	} {
		_, err := read(t, c.values)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || zoo.Hint(err) == "" {
			t.Errorf("%s: %v (%s)", c.name, err, zoo.Hint(err))
		}
	}
	if _, err := golden.Read(t.Context(), filepath.Join(t.TempDir(), "none"), model); !errors.Is(err, zoo.ErrNotFound) || !strings.Contains(err.Error(), "none") {
		t.Errorf("no folder: %v", err)
	}
	t.Run("truncated logits", func(t *testing.T) {
		dir := t.TempDir()
		if err := tensor("last_logits.0", 10).write(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, "golden.safetensors"), 70); err != nil {
			t.Fatal(err)
		}
		if _, err := golden.Read(t.Context(), dir, model); !errors.Is(err, zoo.ErrIntegrity) {
			t.Errorf("%v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		dir := t.TempDir()
		if err := tensor("last_logits.0", 10).write(dir); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := golden.Read(ctx, dir, model); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}
