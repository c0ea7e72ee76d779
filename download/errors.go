package download

import (
	"fmt"
	"strings"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// DigestError reports a file whose bytes are not the pinned or announced ones. It
// matches fault.ErrIntegrity.
type DigestError struct {
	// File is the path within the source.
	File string
	// Want and Got are digests in hex: sha256, or, where the origin announced only
	// that, git's sha1 of the blob.
	Want, Got string
	// Origin is the name of the origin that the bytes came from.
	Origin string
}

// Error names the file, the origin and both digests.
func (e *DigestError) Error() string {
	return fmt.Sprintf("%q from %s has digest %s, want %s", e.File, e.Origin, e.Got, e.Want)
}

// Is reports whether target is fault.ErrIntegrity.
func (e *DigestError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says what such a file may mean.
func (e *DigestError) Hint() string {
	return "try again; if it stays so, the origin's file has changed or been tampered with: do not use it"
}

// SizeError reports a file whose length is not the pinned one. It matches
// fault.ErrIntegrity.
type SizeError struct {
	// File is the path within the source.
	File string
	// Want and Got are lengths in bytes. Got is the first excess length when the
	// origin delivers more than it should.
	Want, Got int64
	// Origin is the name of the origin that was asked.
	Origin string
}

// Error names the file, the origin and both lengths.
func (e *SizeError) Error() string {
	return fmt.Sprintf("%q from %s has %d bytes, want %d", e.File, e.Origin, e.Got, e.Want)
}

// Is reports whether target is fault.ErrIntegrity.
func (e *SizeError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says what such a file may mean.
func (e *SizeError) Hint() string {
	return "the origin's file is not the one in the catalog: choose another version or origin"
}

// RevisionError reports a repository that answered with another commit than the
// one asked for, or moved on between two files. It matches fault.ErrIntegrity.
type RevisionError struct {
	File      string
	Want, Got string
	Origin    string
}

// Error names the file, the origin and both commits.
func (e *RevisionError) Error() string {
	return fmt.Sprintf("%q from %s is of commit %s, want %s", e.File, e.Origin, e.Got, e.Want)
}

// Is reports whether target is fault.ErrIntegrity.
func (e *RevisionError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says what to do about it.
func (e *RevisionError) Hint() string {
	return "the repository changed meanwhile: try again"
}

// MissingError reports a file that none of the origins has. It matches
// fault.ErrNotFound.
type MissingError struct {
	// File is the path within the source.
	File string
	// Source is where it should be.
	Source catalog.Source
	// Origins are the names of those that were asked.
	Origins []string
	// Network says that one of them was a network origin.
	Network bool
	// Reason is what the last origin that gave one said, or "".
	Reason string
	// Err holds the answers of the origins, or is nil when none was asked.
	Err error
}

// Error names the file and who was asked.
func (e *MissingError) Error() string {
	where := e.Source.Repository
	if e.Source.Revision != "" {
		where += " at " + e.Source.Revision
	}
	asked := "no origin was asked"
	if len(e.Origins) > 0 {
		asked = "asked: " + strings.Join(e.Origins, ", ")
	}
	s := fmt.Sprintf("file %q of %s not found (%s)", e.File, where, asked)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Unwrap returns the answers of the origins, if any.
func (e *MissingError) Unwrap() error { return e.Err }

// Is reports whether target is fault.ErrNotFound.
func (e *MissingError) Is(target error) bool { return target == fault.ErrNotFound }

// Hint says how to get at the file.
func (e *MissingError) Hint() string {
	if !e.Network && e.Source.Kind == catalog.KindHub {
		return "the file is not on this machine: run again without --offline, or name a folder that holds the checkpoint"
	}
	return "check the name of the repository and of the revision, and whether the file was renamed there"
}

// AccessError reports a server that refuses to hand out a file. It matches
// fault.ErrNotPermitted.
type AccessError struct {
	// File is the path within the source.
	File string
	// Origin is the name of the hub.
	Origin string
	// Status is the HTTP status, 401 or 403.
	Status int
	// HaveToken says that the request carried a token.
	HaveToken bool
	// Page is the address of the repository's page, where a licence is accepted.
	Page string
	// Reason is what the server said, one line, or "".
	Reason string
}

// Error says who refused what, and whether a token was there.
func (e *AccessError) Error() string {
	who := "without a token"
	if e.HaveToken {
		who = "to the account of this token"
	}
	s := fmt.Sprintf("%s refuses %q %s (status %d)", e.Origin, e.File, who, e.Status)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Is reports whether target is fault.ErrNotPermitted.
func (e *AccessError) Is(target error) bool { return target == fault.ErrNotPermitted }

// Hint tells the two causes apart: no token, or a licence that is not accepted.
func (e *AccessError) Hint() string {
	switch {
	case !e.HaveToken:
		return fmt.Sprintf("if the repository exists it is private or gated: accept its licence at %s, create a token there and set HF_TOKEN", e.Page)
	case e.Status == 401:
		return "the token is not valid: create a new one and set HF_TOKEN"
	default:
		return fmt.Sprintf("accept the licence at %s with the account of the token, and let the token read gated repositories", e.Page)
	}
}

// absentError reports a file that a hub does not have. It matches fault.ErrNotFound.
type absentError struct {
	file, origin string
	reason       string
}

// Error names the file, the hub and its reason.
func (e *absentError) Error() string {
	s := fmt.Sprintf("%q is not in %s", e.file, e.origin)
	if e.reason != "" {
		s += ": " + e.reason
	}
	return s
}

// Is reports whether target is fault.ErrNotFound.
func (e *absentError) Is(target error) bool { return target == fault.ErrNotFound }

// NetworkError reports a server that could not be reached, broke off or answered
// with something else than the file. It matches fault.ErrNetwork.
type NetworkError struct {
	// File is the path within the source.
	File string
	// Origin is the name of the hub.
	Origin string
	// Status is the HTTP status, or 0 when there was no answer.
	Status int
	// Reason is what the server said, one line, or "".
	Reason string
	// Err is the cause, or nil.
	Err error
}

// Error says what went wrong where.
func (e *NetworkError) Error() string {
	s := fmt.Sprintf("fetch %q from %s", e.File, e.Origin)
	if e.Status != 0 {
		s += fmt.Sprintf(": status %d", e.Status)
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause, if any.
func (e *NetworkError) Unwrap() error { return e.Err }

// Is reports whether target is fault.ErrNetwork.
func (e *NetworkError) Is(target error) bool { return target == fault.ErrNetwork }

// Hint says what to do about it.
func (e *NetworkError) Hint() string {
	switch {
	case e.Status == 429:
		return "the server asks for a pause: try again later; what has arrived is kept"
	case e.Status >= 400 && e.Status < 500:
		return "check HF_ENDPOINT: the server does not answer as a hub does"
	default:
		return "check the connection (and HF_ENDPOINT, and proxy settings) and run the same again: what has arrived is kept"
	}
}
