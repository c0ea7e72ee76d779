package tokenizer

import (
	"fmt"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// SourceError reports a tokenizer.json or a SentencePiece vocabulary that is
// malformed, or that asks for something this package does not implement exactly.
// It matches fault.ErrIntegrity.
type SourceError struct {
	// Pieces says that a SentencePiece vocabulary is concerned.
	Pieces bool
	// Part names the offending part of the file, such as "normalizer" or
	// "model.merges[12]" or "pieces[12]"; it is empty when the file is not readable at all.
	Part string
	// Problem says what is wrong with it.
	Problem string
	// Err is the underlying error of the JSON reader, if there is one.
	Err error
}

// Error describes the part and what is wrong with it.
func (e *SourceError) Error() string {
	msg := "tokenizer.json: "
	if e.Pieces {
		msg = "SentencePiece vocabulary: "
	}
	if e.Part != "" {
		msg += e.Part + ": "
	}
	msg += e.Problem
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// Is reports whether target is fault.ErrIntegrity.
func (e *SourceError) Is(target error) bool { return target == fault.ErrIntegrity }

// Unwrap returns the JSON reader's error, or nil.
func (e *SourceError) Unwrap() error { return e.Err }

// Hint tells which tokenizer files can be used.
func (e *SourceError) Hint() string {
	if e.Pieces {
		return "use the file published with the checkpoint; only SentencePiece's BPE with a piece for every byte is supported"
	}
	return "use the tokenizer.json published with the checkpoint; only byte-fallback BPE in the layout that package tokenizer describes is supported"
}

// FormatError reports compiled tokenizer bytes that cannot be used: truncated,
// altered, or written by another version of this package. It matches
// fault.ErrIntegrity.
type FormatError struct {
	// Section names the part of the compiled bytes, such as "header" or "merges".
	Section string
	// Problem says what is wrong with it.
	Problem string
}

// Error describes the section and what is wrong with it.
func (e *FormatError) Error() string {
	return fmt.Sprintf("compiled tokenizer: %s: %s", e.Section, e.Problem)
}

// Is reports whether target is fault.ErrIntegrity.
func (e *FormatError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint tells how to get compiled bytes that can be used.
func (e *FormatError) Hint() string {
	return "compile the tokenizer again by converting the checkpoint again"
}

// sourceError builds a SourceError for part with a formatted problem.
func sourceError(part, format string, args ...any) error {
	return &SourceError{Part: part, Problem: fmt.Sprintf(format, args...)}
}

// item names the n-th item of a list for a SourceError.
func item(list string, n int) string { return fmt.Sprintf("%s[%d]", list, n) }

// formatError builds a FormatError for section with a formatted problem.
func formatError(section, format string, args ...any) error {
	return &FormatError{Section: section, Problem: fmt.Sprintf(format, args...)}
}
