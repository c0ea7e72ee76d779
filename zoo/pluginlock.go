package zoo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/filelock"
)

// PluginLock is the right to install and remove versions of one plugin. Its methods
// are not safe for concurrent use.
type PluginLock struct {
	s    *Store
	name string
	file *filelock.Lock
}

// LockPlugin takes the lock of a plugin; waiting and the errors are as for [Store.Lock].
// What killed processes have left of it is removed.
func (s *Store) LockPlugin(ctx context.Context, name string, waiting func()) (*PluginLock, error) {
	if err := catalog.ValidateName(name); err != nil {
		return nil, err
	}
	if err := catalog.ValidatePath(name); err != nil {
		return nil, err
	}
	file, err := s.acquire(ctx, locksDir+"/.plugin-"+name+".lock", waiting)
	if err != nil {
		return nil, err
	}
	l := &PluginLock{s: s, name: name, file: file}
	if _, err := atomicfile.CleanTemps(l.dir(), 0); err != nil {
		s.logger.Warn("cannot remove what is left over", "file", l.dir(), "err", err)
	}
	return l, nil
}

// dir returns the folder of all versions of the plugin.
func (l *PluginLock) dir() string { return l.s.path(path.Join(pluginsDir, l.name)) }

// Unlock gives the lock up. A second call does nothing.
func (l *PluginLock) Unlock() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Release()
	l.file = nil
	return err
}

// stage creates an empty folder for what is installed. It is the caller's to remove; one
// that stays is removed by who takes the lock next.
func (l *PluginLock) stage() (string, error) {
	if err := l.s.mkdir(path.Join(pluginsDir, l.name)); err != nil {
		if info, serr := os.Lstat(l.dir()); serr == nil && !info.IsDir() {
			return "", fault.WithHint(fmt.Errorf("%w: %q, where plugin %s would lie, is no folder", fault.ErrUsage, l.dir(), l.name), "move it out of the way")
		}
		return "", err
	}
	return atomicfile.MkdirTemp(l.dir())
}

// fetchedName returns the name of the folder, in the store, of what has been fetched of a
// plugin's version.
func fetchedName(name, version string) string {
	return path.Join(pluginsDir, name, fetchedDir, version)
}

// FetchDir returns the folder for the program of a version that has this sha256 while it
// is fetched, which it creates. What is in it stays from one call to the next, so that a
// fetch can be resumed, until the version is installed or removed; what is there of the
// same version under another digest is removed.
func (l *PluginLock) FetchDir(version, sha256 string) (string, error) {
	if l.file == nil {
		return "", errUnlocked
	}
	if err := checkRelease(l.name, version); err != nil {
		return "", err
	}
	if _, err := catalog.ParseDigest("sha256:" + sha256); err != nil {
		return "", err
	}
	parent := fetchedName(l.name, version)
	others, err := l.s.readDir(parent)
	if err != nil {
		return "", err
	}
	for _, o := range others {
		if o.Name() == sha256 {
			continue
		}
		if err := l.s.removeTree(path.Join(parent, o.Name()), ""); err != nil {
			return "", err
		}
	}
	name := path.Join(parent, sha256)
	return l.s.path(name), l.s.mkdir(name)
}

// RemoveFetched deletes what has been fetched of a version, if there is anything.
func (l *PluginLock) RemoveFetched(version string) error {
	if l.file == nil {
		return errUnlocked
	}
	if err := checkRelease(l.name, version); err != nil {
		return err
	}
	return l.s.removeTree(fetchedName(l.name, version), path.Join(pluginsDir, l.name, fetchedDir))
}

// FetchedPlugins returns the versions of a plugin, newest first, of which something has
// been fetched and not installed: what is left of installations that were cut short.
func (s *Store) FetchedPlugins(name string) ([]string, error) {
	if err := catalog.ValidateName(name); err != nil {
		return nil, err
	}
	if !s.isFolder(path.Join(pluginsDir, name)) {
		return nil, nil // none of the store's, or none at all
	}
	entries, err := s.listPlugins(path.Join(name, fetchedDir))
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, v := range entries {
		if checkRelease(name, v) == nil && s.hasFile(fetchedName(name, v)) {
			versions = append(versions, v)
		}
	}
	slices.SortFunc(versions, func(a, b string) int { return semver.MustParse(b).Compare(semver.MustParse(a)) })
	return versions, nil
}

// isFolder reports whether the store has a folder of this name.
func (s *Store) isFolder(name string) bool {
	return s.inRoot(func(root *os.Root) error {
		info, err := root.Lstat(name)
		if err == nil && !info.IsDir() {
			return fs.ErrExist
		}
		return err
	}) == nil
}

// hasFile reports whether there is a file below a folder of the store.
func (s *Store) hasFile(name string) bool {
	return errors.Is(s.inRoot(func(root *os.Root) error {
		return fs.WalkDir(root.FS(), name, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				return fs.ErrExist
			}
			return err
		})
	}), fs.ErrExist)
}

// Installed returns the version that is in the store if it has this sha256 and every byte
// of its program is sound, and nil otherwise.
func (l *PluginLock) Installed(ctx context.Context, version, sha256 string) (*StoredPlugin, error) {
	if l.file == nil {
		return nil, errUnlocked
	}
	if err := checkRelease(l.name, version); err != nil {
		return nil, err
	}
	p := l.s.plugin(l.name, version)
	if p.SHA256 != sha256 || l.s.VerifyPlugin(ctx, p) != nil {
		return nil, context.Cause(ctx)
	}
	return &p, nil
}

// Install copies the program at file, whose size and digest the record pins, into the
// store, where it appears complete, verified and read-only, or not at all. Right before
// that try is called with the path of the copy, which can be run; it completes the record,
// of which Name, Version, SHA256 and SizeBytes must stand and stay. A sound plugin of
// the same version and digest stays as it is, and nothing is read or tried; another one of
// the same version is replaced. What was fetched of the version is removed then. A file
// that is not what the record says is [ErrIntegrity].
func (l *PluginLock) Install(ctx context.Context, file string, r PluginRecord, try func(path string, r *PluginRecord) error) (*StoredPlugin, error) {
	return l.install(ctx, r, try, func(program string) (func(), error) {
		return func() {}, copyProgram(ctx, file, program, &r)
	})
}

// InstallFetched is [PluginLock.Install] with a file of [PluginLock.FetchDir], by its
// slash-separated path there. It is moved to its place, so that it takes no further room,
// unless it is one with a file elsewhere; where it cannot be installed it stays.
func (l *PluginLock) InstallFetched(ctx context.Context, file string, r PluginRecord, try func(path string, r *PluginRecord) error) (*StoredPlugin, error) {
	if err := catalog.ValidatePath(file); err != nil {
		return nil, err
	}
	return l.install(ctx, r, try, func(program string) (func(), error) {
		fetched := l.s.path(path.Join(fetchedName(r.Name, r.Version), r.SHA256, file))
		return l.moveProgram(ctx, fetched, program, &r)
	})
}

// install is Install with a function that brings the program to a path, and returns one
// that undoes it.
func (l *PluginLock) install(ctx context.Context, r PluginRecord, try func(path string, r *PluginRecord) error, bring func(program string) (undo func(), err error)) (*StoredPlugin, error) {
	if l.file == nil {
		return nil, errUnlocked
	}
	if r.Name != l.name {
		return nil, fmt.Errorf("install plugin %q under the lock of %q: %w", r.Name, l.name, fault.ErrUsage)
	}
	p, err := l.Installed(ctx, r.Version, r.SHA256)
	if err != nil {
		return nil, err
	}
	if p == nil {
		if p, err = l.replace(ctx, r, try, bring); err != nil {
			return nil, err
		}
	}
	// What stays costs room and nothing else.
	if err := l.RemoveFetched(r.Version); err != nil {
		l.s.logger.Warn("cannot remove what was fetched", "plugin", r.Name, "version", r.Version, "err", err)
	}
	return p, nil
}

// replace makes the folder of a version and moves it to its place.
func (l *PluginLock) replace(ctx context.Context, r PluginRecord, try func(path string, r *PluginRecord) error, bring func(program string) (undo func(), err error)) (p *StoredPlugin, err error) {
	stage, err := l.stage()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(stage)
	program := filepath.Join(stage, programName(r.Name))
	undo, err := bring(program)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			undo()
		}
	}()
	name, version := r.Name, r.Version
	if err := try(program, &r); err != nil {
		return nil, err
	}
	r.Installed = time.Now().UTC().Truncate(time.Second)
	if err := r.check(name, version); err != nil {
		return nil, fmt.Errorf("plugin %s %s: %w", name, version, err)
	}
	data, err := json.MarshalIndent(&r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("plugin %s %s: %w", name, version, err)
	}
	if err := atomicfile.WriteFile(ctx, filepath.Join(stage, pluginFile), append(data, '\n'), atomicfile.Options{}); err != nil {
		return nil, err
	}
	return l.commit(stage, &r)
}

// copyProgram copies a program and checks it on the way.
func copyProgram(ctx context.Context, from, to string, r *PluginRecord) error {
	f, err := os.Open(from)
	if err != nil {
		return atomicfile.MapError(from, err)
	}
	defer f.Close()
	return atomicfile.Write(ctx, to, atomicfile.Options{Perm: 0o755, ReadOnly: true, SizeBytes: r.SizeBytes}, func(w io.Writer) error {
		return r.checkBytes(w, f, from)
	})
}

// moveProgram moves a program that was fetched, checks it and makes it one that can be
// started. A file that has another name somewhere, such as in the cache of the hub's own
// tools, is copied: its mode and its bytes are not the store's alone.
func (l *PluginLock) moveProgram(ctx context.Context, from, to string, r *PluginRecord) (undo func(), err error) {
	info, err := os.Lstat(from)
	if err != nil {
		return nil, atomicfile.MapError(from, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %q is a %s", fault.ErrIntegrity, from, kindOf(info))
	}
	shared, err := isShared(from, info)
	if err != nil {
		return nil, atomicfile.MapError(from, err)
	}
	if shared {
		return func() {}, copyProgram(ctx, from, to, r)
	}
	if err := os.Rename(from, to); err != nil {
		return nil, atomicfile.MapError(to, err)
	}
	undo = func() {
		if err := os.Rename(to, from); err != nil {
			l.s.logger.Warn("cannot keep what was fetched", "plugin", r.Name, "version", r.Version, "err", err)
		}
	}
	f, err := os.Open(to)
	if err == nil {
		err = errors.Join(r.checkBytes(contextWriter{ctx, io.Discard}, f, from), f.Close())
	}
	if err == nil {
		err = os.Chmod(to, 0o755)
	}
	if err != nil {
		undo()
		return nil, atomicfile.MapError(to, err)
	}
	return undo, nil
}

// checkBytes reads a program, the file of this name, to a writer, and makes sure that it
// is the one that the record pins.
func (r *PluginRecord) checkBytes(w io.Writer, program io.Reader, file string) error {
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(program, r.SizeBytes+1))
	if err != nil {
		return err
	}
	has := ""
	switch got := hex.EncodeToString(sum.Sum(nil)); {
	case n > r.SizeBytes:
		has = fmt.Sprintf("more than %d bytes", r.SizeBytes)
	case n < r.SizeBytes:
		has = fmt.Sprintf("%d bytes, not %d", n, r.SizeBytes)
	case got != r.SHA256:
		has = fmt.Sprintf("sha256 %s, not %s", got, r.SHA256)
	default:
		return nil
	}
	return fault.WithHint(fmt.Errorf("%w: program %q of plugin %s %s has %s", fault.ErrIntegrity, file, r.Name, r.Version, has),
		"get it again from where it came")
}

// commit moves a complete folder to its place.
func (l *PluginLock) commit(stage string, r *PluginRecord) (*StoredPlugin, error) {
	final := pluginName(r.Name, r.Version)
	if l.s.exists(final) {
		l.s.step("replace plugin")
		if err := l.discard(r.Version); err != nil {
			return nil, err
		}
	}
	l.s.step("plugin")
	if err := atomicfile.CommitDir(stage, l.s.path(final), atomicfile.DirOptions{ReadOnly: true}); err != nil {
		return nil, err
	}
	p := l.s.plugin(r.Name, r.Version)
	if p.Problem != nil {
		return nil, p.Problem
	}
	return &p, nil
}

// discard deletes a version: first it is no longer there, and then its files go.
func (l *PluginLock) discard(version string) error {
	trash := path.Join(pluginsDir, l.name, atomicfile.TempName())
	err := l.s.inRoot(func(root *os.Root) error { return root.Rename(pluginName(l.name, version), trash) })
	if err != nil {
		return fmt.Errorf("remove plugin %s %s: %w", l.name, version, err)
	}
	if err := atomicfile.SyncDir(l.dir()); err != nil {
		return err
	}
	l.s.step("delete plugin")
	return l.s.removeTree(trash, "")
}

// Remove removes a version, damaged or not, and what has been fetched of it. One of which
// there is nothing is [ErrNotFound].
func (l *PluginLock) Remove(version string) error {
	if l.file == nil {
		return errUnlocked
	}
	if err := checkRelease(l.name, version); err != nil {
		return err
	}
	installed := l.s.exists(pluginName(l.name, version))
	if !installed && !l.s.exists(fetchedName(l.name, version)) {
		return fault.WithHint(fmt.Errorf("%w: plugin %s %s is not installed", fault.ErrNotFound, l.name, version), "`zoo plugin list` shows what is")
	}
	if installed {
		if err := l.discard(version); err != nil {
			return err
		}
	}
	if err := l.RemoveFetched(version); err != nil {
		return err
	}
	_ = l.s.inRoot(func(root *os.Root) error { return root.Remove(path.Join(pluginsDir, l.name)) }) // fails unless it is empty
	return nil
}
