package sdk_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// TestConvertTaken leaves alone what comes up in the pack's place while it is made.
func TestConvertTaken(t *testing.T) {
	t.Parallel()
	output := filepath.Join(t.TempDir(), "pack")
	other := filepath.Join(output, "file")
	var once sync.Once
	z := client(t, t.TempDir(), sdk.WithProgress(sdk.Events{Convert: func(int64, int64) {
		once.Do(func() {
			if err := errors.Join(os.Mkdir(output, 0o755), os.WriteFile(other, nil, 0o644)); err != nil {
				t.Error(err)
			}
		})
	}}))
	_, err := z.Convert(t.Context(), sdk.ConvertOptions{Checkpoint: checkpoint(t), Plugin: "gemma4e2b", Output: output})
	if !errors.Is(err, zoo.ErrUsage) || zoo.Hint(err) == "" {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(output)); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

// TestConvertWithoutShard names a shard that is missing, and what to do.
func TestConvertWithoutShard(t *testing.T) {
	t.Parallel()
	const shard = "model-00002-of-00002.safetensors"
	dir := t.TempDir()
	err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "plugins", "gemma4", "testdata", "e4b-tiny")))
	if err := errors.Join(err, os.Remove(filepath.Join(dir, shard))); err != nil {
		t.Fatal(err)
	}
	_, err = client(t, t.TempDir()).Convert(t.Context(), sdk.ConvertOptions{Checkpoint: dir, Plugin: "gemma4e4b", Output: filepath.Join(t.TempDir(), "pack")})
	if !errors.Is(err, zoo.ErrNotFound) || !strings.Contains(err.Error(), shard) || zoo.Hint(err) == "" {
		t.Errorf("error %v", err)
	}
}
