package gguf

import (
	"fmt"
	"strings"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// FormatError reports a GGUF file that is damaged, incomplete, contradicts itself or
// is hostile. It matches fault.ErrIntegrity.
type FormatError struct {
	// File is the name of the file, or "" when it is not known.
	File string
	// Key is the key of the metadata that is concerned, or "".
	Key string
	// Tensor is the name of the tensor that is concerned, or "".
	Tensor string
	// Problem says what is wrong, with the values concerned.
	Problem string
}

// Error names the file, the key or the tensor, and the problem.
func (e *FormatError) Error() string {
	var b strings.Builder
	if e.File != "" {
		fmt.Fprintf(&b, "%q: ", e.File)
	}
	if e.Key != "" {
		fmt.Fprintf(&b, "key %q: ", fault.Shorten(e.Key))
	}
	if e.Tensor != "" {
		fmt.Fprintf(&b, "tensor %q: ", fault.Shorten(e.Tensor))
	}
	b.WriteString(e.Problem)
	return b.String()
}

// Is reports whether target is fault.ErrIntegrity.
func (e *FormatError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says how to get a sound file.
func (e *FormatError) Hint() string {
	if e.File == "" {
		return "the file is damaged or incomplete: fetch it again"
	}
	return fmt.Sprintf("%q is damaged or incomplete: remove it and fetch it again", e.File)
}

// TypeError reports a tensor whose number type is not known, or not decoded. It
// matches fault.ErrUsage: the file may be sound.
type TypeError struct {
	// File is the name of the file, or "" when it is not known.
	File string
	// Tensor is the name of the tensor.
	Tensor string
	// Type is its number type.
	Type Type
}

// Error names the tensor and its type.
func (e *TypeError) Error() string {
	var b strings.Builder
	if e.File != "" {
		fmt.Fprintf(&b, "%q: ", e.File)
	}
	fmt.Fprintf(&b, "tensor %q: numbers of %s are not supported", fault.Shorten(e.Tensor), e.Type)
	return b.String()
}

// Is reports whether target is fault.ErrUsage.
func (e *TypeError) Is(target error) bool { return target == fault.ErrUsage }

// Hint says which files can be used.
func (e *TypeError) Hint() string {
	var names []string
	for _, t := range Decoded() {
		names = append(names, t.String())
	}
	return "choose a file whose tensors are of " + strings.Join(names, ", ") + ", such as one that is named Q8_0 or Q4_K_M"
}

// KeyError reports a key that a model needs and that the file does not have, or has
// with a value of another kind. It matches fault.ErrIntegrity.
type KeyError struct {
	// File is the name of the file, or "" when it is not known.
	File string
	// Key is the key.
	Key string
	// Problem says what is wrong with it.
	Problem string
}

// Error names the key and the problem.
func (e *KeyError) Error() string {
	var b strings.Builder
	if e.File != "" {
		fmt.Fprintf(&b, "%q: ", e.File)
	}
	fmt.Fprintf(&b, "key %q: %s", fault.Shorten(e.Key), e.Problem)
	return b.String()
}

// Is reports whether target is fault.ErrIntegrity.
func (e *KeyError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says which files can be used.
func (e *KeyError) Hint() string {
	return "use a file that llama.cpp's converter made of the whole model; projectors, adapters and single shards are not enough"
}
