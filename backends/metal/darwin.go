//go:build darwin && cgo

package metal

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"unsafe"

	mtl "github.com/progrium/darwinkit/macos/metal"
	"github.com/progrium/darwinkit/objc"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// SystemDriver returns the driver over Apple's Metal.
func SystemDriver() Driver { return systemDriver{} }

// systemDriver implements Driver.
type systemDriver struct{}

// Open implements Driver.
func (systemDriver) Open() (Device, error) {
	ptr := nativeDevice()
	if ptr == nil {
		return nil, fault.WithHint(ErrNoDevice, "macOS shows no GPU to this process: run it as the user who is logged in")
	}
	d := &systemDevice{gpu: mtl.DeviceObject{Object: objc.ObjectFrom(ptr)}, held: map[*systemResource]struct{}{}}
	objc.WithAutoreleasePool(func() {
		d.info = DeviceInfo{
			Name:           d.gpu.Name(),
			MemoryBytes:    int64(d.gpu.RecommendedMaxWorkingSetSize()),
			MaxBufferBytes: int64(d.gpu.MaxBufferLength()),
			PageBytes:      os.Getpagesize(),
			MaxThreads:     nativeMaxThreads(ptr),
			SharedBytes:    int(d.gpu.MaxThreadgroupMemoryLength()),
		}
	})
	if !nativeSuffices(ptr) {
		d.gpu.Release()
		return nil, fault.WithHint(fmt.Errorf("%w: %q lacks what the kernels use", ErrNoDevice, d.info.Name),
			"an Apple M1 or later with macOS 13 or later is needed, and not a virtual machine")
	}
	// A method called new returns a reference of our own, which Close releases.
	d.queue, d.event = d.gpu.NewCommandQueue(), d.gpu.NewSharedEvent()
	if d.queue.IsNil() || d.event.IsNil() {
		return nil, errors.Join(fmt.Errorf("%w: %q has no command queue left", ErrNoDevice, d.info.Name), d.Close())
	}
	return d, nil
}

// systemDevice implements Device.
type systemDevice struct {
	info      DeviceInfo
	gpu       mtl.DeviceObject
	queue     mtl.CommandQueueObject
	event     mtl.SharedEventObject
	signals   uint64 // the value that the event has when all that was submitted has ended
	pipelines map[string]systemPipeline
	closed    bool

	mu   sync.Mutex
	held map[*systemResource]struct{} // what Close has to free
}

// systemResource is something native that lives until it is released, at the latest until its device is closed.
type systemResource struct {
	owner *systemDevice
	free  func()
}

// hold makes a resource the device's.
func (d *systemDevice) hold(r *systemResource, free func()) {
	r.owner, r.free = d, free
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[r] = struct{}{}
}

// Release frees the resource, once.
func (r *systemResource) Release() {
	r.owner.mu.Lock()
	_, held := r.owner.held[r]
	delete(r.owner.held, r)
	r.owner.mu.Unlock()
	if held {
		r.free()
	}
}

// Info implements Device.
func (d *systemDevice) Info() DeviceInfo { return d.info }

// errDeviceClosed reports a call that came too late.
var errDeviceClosed = errors.New("the device is closed")

// Close implements Device.
func (d *systemDevice) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	d.mu.Lock()
	held := slices.Collect(maps.Keys(d.held))
	d.mu.Unlock()
	for _, r := range held {
		r.Release()
	}
	for _, p := range d.pipelines {
		p.state.Release()
	}
	for _, o := range []objc.Object{d.event.Object, d.queue.Object, d.gpu.Object} {
		if !o.IsNil() {
			o.Release()
		}
	}
	return nil
}

// systemBuffer implements Buffer.
type systemBuffer struct {
	systemResource
	object mtl.BufferObject
	memory []byte
}

// Bytes implements Buffer.
func (b *systemBuffer) Bytes() []byte { return b.memory }

// buffer takes over the reference to a buffer that the device has made.
func (d *systemDevice) buffer(object mtl.BufferObject, memory []byte) *systemBuffer {
	b := &systemBuffer{object: object, memory: memory}
	d.hold(&b.systemResource, func() {
		b.memory = nil
		object.Release()
	})
	return b
}

// checkSize returns an error for what no buffer can hold.
func (d *systemDevice) checkSize(sizeBytes int) error {
	switch {
	case d.closed:
		return errDeviceClosed
	case sizeBytes <= 0:
		return fmt.Errorf("a buffer of %d bytes", sizeBytes)
	case int64(sizeBytes) > d.info.MaxBufferBytes:
		return fmt.Errorf("%w: %d bytes in one buffer, and %q allows %d", ErrMemory, sizeBytes, d.info.Name, d.info.MaxBufferBytes)
	}
	return nil
}

// Alloc implements Device.
func (d *systemDevice) Alloc(sizeBytes int) (Buffer, error) {
	if err := d.checkSize(sizeBytes); err != nil {
		return nil, err
	}
	var object mtl.BufferObject
	var contents unsafe.Pointer
	objc.WithAutoreleasePool(func() {
		// Metal fills it with zeros.
		object = d.gpu.NewBufferWithLengthOptions(uint(sizeBytes), mtl.ResourceStorageModeShared)
		if !object.IsNil() {
			contents = object.Contents()
		}
	})
	if object.IsNil() {
		return nil, fmt.Errorf("%w: %d bytes on %q", ErrMemory, sizeBytes, d.info.Name)
	}
	return d.buffer(object, unsafe.Slice((*byte)(contents), sizeBytes)), nil
}

// Map implements Device.
func (d *systemDevice) Map(memory []byte) (Buffer, error) {
	if err := d.checkSize(len(memory)); err != nil {
		return nil, err
	}
	start := unsafe.Pointer(unsafe.SliceData(memory))
	if page := uintptr(d.info.PageBytes); uintptr(start)%page != 0 || uintptr(len(memory))%page != 0 {
		return nil, fmt.Errorf("%d bytes at %#x are no whole pages of %d bytes", len(memory), start, page)
	}
	var object mtl.BufferObject
	objc.WithAutoreleasePool(func() {
		// darwinkit's own method cannot pass on that there is no deallocator: it makes a block that calls nothing.
		object = objc.Call[mtl.BufferObject](d.gpu, objc.Sel("newBufferWithBytesNoCopy:length:options:deallocator:"),
			start, uint(len(memory)), mtl.ResourceStorageModeShared, nil)
	})
	if object.IsNil() {
		return nil, fmt.Errorf("%w: %d bytes cannot be mapped on %q", ErrMemory, len(memory), d.info.Name)
	}
	return d.buffer(object, memory), nil // which keeps memory alive, should it be Go's
}
