package gemma4

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"runtime"
	"sync"

	"github.com/zoo-sdk/zoo/quant"
)

// chunkBytes is about how much of a tensor one goroutine packs at a time.
const chunkBytes = 512 << 10

// scratch is the memory that packing needs besides its result, for one goroutine.
type scratch struct {
	buf    []byte
	codes  [][]byte
	scales []float32
}

// packer packs tensors with several goroutines and passes the result on in order.
// It holds a few chunks of memory, whatever the size of the tensors.
type packer struct {
	workers int
	meter   *meter
	free    chan *chunk
}

// meter counts bytes of the source. It is safe for concurrent use.
type meter struct {
	mu sync.Mutex
	// progress is told the bytes that are done, one call at a time, or is nil.
	progress    func(done, total int64)
	done, total int64
}

// add adds bytes that are done.
func (m *meter) add(sourceBytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += sourceBytes
	if m.progress != nil {
		m.progress(m.done, m.total)
	}
}

// chunk is a run of units of one tensor.
type chunk struct {
	tensor *packTensor
	first  int
	units  int
	data   []byte
	ready  chan error // holds one value when data is packed, or cannot be
}

// newPacker prepares to pack tensors, which the meter counts.
func newPacker(m *meter) *packer {
	p := &packer{workers: runtime.GOMAXPROCS(0), meter: m}
	n := 2*p.workers + 2
	p.free = make(chan *chunk, n)
	for range n {
		p.free <- &chunk{ready: make(chan error, 1)}
	}
	return p
}

// write packs one tensor into w. When it returns, no goroutine of it is left.
func (p *packer) write(ctx context.Context, t *packTensor, w io.Writer) error {
	if t.vector != nil {
		if err := writeVector(w, t.vector); err != nil {
			return err
		}
		p.meter.add(t.sourceBytes())
		return nil
	}
	per := max(1, chunkBytes/t.unitBytes())
	// Only this goroutine knows the order; the workers take chunks as they come.
	work := make(chan *chunk)
	order := make(chan *chunk, cap(p.free))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(work)
		defer close(order)
		for first := 0; first < t.units(); first += per {
			var c *chunk
			select {
			case c = <-p.free:
			case <-stop:
				return
			}
			c.tensor, c.first, c.units = t, first, min(per, t.units()-first)
			order <- c // has room for all chunks there are
			select {
			case work <- c:
			case <-stop:
				c.ready <- nil // it is not waited for in vain
				return
			}
		}
	})
	for range min(p.workers, (t.units()+per-1)/per) {
		wg.Go(func() {
			var s scratch
			for c := range work {
				c.ready <- c.pack(&s)
			}
		})
	}
	var err error
	stopped := false
	for c := range order {
		packed := <-c.ready
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = packed
		}
		if err == nil {
			_, err = w.Write(c.data)
		}
		if err == nil {
			p.meter.add(c.sourceBytes())
		} else if !stopped {
			close(stop)
			stopped = true
		}
		p.free <- c
	}
	wg.Wait()
	return err
}

// pack fills the chunk's data.
func (c *chunk) pack(s *scratch) error {
	t := c.tensor
	size := t.unitBytes()
	if n := c.units * size; cap(c.data) < n {
		c.data = make([]byte, n)
	} else {
		c.data = c.data[:n]
	}
	for i := range c.units {
		dst := c.data[i*size:][:size]
		pack := t.packRow
		if t.Layout == quant.Blocks {
			pack = t.packBlock
		}
		if err := pack(dst, c.first+i, s); err != nil {
			return err
		}
	}
	return nil
}

// sourceBytes returns what was read of the source for the chunk.
func (c *chunk) sourceBytes() int64 {
	var n int64
	for i := range c.units {
		w, _, rows := c.tensor.locate(c.first + i)
		n += int64(rows) * w.rowBytes
	}
	return n
}

// locate returns the weights, and the first and the number of their rows, that a unit holds.
func (t *packTensor) locate(unit int) (w *weights, first, rows int) {
	if t.Layout == quant.Rows {
		return t.parts[0], unit, 1
	}
	if t.arrangement == alternating && len(t.parts) > 1 {
		w = t.parts[unit%len(t.parts)]
		unit /= len(t.parts)
	} else {
		for _, w = range t.parts {
			if n := blocks(w.rows); unit >= n {
				unit -= n
				continue
			}
			break
		}
	}
	first = unit * quant.BlockRows
	return w, first, min(quant.BlockRows, w.rows-first)
}

// packBlock packs one block of 16 rows.
func (t *packTensor) packBlock(dst []byte, block int, s *scratch) error {
	w, first, rows := t.locate(block)
	width := w.codeBytes()
	s.grow(rows*width, rows*w.groups)
	s.codes = s.codes[:0]
	for i := range rows {
		row, err := w.row(first+i, s.buf[i*width:][:width], s.scales[i*w.groups:][:w.groups])
		if err != nil {
			return err
		}
		s.codes = append(s.codes, row)
	}
	quant.PackBlock(dst, t.Matrix, s.codes, s.scales)
	return nil
}

// packRow packs one row.
func (t *packTensor) packRow(dst []byte, row int, s *scratch) error {
	w := t.parts[0]
	s.grow(w.codeBytes(), w.groups)
	codes, err := w.row(row, s.buf, s.scales)
	if err != nil {
		return err
	}
	quant.PackRow(dst, t.Matrix, codes, s.scales)
	return nil
}

// grow makes room for codes and scales.
func (s *scratch) grow(codeBytes, scales int) {
	if cap(s.buf) < codeBytes {
		s.buf = make([]byte, codeBytes)
	}
	if cap(s.scales) < scales {
		s.scales = make([]float32, scales)
	}
	s.buf, s.scales = s.buf[:codeBytes], s.scales[:scales]
}

// writeVector writes little-endian float32.
func writeVector(w io.Writer, v []float32) error {
	data := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(x))
	}
	_, err := w.Write(data)
	return err
}
