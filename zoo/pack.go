package zoo

import (
	"context"
	"errors"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/quant"
)

// Progress is told how many bytes of how many are done. Calls never overlap and
// never go back.
type Progress func(doneBytes, totalBytes int64)

// Pack is an open pack: its files are mapped, nothing is copied. It implements
// backends.Weights. Its methods may be called by many goroutines.
type Pack struct{}

// OpenPack opens the pack in a folder. It checks the manifest against pack.digest
// and everything that can be told without reading the other files through: sizes,
// the weights file's header, where tensors lie. Errors are [*DamageError],
// [*ManifestError], [*FormatError], [ErrNotFound] for a folder that holds no pack,
// and those of the file system. [Pack.Verify] reads the rest; [Store.OpenDir] does
// so when it is needed.
func OpenPack(dir string) (*Pack, error) { return nil, errors.ErrUnsupported }

// Dir returns the folder that the pack was opened from.
func (p *Pack) Dir() string { return "" }

// Digest returns the sha256 of the manifest.
func (p *Pack) Digest() catalog.Digest { return "" }

// Manifest returns the parsed manifest, which must not be modified.
func (p *Pack) Manifest() *Manifest { return nil }

// Info returns what plugins are told. Its bytes are valid until [Pack.Close].
func (p *Pack) Info() PackInfo { return PackInfo{} }

// Tensor returns a tensor's bytes, which are mapped, read-only and valid until
// [Pack.Close], its matrix, and whether there is a tensor of that name.
func (p *Pack) Tensor(name string) (data []byte, m quant.Matrix, ok bool) {
	return nil, quant.Matrix{}, false
}

// File returns the content of a file by its path in the pack. The bytes are mapped,
// read-only and valid until [Pack.Close]. A file that the manifest does not list is
// [ErrNotFound].
func (p *Pack) File(path string) ([]byte, error) { return nil, errors.ErrUnsupported }

// SizeBytes returns the size of all files of the pack, the manifest included.
func (p *Pack) SizeBytes() int64 { return 0 }

// Verify reads everything and holds it against the manifest's digests. It returns
// nil, a [*DamageError], or several of them joined, which name each damaged file,
// and in the weights file each damaged tensor; or the cause of ctx, or an error of
// the file system. Progress may be nil.
func (p *Pack) Verify(ctx context.Context, progress Progress) error { return errors.ErrUnsupported }

// Close ends all mappings. Nobody may use the pack's bytes afterwards. A second call
// does nothing.
func (p *Pack) Close() error { return nil }
