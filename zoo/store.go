package zoo

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/adrg/xdg"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/filelock"
)

// Folders of a store.
const (
	packsDir       = "packs"
	modelsDir      = "models"
	checkpointsDir = "checkpoints"
	referencesDir  = "references"
	stampsDir      = "state/stamps"
	receiptsDir    = "state/receipts"
	locksDir       = "locks"
	tmpDir         = "tmp"
)

// Files of a store. The names of locks that are not a release's start with a dot,
// which no model's name does.
const (
	keyFile   = "state/receipt.key"
	packsLock = locksDir + "/.packs.lock"
	keyLock   = locksDir + "/.key.lock"
)

// Store is the folder that keeps packs, checkpoints, records and receipts; see the
// package documentation for its layout. Its methods may be called by many goroutines,
// and many processes may use one folder.
type Store struct {
	home   string // absolute
	logger *slog.Logger
	// failpoint, unless nil, is called with the name of each step that changes the
	// store, before it; tests end the process there.
	failpoint func(step string)
}

// DefaultHome returns the store's folder where none is configured: "zoo" in the
// user's data folder as the platform has it. It does not look at ZOO_HOME.
func DefaultHome() string { return filepath.Join(xdg.DataHome, "zoo") }

// OpenStore returns the store in a folder, "" standing for [DefaultHome]. Nothing is
// created before it is needed, so that a store that does not exist, or cannot be
// written, can be read: it is empty. A nil logger discards. A dir that is no folder
// is [ErrUsage].
func OpenStore(dir string, logger *slog.Logger) (*Store, error) {
	if dir == "" {
		dir = DefaultHome()
	}
	home, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if info, err := os.Stat(home); err == nil && !info.IsDir() {
		return nil, fault.WithHint(fmt.Errorf("store %q is not a folder: %w", home, fault.ErrUsage), "point ZOO_HOME at a folder")
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Store{home: home, logger: logger}, nil
}

// Home returns the store's folder as an absolute path.
func (s *Store) Home() string { return s.home }

// PackDir returns the folder of a pack in the store, whether it is there or not.
func (s *Store) PackDir(d catalog.Digest) string { return s.path(packName(d)) }

// CheckpointDir returns the folder of a release's source files, whether it is there
// or not. A name or version that breaks the rules is [ErrUsage].
func (s *Store) CheckpointDir(model, version string) (string, error) {
	if err := checkRelease(model, version); err != nil {
		return "", err
	}
	return s.path(checkpointName(model, version)), nil
}

// path returns the path of something in the store by its slash-separated name.
func (s *Store) path(name string) string { return filepath.Join(s.home, filepath.FromSlash(name)) }

// step marks a point before a change of the store.
func (s *Store) step(name string) {
	if s.failpoint != nil {
		s.failpoint(name)
	}
}

// inRoot calls f with the store's folder opened so that nothing outside of it can be
// reached. Where the folder does not exist the error matches fs.ErrNotExist.
func (s *Store) inRoot(f func(root *os.Root) error) error {
	root, err := os.OpenRoot(s.home)
	if err != nil {
		return atomicfile.MapError(s.home, fmt.Errorf("store: %w", err))
	}
	err = f(root)
	return errors.Join(atomicfile.MapError(s.home, err), root.Close())
}

// mkdir makes sure that a folder of the store exists, and the store itself.
func (s *Store) mkdir(name string) error {
	if err := os.MkdirAll(s.home, 0o755); err != nil {
		return atomicfile.MapError(s.home, fmt.Errorf("store: %w", err))
	}
	return s.inRoot(func(root *os.Root) error { return root.MkdirAll(name, 0o755) })
}

// readFile reads a file of the store of at most so many bytes. A file that is
// missing, or is missing with the whole store, is fs.ErrNotExist; one that is no
// regular file or is longer is fault.ErrIntegrity.
func (s *Store) readFile(name string, most int64) ([]byte, error) {
	var data []byte
	err := s.inRoot(func(root *os.Root) (err error) {
		data, err = readCapped(root, name, most)
		return err
	})
	return data, err
}

// readCapped reads a regular file of at most so many bytes.
func readCapped(root *os.Root, name string, most int64) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is a %s: %w", name, kindOf(info), fault.ErrIntegrity)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		return nil, fmt.Errorf("%q has more than %d bytes: %w", name, most, fault.ErrIntegrity)
	}
	return data, err
}

// readDir lists a folder of the store, sorted by name; one that is missing is empty.
func (s *Store) readDir(name string) ([]fs.DirEntry, error) {
	var entries []fs.DirEntry
	err := s.inRoot(func(root *os.Root) (err error) {
		entries, err = fs.ReadDir(root.FS(), name)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

// writeFile creates or replaces a file of the store, and its folder.
func (s *Store) writeFile(name string, data []byte, opts atomicfile.Options) error {
	if err := s.mkdir(path.Dir(name)); err != nil {
		return err
	}
	return atomicfile.WriteFile(context.Background(), s.path(name), data, opts)
}

// acquire takes one of the store's locks. A store that cannot be written is fault.ErrNotPermitted.
func (s *Store) acquire(ctx context.Context, name string, waiting func()) (*filelock.Lock, error) {
	if err := s.mkdir(locksDir); err != nil {
		return nil, err
	}
	// A lock can be had on a file that may only be read. But whoever may not write
	// the store has no use for it, and must not keep others from theirs.
	err := s.inRoot(func(root *os.Root) error {
		f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return fmt.Errorf("lock %q: %w", s.path(name), err)
		}
		return f.Close()
	})
	if err != nil {
		return nil, err
	}
	return filelock.Acquire(ctx, s.path(name), waiting)
}

// WhileWriting calls f while nobody else who uses this store is in a call for the same
// file, which need not be one of the store's: it is for files that many processes change.
// Waiting and the errors are as for [Store.Lock]. In a store that cannot be written f is
// called all the same.
func (s *Store) WhileWriting(ctx context.Context, file string, waiting func(), f func() error) error {
	name := fmt.Sprintf("%s/.file-%x.lock", locksDir, sha256.Sum256([]byte(filepath.Clean(file))))
	lock, err := s.acquire(ctx, name, waiting)
	switch {
	case errors.Is(err, fault.ErrNotPermitted):
		return f()
	case err != nil:
		return err
	}
	return errors.Join(f(), lock.Release())
}

// withPacks calls f while nobody else adds or removes packs and records.
func (s *Store) withPacks(ctx context.Context, f func() error) error {
	lock, err := s.acquire(ctx, packsLock, nil)
	if err != nil {
		return err
	}
	err = f()
	return errors.Join(err, lock.Release())
}

// errBusy is the cause with which tryAcquire gives up.
var errBusy = errors.New("the lock is taken")

// tryAcquire takes a lock if it is free, and is errBusy otherwise.
func (s *Store) tryAcquire(ctx context.Context, name string) (*filelock.Lock, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return s.acquire(ctx, name, func() { cancel(errBusy) })
}

// packName returns the name of a pack's folder in the store.
func packName(d catalog.Digest) string { return packsDir + "/" + d.Hex() }

// checkRelease makes sure that a name and a version can become paths.
func checkRelease(model, version string) error {
	if err := catalog.ValidateName(model); err != nil {
		return err
	}
	if _, err := semver.StrictNewVersion(version); err != nil || len(version) > maxVersionBytes {
		return fmt.Errorf("version %.80q of model %q is not a semantic version of at most %d bytes: %w", version, model, maxVersionBytes, fault.ErrUsage)
	}
	for _, p := range []string{model + "/" + version, model + "/" + version + recordSuffix} {
		if err := catalog.ValidatePath(p); err != nil {
			return err
		}
	}
	return nil
}

// Usage tells how much room a store takes, in bytes.
type Usage struct {
	PackBytes       int64 `json:"pack_bytes"`
	CheckpointBytes int64 `json:"checkpoint_bytes"`
	OtherBytes      int64 `json:"other_bytes"`
}

// TotalBytes returns the sum.
func (u Usage) TotalBytes() int64 { return u.PackBytes + u.CheckpointBytes + u.OtherBytes }

// Usage adds up the sizes of all files in the store. Files that vanish meanwhile do
// not count.
func (s *Store) Usage(ctx context.Context) (Usage, error) {
	var u Usage
	err := s.inRoot(func(root *os.Root) error {
		return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			if errors.Is(err, fs.ErrNotExist) && name != "." {
				return nil
			}
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			info, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			switch top, _, _ := strings.Cut(name, "/"); top {
			case packsDir:
				u.PackBytes += info.Size()
			case checkpointsDir:
				u.CheckpointBytes += info.Size()
			default:
				u.OtherBytes += info.Size()
			}
			return nil
		})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return Usage{}, nil
	}
	return u, err
}
