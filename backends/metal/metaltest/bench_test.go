package metaltest_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
)

const head = `#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
#pragma METAL fp contract(off)
`

// bench is a device with kernels.
type bench struct {
	t      testing.TB
	driver *metaltest.Driver
	device metal.Device
}

// open returns a device that the test closes.
func open(t testing.TB, options metaltest.Options) *bench {
	t.Helper()
	metaltest.Require(t)
	b := &bench{t: t, driver: metaltest.New(options)}
	var err error
	if b.device, err = b.driver.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.device.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// load opens a device with kernels.
func load(t testing.TB, options metaltest.Options, source string, kernels ...string) *bench {
	t.Helper()
	b := open(t, options)
	if err := b.device.Load(t.Context(), head+source, kernels); err != nil {
		t.Fatal(err)
	}
	return b
}

// buffer allocates one of so many words, which hold their own indices.
func (b *bench) buffer(words int) metal.Buffer {
	b.t.Helper()
	buffer, err := b.device.Alloc(4 * words)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range words {
		binary.LittleEndian.PutUint32(buffer.Bytes()[4*i:], uint32(i))
	}
	return buffer
}

// whole binds all of a buffer.
func whole(buffer metal.Buffer) metal.Binding {
	return metal.Binding{Buffer: buffer, Size: len(buffer.Bytes())}
}

// run runs dispatches and returns what went wrong.
func (b *bench) run(dispatches ...metal.Dispatch) error {
	b.t.Helper()
	list, err := b.device.Record(dispatches)
	if err != nil {
		b.t.Fatal(err)
	}
	defer list.Release()
	submission, err := b.device.Submit([]metal.List{list})
	if err != nil {
		b.t.Fatal(err)
	}
	return submission.Wait()
}

// words returns a buffer's content.
func words(buffer metal.Buffer) []uint32 {
	all := make([]uint32, len(buffer.Bytes())/4)
	for i := range all {
		all[i] = binary.LittleEndian.Uint32(buffer.Bytes()[4*i:])
	}
	return all
}

// args encodes words.
func args(values ...any) []byte {
	var all []byte
	for _, v := range values {
		switch v := v.(type) {
		case int:
			all = binary.LittleEndian.AppendUint32(all, uint32(v))
		case float32:
			all = binary.LittleEndian.AppendUint32(all, math.Float32bits(v))
		default:
			panic(fmt.Sprintf("an argument of type %T", v))
		}
	}
	return all
}

// f is a float's word.
func f(x float32) uint32 { return math.Float32bits(x) }

// lines joins lines of a source.
func lines(all ...string) string { return strings.Join(all, "\n") + "\n" }
