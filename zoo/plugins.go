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
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
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

// PluginError reports an installed plugin that is not as it was installed, which matches
// [ErrIntegrity], or that may not be read, which matches [ErrNotPermitted].
type PluginError struct {
	// Name and Version name the plugin. Version is "" where the versions of the plugin
	// cannot be listed, and Name, too, where no plugin of the store can.
	Name, Version string
	// Err says what is wrong.
	Err error
}

// Error gives the plugin and the reason.
func (e *PluginError) Error() string {
	switch {
	case e.Name == "":
		return fmt.Sprintf("the installed plugins cannot be listed: %v", e.Err)
	case e.Version == "":
		return fmt.Sprintf("the installed versions of plugin %s cannot be listed: %v", e.Name, e.Err)
	case e.refused():
		return fmt.Sprintf("plugin %s %s cannot be read: %v", e.Name, e.Version, e.Err)
	}
	return fmt.Sprintf("plugin %s %s is damaged: %v", e.Name, e.Version, e.Err)
}

// refused reports whether the system does not let the plugin be read.
func (e *PluginError) refused() bool { return errors.Is(e.Err, fault.ErrNotPermitted) }

// Is reports whether target is ErrIntegrity, or ErrNotPermitted if that is the reason.
func (e *PluginError) Is(target error) bool {
	if e.refused() {
		return target == fault.ErrNotPermitted
	}
	return target == fault.ErrIntegrity
}

// Hint says how to get a sound plugin, or at the plugin.
func (e *PluginError) Hint() string {
	switch {
	case e.refused():
		return fault.Hint(e.Err)
	case e.Version == "":
		return "see what lies in the folder " + path.Join(pluginsDir, e.Name) + " of the store; `zoo doctor` says where that is"
	}
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
// damaged is among them and says so, and so does a folder that cannot be listed, as a
// plugin without a version: that of one plugin, or, without a name either, that of all.
// What is no folder is none of the store's.
func (s *Store) Plugins(ctx context.Context) ([]StoredPlugin, error) {
	names, err := s.listPlugins("")
	if err != nil {
		return []StoredPlugin{unlisted("", err)}, context.Cause(ctx)
	}
	var all []StoredPlugin
	for _, n := range names {
		if catalog.ValidateName(n) != nil {
			continue // none of the store's
		}
		versions, err := s.listPlugins(n)
		if err != nil {
			all = append(all, unlisted(n, err))
			continue
		}
		for _, v := range versions {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			if checkRelease(n, v) != nil {
				continue
			}
			if p := s.plugin(n, v); p.Problem == nil || !s.isGone(pluginName(n, v)) {
				all = append(all, p)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b StoredPlugin) int {
		if c := cmp.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return semver.MustParse(b.Version).Compare(semver.MustParse(a.Version))
	})
	return all, nil
}

// unlisted stands for a folder of plugins that cannot be listed.
func unlisted(name string, err error) StoredPlugin {
	return StoredPlugin{PluginRecord: PluginRecord{Name: name}, Problem: &PluginError{Name: name, Err: err}}
}

// listPlugins returns the names of the folders in that of all plugins, or in that of the
// versions of one. A folder that is missing is empty.
func (s *Store) listPlugins(name string) ([]string, error) {
	name = path.Join(pluginsDir, name)
	var names []string
	err := s.inRoot(func(root *os.Root) error {
		entries, err := fs.ReadDir(root.FS(), name)
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
		return atomicfile.MapError(s.path(name), err)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// isGone reports whether the store has no such file or folder.
func (s *Store) isGone(name string) bool {
	return errors.Is(s.inRoot(func(root *os.Root) error {
		_, err := root.Lstat(name)
		return err
	}), fs.ErrNotExist)
}

// plugin looks at the folder of a plugin's version.
func (s *Store) plugin(name, version string) StoredPlugin {
	dir := pluginName(name, version)
	p := StoredPlugin{Path: s.path(path.Join(dir, programName(name)))}
	err := s.inRoot(func(root *os.Root) error {
		data, err := readCapped(root, path.Join(dir, pluginFile), maxPluginFileBytes)
		if err != nil {
			return atomicfile.MapError(s.path(path.Join(dir, pluginFile)), err)
		}
		if err := json.Unmarshal(data, &p.PluginRecord); err != nil {
			return err
		}
		if err := p.check(name, version); err != nil {
			return err
		}
		info, err := root.Lstat(path.Join(dir, programName(name)))
		if err != nil {
			return atomicfile.MapError(p.Path, err)
		}
		return p.checkProgram(info)
	})
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

// checkProgram makes sure that a program is a file of the right size that can be started.
func (r *PluginRecord) checkProgram(info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("its program is a %s: %w", kindOf(info), fault.ErrIntegrity)
	case info.Size() != r.SizeBytes:
		return fmt.Errorf("its program has %d bytes, not %d: %w", info.Size(), r.SizeBytes, fault.ErrIntegrity)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o111 == 0:
		return errors.New("its program has lost the right to be executed")
	}
	return nil
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
			return atomicfile.MapError(p.Path, err)
		}
		_, err = io.Copy(contextWriter{ctx, sum}, io.LimitReader(f, p.SizeBytes+1))
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
