package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// FindLock returns the lock file that is in force in a folder: the zoo.lock in it or in
// the nearest of its parents that has one, or "" where none has. A folder that may not be
// looked into says nothing about those below.
func FindLock(dir string) string {
	if whole, err := filepath.Abs(dir); err == nil {
		dir = whole
	}
	for {
		file := filepath.Join(dir, catalog.LockFile)
		if _, err := os.Lstat(file); err == nil { // be it a link that leads nowhere
			return file
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// ReadLock reads a lock file. Errors match zoo.ErrNotFound, zoo.ErrNotPermitted or
// zoo.ErrIntegrity; one that is not a file is zoo.ErrUsage.
func ReadLock(file string) (*catalog.Lock, error) {
	data, err := readAtMost(file, catalog.MaxLockBytes)
	switch {
	case errors.Is(err, fault.ErrNotFound):
		err = fault.WithHint(err, "`zoo lock NAME...` writes one, --lock names another, --no-lock goes without")
	case err != nil && fault.Hint(err) == "":
		err = fault.WithHint(err, "name another lock file with --lock, or go without with --no-lock")
	}
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	l, err := catalog.ParseLock(data)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", file, err)
	}
	return l, nil
}

// WriteLock writes a lock file, whole or not at all. Where file is a link, what it leads
// to is replaced, and a file that is there keeps its permissions.
func WriteLock(ctx context.Context, file string, l *catalog.Lock) error {
	data, err := l.Encode()
	if err != nil {
		return err
	}
	perm := os.FileMode(0o644)
	if _, err := os.Lstat(file); err == nil {
		if file, err = filepath.EvalSymlinks(file); err != nil {
			return fault.WithHint(fmt.Errorf("lock file: %w", err), "it is a link that leads nowhere: remove it, or make what it leads to")
		}
		info, err := os.Stat(file)
		if err != nil {
			return atomicfile.MapError(file, err)
		}
		perm = info.Mode().Perm()
	}
	if err := atomicfile.WriteFile(ctx, file, data, atomicfile.Options{Perm: perm}); err != nil {
		return fault.WithHint(fmt.Errorf("lock file: %w", err), "name a file in a folder that can be written with --lock")
	}
	return nil
}

// UpdateLock changes a lock file, which is made if there is none. Others who use the same
// store wait meanwhile, and nothing that they have written is lost.
func (z *Zoo) UpdateLock(ctx context.Context, file string, change func(*catalog.Lock) error) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	waiting := func() { z.set.events.Notice(fmt.Sprintf("waiting for another process that writes %q", file)) }
	return z.store.WhileWriting(ctx, file, waiting, func() error {
		l, err := ReadLock(file)
		if errors.Is(err, fault.ErrNotFound) {
			l, err = &catalog.Lock{}, nil
		}
		if err != nil {
			return err
		}
		if err := change(l); err != nil {
			return err
		}
		return WriteLock(ctx, file, l)
	})
}

// loadLock reads the lock file of the settings, nil for none.
func loadLock(file string) (*catalog.Lock, error) {
	if file == "" {
		return nil, nil
	}
	return ReadLock(file)
}

// Locked returns what the lock file of [WithLock] says, or nil where there is none.
// It must not be modified.
func (z *Zoo) Locked() (*catalog.Lock, error) { return z.lock() }

// Lock installs what a reference stands for, as [Zoo.Pull] does, and puts it into a lock:
// the release, its source files and pack, and the version and the programs of its plugin.
// Of a plugin that is installed the program on this machine is pinned, and those for
// other machines that the catalog has; see [catalog.Lock.Set] for what becomes of earlier
// ones. It is not for a Zoo with a lock file, to which it would be bound: that is
// zoo.ErrUsage.
func (z *Zoo) Lock(ctx context.Context, l *catalog.Lock, ref string) (*catalog.LockedModel, error) {
	if z.set.lockFile != "" {
		return nil, fmt.Errorf("%w: what is to be locked must not be bound to a lock file", fault.ErrUsage)
	}
	done, err := z.Pull(ctx, ref)
	if err != nil {
		return nil, err
	}
	r := &done.Record
	plugin, err := z.lockedPlugin(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("%s@%s: %w", r.Name(), r.Version(), err)
	}
	source := r.Release.Source
	if r.Commit != "" {
		source.Revision = r.Commit
	}
	files := slices.Clone(r.Sources)
	for i := range files {
		files[i].Optional = false // it is there
	}
	l.Set(catalog.LockedModel{
		Name:    r.Name(),
		Version: r.Version(),
		Source:  catalog.LockedSource{Kind: source.Kind, Repository: source.Repository, Revision: source.Revision, Files: files},
		Recipe:  r.Release.Recipe,
		Plugin:  plugin.LockedVersion,
		Pack:    r.Pack,
	}, plugin)
	return l.Model(r.Name()), nil
}

// lockedPlugin returns what is to be locked of the plugin that made an installed model.
func (z *Zoo) lockedPlugin(ctx context.Context, r *zoo.Record) (catalog.LockedPlugin, error) {
	id := catalog.LockedVersion(r.Plugin)
	locked := catalog.LockedPlugin{LockedVersion: id}
	list, err := z.registry.candidates(ctx)
	if err != nil {
		return locked, err
	}
	c, err := choose(list, exactly(id), anyCandidate)
	if err != nil {
		return locked, err
	}
	if c.sha256() != r.Program {
		// Whoever has the lock would get another pack than it says.
		return locked, fault.WithHint(fmt.Errorf("%w: another program of plugin %s %s than the one that is taken has made its pack", fault.ErrIntegrity, id.Name, id.Version),
			fmt.Sprintf("run `zoo rm %[1]s` and `zoo pull %[1]s` to have the pack made anew", r.Name()))
	}
	if c.stored == nil {
		return locked, nil
	}
	locked.Programs = []catalog.LockedProgram{{OS: c.stored.OS, Arch: c.stored.Arch, SizeBytes: c.stored.SizeBytes, SHA256: c.stored.SHA256}}
	models, err := z.catalog()
	if err != nil {
		return locked, err
	}
	if p := models.FindPlugin(id.Name); p != nil {
		locked.Programs = append(locked.Programs, elsewhere(p, id.Version, locked.Programs[0])...)
	}
	return locked, nil
}

// elsewhere returns the programs of a version of a plugin of the catalog for other kinds
// of machines than that of a program, if it has that one, too.
func elsewhere(p *catalog.Plugin, version string, here catalog.LockedProgram) []catalog.LockedProgram {
	var others []catalog.LockedProgram
	same := false
	for _, v := range p.Versions {
		if v.Version != version {
			continue
		}
		for _, b := range v.Binaries {
			f := catalog.LockedProgram{OS: b.OS, Arch: b.Arch, SizeBytes: b.File().SizeBytes, SHA256: b.File().SHA256}
			if f == here {
				same = true
				continue
			}
			others = append(others, f)
		}
	}
	if !same {
		return nil
	}
	return others
}

// exactly refers to one version of a plugin.
func exactly(v catalog.LockedVersion) catalog.PluginRef {
	return catalog.PluginRef{Name: v.Name, Constraint: "=" + v.Version}
}

// runner refers to the plugins that run the pack that a plugin has made: that of the lock
// if the pack's model is locked, else those that [madeBy] refers to. The record is nil
// for the folder of a pack.
func (z *Zoo) runner(record *zoo.Record, id zoo.PluginID) catalog.PluginRef {
	if record != nil {
		if l, err := z.lock(); err == nil {
			if m := l.Model(record.Name()); m != nil {
				return exactly(m.Plugin)
			}
		}
	}
	return madeBy(id)
}

// obeys says whether an installed model is what is locked of it. The error is a
// [*catalog.LockError], or that of reading the lock file.
func (z *Zoo) obeys(record *zoo.Record) error {
	l, err := z.lock()
	if err != nil {
		return err
	}
	m := l.Model(record.Name())
	switch {
	case m == nil:
		return nil
	case m.Version != record.Version():
		return &catalog.LockError{Name: record.Name(), Reason: fmt.Sprintf("it is %s there, and %s here", m.Version, record.Version())}
	case m.Pack != record.Pack:
		return fault.WithHint(&catalog.LockError{Name: record.Name(), Reason: fmt.Sprintf("its pack is %s there, and %s is installed", m.Pack, record.Pack)},
			fmt.Sprintf("`zoo pull %[1]s` makes the pack that is locked, `zoo lock %[1]s` locks what the catalog has, --no-lock goes without the lock file", record.Name()))
	}
	return nil
}

// checkLocked makes sure that the pack in a folder is the one that is locked of its release.
func (z *Zoo) checkLocked(release *catalog.Release, dir string) error {
	l, err := z.lock()
	if err != nil {
		return err
	}
	m := l.Model(release.Model)
	if m == nil {
		return nil
	}
	pack, err := zoo.OpenPack(dir)
	if err != nil {
		return err
	}
	defer pack.Close()
	if got := pack.Digest(); got != m.Pack {
		return &catalog.LockError{Name: release.Model, Reason: fmt.Sprintf("its pack is %s there, and conversion has made %s", m.Pack, got)}
	}
	return nil
}

// lockOf says how a version of a model stands to the lock: [LockObeyed], [LockDiffers], or
// "" for a model that is not locked. The pack is "" where it is not installed.
func (z *Zoo) lockOf(name, version string, pack catalog.Digest) string {
	l, err := z.lock()
	if err != nil {
		return ""
	}
	m := l.Model(name)
	switch {
	case m == nil:
		return ""
	case version != m.Version || pack != "" && pack != m.Pack:
		return LockDiffers
	}
	return LockObeyed
}

// listed returns a release as the catalog has it, whatever is locked of it.
func (z *Zoo) listed(release *catalog.Release) (*catalog.Release, error) {
	if l, err := z.lock(); err != nil || l.Model(release.Model) == nil {
		return release, err
	}
	models, err := z.catalog()
	if err != nil {
		return nil, err
	}
	return models.Resolve(catalog.Ref{Name: release.Model, Constraint: "=" + release.Version})
}

// noteLocked tells those who have no lock on an installed model that its files are what
// somebody's lock file has chosen.
func (z *Zoo) noteLocked(set settings, record *zoo.Record) {
	if l, err := z.lock(); err != nil || !record.Locked || l.Model(record.Name()) != nil {
		return
	}
	source := record.Release.Source
	set.events.Notice(fmt.Sprintf("a lock file has chosen the files of %[1]s: %[2]s at %[3]s; `zoo rm %[1]s` and `zoo pull %[1]s` take those that %[4]q stands for",
		record.Name(), source.Repository, record.Commit, source.Revision))
}

// find returns the record of the installed version that a reference stands for under the lock.
func (z *Zoo) find(ref catalog.Ref) (*zoo.Record, error) {
	l, err := z.lock()
	if err != nil {
		return nil, err
	}
	if ref, err = l.Narrow(ref); err != nil {
		return nil, err
	}
	return z.store.Find(ref)
}

// resolveIn returns the release of a catalog that a reference stands for under the lock,
// bound to what is locked of it.
func (z *Zoo) resolveIn(models *catalog.Catalog, ref catalog.Ref) (*catalog.Release, error) {
	l, err := z.lock()
	if err != nil {
		return nil, err
	}
	if m, err := models.Find(ref.Name); err == nil {
		ref.Name = m.Name // the lock knows no aliases
	}
	if ref, err = l.Narrow(ref); err != nil {
		return nil, err
	}
	release, err := models.Resolve(ref)
	var none *catalog.NoVersionError
	if m := l.Model(ref.Name); m != nil && errors.As(err, &none) {
		return nil, &catalog.LockError{Name: ref.Name, Reason: fmt.Sprintf("it is %s there, and the catalog has no such version", m.Version)}
	}
	if err != nil {
		if l.Model(ref.Name) != nil {
			err = fault.WithHint(err, fmt.Sprintf("%s has it from another catalog: name that with --catalog", catalog.LockFile))
		}
		return nil, err
	}
	return release, l.Pin(release)
}
