package sdk

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/rpc"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// roster is all plugins that can be taken: those built in, and those in the store, which
// is looked at each time, since others install and remove plugins, too. A plugin of the
// store runs in a process of its own from its first use until close. Its methods may be
// called by many goroutines.
type roster struct {
	builtin *zoo.Registry
	store   *zoo.Store
	logger  *slog.Logger
	catalog func() (*catalog.Catalog, error)
	lock    func() (*catalog.Lock, error)
	// flags are those that commands in hints repeat.
	flags []string

	mu      sync.Mutex
	closed  bool
	clients map[pinned]*rpc.Client
}

// pinned is a program of the store: its path and digest.
type pinned struct{ path, sha256 string }

// candidate is a plugin that could be taken.
type candidate struct {
	about zoo.Description
	// version is nil where the installed versions of a plugin, or, without a name, the
	// installed plugins cannot be listed.
	version *semver.Version
	// stored is nil for a plugin that is built in.
	stored *zoo.StoredPlugin
	// problem says why it cannot be used, or is nil.
	problem error
}

// sha256 returns the digest of the candidate's program, or "" if it is built in.
func (c *candidate) sha256() string {
	if c.stored == nil {
		return ""
	}
	return c.stored.SHA256
}

// String names the candidate.
func (c *candidate) String() string { return c.about.Name + " " + c.about.Version }

// UnfitPluginError reports a plugin that this host cannot use. It matches zoo.ErrNotFound.
type UnfitPluginError struct {
	// Plugin is the plugin.
	Plugin zoo.PluginID
	// Reason says why.
	Reason string
	// Advice is the hint.
	Advice string
}

// Error names the plugin and the reason.
func (e *UnfitPluginError) Error() string {
	return fmt.Sprintf("plugin %s %s cannot be used: %s", e.Plugin.Name, e.Plugin.Version, e.Reason)
}

// Is reports whether target is zoo.ErrNotFound.
func (e *UnfitPluginError) Is(target error) bool { return target == fault.ErrNotFound }

// Hint says what can be done.
func (e *UnfitPluginError) Hint() string { return e.Advice }

// UnsignedPluginError reports a plugin of a catalog of which nobody has checked whose it
// is. It matches zoo.ErrNotPermitted.
type UnsignedPluginError struct {
	// Plugin is the plugin.
	Plugin zoo.PluginID
}

// Error names the plugin and the reason.
func (e *UnsignedPluginError) Error() string {
	return fmt.Sprintf("plugin %s %s is not installed from a catalog whose signature has not been checked", e.Plugin.Name, e.Plugin.Version)
}

// Is reports whether target is zoo.ErrNotPermitted.
func (e *UnsignedPluginError) Is(target error) bool { return target == fault.ErrNotPermitted }

// Hint says what can be done.
func (e *UnsignedPluginError) Hint() string {
	return "get the public key of who made the catalog from them and name it with --catalog-key, or install a program that you have with `zoo plugin install --from FILE`"
}

// unfit says why this host cannot use a plugin, by what is known before it is started, or
// returns nil.
func unfit(id zoo.PluginID, system, arch string, protocol, operations int) error {
	e := &UnfitPluginError{Plugin: id, Advice: "take a newer version of the plugin"}
	if protocol > rpc.Protocol || operations > program.Version {
		e.Advice = "take a newer version of zoo, or an older one of the plugin"
	}
	switch {
	case system != runtime.GOOS || arch != runtime.GOARCH:
		e.Reason = fmt.Sprintf("it is a program for %s/%s, this is %s/%s", system, arch, runtime.GOOS, runtime.GOARCH)
		e.Advice = "install the plugin as it is for this machine"
	case protocol != rpc.Protocol:
		e.Reason = fmt.Sprintf("it speaks version %d of the protocol, this host %d", protocol, rpc.Protocol)
	case operations != program.Version:
		e.Reason = fmt.Sprintf("its programs are of version %d of the operations, this host has version %d", operations, program.Version)
	default:
		return nil
	}
	return e
}

// concerns reports whether the candidate is, or may hide, a plugin of a name.
func (c *candidate) concerns(name string) bool {
	return c.about.Name == name || c.about.Name == ""
}

// compareCandidates orders candidates by name, newest first, and last what is not known.
func compareCandidates(a, b candidate) int {
	if c := cmp.Compare(a.about.Name, b.about.Name); c != 0 || a.version == nil && b.version == nil {
		return c
	}
	switch {
	case a.version == nil:
		return 1
	case b.version == nil:
		return -1
	}
	return b.version.Compare(a.version)
}

// candidates lists all plugins, sorted by name, newest first, and where two have one
// version that which is built in first.
func (r *roster) candidates(ctx context.Context) ([]candidate, error) {
	builtin, err := r.builtin.All(ctx)
	if err != nil {
		return nil, err
	}
	stored, err := r.store.Plugins(ctx)
	if err != nil {
		return nil, err
	}
	lock, err := r.lock()
	if err != nil {
		return nil, err
	}
	list := make([]candidate, 0, len(builtin)+len(stored))
	for _, about := range builtin {
		list = append(list, candidate{about: about})
	}
	for i := range stored {
		p := &stored[i]
		c := candidate{stored: p, problem: p.Problem, about: zoo.Description{Name: p.Name, Version: p.Version, Title: p.Title, Operations: p.Operations}}
		if c.problem == nil {
			c.problem = unfit(p.ID(), p.OS, p.Arch, p.Protocol, p.Operations)
		}
		list = append(list, c)
	}
	for i := range list {
		c := &list[i]
		if c.about.Version == "" {
			continue
		}
		if c.version, err = semver.StrictNewVersion(c.about.Version); err != nil {
			return nil, fmt.Errorf("plugin %q: version %q: %w", c.about.Name, c.about.Version, err)
		}
		if c.problem == nil {
			c.problem = lock.Admits(c.about.Name, c.about.Version, runtime.GOOS, runtime.GOARCH, c.sha256())
		}
	}
	slices.SortStableFunc(list, compareCandidates)
	return list, nil
}

// satisfies returns what tells whether a version satisfies the constraint of a reference.
// Behind an "=" nothing but the version of this very spelling does, and so it is without
// one if there is that version: versions that differ in build metadata alone are equal.
func satisfies(ref catalog.PluginRef, have []string) (func(*semver.Version) bool, error) {
	text := cmp.Or(ref.Constraint, "*")
	constraint, err := semver.NewConstraint(text)
	if err != nil {
		return nil, fmt.Errorf("%w: version constraint %q of plugin %q is not understood", fault.ErrUsage, ref.Constraint, ref.Name)
	}
	exact, one := strings.CutPrefix(text, "=")
	if _, err := semver.StrictNewVersion(exact); one && err == nil || slices.Contains(have, exact) {
		return func(v *semver.Version) bool { return v.Original() == exact }, nil
	}
	return constraint.Check, nil
}

// choose offers the candidates of the reference's name that satisfy its constraint,
// newest first, to take, until it accepts one. The error is that for which the newest was
// passed over; or, if there was none, why the installed ones cannot be listed, or a
// [*zoo.MissingPluginError].
func choose(list []candidate, ref catalog.PluginRef, take func(*candidate) error) (*candidate, error) {
	var have []string
	for i := range list {
		if c := &list[i]; c.about.Name == ref.Name && c.version != nil {
			have = append(have, c.about.Version)
		}
	}
	satisfied, err := satisfies(ref, have)
	if err != nil {
		return nil, err
	}
	var first, unlisted error
	for i := range list {
		c := &list[i]
		switch {
		case !c.concerns(ref.Name):
			continue
		case c.version == nil:
			unlisted = cmp.Or(unlisted, c.problem)
			continue
		case !satisfied(c.version):
			continue
		}
		err := c.problem
		if err == nil {
			err = take(c)
		}
		if err == nil {
			return c, nil
		}
		first = cmp.Or(first, err)
	}
	return nil, cmp.Or[error](first, unlisted, &zoo.MissingPluginError{Name: ref.Name, Constraint: cmp.Or(ref.Constraint, "*"), Have: have})
}

// anyCandidate accepts whatever [choose] offers.
func anyCandidate(*candidate) error { return nil }

// Describe returns what [roster.Find] would find, without starting anything.
func (r *roster) Describe(ctx context.Context, ref catalog.PluginRef) (zoo.Description, error) {
	list, err := r.candidates(ctx)
	if err != nil {
		return zoo.Description{}, err
	}
	c, err := choose(list, ref, anyCandidate)
	if err != nil {
		return zoo.Description{}, r.advise(ref, err)
	}
	return c.about, nil
}

// Find returns the newest plugin of the reference's name whose version satisfies its
// constraint, and that works: one that does not start is passed over, with a warning to
// the logger unless the error tells of it. An empty constraint takes any version that is
// not a prerelease. Where there is none, the error is as for [choose].
func (r *roster) Find(ctx context.Context, ref catalog.PluginRef) (zoo.Plugin, zoo.Description, error) {
	plugin, c, err := r.find(ctx, ref)
	if err != nil {
		return nil, zoo.Description{}, err
	}
	return plugin, c.about, nil
}

// find is Find that tells of the program, too.
func (r *roster) find(ctx context.Context, ref catalog.PluginRef) (zoo.Plugin, *candidate, error) {
	list, err := r.candidates(ctx)
	if err != nil {
		return nil, nil, err
	}
	var plugin zoo.Plugin
	type failure struct {
		plugin string
		err    error
	}
	var failures []failure
	c, err := choose(list, ref, func(c *candidate) (err error) {
		if context.Cause(ctx) != nil {
			return context.Cause(ctx)
		}
		if plugin, err = r.open(ctx, c); err != nil {
			failures = append(failures, failure{c.String(), err})
		}
		return err
	})
	if context.Cause(ctx) != nil {
		return nil, nil, context.Cause(ctx)
	}
	for _, f := range failures {
		if f.err != err {
			r.logger.Warn("passing over a plugin that does not work", "plugin", f.plugin, "err", f.err)
		}
	}
	if err != nil {
		return nil, nil, r.advise(ref, err)
	}
	return plugin, c, nil
}

// open returns a candidate's plugin, started if it runs in a process of its own.
func (r *roster) open(ctx context.Context, c *candidate) (zoo.Plugin, error) {
	if c.stored == nil {
		p, _, err := r.builtin.Find(ctx, catalog.PluginRef{Name: c.about.Name, Constraint: "=" + c.about.Version})
		return p, err
	}
	client, err := r.client(c.stored)
	if err != nil {
		return nil, err
	}
	p, err := client.Resolve(ctx)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", c, explainRefusal(err, c.stored.Path))
	}
	about, err := p.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", c, err)
	}
	if pluginID(about) != pluginID(c.about) || about.Operations != c.about.Operations {
		return nil, &zoo.PluginError{Name: c.about.Name, Version: c.about.Version, Err: fmt.Errorf("it now says that it is %s %s", about.Name, about.Version)}
	}
	return p, nil
}

// errClosedZoo reports the use of an installed plugin after [Zoo.Close].
var errClosedZoo = fmt.Errorf("%w: the plugins have been closed", fault.ErrUsage)

// client returns the client of a plugin of the store.
func (r *roster) client(p *zoo.StoredPlugin) (*rpc.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosedZoo
	}
	key := pinned{p.Path, p.SHA256}
	c, ok := r.clients[key]
	if !ok {
		c = rpc.New(rpc.Options{Path: p.Path, SHA256: p.SHA256, Logger: r.logger})
		r.clients[key] = c
	}
	return c, nil
}

// drop closes the clients of a plugin, whose program is about to change.
func (r *roster) drop(name, version string) {
	dir := r.store.PluginDir(name, version)
	r.end(func(p pinned) bool { return filepath.Dir(p.path) == dir })
}

// close ends the processes of all plugins.
func (r *roster) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.end(func(pinned) bool { return true })
}

// end closes the clients of some programs and waits for the end of their processes.
func (r *roster) end(which func(pinned) bool) {
	r.mu.Lock()
	var ending sync.WaitGroup
	for p, c := range r.clients {
		if which(p) {
			delete(r.clients, p)
			ending.Go(func() { _ = c.Close() }) // which returns nil
		}
	}
	r.mu.Unlock()
	ending.Wait()
}
