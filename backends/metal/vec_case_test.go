package metal_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/internal/fmath"
	"github.com/zoo-sdk/zoo/quant"
)

// norming is a norm that is a part of a product's input.
type norming int

const (
	noNorm norming = iota
	plainNorm
	weightedNorm
)

// vecCase is a product with a single row.
type vecCase struct {
	metal.VecProduct
	rows  []int // of each part
	skip  int   // blocks of the matrix before each part
	codes fill

	inGrids, outGrids []float32 // of each part
	upInGrid, upGrid  float32
	mul               float32

	heads, window, pos int // of an attention
	add, norm          norming
	kept               bool
	gelu, peaks        bool
	cap                float32

	// How the work is divided: blocks of a group and splits of their columns, both 0 for what the plan says.
	groupBlocks, splits int
	shared              int // about how much memory a group has at least, 0 for what every device has

	// change, if not nil, changes the numbers that the input is computed from,
	// and rescale the scales of the matrix.
	change  func(x []float32)
	rescale func(i int, scale float32) float32
}

// String describes a case.
func (c *vecCase) String() string {
	return fmt.Sprintf("%s %dx%d rows %d skip %d codes %d in %v out %v,%v mul %v heads %d window %d pos %d add %d norm %d kept %v gelu %v cap %v peaks %v divided %d,%d shared %d up in %v",
		metal.VecName(&c.VecProduct), c.Matrix.Rows, c.Matrix.Cols, c.rows, c.skip, c.codes, c.inGrids, c.outGrids, c.upGrid, c.mul,
		c.heads, c.window, c.pos, c.add, c.norm, c.kept, c.gelu, c.cap, c.peaks, c.groupBlocks, c.splits, c.shared, c.upInGrid)
}

// limits are the largest magnitudes of fixed point of one to three digits.
var limits = []float32{0, 127, 127<<8 + 127, 127<<16 + 127<<8 + 127}

// check runs a case and compares it with plain Go.
func (c *vecCase) check(b *bench, rng *rand.Rand) {
	b.t.Helper()
	cols := c.Matrix.Cols
	each := 1 // blocks of the matrix for 16 results
	if c.GateUp {
		each = 2
	}
	a := metal.VecArgs{
		Cols: uint32(cols), Limit: limits[c.Planes], Heads: uint32(c.heads), Window: uint32(c.window),
		Add: yes(c.add != noNorm), AddWeighted: yes(c.add == weightedNorm), AddEps: 1e-6, AddMul: 0.75,
		Norm: yes(c.norm != noNorm), NormWeighted: yes(c.norm == weightedNorm), NormEps: 1e-5, NormKept: yes(c.kept),
		Mul: c.mul, GELU: yes(c.gelu), GELUFirst: 3, Softcap: yes(c.cap != 0), Cap: c.cap, Peaks: yes(c.peaks), UpInGrid: c.upInGrid, UpGrid: c.upGrid,
		Parts: uint32(len(c.rows)),
	}
	blocks, results := 0, 0
	for i, rows := range c.rows {
		n := (rows + quant.BlockRows - 1) / quant.BlockRows
		blocks += c.skip
		a.Part[i] = metal.VecPart{
			FirstBlock: uint32(blocks), Blocks: uint32(n), Rows: uint32(rows), Out: uint32(results + 1),
			InGrid: c.inGrids[i], OutGrid: c.outGrids[i],
		}
		blocks += n * each
		results += rows + 2
	}
	w := randomPacked(rng, c.Matrix.Format, blocks*quant.BlockRows, cols, c.codes)
	if c.rescale != nil {
		w.rescale(c.rescale)
	}
	c.Matrix = w.Matrix

	// The input.
	set := kernels.Generic()
	source := randomFloats(rng, cols, 2)
	var attention []float32
	seen := 1
	if c.heads > 0 {
		from := 0
		if c.window > 0 {
			from = max(0, c.pos+1-c.window)
		}
		seen = c.pos/backends.BlockPositions - from/backends.BlockPositions + 1
		source = randomFloats(rng, seen*cols, 30)
		a.Totals = uint32((seen + 1) * c.heads)
		attention = randomFloats(rng, int(a.Totals)+seen*c.heads, 3)
		for i := range seen * c.heads {
			total := &attention[int(a.Totals)+i]
			*total = 1 + float32(math.Abs(float64(*total)))
		}
	}
	if c.change != nil {
		c.change(source)
	}
	x := slices.Clone(source[:cols])
	if c.heads > 0 {
		c.combine(x, source, attention, int(a.Totals), seen)
	}
	state := randomFloats(rng, cols, 1)
	addWeight, normWeight := randomFloats(rng, cols, 1), randomFloats(rng, cols, 1)
	wantState, wantNormed := slices.Clone(state), unset(cols)
	if c.add != noNorm {
		set.AddNorm(wantState, x, weightOf(c.add, addWeight), inverseRMS(x, a.AddEps), a.AddMul)
		x = wantState
	}
	if c.norm != noNorm {
		set.Norm(wantNormed, x, weightOf(c.norm, normWeight), inverseRMS(x, a.NormEps))
		x = wantNormed
	}

	// The product and what follows.
	factors := randomFloats(rng, results+3, 1)
	want := unset(results + 2)
	runs := (c.rows[0] + backends.PeakRun - 1) / backends.PeakRun
	wantPeaks := unset(runs + 1)
	for i, rows := range c.rows {
		part := &a.Part[i]
		y := c.multiply(w, x, int(part.FirstBlock), int(part.Blocks), each, part.InGrid, part.OutGrid)
		if c.GateUp {
			set.GELUMul(y, y, c.multiply(w, x, int(part.FirstBlock)+1, int(part.Blocks), each, c.upInGrid, c.upGrid))
		}
		y = y[:rows]
		if c.gelu {
			set.GELUMul(y, y, factors[a.GELUFirst:])
		}
		if c.cap != 0 {
			set.Softcap(y, c.cap)
		}
		copy(want[part.Out:], y)
		for r := range runs {
			if c.peaks {
				wantPeaks[r] = backends.Peak(y[r*backends.PeakRun : min((r+1)*backends.PeakRun, rows)])
			}
		}
	}

	// The kernel.
	l := c.divide(b, &a)
	got, gotState, gotNormed, gotPeaks := unset(len(want)), unset(cols), unset(cols), unset(len(wantPeaks))
	bound := func(o operand, is bool) operand {
		if !is {
			return unbound()
		}
		return o
	}
	b.run(metal.VecName(&c.VecProduct), &a, l,
		in(w.data), step(1, row{pos: int32(c.pos)}), in(source),
		bound(in(state), c.add != noNorm), bound(out(gotState), c.add != noNorm),
		bound(in(addWeight), c.add == weightedNorm), bound(in(normWeight), c.norm == weightedNorm),
		bound(out(gotNormed), c.kept), out(got), bound(in(factors), c.gelu), bound(out(gotPeaks), c.peaks), bound(in(attention), c.heads > 0))
	c.compare(b, "output", got, want)
	if c.add != noNorm {
		c.compare(b, "state", gotState, wantState)
	}
	if c.kept {
		c.compare(b, "norm", gotNormed, wantNormed)
	}
	if c.peaks {
		c.compare(b, "peaks", gotPeaks, wantPeaks)
	}
}

// compare reports the first difference.
func (c *vecCase) compare(b *bench, what string, got, want []float32) {
	b.t.Helper()
	if i := firstDiff(got, want); i >= 0 {
		b.t.Fatalf("%v: %s[%d] = %v (%#x), want %v (%#x)", c, what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
	}
}

// divide divides the work as the case asks for.
func (c *vecCase) divide(b *bench, a *metal.VecArgs) metal.Launch {
	b.t.Helper()
	shared := c.shared
	if shared == 0 {
		shared = b.device.Info().SharedBytes
	}
	if c.groupBlocks == 0 {
		l, ok := metal.VecDivide(&c.VecProduct, a, shared)
		if !ok {
			b.t.Fatalf("%v: it does not fit", c)
		}
		return l
	}
	d, l, ok := metal.VecLay(&c.VecProduct, a, c.groupBlocks, c.splits, shared)
	for !ok && shared < b.device.Info().SharedBytes {
		shared += 256
		d, l, ok = metal.VecLay(&c.VecProduct, a, c.groupBlocks, c.splits, shared)
	}
	if !ok {
		b.t.Fatalf("%v: it does not fit", c)
	}
	metal.VecDivideAs(a, d)
	l.Groups = [3]int{metal.VecGroups(a, c.groupBlocks), 1, 1}
	return l
}

// yes returns 1 for true.
func yes(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// weightOf returns the weight of a norm, nil for none.
func weightOf(n norming, weight []float32) []float32 {
	if n == weightedNorm {
		return weight
	}
	return nil
}

// inverseRMS returns 1/sqrt(mean(x^2) + eps).
func inverseRMS(x []float32, eps float32) float32 {
	mean := kernels.Generic().DotF32(x, x) / float32(len(x))
	return 1 / float32(math.Sqrt(float64(mean+eps)))
}

// combine puts the blocks of an attention together.
func (c *vecCase) combine(x, sums, blocks []float32, totalsAt, seen int) {
	set := kernels.Generic()
	dim := len(x) / c.heads
	for h := range c.heads {
		var largest, total float32
		y := x[h*dim:][:dim]
		for b := range seen {
			at := b*c.heads + h
			newest, added := blocks[at], blocks[totalsAt+at]
			part := sums[at*dim:][:dim]
			if b == 0 {
				largest, total = newest, added
				copy(y, part)
				continue
			}
			top := max(largest, newest)
			old, add := fmath.Exp(largest-top), fmath.Exp(newest-top)
			largest, total = top, float32(total*old)+float32(added*add)
			set.ScaleAdd(y, part, old, add)
		}
		set.Div(y, total)
	}
}

// multiply returns the products of some blocks of a matrix, of which every so-manieth is taken.
func (c *vecCase) multiply(w *packed, x []float32, first, blocks, every int, inGrid, outGrid float32) []float32 {
	set := kernels.Generic()
	words := w.Steps() * w.StepCols() / 4
	digits := make([]uint32, c.Planes*words)
	scale, lo, hi := inGrid, float32(-128), float32(127)
	if inGrid == 0 {
		scale, lo, hi = set.MaxAbs(x)/limits[c.Planes], -limits[c.Planes], limits[c.Planes]
	}
	if scale != 0 {
		set.Quantize(digits, x, c.Planes, scale, lo, hi)
	}
	starts := make([]float64, w.Groups())
	for g := range starts {
		sum := 0
		for p := range c.Planes {
			for _, four := range digits[p*words:][g*words/len(starts) : (g+1)*words/len(starts)] {
				for i := range 4 {
					sum += int(int8(four>>(8*i))) << (8 * p)
				}
			}
		}
		starts[g] = -float64(w.Midpoint()) * float64(sum)
	}
	acts := make([]uint32, len(digits))
	set.Interleave(acts, c.Planes, digits, c.Planes)
	y := make([]float32, blocks*quant.BlockRows)
	if w.Group > 0 {
		whole := make([]int64, len(starts))
		for g, start := range starts {
			whole[g] = int64(start)
		}
		a := kernels.GroupActivations{Words: acts, Starts: whole, Steps: []float32{scale}}
		set.MulGroups(y, len(y), w.data[first*w.BlockBytes():], &a, kernels.GroupShape{
			Format: w.Format, Rows: 1, Planes: c.Planes, Blocks: blocks, Stride: every * w.BlockBytes(), Groups: w.Groups(),
		})
		finishOn(y, outGrid, c.mul)
		return y
	}
	size := c.Planes * quant.BlockRows
	totals := make([]int32, blocks*size)
	for b := range blocks {
		set.Dot(totals[b*size:][:size], w.data[(first+b*every)*w.BlockBytes():], acts, kernels.Shape{
			Bits: w.Bits, Rows: c.Planes, Blocks: 1, Stride: w.BlockBytes(), Steps: w.Steps(),
		})
	}
	set.Finish(y, len(y), totals, w.data[first*w.BlockBytes()+w.BlockCodeBytes():], &kernels.Final{
		Blocks: blocks, Rows: 1, Planes: c.Planes, ScaleStride: every * w.BlockBytes(),
		Starts: starts, Steps: []float32{scale}, Out: outGrid, Mul: c.mul,
	})
	return y
}

// finishOn rounds products to the output grid, if there is one, and multiplies them by mul.
func finishOn(y []float32, grid, mul float32) {
	if grid != 0 {
		kernels.Generic().Grid(y, grid)
	}
	for i := range y {
		y[i] *= mul
	}
}

// rescale changes the scales of a matrix, in the order in which they lie in it.
func (p *packed) rescale(change func(i int, scale float32) float32) {
	i := 0
	for b := range p.NumBlocks() {
		data := p.data[b*p.BlockBytes()+p.BlockCodeBytes():]
		for range p.Groups() * quant.BlockRows {
			if p.Scale == quant.ScaleF16 {
				s := change(i, quant.F16ToF32(binary.LittleEndian.Uint16(data)))
				binary.LittleEndian.PutUint16(data, quant.F32ToF16(s))
				data = data[2:]
			} else {
				s := change(i, math.Float32frombits(binary.LittleEndian.Uint32(data)))
				binary.LittleEndian.PutUint32(data, math.Float32bits(s))
				data = data[4:]
			}
			i++
		}
	}
}

// randomVec returns a case at random.
func randomVec(rng *rand.Rand, p metal.VecProduct) *vecCase {
	pick := func(n ...int) int { return n[rng.IntN(len(n))] }
	chance := func(n int) bool { return rng.IntN(n) == 0 }
	c := &vecCase{VecProduct: p, skip: rng.IntN(3), mul: 1}
	cols := 1 + rng.IntN(pick(8, 100, 1000))
	if p.Matrix.Group > 0 {
		cols = 32 * (1 + rng.IntN(pick(2, 10, 40)))
	}
	if chance(3) {
		c.heads = pick(1, 2, 5)
		cols = max(1, cols/c.heads) * c.heads
		if p.Matrix.Group > 0 {
			cols = (cols + 31) / 32 * 32
			c.heads = pick(1, 4, 8)
		}
		c.pos = rng.IntN(pick(100, 1000, 20000))
		if chance(2) {
			c.window = 1 + rng.IntN(1000)
		}
	}
	c.Matrix.Cols = cols
	parts := 1
	if !p.GateUp && chance(2) {
		parts = 1 + rng.IntN(4)
	}
	c.peaks = !p.GateUp && parts == 1 && chance(3)
	for range parts {
		c.rows = append(c.rows, 1+rng.IntN(pick(16, 40, 100)))
		in, out := float32(0), float32(0)
		if chance(2) {
			in = 0.01 + rng.Float32()*0.05
		}
		if chance(2) {
			out = 0.01 + rng.Float32()
		}
		c.inGrids, c.outGrids = append(c.inGrids, in), append(c.outGrids, out)
	}
	if c.peaks {
		c.rows[0] = 1 + rng.IntN(pick(100, 600))
	}
	if p.GateUp && chance(2) {
		c.upGrid = rng.Float32()
	}
	c.upInGrid = c.inGrids[0]
	if p.GateUp && chance(2) { // another one, or fixed point beside a static one
		c.upInGrid = []float32{0, 0.01 + rng.Float32()*0.05}[rng.IntN(2)]
	}
	if chance(3) {
		c.mul = rng.Float32()
	}
	c.add, c.norm = norming(rng.IntN(3)), norming(rng.IntN(3))
	c.kept = c.norm != noNorm && chance(2)
	c.gelu = !p.GateUp && parts == 1 && chance(3)
	if !p.GateUp && chance(3) {
		c.cap = 1 + 30*rng.Float32()
	}
	if chance(2) {
		c.groupBlocks, c.splits = 1+rng.IntN(8), 1+rng.IntN(6)
		if c.peaks {
			c.groupBlocks = 16 * (1 + rng.IntN(2))
		}
		if chance(2) {
			c.shared = 1000 // as little as there must be
		}
	}
	return c
}
