package packing

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
	meter   *Meter
	free    chan *chunk
}

// chunk is a run of units of one tensor.
type chunk struct {
	tensor *Tensor
	first  int
	units  int
	data   []byte
	ready  chan error // holds one value when data is packed, or cannot be
}

// newPacker prepares to pack tensors, which the meter counts.
func newPacker(m *Meter) *packer {
	p := &packer{workers: runtime.GOMAXPROCS(0), meter: m}
	n := 2*p.workers + 2
	p.free = make(chan *chunk, n)
	for range n {
		p.free <- &chunk{ready: make(chan error, 1)}
	}
	return p
}

// write packs one tensor into w. When it returns, or w or the meter panics, no goroutine
// of it is left that would read a source that may be closed by then.
func (p *packer) write(ctx context.Context, t *Tensor, w io.Writer) error {
	if t.vector != nil {
		if err := writeVector(w, t.vector); err != nil {
			return err
		}
		p.meter.Add(t.SourceBytes())
		return nil
	}
	per := max(1, chunkBytes/t.unitBytes())
	// Only this goroutine knows the order; the workers take chunks as they come.
	work := make(chan *chunk)
	order := make(chan *chunk, cap(p.free))
	stop := make(chan struct{})
	halt := sync.OnceFunc(func() { close(stop) })
	var wg sync.WaitGroup
	defer wg.Wait()
	defer halt()
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
			p.meter.Add(c.sourceBytes())
		} else {
			halt()
		}
		p.free <- c
	}
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
		m, _, rows := c.tensor.locate(c.first + i)
		n += int64(rows) * m.RowBytes
	}
	return n
}

// packBlock packs one block of 16 rows.
func (t *Tensor) packBlock(dst []byte, block int, s *scratch) error {
	m, first, rows := t.locate(block)
	shape := m.shape()
	width, scales := shape.CodeBytes(), shape.NumScales()
	s.grow(rows*width, rows*scales)
	s.codes = s.codes[:0]
	for i := range rows {
		row := Row{Codes: s.buf[i*width:][:width], Scales: s.scales[i*scales:][:scales]}
		if err := m.Read(first+i, &row); err != nil {
			return err
		}
		s.codes = append(s.codes, row.Codes)
	}
	quant.PackBlock(dst, t.Matrix, s.codes, s.scales)
	return nil
}

// packRow packs one row.
func (t *Tensor) packRow(dst []byte, row int, s *scratch) error {
	m := t.parts[0]
	shape := m.shape()
	s.grow(shape.CodeBytes(), shape.NumScales())
	r := Row{Codes: s.buf, Scales: s.scales}
	if err := m.Read(row, &r); err != nil {
		return err
	}
	quant.PackRow(dst, t.Matrix, r.Codes, r.Scales)
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
