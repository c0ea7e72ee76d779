//go:build darwin && cgo

package metal

// #cgo LDFLAGS: -framework Foundation -framework Metal -framework CoreGraphics
// #include "replay_darwin.h"
import "C"

import (
	"unsafe"
)

// Metal finds no default device in a program that does not link CoreGraphics.

// nativeDevice returns the default device with one reference, or nil. darwinkit does not declare the function.
func nativeDevice() unsafe.Pointer {
	return C.zoo_metal_device()
}

// nativeSuffices reports whether kernels run on a device. Where a method returns
// a bool, darwinkit makes room for one byte, and 8 are written.
func nativeSuffices(device unsafe.Pointer) bool {
	return C.zoo_metal_suffices(device) != 0
}

// nativeMaxThreads returns the largest number of threads of a group.
func nativeMaxThreads(device unsafe.Pointer) int {
	return int(C.zoo_metal_max_threads(device))
}

// nativeRecorder gathers dispatches for a list.
type nativeRecorder struct {
	dispatches []C.zoo_metal_dispatch
	buffers    []unsafe.Pointer
	offsets    []C.size_t
	args       []byte
}

// nativeBinding is a buffer and where in it.
type nativeBinding struct {
	buffer unsafe.Pointer
	offset int
}

// add appends a dispatch. Its numbers have been checked.
func (r *nativeRecorder) add(pipeline unsafe.Pointer, d *Dispatch, buffers []nativeBinding) {
	n := C.zoo_metal_dispatch{
		pipeline:     pipeline,
		threads:      C.uint32_t(d.Threads),
		shared_bytes: C.uint32_t(d.SharedBytes),
		args_bytes:   C.uint32_t(len(d.Args)),
		buffers:      C.uint32_t(len(buffers)),
	}
	for i, g := range d.Groups {
		n.groups[i] = C.uint32_t(g)
	}
	r.dispatches = append(r.dispatches, n)
	for _, b := range buffers {
		r.buffers = append(r.buffers, b.buffer)
		r.offsets = append(r.offsets, C.size_t(b.offset))
	}
	r.args = append(r.args, d.Args...)
}

// list returns a native copy of what was gathered, or nil if there is no memory for it.
func (r *nativeRecorder) list() unsafe.Pointer {
	return C.zoo_metal_list(
		unsafe.SliceData(r.dispatches), C.size_t(len(r.dispatches)),
		unsafe.SliceData(r.buffers), unsafe.SliceData(r.offsets), C.size_t(len(r.buffers)),
		unsafe.Pointer(unsafe.SliceData(r.args)), C.size_t(len(r.args)))
}

// nativeFree frees a list.
func nativeFree(list unsafe.Pointer) {
	C.zoo_metal_free(list)
}

// nativeSubmit hands lists to the device and returns the command buffer with one
// reference, or nil. Behind each list the event gets the next value, from first on.
func nativeSubmit(queue, event unsafe.Pointer, first uint64, lists []unsafe.Pointer) unsafe.Pointer {
	return C.zoo_metal_submit(queue, event, C.uint64_t(first), unsafe.SliceData(lists), C.size_t(len(lists)))
}

// nativeWait waits for a command buffer and reports whether it ended well.
func nativeWait(commands unsafe.Pointer) bool {
	return C.zoo_metal_wait(commands) != 0
}
