package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/zoo-sdk/zoo/internal/atomicfile"
)

const (
	// firstPause and maxPause bound the pause before another try; it doubles between.
	firstPause = 500 * time.Millisecond
	maxPause   = 30 * time.Second
	// maxRetryAfter is the longest pause that a server may ask for.
	maxRetryAfter = 2 * time.Minute
	// progressBytes is how many new bytes make a try count as progress: a server that
	// sends a byte and breaks off is not tried for ever.
	progressBytes = 64 << 10
	// maxFileBytes is the largest length that an origin may announce.
	maxFileBytes = 1 << 50
)

// expectation is what a complete file must be; zero values are not known.
type expectation struct {
	sizeBytes int64 // -1: not known
	sha256Hex string
	gitBlob   string
}

// expect holds what an origin announces against the pins, before anything is written,
// and merges the two.
func (j *job) expect(o Origin, info Info) (expectation, error) {
	file := j.file
	want := expectation{sizeBytes: info.SizeBytes, sha256Hex: file.SHA256, gitBlob: info.GitBlob}
	if info.SizeBytes > maxFileBytes {
		return want, &NetworkError{File: file.Path, Origin: o.Name(), Reason: fmt.Sprintf("it announces %d bytes", info.SizeBytes)}
	}
	if file.SizeBytes > 0 {
		if info.SizeBytes >= 0 && info.SizeBytes != file.SizeBytes {
			return want, &SizeError{File: file.Path, Want: file.SizeBytes, Got: info.SizeBytes, Origin: o.Name()}
		}
		want.sizeBytes = file.SizeBytes
	}
	switch {
	case want.sha256Hex == "":
		want.sha256Hex = info.SHA256
	case info.SHA256 != "" && info.SHA256 != want.sha256Hex:
		return want, &DigestError{File: file.Path, Want: want.sha256Hex, Got: info.SHA256, Origin: o.Name()}
	}
	return want, nil
}

// compare holds digests against the expectation; git is asked for only if needed.
func (want expectation) compare(path string, o Origin, sha256Hex string, git func() (string, error)) error {
	if want.sha256Hex != "" && sha256Hex != want.sha256Hex {
		return &DigestError{File: path, Want: want.sha256Hex, Got: sha256Hex, Origin: o.Name()}
	}
	if want.gitBlob == "" {
		return nil
	}
	got, err := git()
	if err != nil {
		return err
	}
	if got != want.gitBlob {
		return &DigestError{File: path, Want: want.gitBlob, Got: got, Origin: o.Name()}
	}
	return nil
}

// stream gets the file from one origin through the part file, trying again what may
// pass.
func (j *job) stream(ctx context.Context, o Origin) error {
	if local, ok := o.(LocalOrigin); ok {
		// The first step may have skipped this origin, being behind a network one.
		if err := j.link(ctx, local); err != nil || j.done {
			return err
		}
	}
	p, err := openPart(ctx, j.root, j.file.Path, j.file.SizeBytes, func(done int64) {
		j.verifying(o.Name(), j.file.SizeBytes, done)(done)
	})
	if err != nil {
		return err
	}
	defer p.keep()
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.Multiplier, pauses.MaxInterval = firstPause, 2, maxPause
	tries, furthest := 0, p.n
	var last error
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		last = j.attempt(ctx, o, p)
		var temporary *TemporaryError
		if !errors.As(last, &temporary) {
			return struct{}{}, permanent(last)
		}
		if p.n >= furthest+progressBytes {
			tries, furthest = 0, p.n
			pauses.Reset()
		}
		if tries++; tries >= j.req.MaxTries || temporary.RetryAfter > maxRetryAfter {
			return struct{}{}, permanent(temporary.Err)
		}
		if temporary.RetryAfter > 0 {
			return struct{}{}, &backoff.RetryAfterError{Duration: temporary.RetryAfter}
		}
		return struct{}{}, last
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(_ error, pause time.Duration) {
		j.log.InfoContext(ctx, "trying again", "file", j.file.Path, "origin", o.Name(), "pause", pause, "err", last)
		j.emit(Event{File: j.file.Path, Origin: o.Name(), Stage: StageRetry, DoneBytes: p.n, TotalBytes: j.file.SizeBytes, ResumedBytes: p.resumed, Err: last})
	}))
	return err
}

// permanent marks an error that no further try will change, and keeps nil.
func permanent(err error) error {
	if err == nil {
		return nil
	}
	return backoff.Permanent(err)
}

// attempt gets the rest of the file from one origin once.
func (j *job) attempt(parent context.Context, o Origin, p *part) error {
	pos := Position{Offset: p.n}
	if p.note.Origin == o.Name() {
		pos.Tag = p.note.Tag
	}
	if p.n > 0 {
		if j.file.SHA256 == "" && pos.Tag == "" {
			// Nothing would show whether the rest belongs to this part. It is given
			// up only when this origin does send the file: a later one may know it.
			pos = Position{}
		} else if j.file.SHA256 != "" && p.n == j.file.SizeBytes {
			if p.sha256Hex() == j.file.SHA256 {
				return j.complete(p, o)
			}
			if err := p.reset(); err != nil {
				return err
			}
			pos = Position{}
		}
	}
	timeout := time.Duration(0)
	if o.Network() {
		timeout = j.req.StallTimeout
	}
	ctx, watch := newWatchdog(parent, timeout)
	defer watch.stop()
	watch.arm()
	body, info, err := o.Open(ctx, j.source(), j.file, pos)
	watch.disarm()
	if err != nil {
		return j.blame(parent, ctx, o, err)
	}
	defer body.Close()
	want, err := j.expect(o, info)
	if err != nil {
		return err
	}
	if err := j.bind(o, j.file, info.Revision); err != nil {
		return err
	}
	if want.sizeBytes < 0 && o.Network() {
		return &NetworkError{File: j.file.Path, Origin: o.Name(), Reason: "it does not say how long the file is"}
	}
	if j.file.SHA256 == "" && (want.sha256Hex != "" || want.gitBlob != "") {
		// The digest is known only now: an earlier call may have fetched the file.
		if ok, err := j.takePresent(parent, want.sizeBytes, want.sha256Hex, want.gitBlob); ok || err != nil {
			if err == nil {
				err = p.reset()
			}
			return err
		}
	}
	switch {
	case info.From == p.n:
	case info.From == 0:
		if err := p.reset(); err != nil {
			return err
		}
	default:
		return &NetworkError{File: j.file.Path, Origin: o.Name(), Reason: "it sends a range that was not asked for"}
	}
	resumedAt := p.n
	if err := j.room.set(max(0, want.sizeBytes-p.n)); err != nil {
		return &diskError{err}
	}
	if info.Tag != "" {
		if err := p.setNote(partNote{Origin: o.Name(), Tag: info.Tag}); err != nil {
			return err
		}
	}
	if err := j.copyBody(parent, ctx, watch, o, body, p, want); err != nil {
		return err
	}
	err = want.compare(j.file.Path, o, p.sha256Hex(), func() (string, error) { return p.gitBlob(parent) })
	if err != nil {
		if rerr := p.reset(); rerr != nil {
			return rerr
		}
		if digest := new(DigestError); resumedAt > 0 && errors.As(err, &digest) {
			// The part may have been bad, not what was added to it.
			return &TemporaryError{Err: err}
		}
		return err
	}
	return j.complete(p, o)
}

// copyBody appends a body to the part until the file has its length.
func (j *job) copyBody(parent, ctx context.Context, watch *watchdog, o Origin, body io.Reader, p *part, want expectation) error {
	buf := make([]byte, bufferBytes)
	event := Event{File: j.file.Path, Origin: o.Name(), Stage: StageFetch, DoneBytes: p.n, TotalBytes: max(0, want.sizeBytes), ResumedBytes: p.resumed}
	j.emit(event)
	for {
		if err := context.Cause(parent); err != nil {
			return err
		}
		watch.arm()
		n, err := body.Read(buf)
		watch.disarm()
		if n > 0 {
			if want.sizeBytes >= 0 && p.n+int64(n) > want.sizeBytes {
				got := p.n + int64(n)
				if err := p.reset(); err != nil {
					return err
				}
				return &SizeError{File: j.file.Path, Want: want.sizeBytes, Got: got, Origin: o.Name()}
			}
			if err := p.write(buf[:n]); err != nil {
				return j.needed(err, want.sizeBytes-p.n)
			}
			j.room.spend(int64(n))
			event.DoneBytes = p.n
			j.emit(event)
		}
		switch {
		case errors.Is(err, io.EOF) && want.sizeBytes >= 0 && p.n < want.sizeBytes:
			if !o.Network() {
				return &SizeError{File: j.file.Path, Want: want.sizeBytes, Got: p.n, Origin: o.Name()}
			}
			return j.blame(parent, ctx, o, &TemporaryError{Err: io.ErrUnexpectedEOF})
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return j.blame(parent, ctx, o, &TemporaryError{Err: withoutURL(err)})
		}
	}
}

// complete turns the part into the file.
func (j *job) complete(p *part, o Origin) error {
	n, sum, resumed := p.n, p.sha256Hex(), p.resumed
	if err := p.commit(); err != nil {
		return err
	}
	j.finish(o.Name(), n, sum, resumed)
	return nil
}

// blame finds out why waiting for an origin failed: the caller gave up, the watchdog
// bit, or it is the origin's own error, which a network origin gets as NetworkError.
func (j *job) blame(parent, ctx context.Context, o Origin, err error) error {
	if cause := context.Cause(parent); cause != nil {
		return cause
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(cause, errStalled) {
		return &TemporaryError{Err: &NetworkError{File: j.file.Path, Origin: o.Name(), Err: cause}}
	}
	temporary, ok := err.(*TemporaryError)
	if !ok || !o.Network() {
		return err
	}
	if network := new(NetworkError); errors.As(err, &network) {
		return err
	}
	return &TemporaryError{Err: &NetworkError{File: j.file.Path, Origin: o.Name(), Err: temporary.Err}, RetryAfter: temporary.RetryAfter}
}

// needed adds to a full device's error how much was still to come.
func (j *job) needed(err error, bytes int64) error {
	var space *atomicfile.SpaceError
	if errors.As(err, &space) && bytes > 0 {
		space.NeedBytes = bytes
		if free, ferr := j.room.ledger.free(j.req.Dir); ferr == nil {
			space.FreeBytes = free
		}
	}
	return err
}
