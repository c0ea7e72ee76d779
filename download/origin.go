package download

import (
	"context"
	"io"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
)

// Origin is a place that files come from. Its methods may be called by many
// goroutines.
type Origin interface {
	// Name says what the origin is, for messages: "hub https://huggingface.co".
	// It holds no secret.
	Name() string
	// Network says whether the files come over a network: then Fetch watches for
	// stalls and insists on being told a file's length.
	Network() bool
	// Open starts reading a file of a source, from pos on where that is possible.
	// The caller reads to the end or closes early, and closes in any case. An
	// origin that does not have the file, or does not serve that kind of source,
	// returns an error that matches fault.ErrNotFound; one that may succeed when
	// tried again a [*TemporaryError].
	Open(ctx context.Context, src catalog.Source, file catalog.File, pos Position) (io.ReadCloser, Info, error)
}

// LocalOrigin is an origin whose files lie in this machine's file system, so that
// they can be linked instead of copied.
type LocalOrigin interface {
	Origin
	// LocalPath returns the absolute path of the regular file, with no symbolic link
	// at its end, and what is known about it. Errors are those of Open.
	LocalPath(src catalog.Source, file catalog.File) (string, Info, error)
}

// Position is where reading is to start.
type Position struct {
	// Offset is the number of bytes that the caller has already.
	Offset int64
	// Tag is the [Info.Tag] under which it got them, or "" when that is not known.
	// If the origin now has something else under the same path it starts at 0.
	Tag string
}

// Info is what an origin says about a file, as far as it knows. Nothing in it is
// trusted more than the catalog's pins.
type Info struct {
	// SizeBytes is the length of the whole file, or -1.
	SizeBytes int64
	// From is the offset of the first byte that the reader returns: the wanted one,
	// or 0.
	From int64
	// SHA256 is the hex digest that the origin gives for the whole file, or "".
	SHA256 string
	// GitBlob is the hex git blob hash (sha1) that the origin gives, or "".
	GitBlob string
	// Revision is the full commit that the source's revision stands for, or "".
	Revision string
	// Tag identifies the content for a later [Position], or is "".
	Tag string
}

// TemporaryError wraps an error that may pass when the same is tried again. It is
// transparent to errors.Is and errors.As.
type TemporaryError struct {
	Err error
	// RetryAfter is how long the server asked to wait, or 0.
	RetryAfter time.Duration
}

// Error returns the wrapped error's text.
func (e *TemporaryError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *TemporaryError) Unwrap() error { return e.Err }
