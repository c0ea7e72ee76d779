package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/nlpodyssey/safetensors"
)

// paddingPrefix starts the names of the tensors of bytes that a layout puts
// between others: the format allows no bytes that belong to no tensor.
const paddingPrefix = "__padding__."

// Spec declares a tensor that is to be written.
type Spec struct {
	// Name is unique in the file.
	Name string
	// DType is the number type.
	DType DType
	// Shape is the size of each dimension.
	Shape []int
}

// Placement is a tensor with its place in the file.
type Placement struct {
	Spec
	// Offset is where the data starts, counted from the start of the file.
	Offset int64
	// SizeBytes is the length of the data.
	SizeBytes int64
}

// LayoutOptions says how tensors are to lie. The zero value packs them without padding.
type LayoutOptions struct {
	// Metadata is free text for the header.
	Metadata map[string]string
	// Align is what the offset of every tensor is a multiple of: a power of two, at
	// most 1 MiB; 0 stands for 8 for the first tensor and 1 for all others.
	Align int
	// FileAlign is what the length of the file is a multiple of, under the same rules; 0 stands for 1.
	FileAlign int
}

// Layout is a safetensors file whose tensors are all declared. The same
// declarations give the same header on every machine. It is read-only.
type Layout struct {
	tensors []Placement // paddings included
	header  []byte      // with the length before it
	size    int64
}

// NewLayout places tensors in the given order, from the first to the last.
// Misuse, such as a name that occurs twice, is an error without a type of its own.
func NewLayout(tensors []Spec, opts LayoutOptions) (*Layout, error) {
	align, fileAlign := max(opts.Align, 1), max(opts.FileAlign, 1)
	for _, a := range []int{align, fileAlign} {
		if a&(a-1) != 0 || a > 1<<20 {
			return nil, fmt.Errorf("layout: an alignment of %d is not a power of two up to 1 MiB", a)
		}
	}
	l := &Layout{}
	seen := map[string]bool{metadataKey: true}
	var at int64 // from the start of the data, which is aligned itself
	pad := func(to int64) error {
		if at > math.MaxInt64-to {
			return fmt.Errorf("layout: the file is too large")
		}
		if n := -at & (to - 1); n > 0 {
			spec := Spec{Name: fmt.Sprintf("%s%d", paddingPrefix, len(l.tensors)), DType: U8, Shape: []int{int(n)}}
			l.tensors = append(l.tensors, Placement{Spec: spec, Offset: at, SizeBytes: n})
			at += n
		}
		return nil
	}
	for _, t := range tensors {
		size, ok := sizeBytes(t.DType, t.Shape)
		switch {
		case t.Name == "" || seen[t.Name] || strings.HasPrefix(t.Name, paddingPrefix):
			return nil, fmt.Errorf("layout: the name %q is empty, reserved or used twice", t.Name)
		case t.DType.Size() == 0:
			return nil, fmt.Errorf("layout: tensor %q has the unknown number type %q", t.Name, t.DType)
		case len(t.Shape) > maxRank || !ok:
			return nil, fmt.Errorf("layout: tensor %q has the shape %v", t.Name, t.Shape)
		}
		seen[t.Name] = true
		if err := pad(int64(align)); err != nil {
			return nil, err
		}
		if at > math.MaxInt64-size {
			return nil, fmt.Errorf("layout: the file is too large")
		}
		l.tensors = append(l.tensors, Placement{Spec: t, Offset: at, SizeBytes: size})
		at += size
	}
	// The end is aligned in the file only if the start of the data is as well.
	dataAlign := max(align, lengthBytes, fileAlign)
	if err := pad(int64(fileAlign)); err != nil {
		return nil, err
	}
	return l, l.finish(opts.Metadata, dataAlign, at)
}

// finish writes the header, so that the data starts at a multiple of align, and
// turns offsets in the data into offsets in the file.
func (l *Layout) finish(metadata map[string]string, align int, dataBytes int64) error {
	b := bytes.NewBuffer(make([]byte, lengthBytes))
	b.WriteByte('{')
	if len(metadata) > 0 {
		b.WriteString(`"` + metadataKey + `":{`)
		for i, k := range slices.Sorted(maps.Keys(metadata)) {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeMember(b, k, metadata[k]); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	}
	for _, t := range l.tensors {
		if b.Len() > lengthBytes+1 {
			b.WriteByte(',')
		}
		dtype, err := safetensors.ParseDType(string(t.DType))
		if err != nil {
			return fmt.Errorf("layout: %w", err)
		}
		info := safetensors.TensorInfo{DType: dtype, Shape: make([]uint64, len(t.Shape)), DataOffsets: [2]uint64{uint64(t.Offset), uint64(t.Offset + t.SizeBytes)}}
		for i, n := range t.Shape {
			info.Shape[i] = uint64(n)
		}
		if err := writeMember(b, t.Name, info); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	for b.Len()%align != 0 {
		b.WriteByte(' ')
	}
	l.header = b.Bytes()
	n := len(l.header) - lengthBytes
	if n > MaxHeaderBytes {
		return fmt.Errorf("layout: a header of %d bytes, at most %d are allowed", n, MaxHeaderBytes)
	}
	binary.LittleEndian.PutUint64(l.header, uint64(n))
	if dataBytes > math.MaxInt64-int64(len(l.header)) {
		return fmt.Errorf("layout: the file is too large")
	}
	for i := range l.tensors {
		l.tensors[i].Offset += int64(len(l.header))
	}
	l.size = int64(len(l.header)) + dataBytes
	return nil
}

// writeMember writes one key and value of an object.
func writeMember(b *bytes.Buffer, key string, value any) error {
	k, err := json.Marshal(key)
	if err != nil {
		return fmt.Errorf("layout: %w", err)
	}
	v, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("layout: %w", err)
	}
	b.Write(k)
	b.WriteByte(':')
	b.Write(v)
	return nil
}

// Tensors returns the declared tensors with their places, in the order of the
// file. Padding is not among them.
func (l *Layout) Tensors() []Placement {
	var declared []Placement
	for _, t := range l.tensors {
		if !isPadding(t.Name) {
			declared = append(declared, t)
		}
	}
	return declared
}

// SizeBytes returns the length of the file.
func (l *Layout) SizeBytes() int64 { return l.size }

// isPadding reports whether a tensor is one that a layout has added.
func isPadding(name string) bool { return strings.HasPrefix(name, paddingPrefix) }

// Writer streams the tensors of a layout. It is not safe for concurrent use.
type Writer struct {
	w      io.Writer
	layout *Layout
	next   int // index into the layout's tensors
	left   int64
	err    error // the first error; all later calls return it
}

// NewWriter writes the header to w and returns a writer for the data. It does not buffer.
func NewWriter(w io.Writer, l *Layout) (*Writer, error) {
	if _, err := w.Write(l.header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return &Writer{w: w, layout: l}, nil
}

// WriteTensor writes the data of the next tensor, which must be the named one:
// fill writes exactly its size. The error is that of fill or of the underlying
// writer, or says by how much the size was missed. After an error the file is of no use.
func (w *Writer) WriteTensor(name string, fill func(w io.Writer) error) error {
	if w.err != nil {
		return w.err
	}
	w.err = w.writeTensor(name, fill)
	return w.err
}

func (w *Writer) writeTensor(name string, fill func(w io.Writer) error) error {
	if err := w.pad(); err != nil {
		return err
	}
	if w.next == len(w.layout.tensors) {
		return fmt.Errorf("tensor %q is written after the last", name)
	}
	t := w.layout.tensors[w.next]
	if t.Name != name {
		return fmt.Errorf("tensor %q is written where %q is next", name, t.Name)
	}
	w.left = t.SizeBytes
	if err := fill(tensorWriter{w}); err != nil {
		return fmt.Errorf("tensor %q: %w", name, err)
	}
	if w.left != 0 {
		return fmt.Errorf("tensor %q: %d of %d bytes are missing", name, w.left, t.SizeBytes)
	}
	w.next++
	return nil
}

// Close writes what is left of the padding and reports tensors that were not
// written. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	w.err = w.pad()
	if w.err == nil && w.next < len(w.layout.tensors) {
		w.err = fmt.Errorf("tensor %q is not written", w.layout.tensors[w.next].Name)
	}
	return w.err
}

// pad writes the padding that comes next, if any.
func (w *Writer) pad() error {
	for w.next < len(w.layout.tensors) && isPadding(w.layout.tensors[w.next].Name) {
		if _, err := w.w.Write(make([]byte, w.layout.tensors[w.next].SizeBytes)); err != nil {
			return fmt.Errorf("padding: %w", err)
		}
		w.next++
	}
	return nil
}

// tensorWriter takes the data of one tensor.
type tensorWriter struct{ w *Writer }

// Write implements io.Writer.
func (t tensorWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > t.w.left {
		return 0, fmt.Errorf("%d bytes more than declared", int64(len(p))-t.w.left)
	}
	n, err := t.w.w.Write(p)
	t.w.left -= int64(n)
	return n, err
}
