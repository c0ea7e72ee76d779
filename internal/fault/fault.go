// Package fault holds the error sentinels that every layer may return.
//
// They live below all other packages so that low ones can use them; package
// zoo publishes the same values under its own name. Each stands for one exit
// code of the command line.
package fault

import "errors"

var (
	// ErrUsage reports arguments or options that contradict each other or are out of range.
	ErrUsage = errors.New("usage")
	// ErrNotFound reports a name, version, file or pack that does not exist.
	ErrNotFound = errors.New("not found")
	// ErrIntegrity reports bytes that are not what they should be: a digest, a size, a malformed file.
	ErrIntegrity = errors.New("integrity")
	// ErrGateFailed reports a pack that did not pass its gate, or has not been put to it.
	ErrGateFailed = errors.New("gate failed")
	// ErrNetwork reports a server that could not be reached or did not answer as it should.
	ErrNetwork = errors.New("network")
	// ErrNoSpace reports a device without enough room.
	ErrNoSpace = errors.New("no space")
	// ErrNotPermitted reports a missing token, an unaccepted licence or a refused file operation.
	ErrNotPermitted = errors.New("not permitted")
)

// Hinter is an error that can say what to do next.
type Hinter interface {
	error
	// Hint returns one sentence without a full stop that tells the user what to do next.
	Hint() string
}

// Hint returns the hint of the first error in err's tree that has one, or "".
func Hint(err error) string {
	var h Hinter
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

// hinted attaches a hint to an error.
type hinted struct {
	error
	hint string
}

// Unwrap returns the error that the hint was attached to.
func (h *hinted) Unwrap() error { return h.error }

// Hint returns the attached hint.
func (h *hinted) Hint() string { return h.hint }

// WithHint returns err with a hint attached: its text and its identity for
// errors.Is and errors.As stay the same. It returns nil for a nil err.
func WithHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &hinted{err, hint}
}
