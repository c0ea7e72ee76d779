package sdk

import (
	"cmp"
	"context"
	"errors"
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

	mu      sync.Mutex
	closed  bool
	clients map[pinned]*rpc.Client
}

// pinned is a program of the store: its path and digest.
type pinned struct{ path, sha256 string }

// candidate is a plugin that could be taken.
type candidate struct {
	about   zoo.Description
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
		if list[i].version, err = semver.StrictNewVersion(list[i].about.Version); err != nil {
			return nil, fmt.Errorf("plugin %q: version %q: %w", list[i].about.Name, list[i].about.Version, err)
		}
		if c := &list[i]; c.problem == nil {
			c.problem = lock.Admits(c.about.Name, c.about.Version, runtime.GOOS, runtime.GOARCH, c.sha256())
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.about.Name, b.about.Name), b.version.Compare(a.version))
	})
	return list, nil
}

// choose offers the candidates of the reference's name that satisfy its constraint,
// newest first, to take, until it accepts one. The error is that for which the newest was
// passed over, or a [*zoo.MissingPluginError] if there was none.
func choose(list []candidate, ref catalog.PluginRef, take func(*candidate) error) (*candidate, error) {
	text := cmp.Or(ref.Constraint, "*")
	constraint, err := semver.NewConstraint(text)
	if err != nil {
		return nil, fmt.Errorf("version constraint %q of plugin %q is not understood: %w", ref.Constraint, ref.Name, fault.ErrUsage)
	}
	missing := &zoo.MissingPluginError{Name: ref.Name, Constraint: text}
	var first error
	for i := range list {
		c := &list[i]
		switch {
		case c.about.Name != ref.Name:
			continue
		case !constraint.Check(c.version):
			missing.Have = append(missing.Have, c.about.Version)
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
	return nil, cmp.Or[error](first, missing)
}

// Describe returns what [roster.Find] would find, without starting anything.
func (r *roster) Describe(ctx context.Context, ref catalog.PluginRef) (zoo.Description, error) {
	list, err := r.candidates(ctx)
	if err != nil {
		return zoo.Description{}, err
	}
	c, err := choose(list, ref, func(*candidate) error { return nil })
	if err != nil {
		return zoo.Description{}, r.advise(ref, err)
	}
	return c.about, nil
}

// Find returns the newest plugin of the reference's name whose version satisfies its
// constraint, and that works: one that does not start is passed over, with a warning to
// the logger. An empty constraint takes any version that is not a prerelease. Where there
// is none, the error tells why the newest was passed over, or is a
// [*zoo.MissingPluginError].
func (r *roster) Find(ctx context.Context, ref catalog.PluginRef) (zoo.Plugin, zoo.Description, error) {
	list, err := r.candidates(ctx)
	if err != nil {
		return nil, zoo.Description{}, err
	}
	var plugin zoo.Plugin
	c, err := choose(list, ref, func(c *candidate) (err error) {
		if context.Cause(ctx) != nil {
			return context.Cause(ctx)
		}
		if plugin, err = r.open(ctx, c); err != nil {
			r.logger.Warn("passing over a plugin that does not work", "plugin", c.String(), "err", err)
		}
		return err
	})
	switch {
	case context.Cause(ctx) != nil:
		return nil, zoo.Description{}, context.Cause(ctx)
	case err != nil:
		return nil, zoo.Description{}, r.advise(ref, err)
	}
	return plugin, c.about, nil
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
		return nil, fmt.Errorf("plugin %s: %w", c, err)
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

// advise adds to an error about a missing plugin how to get it from the catalog.
func (r *roster) advise(ref catalog.PluginRef, err error) error {
	var missing *zoo.MissingPluginError
	if !errors.As(err, &missing) {
		return err
	}
	models, cerr := r.catalog()
	if cerr != nil {
		return err
	}
	lock, lerr := r.lock()
	if version := lock.PluginVersion(ref.Name); lerr == nil && ref.Constraint == "="+version && len(missing.Have) > 0 {
		err = fault.WithHint(err, fmt.Sprintf("the lock file names that version, and there is %s: lock the models anew with `zoo lock`, or go without the lock file with --no-lock", strings.Join(missing.Have, ", ")))
	}
	offered, _, oerr := offer(models, ref)
	var useless *UnfitPluginError
	var elsewhere *catalog.PlatformError
	var unsigned *UnsignedPluginError
	switch {
	case oerr == nil:
		name := ref.Name
		if newest, _, err := offer(models, catalog.PluginRef{Name: ref.Name}); err != nil || newest.Version != offered.Version {
			name += "@" + offered.Version
		}
		return fault.WithHint(err, fmt.Sprintf("run `zoo plugin install %s`", name))
	case errors.As(oerr, &useless), errors.As(oerr, &elsewhere), errors.As(oerr, &unsigned):
		return fault.WithHint(err, fmt.Sprintf("the catalog has it, but %v: %s", oerr, fault.Hint(oerr)))
	}
	return err
}

// offer returns the newest version of a plugin of the catalog that satisfies the
// constraint and that this host can use, and its program. Errors match zoo.ErrNotFound,
// zoo.ErrUsage for a constraint that is not understood, or are an [*UnsignedPluginError]
// where there is such a version.
func offer(models *catalog.Catalog, ref catalog.PluginRef) (catalog.PluginVersion, catalog.Binary, error) {
	var none catalog.PluginVersion
	constraint, err := semver.NewConstraint(cmp.Or(ref.Constraint, "*"))
	if err != nil {
		return none, catalog.Binary{}, fmt.Errorf("%w: version constraint %q of plugin %q is not understood", fault.ErrUsage, ref.Constraint, ref.Name)
	}
	p := models.FindPlugin(ref.Name)
	if p == nil {
		return none, catalog.Binary{}, fault.WithHint(fmt.Errorf("%w: the catalog has no plugin %q", fault.ErrNotFound, ref.Name),
			"`zoo plugin list` shows those of the catalog; one that you have as a file is installed with --from FILE")
	}
	var first error
	var have []string
	for _, v := range p.Versions {
		version, err := semver.StrictNewVersion(v.Version)
		if err != nil {
			return none, catalog.Binary{}, err
		}
		have = append(have, v.Version)
		if !constraint.Check(version) {
			continue
		}
		err = unfit(zoo.PluginID{Name: p.Name, Version: v.Version}, runtime.GOOS, runtime.GOARCH, v.Protocol, v.Operations)
		if err == nil {
			binary, berr := v.Binary(p.Name)
			switch {
			case berr == nil && !p.Signed:
				return none, catalog.Binary{}, &UnsignedPluginError{Plugin: zoo.PluginID{Name: p.Name, Version: v.Version}}
			case berr == nil:
				return v, binary, nil
			}
			err = berr
		}
		first = cmp.Or(first, err)
	}
	if first == nil {
		first = fault.WithHint(fmt.Errorf("%w: no version of plugin %q in the catalog satisfies %q", fault.ErrNotFound, ref.Name, cmp.Or(ref.Constraint, "*")),
			"ask for one of these: "+strings.Join(have, ", "))
	}
	return none, catalog.Binary{}, first
}
