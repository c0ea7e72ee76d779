package zoo

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
)

// Store is the folder that keeps packs, checkpoints, records and receipts; see the
// package documentation for its layout. Its methods may be called by many goroutines,
// and many processes may use one folder.
type Store struct{}

// DefaultHome returns the store's folder where none is configured: "zoo" in the
// user's data folder as the platform has it. It does not look at ZOO_HOME.
func DefaultHome() string { return "" }

// OpenStore returns the store in a folder, "" standing for [DefaultHome]. Nothing is
// created before it is needed, so that a store that does not exist, or cannot be
// written, can be read: it is empty. A nil logger discards.
func OpenStore(dir string, logger *slog.Logger) (*Store, error) { return nil, errors.ErrUnsupported }

// Home returns the store's folder as an absolute path.
func (s *Store) Home() string { return "" }

// Record says what is installed as a version of a model (models/NAME/VERSION.json).
type Record struct {
	// Release is the catalog's entry at the time; Release.Model and Release.Version name the record.
	Release catalog.Release `json:"release"`
	// Sources lists the fetched files with their sizes and digests, those that the
	// catalog did not know included. They bind every later fetch of the release.
	Sources []catalog.File `json:"sources"`
	// Commit is the commit behind a revision that is a branch or tag, or "".
	Commit string `json:"commit,omitempty"`
	// Pack is the digest of the pack.
	Pack catalog.Digest `json:"pack"`
	// Plugin made the pack.
	Plugin PluginID `json:"plugin"`
	// Installed is when.
	Installed time.Time `json:"installed"`
}

// Name returns the model's name.
func (r *Record) Name() string { return r.Release.Model }

// Version returns the model's version.
func (r *Record) Version() string { return r.Release.Version }

// Installed returns all records, sorted by name, newest version first. Records that
// cannot be read are left out, with a warning to the logger.
func (s *Store) Installed(ctx context.Context) ([]Record, error) { return nil, errors.ErrUnsupported }

// Find returns the record of the newest installed version that satisfies a
// reference, by the rules of catalog.Catalog.Resolve. Aliases are the catalog's
// business. Errors are [*NotInstalledError], and [ErrIntegrity] for a record that
// cannot be read.
func (s *Store) Find(ref catalog.Ref) (*Record, error) { return nil, errors.ErrUnsupported }

// Record returns the record of exactly this release, or a [*NotInstalledError].
func (s *Store) Record(model, version string) (*Record, error) { return nil, errors.ErrUnsupported }

// Open opens the pack of a record, as [Store.OpenDir] does. A pack that is gone or
// has another digest is [ErrIntegrity].
func (s *Store) Open(ctx context.Context, r *Record, progress Progress) (*Pack, error) {
	return nil, errors.ErrUnsupported
}

// OpenDir opens the pack in any folder and makes sure that it is undamaged: when a
// stamp says that it was verified and its files have the same size, time and
// identity since, that is trusted; otherwise everything is read ([Pack.Verify], to
// which progress goes) and a stamp is left in the store. Where the store cannot be
// written, that happens every time, with a warning to the logger.
func (s *Store) OpenDir(ctx context.Context, dir string, progress Progress) (*Pack, error) {
	return nil, errors.ErrUnsupported
}

// Verify reads an open pack through whatever its stamp says, and renews the stamp, or
// removes it when the pack is damaged. See [Pack.Verify].
func (s *Store) Verify(ctx context.Context, p *Pack, progress Progress) error {
	return errors.ErrUnsupported
}

// Remove removes an installed version: its record, its checkpoint, and its pack
// unless another record refers to it. It waits for the release's lock, until ctx
// ends; so the caller must not hold it. Nothing installed is a [*NotInstalledError].
// A record that cannot be read is removed as well.
func (s *Store) Remove(ctx context.Context, model, version string) error {
	return errors.ErrUnsupported
}

// Usage tells how much room a store takes, in bytes.
type Usage struct {
	PackBytes, CheckpointBytes, OtherBytes int64
}

// TotalBytes returns the sum.
func (u Usage) TotalBytes() int64 { return u.PackBytes + u.CheckpointBytes + u.OtherBytes }

// Usage adds up the sizes of all files in the store.
func (s *Store) Usage(ctx context.Context) (Usage, error) { return Usage{}, errors.ErrUnsupported }
