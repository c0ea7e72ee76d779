package zoo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/filelock"
)

// Lock is the right to fetch, convert and install one release, held by one goroutine
// of one process at a time. The work goes
//
//	lock, err := store.Lock(ctx, model, version, waiting)
//	defer lock.Unlock()
//	record, err := store.Record(model, version) // somebody else may have been faster
//	dir, err := lock.CheckpointDir()            // fetch into it
//	stage, err := lock.Stage()                  // convert into it
//	pack, err := lock.Commit(ctx, stage, record, progress)
//
// Its methods are not safe for concurrent use.
type Lock struct {
	s              *Store
	model, version string
	file           *filelock.Lock
	stages         []string // names within the store
}

// Lock takes the lock of a release. While somebody else holds it, waiting, unless
// nil, is called once, and the call blocks until ctx ends. Then it removes what
// killed processes have left behind anywhere in the store. Errors are [ErrUsage] for
// a name or version that breaks the rules, [ErrNotPermitted] for a store that cannot
// be written, and the cause of ctx.
func (s *Store) Lock(ctx context.Context, model, version string, waiting func()) (*Lock, error) {
	if err := checkRelease(model, version); err != nil {
		return nil, err
	}
	file, err := s.acquire(ctx, lockName(model, version), waiting)
	if err != nil {
		return nil, err
	}
	s.sweep(ctx, model, version)
	return &Lock{s: s, model: model, version: version, file: file}, nil
}

// lockName returns the name of a release's lock in the store.
func lockName(model, version string) string {
	return locksDir + "/" + model + "@" + version + ".lock"
}

// CheckpointDir returns the folder for the release's source files, which it creates.
// What is in it stays from one pull to the next, so that a fetch can be resumed.
func (l *Lock) CheckpointDir() (string, error) {
	name := checkpointName(l.model, l.version)
	if l.file == nil {
		return "", errUnlocked
	}
	err := l.s.mkdir(name)
	if errors.Is(err, fs.ErrNotExist) {
		// The model's folder was just removed with the last other version in it.
		err = l.s.mkdir(name)
	}
	if err != nil {
		return "", err
	}
	return l.s.path(name), nil
}

// checkpointName returns the name of the folder of a release's source files in the store.
func checkpointName(model, version string) string {
	return path.Join(checkpointsDir, model, version)
}

// RemoveCheckpoint deletes the release's source files, if there are any.
func (l *Lock) RemoveCheckpoint() error {
	if l.file == nil {
		return errUnlocked
	}
	return l.s.removeTree(checkpointName(l.model, l.version), checkpointsDir+"/"+l.model)
}

// Stage creates an empty folder for a pack in the making. It is gone, with all in
// it, after [Lock.Unlock].
func (l *Lock) Stage() (string, error) {
	if l.file == nil {
		return "", errUnlocked
	}
	name := path.Join(tmpDir, stageName(l.model, l.version))
	if err := l.s.mkdir(name); err != nil {
		return "", err
	}
	l.stages = append(l.stages, name)
	return l.s.path(name), nil
}

// errUnlocked reports a use of a lock that has been given up.
var errUnlocked = fmt.Errorf("the lock has been given up: %w", fault.ErrUsage)

// stageName returns a fresh name for a staging folder of a release.
func stageName(model, version string) string { return model + "@" + version + "@" + rand.Text() }

// parseStage returns the release to which a staging folder belongs.
func parseStage(name string) (model, version string, ok bool) {
	parts := strings.Split(name, "@")
	if len(parts) != 3 || checkRelease(parts[0], parts[1]) != nil {
		return "", "", false
	}
	return parts[0], parts[1], true
}

// trashPrefix starts the names of folders in tmp that are being deleted.
const trashPrefix = ".trash-"

// Commit verifies the pack in a folder that [Lock.Stage] has made, moves it into the
// store with all files read-only, writes the record and returns the pack, open. A
// pack of the same digest that is in the store already stays, if it is undamaged.
//
// The record's Release must be the lock's and its Sources have digests; Pack, Plugin
// and Installed are filled in. When the release pins a pack digest, or the release
// was installed before from the same sources by the same plugin version, another
// digest is a [*PackDigestError]; a source that has another digest than the one
// recorded is a [*SourceChangedError]. On error the store is as it was. Once the pack
// has been verified the context ends nothing but waiting.
func (l *Lock) Commit(ctx context.Context, stage string, r Record, progress Progress) (*Pack, error) {
	if l.file == nil {
		return nil, errUnlocked
	}
	i := slices.IndexFunc(l.stages, func(name string) bool { return l.s.path(name) == filepath.Clean(stage) })
	if i < 0 || r.Release.Model != l.model || r.Release.Version != l.version {
		return nil, fmt.Errorf("commit of %q as %s@%s under the lock of %s@%s: %w", stage, r.Release.Model, r.Release.Version, l.model, l.version, fault.ErrUsage)
	}
	began, looks, err := l.inspect(ctx, stage, &r, progress)
	if err != nil {
		return nil, err
	}
	err = l.s.withPacks(ctx, func() error {
		if err := l.s.place(context.WithoutCancel(ctx), stage, &r); err != nil {
			return err
		}
		l.s.step("record")
		return l.s.writeRecord(&r)
	})
	if err != nil {
		return nil, err
	}
	l.s.step("stamp")
	p, err := openPack(l.s.PackDir(r.Pack), l.model)
	if err != nil {
		return nil, err
	}
	l.s.writeStamp(p, began, looks)
	return p, nil
}

// inspect verifies a staged pack and completes the record. It returns when it began
// and how the files looked then.
func (l *Lock) inspect(ctx context.Context, stage string, r *Record, progress Progress) (time.Time, []fileIdentity, error) {
	began := time.Now()
	fail := func(err error) (time.Time, []fileIdentity, error) { return began, nil, err }
	p, err := openPack(stage, l.model)
	if err != nil {
		return fail(err)
	}
	// Windows does not rename a folder while a file in it is open.
	defer p.Close()
	r.Pack, r.Plugin, r.Installed = p.digest, p.manifest.Plugin, began.UTC().Truncate(time.Second)
	if err := r.check(l.model, l.version); err != nil {
		return fail(fmt.Errorf("record of %s@%s: %w", l.model, l.version, err))
	}
	if want := r.Release.Pack; want != "" && want != r.Pack {
		return fail(&PackDigestError{Model: l.model, Version: l.version, Pinned: "the catalog", Want: want.String(), Got: r.Pack.String()})
	}
	old, err := l.s.Record(l.model, l.version)
	switch {
	case err == nil:
		if err := old.binds(r); err != nil {
			return fail(err)
		}
	case !errors.Is(err, fault.ErrNotFound) && !errors.Is(err, fault.ErrIntegrity):
		return fail(err)
	}
	looks, err := p.identities()
	if err != nil {
		return fail(err)
	}
	return began, looks, p.Verify(ctx, progress)
}

// place moves a verified pack to its place unless it is there already, undamaged.
func (s *Store) place(ctx context.Context, stage string, r *Record) error {
	if err := s.mkdir(packsDir); err != nil {
		return err
	}
	final := s.PackDir(r.Pack)
	s.step("pack")
	err := atomicfile.CommitDir(stage, final, atomicfile.DirOptions{ReadOnly: true})
	if exists, ok := errors.AsType[*atomicfile.ExistError](err); !ok || exists.Path != final {
		return err
	}
	p, err := s.Open(ctx, r, nil)
	if err == nil {
		return p.Close()
	}
	if !errors.Is(err, fault.ErrIntegrity) {
		return err
	}
	s.logger.Warn("replacing a damaged pack", "digest", r.Pack, "err", err)
	s.step("replace")
	if err := s.trash(packName(r.Pack)); err != nil {
		return err
	}
	s.step("replacement")
	return atomicfile.CommitDir(stage, final, atomicfile.DirOptions{ReadOnly: true})
}

// Unlock removes the lock's staging folders and gives the lock up. A second call
// does nothing.
func (l *Lock) Unlock() error {
	if l.file == nil {
		return nil
	}
	var errs []error
	for _, name := range l.stages {
		errs = append(errs, l.s.removeTree(name, ""))
	}
	errs = append(errs, l.file.Release())
	l.file, l.stages = nil, nil
	return errors.Join(errs...)
}

// sweepAge is how old a temporary file must be to be swept where no lock tells
// whether it is still in use.
const sweepAge = time.Hour

// sweep removes what killed processes have left behind. It is called by who holds
// the lock of a release, whose staging folders are therefore nobody's. Failures are
// logged: they cost room, nothing else.
func (s *Store) sweep(ctx context.Context, model, version string) {
	warn := func(what string, err error) {
		if err != nil {
			s.logger.Warn("cannot remove what is left over", "file", what, "err", err)
		}
	}
	entries, err := s.readDir(tmpDir)
	warn(tmpDir, err)
	for _, e := range entries {
		name := path.Join(tmpDir, e.Name())
		if strings.HasPrefix(e.Name(), trashPrefix) {
			warn(name, s.removeTree(name, ""))
			continue
		}
		m, v, ok := parseStage(e.Name())
		if !ok {
			continue // not ours
		}
		if m == model && v == version {
			warn(name, s.removeTree(name, ""))
			continue
		}
		lock, err := s.tryAcquire(ctx, lockName(m, v))
		if err != nil {
			continue // in use, or to be swept by the next one
		}
		warn(name, errors.Join(s.removeTree(name, ""), lock.Release()))
	}
	warn(referencesDir, s.sweepReferences(ctx, model, version))
	lock, err := s.tryAcquire(ctx, packsLock)
	if err != nil {
		return
	}
	warn(packsDir, errors.Join(s.sweepPacks(ctx), lock.Release()))
	for _, dir := range s.tempFolders() {
		_, err := atomicfile.CleanTemps(s.path(dir), sweepAge)
		warn(dir, err)
	}
}

// sweepPacks removes packs that no record refers to. The caller holds the lock on packs.
func (s *Store) sweepPacks(ctx context.Context) error {
	entries, err := s.readDir(packsDir)
	if err != nil || len(entries) == 0 {
		return err
	}
	used, known, err := s.usedPacks(ctx)
	if err != nil || !known {
		return err
	}
	for _, e := range entries {
		d, err := catalog.ParseDigest("sha256:" + e.Name())
		if err != nil || used[d] {
			continue // not a pack, or in use
		}
		if err := s.deletePack(d); err != nil {
			return err
		}
	}
	return nil
}

// usedPacks returns the packs that records refer to. It is not known when a record
// cannot be read.
func (s *Store) usedPacks(ctx context.Context) (used map[catalog.Digest]bool, known bool, err error) {
	records, failures, err := s.records(ctx)
	used = make(map[catalog.Digest]bool, len(records))
	for _, r := range records {
		used[r.Pack] = true
	}
	return used, err == nil && len(failures) == 0, err
}

// tempFolders lists the folders in which files are replaced.
func (s *Store) tempFolders() []string {
	folders := []string{"state", stampsDir, receiptsDir}
	for _, parent := range []string{modelsDir, packsDir} {
		entries, err := s.readDir(parent)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() {
				folders = append(folders, path.Join(parent, e.Name()))
			}
		}
	}
	return folders
}

// trash moves a file or folder of the store out of the way, to be deleted. One that
// is missing is fine.
func (s *Store) trash(name string) error {
	if err := s.mkdir(tmpDir); err != nil {
		return err
	}
	err := s.inRoot(func(root *os.Root) error {
		return root.Rename(name, path.Join(tmpDir, trashPrefix+rand.Text()))
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %q: %w", s.path(name), err)
	}
	return atomicfile.SyncDir(filepath.Dir(s.path(name)))
}

// removeTree deletes a file or folder of the store with all below it, and then its
// parent, unless "", if that is empty. What is missing is fine.
func (s *Store) removeTree(name, parent string) error {
	err := s.inRoot(func(root *os.Root) error {
		if err := root.RemoveAll(name); err != nil {
			return fmt.Errorf("remove %q: %w", s.path(name), err)
		}
		if parent != "" {
			_ = root.Remove(parent) // fails unless it is empty
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeFile deletes a file of the store. One that is missing is fine.
func (s *Store) removeFile(name string) error {
	err := s.inRoot(func(root *os.Root) error { return root.Remove(name) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
