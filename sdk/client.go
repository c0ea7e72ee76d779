package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/rpc"
	"github.com/zoo-sdk/zoo/zoo"
)

// maxCatalogFileBytes bounds what is read of a catalog file; the parser's own limit lies below it.
const maxCatalogFileBytes = 64 << 20

// Zoo is a store with a catalog, plugins and backends: everything that can be
// done with models before and beside running them. Its methods may be called by
// many goroutines, and many processes may use one store. [Zoo.Close] ends what installed
// plugins have running.
type Zoo struct {
	set      settings
	store    *zoo.Store
	registry *roster
	backends []backends.Backend
	// catalog parses on first use: opening what is installed needs no catalog.
	catalog func() (*catalog.Catalog, error)
	// lock is read on first use, and nil where there is none.
	lock func() (*catalog.Lock, error)
}

// New returns the zoo that the options describe. Nothing is created or read but
// the environment; a store that is no folder is zoo.ErrUsage.
func New(opts ...Option) (*Zoo, error) {
	return newZoo(settings{}.with(opts), builtinPlugins(), builtinBackends())
}

// newZoo is New with other plugins and backends.
func newZoo(set settings, plugins []zoo.Plugin, devices []backends.Backend) (*Zoo, error) {
	home := cmp.Or(set.home, os.Getenv("ZOO_HOME"))
	store, err := zoo.OpenStore(home, set.logger)
	if err != nil {
		return nil, err
	}
	registry, err := zoo.NewRegistry(plugins...)
	if err != nil {
		return nil, err
	}
	keys := make([]catalog.Key, len(set.catalogKeys))
	for i, text := range set.catalogKeys {
		if keys[i], err = catalog.ParseKey(text); err != nil {
			return nil, err
		}
	}
	set.events = set.events.serial()
	lock := sync.OnceValues(func() (*catalog.Lock, error) { return loadLock(set.lockFile) })
	models := sync.OnceValues(func() (*catalog.Catalog, error) { return loadCatalog(set.catalogFile, keys) })
	return &Zoo{
		set:      set,
		store:    store,
		registry: &roster{builtin: registry, store: store, logger: set.logger, catalog: models, lock: lock, flags: set.hintFlags, clients: make(map[pinned]*rpc.Client)},
		backends: devices,
		catalog:  models,
		lock:     lock,
	}, nil
}

// Home returns the store's folder.
func (z *Zoo) Home() string { return z.store.Home() }

// Version returns the version of this module as the build recorded it, such as
// "v1.2.0", or "devel" and, where it is known, the commit.
func Version() string {
	const module = "github.com/zoo-sdk/zoo"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if info.Main.Path != module {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return cmp.Or(dep.Version, "devel")
			}
		}
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

// loadCatalog returns the built-in catalog with the models of a file laid over it. Where
// there are keys, one of them must have signed the file.
func loadCatalog(file string, keys []catalog.Key) (*catalog.Catalog, error) {
	builtin, err := catalog.Builtin()
	if err != nil || file == "" {
		return builtin, err
	}
	data, err := readAtMost(file, maxCatalogFileBytes)
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	var own *catalog.Catalog
	if len(keys) == 0 {
		own, err = catalog.Parse(data)
	} else {
		own, err = parseSigned(file, data, keys)
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w", file, err)
	}
	return overlay(own, builtin), nil
}

// parseSigned reads the catalog that was found in a file, whose signature lies beside it.
func parseSigned(file string, data []byte, keys []catalog.Key) (*catalog.Catalog, error) {
	signature, err := readAtMost(file+catalog.SignatureSuffix, catalog.MaxSignatureBytes)
	if err != nil && !errors.Is(err, fault.ErrNotFound) {
		return nil, fault.WithHint(fmt.Errorf("signature of the catalog: %w", err), "get the signature again from where the catalog is from")
	}
	return catalog.ParseSigned(data, signature, keys) // no bytes: there is no signature
}

// overlay returns the models and plugins of both catalogs. A name or alias of above hides the same one below.
// The signature is that of above.
func overlay(above, below *catalog.Catalog) *catalog.Catalog {
	taken := make(map[string]bool)
	for _, m := range above.Models {
		taken[m.Name] = true
		for _, alias := range m.Aliases {
			taken[alias] = true
		}
	}
	models := slices.Clone(above.Models)
	for _, m := range below.Models {
		if taken[m.Name] {
			continue
		}
		m.Aliases = slices.DeleteFunc(slices.Clone(m.Aliases), func(alias string) bool { return taken[alias] })
		models = append(models, m)
	}
	slices.SortFunc(models, func(a, b catalog.Model) int { return cmp.Compare(a.Name, b.Name) })
	plugins := slices.Clone(above.Plugins)
	for _, p := range below.Plugins {
		if above.FindPlugin(p.Name) == nil {
			plugins = append(plugins, p)
		}
	}
	slices.SortFunc(plugins, func(a, b catalog.Plugin) int { return cmp.Compare(a.Name, b.Name) })
	return &catalog.Catalog{Models: models, Plugins: plugins, Signature: above.Signature}
}

// readAtMost reads a file of the user's that should be small. Errors match
// zoo.ErrNotFound, zoo.ErrNotPermitted or zoo.ErrIntegrity where they are of that kind.
func readAtMost(file string, limit int64) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w: no file %q", fault.ErrNotFound, file)
	case err != nil:
		return nil, atomicfile.MapError(file, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %q is not a file", fault.ErrUsage, file)
	case info.Size() > limit:
		return nil, fmt.Errorf("%w: %q has %d bytes, more than %d", fault.ErrIntegrity, file, info.Size(), limit)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, atomicfile.MapError(file, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1)) // it may have grown
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: %q has more than %d bytes", fault.ErrIntegrity, file, limit)
	}
	return data, atomicfile.MapError(file, err)
}

// origins lists the places that files come from under the settings.
func (s settings) origins() ([]download.Origin, error) {
	for _, dir := range s.from {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%w: no folder %q to take the checkpoint from", fault.ErrNotFound, dir)
		}
	}
	return download.StandardOrigins(download.Environment{
		Getenv:    s.getenv,
		Offline:   s.offline,
		Dirs:      s.from,
		UserAgent: "zoo/" + Version(),
	})
}

// getenv is os.Getenv but for what options set.
func (s settings) getenv(name string) string {
	switch {
	case name == "HF_ENDPOINT" && s.endpoint != "":
		return s.endpoint
	case name == "HF_TOKEN" && s.token != "":
		return string(s.token)
	}
	return os.Getenv(name)
}

// target is what a name or a path stands for: exactly one of its fields is set.
type target struct {
	// dir is the folder of a pack outside of the store.
	dir string
	// record is an installed model.
	record *zoo.Record
	// release is a model of the catalog that is not installed.
	release *catalog.Release
}

// locate finds out what a user means: a path, an installed model, a model of the
// catalog, or the folder of a pack, in this order, of models the version that is locked.
// The catalog is read only if the first two do not apply.
func (z *Zoo) locate(name string) (target, error) {
	if strings.ContainsAny(name, `/\`) || name == "." || name == ".." {
		return target{dir: name}, nil
	}
	ref, err := catalog.ParseRef(name)
	if err != nil {
		if isPack(name) {
			return target{dir: name}, nil
		}
		return target{}, err
	}
	record, err := z.find(ref)
	if err == nil {
		return target{record: record}, nil
	}
	var lockedOut *catalog.LockedOutError
	if !errors.Is(err, fault.ErrNotFound) || errors.As(err, &lockedOut) {
		return target{}, err
	}
	models, err := z.catalog()
	if err != nil {
		return target{}, err
	}
	if m, err := models.Find(ref.Name); err == nil && m.Name != ref.Name {
		ref.Name = m.Name // the store knows no aliases
		if record, err := z.find(ref); err == nil {
			return target{record: record}, nil
		}
	}
	release, err := z.resolveIn(models, ref)
	if err != nil {
		if isPack(name) {
			return target{dir: name}, nil
		}
		return target{}, err
	}
	return target{release: release}, nil
}

// isPack reports whether a folder looks like a pack.
func isPack(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, zoo.ManifestFile))
	return err == nil && info.Mode().IsRegular()
}

// resolve returns the release that the catalog names for a reference.
func (z *Zoo) resolve(name string) (*catalog.Release, error) {
	ref, err := catalog.ParseRef(name)
	if err != nil {
		return nil, err
	}
	models, err := z.catalog()
	if err != nil {
		return nil, err
	}
	return z.resolveIn(models, ref)
}

// Models returns the models of the catalog, sorted by name. They must not be modified.
func (z *Zoo) Models(ctx context.Context) ([]catalog.Model, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	models, err := z.catalog()
	if err != nil {
		return nil, err
	}
	return models.Models, nil
}
