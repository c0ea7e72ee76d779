package zoo_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/zoo"
)

// fakePlugin only tells who it is.
type fakePlugin struct {
	zoo.Plugin
	about zoo.Description
	err   error
	asked int
}

func (p *fakePlugin) Describe(context.Context) (zoo.Description, error) {
	p.asked++
	return p.about, p.err
}

// plugins makes plugins of "name@version".
func plugins(names ...string) []zoo.Plugin {
	var list []zoo.Plugin
	for _, n := range names {
		name, version, _ := strings.Cut(n, "@")
		list = append(list, &fakePlugin{about: zoo.Description{Name: name, Version: version}})
	}
	return list
}

func TestRegistryFind(t *testing.T) {
	r, err := zoo.NewRegistry(plugins("b@1.0.0", "a@1.2.0", "a@1.10.0", "a@2.0.0", "a@3.0.0-rc.1")...)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, constraint string
		want             string // version, or part of the hint
	}{
		{"a", "^1", "1.10.0"},
		{"a", "1.2.0", "1.2.0"},
		{"a", "", "2.0.0"},
		{"a", ">=3.0.0-0", "3.0.0-rc.1"},
		{"b", "*", "1.0.0"},
		{"a", "^4", "there is a 3.0.0-rc.1, 2.0.0, 1.10.0, 1.2.0"},
		{"c", "^1", "this build has no plugin c"},
	}
	for _, tt := range tests {
		plugin, about, err := r.Find(t.Context(), catalog.PluginRef{Name: tt.name, Constraint: tt.constraint})
		if err == nil {
			if about.Version != tt.want || plugin.(*fakePlugin).about != about {
				t.Errorf("%s@%s: found %+v, want %s", tt.name, tt.constraint, about, tt.want)
			}
			continue
		}
		missing, ok := errors.AsType[*zoo.MissingPluginError](err)
		if !ok || missing.Name != tt.name || !errors.Is(err, zoo.ErrNotFound) || !strings.Contains(zoo.Hint(err), tt.want) {
			t.Errorf("%s@%s: %v, hint %q", tt.name, tt.constraint, err, zoo.Hint(err))
		}
	}
	if _, _, err := r.Find(t.Context(), catalog.PluginRef{Name: "a", Constraint: "one"}); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a constraint that is none: %v", err)
	}
	all, err := r.All(t.Context())
	var got []string
	for _, d := range all {
		got = append(got, d.Name+"@"+d.Version)
	}
	want := []string{"a@3.0.0-rc.1", "a@2.0.0", "a@1.10.0", "a@1.2.0", "b@1.0.0"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestRegistryRefuses(t *testing.T) {
	if _, err := zoo.NewRegistry(nil, nil); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("nil plugin: %v", err)
	}
	for name, list := range map[string][]zoo.Plugin{
		"twice":                plugins("a@1.0.0", "b@1.0.0", "a@1.0.0"),
		"twice but for build":  plugins("a@1.0.0+1", "a@1.0.0+2"),
		"no semantic version":  plugins("a@1.0"),
		"name breaks the rule": plugins("A plugin@1.0.0"),
	} {
		r, err := zoo.NewRegistry(list...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.All(t.Context()); !errors.Is(err, zoo.ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A plugin that does not answer is asked again the next time, one that did is not.
func TestRegistryAsksAgain(t *testing.T) {
	gone := errors.New("gone")
	p := &fakePlugin{about: zoo.Description{Name: "a", Version: "1.0.0"}, err: gone}
	r, err := zoo.NewRegistry(p)
	if err != nil {
		t.Fatal(err)
	}
	ref := catalog.PluginRef{Name: "a", Constraint: "^1"}
	if _, _, err := r.Find(t.Context(), ref); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	p.err = nil
	for range 3 {
		if _, _, err := r.Find(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}
	if p.asked != 2 {
		t.Errorf("asked %d times", p.asked)
	}
}

// resolvingPlugin turns out to be a synthesizer.
type resolvingPlugin struct {
	*fakePlugin
	err error
}

func (p resolvingPlugin) Resolve(context.Context) (zoo.Plugin, error) {
	return struct {
		zoo.Plugin
		zoo.Synthesizer
	}{Plugin: p.fakePlugin}, p.err
}

func TestRegistryResolves(t *testing.T) {
	about := zoo.Description{Name: "a", Version: "1.0.0"}
	for _, want := range []error{nil, errors.New("gone")} {
		r, err := zoo.NewRegistry(resolvingPlugin{&fakePlugin{about: about}, want})
		if err != nil {
			t.Fatal(err)
		}
		plugin, got, err := r.Find(t.Context(), catalog.PluginRef{Name: "a"})
		if !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
		if _, ok := plugin.(zoo.Synthesizer); ok != (want == nil) || want == nil && got != about {
			t.Errorf("found %T %+v", plugin, got)
		}
	}
}
