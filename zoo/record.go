package zoo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
)

const (
	// recordSuffix follows the version in the name of a record's file.
	recordSuffix = ".json"
	// maxRecordBytes bounds a record.
	maxRecordBytes = 8 << 20
)

// Record says what is installed as a version of a model (models/NAME/VERSION.json).
type Record struct {
	// Release is the catalog's entry at the time; Release.Model and Release.Version name the record.
	Release catalog.Release `json:"release"`
	// Sources lists the fetched files with their sizes and digests, those that the
	// catalog did not know included. They bind every later fetch of the release.
	Sources []catalog.File `json:"sources"`
	// Commit is the commit behind a revision that is a branch or tag, or "".
	Commit string `json:"commit,omitempty"`
	// Pack is the digest of the pack.
	Pack catalog.Digest `json:"pack"`
	// Plugin made the pack.
	Plugin PluginID `json:"plugin"`
	// Program is the sha256 of the program that the plugin was, or "" if it was built in.
	Program string `json:"program,omitempty"`
	// Locked says that a lock file chose the commit, where the catalog names none.
	Locked bool `json:"locked,omitempty"`
	// Installed is when.
	Installed time.Time `json:"installed"`
}

// Name returns the model's name.
func (r *Record) Name() string { return r.Release.Model }

// Version returns the model's version.
func (r *Record) Version() string { return r.Release.Version }

// RecordError reports a record of the store that cannot be read. It matches
// [ErrIntegrity].
type RecordError struct {
	Model, Version string
	// Err says what is wrong.
	Err error
}

// Error gives the release and the reason.
func (e *RecordError) Error() string {
	return fmt.Sprintf("the record of %s@%s is damaged: %v", e.Model, e.Version, e.Err)
}

// Is reports whether target is ErrIntegrity.
func (e *RecordError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says how to get a sound record.
func (e *RecordError) Hint() string {
	return fmt.Sprintf("run `zoo rm %[1]s` and then `zoo pull %[1]s`", e.Model)
}

// SourceChangedError reports a source file that is not the one from which the
// release was made before. It matches [ErrIntegrity].
type SourceChangedError struct {
	Model, Version string
	// File is the path of the file, Want and Got its recorded and its present digest.
	File, Want, Got string
}

// Error gives the file and both digests.
func (e *SourceChangedError) Error() string {
	return fmt.Sprintf("file %q of %s@%s has changed since it was first fetched: sha256 was %s and is %s", e.File, e.Model, e.Version, e.Want, e.Got)
}

// Is reports whether target is ErrIntegrity.
func (e *SourceChangedError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says how to accept the change.
func (e *SourceChangedError) Hint() string {
	return fmt.Sprintf("if you trust the new file, run `zoo rm %[1]s` and then `zoo pull %[1]s`", e.Model)
}

// Installed returns all records, sorted by name, newest version first. Records that
// cannot be read are left out, with a warning to the logger.
func (s *Store) Installed(ctx context.Context) ([]Record, error) {
	records, failures, err := s.records(ctx)
	for _, f := range failures {
		s.logger.Warn("skipping a damaged record", "err", f)
	}
	return records, err
}

// records returns all records, and the errors of those that cannot be read.
func (s *Store) records(ctx context.Context) (records []Record, failures []error, err error) {
	models, err := s.readDir(modelsDir)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range models {
		if err := context.Cause(ctx); err != nil {
			return nil, nil, err
		}
		versions, err := s.versions(m.Name())
		if err != nil {
			return nil, nil, err
		}
		for _, v := range versions {
			r, err := s.Record(m.Name(), v.Original())
			switch {
			case errors.Is(err, fault.ErrNotFound): // removed meanwhile
			case errors.Is(err, fault.ErrIntegrity):
				failures = append(failures, err)
			case err != nil:
				return nil, nil, err
			default:
				records = append(records, *r)
			}
		}
	}
	return records, failures, nil
}

// versions returns the installed versions of a model, newest first, by the names of
// its records' files. Other files are none of the store's.
func (s *Store) versions(model string) ([]*semver.Version, error) {
	if catalog.ValidateName(model) != nil {
		return nil, nil
	}
	entries, err := s.readDir(path.Join(modelsDir, model))
	if err != nil {
		return nil, err
	}
	var versions []*semver.Version
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), recordSuffix)
		if !ok || checkRelease(model, name) != nil {
			continue
		}
		if v, err := semver.StrictNewVersion(name); err == nil {
			versions = append(versions, v)
		}
	}
	slices.SortFunc(versions, func(a, b *semver.Version) int {
		return cmp.Or(b.Compare(a), cmp.Compare(a.Original(), b.Original()))
	})
	return versions, nil
}

// Find returns the record of the newest installed version that satisfies a
// reference, by the rules of catalog.Catalog.Resolve. Aliases are the catalog's
// business. Errors are [*NotInstalledError], [ErrUsage] for a reference that breaks
// the rules, and a [*RecordError].
func (s *Store) Find(ref catalog.Ref) (*Record, error) {
	if err := catalog.ValidateName(ref.Name); err != nil {
		return nil, err
	}
	text := ref.Constraint
	if text == "" {
		text = "*"
	}
	constraint, err := semver.NewConstraint(text)
	if err != nil {
		return nil, fmt.Errorf("version constraint %q of model %q is not understood: %w", ref.Constraint, ref.Name, fault.ErrUsage)
	}
	versions, err := s.versions(ref.Name)
	if err != nil {
		return nil, err
	}
	missing := &NotInstalledError{Model: ref.Name, Constraint: ref.Constraint}
	for _, v := range versions {
		if constraint.Check(v) {
			return s.Record(ref.Name, v.Original())
		}
		missing.Have = append(missing.Have, v.Original())
	}
	return nil, missing
}

// Record returns the record of exactly this release. Errors are a
// [*NotInstalledError], [ErrUsage] for a name or version that breaks the rules, and
// a [*RecordError].
func (s *Store) Record(model, version string) (*Record, error) {
	if err := checkRelease(model, version); err != nil {
		return nil, err
	}
	data, err := s.readFile(recordName(model, version), maxRecordBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &NotInstalledError{Model: model, Constraint: version}
	case errors.Is(err, fault.ErrIntegrity):
		return nil, &RecordError{Model: model, Version: version, Err: err}
	case err != nil:
		return nil, err
	}
	var r Record
	err = json.Unmarshal(data, &r)
	if err == nil {
		err = r.check(model, version)
	}
	if err != nil {
		return nil, &RecordError{Model: model, Version: version, Err: err}
	}
	return &r, nil
}

// recordName returns the name of a record's file in the store.
func recordName(model, version string) string {
	return path.Join(modelsDir, model, version+recordSuffix)
}

// check applies the rules for a record of this release.
func (r *Record) check(model, version string) error {
	if r.Release.Model != model || r.Release.Version != version {
		return fmt.Errorf("it is for %.80q@%.80q: %w", r.Release.Model, r.Release.Version, fault.ErrUsage)
	}
	if _, err := catalog.ParseDigest(string(r.Pack)); err != nil {
		return err
	}
	if err := checkPlugin(r.Plugin); err != nil {
		return err
	}
	if r.Program != "" {
		if _, err := catalog.ParseDigest("sha256:" + r.Program); err != nil {
			return err
		}
	}
	return checkSources(r.Sources)
}

// checkSources checks fetched files, whose digests must be known.
func checkSources(sources []catalog.File) error {
	seen := map[string]bool{}
	for _, f := range sources {
		if err := checkEntry(ManifestFileEntry{Path: f.Path, SizeBytes: f.SizeBytes, SHA256: f.SHA256}); err != nil {
			return err
		}
		if seen[f.Path] {
			return fmt.Errorf("source %q is listed twice: %w", f.Path, fault.ErrUsage)
		}
		seen[f.Path] = true
	}
	return nil
}

// writeRecord writes a record that has been checked.
func (s *Store) writeRecord(r *Record) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return s.writeFile(recordName(r.Name(), r.Version()), b.Bytes(), atomicfile.Options{})
}

// binds reports whether next may take the place of r: the files they have in common
// are the same, and the same input to the same plugin gave the same pack.
func (r *Record) binds(next *Record) error {
	a, b := &r.Release.Source, &next.Release.Source
	if a.Kind != b.Kind || a.Repository != b.Repository || a.Revision != b.Revision {
		return nil // the catalog has moved on
	}
	known := make(map[string]string, len(r.Sources))
	for _, f := range r.Sources {
		known[f.Path] = f.SHA256
	}
	same := len(r.Sources) == len(next.Sources)
	for _, f := range next.Sources {
		want, ok := known[f.Path]
		if ok && want != f.SHA256 {
			return &SourceChangedError{Model: r.Name(), Version: r.Version(), File: f.Path, Want: want, Got: f.SHA256}
		}
		same = same && ok
	}
	if same && r.Plugin == next.Plugin && r.Program == next.Program && maps.Equal(r.Release.Recipe, next.Release.Recipe) && r.Pack != next.Pack {
		return &PackDigestError{Model: r.Name(), Version: r.Version(), Pinned: "the earlier conversion", Want: r.Pack.String(), Got: next.Pack.String()}
	}
	return nil
}
