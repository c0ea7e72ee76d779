package gemma4e2b_test

import (
	"context"
	"errors"
	"testing"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

func TestDescribe(t *testing.T) {
	d, err := gemma4e2b.New().Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d.Name != "gemma4e2b" || d.Title == "" || d.Operations != program.Version {
		t.Errorf("%+v", d)
	}
	if _, err := semver.StrictNewVersion(d.Version); err != nil {
		t.Errorf("version %q: %v", d.Version, err)
	}
}

// TestCancelled calls every method with a context that has ended.
func TestCancelled(t *testing.T) {
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	p := gemma4e2b.New()
	calls := map[string]func() error{
		"describe": func() error { _, err := p.Describe(ctx); return err },
		"fetch":    func() error { _, err := p.Fetch(ctx, zoo.FetchRequest{}); return err },
		"convert": func() error {
			return p.Convert(ctx, zoo.ConvertRequest{Checkpoint: "../gemma4/testdata/e2b-tiny", Dir: t.TempDir()})
		},
		"run": func() error { _, err := p.Run(ctx, zoo.RunRequest{}); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, stop) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRunRefused gives packs that hold no model.
func TestRunRefused(t *testing.T) {
	m := &zoo.Manifest{}
	for name, config := range map[string]string{"nothing": "", "not JSON": "{", "no text": `{"model_type":"gemma4"}`} {
		if _, err := gemma4e2b.New().Run(t.Context(), zoo.RunRequest{Pack: zoo.PackInfo{Manifest: m, Config: []byte(config)}}); !errors.Is(err, fault.ErrIntegrity) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBuiltin fetches the plan of every release in the built-in catalog that names the plugin.
func TestBuiltin(t *testing.T) {
	builtin, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range builtin.Models {
		for _, r := range m.Releases {
			if r.Plugin.Name != gemma4e2b.Name {
				continue
			}
			plan, err := gemma4e2b.New().Fetch(t.Context(), zoo.FetchRequest{Release: r})
			if err != nil || len(plan.Files) != len(r.Source.Files) {
				t.Errorf("%s %s: %d of %d files, %v", m.Name, r.Version, len(plan.Files), len(r.Source.Files), err)
			}
			for _, f := range plan.Files {
				if f.Optional {
					t.Errorf("%s %s: %q is optional", m.Name, r.Version, f.Path)
				}
			}
		}
	}
}
