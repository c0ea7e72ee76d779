package cpu

import (
	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/internal/fmath"
	"github.com/zoo-sdk/zoo/program"
)

const (
	// splitHeads is the most heads of a unit where rows are so few that their
	// blocks and heads have to be shared between the threads.
	splitHeads = 4
	// splitUnits is the number of units for each thread below which rows are few.
	splitUnits = 4
)

// attention is the task of program.Attention. Where a batch has many rows, a
// unit is a row with the heads that share keys, block after block. Where it has
// few, a unit is one block of a few heads, and a second task, combine, adds the
// blocks in order where there are several: the sums are the same.
type attention struct {
	e          *executor
	cache      program.CacheID
	query, out program.BufferID
	heads      int
	scale      float32
}

// partials holds what blocks of attention have become before they are combined,
// in the order of the batch's rows, of blocks and of heads.
type partials struct {
	sums            []float32 // [rows, blocks, heads, dim]
	largest, totals []float32 // [rows, blocks, heads]
	first           []int     // the first block of each row
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

// split reports whether blocks are shared between the threads.
func (a *attention) split() bool {
	return a.e.opts.Threads > 1 && a.e.live*a.e.p.Caches[a.cache].KVHeads < splitUnits*a.e.opts.Threads
}

// shares returns the heads of a unit of split work, and how many units a block has.
func (a *attention) shares() (heads, units int) {
	kv := a.e.p.Caches[a.cache].KVHeads
	heads = min(splitHeads, a.heads/kv)
	return heads, kv * ((a.heads/kv + heads - 1) / heads)
}

// size implements task. In split work it also makes room for what blocks become.
func (a *attention) size() (units, work int) {
	c := &a.e.p.Caches[a.cache]
	blocks, positions := 0, 0
	p := &a.e.partials
	p.first = p.first[:0]
	for r := range a.e.live {
		from, to, _, n := a.span(r)
		p.first = append(p.first, blocks)
		blocks += n
		positions += to - from
	}
	p.first = append(p.first, blocks)
	work = 2 * positions * a.heads * c.HeadDim
	if !a.split() {
		return a.e.live * c.KVHeads, work
	}
	p.sums = roomFor(p.sums, blocks*a.heads*c.HeadDim)
	p.largest = roomFor(p.largest, blocks*a.heads)
	p.totals = roomFor(p.totals, blocks*a.heads)
	_, shares := a.shares()
	return blocks * shares, work
}

// roomFor returns s, or a longer slice if it is shorter than n: twice as long, since contexts grow block by block.
func roomFor(s []float32, n int) []float32 {
	if len(s) < n {
		return make([]float32, 2*n)
	}
	return s
}

// do implements task.
func (a *attention) do(worker, first, end int) {
	s := &a.e.scratch[worker]
	kv := a.e.p.Caches[a.cache].KVHeads
	split := a.split()
	for u := first; u < end; u++ {
		if split {
			a.share(s, u)
		} else {
			a.row(s, u/kv, u%kv)
		}
	}
}

// share computes one block of some heads.
func (a *attention) share(s *scratch, unit int) {
	heads, shares := a.shares()
	p, share := unit/shares, unit%shares
	r := 0
	for a.e.partials.first[r+1] <= p {
		r++
	}
	c := &a.e.slots[a.e.rows[r].Slot].caches[a.cache]
	perKV := a.heads / c.KVHeads
	perShare := shares / c.KVHeads
	kv := share / perShare
	head := kv*perKV + share%perShare*heads
	heads = min(heads, (kv+1)*perKV-head)
	from, to, firstBlock, _ := a.span(r)
	block := firstBlock + p - a.e.partials.first[r]
	from = max(from, block*backends.BlockPositions)
	to = min(to, (block+1)*backends.BlockPositions)
	at := p*a.heads + head
	largest, totals := a.e.partials.largest[at:], a.e.partials.totals[at:]
	if !a.single() {
		a.block(s, c, kv, r, head, heads, from, to, a.e.partials.sums[at*c.HeadDim:][:heads*c.HeadDim], largest, totals)
		return
	}
	out := a.e.row(a.out, r)[head*c.HeadDim:][:heads*c.HeadDim]
	a.block(s, c, kv, r, head, heads, from, to, out, largest, totals)
	for h := range heads {
		a.divide(out[h*c.HeadDim:][:c.HeadDim], c, totals[h])
	}
}

// single reports whether every row sees one block only.
func (a *attention) single() bool { return a.e.partials.first[a.e.live] == a.e.live }

// row computes the heads of one row that share keys, and combines their blocks.
func (a *attention) row(s *scratch, r, kv int) {
	c := &a.e.slots[a.e.rows[r].Slot].caches[a.cache]
	heads := a.heads / c.KVHeads
	head := kv * heads
	from, to, _, _ := a.span(r)
	out := a.e.row(a.out, r)[head*c.HeadDim:][:heads*c.HeadDim]
	part := s.sums[:heads*c.HeadDim]
	largest, totals := s.largest[:heads], s.totalsOf[:heads]
	newest, added := s.largest[heads:2*heads], s.totalsOf[heads:2*heads]
	for at := from; at < to; {
		end := min(to, (at/backends.BlockPositions+1)*backends.BlockPositions)
		if at == from {
			a.block(s, c, kv, r, head, heads, at, end, out, largest, totals)
		} else {
			a.block(s, c, kv, r, head, heads, at, end, part, newest, added)
			for h := range heads {
				a.e.join(out[h*c.HeadDim:][:c.HeadDim], part[h*c.HeadDim:][:c.HeadDim], &largest[h], &totals[h], newest[h], added[h])
			}
		}
		at = end
	}
	for h := range heads {
		a.divide(out[h*c.HeadDim:][:c.HeadDim], c, totals[h])
	}
}

// join adds a block to those before it.
func (e *executor) join(out, part []float32, largest, total *float32, newest, added float32) {
	top := max(*largest, newest)
	old, add := fmath.Exp(*largest-top), fmath.Exp(newest-top)
	*largest = top
	*total = float32(*total*old) + float32(added*add)
	e.kernels.ScaleAdd(out, part, old, add)
}

// divide makes the weighted mean of the weighted sum.
func (a *attention) divide(out []float32, c *cache, total float32) {
	scale := float32(1)
	if c.int8 {
		scale = c.ValueScale
	}
	a.e.kernels.ScaleDiv(out, scale, total)
}

// block computes positions [from, to) of one block for heads that share keys:
// of each the largest score, the sum of exp(score - largest), and the values
// weighted with it.
func (a *attention) block(s *scratch, c *cache, kv, r, head, heads, from, to int, sums, largest, totals []float32) {
	k := a.e.kernels
	p := c.page(from)
	at := (kv*backends.BlockPositions + from%backends.BlockPositions) * c.HeadDim
	n := (to - from) * c.HeadDim
	q := a.e.row(a.query, r)[head*c.HeadDim:][:heads*c.HeadDim]
	shape := kernels.AttentionShape{Heads: heads, Dim: c.HeadDim, Positions: to - from, Stride: backends.BlockPositions}
	if c.int8 {
		k.ScoresInt8(s.weights, q, p.keyCodes[at:][:n], shape, c.KeyScale, a.scale)
	} else {
		k.Scores(s.weights, q, p.keys[at:][:n], shape, a.scale)
	}
	for h := range heads {
		largest[h], totals[h] = k.Softmax(s.weights[h*backends.BlockPositions:][:to-from])
	}
	if c.int8 {
		k.WeightedSumInt8(sums, s.weights, p.valueCodes[at:][:n], shape)
	} else {
		k.WeightedSum(sums, s.weights, p.values[at:][:n], shape)
	}
}

// combine is the task that follows an attention; a unit is one head of one row.
type combine struct{ *attention }

// size implements task.
func (a *combine) size() (units, work int) {
	if !a.split() || a.single() {
		return 0, 0
	}
	return a.e.live * a.heads, a.e.partials.first[a.e.live] * a.heads * a.e.p.Caches[a.cache].HeadDim
}

// do implements task.
func (a *combine) do(_, first, end int) {
	p := &a.e.partials
	for u := first; u < end; u++ {
		r, head := u/a.heads, u%a.heads
		c := &a.e.slots[a.e.rows[r].Slot].caches[a.cache]
		out := a.e.row(a.out, r)[head*c.HeadDim:][:c.HeadDim]
		var largest, total float32
		for b := p.first[r]; b < p.first[r+1]; b++ {
			at := b*a.heads + head
			part := p.sums[at*c.HeadDim:][:c.HeadDim]
			if b == p.first[r] {
				largest, total = p.largest[at], p.totals[at]
				copy(out, part)
				continue
			}
			a.e.join(out, part, &largest, &total, p.largest[at], p.totals[at])
		}
		a.divide(out, c, total)
	}
}
