package metal

import (
	"fmt"
	"sync/atomic"
)

// allocator takes buffers from a device for one executor, and keeps what all
// executors of a backend hold within what the device recommends: beyond that it
// may still give memory, and be very slow.
type allocator struct {
	device Device
	info   DeviceInfo
	// held is what all executors of the backend hold.
	held *atomic.Int64
}

// reserve counts memory that is about to be taken.
func (a *allocator) reserve(size int) error {
	if held := a.held.Add(int64(size)); held > a.info.MemoryBytes {
		a.held.Add(-int64(size))
		return fmt.Errorf("%w: %d MB more than the %d MB in use, of %d MB that %q recommends",
			ErrMemory, size>>20, (held-int64(size))>>20, a.info.MemoryBytes>>20, a.info.Name)
	}
	return nil
}

// alloc returns zeroed memory.
func (a *allocator) alloc(size int) (Buffer, error) {
	if err := a.reserve(size); err != nil {
		return nil, err
	}
	b, err := a.device.Alloc(size)
	if err != nil {
		a.held.Add(-int64(size))
	}
	return b, err
}

// mapped returns memory of the process.
func (a *allocator) mapped(memory []byte) (Buffer, error) {
	if err := a.reserve(len(memory)); err != nil {
		return nil, err
	}
	b, err := a.device.Map(memory)
	if err != nil {
		a.held.Add(-int64(len(memory)))
	}
	return b, err
}

// free gives a buffer back; nil is none.
func (a *allocator) free(b Buffer) {
	if b == nil {
		return
	}
	a.held.Add(-int64(len(b.Bytes())))
	b.Release()
}
