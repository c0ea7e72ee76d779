package gemma4_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/zoo"
)

func TestFetch(t *testing.T) {
	always := []catalog.File{{Path: "config.json"}, {Path: "generation_config.json"}, {Path: "tokenizer_config.json"}, {Path: "chat_template.jinja"}, {Path: "tokenizer.json"}}
	plan := func(files ...catalog.File) []catalog.File {
		return append(append([]catalog.File{}, always...), files...)
	}
	digest := strings.Repeat("ab", 32)
	index := `{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","c":"model-00001-of-00002.safetensors"}}`
	cases := []struct {
		name   string
		listed []catalog.File
		index  string // of the files fetched so far
		want   []catalog.File
	}{
		{"one file of weights", plan(catalog.File{Path: "model.safetensors", SizeBytes: 5, SHA256: digest}, catalog.File{Path: "README.md"}), "",
			plan(catalog.File{Path: "model.safetensors", SizeBytes: 5, SHA256: digest})},
		{"small files are not listed", []catalog.File{{Path: "model.safetensors"}}, "", plan(catalog.File{Path: "model.safetensors"})},
		{"digest of a small file", []catalog.File{{Path: "config.json", SHA256: digest}, {Path: "model.safetensors"}}, "",
			append([]catalog.File{{Path: "config.json", SHA256: digest}}, plan(catalog.File{Path: "model.safetensors"})[1:]...)},
		{"index not fetched", []catalog.File{{Path: "model.safetensors.index.json"}}, "", plan(catalog.File{Path: "model.safetensors.index.json"})},
		{"index fetched", []catalog.File{{Path: "model.safetensors.index.json"}, {Path: "model-00002-of-00002.safetensors", SHA256: digest}}, index,
			plan(catalog.File{Path: "model.safetensors.index.json"}, catalog.File{Path: "model-00001-of-00002.safetensors"}, catalog.File{Path: "model-00002-of-00002.safetensors", SHA256: digest})},
		{"weights not listed", nil, "", plan(catalog.File{Path: "model.safetensors", Optional: true}, catalog.File{Path: "model.safetensors.index.json", Optional: true})},
		{"index of one file of weights is no concern", []catalog.File{{Path: "model.safetensors"}}, index, plan(catalog.File{Path: "model.safetensors"})},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			req := zoo.FetchRequest{Release: catalog.Release{Source: catalog.Source{Files: c.listed}}}
			if c.index != "" {
				req.Dir = t.TempDir()
				if err := os.WriteFile(filepath.Join(req.Dir, "model.safetensors.index.json"), []byte(c.index), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := gemma4.Fetch(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.Files); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFetchWhole leaves the shards where they are if the single file has come: that is what is converted.
func TestFetchWhole(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"model.safetensors": "x", "model.safetensors.index.json": `{"weight_map":{"a":"model-00001-of-00001.safetensors"}}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := gemma4.Fetch(t.Context(), zoo.FetchRequest{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range plan.Files {
		if strings.HasPrefix(f.Path, "model-") {
			t.Errorf("%q is fetched as well", f.Path)
		}
	}
}

func TestFetchRefused(t *testing.T) {
	req := zoo.FetchRequest{Release: catalog.Release{Source: catalog.Source{Files: []catalog.File{{Path: "model.safetensors.index.json"}}}}, Dir: t.TempDir()}
	for _, index := range []string{"", "{", `{"weight_map":{"a":"../../secret.safetensors"}}`} {
		if err := os.WriteFile(filepath.Join(req.Dir, "model.safetensors.index.json"), []byte(index), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := gemma4.Fetch(t.Context(), req); !errors.Is(err, fault.ErrIntegrity) {
			t.Errorf("index %q: %v", index, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := gemma4.Fetch(ctx, req); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
