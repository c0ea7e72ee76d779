package zoo

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// Names of the files with reference values; the last one may be missing.
const (
	GoldenFile        = "golden.json"
	GoldenTensorsFile = "golden.safetensors"
	QuestionsFile     = "questions.jsonl"
)

const (
	// referenceFile describes adopted reference values.
	referenceFile = "reference.json"
	// maxReferenceBytes bounds it.
	maxReferenceBytes = 8 << 20
)

// AdoptedReference says which reference values a release is held against in place of
// the catalog's (references/NAME/VERSION/reference.json), and whose they are.
type AdoptedReference struct {
	// Model and Version name the release.
	Model   string `json:"model"`
	Version string `json:"version"`
	// Sources and Recipe are what the values belong to: a pack that was made from
	// other files, or otherwise, is not held against them.
	Sources []catalog.File    `json:"sources"`
	Recipe  map[string]string `json:"recipe,omitempty"`
	// Files are the files with their sizes and digests.
	Files []catalog.File `json:"files"`
	// Folder is the name of the folder that holds them, beside this description.
	Folder string `json:"folder"`
	// Adopted is when.
	Adopted time.Time `json:"adopted"`
}

// Fits reports whether the values are those of an installed release: made from the
// same files, to the same recipe.
func (r *AdoptedReference) Fits(record *Record) bool {
	digests := func(files []catalog.File) map[string]string {
		m := make(map[string]string, len(files))
		for _, f := range files {
			m[f.Path] = f.SHA256
		}
		return m
	}
	return r.Model == record.Name() && r.Version == record.Version() &&
		maps.Equal(r.Recipe, record.Release.Recipe) && maps.Equal(digests(r.Sources), digests(record.Sources))
}

// SizeBytes returns the size of the files.
func (r *AdoptedReference) SizeBytes() int64 {
	total := int64(0)
	for _, f := range r.Files {
		total += f.SizeBytes
	}
	return total
}

// check applies the rules for the reference values of a release.
func (r *AdoptedReference) check(model, version string) error {
	if r.Model != model || r.Version != version {
		return fmt.Errorf("they are for %.80q@%.80q: %w", r.Model, r.Version, fault.ErrUsage)
	}
	if catalog.ValidatePath(r.Folder) != nil || path.Base(r.Folder) != r.Folder || r.Folder == referenceFile {
		return fmt.Errorf("%.80q is no name of a folder: %w", r.Folder, fault.ErrUsage)
	}
	if len(r.Files) == 0 {
		return fmt.Errorf("there are no files: %w", fault.ErrUsage)
	}
	if err := checkSources(r.Files); err != nil {
		return err
	}
	return checkSources(r.Sources)
}

// NoReferenceError reports a release for which no reference values were adopted. It
// matches [ErrNotFound].
type NoReferenceError struct {
	Model, Version string
}

// Error names the release.
func (e *NoReferenceError) Error() string {
	return fmt.Sprintf("no reference values have been adopted for %s@%s", e.Model, e.Version)
}

// Is reports whether target is ErrNotFound.
func (e *NoReferenceError) Is(target error) bool { return target == fault.ErrNotFound }

// Hint says how to adopt some.
func (e *NoReferenceError) Hint() string {
	return fmt.Sprintf("run `zoo gate %s --adopt DIR` with a folder of reference values", e.Model)
}

// ReferenceDamageError reports adopted reference values that are not what they were.
// It matches [ErrIntegrity].
type ReferenceDamageError struct {
	Model, Version string
	// Err says what is wrong.
	Err error
}

// Error gives the release and the reason.
func (e *ReferenceDamageError) Error() string {
	return fmt.Sprintf("the adopted reference values of %s@%s are damaged: %v", e.Model, e.Version, e.Err)
}

// Is reports whether target is ErrIntegrity.
func (e *ReferenceDamageError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says how to get sound ones, or go without.
func (e *ReferenceDamageError) Hint() string {
	return fmt.Sprintf("run `zoo gate %[1]s --adopt DIR` again, or `zoo gate %[1]s --forget` to go without them", e.Model)
}

// referenceName returns the name of the folder of a release's adopted reference values.
func referenceName(model, version string) string {
	return path.Join(referencesDir, model, version)
}

// Reference returns what was adopted for a release. Errors are a [*NoReferenceError],
// a [*ReferenceDamageError], and [ErrUsage] for a name or version that breaks the rules.
func (s *Store) Reference(model, version string) (*AdoptedReference, error) {
	if err := checkRelease(model, version); err != nil {
		return nil, err
	}
	data, err := s.readFile(path.Join(referenceName(model, version), referenceFile), maxReferenceBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &NoReferenceError{Model: model, Version: version}
	case errors.Is(err, fault.ErrIntegrity):
		return nil, &ReferenceDamageError{Model: model, Version: version, Err: err}
	case err != nil:
		return nil, err
	}
	var r AdoptedReference
	err = json.Unmarshal(data, &r)
	if err == nil {
		err = r.check(model, version)
	}
	if err != nil {
		return nil, &ReferenceDamageError{Model: model, Version: version, Err: err}
	}
	return &r, nil
}

// VerifyReference reads adopted reference values through and returns their folder.
// It stays as it is while the lock of the release is held. Values that are not what
// was adopted are a [*ReferenceDamageError].
func (s *Store) VerifyReference(ctx context.Context, r *AdoptedReference) (dir string, err error) {
	if err := r.check(r.Model, r.Version); err != nil {
		return "", err
	}
	dir = s.path(path.Join(referenceName(r.Model, r.Version), r.Folder))
	err = verifyFiles(ctx, dir, r.Files)
	if errors.Is(err, fault.ErrIntegrity) || errors.Is(err, fs.ErrNotExist) {
		err = &ReferenceDamageError{Model: r.Model, Version: r.Version, Err: err}
	}
	return dir, err
}

// verifyFiles holds files of a folder against their sizes and digests.
func verifyFiles(ctx context.Context, dir string, files []catalog.File) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return atomicfile.MapError(dir, err)
	}
	defer root.Close()
	for _, want := range files {
		f, err := root.Open(want.Path)
		if err != nil {
			return atomicfile.MapError(dir, err)
		}
		sum := sha256.New()
		n, err := io.Copy(contextWriter{ctx, sum}, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return atomicfile.MapError(dir, err)
		}
		if got := hex.EncodeToString(sum.Sum(nil)); n != want.SizeBytes || got != want.SHA256 {
			return fmt.Errorf("%q has %d bytes with the sha256 %s, not %d with %s: %w", want.Path, n, got, want.SizeBytes, want.SHA256, fault.ErrIntegrity)
		}
	}
	return nil
}

// contextWriter stops when its context ends.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

// Write implements io.Writer.
func (w contextWriter) Write(p []byte) (int, error) {
	if err := context.Cause(w.ctx); err != nil {
		return 0, err
	}
	return w.w.Write(p)
}

// StageReference copies the reference values in a folder into one that [Lock.Stage]
// makes, and returns that with the files' sizes and digests. A folder that lacks one
// of the files is [ErrNotFound].
func (l *Lock) StageReference(ctx context.Context, dir string) (stage string, files []catalog.File, err error) {
	total := int64(0)
	for _, name := range []string{GoldenFile, GoldenTensorsFile, QuestionsFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist) && name == QuestionsFile:
			continue
		case errors.Is(err, fs.ErrNotExist):
			return "", nil, fault.WithHint(fmt.Errorf("%w: no %s in %q", fault.ErrNotFound, name, dir),
				fmt.Sprintf("give a folder with %s, %s and perhaps %s", GoldenFile, GoldenTensorsFile, QuestionsFile))
		case err != nil:
			return "", nil, atomicfile.MapError(dir, err)
		case !info.Mode().IsRegular():
			return "", nil, fmt.Errorf("%q in %q is a %s: %w", name, dir, kindOf(info), fault.ErrIntegrity)
		}
		files = append(files, catalog.File{Path: name, SizeBytes: info.Size()})
		total += info.Size()
	}
	if err := atomicfile.CheckSpace(l.s.path(tmpDir), total); err != nil {
		return "", nil, err
	}
	if stage, err = l.Stage(); err != nil {
		return "", nil, err
	}
	for i := range files {
		l.s.step("copy " + files[i].Path)
		if err := copyInto(ctx, stage, dir, &files[i]); err != nil {
			return "", nil, err
		}
	}
	return stage, files, nil
}

// copyInto copies a file from one folder into another and fills in its digest.
func copyInto(ctx context.Context, to, from string, file *catalog.File) error {
	f, err := os.Open(filepath.Join(from, file.Path))
	if err != nil {
		return atomicfile.MapError(from, err)
	}
	defer f.Close()
	sum := sha256.New()
	err = atomicfile.Write(ctx, filepath.Join(to, file.Path), atomicfile.Options{SizeBytes: file.SizeBytes}, func(w io.Writer) error {
		n, err := io.Copy(io.MultiWriter(w, sum), f)
		if err == nil && n != file.SizeBytes {
			err = fmt.Errorf("%q in %q has changed while it was copied: %w", file.Path, from, fault.ErrIntegrity)
		}
		return err
	})
	file.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return err
}

// CommitReference makes the staged files the release's reference values, in place of
// any that were adopted before. Folder and Adopted are filled in. On error, and until
// the last moment, the earlier ones stand.
func (l *Lock) CommitReference(ctx context.Context, stage string, r AdoptedReference) error {
	if l.file == nil {
		return errUnlocked
	}
	if !slices.ContainsFunc(l.stages, func(name string) bool { return l.s.path(name) == filepath.Clean(stage) }) {
		return fmt.Errorf("%q was not staged under this lock: %w", stage, fault.ErrUsage)
	}
	r.Folder, r.Adopted = rand.Text(), time.Now().UTC().Truncate(time.Second)
	if err := r.check(l.model, l.version); err != nil {
		return fmt.Errorf("reference values of %s@%s: %w", l.model, l.version, err)
	}
	if err := verifyFiles(ctx, stage, r.Files); err != nil {
		return err
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("reference values: %w", err)
	}
	dir := referenceName(l.model, l.version)
	if err := l.s.mkdir(dir); err != nil {
		return err
	}
	l.s.step("reference")
	folder := path.Join(dir, r.Folder)
	if err := atomicfile.CommitDir(stage, l.s.path(folder), atomicfile.DirOptions{ReadOnly: true}); err != nil {
		return err
	}
	l.s.step("reference record")
	if err := l.s.writeFile(path.Join(dir, referenceFile), text.Bytes(), atomicfile.Options{}); err != nil {
		return errors.Join(err, l.s.removeTree(folder, ""))
	}
	l.s.step("old reference")
	return l.s.sweepReference(l.model, l.version)
}

// RemoveReference removes the release's adopted reference values. Where there are
// none it returns a [*NoReferenceError]; damaged ones go as well.
func (l *Lock) RemoveReference() error {
	if l.file == nil {
		return errUnlocked
	}
	if _, err := l.s.Reference(l.model, l.version); errors.Is(err, fault.ErrNotFound) {
		return err
	}
	return l.s.removeReference(l.model, l.version)
}

// removeReference removes adopted reference values, if there are any, the description first.
func (s *Store) removeReference(model, version string) error {
	dir := referenceName(model, version)
	if !s.exists(dir) {
		return nil
	}
	s.step("remove reference")
	if err := s.removeTree(path.Join(dir, referenceFile), ""); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(s.path(dir)); err != nil {
		return err
	}
	s.step("remove reference files")
	return s.removeTree(dir, path.Dir(dir))
}

// sweepReferences removes adopted reference values of releases that are not installed,
// which a killed removal leaves, and what lies beside those of one release, whose lock
// the caller holds.
func (s *Store) sweepReferences(ctx context.Context, model, version string) error {
	errs := []error{s.sweepReference(model, version)}
	models, err := s.readDir(referencesDir)
	errs = append(errs, err)
	for _, m := range models {
		versions, err := s.readDir(path.Join(referencesDir, m.Name()))
		errs = append(errs, err)
		for _, v := range versions {
			if m.Name() == model && v.Name() == version || checkRelease(m.Name(), v.Name()) != nil || s.exists(recordName(m.Name(), v.Name())) {
				continue
			}
			lock, err := s.tryAcquire(ctx, lockName(m.Name(), v.Name()))
			if err != nil {
				continue // in use, or to be swept by the next one
			}
			errs = append(errs, s.sweepReference(m.Name(), v.Name()), lock.Release())
		}
	}
	return errors.Join(errs...)
}

// sweepReference removes what a killed process has left beside a release's adopted
// reference values, and the values themselves where the release is not installed. The
// caller holds the lock of the release.
func (s *Store) sweepReference(model, version string) error {
	dir := referenceName(model, version)
	entries, err := s.readDir(dir)
	if err != nil || len(entries) == 0 {
		return err
	}
	if !s.exists(recordName(model, version)) {
		return s.removeReference(model, version)
	}
	r, err := s.Reference(model, version)
	switch {
	case errors.Is(err, fault.ErrNotFound):
		return s.removeTree(dir, path.Dir(dir))
	case err != nil: // which folder is in use is not known
		return err
	}
	for _, e := range entries {
		if e.Name() != referenceFile && e.Name() != r.Folder {
			if err := s.removeTree(path.Join(dir, e.Name()), ""); err != nil {
				return err
			}
		}
	}
	return nil
}
