package metal

import (
	"context"
	"errors"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// Driver opens devices. There is one over Apple's Metal and one for tests,
// which runs the same kernels on the processor.
type Driver interface {
	// Open returns the default device, or an error that matches ErrNoDevice.
	Open() (Device, error)
}

// DeviceInfo is what a device says of itself.
type DeviceInfo struct {
	// Name is the device's name, such as "Apple M4 Max".
	Name string
	// MemoryBytes is how much memory a process should use on the device at most.
	MemoryBytes int64
	// MaxBufferBytes is the largest buffer.
	MaxBufferBytes int64
	// PageBytes is what the start and the length of mapped memory must be multiples of.
	PageBytes int
	// MaxThreads is the most threads of a threadgroup, a multiple of SIMDWidth.
	MaxThreads int
	// SharedBytes is the most memory that the threads of a group share.
	SharedBytes int
}

// SIMDWidth is the number of threads that work in step: that of every Apple
// GPU, and what the kernels are written for.
const SIMDWidth = 32

// Device runs kernels. Its methods may be called by one goroutine at a time.
type Device interface {
	// Info describes the device.
	Info() DeviceInfo
	// Alloc returns zeroed memory that processor and device both see. Errors match ErrMemory.
	Alloc(sizeBytes int) (Buffer, error)
	// Map lets the device read memory of this process without a copy. Start and
	// length are multiples of PageBytes. The memory must stay valid, and is not
	// changed, until the buffer is released. Errors match ErrMemory.
	Map(memory []byte) (Buffer, error)
	// Load compiles a library from source and makes pipelines of the named
	// kernels. It may be called once. Errors match ErrKernel and hold the compiler's messages.
	Load(ctx context.Context, source string, kernels []string) error
	// Record prepares a list of dispatches for replay. Each begins when the one
	// before has ended and sees all that it wrote.
	Record(dispatches []Dispatch) (List, error)
	// Submit has the device run lists one after the other, and returns at once.
	// It copies what it needs of them. Submissions run in order.
	Submit(lists []List) (Submission, error)
	// Close frees everything that is still held; the device must be idle. It may be called twice.
	Close() error
}

// Buffer is memory that a device sees.
type Buffer interface {
	// Bytes returns the memory as this process sees it. It must not be touched
	// where a submission that has not ended touches it, but for words that
	// kernels access atomically. That of Map is read-only.
	Bytes() []byte
	// Release frees the buffer. No list that names it may be submitted any more.
	Release()
}

// List is a list of dispatches, encoded once.
type List interface {
	// Release frees the list.
	Release()
}

// Submission is work that has been given to a device.
type Submission interface {
	// Wait returns when the work has ended. Errors match ErrDevice. It may be called once.
	Wait() error
}

// Dispatch runs a kernel over a grid of threadgroups.
type Dispatch struct {
	// Kernel is the name of the function.
	Kernel string
	// Args is what the kernel sees as buffer 0, at most 4096 bytes: a struct of 4-byte words. It is copied.
	Args []byte
	// Buffers are bound to the indices from 1 on. One without a Buffer is left unbound, and the kernel does not touch it.
	Buffers []Binding
	// Groups is the number of threadgroups in each direction. A dispatch that has none in one of them does nothing.
	Groups [3]int
	// Threads is the number of threads of a group, a multiple of SIMDWidth.
	Threads int
	// SharedBytes is the size of threadgroup memory 0, a multiple of 16.
	SharedBytes int
}

// Binding is a part of a buffer. A kernel touches no byte outside of it.
type Binding struct {
	Buffer Buffer
	// Offset is a multiple of 16.
	Offset, Size int
}

// Errors of devices.
var (
	// ErrNoDevice reports that this machine has no usable GPU.
	ErrNoDevice error = noDevice("no Metal device")
	// ErrMemory reports that the device cannot hold what is asked of it.
	ErrMemory = errors.New("not enough GPU memory")
	// ErrKernel reports kernels that the device's compiler refuses.
	ErrKernel = errors.New("kernels do not compile")
	// ErrDevice reports a device that failed or went away while it worked.
	ErrDevice = errors.New("the GPU failed")
)

// noDevice is an error of the kind fault.ErrNotFound whose text does without the name of the kind.
type noDevice string

// Error implements error.
func (e noDevice) Error() string { return string(e) }

// Is matches fault.ErrNotFound.
func (e noDevice) Is(target error) bool { return target == fault.ErrNotFound }
