package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/nlpodyssey/safetensors"

	"github.com/zoo-sdk/zoo/internal/fault"
)

const (
	// MaxHeaderBytes bounds the header of a safetensors file. The format allows
	// 100 MB; headers in use are well below one.
	MaxHeaderBytes = 16 << 20
	// maxRank bounds the number of dimensions of a tensor.
	maxRank = 16
	// lengthBytes is the size of the number before the header, which is its length.
	lengthBytes = 8
	// metadataKey is the one key of a header that names no tensor.
	metadataKey = "__metadata__"
)

// DType is the number type of a tensor as safetensors spells it, such as "F32", "BF16" or "U8".
type DType string

// The number types that this project reads or writes; others of the format pass through.
const (
	U8   DType = "U8"
	I8   DType = "I8"
	F16  DType = "F16"
	BF16 DType = "BF16"
	F32  DType = "F32"
)

// Size returns the bytes of one number, or 0 for a type that is not known.
func (d DType) Size() int {
	dt, err := safetensors.ParseDType(string(d))
	if err != nil {
		return 0
	}
	return int(dt.Size())
}

// entry is one tensor of a header. Its offsets count from the start of the data.
type entry struct {
	name       string
	dtype      DType
	shape      []int
	start, end int64
}

// header is the checked header of one file.
type header struct {
	entries  []entry // in the order of the data
	metadata map[string]string
	// dataStart is where the data starts in the file.
	dataStart int64
}

// readHeader checks the header of a whole safetensors file. Errors are *FormatError.
func readHeader(file string, data []byte) (*header, error) {
	bad := func(format string, args ...any) error {
		return &FormatError{File: file, Problem: fmt.Sprintf(format, args...)}
	}
	if len(data) < lengthBytes {
		return nil, bad("%d bytes are too few for a safetensors file", len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	switch {
	case n > MaxHeaderBytes:
		return nil, bad("a header of %d bytes, at most %d are allowed", n, MaxHeaderBytes)
	case n > uint64(len(data)-lengthBytes):
		return nil, bad("the header should have %d bytes, the file ends after %d", n, len(data)-lengthBytes)
	}
	text := data[lengthBytes:][:n]
	switch {
	case len(text) == 0 || text[0] != '{':
		return nil, bad("the header does not start with %q", "{")
	case !utf8.Valid(text):
		return nil, bad("the header is not UTF-8")
	}
	h, err := parseHeader(text)
	if err != nil {
		if fe, ok := errors.AsType[*FormatError](err); ok {
			fe.File = file
			return nil, fe
		}
		return nil, &FormatError{File: file, Problem: "the header is not the JSON it should be", Err: err}
	}
	h.dataStart = int64(lengthBytes + n)
	if err := checkCover(h.entries, int64(len(data))-h.dataStart); err != nil {
		err.File = file
		return nil, err
	}
	return h, nil
}

// checkCover sorts the entries by their place and checks that they cover dataBytes exactly.
func checkCover(entries []entry, dataBytes int64) *FormatError {
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	var at int64
	for _, e := range entries {
		var problem string
		switch {
		case e.end > dataBytes:
			problem = fmt.Sprintf("it should end at byte %d of the data, the file holds %d: is it truncated?", e.end, dataBytes)
		case e.start < at:
			problem = fmt.Sprintf("it starts at byte %d of the data, within the tensor before it, which ends at %d", e.start, at)
		case e.start > at:
			problem = fmt.Sprintf("it starts at byte %d of the data, the tensor before it ends at %d: bytes of no tensor lie between", e.start, at)
		}
		if problem != "" {
			return &FormatError{Tensor: e.name, Problem: problem}
		}
		at = e.end
	}
	if at != dataBytes {
		return &FormatError{Problem: fmt.Sprintf("%d bytes follow the last tensor", dataBytes-at)}
	}
	return nil
}

// parseHeader reads the JSON of a header. It keeps no more than the header's own
// length warrants. Errors are *FormatError where the JSON itself is sound.
func parseHeader(text []byte) (*header, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	h := &header{metadata: map[string]string{}}
	seen := map[string]bool{}
	err := eachMember(d, func(name string) error {
		if seen[name] {
			return &FormatError{Tensor: name, Problem: "the name occurs twice in the header"}
		}
		seen[name] = true
		if name == metadataKey {
			return parseMetadata(d, h.metadata)
		}
		e, err := parseEntry(d, name)
		if err != nil {
			return err
		}
		h.entries = append(h.entries, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, &FormatError{Problem: "something follows the object in the header"}
	}
	return h, nil
}

// parseMetadata reads an object of strings into to.
func parseMetadata(d *json.Decoder, to map[string]string) error {
	return eachMember(d, func(key string) error {
		if _, twice := to[key]; twice {
			return &FormatError{Problem: fmt.Sprintf("the metadata has %q twice", fault.Shorten(key))}
		}
		t, err := d.Token()
		if err != nil {
			return err
		}
		s, ok := t.(string)
		if !ok {
			return &FormatError{Problem: fmt.Sprintf("the metadata's %q is %v, it should be a string", fault.Shorten(key), t)}
		}
		to[key] = s
		return nil
	})
}

// parseEntry reads the object of one tensor and checks that it is sound by itself.
func parseEntry(d *json.Decoder, name string) (entry, error) {
	e := entry{name: name}
	bad := func(format string, args ...any) error {
		return &FormatError{Tensor: name, Problem: fmt.Sprintf(format, args...)}
	}
	if name == "" {
		return e, bad("a tensor without a name")
	}
	seen := map[string]bool{}
	var offsets []int64
	err := eachMember(d, func(key string) error {
		if seen[key] {
			return bad("%q occurs twice", fault.Shorten(key))
		}
		seen[key] = true
		switch key {
		case "dtype":
			t, err := d.Token()
			if err != nil {
				return err
			}
			s, ok := t.(string)
			if e.dtype = DType(s); !ok || e.dtype.Size() == 0 {
				return bad("number type %q is not known", fault.Shorten(fmt.Sprint(t)))
			}
			return nil
		case "shape":
			shape, err := parseNumbers(d, maxRank)
			if err != nil {
				return bad("shape: %v", err)
			}
			e.shape = make([]int, len(shape))
			for i, n := range shape {
				if n > math.MaxInt {
					return bad("shape: %d is too large", n)
				}
				e.shape[i] = int(n)
			}
			return nil
		case "data_offsets":
			var err error
			if offsets, err = parseNumbers(d, 2); err != nil {
				return bad("data_offsets: %v", err)
			}
			return nil
		}
		return bad("unknown key %q", fault.Shorten(key))
	})
	if err != nil {
		return e, err
	}
	for _, key := range []string{"dtype", "shape", "data_offsets"} {
		if !seen[key] {
			return e, bad("%q is missing", key)
		}
	}
	if len(offsets) != 2 || offsets[0] > offsets[1] {
		return e, bad("data_offsets %v are not a start and an end", offsets)
	}
	e.start, e.end = offsets[0], offsets[1]
	size, ok := sizeBytes(e.dtype, e.shape)
	if !ok {
		return e, bad("shape %v of %s overflows", e.shape, e.dtype)
	}
	if size != e.end-e.start {
		return e, bad("shape %v of %s needs %d bytes, data_offsets give %d", e.shape, e.dtype, size, e.end-e.start)
	}
	return e, nil
}

// sizeBytes returns the size of a tensor, and false if it does not fit an int64.
func sizeBytes(d DType, shape []int) (int64, bool) {
	size := int64(d.Size())
	empty := false
	for _, n := range shape {
		if n < 0 {
			return 0, false
		}
		if n == 0 {
			// The other dimensions must be sound all the same.
			empty = true
			continue
		}
		if size > math.MaxInt64/int64(n) {
			return 0, false
		}
		size *= int64(n)
	}
	if empty {
		return 0, true
	}
	return size, true
}

// parseNumbers reads an array of at most most non-negative integers.
func parseNumbers(d *json.Decoder, most int) ([]int64, error) {
	if err := expect(d, json.Delim('[')); err != nil {
		return nil, err
	}
	numbers := []int64{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		n, ok := t.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%v is not a number", t)
		}
		v, err := strconv.ParseInt(n.String(), 10, 64)
		if err != nil || v < 0 {
			return nil, fmt.Errorf("%q is not a size", fault.Shorten(n.String()))
		}
		if len(numbers) == most {
			return nil, fmt.Errorf("more than %d numbers", most)
		}
		numbers = append(numbers, v)
	}
	return numbers, expect(d, json.Delim(']'))
}

// eachMember reads an object and calls f with each key, after which f reads the value.
func eachMember(d *json.Decoder, f func(key string) error) error {
	if err := expect(d, json.Delim('{')); err != nil {
		return err
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		if err := f(t.(string)); err != nil { // the decoder takes nothing else for a key
			return err
		}
	}
	return expect(d, json.Delim('}'))
}

// expect reads one token, which must be want.
func expect(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("%q in place of %q", fault.Shorten(fmt.Sprint(t)), want.String())
	}
	return nil
}
