package metal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/zoo-sdk/zoo/internal/mmap"
)

const (
	// readVectors is how many vectors of four words a group of diagnose_read goes through.
	readVectors = 4 * 4 * diagnoseThreads
	readBytes   = 16 * readVectors
	// mostReadBytes is how much the bandwidth is measured over: more than any cache holds.
	mostReadBytes = 1 << 30
	// longEnough is how long it should take to read it for the clock to be good enough.
	longEnough = 20 * time.Millisecond
	// moreReads is how often one list reads the memory more than the other, which leaves
	// out what a submission costs.
	moreReads = 4
)

// fillWord returns what diagnose_fill writes at word i.
func fillWord(i, value uint32) uint32 { return i*2654435761 + value }

// fillSum returns the sum of what diagnose_fill writes into n words, modulo 2^32.
func fillSum(n int, value uint32) uint32 {
	pairs := uint64(n) * uint64(n-1) / 2
	return uint32(pairs)*2654435761 + uint32(n)*value
}

// reading returns a dispatch that sums the words of a buffer, and where it leaves its sums.
func (x *diagnosis) reading(b Buffer) (Dispatch, Buffer, error) {
	groups := len(b.Bytes()) / readBytes
	sums, err := x.buffer(4 * groups * diagnoseThreads / SIMDWidth)
	if err != nil {
		return Dispatch{}, nil, err
	}
	return diagnoseDispatch("diagnose_read", diagnoseArgs{Count: readVectors}, groups, diagnoseThreads, b, sums), sums, nil
}

// sum returns the sum of a buffer's words as the device reads them.
func (x *diagnosis) sum(b Buffer) (uint32, error) {
	d, sums, err := x.reading(b)
	if err != nil {
		return 0, err
	}
	if err := x.run(d); err != nil {
		return 0, err
	}
	total := uint32(0)
	for i := range len(sums.Bytes()) / 4 {
		total += wordAt(sums.Bytes(), i)
	}
	return total, nil
}

// readTime returns how long the device takes to read a buffer: a list that reads it
// several times, less one that reads it once.
func (x *diagnosis) readTime(b Buffer) (time.Duration, error) {
	d, _, err := x.reading(b)
	if err != nil {
		return 0, err
	}
	once, err := x.list(d)
	if err != nil {
		return 0, err
	}
	often, err := x.list(slices.Repeat([]Dispatch{d}, 1+moreReads)...)
	if err != nil {
		return 0, err
	}
	one, err := x.fastest(once)
	if err != nil {
		return 0, err
	}
	all, err := x.fastest(often)
	if err != nil {
		return 0, err
	}
	if all <= one { // too short to tell
		return max(1, all/(1+moreReads)), nil
	}
	return max(1, (all-one)/moreReads), nil
}

// mapping checks that the device reads a mapped file in place: it is changed
// after it was mapped, which weights never are.
func (x *diagnosis) mapping(context.Context) (_ string, err error) {
	dir, err := os.MkdirTemp("", "zoo-diagnose-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	const size = 16 * readBytes
	path := filepath.Join(dir, "mapped")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		return "", err
	}
	m, err := mmap.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	b, err := x.device.Map(m.Bytes())
	if err != nil {
		return "", err
	}
	defer b.Release()
	const value = 12345
	filled, err := x.buffer(size)
	if err != nil {
		return "", err
	}
	if err := x.fill(filled, value); err != nil {
		return "", err
	}
	if err := overwrite(path, filled.Bytes()); err != nil {
		return "", err
	}
	got, err := x.sum(b)
	if err != nil {
		return "", err
	}
	if want := fillSum(size/4, value); got != want {
		return "", fmt.Errorf("the words of a file add up to %#x, want %#x: it was copied when it was mapped", got, want)
	}
	return fmt.Sprintf("%d MB of a file, read in place", size>>20), nil
}

// overwrite changes what is in a file without making it shorter, which a mapping forbids.
func overwrite(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteAt(data, 0)
	return err
}

// fill has the device write all of a buffer.
func (x *diagnosis) fill(b Buffer, value uint32) error {
	groups := len(b.Bytes()) / readBytes
	return x.run(diagnoseDispatch("diagnose_fill", diagnoseArgs{Count: readBytes / 4, Value: value}, groups, diagnoseThreads, b))
}

// mostBytes returns how much memory is read at most to measure the device.
func (x *diagnosis) mostBytes() int {
	return min(mostReadBytes, int(x.info.MemoryBytes/4), int(x.info.MaxBufferBytes))
}

// bandwidth measures how fast the device reads memory.
func (x *diagnosis) bandwidth(ctx context.Context) (string, error) {
	const value = 54321
	most := x.mostBytes()
	for size := 16 * readBytes; ; size = min(8*size, most/readBytes*readBytes) {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		b, err := x.buffer(size)
		if err != nil {
			return "", err
		}
		if err := x.fill(b, value); err != nil {
			return "", err
		}
		last := size / 4
		if got, want := wordAt(b.Bytes(), last-1), fillWord(uint32(last-1), value); got != want {
			return "", fmt.Errorf("the last of %d words is %#x, want %#x", last, got, want)
		}
		got, err := x.sum(b)
		if err != nil {
			return "", err
		}
		if want := fillSum(last, value); got != want {
			return "", fmt.Errorf("%d words add up to %#x, want %#x", last, got, want)
		}
		took, err := x.readTime(b)
		if err != nil {
			return "", err
		}
		if took >= longEnough || 2*size > most {
			return fmt.Sprintf("%.1f GB/s over %d MB", float64(size)/float64(took.Nanoseconds()), size>>20), nil
		}
		x.release()
	}
}
