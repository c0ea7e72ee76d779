package zoo

import (
	"crypto/sha256"
	"hash"
	"io"
	"sync"
	"sync/atomic"
)

const (
	// pipeChunkBytes is the size of the pieces that are written and hashed.
	pipeChunkBytes = 512 << 10
	// pipeChunks is the number of pieces in flight.
	pipeChunks = 6
)

// hashPipe writes to a file what it is given and, on goroutines of its own, hashes
// the whole and each tensor in it: one pass over the data for all three. Its methods
// belong to one goroutine.
type hashPipe struct {
	w        io.Writer
	cur      *pipeChunk // being filled
	inTensor bool
	free     chan *pipeChunk
	toFile   chan *pipeChunk
	toTensor chan *pipeChunk
	done     sync.WaitGroup
	stopped  bool
	// Set by the goroutines, to be read after stop.
	fileSum    [sha256.Size]byte
	tensorSums [][sha256.Size]byte
}

// pipeChunk is a piece of the file. It lies in one tensor or in none.
type pipeChunk struct {
	buf     []byte
	ends    bool         // its tensor ends with it
	readers atomic.Int32 // goroutines that still read it
}

// newHashPipe starts the goroutines; stop ends them.
func newHashPipe(w io.Writer) *hashPipe {
	p := &hashPipe{
		w:        w,
		free:     make(chan *pipeChunk, pipeChunks),
		toFile:   make(chan *pipeChunk, pipeChunks),
		toTensor: make(chan *pipeChunk, pipeChunks),
	}
	for range pipeChunks {
		p.free <- &pipeChunk{buf: make([]byte, 0, pipeChunkBytes)}
	}
	p.done.Go(func() {
		sum := sha256.New()
		for c := range p.toFile {
			_, _ = sum.Write(c.buf) // a hash takes everything
			p.release(c)
		}
		sum.Sum(p.fileSum[:0])
	})
	p.done.Go(func() {
		var sum hash.Hash = sha256.New()
		for c := range p.toTensor {
			_, _ = sum.Write(c.buf)
			if c.ends {
				p.tensorSums = append(p.tensorSums, [sha256.Size]byte(sum.Sum(nil)))
				sum.Reset()
			}
			p.release(c)
		}
	})
	return p
}

// release gives a chunk back when its last reader is through with it.
func (p *hashPipe) release(c *pipeChunk) {
	if c.readers.Add(-1) == 0 {
		p.free <- c
	}
}

// Write implements io.Writer. It copies b.
func (p *hashPipe) Write(b []byte) (int, error) {
	written := 0
	for len(b) > 0 {
		if p.cur == nil {
			p.cur = <-p.free
			p.cur.buf = p.cur.buf[:0]
		}
		n := min(len(b), pipeChunkBytes-len(p.cur.buf))
		p.cur.buf = append(p.cur.buf, b[:n]...)
		b = b[n:]
		if len(p.cur.buf) == pipeChunkBytes {
			if err := p.flush(false); err != nil {
				return written, err
			}
		}
		written += n
	}
	return written, nil
}

// begin says that what follows belongs to a tensor.
func (p *hashPipe) begin() error {
	err := p.flush(false)
	p.inTensor = true
	return err
}

// end says that the tensor is complete.
func (p *hashPipe) end() error {
	err := p.flush(true)
	p.inTensor = false
	return err
}

// flush writes the current chunk and hands it to the goroutines.
func (p *hashPipe) flush(ends bool) error {
	c := p.cur
	switch {
	case c == nil && !ends:
		return nil
	case c == nil: // the tensor ended with the chunk before
		c = <-p.free
		c.buf = c.buf[:0]
	}
	p.cur = nil
	c.ends = ends
	if _, err := p.w.Write(c.buf); err != nil {
		p.free <- c
		return err
	}
	if !p.inTensor {
		c.readers.Store(1)
		p.toFile <- c
		return nil
	}
	c.readers.Store(2)
	p.toFile <- c
	p.toTensor <- c
	return nil
}

// stop waits for the goroutines. After it the sums of the file and of each tensor
// are there. A second call does nothing.
func (p *hashPipe) stop() {
	if p.stopped {
		return
	}
	p.stopped = true
	close(p.toFile)
	close(p.toTensor)
	p.done.Wait()
}
