package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/mmap"
)

// MaxFileBytes bounds the files that [Checkpoint.File] reads into memory.
const MaxFileBytes = 128 << 20

// folder gives access to the files directly within a checkpoint's folder and to
// nothing else: links that lead out of it are refused. In the cache of the hub's
// own tools, DIR/snapshots/REVISION holds links into DIR/blobs; there the whole
// of DIR is the border.
type folder struct {
	root *os.Root
	// base is the path of root, prefix leads from there to the folder.
	base, prefix string
}

// openFolder opens the folder at dir.
func openFolder(dir string) (*folder, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %q: %w", dir, err)
	}
	info, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("checkpoint %q: %w: %w", dir, fault.ErrNotFound, err)
	case err != nil:
		return nil, atomicfile.MapError(dir, fmt.Errorf("checkpoint: %w", err))
	case !info.IsDir():
		return nil, fmt.Errorf("checkpoint %q is not a folder: %w", dir, fault.ErrUsage)
	}
	f := &folder{base: abs, prefix: "."}
	if snapshots := filepath.Dir(abs); filepath.Base(snapshots) == "snapshots" {
		repository := filepath.Dir(snapshots)
		if info, err := os.Stat(filepath.Join(repository, "blobs")); err == nil && info.IsDir() {
			f.base, f.prefix = repository, path.Join("snapshots", filepath.Base(abs))
		}
	}
	if f.root, err = os.OpenRoot(f.base); err != nil {
		return nil, atomicfile.MapError(dir, fmt.Errorf("checkpoint: %w", err))
	}
	return f, nil
}

// check reports whether name is a regular file of the folder, and its size.
// A file that is not there is fs.ErrNotExist.
func (f *folder) check(name string) (sizeBytes int64, err error) {
	if name == "" || name != filepath.Base(name) || !filepath.IsLocal(name) || path.Base(name) != name {
		return 0, fmt.Errorf("%q is not the name of a file in the checkpoint's folder: %w", fault.Shorten(name), fault.ErrIntegrity)
	}
	info, err := f.root.Stat(path.Join(f.prefix, name))
	switch {
	case err != nil:
		return 0, atomicfile.MapError(name, fmt.Errorf("checkpoint: %w", err))
	case !info.Mode().IsRegular():
		return 0, fmt.Errorf("%q is not a regular file: %w", name, fault.ErrIntegrity)
	}
	return info.Size(), nil
}

// mapFile maps a file of the folder.
func (f *folder) mapFile(name string) (*mmap.Map, error) {
	if _, err := f.check(name); err != nil {
		return nil, err
	}
	return mmap.Open(filepath.Join(f.base, filepath.FromSlash(f.prefix), name))
}

// read returns the content of a file of the folder that has at most most bytes.
func (f *folder) read(name string, most int64) ([]byte, error) {
	size, err := f.check(name)
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, &FormatError{File: name, Problem: fmt.Sprintf("%d bytes, at most %d are allowed", size, most)}
	}
	file, err := f.root.Open(path.Join(f.prefix, name))
	if err != nil {
		return nil, atomicfile.MapError(name, fmt.Errorf("checkpoint: %w", err))
	}
	defer file.Close()
	// The file may grow meanwhile; what is read may not.
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	switch {
	case err != nil:
		return nil, atomicfile.MapError(name, fmt.Errorf("checkpoint: %w", err))
	case int64(len(data)) > most:
		return nil, &FormatError{File: name, Problem: fmt.Sprintf("more than %d bytes", most)}
	}
	return data, nil
}

// names returns the names of all files of the folder.
func (f *folder) names() ([]string, error) {
	entries, err := fs.ReadDir(f.root.FS(), f.prefix)
	if err != nil {
		return nil, atomicfile.MapError(f.base, fmt.Errorf("checkpoint: %w", err))
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}
