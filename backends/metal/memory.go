package metal

import (
	"encoding/binary"
	"fmt"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fmath"
	"github.com/zoo-sdk/zoo/program"
)

const (
	// stepHeadBytes and rowBytes are the sizes of Step and Row in the kernels.
	stepHeadBytes = 16
	rowBytes      = 16
	// maxBurst is the most tokens that one submission gives.
	maxBurst = 8
	// maxStops is the most ids that end a burst.
	maxStops = 64
)

// memory is what the kernels of an executor work in, but for weights and caches: one buffer in parts.
type memory struct {
	p      *program.Program
	from   *allocator
	buffer Buffer

	// buffers holds each program.Buffer, [rows, cols]; kept the copy of the rows
	// that a select keeps, unbound for buffers that it drops.
	buffers, kept []Binding
	// spare is a second place for one row of the state: what is read from one place is written to the other.
	spare Binding
	peaks Binding // [MaxLogits, runs]
	// operands are the digits of a product's input, of gate and up two.
	operands [2]operand

	step, keptStep Binding // the live rows, and those of them that want logits
	keptRows       Binding // which these are, as uint32
	angles         Binding // [rows, angleCols] sines and cosines
	angleCols      int
	rotations      []int // where those of each rotation begin

	random, stops, ring Binding // of a burst
}

// operand is a batch's activations as digits.
type operand struct{ digits, steps Binding }

// peakRuns returns the number of peaks of so many logits.
func peakRuns(vocab int) int { return (vocab + backends.PeakRun - 1) / backends.PeakRun }

// planner hands out parts of a buffer that is allocated afterwards.
type planner struct {
	size  int
	parts []*Binding
}

// take plans a part.
func (l *planner) take(b *Binding, size int) {
	*b = Binding{Offset: l.size, Size: size}
	l.parts = append(l.parts, b)
	l.size = alignUp(l.size+size, bufferAlign)
}

// newMemory lays out and allocates what a program needs.
func newMemory(a *allocator, p *program.Program, o backends.Options) (*memory, error) {
	m := &memory{p: p, from: a, buffers: make([]Binding, len(p.Buffers)), kept: make([]Binding, len(p.Buffers))}
	var l planner
	rows := bufferRows(p, o)
	for i, b := range p.Buffers {
		l.take(&m.buffers[i], 4*rows[i]*b.Cols)
	}
	for _, op := range p.Ops {
		if op.Select != nil {
			for _, id := range op.Select.Buffers {
				l.take(&m.kept[id], 4*o.MaxLogits*p.Buffers[id].Cols)
			}
		}
	}
	l.take(&m.spare, 4*p.Buffers[p.State].Cols)
	l.take(&m.peaks, 4*o.MaxLogits*peakRuns(p.Vocab))
	digits := digitBytes(p, o)
	for i := range m.operands {
		l.take(&m.operands[i].digits, digits)
		l.take(&m.operands[i].steps, 4*o.MaxRows)
	}
	l.take(&m.step, stepHeadBytes+rowBytes*o.MaxRows)
	l.take(&m.keptStep, stepHeadBytes+rowBytes*o.MaxLogits)
	l.take(&m.keptRows, 4*o.MaxLogits)
	for _, r := range p.Rotations {
		m.rotations = append(m.rotations, m.angleCols)
		m.angleCols += 2 * len(r.Freqs)
	}
	l.take(&m.angles, 4*max(m.angleCols, 1)*max(o.MaxRows, maxBurst))
	l.take(&m.random, 8*maxBurst)
	l.take(&m.stops, 4*maxStops)
	l.take(&m.ring, 4*(1+maxBurst))
	var err error
	if m.buffer, err = a.alloc(l.size); err != nil {
		return nil, fmt.Errorf("activations: %w", err)
	}
	for _, b := range l.parts {
		b.Buffer = m.buffer
	}
	return m, nil
}

// bufferRows returns how many rows each buffer holds: what is only written
// behind the select, those that want logits.
func bufferRows(p *program.Program, o backends.Options) []int {
	rows := make([]int, len(p.Buffers))
	most := o.MaxRows
	for _, op := range p.Ops {
		if op.Select != nil {
			most = o.MaxLogits
		}
		for _, id := range op.Writes() {
			rows[id] = max(rows[id], most)
		}
	}
	return rows
}

// digitBytes returns the most that the digits of a product's input take.
func digitBytes(p *program.Program, o backends.Options) (most int) {
	rows := o.MaxRows
	for _, op := range p.Ops {
		switch {
		case op.Select != nil:
			rows = o.MaxLogits
		case op.Linear != nil:
			most = max(most, rows*maxPlanes*paddedCols(p.Weights[op.Linear.Weight].Cols))
		case op.GateUp != nil:
			most = max(most, rows*maxPlanes*paddedCols(p.Weights[op.GateUp.Weight].Cols))
		}
	}
	return most
}

// bytes returns the size of the memory.
func (m *memory) bytes() int64 { return int64(len(m.buffer.Bytes())) }

// release frees the memory.
func (m *memory) release() { m.from.free(m.buffer) }

// row returns one row of a buffer.
func (m *memory) row(id program.BufferID, r int) Binding {
	size := 4 * m.p.Buffers[id].Cols
	return Binding{m.buffer, m.buffers[id].Offset + r*size, size}
}

// putLive writes how many rows of a step there are.
func (m *memory) putLive(step Binding, n int) {
	binary.LittleEndian.PutUint32(bytesOf(step), uint32(n))
}

// putRow writes row i of a step: pages is where its slot's part of the page
// table begins, and angles the row of the table of sines and cosines.
func (m *memory) putRow(step Binding, i int, r backends.Row, pages, angles int) {
	data := bytesOf(step)[stepHeadBytes+i*rowBytes:][:rowBytes]
	for j, v := range [...]uint32{uint32(r.Token), uint32(r.Pos), uint32(pages), uint32(angles)} {
		binary.LittleEndian.PutUint32(data[4*j:], v)
	}
}

// putAngles writes the sines and cosines of a position.
func (m *memory) putAngles(row, pos int) {
	table := floatsOf(m.angles)[row*m.angleCols:][:m.angleCols]
	for i, r := range m.p.Rotations {
		half := len(r.Freqs)
		t := table[m.rotations[i]:][:2*half]
		for j, f := range r.Freqs {
			t[j], t[half+j] = fmath.Sincos(float32(float32(pos) * f))
		}
	}
}
