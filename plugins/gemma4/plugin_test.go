package gemma4_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
	"github.com/zoo-sdk/zoo/plugins/gemma4e4b"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// plugins lists the plugins of the family by their names.
func plugins() map[string]*gemma4.Plugin {
	return map[string]*gemma4.Plugin{"gemma4e2b": gemma4e2b.New(), "gemma4e4b": gemma4e4b.New()}
}

func TestDescribe(t *testing.T) {
	for name, p := range plugins() {
		d, err := p.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d.Name != name || d.Title == "" || d.Operations != program.Version {
			t.Errorf("%+v", d)
		}
		if _, err := semver.StrictNewVersion(d.Version); err != nil {
			t.Errorf("%s: version %q: %v", name, d.Version, err)
		}
	}
}

// TestCancelled calls every method with a context that has ended.
func TestCancelled(t *testing.T) {
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	for name, p := range plugins() {
		calls := map[string]func() error{
			"describe": func() error { _, err := p.Describe(ctx); return err },
			"fetch":    func() error { _, err := p.Fetch(ctx, zoo.FetchRequest{}); return err },
			"convert codes": func() error {
				_, err := p.Convert(ctx, zoo.ConvertRequest{Checkpoint: filepath.Join("testdata", "e2b-tiny"), Dir: t.TempDir()})
				return err
			},
			"convert floats": func() error {
				_, err := p.Convert(ctx, zoo.ConvertRequest{Checkpoint: filepath.Join("testdata", "e4b-tiny"), Dir: t.TempDir()})
				return err
			},
			"run": func() error { _, err := p.Run(ctx, zoo.RunRequest{}); return err },
		}
		for call, f := range calls {
			if err := f(); !errors.Is(err, stop) {
				t.Errorf("%s: %s: %v", name, call, err)
			}
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

// TestBuiltin fetches the plan of every release in the built-in catalog that names one of the plugins.
func TestBuiltin(t *testing.T) {
	builtin, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]int{}
	for _, m := range builtin.Models {
		for _, r := range m.Releases {
			p, ok := plugins()[r.Plugin.Name]
			if !ok {
				continue
			}
			used[r.Plugin.Name]++
			plan, err := p.Fetch(t.Context(), zoo.FetchRequest{Release: r})
			if err != nil {
				t.Errorf("%s %s: %v", m.Name, r.Version, err)
			}
			// Every listed file is needed. Of a release that lists no weights either kind will do.
			needed, optional := 0, 0
			for _, f := range plan.Files {
				if f.Optional {
					optional++
				} else {
					needed++
				}
			}
			if needed != len(r.Source.Files) || optional != 0 && optional != 2 {
				t.Errorf("%s %s: %d files are needed and %d optional, %d are listed", m.Name, r.Version, needed, optional, len(r.Source.Files))
			}
		}
	}
	for name := range plugins() {
		if used[name] == 0 {
			t.Errorf("no release is of %s", name)
		}
	}
}
