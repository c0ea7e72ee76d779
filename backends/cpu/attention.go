package cpu

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/internal/fmath"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

const (
	// splitHeads is the most heads of a unit where there are too few blocks for
	// all threads.
	splitHeads = 4
	// wideHeads is the most heads of a unit anywhere: each needs memory of every worker.
	wideHeads = 32
	// splitUnits is the number of units for each thread below which rows are few.
	splitUnits = 4
	// maxSums bounds the numbers that blocks of their own become before they are combined.
	maxSums = 16 << 20
	// planes24 is the number of digits of queries and weights over codes.
	planes24 = kernels.MaxPlanes
)

// attention is the task of program.Attention, after one that plans it. Where a batch has many rows, a
// unit is a row with some of the heads that share keys, block after block. Where
// it has few, a unit is one block of these, and a second task, combine, adds the
// blocks in order where there are several: the sums are the same.
type attention struct {
	e          *executor
	cache      program.CacheID
	query, out program.BufferID
	heads      int
	scale      float32

	*headShares
	// of a cache of codes: the scales for each lane, as in a block of a matrix
	keyScales, valueScales []byte
}

// headShares is how heads that share keys are divided.
type headShares struct {
	perKV int // heads that share keys
	// wide and narrow are ways to cut these into the heads of a unit.
	wide, narrow []tile
	most         int // heads of a unit
}

// newHeadShares returns the ways to divide so many heads.
func newHeadShares(e *executor, perKV int) *headShares {
	h := &headShares{perKV: perKV}
	if e.opts.Cache == backends.CacheInt8 {
		sizes := rowTiles(e.kernels.Tiles(), planes24)
		h.wide = cut(nil, perKV, sizes)
		most := 0
		for _, n := range sizes {
			if n <= splitHeads {
				most++
			}
		}
		h.narrow = cut(nil, perKV, sizes[:most])
	} else {
		h.wide, h.narrow = evenly(perKV, wideHeads), evenly(perKV, splitHeads)
	}
	for _, t := range slices.Concat(h.wide, h.narrow) {
		h.most = max(h.most, t.rows)
	}
	return h
}

// evenly divides n heads into tiles of size, and what is left.
func evenly(n, size int) (tiles []tile) {
	for first := 0; first < n; first += size {
		tiles = append(tiles, tile{first, min(size, n-first)})
	}
	return tiles
}

// newAttention prepares an attention.
func newAttention(e *executor, o *program.Attention, shares *headShares) *attention {
	a := &attention{e: e, cache: o.Cache, query: o.Query, out: o.Out, heads: o.Heads, scale: o.Scale, headShares: shares}
	if e.opts.Cache == backends.CacheInt8 {
		c := e.p.Caches[o.Cache]
		a.keyScales, a.valueScales = lanes(c.KeyScale), lanes(c.ValueScale)
	}
	return a
}

// lanes returns a scale for each row of a block.
func lanes(scale float32) (b []byte) {
	for range quant.BlockRows {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(scale))
	}
	return b
}

// plan is how the attention at hand is divided, and what its blocks have become
// before they are combined, in the order of the batch's rows, of blocks and of heads.
type plan struct {
	work            int       // multiplications
	split           bool      // blocks are units of their own
	tiles           []tile    // heads of a unit
	first           []int     // of each row, and then the number of blocks
	sums            []float32 // [rows, blocks, heads, dim]
	largest, totals []float32 // [rows, blocks, heads]
}

// room makes room for so many sums, and as many largest scores and totals as there
// are heads of blocks. It reports false where that is refused.
func (p *plan) room(m *memory, sums, heads int) bool {
	var ok [3]bool
	p.sums, ok[0] = roomFor(m, p.sums, sums)
	p.largest, ok[1] = roomFor(m, p.largest, heads)
	p.totals, ok[2] = roomFor(m, p.totals, heads)
	return ok[0] && ok[1] && ok[2]
}

// span returns the positions [from, to) that a row sees, and their first block and number of blocks.
func (a *attention) span(r int) (from, to, first, blocks int) {
	row := a.e.rows[r]
	if w := a.e.p.Caches[a.cache].Window; w > 0 {
		from = max(0, row.Pos-w+1)
	}
	first = from / backends.BlockPositions
	return from, row.Pos + 1, first, row.Pos/backends.BlockPositions - first + 1
}

// planned is the task before an attention: it divides the work of this step,
// makes room for what split blocks become and, for a cache of codes, makes
// integers of the queries; a unit is a row.
type planned struct{ *attention }

// prepare implements task.
func (a *planned) prepare() (units, work int) {
	p, c := &a.e.plan, &a.e.p.Caches[a.cache]
	blocks, positions := 0, 0
	p.first = p.first[:0]
	for r := range a.e.live {
		from, to, _, n := a.span(r)
		p.first = append(p.first, blocks)
		blocks += n
		positions += to - from
	}
	p.first = append(p.first, blocks)
	threads := a.e.opts.Threads
	sums := blocks * a.heads * c.HeadDim
	p.split = threads > 1 && a.e.live*c.KVHeads < splitUnits*threads && sums <= maxSums && p.room(&a.e.memory, sums, blocks*a.heads)
	p.tiles = a.wide
	if p.split && blocks*c.KVHeads < 2*threads {
		p.tiles = a.narrow
	}
	p.work = 2 * positions * a.heads * c.HeadDim
	if a.e.opts.Cache != backends.CacheInt8 {
		return 0, 0
	}
	return a.e.live, 8 * a.e.live * a.heads * c.HeadDim
}

// do implements task.
func (a *planned) do(worker, first, end int) {
	for r := first; r < end; r++ {
		a.digitize(&a.e.scratch[worker], r)
	}
}

// roomFor returns s, or a longer slice if it is shorter than n: half as long again,
// since contexts grow block by block. It reports false where that is refused.
func roomFor(m *memory, s []float32, n int) ([]float32, bool) {
	if len(s) >= n {
		return s, true
	}
	longer := n + n/2
	if m.take(4*int64(longer-len(s))) != nil {
		return s, false
	}
	return make([]float32, longer), true
}

// shares returns the number of units of a row, or of one of its blocks.
func (a *attention) shares() int { return a.heads / a.perKV * len(a.e.plan.tiles) }

// prepare implements task.
func (a *attention) prepare() (units, work int) {
	p, n := &a.e.plan, a.e.live
	if p.split {
		n = p.first[n]
	}
	return n * a.shares(), p.work
}

// single reports whether every row sees one block only.
func (a *attention) single() bool { return a.e.plan.first[a.e.live] == a.e.live }

// do implements task.
func (a *attention) do(worker, first, end int) {
	s := &a.e.scratch[worker]
	shares := a.shares()
	for u := first; u < end; u++ {
		if a.e.plan.split {
			a.share(s, u/shares, u%shares)
		} else {
			a.row(s, u/shares, u%shares)
		}
	}
}

// part is some heads of a row and where they find keys and values.
type part struct {
	row   int
	cache *cache
	kv    int  // which of the heads of the cache
	tile  tile // of the heads that share it
	head  int  // the first
}

// part returns that of a share.
func (a *attention) part(row, share int) part {
	kv, t := share/len(a.e.plan.tiles), a.e.plan.tiles[share%len(a.e.plan.tiles)]
	return part{row, &a.e.caches[a.e.rows[row].Slot][a.cache], kv, t, kv*a.perKV + t.first}
}

// share computes one block of some heads; blocks are numbered through all rows.
func (a *attention) share(s *scratch, block, share int) {
	pl := &a.e.plan
	r := 0
	for pl.first[r+1] <= block {
		r++
	}
	p := a.part(r, share)
	from, to, firstBlock, _ := a.span(r)
	at := (firstBlock + block - pl.first[r]) * backends.BlockPositions
	from, to = max(from, at), min(to, at+backends.BlockPositions)
	at = block*a.heads + p.head
	largest, totals := pl.largest[at:], pl.totals[at:]
	size := p.tile.rows * p.cache.HeadDim
	if !a.single() {
		a.block(s, p, from, to, pl.sums[at*p.cache.HeadDim:][:size], largest, totals)
		return
	}
	out := a.e.row(a.out, r)[p.head*p.cache.HeadDim:][:size]
	a.block(s, p, from, to, out, largest, totals)
	a.divide(out, p, totals)
}

// row computes some heads of one row, and combines their blocks.
func (a *attention) row(s *scratch, r, share int) {
	p := a.part(r, share)
	heads, dim := p.tile.rows, p.cache.HeadDim
	from, to, _, _ := a.span(r)
	out := a.e.row(a.out, r)[p.head*dim:][:heads*dim]
	sums := s.sums[:heads*dim]
	largest, totals := s.largest[:heads], s.totalsOf[:heads]
	newest, added := s.largest[heads:2*heads], s.totalsOf[heads:2*heads]
	for at := from; at < to; {
		end := min(to, (at/backends.BlockPositions+1)*backends.BlockPositions)
		if at == from {
			a.block(s, p, at, end, out, largest, totals)
		} else {
			a.block(s, p, at, end, sums, newest, added)
			for h := range heads {
				a.e.join(out[h*dim:][:dim], sums[h*dim:][:dim], &largest[h], &totals[h], newest[h], added[h])
			}
		}
		at = end
	}
	a.divide(out, p, totals)
}

// join adds a block to those before it.
func (e *executor) join(out, sums []float32, largest, total *float32, newest, added float32) {
	top := max(*largest, newest)
	old, add := fmath.Exp(*largest-top), fmath.Exp(newest-top)
	*largest = top
	*total = float32(*total*old) + float32(added*add)
	e.kernels.ScaleAdd(out, sums, old, add)
}

// divide makes weighted means of the weighted sums of some heads.
func (a *attention) divide(out []float32, p part, totals []float32) {
	dim := p.cache.HeadDim
	for h := range p.tile.rows {
		a.e.kernels.Div(out[h*dim:][:dim], totals[h])
	}
}

// block computes positions [from, to) of one block for some heads: of each the
// largest score, the sum of exp(score - largest), and the values weighted with it.
func (a *attention) block(s *scratch, p part, from, to int, sums, largest, totals []float32) {
	if p.cache.int8 {
		a.codes(s, p, from, to, sums, largest, totals)
		return
	}
	k, c := a.e.kernels, p.cache
	page := c.page(from)
	at := (p.kv*backends.BlockPositions + from%backends.BlockPositions) * c.HeadDim
	n := (to - from) * c.HeadDim
	q := a.e.row(a.query, p.row)[p.head*c.HeadDim:][:p.tile.rows*c.HeadDim]
	shape := kernels.AttentionShape{Heads: p.tile.rows, Dim: c.HeadDim, Positions: to - from, Stride: backends.BlockPositions}
	k.Scores(s.weights, q, page.keys[at:][:n], shape, a.scale)
	for h := range p.tile.rows {
		largest[h], totals[h] = k.Softmax(s.weights[h*backends.BlockPositions:][:to-from])
	}
	k.WeightedSum(sums, s.weights, page.values[at:][:n], shape)
}

// combine is the task that follows an attention; a unit is one head of one row.
type combine struct{ *attention }

// prepare implements task.
func (a *combine) prepare() (units, work int) {
	if !a.e.plan.split || a.single() {
		return 0, 0
	}
	return a.e.live * a.heads, a.e.plan.first[a.e.live] * a.heads * a.e.p.Caches[a.cache].HeadDim
}

// do implements task.
func (a *combine) do(_, first, end int) {
	p := &a.e.plan
	dim := a.e.p.Caches[a.cache].HeadDim
	for u := first; u < end; u++ {
		r, head := u/a.heads, u%a.heads
		out := a.e.row(a.out, r)[head*dim:][:dim]
		var largest, total float32
		for b := p.first[r]; b < p.first[r+1]; b++ {
			at := b*a.heads + head
			sums := p.sums[at*dim:][:dim]
			if b == p.first[r] {
				largest, total = p.largest[at], p.totals[at]
				copy(out, sums)
				continue
			}
			a.e.join(out, sums, &largest, &total, p.largest[at], p.totals[at])
		}
		a.e.kernels.Div(out, total)
	}
}
