package zoo

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
)

// verifyBufferBytes is the largest size of the pieces that verification reads.
const verifyBufferBytes = 1 << 20

// Verify reads everything and holds it against the manifest's digests. It returns
// nil, a [*DamageError], or several of them joined, which name each damaged file,
// and in the weights file each damaged tensor; or the cause of ctx, or an error of
// the file system. Progress, which may be nil, counts the pack's bytes.
func (p *Pack) Verify(ctx context.Context, progress Progress) error {
	v := &verifier{p: p, progress: progress, size: p.SizeBytes()}
	jobs := v.jobs()
	bufBytes := int64(weightsAlign) // what padding may need
	for _, j := range jobs {
		v.work += j.bytes
		bufBytes = max(bufBytes, min(j.bytes, verifyBufferBytes))
	}
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range min(max(2, runtime.GOMAXPROCS(0)), len(jobs)) {
		g.Go(func() error {
			buf := make([]byte, bufBytes)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(jobs) {
					return nil
				}
				if err := jobs[i].run(ctx, buf); err != nil {
					return err
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return atomicfile.MapError(p.dir, fmt.Errorf("verify pack %q: %w", p.dir, err))
	}
	return v.verdict()
}

// verifier collects what the jobs of a verification find.
type verifier struct {
	p        *Pack
	progress Progress
	size     int64 // of the pack
	work     int64 // bytes that are hashed, those of tensors twice

	mu      sync.Mutex
	done    int64
	damages []placedDamage
}

// placedDamage is a damage with the place it takes among several.
type placedDamage struct {
	*DamageError
	offset int64 // in its file; -1 for the file as a whole
}

// verifyJob is a piece of work for one goroutine.
type verifyJob struct {
	bytes int64
	run   func(ctx context.Context, buf []byte) error
}

// jobs lists the work, the longest piece first: while one goroutine hashes the
// weights file as a whole, others hash its tensors.
func (v *verifier) jobs() []verifyJob {
	p := v.p
	weights := p.files[WeightsFile]
	jobs := []verifyJob{v.wholeFile(weights), {run: v.outsideTensors}, {run: v.identity}}
	for _, t := range p.manifest.Tensors {
		where := span{t.Offset, t.Offset + t.SizeBytes()}
		jobs = append(jobs, verifyJob{bytes: t.SizeBytes(), run: func(ctx context.Context, buf []byte) error {
			return v.hash(ctx, buf, weights, where, t.Name, t.SHA256)
		}})
	}
	for _, entry := range p.manifest.Files {
		if entry.Path != WeightsFile {
			jobs = append(jobs, v.wholeFile(p.files[entry.Path]))
		}
	}
	return jobs
}

// wholeFile hashes a file as a whole.
func (v *verifier) wholeFile(f *packFile) verifyJob {
	return verifyJob{bytes: f.SizeBytes, run: func(ctx context.Context, buf []byte) error {
		info, err := f.f.Stat()
		if err != nil {
			return err
		}
		if info.Size() != f.SizeBytes {
			v.add(-1, v.p.damage(f.Path, "", fmt.Sprintf("%d bytes", f.SizeBytes), fmt.Sprintf("%d bytes", info.Size())))
			return nil
		}
		return v.hash(ctx, buf, f, span{0, f.SizeBytes}, "", f.SHA256)
	}}
}

// hash holds a range of a file against a digest.
func (v *verifier) hash(ctx context.Context, buf []byte, f *packFile, where span, tensor, want string) error {
	sum := sha256.New()
	for at := where.start; at < where.end; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		piece := buf[:min(int64(len(buf)), where.end-at)]
		n, err := readAt(f.f, piece, at)
		if err != nil {
			return err
		}
		_, _ = sum.Write(piece[:n])
		if n < len(piece) { // truncated: the digest will tell
			break
		}
		at += int64(n)
		v.advance(int64(n))
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		place := where.start
		if tensor == "" {
			place = -1
		}
		v.add(place, v.p.damage(f.Path, tensor, "sha256:"+want, "sha256:"+got))
	}
	return nil
}

// readAt fills b from an offset on and returns how much of it the file has.
func readAt(f *os.File, b []byte, offset int64) (int, error) {
	n, err := f.ReadAt(b, offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// outsideTensors checks the header and the padding of the weights file.
func (v *verifier) outsideTensors(ctx context.Context, buf []byte) error {
	p := v.p
	f := p.files[WeightsFile].f
	header := make([]byte, len(p.layout.header))
	n, err := readAt(f, header, 0)
	if err != nil {
		return err
	}
	if damage, ok := errors.AsType[*DamageError](p.checkHeader(header[:n])); ok {
		v.add(0, damage)
	}
	zeros := make([]byte, weightsAlign)
	for _, gap := range p.layout.paddings() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		want := zeros[:gap.end-gap.start]
		n, err := readAt(f, buf[:len(want)], gap.start)
		if err != nil {
			return err
		}
		if i := commonPrefix(buf[:n], want); i < len(want) {
			v.add(gap.start, p.damage(WeightsFile, "", "zeros between tensors", fmt.Sprintf("something else at byte %d", gap.start+int64(i))))
		}
	}
	return nil
}

// identity reads the manifest and the digest file again.
func (v *verifier) identity(context.Context, []byte) error {
	p := v.p
	data, err := p.readManifest()
	if damage, ok := errors.AsType[*DamageError](err); ok {
		v.add(-1, damage)
		return nil
	}
	if err != nil {
		return err
	}
	if got := catalog.DigestOf(data); got != p.digest {
		v.add(-1, p.damage(ManifestFile, "", p.digest.String(), got.String()))
	}
	return nil
}

// add takes note of a damage.
func (v *verifier) add(offset int64, d *DamageError) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.damages = append(v.damages, placedDamage{d, offset})
}

// advance takes note of progress.
func (v *verifier) advance(n int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done += n
	if v.progress != nil {
		v.progress(int64(float64(v.done)/float64(v.work)*float64(v.size)), v.size)
	}
}

// verdict returns what was found, in the order of the pack. That the weights file as
// a whole has another digest says nothing beside a damage with a place in it.
func (v *verifier) verdict() error {
	slices.SortFunc(v.damages, func(a, b placedDamage) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.offset, b.offset))
	})
	var errs []error
	for i, d := range v.damages {
		placed := i+1 < len(v.damages) && v.damages[i+1].File == d.File && v.damages[i+1].offset >= 0
		if d.offset < 0 && placed {
			continue
		}
		errs = append(errs, d.DamageError)
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
