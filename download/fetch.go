package download

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// staleAfter is the age from which temporary files in the folder are swept away.
const staleAfter = time.Hour

// Fetch brings the files of a request into its folder and returns what it learnt
// about them. Files that are there already and right (by sha256, or by
// [Request.Trust]) stay; a part of an earlier, interrupted call is resumed. Files of
// local origins are hard-linked when that works, which shares them with their owner,
// else copied; what is copied or downloaded is read-only.
//
// Without a network origin (offline) a file that is nowhere on this machine is a
// [*MissingError] whose hint says so.
//
// On error the files that are complete stay, so do part files worth resuming, and
// nothing incomplete bears a file's own name. Errors are [*DigestError],
// [*SizeError], [*RevisionError], [*MissingError], [*AccessError], [*NetworkError],
// those of package internal/atomicfile for the disk, and the cause of ctx.
//
// The caller holds a lock for the folder; see the package comment.
func Fetch(ctx context.Context, req Request) (*Result, error) {
	files := req.Files
	if files == nil {
		files = req.Source.Files
	}
	if err := checkRequest(req, files); err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	if err := os.MkdirAll(req.Dir, 0o755); err != nil {
		return nil, atomicfile.MapError(req.Dir, fmt.Errorf("fetch: %w", err))
	}
	root, err := os.OpenRoot(req.Dir)
	if err != nil {
		return nil, atomicfile.MapError(req.Dir, fmt.Errorf("fetch: %w", err))
	}
	defer root.Close()
	f := newFetcher(req, root)
	// The caller's lock makes sure that nobody is at work here.
	if _, err := atomicfile.CleanTemps(req.Dir, staleAfter); err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	jobs := make([]*job, len(files))
	for i, file := range files {
		jobs[i] = &job{fetcher: f, file: file}
	}
	// First whatever needs neither room nor network; then it is known how much room
	// the rest needs.
	if err := f.each(ctx, jobs, (*job).settle); err != nil {
		return nil, err
	}
	open := slices.DeleteFunc(slices.Clone(jobs), func(j *job) bool { return j.done })
	needs := make([]int64, len(open))
	for i, j := range open {
		needs[i] = max(0, j.file.SizeBytes-partSize(root, j.file.Path))
	}
	space := &ledger{dir: req.Dir, free: req.FreeBytes}
	if space.free == nil {
		space.free = atomicfile.FreeBytes
	}
	reservations, err := space.plan(needs)
	if err != nil {
		return nil, err
	}
	for i, j := range open {
		j.room = reservations[i]
	}
	if err := f.each(ctx, open, (*job).fetch); err != nil {
		return nil, err
	}
	result := &Result{Revision: f.source().Revision}
	for _, j := range jobs {
		if j.done {
			result.Files = append(result.Files, j.file)
		}
	}
	return result, nil
}

// checkRequest refuses what cannot be fetched at all.
func checkRequest(req Request, files []catalog.File) error {
	if req.Dir == "" {
		return fmt.Errorf("no folder is given: %w", fault.ErrUsage)
	}
	src := req.Source
	src.Files = files
	return src.Validate()
}

// fetcher is the state that the files of one Fetch share.
type fetcher struct {
	req  Request // with its defaults filled in
	root *os.Root
	log  *slog.Logger

	sourceMu sync.Mutex
	src      catalog.Source // its revision becomes a commit once an origin tells

	eventMu sync.Mutex
}

// newFetcher fills in the defaults of a request.
func newFetcher(req Request, root *os.Root) *fetcher {
	if req.Concurrency <= 0 {
		req.Concurrency = DefaultConcurrency
	}
	if req.StallTimeout <= 0 {
		req.StallTimeout = DefaultStallTimeout
	}
	if req.MaxTries <= 0 {
		req.MaxTries = DefaultMaxTries
	}
	if req.Logger == nil {
		req.Logger = slog.New(slog.DiscardHandler)
	}
	return &fetcher{req: req, root: root, log: req.Logger, src: req.Source}
}

// each runs a step of several files, some at once, and returns the first error. As
// long as the revision may still move, the first file goes alone: it binds the
// commit for the others.
func (f *fetcher) each(ctx context.Context, jobs []*job, step func(*job, context.Context) error) error {
	if len(jobs) > 0 && !f.source().Pinned() {
		if err := step(jobs[0], ctx); err != nil {
			return err
		}
		jobs = jobs[1:]
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(f.req.Concurrency)
	for _, j := range jobs {
		group.Go(func() error { return step(j, ctx) })
	}
	return group.Wait()
}

// source returns the source, at its commit once that is known.
func (f *fetcher) source() catalog.Source {
	f.sourceMu.Lock()
	defer f.sourceMu.Unlock()
	return f.src
}

// bind holds what an origin says about the commit against what is known, and learns
// it the first time.
func (f *fetcher) bind(o Origin, file catalog.File, commit string) error {
	if commit == "" {
		return nil
	}
	f.sourceMu.Lock()
	defer f.sourceMu.Unlock()
	if !f.src.Pinned() {
		f.src.Revision = commit
	}
	if f.src.Kind == catalog.KindHub && f.src.Revision != commit {
		return &RevisionError{File: file.Path, Want: f.src.Revision, Got: commit, Origin: o.Name()}
	}
	return nil
}

// emit tells the caller of progress.
func (f *fetcher) emit(e Event) {
	if f.req.Progress == nil {
		return
	}
	f.eventMu.Lock()
	defer f.eventMu.Unlock()
	f.req.Progress(e)
}

// job is one file on its way.
type job struct {
	*fetcher
	file catalog.File // size and sha256 are filled in when done
	done bool
	room *reservation // from the second step on
}

// finish notes that the file is complete and verified.
func (j *job) finish(origin string, sizeBytes int64, sha256Hex string, resumed int64) {
	j.file.SizeBytes, j.file.SHA256, j.done = sizeBytes, sha256Hex, true
	j.emit(Event{File: j.file.Path, Origin: origin, Stage: StageDone, DoneBytes: sizeBytes, TotalBytes: sizeBytes, ResumedBytes: resumed})
}

// settle is the first step: take the file if it is there already, or link it from the
// leading local origins. What does not work here is left to the second step, which
// asks the same origins again and reports.
func (j *job) settle(ctx context.Context) error {
	if j.file.SHA256 != "" {
		if ok, err := j.takePresent(ctx, j.file.SizeBytes, j.file.SHA256, ""); ok || err != nil {
			return err
		}
	}
	for _, o := range j.req.Origins {
		local, ok := o.(LocalOrigin)
		if !ok {
			if o.Network() {
				return nil
			}
			continue
		}
		err := j.link(ctx, local)
		if j.done || context.Cause(ctx) != nil {
			return err
		}
	}
	return nil
}

// fetch is the second step: the origins in turn, until one delivers.
func (j *job) fetch(ctx context.Context) error {
	missing := &MissingError{File: j.file.Path, Source: j.source()}
	var answers []error
	var failure error
	for _, o := range j.req.Origins {
		missing.Origins = append(missing.Origins, o.Name())
		missing.Network = missing.Network || o.Network()
		err := j.stream(ctx, o)
		if err == nil {
			return nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		var disk *diskError
		if errors.As(err, &disk) {
			return fmt.Errorf("fetch %q: %w", j.file.Path, disk.err)
		}
		if errors.Is(err, fault.ErrNotFound) {
			answers = append(answers, err)
			var absent *absentError
			if errors.As(err, &absent) && absent.reason != "" {
				missing.Reason = absent.reason
			}
			continue
		}
		j.log.WarnContext(ctx, "origin failed", "file", j.file.Path, "origin", o.Name(), "err", err)
		failure = err
	}
	switch {
	case failure != nil:
		return failure
	case j.file.Optional:
		return nil
	}
	missing.Err = errors.Join(answers...)
	return missing
}

// takePresent looks at the file in the folder and takes it if it has the given
// digest: a sha256, or else git's. sizeBytes 0 means that the size is not known.
func (j *job) takePresent(ctx context.Context, sizeBytes int64, sha256Hex, gitBlob string) (bool, error) {
	info, err := j.root.Lstat(j.file.Path)
	if err != nil || !info.Mode().IsRegular() || sizeBytes > 0 && info.Size() != sizeBytes {
		return false, nil
	}
	if sha256Hex != "" && j.req.Trust != nil {
		known := j.file
		known.SHA256, known.SizeBytes = sha256Hex, info.Size()
		if j.req.Trust(known, info) {
			j.finish("", info.Size(), sha256Hex, info.Size())
			return true, nil
		}
	}
	got, git, err := j.hashFile(ctx, j.file.Path, info, gitBlob != "", "")
	if err != nil {
		return false, err
	}
	if sha256Hex != "" && got != sha256Hex || gitBlob != "" && git != gitBlob {
		j.log.WarnContext(ctx, "file is not the wanted one", "file", j.file.Path, "digest", got)
		return false, nil
	}
	j.finish("", info.Size(), got, info.Size())
	return true, nil
}

// verifying returns a callback that reports how far hashing is.
func (j *job) verifying(origin string, totalBytes, resumed int64) func(done int64) {
	return func(done int64) {
		j.emit(Event{File: j.file.Path, Origin: origin, Stage: StageVerify, DoneBytes: done, TotalBytes: totalBytes, ResumedBytes: resumed})
	}
}
