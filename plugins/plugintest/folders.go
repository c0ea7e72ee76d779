package plugintest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/catalog"
)

// tree is what lies in a folder: what can be told of each path.
type tree map[string]string

// readTree reads a folder through.
func readTree(dir string) (tree, error) {
	t := tree{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch {
		case d.IsDir():
			t[name] = "a folder"
		case d.Type().IsRegular():
			t[name], err = fingerprint(path)
			return err
		default:
			to, _ := os.Readlink(path)
			t[name] = fmt.Sprintf("%v to %q", d.Type(), to)
		}
		return nil
	})
	return t, err
}

// hashedBytes is the largest size of a file that is read to see whether it has changed.
const hashedBytes = 64 << 20

// fingerprint says what a file holds, and of one that is large or unreadable what it looks like.
func fingerprint(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Size() > hashedBytes || info.Mode().Perm()&0o400 == 0 {
		return fmt.Sprintf("%d bytes of %v", info.Size(), info.ModTime()), nil
	}
	size, sum, err := digest(path)
	return fmt.Sprintf("%d bytes with the sha256 %s", size, sum), err
}

// outside returns the tree without a folder of it.
func (t tree) outside(folder string) tree {
	rest := maps.Clone(t)
	maps.DeleteFunc(rest, func(name, _ string) bool { return name == folder || strings.HasPrefix(name, folder+"/") })
	return rest
}

// diff says what differs in another tree, or returns "".
func (t tree) diff(other tree) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if now, ok := other[name]; !ok {
			all = append(all, fmt.Sprintf("%q is gone", name))
		} else if now != t[name] {
			all = append(all, fmt.Sprintf("%q is %s, not %s", name, now, t[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(other)) {
		if _, ok := t[name]; !ok {
			all = append(all, fmt.Sprintf("%q is new", name))
		}
	}
	return strings.Join(all, ", ")
}

// digest returns the size and the sha256 of a file.
func digest(path string) (size int64, sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, f)
	return size, hex.EncodeToString(h.Sum(nil)), err
}

// listFiles lists the files of a folder with their sizes and digests, by path.
func listFiles(dir string) ([]catalog.File, error) {
	var files []catalog.File
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f := catalog.File{Path: filepath.ToSlash(name)}
		f.SizeBytes, f.SHA256, err = digest(path)
		files = append(files, f)
		return err
	})
	return files, err
}

// copyFile copies a file of one folder into another.
func copyFile(from, to, name string) (err error) {
	source, err := os.Open(filepath.Join(from, filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	defer source.Close()
	path := filepath.Join(to, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	target, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// copyFiles copies files of one folder into another.
func copyFiles(from, to string, files []catalog.File) error {
	for _, f := range files {
		if err := copyFile(from, to, f.Path); err != nil {
			return err
		}
	}
	return nil
}

// exists reports whether something lies at a path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// garbage returns bytes that are no format.
func garbage(n int) []byte {
	data := make([]byte, n)
	x := uint32(0x9e3779b9)
	for i := range data {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		data[i] = byte(x >> 11)
	}
	return data
}
