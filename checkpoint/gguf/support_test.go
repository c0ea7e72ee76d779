package gguf_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/zoo-sdk/zoo/checkpoint/gguf"
)

// typesFile was made by the format's own package, see testdata/make_types.py.
const typesFile = "types.gguf"

// readTestdata returns a file of testdata.
func readTestdata(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// openTypes opens typesFile.
func openTypes(t testing.TB) *gguf.File {
	t.Helper()
	f, err := gguf.Open("testdata", typesFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// builder writes files, wrong ones as well.
type builder struct {
	version       uint32
	keys, tensors uint64 // what the header says
	body          []byte // keys and tensors
}

// u32 writes a number.
func (b *builder) u32(n uint32) { b.body = binary.LittleEndian.AppendUint32(b.body, n) }

// u64 writes a number.
func (b *builder) u64(n uint64) { b.body = binary.LittleEndian.AppendUint64(b.body, n) }

// text writes a text.
func (b *builder) text(s string) {
	b.u64(uint64(len(s)))
	b.body = append(b.body, s...)
}

// key writes the key of a value that f writes.
func (b *builder) key(name string, kind gguf.ValueType, f func()) *builder {
	b.keys++
	b.text(name)
	b.u32(uint32(kind))
	f()
	return b
}

// number writes a key with a uint32.
func (b *builder) number(name string, n uint32) *builder {
	return b.key(name, gguf.Uint32, func() { b.u32(n) })
}

// tensor writes the entry of a tensor.
func (b *builder) tensor(name string, t gguf.Type, offset uint64, dims ...uint64) *builder {
	b.tensors++
	b.text(name)
	b.u32(uint32(len(dims)))
	for _, n := range dims {
		b.u64(n)
	}
	b.u32(uint32(t))
	b.u64(offset)
	return b
}

// file returns the file with so many bytes of data, aligned to 32 bytes.
func (b *builder) file(dataBytes int) []byte {
	le := binary.LittleEndian
	version := b.version
	if version == 0 {
		version = 3
	}
	out := le.AppendUint32([]byte("GGUF"), version)
	out = le.AppendUint64(out, b.tensors)
	out = le.AppendUint64(out, b.keys)
	out = append(out, b.body...)
	for len(out)%32 != 0 {
		out = append(out, 0)
	}
	return append(out, make([]byte, dataBytes)...)
}

// floats reads float32 numbers.
func floats(b []byte) []float32 {
	all := make([]float32, len(b)/4)
	for i := range all {
		all[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return all
}

// firstDiff returns the first index at which two rows differ in a bit, or -1.
func firstDiff(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}
