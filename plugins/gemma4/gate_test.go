package gemma4_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

func TestGateRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "golden.json"), []byte(`{"runs":[{"prompt":[2048],"greedy":[1],"margin":[1]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := gate(t, dir); !errors.Is(err, fault.ErrIntegrity) || !strings.Contains(err.Error(), "token 2048") {
		t.Errorf("tokens of another model: %v", err)
	}
	if _, err := gemma4.Gate(t.Context(), zoo.GateRequest{Dir: filepath.Join("testdata", "e2b-tiny")}); !errors.Is(err, fault.ErrIntegrity) {
		t.Errorf("without a configuration: %v", err)
	}
}
