package sdk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// Verified is what [Zoo.Verify] has read and found sound.
type Verified struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Pack is the digest of the pack, and PackBytes the size of its files.
	Pack      catalog.Digest `json:"pack"`
	PackBytes int64          `json:"pack_bytes"`
	// Checkpoint says whether the source files are there; they may have been deleted.
	Checkpoint      bool  `json:"checkpoint"`
	CheckpointFiles int   `json:"checkpoint_files"`
	CheckpointBytes int64 `json:"checkpoint_bytes"`
	// ReferenceFiles are the adopted reference values, 0 where there are none.
	ReferenceFiles int   `json:"reference_files"`
	ReferenceBytes int64 `json:"reference_bytes"`
}

// CheckpointError reports a source file in the store that is not what it was when
// it was fetched. It matches zoo.ErrIntegrity.
type CheckpointError struct {
	// Path is the file, and Model the model that it belongs to.
	Path, Model string
	// Want and Got say what was recorded and what was found.
	Want, Got string
}

// Error names the file.
func (e *CheckpointError) Error() string {
	return fmt.Sprintf("source file %q is damaged: want %s, got %s", e.Path, e.Want, e.Got)
}

// Is reports whether target is zoo.ErrIntegrity.
func (e *CheckpointError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says what to do about the file.
func (e *CheckpointError) Hint() string {
	return fmt.Sprintf("run `zoo rm --checkpoint %s`: the pack does not need the file, and it is fetched again when it is needed", e.Model)
}

// Verify reads the pack of a name or folder through, and the source files and adopted
// reference values of an installed model if they are there, and holds every byte against the recorded
// digests, whatever was found before. The error joins one for each damaged file or
// tensor and matches zoo.ErrIntegrity.
func (z *Zoo) Verify(ctx context.Context, name string) (*Verified, error) {
	t, err := z.locate(name)
	if err != nil {
		return nil, err
	}
	if t.release != nil {
		return nil, &zoo.NotInstalledError{Model: t.release.Model}
	}
	v := &Verified{Name: name}
	if t.record == nil {
		return v, z.verifyPack(ctx, v, t.dir, nil)
	}
	v.Name, v.Version = t.record.Name(), t.record.Version()
	err = z.verifyPack(ctx, v, "", t.record)
	if err != nil && !errors.Is(err, fault.ErrIntegrity) {
		return v, err
	}
	cerr := z.verifyCheckpoint(ctx, v, t.record)
	if cerr != nil && !errors.Is(cerr, fault.ErrIntegrity) {
		return v, errors.Join(err, cerr)
	}
	return v, errors.Join(err, cerr, z.verifyReference(ctx, v, t.record), z.obeys(t.record))
}

// verifyPack reads the pack in a folder, or that of a record.
func (z *Zoo) verifyPack(ctx context.Context, v *Verified, dir string, record *zoo.Record) error {
	if record != nil {
		dir = z.packDir(record.Pack)
	}
	pack, err := zoo.OpenPack(dir)
	if err != nil {
		if record != nil && errors.Is(err, fault.ErrNotFound) {
			err = &zoo.DamageError{Pack: dir, File: zoo.ManifestFile, Want: "a file", Got: "none"}
		}
		return blame(err, v)
	}
	defer pack.Close()
	v.Pack, v.PackBytes = pack.Digest(), pack.SizeBytes()
	if record != nil && pack.Digest() != record.Pack {
		return blame(&zoo.DamageError{Pack: dir, File: zoo.ManifestFile, Want: record.Pack.String(), Got: pack.Digest().String()}, v)
	}
	return blame(z.store.Verify(ctx, pack, func(done, total int64) { z.set.events.Verify("pack", done, total) }), v)
}

// blame writes the model into each damage of an installed pack, for the hint.
func blame(err error, v *Verified) error {
	if v.Version == "" {
		return err
	}
	switch e := err.(type) {
	case *zoo.DamageError:
		e.Model = v.Name
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			_ = blame(inner, v)
		}
	}
	return err
}

// verifyCheckpoint reads the source files of a record.
func (z *Zoo) verifyCheckpoint(ctx context.Context, v *Verified, record *zoo.Record) error {
	if !z.keepsCheckpoint(record) {
		return nil
	}
	dir := z.checkpointDir(record)
	v.Checkpoint = true
	total := int64(0)
	for _, f := range record.Sources {
		total += f.SizeBytes
	}
	done := int64(0)
	var damage []error
	for _, f := range record.Sources {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		size, sum, err := hashFile(ctx, path, func(n int64) { z.set.events.Verify("checkpoint", min(done+n, total), total) })
		wrong := func(want, got string) {
			damage = append(damage, &CheckpointError{Path: path, Model: record.Name(), Want: want, Got: got})
		}
		switch {
		case errors.Is(err, os.ErrNotExist):
			wrong("a file", "none")
		case err != nil:
			return err
		case size != f.SizeBytes:
			wrong(fmt.Sprintf("%d bytes", f.SizeBytes), fmt.Sprintf("%d", size))
		case sum != f.SHA256:
			wrong("sha256 "+f.SHA256, sum)
		default:
			v.CheckpointFiles++
			v.CheckpointBytes += size
		}
		done += f.SizeBytes
	}
	return errors.Join(damage...)
}

// verifyReference reads the adopted reference values of a record.
func (z *Zoo) verifyReference(ctx context.Context, v *Verified, record *zoo.Record) error {
	r, err := z.store.Reference(record.Name(), record.Version())
	for err == nil {
		if _, err = z.store.VerifyReference(ctx, r); err == nil {
			v.ReferenceFiles, v.ReferenceBytes = len(r.Files), r.SizeBytes()
			return nil
		}
		// Without the lock others may take their place meanwhile.
		now, nerr := z.store.Reference(record.Name(), record.Version())
		if nerr == nil && now.Folder == r.Folder {
			return err
		}
		r, err = now, nerr
	}
	if errors.Is(err, fault.ErrNotFound) {
		return nil
	}
	return err
}

// hashFile returns the size and the sha256 of a file in hex. Progress is told the bytes read.
func hashFile(ctx context.Context, path string, progress func(doneBytes int64)) (sizeBytes int64, sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", atomicfile.MapError(path, err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, &contextReader{ctx: ctx, r: f, progress: progress})
	if err != nil {
		return n, "", atomicfile.MapError(path, err)
	}
	return n, hex.EncodeToString(h.Sum(nil)), nil
}

// contextReader reads until its context ends.
type contextReader struct {
	ctx      context.Context
	r        io.Reader
	done     int64
	progress func(doneBytes int64)
}

// Read implements io.Reader.
func (r *contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	n, err := r.r.Read(p)
	r.done += int64(n)
	if r.progress != nil {
		r.progress(r.done)
	}
	return n, err
}
