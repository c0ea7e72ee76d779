package gemma3_test

import (
	"errors"
	"testing"

	"github.com/zoo-sdk/zoo/plugins/gemma3"
	"github.com/zoo-sdk/zoo/zoo"
)

// TestGate reads reference values of another model, and none.
func TestGate(t *testing.T) {
	pack := zoo.PackInfo{Manifest: &zoo.Manifest{}, Config: changed(t, nil)}
	ref, err := gemma3.New().Gate(t.Context(), zoo.GateRequest{Pack: pack})
	if err != nil || len(ref.Runs) != 0 || len(ref.Prompts) < 3 {
		t.Errorf("%+v, %v", ref, err)
	}
	dir := folder(t, map[string][]byte{"golden.json": []byte(`{"runs":[{"prompt":[2],"greedy":[100000],"margin":[1]}]}`)})
	if _, err := gemma3.New().Gate(t.Context(), zoo.GateRequest{Pack: pack, Dir: dir}); !errors.Is(err, zoo.ErrIntegrity) {
		t.Errorf("tokens of another model: %v", err)
	}
}

// TestRunRefused gives packs that hold no model.
func TestRunRefused(t *testing.T) {
	for name, config := range map[string][]byte{"nothing": nil, "not JSON": []byte("{"), "no weights": changed(t, nil)} {
		if _, err := gemma3.New().Run(t.Context(), zoo.RunRequest{Pack: zoo.PackInfo{Manifest: &zoo.Manifest{}, Config: config}}); !errors.Is(err, zoo.ErrIntegrity) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
