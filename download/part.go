package download

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/zoo-sdk/zoo/internal/atomicfile"
)

const (
	// partSuffix marks an unfinished file, partNoteSuffix what is known of its origin.
	partSuffix     = ".part"
	partNoteSuffix = ".part.json"
	// bufferBytes is how much is read, written and hashed at once.
	bufferBytes = 256 << 10
	// maxNoteBytes bounds what is read of a note.
	maxNoteBytes = 16 << 10
)

// partNote is the content of a note: under which tag which origin served the part.
type partNote struct {
	Origin string `json:"origin"`
	Tag    string `json:"tag"`
}

// part is an unfinished file: what it holds is hashed, and it grows at its end.
type part struct {
	root   *os.Root
	target string // the file's final path within root
	where  string // the path of the part file, for messages
	f      *os.File
	n      int64 // bytes in it, all hashed
	sum    hash.Hash
	note   partNote
	// resumed is how many of the n bytes an earlier call left.
	resumed int64
}

// diskError marks an error of the folder that is fetched into: no other origin will
// do better.
type diskError struct{ err error }

// Error returns the wrapped error's text.
func (e *diskError) Error() string { return e.err.Error() }

// Unwrap returns the wrapped error.
func (e *diskError) Unwrap() error { return e.err }

// disk classifies and marks an error of the part file.
func (p *part) disk(err error) error {
	if err == nil {
		return nil
	}
	return &diskError{atomicfile.MapError(p.where, err)}
}

// partSize returns the length of a file's part, 0 if there is none.
func partSize(root *os.Root, target string) int64 {
	info, err := root.Lstat(target + partSuffix)
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

// openPart opens or creates the part of a file, and hashes what an earlier call left
// in it, telling hashed how far it is. A part longer than sizeBytes, if that is known
// (> 0), is emptied.
func openPart(ctx context.Context, root *os.Root, target string, sizeBytes int64, hashed func(done int64)) (*part, error) {
	name := target + partSuffix
	p := &part{root: root, target: target, where: filepath.Join(root.Name(), filepath.FromSlash(name)), sum: sha256.New()}
	if dir := path.Dir(target); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return nil, p.disk(err)
		}
	}
	var err error
	if p.f, err = root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, p.disk(err)
	}
	info, err := p.f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		_ = p.f.Close()
		return nil, p.disk(err)
	}
	p.note = p.readNote()
	if info.Size() == 0 {
		return p, nil
	}
	if sizeBytes > 0 && info.Size() > sizeBytes {
		err = p.reset()
	} else if p.n, err = copyHash(ctx, p.sum, p.f, hashed); err != nil {
		err = p.disk(err)
	} else {
		p.resumed = p.n
	}
	if err != nil {
		_ = p.f.Close()
		return nil, err
	}
	return p, nil
}

// write appends bytes.
func (p *part) write(b []byte) error {
	n, err := p.f.WriteAt(b, p.n)
	p.sum.Write(b[:n])
	p.n += int64(n)
	return p.disk(err)
}

// reset empties the part and forgets its note.
func (p *part) reset() error {
	p.n, p.resumed = 0, 0
	p.sum.Reset()
	if err := p.f.Truncate(0); err != nil {
		return p.disk(err)
	}
	// A new note must not come to stand beside old bytes, whatever is cut off when.
	if err := p.f.Sync(); err != nil {
		return p.disk(err)
	}
	return p.setNote(partNote{})
}

// setNote records under which tag the bytes that follow are served.
func (p *part) setNote(note partNote) error {
	if note == p.note {
		return nil
	}
	p.note = note
	if note == (partNote{}) {
		return p.removeNote()
	}
	data, err := json.Marshal(note)
	if err != nil {
		return fmt.Errorf("note of %q: %w", p.where, err)
	}
	return p.disk(p.root.WriteFile(p.target+partNoteSuffix, data, 0o644))
}

// readNote returns the recorded note; one that cannot be read is none.
func (p *part) readNote() (note partNote) {
	f, err := p.root.Open(p.target + partNoteSuffix)
	if err != nil {
		return partNote{}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxNoteBytes))
	if err != nil || json.Unmarshal(data, &note) != nil {
		return partNote{}
	}
	return note
}

// removeNote removes the note.
func (p *part) removeNote() error {
	if err := p.root.Remove(p.target + partNoteSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p.disk(err)
	}
	return nil
}

// sha256Hex returns the digest of what the part holds.
func (p *part) sha256Hex() string { return hex.EncodeToString(p.sum.Sum(nil)) }

// gitBlob returns git's hash of what the part holds, which is read once more: only
// small files are announced by it.
func (p *part) gitBlob(ctx context.Context) (string, error) {
	sum, err := gitBlobOf(ctx, io.NewSectionReader(p.f, 0, p.n), p.n)
	return sum, p.disk(err)
}

// commit makes the part the file: complete, read-only, under its own name.
func (p *part) commit() error {
	err := errors.Join(p.f.Sync(), p.f.Close())
	p.f = nil
	if err == nil {
		err = atomicfile.PromoteIn(p.root, p.target+partSuffix, p.target, atomicfile.PromoteOptions{ReadOnly: true, Synced: true})
	}
	if err != nil {
		return p.disk(err)
	}
	return p.removeNote()
}

// keep closes the part and leaves it for a later call, unless it is empty.
func (p *part) keep() {
	if p.f == nil {
		return
	}
	_ = p.f.Close()
	p.f = nil
	if p.n == 0 {
		_ = p.root.Remove(p.target + partSuffix)
		_ = p.removeNote()
	}
}

// copyHash hashes r to its end and returns its length. It stops when ctx ends.
func copyHash(ctx context.Context, sum hash.Hash, r io.Reader, hashed func(done int64)) (int64, error) {
	buf := make([]byte, bufferBytes)
	for done := int64(0); ; {
		if err := context.Cause(ctx); err != nil {
			return done, err
		}
		n, err := r.Read(buf)
		sum.Write(buf[:n])
		done += int64(n)
		if n > 0 && hashed != nil {
			hashed(done)
		}
		if errors.Is(err, io.EOF) {
			return done, nil
		}
		if err != nil {
			return done, err
		}
	}
}

// gitBlobOf returns git's hash of a blob of n bytes.
func gitBlobOf(ctx context.Context, r io.Reader, n int64) (string, error) {
	sum := sha1.New()
	fmt.Fprintf(sum, "blob %d\x00", n)
	if _, err := copyHash(ctx, sum, r, nil); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
