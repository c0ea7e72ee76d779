package checkpoint

import (
	"errors"
	"io/fs"
	"maps"
	"slices"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/mmap"
)

// WeightsFile is the file of a checkpoint that is not split into shards.
const WeightsFile = "model.safetensors"

// Tensor is one tensor of a checkpoint.
type Tensor struct {
	// Name is unique in the checkpoint.
	Name string
	// DType is the number type.
	DType DType
	// Shape is the size of each dimension; a scalar has none. It must not be changed.
	Shape []int
	// Data holds the numbers, little-endian, the last dimension fastest. It is a
	// slice of the mapped file: writing to it, or touching it after
	// [Checkpoint.Close], ends the program. It is aligned to nothing.
	Data []byte
	// File is the file that holds the tensor.
	File string
}

// Checkpoint is an open folder of weights. It is safe for concurrent use, but
// for Close.
type Checkpoint struct {
	dir      string
	folder   *folder
	maps     []*mmap.Map
	tensors  map[string]Tensor
	metadata map[string]string
}

// Open maps and checks the weights in dir: model.safetensors, or else the shards
// that model.safetensors.index.json names. A folder without either is a
// *MissingError, a malformed file a *FormatError.
func Open(dir string) (*Checkpoint, error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{dir: dir, folder: f, tensors: map[string]Tensor{}, metadata: map[string]string{}}
	if err := c.load(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// load maps all weights.
func (c *Checkpoint) load() error {
	_, err := c.folder.check(WeightsFile)
	if err == nil {
		return c.addFile(WeightsFile)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	missing := &MissingError{Dir: c.dir, File: WeightsFile, Err: err}
	text, err := c.folder.read(IndexFile, maxIndexBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return missing
	}
	if err != nil {
		return err
	}
	return c.addShards(text)
}

// addFile maps one file and takes over its tensors.
func (c *Checkpoint) addFile(name string) error {
	m, err := c.folder.mapFile(name)
	if err != nil {
		return err
	}
	c.maps = append(c.maps, m)
	data := m.Bytes()
	h, err := readHeader(name, data)
	if err != nil {
		return err
	}
	for _, e := range h.entries {
		if first, twice := c.tensors[e.name]; twice {
			return &FormatError{File: name, Tensor: e.name, Problem: "the tensor is in " + first.File + " as well"}
		}
		at := data[h.dataStart+e.start : h.dataStart+e.end : h.dataStart+e.end]
		c.tensors[e.name] = Tensor{Name: e.name, DType: e.dtype, Shape: e.shape, Data: at, File: name}
	}
	maps.Copy(c.metadata, h.metadata)
	return nil
}

// Tensor returns the tensor of that name, and whether there is one.
func (c *Checkpoint) Tensor(name string) (Tensor, bool) {
	t, ok := c.tensors[name]
	return t, ok
}

// Names returns the names of all tensors, sorted.
func (c *Checkpoint) Names() []string { return slices.Sorted(maps.Keys(c.tensors)) }

// Metadata returns the free text in the headers, by key; where shards differ, that of the last.
func (c *Checkpoint) Metadata() map[string]string { return maps.Clone(c.metadata) }

// File returns the content of a small file of the folder, such as "config.json",
// of at most [MaxFileBytes]. A file that is not there is a *MissingError.
func (c *Checkpoint) File(name string) ([]byte, error) {
	data, err := c.folder.read(name, MaxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &MissingError{Dir: c.dir, File: name, Err: err}
	}
	return data, err
}

// ReadFile is [Checkpoint.File] for a folder whose weights are not needed.
func ReadFile(dir, name string) ([]byte, error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{dir: dir, folder: f}
	data, err := c.File(name)
	return data, errors.Join(err, c.Close())
}

// Has reports whether dir is there and has a regular file of that name.
func Has(dir, name string) (bool, error) {
	f, err := openFolder(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = f.check(name)
	there := err == nil
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return there, errors.Join(err, f.root.Close())
}

// Files returns the names of all files and folders directly within dir, sorted.
func Files(dir string) ([]string, error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	names, err := f.names()
	return names, errors.Join(err, f.root.Close())
}

// OpenFile maps and checks a single safetensors file of any name within dir.
func OpenFile(dir, name string) (*Checkpoint, error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{dir: dir, folder: f, tensors: map[string]Tensor{}, metadata: map[string]string{}}
	if err := c.addFile(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fault.ErrNotFound) {
			err = &MissingError{Dir: dir, File: name, Err: err}
		}
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close unmaps all files: the data of tensors must not be used any more. A second
// call does nothing.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, m := range c.maps {
		errs = append(errs, m.Close())
	}
	c.maps = nil
	clear(c.tensors)
	return errors.Join(append(errs, c.folder.root.Close())...)
}
