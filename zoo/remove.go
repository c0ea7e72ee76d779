package zoo

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// Remove removes an installed version, or what is left of one: its record, its
// checkpoint, its adopted reference values, and its pack unless another record refers
// to it. It waits for the release's lock, until ctx ends; so the caller must not hold
// it. When there is nothing of that version it
// returns a [*NotInstalledError]. A record that cannot be read is removed as well.
func (s *Store) Remove(ctx context.Context, model, version string) error {
	if err := checkRelease(model, version); err != nil {
		return err
	}
	if !s.exists(recordName(model, version)) && !s.exists(checkpointName(model, version)) && !s.exists(referenceName(model, version)) {
		return &NotInstalledError{Model: model, Constraint: version}
	}
	lock, err := s.Lock(ctx, model, version, nil)
	if err != nil {
		return err
	}
	err = s.withPacks(ctx, func() error { return s.remove(context.WithoutCancel(ctx), model, version) })
	return errors.Join(err, lock.Unlock())
}

// exists reports whether the store has a file or folder.
func (s *Store) exists(name string) bool {
	return s.inRoot(func(root *os.Root) error {
		_, err := root.Lstat(name)
		return err
	}) == nil
}

// remove does the work of Remove. The record goes first: after it the pack is
// nobody's, and whoever takes the next lock finishes what is left undone here.
func (s *Store) remove(ctx context.Context, model, version string) error {
	r, err := s.Record(model, version)
	if err != nil && !errors.Is(err, fault.ErrNotFound) && !errors.Is(err, fault.ErrIntegrity) {
		return err
	}
	s.step("remove record")
	if err := s.removeRecord(model, version); err != nil {
		return err
	}
	s.step("remove pack")
	if r != nil {
		used, known, err := s.usedPacks(ctx)
		if err != nil {
			return err
		}
		if !known {
			s.logger.Warn("keeping a pack, since a damaged record may refer to it", "digest", r.Pack)
		} else if !used[r.Pack] {
			if err := s.deletePack(r.Pack); err != nil {
				return err
			}
		}
	}
	s.step("remove checkpoint")
	if err := s.removeTree(checkpointName(model, version), checkpointsDir+"/"+model); err != nil {
		return err
	}
	return s.removeReference(model, version)
}

// removeRecord deletes a record for good.
func (s *Store) removeRecord(model, version string) error {
	name := recordName(model, version)
	if !s.exists(name) {
		return nil
	}
	// Whatever stands in the record's place goes, a folder too.
	if err := s.removeTree(name, ""); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(s.path(path.Dir(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = s.inRoot(func(root *os.Root) error { return root.Remove(path.Dir(name)) }) // fails unless it is empty
	return nil
}

// deletePack deletes a pack that no record refers to, and what the store knows of
// it. The caller holds the lock on packs.
func (s *Store) deletePack(d catalog.Digest) error {
	dir := s.PackDir(d)
	abs, err := realDir(dir)
	if err != nil {
		abs = dir
	}
	if err := s.trash(packName(d)); err != nil {
		return err
	}
	s.step("delete pack")
	errs := []error{s.removeFile(stampName(abs, d)), s.removeFile(receiptName(abs, d))}
	entries, err := s.readDir(tmpDir)
	errs = append(errs, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), trashPrefix) {
			errs = append(errs, s.removeTree(path.Join(tmpDir, e.Name()), ""))
		}
	}
	return errors.Join(errs...)
}
