// Package litertlm reads .litertlm files, in which LiteRT-LM publishes a language
// model: a container of sections, and the TFLite models in them.
//
//	bytes   -> Parse      -> File -> Sections -> slices of these bytes
//	section -> ParseModel -> Model -> Subgraphs -> Tensors, Operators
//
// Nothing of a section is copied: the data of a tensor is a slice of the file, which
// is best mapped, as package checkpoint does.
//
// # Container
//
// All numbers are little-endian. A file starts with "LITERTLM", three 32-bit
// numbers of a version (major, minor, patch), four bytes of padding, and at byte 24
// the 64-bit offset at which the header ends. The header, from byte 32 on, is a
// FlatBuffer that lists the sections with their type, their place and a few keys
// with values, of which "model_type" names the part of the model. A section starts at a
// multiple of 16 KiB.
//
// # Models
//
// Of a TFLite model (schema version 3) this package reads what tells weights apart:
// tensors with their names, shapes, types, data and quantization, the operators
// that use them, with those of their options that say what they compute of weights,
// and the signatures. Tensors of 4 and of 2 bits hold two's complement numbers, the
// lowest bits of a byte first. The data lies within the FlatBuffer or, in models of
// more than 2 GB, behind it. Data in another section or file ("external buffers") is
// not read, nor is sparse data; such tensors are marked.
//
// The attributes of a composite operator are a FlexBuffer, a map of names and values
// that is read from its end (flexbuffer.go).
//
// # Hostile files
//
// The FlatBuffers library for Go checks no offsets, so this package has accessors
// of its own (flatbuffer.go): every offset, table and vector is checked
// against the length of the data, and a file in which many tables share the same
// bytes, which no writer makes, is refused before it costs more memory than its
// length warrants. The number of tables, the operands of an operator and the length
// of all names are bounded. Errors about a file's content are *FormatError.
package litertlm
