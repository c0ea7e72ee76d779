package atomicfile

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
)

// TempPrefix starts the name of every file and folder that is not complete yet.
const TempPrefix = ".zoo-tmp-"

// Options says how a file is to stand once it is committed. The zero value is an
// ordinary file, readable by all and writable by its owner, as the umask allows.
type Options struct {
	// Perm holds the permission bits before the umask; 0 stands for 0o644.
	Perm fs.FileMode
	// ReadOnly clears all write bits when the file is complete.
	ReadOnly bool
	// SizeBytes is the expected length, or 0 when it is not known. The room for it
	// is checked before anything is written.
	SizeBytes int64
}

// File is a file in the making. Until [File.Commit] its target is untouched.
// It is not safe for concurrent use.
type File struct {
	f       *os.File // nil once committed or aborted
	root    *os.Root // the target's folder
	dir     string   // path of root
	tmp     string   // name within root
	name    string   // the target's name within root
	opts    Options
	written int64
}

// Create starts a file that is to become target, whose folder must exist. It
// returns fault.ErrNoSpace when opts.SizeBytes does not fit. The caller calls
// [File.Commit], and defers [File.Abort].
func Create(target string, opts Options) (*File, error) {
	if opts.SizeBytes > 0 {
		if err := CheckSpace(target, opts.SizeBytes); err != nil {
			return nil, err
		}
	}
	dir, name := filepath.Split(target)
	if dir == "" {
		dir = "."
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, MapError(dir, fmt.Errorf("create %q: %w", target, err))
	}
	perm := opts.Perm.Perm()
	if perm == 0 {
		perm = 0o644
	}
	tmp := TempName()
	// The owner must be able to write until the commit, whatever perm says.
	f, err := root.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm|0o200)
	if err != nil {
		_ = root.Close()
		return nil, MapError(dir, fmt.Errorf("create %q: %w", target, err))
	}
	if perm&0o200 == 0 {
		opts.ReadOnly = true
	}
	return &File{f: f, root: root, dir: dir, tmp: tmp, name: name, opts: opts}, nil
}

// TempName returns a fresh name that starts with [TempPrefix].
func TempName() string { return TempPrefix + rand.Text() }

// Write appends p. A full device is fault.ErrNoSpace with the bytes still needed,
// if opts.SizeBytes was given.
func (f *File) Write(p []byte) (int, error) {
	if f.f == nil {
		return 0, fs.ErrClosed
	}
	n, err := f.f.Write(p)
	f.written += int64(n)
	return n, f.mapError(err)
}

// WriteAt writes p at an offset, beyond the present end as well. Calls for
// disjoint ranges may run at the same time.
func (f *File) WriteAt(p []byte, offset int64) (int, error) {
	if f.f == nil {
		return 0, fs.ErrClosed
	}
	n, err := f.f.WriteAt(p, offset)
	return n, f.mapError(err)
}

// ReadAt reads what has been written.
func (f *File) ReadAt(p []byte, offset int64) (int, error) {
	if f.f == nil {
		return 0, fs.ErrClosed
	}
	return f.f.ReadAt(p, offset)
}

// Commit makes the file complete: it is synced, closed, given its final mode,
// renamed to its target, replacing what was there, and the folder is synced. On
// error the target is as it was and the temporary file is gone. It cannot be
// cancelled; after it, or after [File.Abort], it returns fs.ErrClosed.
func (f *File) Commit() error {
	if f.f == nil {
		return fs.ErrClosed
	}
	err := errors.Join(f.f.Sync(), f.f.Close())
	f.f = nil
	if err == nil {
		err = PromoteIn(f.root, f.tmp, f.name, PromoteOptions{ReadOnly: f.opts.ReadOnly, Synced: true})
	}
	if err != nil {
		_ = f.root.Remove(f.tmp)
		err = f.mapError(fmt.Errorf("commit %q: %w", filepath.Join(f.dir, f.name), err))
	}
	return errors.Join(err, f.root.Close())
}

// Abort removes the temporary file. After Commit it does nothing.
func (f *File) Abort() error {
	if f.f == nil {
		return nil
	}
	closeErr := f.f.Close()
	f.f = nil
	err := errors.Join(closeErr, f.root.Remove(f.tmp), f.root.Close())
	return f.mapError(err)
}

// mapError classifies err and adds the bytes that were still to come.
func (f *File) mapError(err error) error {
	err = MapError(filepath.Join(f.dir, f.name), err)
	var space *SpaceError
	if errors.As(err, &space) && f.opts.SizeBytes > f.written {
		space.NeedBytes = f.opts.SizeBytes - f.written
		if free, ferr := FreeBytes(f.dir); ferr == nil {
			space.FreeBytes = free
		}
	}
	return err
}

// Write creates or replaces target with what fill writes. When ctx ends before
// the commit has begun, or fill fails, target stays as it was and nothing is left
// behind; the error is fill's, or the cause of ctx.
func Write(ctx context.Context, target string, opts Options, fill func(w io.Writer) error) error {
	f, err := Create(target, opts)
	if err != nil {
		return err
	}
	err = fill(&contextWriter{ctx, f})
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return errors.Join(err, f.Abort())
	}
	return f.Commit()
}

// WriteFile creates or replaces target with data; see [Write].
func WriteFile(ctx context.Context, target string, data []byte, opts Options) error {
	opts.SizeBytes = int64(len(data))
	return Write(ctx, target, opts, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// contextWriter stops writing when its context ends.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (w *contextWriter) Write(p []byte) (int, error) {
	if err := context.Cause(w.ctx); err != nil {
		return 0, err
	}
	return w.w.Write(p)
}

// PromoteOptions says how [PromoteIn] is to leave the file.
type PromoteOptions struct {
	// ReadOnly clears all write bits. Leave it out for a hard link to a file that
	// belongs to somebody else: its mode is shared.
	ReadOnly bool
	// Synced says that the content is on the device already.
	Synced bool
}

// PromoteIn renames a complete file tmp to name, both slash-separated paths within
// root, replacing what was there: the file is synced, given its mode, renamed, and
// the folder of name is synced. On error tmp is still there, unless only the last
// step failed. The error is not classified; see [MapError].
func PromoteIn(root *os.Root, tmp, name string, opts PromoteOptions) error {
	if !opts.Synced {
		if err := syncIn(root, tmp); err != nil {
			return err
		}
	}
	if opts.ReadOnly {
		info, err := root.Lstat(tmp)
		if err != nil {
			return err
		}
		if err := root.Chmod(tmp, info.Mode().Perm()&^0o222); err != nil {
			return err
		}
	}
	if err := root.Rename(tmp, name); err != nil {
		// Windows does not rename over a file that is marked read-only.
		if runtime.GOOS != "windows" || root.Chmod(name, 0o644) != nil {
			return err
		}
		if err := root.Rename(tmp, name); err != nil {
			return err
		}
	}
	return syncFolderIn(root, path.Dir(filepath.ToSlash(name)))
}

// syncIn brings the content of a file to the device. Windows syncs only through a
// handle that may write.
func syncIn(root *os.Root, name string) error {
	flag := os.O_RDONLY
	if runtime.GOOS == "windows" {
		flag = os.O_RDWR
	}
	f, err := root.OpenFile(name, flag, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncFolderIn brings the names in a folder to the device. Windows has no such
// call; its file systems journal names themselves.
func syncFolderIn(root *os.Root, dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	return syncIn(root, dir)
}
