//go:build linux

package metaltest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zoo-sdk/zoo/internal/filelock"
)

// keepFor is how long what was compiled is kept that nobody uses. To compile it again takes seconds.
const keepFor = 48 * time.Hour

// cached returns the path of a file of the cache, which make writes to the path that it is given if it is not there.
func cached(ctx context.Context, key string, make func(path string) error) (string, error) {
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(key))
	path := filepath.Join(dir, hex.EncodeToString(sum[:16]))
	now := time.Now()
	if err := os.Chtimes(path, now, now); err == nil {
		return path, nil
	}
	lock, err := filelock.Acquire(ctx, path+".lock", nil)
	if err != nil {
		return "", err
	}
	// Another process may make the same while this one removes the lock that it holds, and a third
	// takes a new one: then the work is done twice, and the file is the same.
	defer os.Remove(lock.Path())
	defer lock.Release()
	if _, err := os.Stat(path); err == nil {
		return path, nil // somebody else was faster
	}
	removeOld(dir, now.Add(-keepFor))
	temp, err := os.MkdirTemp(dir, "making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	made := filepath.Join(temp, "made")
	if err := make(made); err != nil {
		return "", err
	}
	return path, os.Rename(made, path)
}

// cacheDir returns the folder of the cache: among the user's, or where that cannot be, among temporary files.
func cacheDir() (string, error) {
	if root, err := os.UserCacheDir(); err == nil {
		if dir := filepath.Join(root, "zoo-metaltest"); own(dir) == nil {
			return dir, nil
		}
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("zoo-metaltest-%d", os.Getuid()))
	return dir, own(dir)
}

// own makes a folder, or returns why it cannot be written or may be written by others: what
// lies in it is run.
func own(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return &fs.PathError{Op: "write to", Path: dir, Err: err}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(stat.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%q may be written by others: %w", dir, fs.ErrPermission)
	}
	return nil
}

// removeOld removes what was last used before a time.
func removeOld(dir string, before time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.ModTime().Before(before) {
			_ = os.RemoveAll(filepath.Join(dir, e.Name())) // another time
		}
	}
}

// key joins what makes a file of the cache what it is.
func key(parts ...[]string) string {
	var all strings.Builder
	for _, part := range parts {
		for _, s := range part {
			fmt.Fprintf(&all, "%d %s", len(s), s)
		}
		all.WriteByte(0)
	}
	return all.String()
}
