package cpu

import (
	"math"

	"github.com/zoo-sdk/zoo/internal/fmath"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// embed is the task of program.Embed; a unit is a row.
type embed struct {
	e    *executor
	m    quant.Matrix
	data []byte
	out  program.BufferID
	mul  float32
}

// do implements task.
func (t *embed) do(_, first, end int) {
	for r := first; r < end; r++ {
		out := t.e.row(t.out, r)
		quant.Row(out, t.m, t.data, int(t.e.rows[r].Token))
		for i, v := range out {
			out[i] = float32(v * t.mul)
		}
	}
}

// inverseRMS returns 1/sqrt(mean(x^2) + eps).
func inverseRMS(x []float32, eps float32) float32 {
	mean := dot(x, x) / float32(len(x))
	return 1 / float32(math.Sqrt(float64(mean+eps)))
}

// norm is the task of program.Norm; a unit is a row.
type norm struct {
	e       *executor
	in, out program.BufferID
	weight  []float32 // nil for none
	cols    int
	eps     float32
	// rotation indexes the executor's tables of this step, or is program.None.
	rotation program.RotationID
}

// do implements task.
func (n *norm) do(_, first, end int) {
	for r := first; r < end; r++ {
		in, out := n.e.row(n.in, r), n.e.row(n.out, r)
		for at := 0; at < len(in); at += n.cols {
			x, y := in[at:at+n.cols], out[at:at+n.cols]
			inv := inverseRMS(x, n.eps)
			if n.weight == nil {
				for i, v := range x {
					y[i] = float32(v * inv)
				}
			} else {
				for i, v := range x {
					y[i] = float32(float32(v*inv) * n.weight[i])
				}
			}
			if n.rotation != program.None {
				rotate(y, n.e.angles[n.rotation].row(r))
			}
		}
	}
}

// rotate turns the pairs (i, i+half) of a head by angles given as half sines, then half cosines.
func rotate(x, table []float32) {
	half := len(x) / 2
	sin, cos := table[:half], table[half:]
	lo, hi := x[:half], x[half:]
	for i := range half {
		a, b := lo[i], hi[i]
		lo[i] = float32(a*cos[i]) - float32(b*sin[i])
		hi[i] = float32(b*cos[i]) + float32(a*sin[i])
	}
}

// angles holds the sines and cosines of one rotation for the rows of a step.
type angles struct {
	freqs []float32
	table []float32 // [rows, 2*len(freqs)]
}

// row returns the table of a row.
func (a *angles) row(r int) []float32 {
	n := 2 * len(a.freqs)
	return a.table[r*n:][:n]
}

// fill computes the table of row r at position pos.
func (a *angles) fill(r, pos int) {
	t := a.row(r)
	half := len(a.freqs)
	for i, f := range a.freqs {
		t[i], t[half+i] = fmath.Sincos(float32(float32(pos) * f))
	}
}

// addNorm is the task of program.AddNorm; a unit is a row.
type addNorm struct {
	e         *executor
	state, in program.BufferID
	weight    []float32
	eps, mul  float32
}

// do implements task.
func (a *addNorm) do(_, first, end int) {
	for r := first; r < end; r++ {
		x, h := a.e.row(a.in, r), a.e.row(a.state, r)
		inv := inverseRMS(x, a.eps)
		for i, v := range x {
			y := float32(v * inv)
			if a.weight != nil {
				y = float32(y * a.weight[i])
			}
			h[i] = float32((h[i] + y) * a.mul)
		}
	}
}

// addMul is the task of program.AddMul; a unit is a row.
type addMul struct {
	e         *executor
	a, b, out program.BufferID
	mul       float32
}

// do implements task.
func (t *addMul) do(_, first, end int) {
	for r := first; r < end; r++ {
		a, b, out := t.e.row(t.a, r), t.e.row(t.b, r), t.e.row(t.out, r)
		for i := range out {
			out[i] = float32((a[i] + b[i]) * t.mul)
		}
	}
}

// geluMul is the task of program.GELUMul; a unit is a row.
type geluMul struct {
	e         *executor
	a, b, out program.BufferID
	first     int
}

// do implements task.
func (t *geluMul) do(_, first, end int) {
	for r := first; r < end; r++ {
		a, out := t.e.row(t.a, r), t.e.row(t.out, r)
		b := t.e.row(t.b, r)[t.first:][:len(a)]
		for i, v := range a {
			out[i] = float32(fmath.GELU(v) * b[i])
		}
	}
}

// softcap is the task of program.Softcap; a unit is 256 numbers of every row.
type softcap struct {
	e   *executor
	buf program.BufferID
	cap float32
}

// softcapUnit is the number of columns in a unit of softcap.
const softcapUnit = 256

// do implements task.
func (t *softcap) do(_, first, end int) {
	for r := range t.e.live {
		x := t.e.row(t.buf, r)
		x = x[first*softcapUnit : min(end*softcapUnit, len(x))]
		for i, v := range x {
			x[i] = float32(t.cap * fmath.Tanh(v/t.cap))
		}
	}
}
