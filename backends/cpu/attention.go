package cpu

import (
	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fmath"
	"github.com/zoo-sdk/zoo/program"
)

// attention is the task of program.Attention; a unit is one head of one row.
type attention struct {
	e          *executor
	cache      program.CacheID
	query, out program.BufferID
	heads      int
	scale      float32
}

// scratch is a worker's memory for attention.
type scratch struct {
	weights [backends.BlockPositions]float32
	sum     []float32 // weighted values of one block
}

// do implements task.
func (a *attention) do(worker, first, end int) {
	for u := first; u < end; u++ {
		a.head(&a.e.scratch[worker], u/a.heads, u%a.heads)
	}
}

// head computes one head of one row, block by block, combined in order.
func (a *attention) head(s *scratch, r, head int) {
	row := a.e.rows[r]
	c := &a.e.slots[row.Slot].caches[a.cache]
	kv := head / (a.heads / c.KVHeads)
	q := a.e.row(a.query, r)[head*c.HeadDim:][:c.HeadDim]
	out := a.e.row(a.out, r)[head*c.HeadDim:][:c.HeadDim]
	from := 0
	if c.Window > 0 {
		from = max(0, row.Pos-c.Window+1)
	}
	part := s.sum[:c.HeadDim]
	var largest, total float32
	for at := from; at <= row.Pos; {
		end := min(row.Pos+1, (at/backends.BlockPositions+1)*backends.BlockPositions)
		m, l := a.block(s, c, kv, q, at, end, part)
		if at == from {
			largest, total = m, l
			copy(out, part)
		} else {
			top := max(largest, m)
			old, add := fmath.Exp(largest-top), fmath.Exp(m-top)
			largest = top
			total = float32(total*old) + float32(l*add)
			for i := range out {
				out[i] = float32(out[i]*old) + float32(part[i]*add)
			}
		}
		at = end
	}
	for i := range out {
		if c.int8 {
			out[i] = float32(out[i] * c.ValueScale)
		}
		out[i] /= total
	}
}

// block computes the positions [from, end) of one block: the largest score, the
// sum of exp(score - largest), and in sum the values weighted with it.
func (a *attention) block(s *scratch, c *cache, kv int, q []float32, from, end int, sum []float32) (largest, total float32) {
	p := c.page(from)
	base := kv*backends.BlockPositions + from%backends.BlockPositions
	w := s.weights[:end-from]
	for i := range w {
		at := (base + i) * c.HeadDim
		if c.int8 {
			w[i] = float32(float32(dotInt8(q, p.keyCodes[at:at+c.HeadDim])*c.KeyScale) * a.scale)
		} else {
			w[i] = float32(dot(q, p.keys[at:at+c.HeadDim]) * a.scale)
		}
		if i == 0 || w[i] > largest {
			largest = w[i]
		}
	}
	for i, score := range w {
		w[i] = fmath.Exp(score - largest)
	}
	total = sum16(w)
	clear(sum)
	for i, weight := range w {
		at := (base + i) * c.HeadDim
		if c.int8 {
			for j, v := range p.valueCodes[at : at+c.HeadDim] {
				sum[j] += float32(weight * float32(v))
			}
		} else {
			for j, v := range p.values[at : at+c.HeadDim] {
				sum[j] += float32(weight * v)
			}
		}
	}
	return largest, total
}
