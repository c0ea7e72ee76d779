package zoo

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/quant"
)

// PlannedTensor is a tensor that is going to be written.
type PlannedTensor struct {
	// Name is unique in the pack: 1 to 200 ASCII letters, digits and "._-/:+". Names
	// that start with "__" belong to the file format.
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
type PackWriter struct {
	dir      string
	root     *os.Root
	manifest Manifest
	layout   *weightsLayout // nil before Plan
	file     *os.File       // the weights file
	buffered *bufio.Writer
	pipe     *hashPipe
	weights  *checkpoint.Writer
	closed   bool
	err      error // the first error; all later calls return it
}

// errClosed reports a use of a PackWriter after Finish or Close.
var errClosed = fmt.Errorf("the pack writer is closed: %w", fault.ErrUsage)

// NewPackWriter starts a pack in dir, an existing empty folder. The id is the
// plugin's, whose version must be semantic; sources lists the checkpoint's files
// that go into the pack, with their sizes and digests. Arguments that break these
// rules are [ErrUsage].
func NewPackWriter(dir string, id PluginID, recipe map[string]string, sources []catalog.File) (*PackWriter, error) {
	m := Manifest{Format: PackFormat, Plugin: id, Recipe: maps.Clone(recipe), Constants: map[string]float32{}}
	for _, s := range sources {
		m.Sources = append(m.Sources, ManifestFileEntry{Path: s.Path, SizeBytes: s.SizeBytes, SHA256: s.SHA256})
	}
	sortEntries(m.Sources)
	if err := checkPlugin(id); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(recipe)) {
		if err := checkRecipe(key, recipe[key]); err != nil {
			return nil, fmt.Errorf("pack: %w", err)
		}
	}
	if err := checkEntries("source", m.Sources); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, atomicfile.MapError(dir, fmt.Errorf("pack: %w", err))
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("pack: folder %q is not empty: %w", dir, fault.ErrUsage)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, atomicfile.MapError(dir, fmt.Errorf("pack: %w", err))
	}
	return &PackWriter{dir: dir, root: root, manifest: m}, nil
}

// sortEntries sorts files by path.
func sortEntries(entries []ManifestFileEntry) {
	slices.SortFunc(entries, func(a, b ManifestFileEntry) int { return cmp.Compare(a.Path, b.Path) })
}

// hugePageBytes is the size of the pieces in which the weights are written: Linux
// then keeps them as huge pages, which are mapped and read faster.
const hugePageBytes = 2 << 20

// Plan fixes all tensors of the weights file and their order. It checks that there
// is room for the file ([ErrNoSpace]) and writes its header. It is called once.
func (w *PackWriter) Plan(tensors []PlannedTensor) error {
	return w.do("plan", func() error {
		if w.layout != nil {
			return fmt.Errorf("it is planned already: %w", fault.ErrUsage)
		}
		layout, err := layoutWeights(tensors)
		if err != nil {
			return err
		}
		if err := atomicfile.CheckSpace(filepath.Join(w.dir, WeightsFile), layout.sizeBytes()); err != nil {
			return err
		}
		for i, t := range tensors {
			w.manifest.Tensors = append(w.manifest.Tensors, Tensor{Name: t.Name, Matrix: t.Matrix, Offset: layout.offset(i)})
		}
		if w.file, err = w.create(WeightsFile); err != nil {
			return err
		}
		w.layout = layout
		w.buffered = bufio.NewWriterSize(w.file, hugePageBytes)
		w.pipe = newHashPipe(w.buffered)
		w.weights, err = checkpoint.NewWriter(w.pipe, layout.file)
		return err
	})
}

// WriteTensor writes the next planned tensor, which must be the named one. The
// function writes exactly the matrix's SizeBytes to its argument, in pieces of any
// size, and may reuse their memory at once. After an error the pack cannot be finished.
func (w *PackWriter) WriteTensor(name string, write func(io.Writer) error) error {
	return w.do(WeightsFile, func() error {
		if w.layout == nil {
			return fmt.Errorf("tensor %q is not planned: %w", name, fault.ErrUsage)
		}
		return w.weights.WriteTensor(name, func(out io.Writer) error {
			if err := w.pipe.begin(); err != nil {
				return err
			}
			if err := write(out); err != nil {
				return err
			}
			return w.pipe.end()
		})
	})
}

// WriteFile adds a file. The path obeys catalog.ValidatePath and is none of the
// manifest, the digest, the weights file and the receipt.
func (w *PackWriter) WriteFile(name string, data []byte) error {
	return w.do(name, func() error {
		entry := ManifestFileEntry{Path: name, SizeBytes: int64(len(data)), SHA256: catalog.DigestOf(data).Hex()}
		files := append(slices.Clone(w.manifest.Files), entry)
		sortEntries(files)
		if strings.EqualFold(name, WeightsFile) {
			return fmt.Errorf("the weights are written with WriteTensor: %w", fault.ErrUsage)
		}
		if err := checkEntries("file", files); err != nil {
			return err
		}
		if folder := path.Dir(name); folder != "." {
			if err := w.root.MkdirAll(folder, 0o755); err != nil {
				return err
			}
		}
		w.manifest.Files = files
		return w.write(name, data)
	})
}

// SetConstants adds constants to the manifest. Values are finite; names follow the
// rule for tensors, and each is set once.
func (w *PackWriter) SetConstants(constants map[string]float32) error {
	return w.do("constants", func() error {
		for _, name := range slices.Sorted(maps.Keys(constants)) {
			if err := checkConstant(name, constants[name]); err != nil {
				return err
			}
			if _, twice := w.manifest.Constants[name]; twice {
				return fmt.Errorf("constant %q is set twice: %w", name, fault.ErrUsage)
			}
			w.manifest.Constants[name] = constants[name]
		}
		return nil
	})
}

// Finish completes the weights file, writes the manifest and the digest, syncs
// everything to the device and returns the pack's digest. Every planned tensor must
// have been written. A folder in which Finish did not succeed holds no pack. The
// context ends it up to the point where the manifest is written.
func (w *PackWriter) Finish(ctx context.Context) (catalog.Digest, error) {
	var digest catalog.Digest
	err := w.do("finish", func() error {
		if w.layout == nil {
			return fmt.Errorf("nothing is planned: %w", fault.ErrUsage)
		}
		if err := w.finishWeights(); err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if _, err := w.manifest.check(); err != nil {
			return err
		}
		data, err := w.manifest.Encode()
		if err != nil {
			return err
		}
		if err := w.write(ManifestFile, data); err != nil {
			return err
		}
		digest = catalog.DigestOf(data)
		// Last, so that a folder with it is complete.
		if err := w.write(DigestFile, encodeDigest(digest)); err != nil {
			return err
		}
		return w.syncFolders()
	})
	if err != nil {
		return "", err
	}
	return digest, w.Close()
}

// finishWeights completes the weights file and enters the digests into the manifest.
func (w *PackWriter) finishWeights() error {
	if err := w.weights.Close(); err != nil {
		return err
	}
	if err := w.pipe.flush(false); err != nil {
		return err
	}
	if err := w.buffered.Flush(); err != nil {
		return err
	}
	w.pipe.stop()
	for i := range w.manifest.Tensors {
		w.manifest.Tensors[i].SHA256 = hex.EncodeToString(w.pipe.tensorSums[i][:])
	}
	w.manifest.Files = append(w.manifest.Files, ManifestFileEntry{
		Path: WeightsFile, SizeBytes: w.layout.sizeBytes(), SHA256: hex.EncodeToString(w.pipe.fileSum[:]),
	})
	sortEntries(w.manifest.Files)
	err := w.file.Sync()
	return errors.Join(err, w.file.Close())
}

// syncFolders brings the names of all files to the device.
func (w *PackWriter) syncFolders() error {
	folders := map[string]bool{".": true}
	for _, f := range w.manifest.Files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	for dir := range folders {
		if err := atomicfile.SyncDir(filepath.Join(w.dir, filepath.FromSlash(dir))); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the work without finishing it; the folder is left to its owner. After
// Finish it does nothing.
func (w *PackWriter) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	if w.pipe != nil {
		w.pipe.stop()
		_ = w.file.Close() // closed already after Finish, of no use otherwise
	}
	return w.root.Close()
}

// do runs one step. Its first error is returned from then on, since what was written
// before it cannot be relied on.
func (w *PackWriter) do(what string, step func() error) error {
	if w.closed {
		return errClosed
	}
	if w.err == nil {
		if err := step(); err != nil {
			w.err = atomicfile.MapError(w.dir, fmt.Errorf("pack: %s: %w", what, err))
		}
	}
	return w.err
}

// create makes a new file in the folder.
func (w *PackWriter) create(name string) (*os.File, error) {
	return w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}

// write makes a new file with this content and brings it to the device.
func (w *PackWriter) write(name string, data []byte) error {
	f, err := w.create(name)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// encodeDigest returns the content of the digest file.
func encodeDigest(d catalog.Digest) []byte { return []byte(string(d) + "\n") }
