package sdk

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/rpc"
	"github.com/zoo-sdk/zoo/zoo"
)

// InstallPlugin installs the newest version of a plugin of the catalog that satisfies a
// reference ("name" or "name@constraint") and that this host can use, or the locked one
// where a lock file has one and nothing else is asked for, or finds it installed. The
// program is fetched as source files are, held against the digest that the catalog pins,
// and started once, to ask it who it is. A call that was cut short goes on where it
// stopped. A plugin of a catalog that is neither built in nor signed (see
// [WithCatalogKeys]) is an [*UnsignedPluginError].
func (z *Zoo) InstallPlugin(ctx context.Context, ref string) (*PluginChange, error) {
	r, err := catalog.ParsePluginRef(ref)
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
	v, binary, err := offer(models, r)
	if err != nil {
		return nil, err
	}
	source, program := binary.Source, binary.File()
	if err := lock.Admits(r.Name, v.Version, binary.OS, binary.Arch, program.SHA256); err != nil {
		return nil, err
	}
	before, err := z.observe(ctx)
	if err != nil {
		return nil, err
	}
	held, err := z.lockPlugin(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	defer held.Unlock()
	sound, err := held.Installed(ctx, v.Version, program.SHA256)
	if err != nil {
		return nil, err
	}
	if sound == nil {
		dir, err := held.FetchDir(v.Version, program.SHA256)
		if err != nil {
			return nil, err
		}
		if err := z.fetchSource(ctx, z.set, source, dir); err != nil {
			return nil, explainOffline(err)
		}
	}
	record := zoo.PluginRecord{
		Name: r.Name, Version: v.Version, SHA256: program.SHA256, SizeBytes: program.SizeBytes,
		OS: binary.OS, Arch: binary.Arch, Protocol: v.Protocol,
		Origin: fmt.Sprintf("%s %s@%s %s", source.Kind, source.Repository, source.Revision, program.Path),
	}
	p, err := held.InstallFetched(ctx, program.Path, record, func(path string, r *zoo.PluginRecord) error {
		about, err := z.askListed(ctx, path, r, v.Operations)
		if err != nil {
			return err
		}
		r.Title, r.Operations = about.Title, about.Operations
		z.registry.drop(r.Name, r.Version)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return z.settle(ctx, before, p, sound)
}

// settle ends an installation: what was there already, sound, is started in place of what
// would have been tried.
func (z *Zoo) settle(ctx context.Context, before *observation, p, sound *zoo.StoredPlugin) (*PluginChange, error) {
	if sound != nil {
		if _, err := z.ask(ctx, sound.Path, sound.SHA256); err != nil {
			return nil, err
		}
	}
	return before.installed(ctx, p, sound)
}

// explainOffline gives a better hint to an error about a program that is not on this
// machine: no folder holds one as it holds a checkpoint.
func explainOffline(err error) error {
	var missing *download.MissingError
	if errors.As(err, &missing) && !missing.Network {
		return fault.WithHint(err, "the program is not on this machine: run again without --offline, or install it from a file with `zoo plugin install --from FILE`")
	}
	return err
}

// askListed asks the program that a catalog has as a version of a plugin, at a path, who it
// is, and makes sure that the catalog tells the truth.
func (z *Zoo) askListed(ctx context.Context, path string, r *zoo.PluginRecord, operations int) (zoo.Description, error) {
	lie := func(format string, args ...any) error {
		return fault.WithHint(fmt.Errorf("%w: the catalog has a program as %s %s for %s/%s, and %s", fault.ErrIntegrity, r.Name, r.Version, r.OS, r.Arch, fmt.Sprintf(format, args...)),
			"report it to who made the catalog")
	}
	head, err := readHead(path)
	if err != nil {
		return zoo.Description{}, err
	}
	switch system, arch := platform(head); {
	case system != "" && !isHost(system, arch):
		return zoo.Description{}, lie("it is one for %s/%s", system, arch)
	case !beginsAsProgram(head):
		return zoo.Description{}, lie("it is no program")
	}
	about, err := z.interview(ctx, path, r.SHA256)
	switch {
	case err != nil:
		return about, err
	case about.Name != r.Name || about.Version != r.Version:
		return about, lie("it says that it is %s %s", about.Name, about.Version)
	case about.Operations != operations:
		return about, lie("its programs are of version %d of the operations, not %d", about.Operations, operations)
	}
	return about, nil
}

// InstallPluginFile installs the program in a file as the plugin and the version that it
// says it is, in place of one that is installed as the same version. The file stays.
func (z *Zoo) InstallPluginFile(ctx context.Context, file string) (*PluginChange, error) {
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
	before, err := z.observe(ctx)
	if err != nil {
		return nil, err
	}
	held, err := z.lockPlugin(ctx, about.Name)
	if err != nil {
		return nil, err
	}
	defer held.Unlock()
	sound, err := held.Installed(ctx, about.Version, sum)
	if err != nil {
		return nil, err
	}
	record := zoo.PluginRecord{
		Name: about.Name, Version: about.Version, Title: about.Title, Operations: about.Operations,
		OS: runtime.GOOS, Arch: runtime.GOARCH, Protocol: rpc.Protocol, SHA256: sum, SizeBytes: size, Origin: "file " + file,
	}
	p, err := held.Install(ctx, file, record, func(path string, r *zoo.PluginRecord) error {
		// What starts where it lies need not start in the store.
		if _, err := z.ask(ctx, path, sum); err != nil {
			return err
		}
		z.registry.drop(r.Name, r.Version)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return z.settle(ctx, before, p, sound)
}

// ask starts a program and asks it who it is. A plugin that this host cannot use is an
// [*UnfitPluginError].
func (z *Zoo) ask(ctx context.Context, path, sha256 string) (zoo.Description, error) {
	about, err := z.interview(ctx, path, sha256)
	if err != nil {
		return about, err
	}
	return about, unfit(pluginID(about), runtime.GOOS, runtime.GOARCH, rpc.Protocol, about.Operations)
}

// interview is ask for a plugin that this host may not be able to use.
func (z *Zoo) interview(ctx context.Context, path, sha256 string) (zoo.Description, error) {
	client := rpc.New(rpc.Options{Path: path, SHA256: sha256, Logger: z.set.logger})
	about, err := client.Describe(ctx)
	_ = client.Close() // which returns nil
	return about, explainStart(explainRefusal(err, path))
}

// explainRefusal adds to the error of a program that the system has refused to start what
// can be the reason.
func explainRefusal(err error, path string) error {
	start, ok := errors.AsType[*rpc.StartError](err)
	if !ok || !errors.Is(err, fault.ErrNotPermitted) || fault.Hint(start.Err) != "" {
		return err
	}
	return fault.WithHint(err, fmt.Sprintf("see who may read and execute it, and whether the file system of %s is mounted noexec; ZOO_HOME, or --home, puts the store elsewhere", filepath.Dir(path)))
}

// explainStart adds to the error of a program that did not start what a plugin is.
func explainStart(err error) error {
	start, ok := errors.AsType[*rpc.StartError](err)
	if !ok || errors.Is(err, fault.ErrNotPermitted) || fault.Hint(start.Err) != "" {
		return err
	}
	return fault.WithHint(err, "a plugin is a program for this system whose main function calls rpc.Serve; `zoo plugin new` writes one")
}

// lockPlugin takes the lock of a plugin.
func (z *Zoo) lockPlugin(ctx context.Context, name string) (*zoo.PluginLock, error) {
	return z.store.LockPlugin(ctx, name, func() {
		z.set.events.Notice("waiting for another process that changes plugin " + name)
	})
}

// RemovePlugin removes the newest installed version of a plugin that satisfies a
// reference ("name" or "name@constraint"), damaged or not; a version that is spelled
// out goes before others that are equal to it. Where none is installed, what is left of
// an installation that was cut short is removed.
func (z *Zoo) RemovePlugin(ctx context.Context, ref string) (*PluginChange, error) {
	r, err := catalog.ParsePluginRef(ref)
	if err != nil {
		return nil, err
	}
	before, err := z.observe(ctx)
	if err != nil {
		return nil, err
	}
	found, err := z.removable(r, before.list)
	if err != nil {
		return nil, err
	}
	lock, err := z.lockPlugin(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	z.registry.drop(found.about.Name, found.about.Version)
	if err := lock.Remove(found.about.Version); err != nil {
		return nil, err
	}
	return before.removed(ctx, found)
}

// removable returns what a reference means to [Zoo.RemovePlugin], among all plugins and
// what has been fetched.
func (z *Zoo) removable(r catalog.PluginRef, list []candidate) (*candidate, error) {
	var installed []candidate
	for _, c := range list {
		if c.stored != nil && c.concerns(r.Name) {
			installed = append(installed, c)
		}
	}
	found, err := newestOf(installed, r)
	var missing *zoo.MissingPluginError
	if !errors.As(err, &missing) {
		return found, err
	}
	fetched, ferr := z.fetchedPlugins(r.Name)
	if ferr != nil {
		return nil, ferr
	}
	if found, err := newestOf(fetched, r); err == nil {
		return found, nil
	}
	hint := "`zoo plugin list` shows what is"
	if len(missing.Have) > 0 {
		hint = "installed are " + strings.Join(missing.Have, ", ")
	}
	return nil, fault.WithHint(fmt.Errorf("%w: no plugin %s is installed", fault.ErrNotFound, r), hint)
}

// newestOf returns the newest candidate that a reference means: whatever there is may
// go, prereleases and what does not work, too. Its error is that of [choose].
func newestOf(list []candidate, r catalog.PluginRef) (*candidate, error) {
	if i := slices.IndexFunc(list, func(c candidate) bool { return c.version != nil }); r.Constraint == "" && i >= 0 {
		return &list[i], nil
	}
	list = slices.Clone(list)
	for i := range list {
		if list[i].version != nil {
			list[i].problem = nil
		}
	}
	return choose(list, r, anyCandidate)
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
		list[i] = candidate{about: zoo.Description{Name: name, Version: v}, version: semver.MustParse(v)}
	}
	return list, nil
}
