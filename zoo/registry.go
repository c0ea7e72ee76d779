package zoo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// Registry is a fixed list of plugins. There is no global one: who needs plugins
// makes a list of them. Its methods may be called by many goroutines.
type Registry struct {
	plugins []Plugin

	mu    sync.Mutex
	known []registered // nil until all plugins have been described
}

// registered is a plugin that has told who it is.
type registered struct {
	plugin  Plugin
	about   Description
	version *semver.Version
}

// NewRegistry makes a registry of the plugins. Nothing is asked of them yet; a nil
// plugin is [ErrUsage].
func NewRegistry(plugins ...Plugin) (*Registry, error) {
	for i, p := range plugins {
		if p == nil {
			return nil, fmt.Errorf("plugin %d of the registry is nil: %w", i, fault.ErrUsage)
		}
	}
	return &Registry{plugins: slices.Clone(plugins)}, nil
}

// Find returns the newest plugin of the reference's name whose version satisfies
// its constraint; an empty constraint takes any version that is not a prerelease.
// Errors are [*MissingPluginError], [ErrUsage] for a constraint that is not
// understood, and those of [Registry.All].
func (r *Registry) Find(ctx context.Context, ref catalog.PluginRef) (Plugin, Description, error) {
	known, err := r.describe(ctx)
	if err != nil {
		return nil, Description{}, err
	}
	text := ref.Constraint
	if text == "" {
		text = "*"
	}
	constraint, err := semver.NewConstraint(text)
	if err != nil {
		return nil, Description{}, fmt.Errorf("version constraint %q of plugin %q is not understood: %w", ref.Constraint, ref.Name, fault.ErrUsage)
	}
	missing := &MissingPluginError{Name: ref.Name, Constraint: text}
	for _, k := range known {
		if k.about.Name != ref.Name {
			continue
		}
		if constraint.Check(k.version) {
			return k.plugin, k.about, nil
		}
		missing.Have = append(missing.Have, k.about.Version)
	}
	return nil, Description{}, missing
}

// All returns what the plugins say of themselves, sorted by name, newest first.
// A plugin that does not answer, whose name or version breaks the rules, or that
// is listed twice is an error that names it; the last two are [ErrUsage].
func (r *Registry) All(ctx context.Context) ([]Description, error) {
	known, err := r.describe(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Description, len(known))
	for i, k := range known {
		all[i] = k.about
	}
	return all, nil
}

// describe asks every plugin once who it is. A failure is not kept: a plugin in
// another process may answer the next time.
func (r *Registry) describe(ctx context.Context) ([]registered, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known != nil {
		return r.known, nil
	}
	known := make([]registered, 0, len(r.plugins))
	for i, p := range r.plugins {
		about, err := p.Describe(ctx)
		if err != nil {
			return nil, fmt.Errorf("plugin %d of the registry: describe: %w", i, err)
		}
		if err := catalog.ValidateName(about.Name); err != nil {
			return nil, fmt.Errorf("plugin %d of the registry: %w", i, err)
		}
		version, err := semver.StrictNewVersion(about.Version)
		if err != nil {
			return nil, fmt.Errorf("plugin %q has version %q, which is not semantic: %w", about.Name, about.Version, fault.ErrUsage)
		}
		if r, ok := p.(Resolver); ok {
			if p, err = r.Resolve(ctx); err != nil {
				return nil, fmt.Errorf("plugin %q: %w", about.Name, err)
			}
		}
		known = append(known, registered{p, about, version})
	}
	slices.SortFunc(known, func(a, b registered) int {
		return cmp.Or(cmp.Compare(a.about.Name, b.about.Name), b.version.Compare(a.version))
	})
	for i := 1; i < len(known); i++ {
		if a, b := known[i-1], known[i]; a.about.Name == b.about.Name && a.version.Equal(b.version) {
			return nil, fmt.Errorf("plugin %q is listed twice with version %q: %w", b.about.Name, b.about.Version, fault.ErrUsage)
		}
	}
	r.known = known
	return known, nil
}
