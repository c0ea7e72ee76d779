package gguf

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
)

const (
	magic = "GGUF"
	// minVersion and maxVersion are the versions that are understood; in the first, counts had 32 bits.
	minVersion, maxVersion = 2, 3
	// AlignmentKey is the key of the number that offsets of tensors are multiples of.
	AlignmentKey = "general.alignment"
	// defaultAlignment holds where that key is missing.
	defaultAlignment = 32
	// maxKeys and maxTensors bound what a file lists; large models in use have some thousand tensors.
	maxKeys, maxTensors = 1 << 16, 1 << 16
	// maxNameBytes bounds keys and names of tensors, which are far shorter.
	maxNameBytes = 1 << 10
	// maxDims is that of the format.
	maxDims = 4
	// maxNumbers bounds the numbers of a tensor, so that its size fits an int64.
	maxNumbers = 1 << 48
	// maxDepth bounds arrays within arrays.
	maxDepth = 4
	// minKeyBytes and minTensorBytes are what an entry takes at least.
	minKeyBytes, minTensorBytes = 8 + 4 + 1, 8 + 4 + 8 + 4 + 8
)

// File is a GGUF file. It is read-only and safe for concurrent use, but for Close.
type File struct {
	// Name is the name of the file in errors.
	Name string
	// Version is the version of the format.
	Version int

	mapped  *checkpoint.MappedFile
	values  map[string]Value
	tensors []Tensor // in the order of the file
	byName  map[string]int
}

// Tensor is one tensor of a file.
type Tensor struct {
	// Name is unique in the file.
	Name string
	// Type is the number type.
	Type Type
	// Shape is the size of each dimension, the last one the fastest, which is the
	// other way round than in the file: a matrix is [rows, columns]. It must not be changed.
	Shape []int
	// Data holds the rows, one after another. It is a slice of the file, aligned to
	// nothing where that is not mapped.
	Data []byte
	// File is the name of the file in errors.
	File string
}

// Open maps and checks the file of that name directly within dir, as
// [checkpoint.MapFile] does. A file that is not there is a *checkpoint.MissingError;
// for others see [Parse].
func Open(dir, name string) (*File, error) {
	m, err := checkpoint.MapFile(dir, name)
	if err != nil {
		return nil, err
	}
	f, err := Parse(name, m.Bytes())
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	f.mapped = m
	return f, nil
}

// Close ends the mapping of a file that [Open] made: values and the data of tensors
// must not be used any more. A second call does nothing.
func (f *File) Close() error {
	if f.mapped == nil {
		return nil
	}
	m := f.mapped
	f.mapped, f.values, f.tensors, f.byName = nil, nil, nil, nil
	return m.Close()
}

// Parse reads the header of a file, of which data is the whole content. A file that is
// not as it should be is a *FormatError, a type of numbers that is not known a
// *TypeError, and a version that is not known or of the other byte order matches
// fault.ErrUsage.
func Parse(name string, data []byte) (*File, error) {
	f := &File{Name: name, values: map[string]Value{}, byName: map[string]int{}}
	bad := func(format string, args ...any) error {
		return &FormatError{File: name, Problem: fmt.Sprintf(format, args...)}
	}
	if !bytes.HasPrefix(data, []byte(magic)) {
		return nil, bad("it starts with %q, not with %q: it is no GGUF file", data[:min(len(data), len(magic))], magic)
	}
	c := &cursor{data: data, at: len(magic)}
	version, tensors, keys := c.number32(), c.number64(), c.number64()
	switch {
	case c.problem != "":
		return nil, bad("%s", c.problem)
	case version&0xffff == 0:
		return nil, fault.WithHint(fmt.Errorf("%q: big-endian files are not supported: %w", name, fault.ErrUsage), "choose the little-endian file, which is the usual one")
	case version < minVersion || version > maxVersion:
		return nil, fmt.Errorf("%q: version %d of the format is not known, only %d and %d: %w", name, version, minVersion, maxVersion, fault.ErrUsage)
	case keys > maxKeys || keys > uint64(c.left()/minKeyBytes):
		return nil, bad("%d keys in %d bytes, and at most %d are allowed: is it truncated?", keys, len(data), maxKeys)
	case tensors > maxTensors || tensors > uint64(c.left()/minTensorBytes):
		return nil, bad("%d tensors in %d bytes, and at most %d are allowed: is it truncated?", tensors, len(data), maxTensors)
	}
	f.Version = int(version)
	for range keys {
		if err := f.readKey(c); err != nil {
			return nil, err
		}
	}
	alignment, err := f.alignment()
	if err != nil {
		return nil, err
	}
	offsets := make([]uint64, 0, tensors)
	for range tensors {
		offset, err := f.readTensor(c)
		if err != nil {
			return nil, err
		}
		offsets = append(offsets, offset)
	}
	start := (uint64(c.at) + alignment - 1) &^ (alignment - 1)
	if err := f.place(data[min(start, uint64(len(data))):], offsets, alignment); err != nil {
		return nil, err
	}
	return f, nil
}

// readKey reads a key and its value.
func (f *File) readKey(c *cursor) error {
	key := c.text()
	kind := ValueType(c.number32())
	v := c.value(kind, maxDepth)
	bad := func(format string, args ...any) error {
		return &FormatError{File: f.Name, Key: string(key[:min(len(key), maxNameBytes)]), Problem: fmt.Sprintf(format, args...)}
	}
	switch _, twice := f.values[string(key)]; {
	case c.problem != "":
		return bad("%s", c.problem)
	case !validName(key):
		return bad("it is no key: %d bytes of UTF-8 are allowed, and one at least", maxNameBytes)
	case twice:
		return bad("it is there twice")
	}
	f.values[string(key)] = v
	return nil
}

// alignment returns the alignment of the data.
func (f *File) alignment() (uint64, error) {
	v, ok := f.values[AlignmentKey]
	if !ok {
		return defaultAlignment, nil
	}
	n, ok := v.Uint()
	if !ok || v.Type() != Uint32 || n == 0 || n&(n-1) != 0 {
		return 0, &FormatError{File: f.Name, Key: AlignmentKey, Problem: "it is no power of two of type uint32"}
	}
	return n, nil
}

// readTensor reads the entry of a tensor but for its data, and returns where that lies.
func (f *File) readTensor(c *cursor) (offset uint64, err error) {
	name := c.text()
	t := Tensor{Name: string(name[:min(len(name), maxNameBytes)]), File: f.Name}
	bad := func(format string, args ...any) error {
		return &FormatError{File: f.Name, Tensor: t.Name, Problem: fmt.Sprintf(format, args...)}
	}
	dims := c.number32()
	if c.problem == "" && (dims < 1 || dims > maxDims) {
		return 0, bad("%d dimensions, 1 to %d are allowed", dims, maxDims)
	}
	numbers := uint64(1)
	for range dims {
		n := c.number64()
		if c.problem == "" && (n < 1 || n > math.MaxInt32 || n > maxNumbers/numbers) {
			return 0, bad("a dimension of %d after %v, the last first", n, t.Shape)
		}
		numbers *= max(n, 1)
		t.Shape = append(t.Shape, int(n))
	}
	slices.Reverse(t.Shape)
	t.Type = Type(c.number32())
	offset = c.number64()
	info, known := types[t.Type]
	switch _, twice := f.byName[t.Name]; {
	case c.problem != "":
		return 0, bad("%s", c.problem)
	case !validName(name):
		return 0, bad("it has no name: %d bytes of UTF-8 are allowed, and one at least", maxNameBytes)
	case twice:
		return 0, bad("it is there twice")
	case !known:
		return 0, &TypeError{File: f.Name, Tensor: t.Name, Type: t.Type}
	case t.Cols()%info.cols != 0:
		return 0, bad("%d columns of %s, which come in blocks of %d", t.Cols(), t.Type, info.cols)
	}
	f.byName[t.Name] = len(f.tensors)
	f.tensors = append(f.tensors, t)
	return offset, nil
}

// place gives the tensors their data, which begins at the offsets, and checks that none
// of it overlaps.
func (f *File) place(data []byte, offsets []uint64, alignment uint64) error {
	order := make([]int, len(offsets))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(offsets[a], offsets[b]) })
	var before *Tensor
	end := uint64(0)
	for _, i := range order {
		t, from := &f.tensors[i], offsets[i]
		size := t.sizeBytes()
		var problem string
		switch {
		case from%alignment != 0:
			problem = fmt.Sprintf("it begins at byte %d of the data, which is no multiple of %d", from, alignment)
		case from > uint64(len(data)) || size > uint64(len(data))-from:
			problem = fmt.Sprintf("it should have %d bytes from byte %d of the data on, the file holds %d: is it truncated?", size, from, len(data))
		case before != nil && from < end:
			problem = fmt.Sprintf("it begins at byte %d of the data, within tensor %q, which ends at %d", from, fault.Shorten(before.Name), end)
		}
		if problem != "" {
			return &FormatError{File: f.Name, Tensor: t.Name, Problem: problem}
		}
		before, end = t, from+size
		t.Data = data[from:end:end]
	}
	return nil
}

// Keys returns the keys of the metadata, sorted.
func (f *File) Keys() []string { return slices.Sorted(maps.Keys(f.values)) }

// Value returns the value of a key, and whether there is one.
func (f *File) Value(key string) (Value, bool) {
	v, ok := f.values[key]
	return v, ok
}

// Tensors returns all tensors in the order of the file.
func (f *File) Tensors() []Tensor { return slices.Clone(f.tensors) }

// Tensor returns the tensor of that name, and whether there is one.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[i], true
}

// Cols returns the size of the last dimension.
func (t Tensor) Cols() int { return t.Shape[len(t.Shape)-1] }

// Rows returns the number of rows: the product of all dimensions but the last.
func (t Tensor) Rows() int {
	rows := 1
	for _, n := range t.Shape[:len(t.Shape)-1] {
		rows *= n
	}
	return rows
}

// rowBytes returns the size of a row.
func (t Tensor) rowBytes() int {
	info := types[t.Type]
	return t.Cols() / info.cols * info.bytes
}

// sizeBytes returns the size of the data.
func (t Tensor) sizeBytes() uint64 {
	info := types[t.Type]
	size := uint64(t.Cols() / info.cols * info.bytes)
	for _, n := range t.Shape[:len(t.Shape)-1] {
		size *= uint64(n)
	}
	return size
}

// validName reports whether b can be a key or the name of a tensor.
func validName(b []byte) bool {
	return len(b) > 0 && len(b) <= maxNameBytes && utf8.Valid(b) && bytes.IndexByte(b, 0) < 0
}

// cursor reads what lies one behind the other. After the first problem it reads zeros.
type cursor struct {
	data []byte
	at   int
	// problem says what was wrong, or is "".
	problem string
}

// left returns the number of bytes that are left.
func (c *cursor) left() int { return len(c.data) - c.at }

// fail notes the first problem.
func (c *cursor) fail(format string, args ...any) {
	if c.problem == "" {
		c.problem = fmt.Sprintf(format, args...)
		c.at = len(c.data)
	}
}

// take returns the next n bytes, or nil.
func (c *cursor) take(n uint64) []byte {
	if n > uint64(c.left()) {
		c.fail("%d bytes are expected at byte %d, the file ends at %d: it is truncated", n, c.at, len(c.data))
	}
	if c.problem != "" {
		return nil
	}
	b := c.data[c.at : c.at+int(n) : c.at+int(n)]
	c.at += int(n)
	return b
}

// number32 reads a 32-bit number.
func (c *cursor) number32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// number64 reads a 64-bit number.
func (c *cursor) number64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// text reads a text with its length before it.
func (c *cursor) text() []byte { return c.take(c.number64()) }

// value reads a value of a type, of which arrays may lie in each other depth deep.
func (c *cursor) value(kind ValueType, depth int) Value {
	v := Value{kind: kind}
	switch n := kind.bytes(); {
	case n > 0:
		v.data = c.take(uint64(n))
		c.checkBools(kind, v.data)
	case kind == String:
		v.data = c.text()
	case kind == Array && depth > 0:
		c.array(&v, depth)
	case kind == Array:
		c.fail("arrays lie in each other more than %d deep", maxDepth)
	default:
		c.fail("values of %s are not known", kind)
	}
	if c.problem != "" {
		return Value{}
	}
	return v
}

// array reads the type, the number and the extent of an array's elements.
func (c *cursor) array(v *Value, depth int) {
	v.elem = ValueType(c.number32())
	n := c.number64()
	least := uint64(v.elem.bytes())
	switch v.elem {
	case String:
		least = 8
	case Array:
		least = 12
	}
	if least == 0 {
		c.fail("values of %s are not known", v.elem)
		return
	}
	if n > uint64(c.left())/least {
		c.fail("an array of %d %s where %d bytes are left: the file is truncated", n, v.elem, c.left())
	}
	start := c.at
	if v.elem.bytes() > 0 {
		c.checkBools(v.elem, c.take(n*least))
	} else {
		for i := uint64(0); i < n && c.problem == ""; i++ {
			c.value(v.elem, depth-1)
		}
	}
	if c.problem == "" {
		v.n, v.data = int(n), c.data[start:c.at:c.at]
	}
}

// checkBools checks that truth values are 0 or 1.
func (c *cursor) checkBools(kind ValueType, b []byte) {
	if kind == Bool && slices.ContainsFunc(b, func(v byte) bool { return v > 1 }) {
		c.fail("a bool is neither 0 nor 1")
	}
}
