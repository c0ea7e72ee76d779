package gemma4_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/zoo"
)

// gate reads reference values for a model of e2b-tiny's configuration.
func gate(t *testing.T, dir string) (*zoo.Reference, error) {
	t.Helper()
	return gemma4.Gate(t.Context(), zoo.GateRequest{Pack: zoo.PackInfo{Config: tinyConfig(t, nil)}, Dir: dir})
}

func TestGate(t *testing.T) {
	ref, err := gate(t, filepath.Join("testdata", "e2b-tiny"))
	if err != nil {
		t.Fatal(err)
	}
	if len(ref.Runs) != 4 || len(ref.Prompts) != 3 || ref.Questions != nil {
		t.Fatalf("%d runs, %d prompts, %d questions", len(ref.Runs), len(ref.Prompts), len(ref.Questions))
	}
	first := ref.Runs[0]
	if diff := cmp.Diff([]int32{2, 1121, 204, 1089, 1079, 1022, 653}, first.Prompt); diff != "" {
		t.Errorf("prompt (-want +got):\n%s", diff)
	}
	if len(first.Greedy) != 40 || first.Greedy[0] != 349 || first.Margin[0] != 0.045129 {
		t.Errorf("greedy %v, margin %v", first.Greedy, first.Margin)
	}
	for i, run := range ref.Runs {
		if len(run.PromptLogits) != len(run.Prompt) || len(run.LastLogits) != 2048 {
			t.Errorf("run %d has logits of %d positions and %d last ones", i, len(run.PromptLogits), len(run.LastLogits))
			continue
		}
		// The first greedy token is the most likely one after the prompt, by its margin.
		best, second := -1, float32(math.Inf(-1))
		last := run.PromptLogits[len(run.Prompt)-1]
		for id, x := range last {
			switch {
			case best < 0 || x > last[best]:
				if best >= 0 {
					second = last[best]
				}
				best = id
			case x > second:
				second = x
			}
		}
		if int32(best) != run.Greedy[0] || math.Abs(float64(last[best]-second-run.Margin[0])) > 1e-5 {
			t.Errorf("run %d: the logits give token %d by %v, greedy says %d by %v", i, best, last[best]-second, run.Greedy[0], run.Margin[0])
		}
	}
}

func TestGateWithoutFolder(t *testing.T) {
	ref, err := gate(t, "")
	if err != nil {
		t.Fatal(err)
	}
	want := &zoo.Reference{Prompts: []string{"Why is the sky blue?", "What is the capital of France?", "Explain photosynthesis in one sentence."}}
	if diff := cmp.Diff(want, ref); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// golden writes reference values: golden.json, tensors of these shapes filled with
// x, and questions unless they are "".
func writeGolden(t *testing.T, runs string, x float32, tensors map[string][]int, questions string) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, data string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if runs != "" {
		put("golden.json", runs)
	}
	if questions != "" {
		put("questions.jsonl", questions)
	}
	var specs []checkpoint.Spec
	for name, shape := range tensors {
		specs = append(specs, checkpoint.Spec{Name: name, DType: checkpoint.F32, Shape: shape})
	}
	l, err := checkpoint.NewLayout(specs, checkpoint.LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	w, err := checkpoint.NewWriter(&out, l)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range l.Tensors() {
		err := w.WriteTensor(p.Name, func(w io.Writer) error {
			data := make([]byte, 0, p.SizeBytes)
			for range p.SizeBytes / 4 {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
			}
			_, err := w.Write(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if tensors != nil {
		put("golden.safetensors", out.String())
	}
	return dir
}

const goodRuns = `{"runs":[{"prompt":[2,5],"greedy":[7],"margin":[0.5]}]}`

func TestGateQuestions(t *testing.T) {
	none := map[string][]int{}
	ref, err := gate(t, writeGolden(t, goodRuns, 0, none, "{\"question\":\"a\",\"expected\":\"b\",\"reference\":\"c\"}\n\n {\"question\":\"d\",\"expected\":\"e\",\"other\":1}"))
	if err != nil {
		t.Fatal(err)
	}
	want := []zoo.Question{{Question: "a", Expected: "b", Reference: "c"}, {Question: "d", Expected: "e"}}
	if diff := cmp.Diff(want, ref.Questions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if ref.Runs[0].PromptLogits != nil || ref.Runs[0].LastLogits != nil {
		t.Error("logits from nowhere")
	}
}

func TestGateRefused(t *testing.T) {
	none := map[string][]int{}
	run := func(prompt, greedy, margin string) string {
		return fmt.Sprintf(`{"runs":[{"prompt":%s,"greedy":%s,"margin":%s}]}`, prompt, greedy, margin)
	}
	cases := []struct {
		name string
		dir  string
		kind error
		want string
	}{
		{"no folder", filepath.Join(t.TempDir(), "none"), fault.ErrNotFound, "none"},
		{"no runs file", writeGolden(t, "", 0, none, ""), fault.ErrNotFound, "golden.json"},
		{"no logits file", writeGolden(t, goodRuns, 0, nil, ""), fault.ErrNotFound, "golden.safetensors"},
		{"not JSON", writeGolden(t, "{", 0, none, ""), fault.ErrIntegrity, "JSON"},
		{"no runs", writeGolden(t, `{"runs":[]}`, 0, none, ""), fault.ErrIntegrity, "no runs"},
		{"too many runs", writeGolden(t, `{"runs":[`+strings.Repeat("{},", 5000)+`{}]}`, 0, none, ""), fault.ErrIntegrity, "at most"},
		{"no prompt", writeGolden(t, run("[]", "[1]", "[1]"), 0, none, ""), fault.ErrIntegrity, "no prompt"},
		{"no tokens", writeGolden(t, run("[1]", "[]", "[]"), 0, none, ""), fault.ErrIntegrity, "no greedy"},
		{"fewer margins", writeGolden(t, run("[1]", "[1,2]", "[1]"), 0, none, ""), fault.ErrIntegrity, "1 margins for 2"},
		{"beyond the vocabulary", writeGolden(t, run("[2048]", "[1]", "[1]"), 0, none, ""), fault.ErrIntegrity, "token 2048"},
		{"negative token", writeGolden(t, run("[1]", "[-1]", "[1]"), 0, none, ""), fault.ErrIntegrity, "token -1"},
		{"token beyond int32", writeGolden(t, run("[4294967298]", "[1]", "[1]"), 0, none, ""), fault.ErrIntegrity, "JSON"},
		{"negative margin", writeGolden(t, run("[1]", "[1]", "[-1]"), 0, none, ""), fault.ErrIntegrity, "margin -1"},
		{"margin beyond float32", writeGolden(t, run("[1]", "[1]", "[1e39]"), 0, none, ""), fault.ErrIntegrity, "JSON"},
		{"beyond the context", writeGolden(t, run("["+strings.Repeat("1,", 511)+"1]", "[1]", "[1]"), 0, none, ""), fault.ErrIntegrity, "513 tokens"},
		{"logits of fewer positions", writeGolden(t, goodRuns, 0, map[string][]int{"logits.0": {1, 2048}}, ""), fault.ErrIntegrity, "logits.0"},
		{"logits of another vocabulary", writeGolden(t, goodRuns, 0, map[string][]int{"logits.0": {2, 100}}, ""), fault.ErrIntegrity, "logits.0"},
		{"last logits of two positions", writeGolden(t, goodRuns, 0, map[string][]int{"last_logits.0": {1, 2048}}, ""), fault.ErrIntegrity, "last_logits.0"},
		{"logits that are no numbers", writeGolden(t, goodRuns, float32(math.NaN()), map[string][]int{"last_logits.0": {2048}}, ""), fault.ErrIntegrity, "NaN"},
		{"questions not JSON", writeGolden(t, goodRuns, 0, none, "{}x"), fault.ErrIntegrity, "line 1"},
		{"question missing", writeGolden(t, goodRuns, 0, none, "\n{\"expected\":\"a\"}"), fault.ErrIntegrity, "line 2"},
		{"answer missing", writeGolden(t, goodRuns, 0, none, `{"question":"a"}`), fault.ErrIntegrity, "missing"},
		{"endless line", writeGolden(t, goodRuns, 0, none, strings.Repeat(" ", 1<<20+10)), fault.ErrIntegrity, "longer than"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := gate(t, c.dir)
			if !errors.Is(err, c.kind) {
				t.Fatalf("%v is not %v", err, c.kind)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q does not say %q", err, c.want)
			}
		})
	}
	if _, err := gemma4.Gate(t.Context(), zoo.GateRequest{Dir: filepath.Join("testdata", "e2b-tiny")}); !errors.Is(err, fault.ErrIntegrity) {
		t.Errorf("without a configuration: %v", err)
	}
	t.Run("truncated logits", func(t *testing.T) {
		dir := writeGolden(t, goodRuns, 0, map[string][]int{"last_logits.0": {2048}}, "")
		if err := os.Truncate(filepath.Join(dir, "golden.safetensors"), 1000); err != nil {
			t.Fatal(err)
		}
		if _, err := gate(t, dir); !errors.Is(err, fault.ErrIntegrity) {
			t.Errorf("%v", err)
		}
	})
}
