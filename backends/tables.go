package backends

import (
	"context"
	"fmt"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/mmap"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// Gathered reports for each weight of a program whether it is a table that lies row
// by row, in codes or in floats, of which nothing but the rows of tokens are read, into
// buffers that nothing else writes: so they can be there before the first operation.
// A table that is multiplied as well, such as a tied one of floats, is none.
func Gathered(p *program.Program) []bool {
	table := make([]bool, len(p.Weights))
	writers := make([]int, len(p.Buffers))
	for _, op := range p.Ops {
		if op.Embed != nil {
			table[op.Embed.Table] = p.Weights[op.Embed.Table].Layout == quant.Rows
		}
		for _, id := range op.Writes() {
			writers[id]++
		}
	}
	for _, op := range p.Ops {
		for _, id := range op.Weights() {
			table[id] = false
		}
		if op.Embed != nil && writers[op.Embed.Out] > 1 {
			table[op.Embed.Table] = false
		}
	}
	return table
}

// Tables holds the tables of a program, those that [Gathered] reports, for a backend
// that looks up their rows on the host. Where the weights lie in no mapped file it has
// nothing to do. Programs on the same weights may hold the same tables, each on its own.
type Tables struct {
	place  TablePlacement
	file   []byte
	parts  []tablePart
	holds  []*mmap.Hold
	locked int64
}

// tablePart is a table in the file.
type tablePart struct{ from, to, rowBytes int }

// HoldTables makes the system keep the tables of a program as place says: mapped,
// it reads no more of them than is touched; resident, all is read before
// HoldTables returns, and locked in memory where that is permitted. That can take
// as long as the disk needs for gigabytes; it ends with ctx and tells of no progress.
// All other weights are read from end to end for every token, and the system is told so.
func HoldTables(ctx context.Context, p *program.Program, w Weights, place TablePlacement) (*Tables, error) {
	t := &Tables{place: place}
	m, ok := w.(Mapping)
	if !ok {
		return t, nil
	}
	t.file = m.Mapping()
	for i, gathered := range Gathered(p) {
		data, matrix, _ := w.Tensor(p.Weights[i].Name)
		from, ok := mmap.Offset(t.file, data)
		if !ok {
			return nil, fmt.Errorf("%w: tensor %.40q lies outside of the mapped file", fault.ErrIntegrity, p.Weights[i].Name)
		}
		if gathered {
			t.parts = append(t.parts, tablePart{from, from + len(data), matrix.RowBytes()})
		} else {
			mmap.Advise(t.file, from, from+len(data), mmap.Stream)
		}
	}
	for _, part := range t.parts {
		if place == TablesMapped {
			t.holds = append(t.holds, mmap.Random(t.file, part.from, part.to))
			continue
		}
		if err := mmap.Populate(ctx, t.file, part.from, part.to); err != nil {
			t.Release()
			return nil, fmt.Errorf("tables: %w", err)
		}
		if h, err := mmap.Lock(t.file, part.from, part.to); err == nil {
			t.holds = append(t.holds, h)
			t.locked += int64(part.to - part.from)
		}
	}
	return t, nil
}

// Prefetch begins to read the rows of tables for a batch, if they are mapped. It
// does not wait, allocates nothing, and tables that are resident cost nothing.
func (t *Tables) Prefetch(rows []Row) {
	if t.place != TablesMapped {
		return
	}
	for _, part := range t.parts {
		for i := range rows {
			at := part.from + int(rows[i].Token)*part.rowBytes
			mmap.Advise(t.file, at, at+part.rowBytes, mmap.Soon)
		}
	}
}

// LockedBytes returns how much the system was made to keep in memory.
func (t *Tables) LockedBytes() int64 { return t.locked }

// Release lets the system keep the tables as it likes, but for those that another
// program holds. A second call does nothing.
func (t *Tables) Release() {
	for _, h := range t.holds {
		h.Release()
	}
	t.holds, t.locked = nil, 0
}
