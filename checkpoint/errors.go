package checkpoint

import (
	"fmt"
	"strings"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// FormatError reports a safetensors file or an index that is damaged, contradicts
// itself or is hostile. It matches fault.ErrIntegrity.
type FormatError struct {
	// File is the name of the file within the checkpoint, or "" when it is not known.
	File string
	// Tensor is the name of the tensor concerned, or "" for the file as a whole.
	Tensor string
	// Problem says what is wrong, with the values concerned.
	Problem string
	// Err is the cause, or nil.
	Err error
}

// Error names the file, the tensor and the problem.
func (e *FormatError) Error() string {
	var b strings.Builder
	if e.File != "" {
		fmt.Fprintf(&b, "%q: ", e.File)
	}
	if e.Tensor != "" {
		fmt.Fprintf(&b, "tensor %q: ", fault.Shorten(e.Tensor))
	}
	b.WriteString(e.Problem)
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap returns the cause, if any.
func (e *FormatError) Unwrap() error { return e.Err }

// Is reports whether target is fault.ErrIntegrity.
func (e *FormatError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says how to get an undamaged file.
func (e *FormatError) Hint() string {
	if e.File == "" {
		return "the file is damaged or incomplete: fetch the checkpoint again"
	}
	return fmt.Sprintf("%q is damaged or incomplete: remove it and fetch the checkpoint again", e.File)
}

// MissingError reports a file that a checkpoint should have. It matches fault.ErrNotFound.
type MissingError struct {
	// Dir is the checkpoint's folder.
	Dir string
	// File is the name of the file.
	File string
	// Tensor is a tensor that an index expects in it, or "".
	Tensor string
	// Err is the error of the system; it matches fs.ErrNotExist.
	Err error
}

// Error names the file, and the tensor that was to come from it.
func (e *MissingError) Error() string {
	if e.Tensor != "" {
		return fmt.Sprintf("checkpoint %q has no file %q, which should hold tensor %q", e.Dir, e.File, fault.Shorten(e.Tensor))
	}
	return fmt.Sprintf("checkpoint %q has no file %q", e.Dir, e.File)
}

// Unwrap returns the error of the system.
func (e *MissingError) Unwrap() error { return e.Err }

// Is reports whether target is fault.ErrNotFound.
func (e *MissingError) Is(target error) bool { return target == fault.ErrNotFound }

// Hint says what to do about the missing file.
func (e *MissingError) Hint() string {
	return fmt.Sprintf("fetch %q from the model's repository into %s, or give another folder", e.File, e.Dir)
}
