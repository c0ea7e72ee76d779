package cpu

import (
	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// Largest magnitudes of fixed-point activations: the largest numbers of one,
// two and three signed 8-bit digits when all digits are at most 127.
const (
	max8  = 127
	max16 = 127<<8 + 127
	max24 = 127<<16 + 127<<8 + 127
)

// fixedPoint returns the number of digits and the largest magnitude for a kind of activations.
func fixedPoint(a backends.Activations) (planes int, limit float32) {
	switch a {
	case backends.Activations8:
		return 1, max8
	case backends.Activations16:
		return 2, max16
	}
	return 3, max24
}

// tile is a run of rows whose activations are multiplied at once.
type tile struct{ first, rows int }

// tiling is how the live rows are cut, for one number of digits.
type tiling struct {
	sizes []int // of tiles, rising
	tiles []tile
}

// tilings are those for each number of digits, for products of one format with groups,
// or of all without.
type tilings struct {
	format quant.Format
	of     [kernels.MaxPlanes]tiling
}

// newTilings returns those of a format.
func newTilings(k *kernels.Set, f quant.Format) *tilings {
	t := &tilings{format: f}
	for i := range t.of {
		planes := i + 1
		if f.Group > 0 {
			t.of[i].sizes = k.GroupTiles(f, planes)
		} else {
			t.of[i].sizes = rowTiles(k.Tiles(), planes)
		}
	}
	return t
}

// cut divides n rows into the largest tiles.
func (t *tilings) cut(n int) {
	for p := range t.of {
		t.of[p].tiles = cut(t.of[p].tiles[:0], n, t.of[p].sizes)
	}
}

// cut appends tiles of n rows to a list: the largest of the sizes.
func cut(tiles []tile, n int, sizes []int) []tile {
	for first := 0; first < n; {
		rows := 1
		for _, size := range sizes {
			if size <= n-first {
				rows = size
			}
		}
		tiles = append(tiles, tile{first, rows})
		first += rows
	}
	return tiles
}

// rowTiles returns how many rows of so many digits make the tiles of the kernels.
func rowTiles(sizes []int, planes int) (rows []int) {
	for _, size := range sizes {
		if size%planes == 0 {
			rows = append(rows, size/planes)
		}
	}
	return rows
}

// operand is a batch's activations as digits of integers, on one grid.
type operand struct {
	grid   float32 // the static step, or 0 for fixed point
	planes int     // digits of an integer
	words  int     // of a row and plane: four digits each
	groups int     // of columns with scales of their own in the matrix, 0 for none
	// tilings tell how the live rows are cut for these products.
	tilings *tilings
	*digits
}

// tiles returns how the live rows are cut.
func (o *operand) tiles() []tile { return o.tilings.of[o.planes-1].tiles }

// digits is the memory of an operand. The first operands of all products
// share one, the second ones another: they are used up before the next product.
type digits struct {
	words  []uint32  // for each tile [word][row, plane]
	steps  []float32 // of each row
	starts []float64 // of each row: what the codes' midpoint adds
	// byGroup holds the same of each group, for each tile [group][row], and sums what
	// minimums are multiplied with.
	byGroup []int64
	sums    []float32

	need struct{ words, rows, groups, minimums int } // of all rows
}

// note says that as many rows, words, groups and groups with minimums are needed.
func (d *digits) note(rows, words, groups, minimums int) {
	d.need.rows = max(d.need.rows, rows)
	d.need.words = max(d.need.words, rows*words)
	d.need.groups = max(d.need.groups, rows*groups)
	d.need.minimums = max(d.need.minimums, rows*minimums)
}

// allocate makes the memory that is needed.
func (d *digits) allocate(m *memory) {
	d.words = atLeast(m, d.words, d.need.words)
	d.steps = atLeast(m, d.steps, d.need.rows)
	d.starts = atLeast(m, d.starts, d.need.rows)
	d.byGroup = atLeast(m, d.byGroup, d.need.groups)
	d.sums = atLeast(m, d.sums, d.need.minimums)
}

// tile returns the words of a tile.
func (o *operand) tile(t tile) []uint32 {
	n := o.words * o.planes
	return o.digits.words[t.first*n:][:t.rows*n]
}

// groupStarts returns what the codes' midpoint adds to the groups of a tile.
func (o *operand) groupStarts(t tile) []int64 { return o.byGroup[t.first*o.groups:][:t.rows*o.groups] }

// groupSums returns what the minimums of the groups of a tile are multiplied with, nil without such.
func (o *operand) groupSums(t tile) []float32 {
	if !o.tilings.format.Minimum {
		return nil
	}
	return o.sums[t.first*o.groups:][:t.rows*o.groups]
}

// quantizeRows is the number of rows of a tile whose digits are laid side by side at once.
const quantizeRows = 4

// quantize is the task that fills operands; a unit is a few rows of a tile.
type quantize struct {
	e        *executor
	in       program.BufferID
	operands []*operand
	m        quant.Matrix // that the operands are multiplied with
	// fed is what computed the input and has made the digits of a single row in
	// passing; nil for none. There is one operand then.
	fed *gateUp
}

// prepare implements task.
func (q *quantize) prepare() (units, work int) {
	for _, o := range q.operands {
		for _, t := range o.tiles() {
			units += parts(t)
		}
	}
	return units, 2 * q.e.live * q.m.Cols * len(q.operands)
}

// parts returns the number of units of a tile.
func parts(t tile) int { return (t.rows + quantizeRows - 1) / quantizeRows }

// do implements task.
func (q *quantize) do(worker, first, end int) {
	s := &q.e.scratch[worker]
	u := 0
	for _, o := range q.operands {
		for _, t := range o.tiles() {
			for p := range parts(t) {
				if u >= first && u < end {
					q.rows(s, o, t, p*quantizeRows)
				}
				u++
			}
		}
	}
}

// rows makes the digits of some rows of a tile, from its row at on.
func (q *quantize) rows(s *scratch, o *operand, t tile, at int) {
	dst := o.tile(t)
	if t.rows*o.planes == 1 {
		if q.fed != nil && q.e.live == 1 {
			o.steps[0] = o.grid
			o.starts[0] = -float64(q.m.Midpoint()) * float64(q.fed.sum.Load())
			return
		}
		q.row(s, dst, o, t, 0)
		return
	}
	n := min(quantizeRows, t.rows-at)
	size := o.planes * o.words
	for r := range n {
		q.row(s, s.digits[r*size:][:size], o, t, at+r)
	}
	q.e.kernels.Interleave(dst[at*o.planes:], t.rows*o.planes, s.digits[:n*size], n*o.planes)
}

// row makes the digits of row r of a tile, plane after plane.
func (q *quantize) row(s *scratch, dst []uint32, o *operand, t tile, r int) {
	x := q.e.row(q.in, t.first+r)
	step, lo, hi := o.grid, float32(-128), float32(127)
	if step == 0 {
		step, lo, hi = q.e.kernels.MaxAbs(x)/q.e.limit, -q.e.limit, q.e.limit
	}
	o.steps[t.first+r] = step
	midpoint := int64(q.m.Midpoint())
	if o.groups == 0 {
		o.starts[t.first+r] = -float64(midpoint) * float64(q.e.digits(dst, x, o.planes, step, lo, hi))
		return
	}
	sums, starts, products := s.sums32[:o.groups], o.groupStarts(t), o.groupSums(t)
	if step == 0 {
		clear(dst)
		clear(sums)
	} else {
		q.e.kernels.QuantizeGroups(dst, sums, x, q.m.Group, o.planes, step, lo, hi)
	}
	for g, sum := range sums {
		starts[g*t.rows+r] = -midpoint * int64(sum)
		if products != nil {
			products[g*t.rows+r] = float32(sum) * step
		}
	}
}

// fixed makes digits of x as fixed point of at most limit, plane after plane, and
// returns the step and the sum of the integers. One that is not a number makes
// the step not a number, and with it every product.
func (e *executor) fixed(dst []uint32, x []float32, planes int, limit float32) (step float32, sum int64) {
	step = e.kernels.MaxAbs(x) / limit
	return step, e.digits(dst, x, planes, step, -limit, limit)
}

// digits makes digits of x on a grid, zeros where its step is 0, and returns the sum of the integers.
func (e *executor) digits(dst []uint32, x []float32, planes int, step, lo, hi float32) int64 {
	if used := (len(x) + 3) / 4; step == 0 || used*planes < len(dst) {
		clear(dst)
	}
	if step == 0 {
		return 0
	}
	return e.kernels.Quantize(dst, x, planes, step, lo, hi)
}
