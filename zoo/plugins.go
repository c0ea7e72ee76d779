package zoo

import (
	"cmp"
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
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/filelock"
)

const (
	pluginsDir = "plugins"
	// fetchedDir is the folder, beside the versions of a plugin, of what is being fetched.
	fetchedDir = ".fetched"
	// pluginFile is the name of a plugin's record in its folder.
	pluginFile = "plugin.json"
	// programPrefix starts the name of a plugin's program, so that it is never pluginFile.
	programPrefix = "zoo-plugin-"
	// maxPluginFileBytes bounds a plugin's record, and maxPluginTextBytes the texts in it.
	maxPluginFileBytes = 64 << 10
	maxPluginTextBytes = 4 << 10
	// maxProgramBytes bounds the program of a plugin.
	maxProgramBytes = 4 << 30
)

// PluginRecord says what is installed as a version of a plugin
// (plugins/NAME/VERSION/plugin.json).
type PluginRecord struct {
	// Name, Version, Title and Operations are as the plugin says; see [Description].
	Name       string `json:"name"`
	Version    string `json:"version"`
	Title      string `json:"title"`
	Operations int    `json:"operations"`
	// Protocol is the version of what hosts and plugins say to each other that it speaks.
	Protocol int `json:"protocol"`
	// OS and Arch say for which machines the program is, as Go names them.
	OS   string `json:"os"`
	Arch string `json:"arch"`
	// SHA256 and SizeBytes pin the program.
	SHA256    string `json:"sha256"`
	SizeBytes int64  `json:"size"`
	// Origin says in words where the program is from.
	Origin string `json:"origin"`
	// Installed is when.
	Installed time.Time `json:"installed"`
}

// ID names the plugin as packs do.
func (r *PluginRecord) ID() PluginID { return PluginID{Name: r.Name, Version: r.Version} }

// StoredPlugin is what the store has as a version of a plugin.
type StoredPlugin struct {
	// PluginRecord has nothing but Name and Version if the record cannot be read.
	PluginRecord
	// Path is the program.
	Path string
	// Problem says why it cannot be used, a [*PluginError], or is nil. The program's
	// bytes are not looked at: see [Store.VerifyPlugin].
	Problem error
}

// PluginError reports an installed plugin that is not as it was installed. It matches
// [ErrIntegrity].
type PluginError struct {
	Name, Version string
	// Err says what is wrong.
	Err error
}

// Error gives the plugin and the reason.
func (e *PluginError) Error() string {
	return fmt.Sprintf("plugin %s %s is damaged: %v", e.Name, e.Version, e.Err)
}

// Is reports whether target is ErrIntegrity.
func (e *PluginError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says how to get a sound plugin.
func (e *PluginError) Hint() string {
	return fmt.Sprintf("run `zoo plugin rm %s@%s`, and install it again from where it came", e.Name, e.Version)
}

// pluginName returns the name of the folder of a plugin's version in the store.
func pluginName(name, version string) string { return path.Join(pluginsDir, name, version) }

// PluginDir returns the folder of a plugin's version in the store, whether it is there or not.
func (s *Store) PluginDir(name, version string) string { return s.path(pluginName(name, version)) }

// programName returns the name of a plugin's program in its folder.
func programName(name string) string {
	if runtime.GOOS == "windows" {
		return programPrefix + name + ".exe"
	}
	return programPrefix + name
}

// Plugins returns the plugins in the store, sorted by name, newest first. One that is
// damaged is among them and says so.
func (s *Store) Plugins(ctx context.Context) ([]StoredPlugin, error) {
	names, err := s.readDir(pluginsDir)
	if err != nil {
		return nil, err
	}
	var all []StoredPlugin
	for _, n := range names {
		if catalog.ValidateName(n.Name()) != nil {
			continue // none of the store's
		}
		versions, err := s.readDir(path.Join(pluginsDir, n.Name()))
		if err != nil {
			return nil, err
		}
		for _, v := range versions {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			if checkRelease(n.Name(), v.Name()) != nil {
				continue
			}
			p := s.plugin(n.Name(), v.Name())
			if p.Problem != nil && !s.exists(pluginName(n.Name(), v.Name())) {
				continue // removed meanwhile
			}
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b StoredPlugin) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), semver.MustParse(b.Version).Compare(semver.MustParse(a.Version)))
	})
	return all, nil
}

// plugin looks at the folder of a plugin's version.
func (s *Store) plugin(name, version string) StoredPlugin {
	p := StoredPlugin{Path: s.path(path.Join(pluginName(name, version), programName(name)))}
	data, err := s.readFile(path.Join(pluginName(name, version), pluginFile), maxPluginFileBytes)
	if err == nil {
		err = json.Unmarshal(data, &p.PluginRecord)
	}
	if err == nil {
		err = p.check(name, version)
	}
	if err == nil {
		err = s.checkProgram(&p.PluginRecord)
	}
	if err != nil {
		p.PluginRecord = PluginRecord{Name: name, Version: version}
		p.Problem = &PluginError{Name: name, Version: version, Err: err}
	}
	return p
}

// check applies the rules for the record of this plugin.
func (r *PluginRecord) check(name, version string) error {
	if r.Name != name || r.Version != version {
		return fmt.Errorf("its record is for %.80q %.80q: %w", r.Name, r.Version, fault.ErrUsage)
	}
	for _, n := range []string{r.OS, r.Arch} {
		if err := catalog.ValidateName(n); err != nil {
			return fmt.Errorf("operating system and architecture: %w", err)
		}
	}
	if _, err := catalog.ParseDigest("sha256:" + r.SHA256); err != nil {
		return err
	}
	switch {
	case r.SizeBytes < 1 || r.SizeBytes > maxProgramBytes:
		return fmt.Errorf("a program of %d bytes: %w", r.SizeBytes, fault.ErrUsage)
	case r.Protocol < 1 || r.Operations < 0:
		return fmt.Errorf("protocol %d, operations %d: %w", r.Protocol, r.Operations, fault.ErrUsage)
	}
	for _, text := range []string{r.Title, r.Origin} {
		if len(text) > maxPluginTextBytes || strings.ContainsFunc(text, unicode.IsControl) {
			return fmt.Errorf("a text that is longer than %d bytes or no line: %w", maxPluginTextBytes, fault.ErrUsage)
		}
	}
	return nil
}

// checkProgram makes sure that there is a program of the right size.
func (s *Store) checkProgram(r *PluginRecord) error {
	return s.inRoot(func(root *os.Root) error {
		info, err := root.Lstat(path.Join(pluginName(r.Name, r.Version), programName(r.Name)))
		switch {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return fmt.Errorf("its program is a %s: %w", kindOf(info), fault.ErrIntegrity)
		case info.Size() != r.SizeBytes:
			return fmt.Errorf("its program has %d bytes, not %d: %w", info.Size(), r.SizeBytes, fault.ErrIntegrity)
		}
		return nil
	})
}

// VerifyPlugin reads the program of an installed plugin through. Errors are a
// [*PluginError] and the cause of ctx.
func (s *Store) VerifyPlugin(ctx context.Context, p StoredPlugin) error {
	if p.Problem != nil {
		return p.Problem
	}
	sum := sha256.New()
	err := s.inRoot(func(root *os.Root) error {
		f, err := root.Open(path.Join(pluginName(p.Name, p.Version), programName(p.Name)))
		if err != nil {
			return err
		}
		_, err = io.Copy(contextHash{ctx, sum}, io.LimitReader(f, p.SizeBytes+1))
		return errors.Join(err, f.Close())
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if got := hex.EncodeToString(sum.Sum(nil)); err == nil && got != p.SHA256 {
		err = fmt.Errorf("its program has sha256 %s, not %s", got, p.SHA256)
	}
	if err != nil {
		return &PluginError{Name: p.Name, Version: p.Version, Err: err}
	}
	return nil
}

// contextHash stops hashing when its context ends.
type contextHash struct {
	ctx context.Context
	w   io.Writer
}

// Write implements io.Writer.
func (h contextHash) Write(p []byte) (int, error) {
	if err := context.Cause(h.ctx); err != nil {
		return 0, err
	}
	return h.w.Write(p)
}

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
	entries, err := s.readDir(path.Join(pluginsDir, name, fetchedDir))
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, e := range entries {
		if checkRelease(name, e.Name()) == nil && s.hasFile(fetchedName(name, e.Name())) {
			versions = append(versions, e.Name())
		}
	}
	slices.SortFunc(versions, func(a, b string) int { return semver.MustParse(b).Compare(semver.MustParse(a)) })
	return versions, nil
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

// Install copies the program at file, whose size and digest the record pins, into the
// store, where it appears complete, verified and read-only, or not at all. Before that
// try is called with the path of the copy, which can be run; it completes the record,
// of which Name, Version, SHA256 and SizeBytes must stand and stay. A sound plugin of
// the same version and digest stays as it is; another one of the same version is
// replaced. What was fetched of the version is removed then. A file that is not what the
// record says is [ErrIntegrity].
func (l *PluginLock) Install(ctx context.Context, file string, r PluginRecord, try func(path string, r *PluginRecord) error) (*StoredPlugin, error) {
	if l.file == nil {
		return nil, errUnlocked
	}
	if err := checkRelease(r.Name, r.Version); err != nil {
		return nil, err
	}
	if r.Name != l.name {
		return nil, fmt.Errorf("install plugin %q under the lock of %q: %w", r.Name, l.name, fault.ErrUsage)
	}
	stage, err := l.stage()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(stage)
	program := filepath.Join(stage, programName(r.Name))
	if err := copyProgram(ctx, file, program, &r); err != nil {
		return nil, err
	}
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
	p, err := l.commit(ctx, stage, &r)
	if err != nil {
		return nil, err
	}
	// What stays costs room and nothing else.
	if err := l.RemoveFetched(version); err != nil {
		l.s.logger.Warn("cannot remove what was fetched", "plugin", name, "version", version, "err", err)
	}
	return p, nil
}

// copyProgram copies a program and checks it on the way.
func copyProgram(ctx context.Context, from, to string, r *PluginRecord) error {
	f, err := os.Open(from)
	if err != nil {
		return atomicfile.MapError(from, err)
	}
	defer f.Close()
	sum := sha256.New()
	return atomicfile.Write(ctx, to, atomicfile.Options{Perm: 0o755, ReadOnly: true, SizeBytes: r.SizeBytes}, func(w io.Writer) error {
		n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(f, r.SizeBytes+1))
		if err != nil {
			return err
		}
		if got := hex.EncodeToString(sum.Sum(nil)); n != r.SizeBytes || got != r.SHA256 {
			return fault.WithHint(fmt.Errorf("%w: program %q of plugin %s %s has sha256 %s, not %s", fault.ErrIntegrity, from, r.Name, r.Version, got, r.SHA256),
				"get it again from where it came")
		}
		return nil
	})
}

// commit moves a complete folder to its place.
func (l *PluginLock) commit(ctx context.Context, stage string, r *PluginRecord) (*StoredPlugin, error) {
	final := pluginName(r.Name, r.Version)
	if l.s.exists(final) {
		old := l.s.plugin(r.Name, r.Version)
		if old.Problem == nil && old.SHA256 == r.SHA256 && l.s.VerifyPlugin(ctx, old) == nil {
			return &old, nil
		}
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
