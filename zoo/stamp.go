package zoo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
)

// maxStampBytes bounds a stamp.
const maxStampBytes = 1 << 20

// stampResolution is the coarsest step of modification times in use (FAT). A file
// that was written so shortly before it was verified could be written again without
// its time showing it; so such a stamp is not trusted.
const stampResolution = 2 * time.Second

// stamp says that a pack was undamaged when its files looked like this.
type stamp struct {
	// Dir is the pack's absolute path, without links.
	Dir string `json:"dir"`
	// Pack is its digest.
	Pack catalog.Digest `json:"pack"`
	// Verified is when the verification began.
	Verified time.Time `json:"verified"`
	// Files lists the files by path.
	Files []fileIdentity `json:"files"`
}

// fileIdentity is what changes when a file is written or replaced.
type fileIdentity struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size"`
	// MTime is the modification time in nanoseconds since 1970.
	MTime int64 `json:"mtime_ns"`
	// Device and Inode name the file on this machine.
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// identities returns how the open files of the pack look now. The manifest and the
// digest are not among them: they are read whenever a pack is opened.
func (p *Pack) identities() ([]fileIdentity, error) {
	var all []fileIdentity
	for _, e := range p.manifest.Files {
		f := p.files[e.Path].f
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		id := fileIdentity{Path: e.Path, SizeBytes: info.Size(), MTime: info.ModTime().UnixNano()}
		if id.Device, id.Inode, err = deviceAndInode(f, info); err != nil {
			return nil, err
		}
		all = append(all, id)
	}
	return all, nil
}

// packKey names what the store knows of a pack in a folder.
func packKey(dir string, d catalog.Digest) string {
	sum := sha256.Sum256([]byte(dir + "\x00" + string(d)))
	return hex.EncodeToString(sum[:])
}

// realDir returns a folder's absolute path without links.
func realDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// stampName returns the name of a stamp's file in the store.
func stampName(dir string, d catalog.Digest) string {
	return stampsDir + "/" + packKey(dir, d) + ".json"
}

// trusted reports whether a stamp vouches for the pack as its files look now.
func (s *Store) trusted(p *Pack) bool {
	dir, err := realDir(p.dir)
	if err != nil {
		return false
	}
	data, err := s.readFile(stampName(dir, p.digest), maxStampBytes)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.logger.Warn("cannot read a stamp, verifying the pack", "file", dir, "err", err)
		}
		return false
	}
	var st stamp
	now, err := p.identities()
	if err != nil || json.Unmarshal(data, &st) != nil || st.Dir != dir || st.Pack != p.digest || !slices.Equal(st.Files, now) {
		return false
	}
	for _, f := range st.Files {
		if st.Verified.Sub(time.Unix(0, f.MTime)).Abs() < stampResolution {
			return false
		}
	}
	return true
}

// Verify reads an open pack through whatever its stamp says, and renews the stamp, or
// removes it when the pack is damaged. See [Pack.Verify].
func (s *Store) Verify(ctx context.Context, p *Pack, progress Progress) error {
	began := time.Now()
	before, err := p.identities()
	if err != nil {
		return fmt.Errorf("verify pack %q: %w", p.dir, err)
	}
	if err := p.Verify(ctx, progress); err != nil {
		if errors.Is(err, ErrIntegrity) {
			s.removeStamp(p.dir, p.digest)
		}
		return err
	}
	s.writeStamp(p, began, before)
	return nil
}

// writeStamp records that the pack was verified, unless its files have changed since
// before. A store that cannot be written costs a verification each time, no more.
func (s *Store) writeStamp(p *Pack, began time.Time, before []fileIdentity) {
	warn := func(err error) {
		s.logger.Warn("cannot record that the pack is verified, so it will be verified again each time", "file", p.dir, "err", err)
	}
	dir, err := realDir(p.dir)
	if err != nil {
		warn(err)
		return
	}
	after, err := p.identities()
	if err != nil || !slices.Equal(before, after) {
		return
	}
	data, err := json.Marshal(stamp{Dir: dir, Pack: p.digest, Verified: began.UTC(), Files: after})
	if err == nil {
		err = s.writeFile(stampName(dir, p.digest), data, atomicfile.Options{})
	}
	if err != nil {
		warn(err)
	}
}

// removeStamp makes the store forget that a pack was verified.
func (s *Store) removeStamp(dir string, d catalog.Digest) {
	abs, err := realDir(dir)
	if err == nil {
		err = s.removeFile(stampName(abs, d))
	}
	if err != nil {
		s.logger.Warn("cannot remove a stamp", "file", dir, "err", err)
	}
}

// Open opens the pack of a record, as [Store.OpenDir] does. A pack that is gone or
// has another digest is a [*DamageError].
func (s *Store) Open(ctx context.Context, r *Record, progress Progress) (*Pack, error) {
	dir := s.PackDir(r.Pack)
	p, err := openPack(dir, r.Name())
	if errors.Is(err, ErrNotFound) {
		return nil, &DamageError{Pack: dir, Model: r.Name(), File: ManifestFile, Want: "a file", Got: "none"}
	}
	if err != nil {
		return nil, err
	}
	if p.digest != r.Pack {
		return nil, errors.Join(p.damage(ManifestFile, "", r.Pack.String(), p.digest.String()), p.Close())
	}
	return s.sound(ctx, p, progress)
}

// OpenDir opens the pack in any folder and makes sure that it is undamaged: when a
// stamp says that it was verified and its files have the same size, time and
// identity since, that is trusted; otherwise everything is read ([Pack.Verify], to
// which progress goes) and a stamp is left in the store. Where the store cannot be
// written, that happens every time, with a warning to the logger.
func (s *Store) OpenDir(ctx context.Context, dir string, progress Progress) (*Pack, error) {
	p, err := OpenPack(dir)
	if err != nil {
		return nil, err
	}
	return s.sound(ctx, p, progress)
}

// sound returns an open pack if it is undamaged, and closes it otherwise.
func (s *Store) sound(ctx context.Context, p *Pack, progress Progress) (*Pack, error) {
	if s.trusted(p) {
		return p, nil
	}
	if err := s.Verify(ctx, p, progress); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}
