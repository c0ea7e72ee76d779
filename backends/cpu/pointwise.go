package cpu

import (
	"math"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
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

// prepare implements task.
func (t *embed) prepare() (units, work int) { return t.e.live, t.e.live * t.m.Cols }

// do implements task.
func (t *embed) do(_, first, end int) {
	for r := first; r < end; r++ {
		out := t.e.row(t.out, r)
		quant.Row(out, t.m, t.data, int(t.e.rows[r].Token))
		t.e.kernels.Norm(out, out, nil, t.mul)
	}
}

// inverseRMS returns 1/sqrt(mean(x^2) + eps).
func inverseRMS(k *kernels.Set, x []float32, eps float32) float32 {
	mean := k.DotF32(x, x) / float32(len(x))
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

// prepare implements task.
func (n *norm) prepare() (units, work int) { return n.e.live, 4 * n.e.live * n.e.buf[n.in].cols }

// do implements task.
func (n *norm) do(_, first, end int) {
	k := n.e.kernels
	for r := first; r < end; r++ {
		in, out := n.e.row(n.in, r), n.e.row(n.out, r)
		for at := 0; at < len(in); at += n.cols {
			x, y := in[at:at+n.cols], out[at:at+n.cols]
			k.Norm(y, x, n.weight, inverseRMS(k, x, n.eps))
			if n.rotation != program.None {
				k.Rotate(y, n.e.angles[n.rotation].row(r))
			}
		}
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

// prepare implements task.
func (a *addNorm) prepare() (units, work int) { return a.e.live, 4 * a.e.live * a.e.buf[a.in].cols }

// do implements task.
func (a *addNorm) do(_, first, end int) {
	k := a.e.kernels
	for r := first; r < end; r++ {
		x := a.e.row(a.in, r)
		k.AddNorm(a.e.row(a.state, r), x, a.weight, inverseRMS(k, x, a.eps), a.mul)
	}
}

// addMul is the task of program.AddMul; a unit is a row.
type addMul struct {
	e         *executor
	a, b, out program.BufferID
	mul       float32
}

// prepare implements task.
func (t *addMul) prepare() (units, work int) { return t.e.live, t.e.live * t.e.buf[t.out].cols }

// do implements task.
func (t *addMul) do(_, first, end int) {
	for r := first; r < end; r++ {
		t.e.kernels.AddMul(t.e.row(t.out, r), t.e.row(t.a, r), t.e.row(t.b, r), t.mul)
	}
}

// geluMul is the task of program.GELUMul; a unit is a row.
type geluMul struct {
	e         *executor
	a, b, out program.BufferID
	first     int
}

// prepare implements task.
func (t *geluMul) prepare() (units, work int) { return t.e.live, 16 * t.e.live * t.e.buf[t.a].cols }

// do implements task.
func (t *geluMul) do(_, first, end int) {
	for r := first; r < end; r++ {
		a := t.e.row(t.a, r)
		t.e.kernels.GELUMul(t.e.row(t.out, r), a, t.e.row(t.b, r)[t.first:][:len(a)])
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

// prepare implements task.
func (t *softcap) prepare() (units, work int) {
	n := t.e.buf[t.buf].cols
	return (n + softcapUnit - 1) / softcapUnit, 16 * n * t.e.live
}

// do implements task.
func (t *softcap) do(_, first, end int) {
	for r := range t.e.live {
		x := t.e.row(t.buf, r)
		t.e.kernels.Softcap(x[first*softcapUnit:min(end*softcapUnit, len(x))], t.cap)
	}
}

// peaks is the task that finds the largest logits of each run; it follows the
// program. A unit is a run of every row.
type peaks struct{ e *executor }

// prepare implements task.
func (t *peaks) prepare() (units, work int) {
	n := t.e.p.Vocab
	return runs(n), n * t.e.live
}

// runs returns the number of runs of n logits.
func runs(n int) int { return (n + backends.PeakRun - 1) / backends.PeakRun }

// do implements task.
func (t *peaks) do(_, first, end int) {
	for r := range t.e.live {
		x := t.e.row(t.e.p.Logits, r)
		for u := first; u < end; u++ {
			t.e.Peaks(r)[u] = t.e.kernels.Max(x[u*backends.PeakRun : min((u+1)*backends.PeakRun, len(x))])
		}
	}
}
