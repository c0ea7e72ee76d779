package metaltest_test

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/zoo-sdk/zoo/backends/metal"
)

// uintptrOf returns where memory begins.
func uintptrOf(memory []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(memory))) }

// atomicWord returns a word of a buffer.
func atomicWord(buffer metal.Buffer, i int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&buffer.Bytes()[4*i]))
}

// waitFor returns when a kernel has set word 1.
func waitFor(buffer metal.Buffer) {
	for atomicWord(buffer, 1).Load() == 0 {
		runtime.Gosched()
	}
}
