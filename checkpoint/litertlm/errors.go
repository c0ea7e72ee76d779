package litertlm

import (
	"fmt"
	"strings"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// FormatError reports a .litertlm file, or a model in it, that is damaged,
// incomplete, contradicts itself or is hostile. It matches fault.ErrIntegrity.
type FormatError struct {
	// File is the name of the file, or "" when it is not known.
	File string
	// Section says which section is concerned, or is "" for the file as a whole.
	Section string
	// Problem says what is wrong, with the values concerned.
	Problem string
}

// Error names the file, the section and the problem.
func (e *FormatError) Error() string {
	var b strings.Builder
	if e.File != "" {
		fmt.Fprintf(&b, "%q: ", e.File)
	}
	if e.Section != "" {
		fmt.Fprintf(&b, "%s: ", e.Section)
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
