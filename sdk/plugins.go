package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/rpc"
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
	list, err := z.registry.candidates(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if c := &list[i]; c.problem == nil && c.stored != nil {
			c.problem = z.store.VerifyPlugin(ctx, *c.stored)
		}
	}
	users, err := z.users(ctx, models, list)
	if err != nil {
		return nil, err
	}
	entries := []PluginEntry{}
	for i := range list {
		entries = append(entries, entryOf(list, &list[i], users[i]))
	}
	for i := range models.Plugins {
		entries = append(entries, offers(models, &models.Plugins[i], list)...)
	}
	slices.SortStableFunc(entries, func(a, b PluginEntry) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), semver.MustParse(b.Version).Compare(semver.MustParse(a.Version)))
	})
	return entries, context.Cause(ctx)
}

// users returns the names of the models that take each candidate.
func (z *Zoo) users(ctx context.Context, models *catalog.Catalog, list []candidate) ([][]string, error) {
	users := make([][]string, len(list))
	add := func(model string, ref catalog.PluginRef) {
		c, err := choose(list, ref, func(*candidate) error { return nil })
		if err != nil {
			return
		}
		i := slices.IndexFunc(list, func(o candidate) bool { return o.about == c.about && o.stored == c.stored })
		if !slices.Contains(users[i], model) {
			users[i] = append(users[i], model)
		}
	}
	for _, m := range models.Models {
		if release, err := z.resolveIn(models, catalog.Ref{Name: m.Name}); err == nil {
			add(m.Name, release.Plugin)
		}
	}
	records, err := z.store.Installed(ctx)
	for i := range records {
		add(records[i].Name(), z.runner(&records[i], records[i].Plugin))
	}
	for _, u := range users {
		slices.Sort(u)
	}
	return users, err
}

// entryOf describes a candidate that the models of these names take.
func entryOf(list []candidate, c *candidate, users []string) PluginEntry {
	e := PluginEntry{Name: c.about.Name, Version: c.about.Version, Title: c.about.Title, Origin: PluginBuiltIn, Models: users}
	if e.Models == nil {
		e.Models = []string{}
	}
	if p := c.stored; p != nil {
		e.Origin, e.Path, e.From = PluginInstalled, p.Path, p.Origin
		e.SHA256, e.SizeBytes = p.SHA256, p.SizeBytes
		if !p.Installed.IsZero() {
			e.Time = &p.Installed
		}
	}
	newest, err := choose(list, catalog.PluginRef{Name: c.about.Name}, func(*candidate) error { return nil })
	isNewest := err == nil && newest.stored == c.stored && newest.about == c.about
	switch {
	case c.problem != nil:
		e.State, e.Why = PluginUnusable, c.problem.Error()
	case isNewest:
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
func offers(models *catalog.Catalog, p *catalog.Plugin, list []candidate) []PluginEntry {
	var entries []PluginEntry
	for _, v := range p.Versions {
		version, err := semver.StrictNewVersion(v.Version)
		if err != nil || slices.ContainsFunc(list, func(c candidate) bool { return c.about.Name == p.Name && c.version.Equal(version) }) {
			continue
		}
		e := PluginEntry{
			Name: p.Name, Version: v.Version, Title: p.Title, Origin: PluginFromCatalog, Licence: p.Licence.SPDX, Models: []string{},
			State: PluginAvailable, Why: fmt.Sprintf("`zoo plugin install %s@%s` installs it", p.Name, v.Version),
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

// InstallPlugin installs the newest version of a plugin of the catalog that satisfies a
// reference ("name" or "name@constraint") and that this host can use, or the locked one
// where a lock file has one and nothing else is asked for, or finds it installed. The program is fetched as source files are, held against the digest that
// the catalog pins, and started once, to ask it who it is. A call that was cut short goes
// on where it stopped. A plugin of a catalog that is neither built in nor signed (see
// [WithCatalogKeys]) is an [*UnsignedPluginError].
func (z *Zoo) InstallPlugin(ctx context.Context, ref string) (*zoo.StoredPlugin, error) {
	r, err := catalog.ParseRef(ref)
	if err != nil {
		return nil, err
	}
	models, err := z.catalog()
	if err != nil {
		return nil, err
	}
	lock, err := z.lock()
	if err != nil {
		return nil, err
	}
	if version := lock.PluginVersion(r.Name); version != "" && r.Constraint == "" {
		r.Constraint = "=" + version
	}
	v, binary, err := offer(models, catalog.PluginRef(r))
	if err != nil {
		return nil, err
	}
	if err := lock.Admits(r.Name, v.Version, binary.OS, binary.Arch, binary.File().SHA256); err != nil {
		return nil, err
	}
	source := binary.Source
	record := zoo.PluginRecord{
		Name: r.Name, Version: v.Version, SHA256: binary.File().SHA256, SizeBytes: binary.File().SizeBytes,
		OS: binary.OS, Arch: binary.Arch, Protocol: v.Protocol,
		Origin: fmt.Sprintf("%s %s@%s %s", source.Kind, source.Repository, source.Revision, binary.File().Path),
	}
	held, err := z.lockPlugin(ctx, &record)
	if err != nil {
		return nil, err
	}
	defer held.Unlock()
	switch p, err := z.soundPlugin(ctx, &record); {
	case err != nil:
		return nil, err
	case p != nil:
		return p, held.RemoveFetched(p.Version) // which a process that was killed may have left
	}
	dir, err := held.FetchDir(record.Version, record.SHA256)
	if err != nil {
		return nil, err
	}
	if err := z.fetchSource(ctx, z.set, source, dir); err != nil {
		return nil, err
	}
	z.registry.drop(record.Name, record.Version)
	return held.Install(ctx, filepath.Join(dir, filepath.FromSlash(binary.File().Path)), record, func(path string, r *zoo.PluginRecord) error {
		about, err := z.ask(ctx, path, r.SHA256)
		if err != nil {
			return err
		}
		if about.Name != r.Name || about.Version != r.Version {
			return fault.WithHint(fmt.Errorf("%w: the catalog has the program as %s %s, and it says that it is %s %s", fault.ErrIntegrity, r.Name, r.Version, about.Name, about.Version),
				"report it to who made the catalog")
		}
		r.Title, r.Operations = about.Title, about.Operations
		return nil
	})
}

// InstallPluginFile installs the program in a file as the plugin and the version that it
// says it is, in place of one that is installed as the same version. The file stays.
func (z *Zoo) InstallPluginFile(ctx context.Context, file string) (*zoo.StoredPlugin, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	if err := checkProgram(file); err != nil {
		return nil, err
	}
	size, sum, err := hashFile(ctx, file, func(int64) {})
	if err != nil {
		return nil, err
	}
	about, err := z.ask(ctx, file, sum)
	if err != nil {
		return nil, err
	}
	lock, err := z.lock()
	if err == nil {
		err = lock.Admits(about.Name, about.Version, runtime.GOOS, runtime.GOARCH, sum)
	}
	if err != nil {
		return nil, err
	}
	record := zoo.PluginRecord{
		Name: about.Name, Version: about.Version, Title: about.Title, Operations: about.Operations,
		OS: runtime.GOOS, Arch: runtime.GOARCH, Protocol: rpc.Protocol, SHA256: sum, SizeBytes: size, Origin: "file " + file,
	}
	held, err := z.lockPlugin(ctx, &record)
	if err != nil {
		return nil, err
	}
	defer held.Unlock()
	z.registry.drop(record.Name, record.Version)
	return held.Install(ctx, file, record, func(string, *zoo.PluginRecord) error { return nil })
}

// ask starts a program and asks it who it is.
func (z *Zoo) ask(ctx context.Context, path, sha256 string) (zoo.Description, error) {
	client := rpc.New(rpc.Options{Path: path, SHA256: sha256, Logger: z.set.logger})
	about, err := client.Describe(ctx)
	_ = client.Close() // which returns nil
	if err != nil {
		return about, err
	}
	return about, unfit(pluginID(about), runtime.GOOS, runtime.GOARCH, rpc.Protocol, about.Operations)
}

// lockPlugin takes the lock of a plugin.
func (z *Zoo) lockPlugin(ctx context.Context, r *zoo.PluginRecord) (*zoo.PluginLock, error) {
	return z.store.LockPlugin(ctx, r.Name, func() { z.set.events.Waiting("plugin "+r.Name, r.Version) })
}

// soundPlugin returns the plugin of the store if it is the one that a record pins and sound, else nil.
func (z *Zoo) soundPlugin(ctx context.Context, r *zoo.PluginRecord) (*zoo.StoredPlugin, error) {
	all, err := z.store.Plugins(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		p := &all[i]
		if p.Name == r.Name && p.Version == r.Version && p.SHA256 == r.SHA256 && z.store.VerifyPlugin(ctx, *p) == nil {
			return p, nil
		}
	}
	return nil, context.Cause(ctx)
}

// RemovePlugin removes the newest installed version of a plugin that satisfies a
// reference ("name" or "name@constraint"), damaged or not, and returns what it was. Where
// none is installed, what is left of an installation that was cut short is removed.
func (z *Zoo) RemovePlugin(ctx context.Context, ref string) (zoo.PluginID, error) {
	r, err := catalog.ParseRef(ref)
	if err != nil {
		return zoo.PluginID{}, err
	}
	installed, err := z.registry.candidates(ctx)
	if err != nil {
		return zoo.PluginID{}, err
	}
	installed = slices.DeleteFunc(installed, func(c candidate) bool { return c.stored == nil || c.about.Name != r.Name })
	found, err := removable(installed, r)
	var missing *zoo.MissingPluginError
	if errors.As(err, &missing) {
		fetched, ferr := z.fetchedPlugins(r.Name)
		if ferr != nil {
			return zoo.PluginID{}, ferr
		}
		if left, ferr := removable(fetched, r); ferr == nil {
			found, err = left, nil
		}
	}
	switch {
	case err != nil && missing != nil:
		hint := "`zoo plugin list` shows what is"
		if len(missing.Have) > 0 {
			hint = "installed are " + strings.Join(missing.Have, ", ")
		}
		return zoo.PluginID{}, fault.WithHint(fmt.Errorf("%w: no plugin %s is installed", fault.ErrNotFound, r), hint)
	case err != nil:
		return zoo.PluginID{}, err
	}
	id := pluginID(found.about)
	lock, err := z.lockPlugin(ctx, &found.stored.PluginRecord)
	if err != nil {
		return id, err
	}
	defer lock.Unlock()
	z.registry.drop(id.Name, id.Version)
	return id, lock.Remove(id.Version)
}

// removable returns the newest candidate that a reference names: whatever there is may
// go, prereleases and what does not work, too. Its error is that of [choose].
func removable(list []candidate, r catalog.Ref) (*candidate, error) {
	if r.Constraint == "" && len(list) > 0 {
		return &list[0], nil
	}
	for i := range list {
		list[i].problem = nil
	}
	return choose(list, catalog.PluginRef(r), func(*candidate) error { return nil })
}

// fetchedPlugins returns the versions of a plugin that have been fetched, whole or in
// part, and not been installed.
func (z *Zoo) fetchedPlugins(name string) ([]candidate, error) {
	versions, err := z.store.FetchedPlugins(name)
	if err != nil {
		return nil, err
	}
	list := make([]candidate, len(versions))
	for i, v := range versions {
		p := zoo.PluginRecord{Name: name, Version: v}
		list[i] = candidate{about: zoo.Description{Name: name, Version: v}, version: semver.MustParse(v), stored: &zoo.StoredPlugin{PluginRecord: p}}
	}
	return list, nil
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
