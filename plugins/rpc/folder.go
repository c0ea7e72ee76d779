package rpc

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/zoo-sdk/zoo/internal/filelock"
)

// Names of a process's private folder, which go-plugin makes, and of what is in it beside
// the socket.
const (
	folderPrefix = "plugin-dir"
	folderLock   = "zoo.lock"
	folderFiles  = "tmp"
)

// folder is the private folder of a process. It is locked as long as its host lives, so that
// another host can tell what a killed one has left behind.
type folder struct {
	dir string
	// files is the folder for the process's own files. It is made once the lock is held.
	files string
	lock  *filelock.Lock
}

// claim takes a folder that was just made, or else removes it.
func claim(dir string) (*folder, error) {
	f := &folder{dir: dir, files: filepath.Join(dir, folderFiles)}
	var err error
	if f.lock, err = filelock.Acquire(context.Background(), filepath.Join(dir, folderLock), nil); err == nil {
		err = os.Mkdir(f.files, 0o700)
	}
	if err != nil {
		f.remove()
		return nil, err
	}
	return f, nil
}

// remove removes the folder with all that is in it.
func (f *folder) remove() {
	if f.lock != nil {
		_ = f.lock.Release() // first, since Windows removes no file that is open
	}
	_ = os.RemoveAll(f.dir)
}

// sweep removes the folders in dir that were claimed by hosts of this user which are gone.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // the plugin's own folder cannot be made there, which is told
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !strings.HasPrefix(e.Name(), folderPrefix) || !claimed(path) {
			continue
		}
		// Not to wait for a lock means that its host is there.
		ctx, cancel := context.WithCancel(context.Background())
		lock, err := filelock.Acquire(ctx, filepath.Join(path, folderLock), cancel)
		cancel()
		if err == nil {
			(&folder{dir: path, lock: lock}).remove()
		}
	}
}

// claimed reports whether a path is a folder that a host of this user has claimed, and not
// one of others, who may put there what they like.
func claimed(path string) bool {
	is := func(path string, kind fs.FileMode) bool {
		info, err := os.Lstat(path)
		return err == nil && info.Mode().Type() == kind && isOwn(info)
	}
	return is(path, fs.ModeDir) && is(filepath.Join(path, folderFiles), fs.ModeDir) && is(filepath.Join(path, folderLock), 0)
}
