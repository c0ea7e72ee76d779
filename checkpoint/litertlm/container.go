package litertlm

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// Places and sizes of the container.
const (
	magic = "LITERTLM"
	// headerEndAt is the place of the offset at which the header ends, headerStart that of the header.
	headerEndAt, headerStart = 24, 32
	// blockBytes is what the places of sections are multiples of.
	blockBytes = 16 << 10
	// majorVersion is the version whose files are understood; minor ones add types of sections.
	majorVersion = 1
	// maxHeaderBytes bounds the header; those in use have some kilobytes.
	maxHeaderBytes = 16 << 20
	// maxSections bounds the number of sections; files in use have a dozen.
	maxSections = 1 << 12
)

// SectionType says what a section holds.
type SectionType byte

// The types of sections.
const (
	None SectionType = iota
	GenericBinaryData
	// Deprecated marks what an edited file does not use any more.
	Deprecated
	// TFLiteModel is a model, see [ParseModel].
	TFLiteModel
	// SPTokenizer is a SentencePiece model.
	SPTokenizer
	// LlmMetadataProto holds stop tokens, a chat template and the like.
	LlmMetadataProto
	// HFTokenizerZlib is a tokenizer.json, compressed.
	HFTokenizerZlib
	// TFLiteWeights is the data of a model of the same model_type that has none in it.
	TFLiteWeights
	ExecutorMetadataProto
)

// String returns the type's name in the format's definition, or its number.
func (t SectionType) String() string {
	names := [...]string{"NONE", "GenericBinaryData", "Deprecated", "TFLiteModel", "SP_Tokenizer", "LlmMetadataProto", "HF_Tokenizer_Zlib", "TFLiteWeights", "ExecutorMetadataProto"}
	if int(t) < len(names) {
		return names[t]
	}
	return "type " + strconv.Itoa(int(t))
}

// ModelTypeKey is the key of a section's items that names the part of the model, such as "tf_lite_prefill_decode".
const ModelTypeKey = "model_type"

// Section is one section of a file.
type Section struct {
	// Index is its place in the list of sections.
	Index int
	// Type says what it holds.
	Type SectionType
	// Items are its keys and values; numbers are written in decimal. It must not be changed.
	Items map[string]string
	// Begin is where it begins in the file.
	Begin int64
	// Data is the section, a slice of the file.
	Data []byte
}

// String names the section in errors.
func (s Section) String() string {
	if m := s.Items[ModelTypeKey]; m != "" {
		return fmt.Sprintf("section %d (%s, %s)", s.Index, s.Type, fault.Shorten(m))
	}
	return fmt.Sprintf("section %d (%s)", s.Index, s.Type)
}

// File is a .litertlm file. It is read-only and safe for concurrent use.
type File struct {
	// Name is the name of the file in errors.
	Name string
	// Version is the version of the format: major, minor, patch.
	Version [3]uint32
	// Metadata are the keys and values of the file as a whole. It must not be changed.
	Metadata map[string]string
	// Sections are the sections in the order of the header. It must not be changed.
	Sections []Section
}

// Parse reads the header of a file, of which data is the whole content, such as a
// mapping: every section must lie within it, start at a multiple of 16 KiB and
// overlap no other. Sections are slices of data. A file that is not as it should be
// is a *FormatError.
func Parse(name string, data []byte) (*File, error) {
	bad := func(format string, args ...any) error {
		return &FormatError{File: name, Problem: fmt.Sprintf(format, args...)}
	}
	if !bytes.HasPrefix(data, []byte(magic)) {
		return nil, bad("it starts with %q, not with %q: it is no .litertlm file", data[:min(len(data), len(magic))], magic)
	}
	if len(data) < headerStart {
		return nil, bad("it ends after %d bytes, within its header: it is truncated", len(data))
	}
	f := &File{Name: name, Metadata: map[string]string{}}
	for i := range f.Version {
		f.Version[i] = binary.LittleEndian.Uint32(data[len(magic)+4*i:])
	}
	if f.Version[0] != majorVersion {
		return nil, fmt.Errorf("%q: version %d.%d.%d of the format is not known, only %d.x: %w", name, f.Version[0], f.Version[1], f.Version[2], majorVersion, fault.ErrUsage)
	}
	end := binary.LittleEndian.Uint64(data[headerEndAt:])
	switch {
	case end < headerStart || end > headerStart+maxHeaderBytes:
		return nil, bad("its header should end at byte %d, at most %d are allowed", end, headerStart+maxHeaderBytes)
	case end > uint64(len(data)):
		return nil, bad("its header should end at byte %d, the file ends at %d: it is truncated", end, len(data))
	}
	if err := f.readHeader(data, int64(end)); err != nil {
		return nil, err
	}
	return f, f.checkPlaces()
}

// readHeader reads the FlatBuffer of the header, which ends at end.
func (f *File) readHeader(data []byte, end int64) error {
	fb := newFlatbuffer(data[headerStart:end])
	bad := func(section, format string, args ...any) error {
		return &FormatError{File: f.Name, Section: section, Problem: fmt.Sprintf(format, args...)}
	}
	root := fb.root()
	twice := readItems(root.child(0).tables(0), f.Metadata)
	objects := root.child(1).tables(0)
	switch {
	case fb.err != nil:
		return bad("", "its header is damaged: %v", fb.err)
	case twice != "":
		return bad("", "its header has the key %q twice", fault.Shorten(twice))
	case objects.n == 0:
		return bad("", "it has no sections")
	case objects.n > maxSections:
		return bad("", "%d sections, at most %d are allowed", objects.n, maxSections)
	}
	for i := range objects.n {
		o := objects.get(i)
		s := Section{Index: i, Type: SectionType(o.byteAt(3)), Items: map[string]string{}}
		twice := readItems(o.tables(0), s.Items)
		from, to := o.number64(1), o.number64(2)
		switch {
		case fb.err != nil:
			return bad("", "its header is damaged: section %d: %v", i, fb.err)
		case twice != "":
			return bad(s.String(), "it has the key %q twice", fault.Shorten(twice))
		case from > to:
			return bad(s.String(), "it should begin at byte %d and end at %d", from, to)
		case to > uint64(len(data)):
			return bad(s.String(), "it should end at byte %d, the file ends at %d: it is truncated", to, len(data))
		case from < uint64(end):
			return bad(s.String(), "it begins at byte %d, within the header, which ends at %d", from, end)
		case from%blockBytes != 0:
			return bad(s.String(), "it begins at byte %d, which is no multiple of %d", from, blockBytes)
		}
		s.Begin, s.Data = int64(from), data[from:to:to]
		f.Sections = append(f.Sections, s)
	}
	return nil
}

// checkPlaces checks that no two sections overlap.
func (f *File) checkPlaces() error {
	sorted := slices.DeleteFunc(slices.Clone(f.Sections), func(s Section) bool { return s.Type == Deprecated })
	slices.SortStableFunc(sorted, func(a, b Section) int { return cmp.Compare(a.Begin, b.Begin) })
	for i := 1; i < len(sorted); i++ {
		before, s := sorted[i-1], sorted[i]
		if end := before.Begin + int64(len(before.Data)); s.Begin < end {
			return &FormatError{File: f.Name, Section: s.String(), Problem: fmt.Sprintf("it begins at byte %d, within %s, which ends at %d", s.Begin, before, end)}
		}
	}
	return nil
}

// readItems reads pairs of keys and values into to, and returns a key that occurs twice, or "".
func readItems(pairs tableVector, to map[string]string) (twice string) {
	for i := range pairs.n {
		pair := pairs.get(i)
		key := pair.text(0)
		value := itemText(pair.byteAt(1), pair.child(2))
		if pairs.f.err != nil {
			return ""
		}
		if _, ok := to[key]; ok {
			return key
		}
		to[key] = value
	}
	return ""
}

// itemText returns a value of an item as text; kind is its number in the format's definition.
func itemText(kind byte, v table) string {
	switch kind {
	case 1:
		return strconv.FormatUint(uint64(v.byteAt(0)), 10)
	case 2:
		return strconv.FormatInt(int64(int8(v.byteAt(0))), 10)
	case 3:
		return strconv.FormatUint(uint64(v.number16(0)), 10)
	case 4:
		return strconv.FormatInt(int64(int16(v.number16(0))), 10)
	case 5:
		return strconv.FormatUint(uint64(v.number32(0)), 10)
	case 6:
		return strconv.FormatInt(int64(int32(v.number32(0))), 10)
	case 7:
		return strconv.FormatFloat(float64(math.Float32frombits(v.number32(0))), 'g', -1, 32)
	case 8:
		return strconv.FormatBool(v.byteAt(0) != 0)
	case 9:
		return v.text(0)
	case 10:
		return strconv.FormatUint(v.number64(0), 10)
	case 11:
		return strconv.FormatInt(int64(v.number64(0)), 10)
	case 12:
		return strconv.FormatFloat(math.Float64frombits(v.number64(0)), 'g', -1, 64)
	}
	return "" // a kind of a later version
}
