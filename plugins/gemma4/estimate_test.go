package gemma4_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// TestEstimateLikeConvert holds what is told of packs beforehand against the packs.
func TestEstimateLikeConvert(t *testing.T) {
	for name, recipe := range map[string]map[string]string{
		"demo":     nil,
		"e2b-tiny": nil,
		"e4b-tiny": {"grid": "none"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := reference(t, name)
			req := request(t, dir)
			req.Recipe = recipe
			if _, err := gemma4.Convert(t.Context(), plugin, req); err != nil {
				t.Fatal(err)
			}
			pack, err := zoo.OpenPack(req.Dir)
			if err != nil {
				t.Fatal(err)
			}
			defer pack.Close()
			config, err := os.ReadFile(filepath.Join(dir, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := gemma4.EstimatePack(t.Context(), plugin, zoo.EstimateRequest{
				Release: catalog.Release{Recipe: recipe}, Sources: req.Sources, Config: config,
			})
			if err != nil {
				t.Fatal(err)
			}
			if off := math.Abs(float64(got.PackBytes)/float64(pack.SizeBytes()) - 1); off > 0.01 {
				t.Errorf("%d bytes, the pack has %d", got.PackBytes, pack.SizeBytes())
			}
			cfg, err := gemma4.ParseConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			want, err := gemma4.Record(pack.Manifest(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Weights, got.Program.Weights); diff != "" {
				t.Errorf("weights (-real +estimate):\n%s", diff)
			}
			caches := func(p *program.Program) (list []program.Cache) {
				for _, c := range p.Caches {
					if c.KeyScale != 0 {
						c.KeyScale, c.ValueScale = 1, 1
					}
					list = append(list, c)
				}
				return list
			}
			if diff := cmp.Diff(caches(want), caches(got.Program)); diff != "" {
				t.Errorf("caches (-real +estimate):\n%s", diff)
			}
			if w, g := backends.StepBytes(want), backends.StepBytes(got.Program); w != g {
				t.Errorf("a token reads %d bytes, of the pack %d", g, w)
			}
		})
	}
}

// TestEstimateKnown takes the shapes that the plugin has for a model, and no others.
func TestEstimateKnown(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(reference(t, "demo"), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var p zoo.Estimator = gemma4.NewPlugin("gemma4e2b", "1.0.0", "", map[string]gemma4.Shapes{"demo": {Config: config}})
	ask := func(model string, config []byte, recipe map[string]string) (zoo.Estimate, error) {
		return p.Estimate(t.Context(), zoo.EstimateRequest{Release: catalog.Release{Model: model, Recipe: recipe}, Config: config})
	}
	known, err := ask("demo", nil, nil)
	if err != nil || known.PackBytes < 2_500_000 || len(known.Assumptions) != 2 {
		t.Errorf("%d bytes, assuming %q, %v", known.PackBytes, known.Assumptions, err)
	}
	if given, err := ask("other", config, nil); err != nil || given.PackBytes != known.PackBytes {
		t.Errorf("with the same config.json: %d bytes, %v", given.PackBytes, err)
	}
	if _, err := ask("other", nil, nil); !errors.Is(err, zoo.ErrNotFound) || zoo.Hint(err) == "" {
		t.Errorf("unknown shapes: %v", err)
	}
	if _, err := ask("demo", []byte(`{}`), nil); err == nil {
		t.Error("a config.json that says nothing is taken")
	}
	if _, err := ask("demo", nil, map[string]string{"grid": "q4_0"}); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a grid for codes: %v", err)
	}
}
