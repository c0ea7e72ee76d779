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

// tilings holds, for each number of digits, how the live rows are cut.
type tilings [kernels.MaxPlanes][]tile

// cut divides n rows into the largest tiles that the kernels take.
func (t *tilings) cut(n int, sizes []int) {
	for p := range t {
		t[p] = cut(t[p][:0], n, p+1, sizes)
	}
}

// cut appends tiles of n rows of so many digits to a list: the largest that the sizes allow.
func cut(tiles []tile, n, planes int, sizes []int) []tile {
	for first := 0; first < n; {
		rows := 1
		for _, size := range sizes {
			if size%planes == 0 && size/planes <= n-first {
				rows = size / planes
			}
		}
		tiles = append(tiles, tile{first, rows})
		first += rows
	}
	return tiles
}

// operand is a batch's activations as digits of integers, on one grid.
type operand struct {
	grid   float32 // the static step, or 0 for fixed point
	planes int     // digits of an integer
	words  int     // of a row and plane: four digits each
	*digits
}

// digits is the memory of an operand. The first operands of all products
// share one, the second ones another: they are used up before the next product.
type digits struct {
	words  []uint32  // for each tile [word][row, plane]
	steps  []float32 // of each row
	starts []float64 // of each row and group, [rows, groups]: what the codes' midpoint adds
}

// grow makes room for as many rows, words and groups.
func (d *digits) grow(rows, words, groups int) {
	d.words = atLeast(d.words, rows*words)
	d.steps = atLeast(d.steps, rows)
	d.starts = atLeast(d.starts, rows*groups)
}

// atLeast returns s, or zeros if it is shorter than n.
func atLeast[T any](s []T, n int) []T {
	if len(s) < n {
		return make([]T, n)
	}
	return s
}

// bytes returns the memory held.
func (d *digits) bytes() int64 { return int64(4*len(d.words) + 4*len(d.steps) + 8*len(d.starts)) }

// tile returns the words of a tile.
func (o *operand) tile(t tile) []uint32 {
	n := o.words * o.planes
	return o.digits.words[t.first*n:][:t.rows*n]
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
		for _, t := range q.e.tilings[o.planes-1] {
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
		for _, t := range q.e.tilings[o.planes-1] {
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
		q.row(dst, o, t.first)
		return
	}
	n := min(quantizeRows, t.rows-at)
	size := o.planes * o.words
	for r := range n {
		q.row(s.digits[r*size:][:size], o, t.first+at+r)
	}
	q.e.kernels.Interleave(dst[at*o.planes:], t.rows*o.planes, s.digits[:n*size], n*o.planes)
}

// row makes the digits of one row, plane after plane.
func (q *quantize) row(dst []uint32, o *operand, r int) {
	x := q.e.row(q.in, r)
	if used := (len(x) + 3) / 4; used < o.words {
		clear(dst)
	}
	var sum int64
	if o.grid != 0 {
		o.steps[r] = o.grid
		sum = q.e.kernels.Quantize(dst, x, o.planes, o.grid, -128, 127)
	} else {
		o.steps[r], sum = q.e.fixed(dst, x, o.planes, q.e.limit)
	}
	midpoint := -float64(q.m.Midpoint())
	if groups := q.m.Groups(); q.m.Group > 0 {
		sumGroups(o.starts[r*groups:][:groups], dst, o.planes, q.m.Group/4, midpoint)
	} else {
		o.starts[r] = midpoint * float64(sum)
	}
}

// fixed makes digits of x as fixed point of at most limit, plane after plane, and
// returns the step and the sum of the integers. One that is not a number makes
// the step not a number, and with it every product.
func (e *executor) fixed(dst []uint32, x []float32, planes int, limit float32) (step float32, sum int64) {
	step = e.kernels.MaxAbs(x) / limit
	if step == 0 {
		clear(dst)
		return 0, 0
	}
	return step, e.kernels.Quantize(dst, x, planes, step, -limit, limit)
}

// sumGroups sets starts to the sums of the integers of each group, times factor. A group has so many words in each plane.
func sumGroups(starts []float64, row []uint32, planes, words int, factor float64) {
	for g := range starts {
		total, weight := int64(0), int64(1)
		for p := range planes {
			sum := int32(0)
			for _, w := range row[p*len(row)/planes+g*words:][:words] {
				sum += int32(int8(w)) + int32(int8(w>>8)) + int32(int8(w>>16)) + int32(int8(w>>24))
			}
			total += int64(sum) * weight
			weight <<= 8
		}
		starts[g] = factor * float64(total)
	}
}
