package catalog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// LockFile is the usual name of a lock file.
const LockFile = "zoo.lock"

const (
	// lockSchema is the version of the lock files that this package reads and writes.
	lockSchema = 1
	// MaxLockBytes bounds a lock file.
	MaxLockBytes = 8 << 20
	// maxLocked bounds the models, the plugins, and the programs of a plugin in it.
	maxLocked = 10_000
)

// Lock binds names to what they stood for when it was made: a version, the source
// files, the pack that they were converted into, and the plugin that did. It can only
// narrow down what a catalog has: see [Lock.Pin]. A nil Lock binds nothing.
type Lock struct {
	// Models are sorted by name.
	Models []LockedModel
	// Plugins are those of the models, sorted by name and version.
	Plugins []LockedPlugin
}

// LockedModel is one model of a [Lock].
type LockedModel struct {
	// Name is the model's name; aliases are the catalog's business.
	Name string `json:"name"`
	// Version is the release.
	Version string `json:"version"`
	// Source holds the very files, with sizes and digests, at the commit they were of
	// where that is known.
	Source LockedSource `json:"source"`
	// Recipe holds the conversion settings.
	Recipe map[string]string `json:"recipe,omitempty"`
	// Plugin is the plugin that made the pack, and runs it.
	Plugin LockedVersion `json:"plugin"`
	// Pack is the digest of the pack.
	Pack Digest `json:"pack"`
}

// LockedSource is [Source] in a lock file.
type LockedSource struct {
	Kind       string `json:"kind"`
	Repository string `json:"repository"`
	Revision   string `json:"revision,omitempty"`
	Files      []File `json:"files"`
}

// LockedVersion is one version of a plugin. It can be compared with ==.
type LockedVersion struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// LockedPlugin says which programs a version of a plugin may be.
type LockedPlugin struct {
	LockedVersion
	// Programs has at most one for an operating system and an architecture. It is empty
	// for a plugin that was built in.
	Programs []LockedProgram `json:"programs,omitempty"`
}

// LockedProgram is the program of a plugin for one kind of machine.
type LockedProgram struct {
	// OS and Arch are as Go names them.
	OS   string `json:"os"`
	Arch string `json:"arch"`
	// SizeBytes and SHA256 are those of the file.
	SizeBytes int64  `json:"size"`
	SHA256    string `json:"sha256"`
}

// lockJSON is the form of a lock file.
type lockJSON struct {
	Schema  int            `json:"schema"`
	Models  []LockedModel  `json:"models"`
	Plugins []LockedPlugin `json:"plugins"`
}

// LockSchemaError reports a lock file that cannot be read. It matches fault.ErrIntegrity.
type LockSchemaError struct {
	// Err says what is wrong.
	Err error
}

// Error gives the reason.
func (e *LockSchemaError) Error() string { return fmt.Sprintf("lock file: %v", e.Err) }

// Is reports whether target is fault.ErrIntegrity.
func (e *LockSchemaError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says how to get a sound lock file.
func (e *LockSchemaError) Hint() string {
	return "restore the file, or delete it and write a new one with `zoo lock NAME...`"
}

// LockError reports a model or a plugin that is not what the lock file says. It matches
// fault.ErrIntegrity.
type LockError struct {
	// Name is the model or the plugin.
	Name string
	// Reason says what differs.
	Reason string
}

// Error names the model or the plugin and what differs.
func (e *LockError) Error() string {
	return fmt.Sprintf("%s is not what %s says: %s", e.Name, LockFile, e.Reason)
}

// Is reports whether target is fault.ErrIntegrity.
func (e *LockError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says how to accept the difference.
func (e *LockError) Hint() string {
	return "if the change is meant, run `zoo lock` with the names of the models that it concerns; --no-lock goes without the lock file"
}

// LockedOutError reports a version of a model that a lock file does not let in. It
// matches fault.ErrNotFound.
type LockedOutError struct {
	// Model is the model, Constraint what was asked for, and Version what is locked.
	Model, Constraint, Version string
}

// Error gives the constraint and the version.
func (e *LockedOutError) Error() string {
	return fmt.Sprintf("%s has %s at %s, which %q does not allow", LockFile, e.Model, e.Version, e.Constraint)
}

// Is reports whether target is fault.ErrNotFound.
func (e *LockedOutError) Is(target error) bool { return target == fault.ErrNotFound }

// Hint says how to get the other version.
func (e *LockedOutError) Hint() string {
	return fmt.Sprintf("run `zoo lock '%s@%s'` to lock that version, or go without the lock file with --no-lock", e.Model, e.Constraint)
}

// ParseLock reads a lock file. Every error is a [*LockSchemaError]: text that is not
// the JSON it should be or too large, unknown fields, names, paths, versions and digests
// that break their rules, files of unknown size or digest, what stands twice, and a
// model whose plugin is not listed.
func ParseLock(data []byte) (*Lock, error) {
	l, err := parseLock(data)
	if err != nil {
		return nil, &LockSchemaError{Err: err}
	}
	return l, nil
}

// parseLock is ParseLock with plain errors.
func parseLock(data []byte) (*Lock, error) {
	if len(data) > MaxLockBytes {
		return nil, fmt.Errorf("%d bytes are more than %d", len(data), MaxLockBytes)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var doc lockJSON
	if err := d.Decode(&doc); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	if doc.Schema != lockSchema {
		return nil, fmt.Errorf("schema version %d is not the supported version %d", doc.Schema, lockSchema)
	}
	// What is read must be all that stands there, under names that are spelled so, once.
	var text bytes.Buffer
	if err := json.Compact(&text, data); err != nil {
		return nil, err
	}
	again, err := encodeJSON(doc, "") // before it is sorted
	if err != nil {
		return nil, err
	}
	again = bytes.TrimSuffix(again, []byte("\n"))
	l := &Lock{Models: doc.Models, Plugins: doc.Plugins}
	l.sort()
	if err := l.check(); err != nil {
		return nil, err
	}
	if !bytes.Equal(text.Bytes(), again) {
		return nil, errors.New("a field stands twice or in another place than zoo puts it, or its name is spelled otherwise")
	}
	return l, nil
}

// encodeJSON writes JSON as lock files have it.
func encodeJSON(doc lockJSON, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(doc)
	return b.Bytes(), err
}

// Encode returns the text of a lock file, the same for the same lock.
func (l *Lock) Encode() ([]byte, error) {
	l.sort()
	if err := l.check(); err != nil {
		return nil, &LockSchemaError{Err: err}
	}
	doc := lockJSON{Schema: lockSchema, Models: append([]LockedModel{}, l.Models...), Plugins: append([]LockedPlugin{}, l.Plugins...)}
	data, err := encodeJSON(doc, "  ")
	if err == nil && len(data) > MaxLockBytes {
		err = &LockSchemaError{Err: fmt.Errorf("it would have %d bytes, more than %d", len(data), MaxLockBytes)}
	}
	return data, err
}

// sort brings everything into its order.
func (l *Lock) sort() {
	slices.SortFunc(l.Models, func(a, b LockedModel) int { return cmp.Compare(a.Name, b.Name) })
	for i := range l.Models {
		slices.SortFunc(l.Models[i].Source.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	}
	slices.SortFunc(l.Plugins, func(a, b LockedPlugin) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	for i := range l.Plugins {
		slices.SortFunc(l.Plugins[i].Programs, func(a, b LockedProgram) int {
			return cmp.Or(cmp.Compare(a.OS, b.OS), cmp.Compare(a.Arch, b.Arch))
		})
	}
}

// check applies the rules for a sorted lock.
func (l *Lock) check() error {
	if len(l.Models) > maxLocked || len(l.Plugins) > maxLocked {
		return fmt.Errorf("%d models and %d plugins, of which %d each are allowed", len(l.Models), len(l.Plugins), maxLocked)
	}
	for i := range l.Plugins {
		p := &l.Plugins[i]
		if err := p.check(); err != nil {
			return fmt.Errorf("plugin %q: %w", fault.Shorten(p.Name), err)
		}
		if i > 0 && p.LockedVersion == l.Plugins[i-1].LockedVersion {
			return fmt.Errorf("plugin %q: version %s stands twice", p.Name, p.Version)
		}
	}
	for i := range l.Models {
		m := &l.Models[i]
		err := m.check()
		switch {
		case err != nil:
		case i > 0 && m.Name == l.Models[i-1].Name:
			err = errors.New("it stands twice")
		case l.Plugin(m.Plugin.Name, m.Plugin.Version) == nil:
			err = fmt.Errorf("its plugin %s %s is not listed", m.Plugin.Name, m.Plugin.Version)
		}
		if err != nil {
			return fmt.Errorf("model %q: %w", fault.Shorten(m.Name), err)
		}
	}
	for _, p := range l.Plugins {
		if !l.uses(p.LockedVersion) {
			return fmt.Errorf("plugin %q: no model has version %s", p.Name, p.Version)
		}
	}
	return nil
}

// check applies the rules for a model.
func (m *LockedModel) check() error {
	if err := ValidateName(m.Name); err != nil {
		return err
	}
	if err := checkVersion(m.Version); err != nil {
		return err
	}
	if err := m.source().Validate(); err != nil {
		return err
	}
	for _, f := range m.Source.Files {
		// A file of no bytes has a digest, too.
		if f.SHA256 == "" || f.Optional {
			return fmt.Errorf("file %q has no digest, or is optional", f.Path)
		}
	}
	for key, value := range m.Recipe {
		if ValidateName(key) != nil || ValidateName(value) != nil {
			return fmt.Errorf("the setting %q: %q is not made of two names", fault.Shorten(key), fault.Shorten(value))
		}
	}
	if _, err := ParseDigest(string(m.Pack)); err != nil {
		return err
	}
	return m.Plugin.check()
}

// source returns the source in the form of a release.
func (m *LockedModel) source() Source {
	return Source{Kind: m.Source.Kind, Repository: m.Source.Repository, Revision: m.Source.Revision, Files: m.Source.Files}
}

// check applies the rules for a version of a plugin.
func (v *LockedVersion) check() error {
	if err := ValidateName(v.Name); err != nil {
		return err
	}
	return checkVersion(v.Version)
}

// check applies the rules for a plugin with sorted programs.
func (p *LockedPlugin) check() error {
	if err := p.LockedVersion.check(); err != nil {
		return err
	}
	if len(p.Programs) > maxBinaries {
		return fmt.Errorf("%d programs are more than %d", len(p.Programs), maxBinaries)
	}
	for i, b := range p.Programs {
		for _, name := range []string{b.OS, b.Arch} {
			if err := ValidateName(name); err != nil {
				return err
			}
		}
		if i > 0 && b.OS == p.Programs[i-1].OS && b.Arch == p.Programs[i-1].Arch {
			return fmt.Errorf("%s/%s stands twice", b.OS, b.Arch)
		}
		if _, err := ParseDigest(digestPrefix + b.SHA256); err != nil {
			return err
		}
		if b.SizeBytes < 1 || b.SizeBytes > maxBinaryBytes {
			return fmt.Errorf("the size %d is not 1 to %d", b.SizeBytes, int64(maxBinaryBytes))
		}
	}
	return nil
}

// checkVersion checks a full semantic version.
func checkVersion(version string) error {
	if _, err := semver.StrictNewVersion(version); err != nil || len(version) > maxNameBytes {
		return fmt.Errorf("the version %q is not a full semantic version such as 1.0.0", fault.Shorten(version))
	}
	return nil
}

// Model returns what is locked of a model, or nil.
func (l *Lock) Model(name string) *LockedModel {
	if l == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(l.Models, name, func(m LockedModel, name string) int { return cmp.Compare(m.Name, name) })
	if !ok {
		return nil
	}
	return &l.Models[i]
}

// Plugin returns what is locked of a version of a plugin, or nil.
func (l *Lock) Plugin(name, version string) *LockedPlugin {
	if l == nil {
		return nil
	}
	i := slices.IndexFunc(l.Plugins, func(p LockedPlugin) bool { return p.Name == name && p.Version == version })
	if i < 0 {
		return nil
	}
	return &l.Plugins[i]
}

// PluginVersion returns the newest version of a plugin that is locked, or "".
func (l *Lock) PluginVersion(name string) string {
	newest := ""
	if l != nil {
		for _, p := range l.Plugins {
			if p.Name == name && (newest == "" || compareVersions(p.Version, newest) > 0) {
				newest = p.Version
			}
		}
	}
	return newest
}

// Narrow returns a reference to exactly the version that is locked of the model it
// names, and the reference as it is if none is. A constraint that the version does not
// satisfy is a [*LockedOutError].
func (l *Lock) Narrow(ref Ref) (Ref, error) {
	m := l.Model(ref.Name)
	if m == nil {
		return ref, nil
	}
	if ref.Constraint != "" {
		constraint, err := semver.NewConstraint(ref.Constraint)
		if err != nil {
			return Ref{}, invalid("version constraint", ref.Constraint, "it is not understood")
		}
		v, err := semver.StrictNewVersion(m.Version)
		if err != nil {
			return Ref{}, err
		}
		if !constraint.Check(v) {
			return Ref{}, &LockedOutError{Model: m.Name, Constraint: ref.Constraint, Version: m.Version}
		}
	}
	return Ref{Name: ref.Name, Constraint: "=" + m.Version}, nil
}

// Pin binds a release of a catalog to what is locked of its model: the very files, at
// the commit they were of, the plugin's version and the pack. What the catalog says
// stays in force: a lock that contradicts it is a [*LockError], and the release is as it
// was. Where the catalog names a branch and no commit, the lock chooses a commit of the
// same repository. A release whose model is not locked stays as it is.
func (l *Lock) Pin(r *Release) error {
	m := l.Model(r.Model)
	if m == nil {
		return nil
	}
	if reason := m.contradicts(r); reason != "" {
		return &LockError{Name: r.Model, Reason: reason}
	}
	r.Source = m.source()
	r.Source.Files = slices.Clone(m.Source.Files)
	r.Plugin = PluginRef{Name: m.Plugin.Name, Constraint: "=" + m.Plugin.Version}
	r.Pack = m.Pack
	return nil
}

// contradicts says in which way the model is not a case of a release, or returns "".
func (m *LockedModel) contradicts(r *Release) string {
	differ := func(what, locked, listed string) string {
		return fmt.Sprintf("its %s is %s there, and %s in the catalog", what, cmp.Or(locked, "none"), cmp.Or(listed, "none"))
	}
	constraint, err := semver.NewConstraint(r.Plugin.Constraint)
	if err != nil {
		return err.Error()
	}
	version, err := semver.StrictNewVersion(m.Plugin.Version)
	if err != nil {
		return err.Error()
	}
	switch a, b := m.Source, r.Source; {
	case m.Version != r.Version:
		return differ("version", m.Version, r.Version)
	case a.Kind != b.Kind:
		return differ("kind of source", a.Kind, b.Kind)
	case a.Repository != b.Repository:
		return differ("repository", a.Repository, b.Repository)
	case b.Pinned() && a.Revision != b.Revision, a.Revision != b.Revision && !IsCommit(a.Revision):
		return differ("revision", a.Revision, b.Revision)
	case !maps.Equal(m.Recipe, r.Recipe):
		return differ("recipe", fmt.Sprint(m.Recipe), fmt.Sprint(r.Recipe))
	case m.Plugin.Name != r.Plugin.Name || !constraint.Check(version):
		return differ("plugin", m.Plugin.Name+" "+m.Plugin.Version, r.Plugin.Name+" "+r.Plugin.Constraint)
	case r.Pack != "" && m.Pack != r.Pack:
		return differ("pack", m.Pack.String(), r.Pack.String())
	}
	locked := make(map[string]File, len(m.Source.Files))
	for _, f := range m.Source.Files {
		locked[f.Path] = f
	}
	for _, f := range r.Source.Files {
		have, ok := locked[f.Path]
		switch {
		case !ok && !f.Optional:
			return fmt.Sprintf("file %q of the catalog is not there", f.Path)
		case !ok:
		case f.SHA256 != "" && f.SHA256 != have.SHA256:
			return differ("file "+f.Path, "sha256 "+have.SHA256, "sha256 "+f.SHA256)
		case f.SizeBytes != 0 && f.SizeBytes != have.SizeBytes:
			return differ("file "+f.Path, fmt.Sprintf("%d bytes", have.SizeBytes), fmt.Sprintf("%d bytes", f.SizeBytes))
		}
	}
	return ""
}

// Admits says whether a program may be a version of a plugin: nil if it is the one that
// is locked for this operating system and architecture, or if that version is not
// locked, and else a [*LockError]. An empty digest stands for a plugin that is built in.
func (l *Lock) Admits(name, version, system, arch, sha256 string) error {
	p := l.Plugin(name, version)
	if p == nil {
		return nil
	}
	e := &LockError{Name: fmt.Sprintf("plugin %s %s", name, version)}
	switch {
	case sha256 == "" && len(p.Programs) == 0:
		return nil
	case sha256 == "":
		e.Reason = "it is a program there, and built in here"
		return e
	case len(p.Programs) == 0:
		e.Reason = "it is built in there, and a program here"
		return e
	}
	for _, b := range p.Programs {
		if b.OS != system || b.Arch != arch {
			continue
		}
		if b.SHA256 == sha256 {
			return nil
		}
		e.Reason = fmt.Sprintf("its program for %s/%s has sha256 %s there, and %s here", system, arch, b.SHA256, sha256)
		return e
	}
	e.Reason = fmt.Sprintf("it has no program for %s/%s there", system, arch)
	return e
}

// Set puts a model and its plugin into the lock, in place of what it has under these
// names. Programs of the same version of the plugin for other kinds of machines stay,
// unless one for the same kind has changed, and so may the others have.
func (l *Lock) Set(m LockedModel, p LockedPlugin) {
	l.Models = append(slices.DeleteFunc(l.Models, func(o LockedModel) bool { return o.Name == m.Name }), m)
	if old := l.Plugin(p.Name, p.Version); old != nil && !p.conflicts(old) {
		for _, b := range old.Programs {
			if !slices.ContainsFunc(p.Programs, func(o LockedProgram) bool { return o.OS == b.OS && o.Arch == b.Arch }) {
				p.Programs = append(slices.Clip(p.Programs), b)
			}
		}
	}
	l.Plugins = append(slices.DeleteFunc(l.Plugins, func(o LockedPlugin) bool { return o.LockedVersion == p.LockedVersion }), p)
	l.prune()
	l.sort()
}

// conflicts reports whether two records of a version differ in a program for the same
// kind of machine, or in that only one is of a plugin that is built in.
func (p *LockedPlugin) conflicts(o *LockedPlugin) bool {
	for _, a := range p.Programs {
		for _, b := range o.Programs {
			if a.OS == b.OS && a.Arch == b.Arch && a.SHA256 != b.SHA256 {
				return true
			}
		}
	}
	return (len(p.Programs) == 0) != (len(o.Programs) == 0)
}

// Remove takes a model out of the lock, and its plugin if no other model has it. It
// reports whether the model was there.
func (l *Lock) Remove(name string) bool {
	n := len(l.Models)
	l.Models = slices.DeleteFunc(l.Models, func(m LockedModel) bool { return m.Name == name })
	l.prune()
	return len(l.Models) < n
}

// prune removes plugins that no model has.
func (l *Lock) prune() {
	l.Plugins = slices.DeleteFunc(l.Plugins, func(p LockedPlugin) bool { return !l.uses(p.LockedVersion) })
}

// uses reports whether a model has a version of a plugin.
func (l *Lock) uses(v LockedVersion) bool {
	return slices.ContainsFunc(l.Models, func(m LockedModel) bool { return m.Plugin == v })
}
