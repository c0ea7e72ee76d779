package golden_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/golden"
)

// write writes golden.json, and golden.safetensors without logits, into dir.
func write(dir, runs string) error {
	layout, err := checkpoint.NewLayout(nil, checkpoint.LayoutOptions{})
	if err != nil {
		return err
	}
	var none bytes.Buffer
	w, err := checkpoint.NewWriter(&none, layout)
	if err != nil {
		return err
	}
	return errors.Join(w.Close(), os.WriteFile(filepath.Join(dir, "golden.safetensors"), none.Bytes(), 0o600),
		os.WriteFile(filepath.Join(dir, "golden.json"), []byte(runs), 0o600))
}

func ExampleRead() {
	dir, err := os.MkdirTemp("", "golden")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := write(dir, `{"runs":[{"prompt":[2,9],"greedy":[5,6,7],"margin":[0.5,2,1.25]}]}`); err != nil {
		log.Fatal(err)
	}
	ref, err := golden.Read(context.Background(), dir, golden.Model{Vocab: 10, TokenLimit: 10, Context: 64})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ref.Runs[0].Prompt, ref.Runs[0].Greedy, ref.Runs[0].Margin)
	// Output: [2 9] [5 6 7] [0.5 2 1.25]
}

// TestRefused reads values that belong to another model, or to none.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ runs, text string }{
		"not JSON":      {"{", "golden.json"},
		"no runs":       {`{"runs":[]}`, "no runs"},
		"too long":      {`{"runs":[{"prompt":[1,1,1,1,1,1,1],"greedy":[1,1],"margin":[1,1]}]}`, "context 8"},
		"unknown token": {`{"runs":[{"prompt":[1],"greedy":[10],"margin":[1]}]}`, "token 10"},
		"no margin":     {`{"runs":[{"prompt":[1],"greedy":[1],"margin":[]}]}`, "0 margins"},
	} {
		dir := t.TempDir()
		if err := write(dir, c.runs); err != nil {
			t.Fatal(err)
		}
		_, err := golden.Read(t.Context(), dir, golden.Model{Vocab: 10, TokenLimit: 10, Context: 8})
		if !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(err.Error(), c.text) || zoo.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := golden.Read(t.Context(), t.TempDir(), golden.Model{}); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("an empty folder: %v", err)
	}
}
