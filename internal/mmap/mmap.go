package mmap

import (
	"fmt"
	"math"
	"os"
	"sync"

	mapping "github.com/edsrzf/mmap-go"

	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// Map is a file mapped for reading. Its methods may be called by many goroutines.
type Map struct {
	mu   sync.Mutex
	data mapping.MMap
}

// Open maps the whole file at path. A missing file is fs.ErrNotExist, one that may
// not be read fault.ErrNotPermitted. The file may be renamed or removed while it is
// mapped (on Windows only after [Map.Close]), but must not be truncated.
func Open(path string) (*Map, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		// Looked at before opening, which would wait at the end of a pipe.
		return nil, fmt.Errorf("map %q: not a regular file: %w", path, fault.ErrUsage)
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, atomicfile.MapError(path, fmt.Errorf("map: %w", err))
	}
	// The mapping outlives the handle.
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("map %q: %w", path, err)
	}
	switch {
	case info.Size() > math.MaxInt:
		return nil, fmt.Errorf("map %q: %d bytes are beyond this machine's address space", path, info.Size())
	case info.Size() == 0:
		// Systems refuse to map nothing.
		return &Map{data: mapping.MMap{}}, nil
	}
	data, err := mapping.MapRegion(f, int(info.Size()), mapping.RDONLY, 0, 0)
	if err != nil {
		return nil, atomicfile.MapError(path, fmt.Errorf("map %q: %w", path, err))
	}
	return &Map{data: data}, nil
}

// Bytes returns the content, not a copy of it, or nil after [Map.Close]. Writing to
// it, or touching it after Close, ends the program.
func (m *Map) Bytes() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data
}

// Len returns the length in bytes, or 0 after [Map.Close].
func (m *Map) Len() int { return len(m.Bytes()) }

// Close ends the mapping. Nobody may use a slice of [Map.Bytes] any more: the
// caller makes sure of that. A second call does nothing.
func (m *Map) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.data) == 0 {
		m.data = nil
		return nil
	}
	forget(m.data)
	if err := m.data.Unmap(); err != nil {
		return fmt.Errorf("unmap: %w", err)
	}
	return nil
}
