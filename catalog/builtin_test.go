package catalog_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
)

func builtin(t testing.TB) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func resolve(t testing.TB, c *catalog.Catalog, ref string) *catalog.Release {
	t.Helper()
	r, err := catalog.ParseRef(ref)
	if err != nil {
		t.Fatal(err)
	}
	release, err := c.Resolve(r)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// TestEmbeddedFiles holds every embedded file against its pins, and finds files that
// no release names.
func TestEmbeddedFiles(t *testing.T) {
	pinned := map[string]bool{}
	for _, m := range builtin(t).Models {
		for _, r := range m.Releases {
			sources := []catalog.Source{r.Source}
			if r.Reference != nil {
				sources = append(sources, *r.Reference)
			}
			for _, s := range sources {
				if s.Kind != catalog.KindEmbedded {
					continue
				}
				fsys, err := catalog.Embedded(s.Repository)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range s.Files {
					data, err := fs.ReadFile(fsys, f.Path)
					if err != nil {
						t.Error(err)
						continue
					}
					sum := sha256.Sum256(data)
					if int64(len(data)) != f.SizeBytes || hex.EncodeToString(sum[:]) != f.SHA256 {
						t.Errorf("%s/%s has %d bytes of sha256 %x, pinned are %d of %s", s.Repository, f.Path, len(data), sum, f.SizeBytes, f.SHA256)
					}
					pinned[s.Repository+"/"+f.Path] = true
				}
			}
		}
	}
	demo, err := catalog.Embedded("demo")
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(demo, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !pinned["demo/"+path] {
			t.Errorf("embedded file %q belongs to no release", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEmbeddedUnknown(t *testing.T) {
	for _, name := range []string{"none", "demo/none", "demo/config.json", "builtin.yaml"} {
		if _, err := catalog.Embedded(name); !errors.Is(err, fault.ErrNotFound) {
			t.Errorf("%q: %v, want fault.ErrNotFound", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "/", "demo/..", "demo/../demo", "/demo", `demo\reference`} {
		if _, err := catalog.Embedded(name); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("%q: %v, want fault.ErrUsage", name, err)
		}
	}
}

func TestBuiltinModels(t *testing.T) {
	type facts struct {
		Model, Version, Plugin, Constraint, Kind, Repository, Revision, SPDX string
		Pinned, Gated, Reference                                             bool
		Files, Sums                                                          int
	}
	c := builtin(t)
	tests := []struct {
		refs []string
		want facts
	}{
		{
			[]string{"demo", "demo@1.0.0", "Demo@^1"},
			facts{Model: "demo", Version: "1.0.0", Plugin: "gemma4e2b", Constraint: "^1", Kind: "embedded", Repository: "demo", SPDX: "Apache-2.0 AND WordNet", Pinned: true, Reference: true, Files: 6, Sums: 6},
		},
		{
			[]string{"gemma-4-e2b", "gemma4-e2b", "gemma-4-e2b-it", "e2b", "e2b@^1"},
			facts{
				Model: "gemma-4-e2b", Version: "1.0.0", Plugin: "gemma4e2b", Constraint: "^1", Kind: "hub",
				Repository: "google/gemma-4-E2B-it-qat-mobile-transformers", Revision: "dd693ff40353f057ca5f07e945ad867f4afbf2ec",
				SPDX: "Apache-2.0", Pinned: true, Files: 6, Sums: 2,
			},
		},
		{
			[]string{"gemma-4-e2b-q4_0", "e2b-q4_0"},
			facts{
				Model: "gemma-4-e2b-q4_0", Version: "1.0.0", Plugin: "gemma4e2b", Constraint: "^1", Kind: "hub",
				Repository: "google/gemma-4-E2B-it-qat-q4_0-unquantized", Revision: "main", SPDX: "Apache-2.0", Files: 5,
			},
		},
		{
			[]string{"gemma-4-e4b", "e4b"},
			facts{
				Model: "gemma-4-e4b", Version: "1.0.0", Plugin: "gemma4e4b", Constraint: "^1", Kind: "hub",
				Repository: "google/gemma-4-E4B-it-qat-q4_0-unquantized", Revision: "main", SPDX: "Apache-2.0", Files: 5,
			},
		},
		{
			[]string{"gemma-4-e4b-absmax7", "e4b-absmax7@^1"},
			facts{
				Model: "gemma-4-e4b-absmax7", Version: "1.0.0", Plugin: "gemma4e4b", Constraint: "^1", Kind: "hub",
				Repository: "google/gemma-4-E4B-it-qat-q4_0-unquantized", Revision: "main", SPDX: "Apache-2.0", Files: 5,
			},
		},
		{
			[]string{"gemma-4-e4b-mobile", "e4b-mobile"},
			facts{
				Model: "gemma-4-e4b-mobile", Version: "1.0.0", Plugin: "gemma4e4b", Constraint: "^1", Kind: "hub",
				Repository: "google/gemma-4-E4B-it-qat-mobile-transformers", Revision: "main", SPDX: "Apache-2.0", Files: 5,
			},
		},
		{
			[]string{"gemma-3-270m", "gemma3-270m", "gemma-3-270m-it@^1"},
			facts{
				Model: "gemma-3-270m", Version: "1.0.0", Plugin: "gemma3", Constraint: "^1", Kind: "hub",
				Repository: "google/gemma-3-270m-it", Revision: "ac82b4e820549b854eebf28ce6dedaf9fdfa17b3",
				SPDX: "LicenseRef-Gemma", Pinned: true, Gated: true, Files: 5,
			},
		},
		{
			[]string{"gemma-3-270m-q4_0", "gemma3-270m-q4_0"},
			facts{
				Model: "gemma-3-270m-q4_0", Version: "1.0.0", Plugin: "gemma3", Constraint: "^1", Kind: "hub",
				Repository: "ggml-org/gemma-3-270m-it-qat-GGUF", Revision: "7dba9faa7cdb58c7dc44b238c7dbb00e391fbf65",
				SPDX: "LicenseRef-Gemma", Pinned: true, Files: 1, Sums: 1,
			},
		},
		{
			[]string{"gemma-3-1b", "gemma3-1b", "gemma-3-1b-it"},
			facts{
				Model: "gemma-3-1b", Version: "1.0.0", Plugin: "gemma3", Constraint: "^1", Kind: "hub",
				Repository: "google/gemma-3-1b-it", Revision: "dcc83ea841ab6100d6b47a070329e1ba4cf78752",
				SPDX: "LicenseRef-Gemma", Pinned: true, Gated: true, Files: 5, Sums: 3,
			},
		},
		{
			[]string{"gemma-3-1b-q4_k_m", "gemma3-1b-q4_k_m"},
			facts{
				Model: "gemma-3-1b-q4_k_m", Version: "1.0.0", Plugin: "gemma3", Constraint: "^1", Kind: "hub",
				Repository: "ggml-org/gemma-3-1b-it-GGUF", Revision: "f9c28bcd85737ffc5aef028638d3341d49869c27",
				SPDX: "LicenseRef-Gemma", Pinned: true, Files: 1, Sums: 1,
			},
		},
	}
	if len(c.Models) != len(tests) {
		t.Errorf("%d models, want %d", len(c.Models), len(tests))
	}
	for _, test := range tests {
		for _, ref := range test.refs {
			r := resolve(t, c, ref)
			got := facts{
				Model: r.Model, Version: r.Version, Plugin: r.Plugin.Name, Constraint: r.Plugin.Constraint, Kind: r.Source.Kind,
				Repository: r.Source.Repository, Revision: r.Source.Revision, SPDX: r.Licence.SPDX,
				Pinned: r.Source.Pinned(), Gated: r.Gated, Reference: r.Reference != nil, Files: len(r.Source.Files),
			}
			for _, f := range r.Source.Files {
				if f.SHA256 != "" {
					got.Sums++
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", ref, diff)
			}
		}
	}
	weights := resolve(t, c, "e2b").Source.Files[5]
	want := catalog.File{Path: "model.safetensors", SizeBytes: 2458111846, SHA256: "efab429012b97ab986c4d4838a46ff3ad95d618b42ce514771ca40fadc76a9a4"}
	if diff := cmp.Diff(want, weights); diff != "" {
		t.Errorf("weights of e2b (-want +got):\n%s", diff)
	}
}

// TestResolveCopies checks that a caller's changes do not reach the catalog.
func TestResolveCopies(t *testing.T) {
	c := builtin(t)
	r := resolve(t, c, "demo")
	r.Source.Files[0].SHA256 = "changed"
	r.Reference.Files[0].SHA256 = "changed"
	again := resolve(t, c, "demo")
	if again.Source.Files[0].SHA256 == "changed" || again.Reference.Files[0].SHA256 == "changed" {
		t.Error("a change to a resolved release changed the catalog")
	}
	e4b := resolve(t, c, "e4b")
	e4b.Recipe["grid"] = "changed"
	if resolve(t, c, "e4b").Recipe["grid"] != "q4_0" {
		t.Error("a change to a resolved recipe changed the catalog")
	}
}
