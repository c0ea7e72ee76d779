package sdk

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// rowsOf is a run of rows of a tensor.
type rowsOf struct {
	tensor string
	quant.Matrix
	data []byte
	// first is the first row and rows their number. every is 1 where they follow each
	// other, and n where of every n blocks of 16 rows one is meant.
	first, rows, every int
}

// row returns where row i lies in the tensor.
func (r *rowsOf) row(i int) int {
	return r.first + i/quant.BlockRows*r.every*quant.BlockRows + i%quant.BlockRows
}

// wholeTensor returns all rows of a tensor of a pack.
func wholeTensor(pack *zoo.Pack, name string) *rowsOf {
	data, m, _ := pack.Tensor(name)
	return &rowsOf{tensor: name, Matrix: m, data: data, rows: m.Rows, every: 1}
}

// pair is what is compared: rows of either pack, or nil where one has none.
type pair struct {
	name string
	a, b *rowsOf
}

// alike reports whether both lie in their tensors in the same way, so that bytes can be compared.
func (p pair) alike() bool {
	return p.a.Matrix == p.b.Matrix && p.a.first == 0 && p.b.first == 0 && p.a.every == 1 && p.b.every == 1 && p.a.rows == p.a.Rows && p.b.rows == p.b.Rows
}

// converted reports whether the packs keep both in different formats.
func (p pair) converted() bool { return p.a.Format != p.b.Format }

// families compares all tensors.
func (c *comparison) families(ctx context.Context) ([]CompareFamily, error) {
	pairs, err := c.pairs(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	members := make(map[string][]pair)
	var total, done int64
	for _, p := range pairs {
		name := familyOf(p.name)
		if members[name] == nil {
			names = append(names, name)
		}
		members[name] = append(members[name], p)
		total += p.sizeBytes()
	}
	list := []CompareFamily{}
	for _, name := range names {
		w := &weighing{pairs: members[name], progress: func(n int64) { c.set.events.Verify("weights", done+n, total) }}
		f, err := w.family(ctx, name)
		if err != nil {
			return nil, err
		}
		list = append(list, f)
		for _, p := range members[name] {
			done += p.sizeBytes()
		}
		c.set.events.Verify("weights", done, total)
	}
	return list, nil
}

// sizeBytes returns what is read of A for a pair that is compared.
func (p pair) sizeBytes() int64 {
	if p.a == nil || p.b == nil {
		return 0
	}
	if p.a.rows == p.a.Rows {
		return p.a.SizeBytes()
	}
	return int64(p.a.rows) * (p.a.SizeBytes() / int64(p.a.Rows))
}

// pairs brings together what belongs together: tensors by their names, and what is
// left by its place in the programs, so that matrices can be compared that lie
// together in one pack and apart in the other.
func (c *comparison) pairs(ctx context.Context) ([]pair, error) {
	var pairs []pair
	var left [2][]string
	a, b := c.sides[0].pack, c.sides[1].pack
	for _, t := range a.Manifest().Tensors {
		if _, _, ok := b.Tensor(t.Name); ok {
			pairs = append(pairs, pair{t.Name, wholeTensor(a, t.Name), wholeTensor(b, t.Name)})
		} else {
			left[0] = append(left[0], t.Name)
		}
	}
	for _, t := range b.Manifest().Tensors {
		if _, _, ok := a.Tensor(t.Name); !ok {
			left[1] = append(left[1], t.Name)
		}
	}
	if len(left[0])+len(left[1]) == 0 {
		return pairs, nil
	}
	byPlace, err := c.byPlace(ctx, left)
	if err != nil {
		return nil, err
	}
	pairs = append(pairs, byPlace...)
	for side, names := range left {
		for _, name := range names {
			if slices.ContainsFunc(byPlace, func(p pair) bool { return [...]*rowsOf{p.a, p.b}[side].tensor == name }) {
				continue
			}
			p := pair{name: name}
			if side == 0 {
				p.a = wholeTensor(a, name)
			} else {
				p.b = wholeTensor(b, name)
			}
			pairs = append(pairs, p)
		}
	}
	return pairs, nil
}

// byPlace pairs the matrices that the programs of both packs multiply with at the same
// place, of those that lie in a tensor that the other pack does not have. It pairs none
// where the programs do not run in step. Its error is the context's, or that of a program
// that is not of its pack.
func (c *comparison) byPlace(ctx context.Context, left [2][]string) ([]pair, error) {
	var lists [2][]*rowsOf
	for i, s := range c.sides {
		if s.plugin == nil {
			return nil, nil
		}
		p, err := s.plugin.Run(ctx, zoo.RunRequest{Pack: s.pack.Info()})
		if err != nil {
			return nil, context.Cause(ctx)
		}
		if err := backends.CheckWeights(p, s.pack); err != nil {
			return nil, err
		}
		lists[i] = matrices(p, s.pack)
	}
	if len(lists[0]) != len(lists[1]) {
		return nil, nil
	}
	var pairs []pair
	type place struct {
		a, b           string
		firstA, firstB int
	}
	seen := make(map[place]bool) // layers may share a matrix
	for i, a := range lists[0] {
		b := lists[1][i]
		if a.rows != b.rows || a.Cols != b.Cols {
			return nil, nil
		}
		if !slices.Contains(left[0], a.tensor) && !slices.Contains(left[1], b.tensor) {
			continue
		}
		name := a.tensor
		if a.rows < a.Rows || !slices.Contains(left[0], a.tensor) { // only a part of it, or not its own
			name = b.tensor
		}
		if at := (place{a.tensor, b.tensor, a.first, b.first}); !seen[at] {
			seen[at] = true
			pairs = append(pairs, pair{name, a, b})
		}
	}
	return pairs, nil
}

// matrices lists the matrices that a program multiplies with, in its order.
func matrices(p *program.Program, pack *zoo.Pack) []*rowsOf {
	var list []*rowsOf
	add := func(id program.WeightID, first, rows, every int) {
		r := wholeTensor(pack, p.Weights[id].Name)
		r.first, r.rows, r.every = first, rows, every
		list = append(list, r)
	}
	for _, op := range p.Ops {
		switch {
		case op.Linear != nil:
			for _, part := range op.Linear.Parts {
				add(op.Linear.Weight, part.First, part.Rows, 1)
			}
		case op.GateUp != nil:
			rows := p.Buffers[op.GateUp.Out].Cols
			add(op.GateUp.Weight, 0, rows, 2)
			add(op.GateUp.Weight, quant.BlockRows, rows, 2)
		}
	}
	return list
}

// chunkRows is the number of rows that are compared at a time: whole blocks.
const chunkRows = 16 * quant.BlockRows

// weighing compares the tensors of one family.
type weighing struct {
	pairs []pair
	// progress is told the bytes done, one call at a time.
	progress func(int64)

	mu   sync.Mutex
	done int64
}

// chunk is some rows of a pair.
type chunk struct {
	pair
	from, to int // rows
}

// tally is what comparing a chunk finds.
type tally struct {
	numbers, differ, codes, scales int64
	maxRel, maxAbs, sumA, sum      float64
}

// family compares everything, by bytes as far as these are equal.
func (w *weighing) family(ctx context.Context, name string) (CompareFamily, error) {
	f := CompareFamily{Name: name}
	var formats [2][]string
	var chunks []chunk
	alike, codes := true, true
	for _, p := range w.pairs {
		for i, r := range [...]*rowsOf{p.a, p.b} {
			if r == nil {
				continue
			}
			if i == 0 {
				f.TensorsA++
			} else {
				f.TensorsB++
			}
			if text := r.Format.String(); !slices.Contains(formats[i], text) {
				formats[i] = append(formats[i], text)
			}
		}
		switch {
		case p.b == nil:
			f.OnlyA++
			continue
		case p.a == nil:
			f.OnlyB++
			continue
		}
		if p.a.rows != p.b.rows || p.a.Cols != p.b.Cols {
			f.layout = true
			continue
		}
		alike = alike && p.alike()
		codes = codes && p.alike() && p.a.Codes()
		if p.converted() {
			f.ConvertedRelL2 = new(float64)
		}
		for from := 0; from < p.a.rows; from += chunkRows {
			chunks = append(chunks, chunk{p, from, min(from+chunkRows, p.a.rows)})
		}
	}
	f.FormatA, f.FormatB = strings.Join(formats[0], "+"), strings.Join(formats[1], "+")
	if codes && len(chunks) > 0 {
		f.Codes, f.Scales = new(int64), &CompareScales{}
	}
	if alike {
		same, err := w.sameBytes(ctx, chunks)
		if err != nil {
			return f, err
		}
		if same {
			for _, c := range chunks {
				f.Numbers += int64(c.to-c.from) * int64(c.a.Cols)
			}
			return f, nil
		}
	}
	return f, w.weigh(ctx, chunks, &f)
}

// sameBytes reports whether all chunks, which lie alike, hold the same bytes.
func (w *weighing) sameBytes(ctx context.Context, chunks []chunk) (bool, error) {
	var differ atomic.Bool
	err := each(ctx, len(chunks), func(i int, _ *scratchRows) {
		c := chunks[i]
		if differ.Load() {
			return
		}
		from, to := c.bytes()
		if !bytes.Equal(c.a.data[from:to], c.b.data[from:to]) {
			differ.Store(true)
			return
		}
		w.advance(int64(to - from))
	})
	return !differ.Load(), err
}

// advance tells of progress. Bytes that are read twice count once.
func (w *weighing) advance(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done += n
	w.progress(w.done)
}

// weigh compares all numbers of all chunks and adds up, in order, what was found.
func (w *weighing) weigh(ctx context.Context, chunks []chunk, f *CompareFamily) error {
	tallies := make([]tally, len(chunks))
	var read atomic.Int64
	err := each(ctx, len(chunks), func(i int, s *scratchRows) {
		c := chunks[i]
		tallies[i] = c.values(s)
		if c.alike() && c.a.Codes() {
			c.codes(&tallies[i])
		}
		w.advanceTo(read.Add(int64(c.to-c.from) * (c.a.SizeBytes() / int64(c.a.Rows))))
	})
	if err != nil {
		return err
	}
	for i := range tallies {
		t := &tallies[i]
		f.add(t)
		if chunks[i].converted() {
			f.converted.add(t)
		} else {
			f.apart += t.differ + t.codes + t.scales
		}
		if f.Codes != nil {
			*f.Codes += t.codes
			f.Scales.Differ += t.scales
			f.Scales.MaxRel = max(f.Scales.MaxRel, t.maxRel)
		}
	}
	return nil
}

// advanceTo tells of progress up to n bytes, and not back.
func (w *weighing) advanceTo(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > w.done {
		w.done = n
		w.progress(n)
	}
}

// scratchRows is a worker's memory.
type scratchRows struct{ a, b []float32 }

// each calls f for 0 to n-1 on all processors, until the context ends.
func each(ctx context.Context, n int, f func(i int, s *scratchRows)) error {
	var next atomic.Int64
	group := new(errgroup.Group)
	for range min(n, runtime.GOMAXPROCS(0)) {
		group.Go(func() error {
			s := &scratchRows{}
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				f(i, s)
			}
			return nil
		})
	}
	return group.Wait()
}

// bytes returns where the rows of a chunk of a whole tensor lie in its data.
func (c chunk) bytes() (from, to int) {
	if c.a.Layout == quant.Blocks {
		return c.from / quant.BlockRows * c.a.BlockBytes(), (c.to + quant.BlockRows - 1) / quant.BlockRows * c.a.BlockBytes()
	}
	return c.from * c.a.RowBytes(), c.to * c.a.RowBytes()
}

// values compares the values of a chunk, row by row.
func (c chunk) values(s *scratchRows) (t tally) {
	cols := c.a.Cols
	s.a, s.b = slices.Grow(s.a[:0], cols)[:cols], slices.Grow(s.b[:0], cols)[:cols]
	for r := c.from; r < c.to; r++ {
		quant.Row(s.a, c.a.Matrix, c.a.data, c.a.row(r))
		quant.Row(s.b, c.b.Matrix, c.b.data, c.b.row(r))
		for i, a := range s.a {
			t.add(float64(a), float64(s.b[i]))
		}
	}
	return t
}

// add compares two values.
func (t *tally) add(a, b float64) {
	t.numbers++
	t.sumA += float64(a * a)
	if a == b {
		return
	}
	d := clamp(math.Abs(a - b))
	t.differ++
	t.maxAbs = max(t.maxAbs, d)
	t.sum += float64(d * d)
}

// codes compares the codes, the scales and the minimums of a chunk that lies alike in both packs.
func (c chunk) codes(t *tally) {
	from, to := c.bytes()
	unit, codeBytes, lanes := c.a.RowBytes(), c.a.CodeBytes(), 1
	if c.a.Layout == quant.Blocks {
		unit, codeBytes, lanes = c.a.BlockBytes(), c.a.BlockCodeBytes(), quant.BlockRows
	}
	for ; from < to; from += unit {
		a, b := c.a.data[from:from+unit], c.b.data[from:from+unit]
		t.codes += countCodes(a[:codeBytes], b[:codeBytes], c.a.Bits)
		for i := range c.a.NumScales() * lanes {
			t.scale(scaleAt(a[codeBytes:], c.a.Scale, i), scaleAt(b[codeBytes:], c.a.Scale, i))
		}
	}
}

// scale compares two scales. Those of rows that fill up a block are 0 in both.
func (t *tally) scale(a, b float64) {
	if a == b {
		return
	}
	t.scales++
	t.maxRel = max(t.maxRel, clamp(math.Abs(a-b)/max(math.Abs(a), math.Abs(b))))
}

// scaleAt returns scale number i.
func scaleAt(src []byte, kind quant.ScaleType, i int) float64 {
	if kind == quant.ScaleF16 {
		return float64(quant.F16ToF32(binary.LittleEndian.Uint16(src[2*i:])))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:])))
}

// countCodes returns how many codes of so many bits differ.
func countCodes(a, b []byte, width int) (n int64) {
	for ; len(a) >= 8; a, b = a[8:], b[8:] {
		n += fields(binary.LittleEndian.Uint64(a)^binary.LittleEndian.Uint64(b), width)
	}
	for i := range a {
		n += fields(uint64(a[i]^b[i]), width)
	}
	return n
}

// fields returns how many fields of 2, 4 or 8 bits are not zero.
func fields(x uint64, width int) int64 {
	x = (x | x>>1) & 0x5555555555555555
	if width > 2 {
		x = (x | x>>2) & 0x1111111111111111
	}
	if width > 4 {
		x = (x | x>>4) & 0x0101010101010101
	}
	return int64(bits.OnesCount64(x))
}
