package sdk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// Where plugins come from.
const (
	PluginBuiltIn     = "built in"
	PluginInstalled   = "installed"
	PluginFromCatalog = "catalog"
)

// How plugins stand.
const (
	// PluginTaken is a plugin that models are run with, or would be.
	PluginTaken = "taken"
	// PluginPassedOver is one that works and of which another version is taken.
	PluginPassedOver = "passed over"
	// PluginUnusable is one that is damaged, or that this host cannot use.
	PluginUnusable = "unusable"
	// PluginAvailable is one of the catalog that can be installed.
	PluginAvailable = "available"
)

// PluginEntry is one version of a plugin as [Zoo.Plugins] shows it.
type PluginEntry struct {
	// Version is "" where the installed versions of a plugin cannot be listed, and Name,
	// too, where the installed plugins cannot.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Title is one line for people; "" when it is not known.
	Title string `json:"title"`
	// Origin is [PluginBuiltIn], [PluginInstalled] or [PluginFromCatalog].
	Origin string `json:"origin"`
	// State is [PluginTaken], [PluginPassedOver], [PluginUnusable] or [PluginAvailable], and Why the reason.
	State string `json:"state"`
	Why   string `json:"why"`
	// Models are the models of the catalog, and those installed, that are run with it.
	Models []string `json:"models"`
	// Licence is the licence of one of the catalog.
	Licence string `json:"licence,omitempty"`
	// Path is the program of one that is installed, SHA256 its digest, SizeBytes its size,
	// From where it is from, and Time when it was installed.
	Path      string     `json:"path,omitempty"`
	SHA256    string     `json:"sha256,omitempty"`
	SizeBytes int64      `json:"size,omitempty"`
	From      string     `json:"from,omitempty"`
	Time      *time.Time `json:"installed_at,omitempty"`
}

// Close ends the processes of installed plugins. Models that are open go on; further
// calls that need such a plugin fail. Where no plugin is installed nothing is to be
// closed. What is not closed ends with this process. It returns nil.
func (z *Zoo) Close() error {
	z.registry.close()
	return nil
}

// Plugins returns all plugins, those built in, those installed, and those of the catalog
// that are not installed, sorted by name, newest first, and says which models are run
// with each and why. Programs are read through, and none is started.
func (z *Zoo) Plugins(ctx context.Context) ([]PluginEntry, error) {
	models, err := z.catalog()
	if err != nil {
		return nil, err
	}
	list, err := z.verified(ctx)
	if err != nil {
		return nil, err
	}
	uses, err := z.uses(ctx, models)
	if err != nil {
		return nil, err
	}
	entries := []PluginEntry{}
	for i := range list {
		entries = append(entries, entryOf(list, &list[i], usersOf(uses, list, &list[i])))
	}
	for i := range models.Plugins {
		entries = append(entries, z.registry.offers(models, &models.Plugins[i], list)...)
	}
	slices.SortStableFunc(entries, func(a, b PluginEntry) int {
		if c := cmp.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		if a.Version == "" || b.Version == "" {
			return cmp.Compare(len(b.Version), len(a.Version)) // last what cannot be listed
		}
		return semver.MustParse(b.Version).Compare(semver.MustParse(a.Version))
	})
	return entries, context.Cause(ctx)
}

// verified lists all plugins, of which those that are installed have been read through.
func (z *Zoo) verified(ctx context.Context) ([]candidate, error) {
	list, err := z.registry.candidates(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if c := &list[i]; c.problem == nil && c.stored != nil {
			c.problem = z.store.VerifyPlugin(ctx, *c.stored)
		}
	}
	return list, context.Cause(ctx)
}

// use is a model, and what refers to the plugin that it is run with.
type use struct {
	model  string
	record *zoo.Record // nil for a release of the catalog
	plugin catalog.PluginRef
}

// uses returns the models of the catalog and those that are installed.
func (z *Zoo) uses(ctx context.Context, models *catalog.Catalog) ([]use, error) {
	var uses []use
	for _, m := range models.Models {
		if release, err := z.resolveIn(models, catalog.Ref{Name: m.Name}); err == nil {
			uses = append(uses, use{model: m.Name, plugin: release.Plugin})
		}
	}
	records, err := z.store.Installed(ctx)
	for i := range records {
		r := &records[i]
		uses = append(uses, use{r.Name(), r, z.runner(r, r.Plugin)})
	}
	return uses, err
}

// usersOf returns the names of the models that take a candidate of a list, sorted.
func usersOf(uses []use, list []candidate, c *candidate) []string {
	users := []string{}
	for _, u := range uses {
		if taken, err := choose(list, u.plugin, anyCandidate); err == nil && taken == c {
			users = append(users, u.model)
		}
	}
	slices.Sort(users)
	return slices.Compact(users)
}

// entryOf describes a candidate that the models of these names take.
func entryOf(list []candidate, c *candidate, users []string) PluginEntry {
	e := PluginEntry{Name: c.about.Name, Version: c.about.Version, Title: c.about.Title, Origin: PluginBuiltIn, Models: users}
	if p := c.stored; p != nil {
		e.Origin, e.Path, e.From = PluginInstalled, p.Path, p.Origin
		e.SHA256, e.SizeBytes = p.SHA256, p.SizeBytes
		if !p.Installed.IsZero() {
			e.Time = &p.Installed
		}
	}
	newest, err := choose(list, catalog.PluginRef{Name: c.about.Name}, anyCandidate)
	switch {
	case c.problem != nil:
		e.State, e.Why = PluginUnusable, c.problem.Error()
	case err == nil && newest == c:
		e.State, e.Why = PluginTaken, "the newest that can be used"
	case len(users) > 0:
		e.State, e.Why = PluginTaken, "the newest that these models allow"
	case err == nil && newest.version.Equal(c.version):
		e.State, e.Why = PluginPassedOver, "the same version is "+originOf(newest)
	case err == nil && newest.version.GreaterThan(c.version):
		e.State, e.Why = PluginPassedOver, fmt.Sprintf("%s is newer, and %s", newest.about.Version, originOf(newest))
	case c.version.Prerelease() != "":
		e.State, e.Why = PluginPassedOver, "a prerelease is taken only where a constraint names one"
	}
	return e
}

// originOf says where a candidate comes from.
func originOf(c *candidate) string {
	if c.stored == nil {
		return PluginBuiltIn
	}
	return PluginInstalled
}

// offers describes the versions of a plugin of the catalog that are not installed.
func (r *roster) offers(models *catalog.Catalog, p *catalog.Plugin, list []candidate) []PluginEntry {
	var entries []PluginEntry
	for _, v := range p.Versions {
		if slices.ContainsFunc(list, func(c candidate) bool { return c.about.Name == p.Name && c.about.Version == v.Version }) {
			continue
		}
		e := PluginEntry{
			Name: p.Name, Version: v.Version, Title: p.Title, Origin: PluginFromCatalog, Licence: p.Licence.SPDX, Models: []string{},
			State: PluginAvailable, Why: r.command("plugin", "install", p.Name+"@"+v.Version) + " installs it",
		}
		if _, binary, err := offer(models, catalog.PluginRef{Name: p.Name, Constraint: "=" + v.Version}); err != nil {
			e.State, e.Why = PluginUnusable, err.Error()
		} else {
			e.SHA256, e.SizeBytes = binary.File().SHA256, binary.File().SizeBytes
		}
		entries = append(entries, e)
	}
	return entries
}

// checkMaker makes sure that the pack in a folder says that the plugin made it that did:
// else it would be run by another one.
func checkMaker(dir string, about zoo.Description) error {
	pack, err := zoo.OpenPack(dir)
	if err != nil {
		return err
	}
	defer pack.Close()
	if made := pack.Manifest().Plugin; made != pluginID(about) {
		return fault.WithHint(fmt.Errorf("%w: plugin %s %s made a pack that is said to be of %s %s", fault.ErrIntegrity, about.Name, about.Version, made.Name, made.Version),
			"report it to the plugin's author")
	}
	return nil
}
