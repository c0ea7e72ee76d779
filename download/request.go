package download

import (
	"io/fs"
	"log/slog"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
)

// Defaults of [Request].
const (
	DefaultConcurrency  = 4
	DefaultStallTimeout = 30 * time.Second
	DefaultMaxTries     = 6
)

// Request says what [Fetch] is to do. Source, Origins and Dir must be set; the zero
// value of everything else stands for its default.
type Request struct {
	// Source is where the files belong.
	Source catalog.Source
	// Files are the wanted ones, with what is known about them; nil takes
	// Source.Files. Give the size and sha256 that an earlier Fetch learnt.
	Files []catalog.File
	// Origins are tried in order, for each file anew.
	Origins []Origin
	// Dir receives the files; it is created when missing.
	Dir string
	// Trust says, from a file's state on disk, that it was found to have file.SHA256
	// before and has not changed since (by a stamp of size, time and inode, say); it
	// is then not read again. It is asked only about files in Dir whose size is
	// right, possibly from several goroutines. nil trusts nothing.
	Trust func(file catalog.File, info fs.FileInfo) bool
	// Progress, unless nil, is told what happens. Calls never overlap; a slow one
	// slows the download.
	Progress func(Event)
	// Logger is told of retries and fallbacks; nil discards.
	Logger *slog.Logger
	// Concurrency is how many files are fetched at once.
	Concurrency int
	// StallTimeout is how long a network origin may deliver nothing before its
	// connection is given up (and tried again).
	StallTimeout time.Duration
	// MaxTries is how often a network origin is tried in a row without a single new
	// byte before it is given up.
	MaxTries int
	// FreeBytes tells the free space of a folder's device; nil asks the system.
	FreeBytes func(dir string) (int64, error)
}

// Stage is what is being done to a file.
type Stage int

// Stages in their usual order; a file may skip any but StageDone.
const (
	// StageVerify: bytes on this disk are being hashed: a file that is there
	// already, a local original, or the part of a resumed download.
	StageVerify Stage = iota + 1
	// StageFetch: bytes are arriving from the origin.
	StageFetch
	// StageRetry: the origin failed for now and is tried again after a pause.
	StageRetry
	// StageDone: the file is complete and verified; its last event.
	StageDone
)

// Event tells of progress on one file.
type Event struct {
	// File is the path of the file within the source.
	File string
	// Origin is the name of the origin, or "" for a file that was there already.
	Origin string
	Stage  Stage
	// DoneBytes is how much of the file has been verified (StageVerify) or is on
	// disk (otherwise).
	DoneBytes int64
	// TotalBytes is the file's length, or 0 when it is not known yet.
	TotalBytes int64
	// ResumedBytes is how much of DoneBytes was there before this call.
	ResumedBytes int64
	// Err is why the file is tried again, at StageRetry only.
	Err error
}

// Result is what [Fetch] has got and learnt.
type Result struct {
	// Files are the wanted files in the order of the request, each with the size and
	// sha256 that were verified; optional files that no origin has are left out.
	Files []catalog.File
	// Revision is the full commit that the files are from, if an origin told, else
	// the request's revision.
	Revision string
}
