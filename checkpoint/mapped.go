package checkpoint

import (
	"errors"
	"io/fs"

	"github.com/zoo-sdk/zoo/internal/mmap"
)

// MappedFile is a file of a folder of weights, mapped for reading. It is for formats
// that other packages read.
type MappedFile struct{ mapping *mmap.Map }

// MapFile maps the file of that name directly within dir. As for [Open], links that
// lead out of the folder are refused. A file that is not there is a *MissingError.
func MapFile(dir, name string) (*MappedFile, error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	m, err := f.mapFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = &MissingError{Dir: dir, File: name, Err: err}
	}
	if err := errors.Join(err, f.root.Close()); err != nil {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
		return nil, err
	}
	return &MappedFile{m}, nil
}

// Bytes returns the content, not a copy of it, or nil after [MappedFile.Close].
// Writing to it, or touching it after Close, ends the program.
func (f *MappedFile) Bytes() []byte { return f.mapping.Bytes() }

// Close ends the mapping. A second call does nothing.
func (f *MappedFile) Close() error { return f.mapping.Close() }
