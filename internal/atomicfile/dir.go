package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// MkdirTemp creates a folder within parent, which must exist, to be filled and
// then given to [CommitDir]. Its name starts with [TempPrefix].
func MkdirTemp(parent string) (string, error) {
	dir := filepath.Join(parent, TempName())
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", MapError(parent, fmt.Errorf("temporary folder: %w", err))
	}
	return dir, nil
}

// DirOptions says how [CommitDir] is to leave a folder.
type DirOptions struct {
	// ReadOnly clears the write bits of all files. Folders stay writable, so that
	// the whole can be removed.
	ReadOnly bool
}

// CommitDir moves the complete folder tmp to final, a path on the same file
// system whose parent exists: every file and folder below tmp is synced, tmp is
// renamed, and the parent is synced. If final exists it returns an [*ExistError]
// and leaves both as they are. Anything below tmp but files and folders is refused.
// It cannot be cancelled.
func CommitDir(tmp, final string, opts DirOptions) error {
	if err := commitDir(tmp, final, opts); err != nil {
		var exists *ExistError
		if errors.As(err, &exists) {
			return err
		}
		return MapError(final, fmt.Errorf("commit folder %q: %w", final, err))
	}
	return nil
}

func commitDir(tmp, final string, opts DirOptions) error {
	if _, err := os.Lstat(final); err == nil {
		return &ExistError{Path: final}
	}
	if err := syncTree(tmp, opts); err != nil {
		return err
	}
	if err := os.Rename(tmp, final); err != nil {
		// Systems word it differently when somebody else was faster.
		if _, statErr := os.Lstat(final); statErr == nil {
			return &ExistError{Path: final}
		}
		return err
	}
	return SyncDir(filepath.Dir(final))
}

// syncTree brings everything below dir to the device, files before their folders.
func syncTree(dir string, opts DirOptions) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var folders []string
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			folders = append(folders, name)
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%q is neither a file nor a folder", filepath.Join(dir, name))
		}
		if err := syncIn(root, name); err != nil || !opts.ReadOnly {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return root.Chmod(name, info.Mode().Perm()&^0o222)
	})
	if err != nil {
		return err
	}
	for i := len(folders) - 1; i >= 0; i-- {
		if err := syncFolderIn(root, folders[i]); err != nil {
			return err
		}
	}
	return nil
}

// SyncDir brings the names in a folder to the device, after a rename or a removal.
func SyncDir(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return MapError(dir, err)
	}
	return MapError(dir, errors.Join(syncFolderIn(root, "."), root.Close()))
}

// CleanTemps removes the files and folders directly within dir whose names start
// with [TempPrefix] and that nothing has touched for olderThan, and returns their
// names. A dir that does not exist has none. It goes on after an error and returns
// all of them.
func CleanTemps(dir string, olderThan time.Duration) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, MapError(dir, err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, MapError(dir, err)
	}
	var removed []string
	var failures []error
	cutoff := time.Now().Add(-olderThan)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), TempPrefix) {
			continue
		}
		touched, err := lastTouched(root, e.Name())
		if err != nil || touched.After(cutoff) {
			// Gone meanwhile, or still in use.
			continue
		}
		if err := root.RemoveAll(e.Name()); err != nil {
			failures = append(failures, MapError(filepath.Join(dir, e.Name()), err))
			continue
		}
		removed = append(removed, e.Name())
	}
	return removed, errors.Join(failures...)
}

// lastTouched returns the newest modification time of name and all below it: a
// folder's own time does not change while one of its files grows.
func lastTouched(root *os.Root, name string) (time.Time, error) {
	var newest time.Time
	err := fs.WalkDir(root.FS(), name, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
		return err
	})
	return newest, err
}
