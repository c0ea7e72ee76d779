package download

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"

	"github.com/zoo-sdk/zoo/internal/atomicfile"
)

// link tries to hard-link the file from a local origin. What is hashed is the linked
// file, not the path it came from, so that what is verified is what is kept. When it
// cannot be linked, on another file system, say, the error is nil and the job is not
// done.
func (j *job) link(ctx context.Context, o LocalOrigin) error {
	original, info, err := o.LocalPath(j.source(), j.file)
	if err != nil {
		return err
	}
	tmp := atomicfile.TempName()
	if os.Link(original, filepath.Join(j.root.Name(), tmp)) != nil {
		return nil
	}
	// Renaming one link over another of the same file does nothing at all, so this is
	// needed after success, too.
	defer func() { _ = j.root.Remove(tmp) }()
	stat, err := j.root.Lstat(tmp)
	if err != nil {
		return j.disk(err)
	}
	info.SizeBytes = stat.Size()
	want, err := j.expect(o, info)
	if err != nil {
		return err
	}
	got, git, err := j.hashFile(ctx, tmp, stat, want.gitBlob != "", o.Name())
	if err != nil {
		return err
	}
	if err := want.compare(j.file.Path, o, got, func() (string, error) { return git, nil }); err != nil {
		return err
	}
	if err := j.bind(o, j.file, info.Revision); err != nil {
		return err
	}
	if dir := path.Dir(j.file.Path); dir != "." {
		if err := j.root.MkdirAll(dir, 0o755); err != nil {
			return j.disk(err)
		}
	}
	// Windows syncs only files that it may write, and this one is somebody else's.
	opts := atomicfile.PromoteOptions{Synced: runtime.GOOS == "windows"}
	if err := atomicfile.PromoteIn(j.root, tmp, j.file.Path, opts); err != nil {
		return j.disk(err)
	}
	j.finish(o.Name(), stat.Size(), got, 0)
	return nil
}

// disk classifies and marks an error of the file's place in the folder.
func (j *job) disk(err error) error {
	return &diskError{atomicfile.MapError(filepath.Join(j.root.Name(), filepath.FromSlash(j.file.Path)), err)}
}

// hashFile returns the sha256 of a file in the folder and, if asked, git's hash.
func (j *job) hashFile(ctx context.Context, name string, info fs.FileInfo, withGit bool, origin string) (sha256Hex, gitBlob string, err error) {
	f, err := j.root.Open(name)
	if err != nil {
		return "", "", atomicfile.MapError(filepath.Join(j.root.Name(), name), err)
	}
	defer f.Close()
	resumed := int64(0)
	if origin == "" {
		resumed = info.Size()
	}
	sum := sha256.New()
	n, err := copyHash(ctx, sum, f, j.verifying(origin, info.Size(), resumed))
	if err != nil {
		return "", "", err
	}
	if withGit {
		if gitBlob, err = gitBlobOf(ctx, io.NewSectionReader(f, 0, n), n); err != nil {
			return "", "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), gitBlob, nil
}
