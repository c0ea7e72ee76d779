package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// maxRefFileBytes bounds what is read of a cache's refs file.
const maxRefFileBytes = 256

// embedded serves the files in the binary.
type embedded struct{}

// Embedded returns the origin of sources of kind [catalog.KindEmbedded].
func Embedded() Origin { return embedded{} }

func (embedded) Name() string { return "embedded files" }

func (embedded) Network() bool { return false }

func (e embedded) Open(_ context.Context, src catalog.Source, file catalog.File, pos Position) (io.ReadCloser, Info, error) {
	if src.Kind != catalog.KindEmbedded {
		return nil, Info{}, notHere(e, file)
	}
	fsys, err := catalog.Embedded(src.Repository)
	if err != nil {
		return nil, Info{}, err
	}
	return openFS(e, fsys, file, pos)
}

// fsOrigin serves the files of one file system, whatever the source.
type fsOrigin struct {
	name string
	fsys fs.FS
}

// FS returns an origin that serves the files of fsys by their paths, whatever the
// source's repository; name is for messages.
func FS(name string, fsys fs.FS) Origin { return fsOrigin{name, fsys} }

func (o fsOrigin) Name() string { return o.name }

func (fsOrigin) Network() bool { return false }

func (o fsOrigin) Open(_ context.Context, _ catalog.Source, file catalog.File, pos Position) (io.ReadCloser, Info, error) {
	return openFS(o, o.fsys, file, pos)
}

// openFS opens a file of fsys at an offset.
func openFS(o Origin, fsys fs.FS, file catalog.File, pos Position) (io.ReadCloser, Info, error) {
	if err := catalog.ValidatePath(file.Path); err != nil {
		return nil, Info{}, err
	}
	f, err := fsys.Open(file.Path)
	if err != nil {
		return nil, Info{}, localError(o, file, file.Path, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		_ = f.Close()
		return nil, Info{}, localError(o, file, file.Path, err)
	}
	from := int64(0)
	if s, ok := f.(io.Seeker); ok && pos.Offset > 0 && pos.Offset <= info.Size() {
		if from, err = s.Seek(pos.Offset, io.SeekStart); err != nil {
			_ = f.Close()
			return nil, Info{}, localError(o, file, file.Path, err)
		}
	}
	return f, Info{SizeBytes: info.Size(), From: from}, nil
}

// dirOrigin serves a folder.
type dirOrigin struct{ path string }

// Dir returns an origin that serves the files of a checkpoint folder by their paths,
// whatever the source's repository. Symbolic links within it are followed: it is
// the user's own folder.
func Dir(path string) LocalOrigin { return dirOrigin{path} }

func (o dirOrigin) Name() string { return "folder " + o.path }

func (dirOrigin) Network() bool { return false }

func (o dirOrigin) Open(_ context.Context, src catalog.Source, file catalog.File, pos Position) (io.ReadCloser, Info, error) {
	return openLocal(o, src, file, pos)
}

func (o dirOrigin) LocalPath(_ catalog.Source, file catalog.File) (string, Info, error) {
	if err := catalog.ValidatePath(file.Path); err != nil {
		return "", Info{}, err
	}
	return resolveLocal(o, file, filepath.Join(o.path, filepath.FromSlash(file.Path)))
}

// hubCache serves the cache folder of the hub's own tools.
type hubCache struct{ dir string }

// HubCache returns an origin that serves sources of kind [catalog.KindHub] from a
// cache folder as the hub's own tools keep it (models--owner--name with refs,
// snapshots and blobs); see [HubCacheDir]. A revision that is no commit is looked up
// in refs.
func HubCache(dir string) LocalOrigin { return hubCache{dir} }

func (o hubCache) Name() string { return "hub cache " + o.dir }

func (hubCache) Network() bool { return false }

func (o hubCache) Open(_ context.Context, src catalog.Source, file catalog.File, pos Position) (io.ReadCloser, Info, error) {
	return openLocal(o, src, file, pos)
}

func (o hubCache) LocalPath(src catalog.Source, file catalog.File) (string, Info, error) {
	if src.Kind != catalog.KindHub {
		return "", Info{}, notHere(o, file)
	}
	if err := errors.Join(catalog.ValidateRepository(src.Repository), catalog.ValidateRevision(src.Revision), catalog.ValidatePath(file.Path)); err != nil {
		return "", Info{}, err
	}
	repo := filepath.Join(o.dir, "models--"+strings.ReplaceAll(src.Repository, "/", "--"))
	commit := src.Revision
	if !catalog.IsCommit(commit) {
		var err error
		if commit, err = readRef(filepath.Join(repo, "refs", filepath.FromSlash(src.Revision))); err != nil {
			return "", Info{}, localError(o, file, src.Revision, err)
		}
	}
	path, info, err := resolveLocal(o, file, filepath.Join(repo, "snapshots", commit, filepath.FromSlash(file.Path)))
	if err != nil {
		return "", Info{}, err
	}
	info.Revision = commit
	// A blob is named after the hub's ETag: its sha256, or git's hash of it.
	if filepath.Base(filepath.Dir(path)) == "blobs" {
		info.SHA256, info.GitBlob = parseETag(filepath.Base(path))
	}
	return path, info, nil
}

// readRef reads the commit that a branch or tag of a cache stands for.
func readRef(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRefFileBytes))
	if err != nil {
		return "", err
	}
	commit := strings.TrimSpace(string(data))
	if !catalog.IsCommit(commit) {
		return "", fmt.Errorf("%q holds no commit", path)
	}
	return commit, nil
}

// openLocal opens the file that a local origin points at.
func openLocal(o LocalOrigin, src catalog.Source, file catalog.File, pos Position) (io.ReadCloser, Info, error) {
	path, info, err := o.LocalPath(src, file)
	if err != nil {
		return nil, Info{}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, Info{}, localError(o, file, path, err)
	}
	if pos.Offset > 0 && pos.Offset <= info.SizeBytes {
		if info.From, err = f.Seek(pos.Offset, io.SeekStart); err != nil {
			_ = f.Close()
			return nil, Info{}, localError(o, file, path, err)
		}
	}
	return f, info, nil
}

// resolveLocal follows symbolic links to a regular file.
func resolveLocal(o Origin, file catalog.File, path string) (string, Info, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	var info fs.FileInfo
	if err == nil {
		info, err = os.Lstat(path)
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return "", Info{}, localError(o, file, path, err)
	}
	return path, Info{SizeBytes: info.Size()}, nil
}

// notHere says that an origin does not have a file, or not that kind of source.
func notHere(o Origin, file catalog.File) error {
	return fmt.Errorf("%q is not in %s: %w", file.Path, o.Name(), fault.ErrNotFound)
}

// localError classifies an error of a local origin: what is missing is
// fault.ErrNotFound.
func localError(o Origin, file catalog.File, path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return notHere(o, file)
	}
	return atomicfile.MapError(path, fmt.Errorf("%q from %s: %w", file.Path, o.Name(), err))
}
