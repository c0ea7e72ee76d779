package zoo

import (
	"context"
	"errors"
	"io"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/quant"
)

// PaddingTensor is the name of the tensor of zeros that ends a weights file; no other tensor may have it.
const PaddingTensor = "zoo.padding"

// PlannedTensor is a tensor that is going to be written.
type PlannedTensor struct {
	// Name is unique in the pack: 1 to 200 ASCII letters, digits and "._-/:", not PaddingTensor.
	Name string
	quant.Matrix
}

// PackWriter writes a pack into an empty folder in one pass, in constant memory:
//
//	w, err := zoo.NewPackWriter(dir, id, recipe, sources)
//	defer w.Close()
//	w.Plan(tensors)                                    // all tensors, in their order
//	w.WriteTensor(name, func(out io.Writer) error {…}) // each, in that order
//	w.WriteFile(zoo.ConfigFile, data)                  // at any time
//	w.SetConstants(constants)                          // at any time
//	digest, err := w.Finish(ctx)
//
// Equal calls give equal bytes. It is not safe for concurrent use.
type PackWriter struct{}

// NewPackWriter starts a pack in dir, an existing empty folder. The id is the plugin's, whose
// version must be semantic; sources lists the checkpoint's files that go into the
// pack, with their sizes and digests. Arguments that break these rules are [ErrUsage].
func NewPackWriter(dir string, id PluginID, recipe map[string]string, sources []catalog.File) (*PackWriter, error) {
	return nil, errors.ErrUnsupported
}

// Plan fixes all tensors of the weights file and their order. It checks that there
// is room for the file ([ErrNoSpace]) and writes its header. It is called once.
func (w *PackWriter) Plan(tensors []PlannedTensor) error { return errors.ErrUnsupported }

// WriteTensor writes the next planned tensor, which must be the named one. The
// function writes exactly the matrix's SizeBytes to its argument, in pieces of any
// size, and may reuse their memory at once. After an error the pack cannot be finished.
func (w *PackWriter) WriteTensor(name string, write func(io.Writer) error) error {
	return errors.ErrUnsupported
}

// WriteFile adds a file. The path obeys catalog.ValidatePath and is none of the
// manifest, the digest, the weights file and the receipt.
func (w *PackWriter) WriteFile(path string, data []byte) error { return errors.ErrUnsupported }

// SetConstants adds constants to the manifest. Values are finite; names follow the
// rule for tensors, and each is set once.
func (w *PackWriter) SetConstants(constants map[string]float32) error { return errors.ErrUnsupported }

// Finish completes the weights file, writes the manifest and the digest, syncs
// everything to the device and returns the pack's digest. Every planned tensor must
// have been written. A folder in which Finish did not succeed holds no pack.
func (w *PackWriter) Finish(ctx context.Context) (catalog.Digest, error) {
	return "", errors.ErrUnsupported
}

// Close ends the work without finishing it; the folder is left to its owner. After
// Finish it does nothing.
func (w *PackWriter) Close() error { return nil }
