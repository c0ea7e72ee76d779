package main

import (
	"fmt"
	"io"
	"math"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

// addPointwise adds the pointwise kernels of x86.
func addPointwise(c *build.Context) {
	data := map[string]operand.Mem{}
	for _, bits := range []int{256, 512} {
		pointwise(newAVX(c, bits, data))
	}
}

// pointwise writes all pointwise kernels.
func pointwise(m machine) {
	maxAbs(m)
	peak(m)
	for planes := 1; planes <= maxPlanes; planes++ {
		quantize(m, planes)
		for _, cols := range groupCols {
			quantizeGroups(m, cols, planes)
		}
		for _, f := range finals {
			finish(m, planes, f)
		}
	}
	for _, w := range []weighting{noWeight, withWeight} {
		norm(m, w)
		addNorm(m, w)
	}
	addMul(m)
	scaleAdd(m)
	div(m)
	grid(m)
	rotate(m)
	geluMul(m)
	softcap(m)
	largest(m)
	expSum(m)
}

// maxPlanes is the most digits of an activation.
const maxPlanes = 3

// pointwiseTable writes the Go table of an instruction set's kernels.
func pointwiseTable(w io.Writer, isa string) {
	fmt.Fprintf(w, "\n// pointwise%s holds the pointwise kernels.\nvar pointwise%[1]s = pointwise{\n", isa)
	for _, name := range []string{
		"maxAbs", "peak", "norm", "normWeighted", "addNorm", "addNormWeighted", "addMul", "scaleAdd", "div", "grid", "rotate", "geluMul", "softcap", "largest", "expSum",
	} {
		fmt.Fprintf(w, "\t%s: %[1]s%s,\n", name, isa)
	}
	perPlanes := func(field, kind string, name func(planes int) string) {
		fmt.Fprintf(w, "\t%s: [MaxPlanes + 1]%s{\n", field, kind)
		for planes := 1; planes <= maxPlanes; planes++ {
			fmt.Fprintf(w, "\t\t%d: %s%s,\n", planes, name(planes), isa)
		}
		fmt.Fprint(w, "\t},\n")
	}
	perPlanes("quantize", "quantizeFunc", quantizeName)
	for _, cols := range groupCols {
		perPlanes(fmt.Sprintf("quantizeGroups%d", cols), "quantizeGroupsFunc", func(planes int) string { return quantizeGroupsName(cols, planes) })
	}
	for _, f := range finals {
		perPlanes("finish"+f.name, "finishFunc", func(planes int) string { return finishName(planes, f) })
	}
	fmt.Fprint(w, "}\n")
}

// unroll is the number of vectors in a round of a loop of few operations.
const unroll = 2

// floats are the pointers and the count of a function's first parameters.
func floats(names ...string) (params []field) {
	for _, name := range names {
		params = append(params, field{name, "*float32"})
	}
	return append(params, field{"n", "int"})
}

// overFloats writes a loop over n elements of pointers named so; body treats a vector.
func overFloats(m machine, vectors int, body func(p []*word, i int), names ...string) {
	var p []*word
	for _, name := range names {
		p = append(p, m.param(name, 4))
	}
	m.loop(m.param("n", 1), p, vectors, func() {
		for i := range vectors {
			body(p, i)
		}
	})
}

// weighting tells whether a norm has weights.
type weighting string

const (
	noWeight   weighting = ""
	withWeight weighting = "Weighted"
)

// names appends the weights' to those of pointers.
func (w weighting) names(pointers ...string) []string {
	if w == withWeight {
		pointers = append(pointers, "weight")
	}
	return pointers
}

// norm writes Set.Norm.
func norm(m machine, w weighting) {
	names := w.names("dst", "x")
	m.begin("norm"+string(w), "is Set.Norm.", append(floats(names...), field{"inv", "float32"}), "")
	inv := m.paramVec("inv")
	overFloats(m, unroll, func(p []*word, i int) {
		y := m.newVec()
		m.load(y, p[1], i)
		m.mul(y, y, inv)
		if w == withWeight {
			timesLoaded(m, y, p[2], i)
		}
		m.store(y, p[0], i)
		m.freeVec(y)
	}, names...)
	m.end()
}

// timesLoaded multiplies v by vector i of p.
func timesLoaded(m machine, v *vec, p *word, i int) {
	t := m.newVec()
	m.load(t, p, i)
	m.mul(v, v, t)
	m.freeVec(t)
}

// addNorm writes Set.AddNorm.
func addNorm(m machine, w weighting) {
	names := w.names("state", "x")
	m.begin("addNorm"+string(w), "is Set.AddNorm.", append(floats(names...), field{"inv", "float32"}, field{"mul", "float32"}), "")
	inv, mul := m.paramVec("inv"), m.paramVec("mul")
	overFloats(m, unroll, func(p []*word, i int) {
		y, state := m.newVec(), m.newVec()
		m.load(y, p[1], i)
		m.mul(y, y, inv)
		if w == withWeight {
			timesLoaded(m, y, p[2], i)
		}
		m.load(state, p[0], i)
		m.add(state, state, y)
		m.mul(state, state, mul)
		m.store(state, p[0], i)
		m.freeVec(y, state)
	}, names...)
	m.end()
}

// addMul writes Set.AddMul.
func addMul(m machine) {
	m.begin("addMul", "is Set.AddMul.", append(floats("dst", "a", "b"), field{"mul", "float32"}), "")
	mul := m.paramVec("mul")
	overFloats(m, unroll, func(p []*word, i int) {
		a, b := m.newVec(), m.newVec()
		m.load(a, p[1], i)
		m.load(b, p[2], i)
		m.add(a, a, b)
		m.mul(a, a, mul)
		m.store(a, p[0], i)
		m.freeVec(a, b)
	}, "dst", "a", "b")
	m.end()
}

// scaleAdd writes Set.ScaleAdd.
func scaleAdd(m machine) {
	m.begin("scaleAdd", "is Set.ScaleAdd.", append(floats("dst", "part"), field{"old", "float32"}, field{"add", "float32"}), "")
	old, add := m.paramVec("old"), m.paramVec("add")
	overFloats(m, unroll, func(p []*word, i int) {
		a, b := m.newVec(), m.newVec()
		m.load(a, p[0], i)
		m.mul(a, a, old)
		m.load(b, p[1], i)
		m.mul(b, b, add)
		m.add(a, a, b)
		m.store(a, p[0], i)
		m.freeVec(a, b)
	}, "dst", "part")
	m.end()
}

// div writes Set.Div.
func div(m machine) {
	m.begin("div", "is Set.Div.", append(floats("dst"), field{"by", "float32"}), "")
	by := m.paramVec("by")
	overFloats(m, unroll, func(p []*word, i int) {
		v := m.newVec()
		m.load(v, p[0], i)
		m.div(v, v, by)
		m.store(v, p[0], i)
		m.freeVec(v)
	}, "dst")
	m.end()
}

// grid writes Set.Grid.
func grid(m machine) {
	m.begin("grid", "is Set.Grid.", append(floats("x"), field{"step", "float32"}), "")
	step := m.paramVec("step")
	overFloats(m, unroll, func(p []*word, i int) {
		v := m.newVec()
		m.load(v, p[0], i)
		onGrid(m, v, step)
		m.store(v, p[0], i)
		m.freeVec(v)
	}, "x")
	m.freeVec(step)
	m.end()
}

// rotate writes Set.Rotate for n pairs.
func rotate(m machine) {
	m.begin("rotate", "is Set.Rotate for n pairs.", floats("lo", "hi", "sin", "cos"), "")
	overFloats(m, 1, func(p []*word, i int) {
		a, b, sin, cos, t := m.newVec(), m.newVec(), m.newVec(), m.newVec(), m.newVec()
		m.load(a, p[0], i)
		m.load(b, p[1], i)
		m.load(sin, p[2], i)
		m.load(cos, p[3], i)
		lo := t
		m.mul(lo, a, cos)
		m.mul(a, a, sin)
		m.mul(sin, b, sin)
		m.sub(lo, lo, sin)
		m.store(lo, p[0], i)
		m.mul(b, b, cos)
		m.add(b, b, a)
		m.store(b, p[1], i)
		m.freeVec(a, b, sin, cos, t)
	}, "lo", "hi", "sin", "cos")
	m.end()
}

// maxAbs writes Set.MaxAbs. As integers, magnitudes are in the order of their
// values, and those that are not numbers come last.
func maxAbs(m machine) {
	m.begin("maxAbs", "is Set.MaxAbs.", floats("x"), "float32")
	largest := m.newVec()
	m.set(largest, m.constantVec(0))
	overFloats(m, 4, func(p []*word, i int) {
		v := m.newVec()
		m.load(v, p[0], i)
		m.and(v, v, m.constantVec(math.MaxInt32))
		m.maxInt(largest, largest, v)
		m.freeVec(v)
	}, "x")
	m.fold(largest, m.maxInt)
	m.retVec(largest)
	m.freeVec(largest)
	m.end()
}

// peak writes Set.Max. What is not a number is skipped, and found as in maxAbs.
func peak(m machine) {
	m.begin("peak", "is Set.Max, but for the sign of zero.", floats("x"), "float32")
	most, magnitude := m.newVec(), m.newVec()
	m.set(most, number(m, float32(math.Inf(-1))))
	m.set(magnitude, m.constantVec(0))
	overFloats(m, 4, func(p []*word, i int) {
		v, t := m.newVec(), m.newVec()
		m.load(v, p[0], i)
		m.and(t, v, m.constantVec(math.MaxInt32))
		m.maxInt(magnitude, magnitude, t)
		m.keep(v, i, most)
		m.max(most, v, most)
		m.freeVec(v, t)
	}, "x")
	m.fold(most, m.max)
	m.fold(magnitude, m.maxInt)
	m.choose(most, number(m, -1), magnitude, most, magnitude)
	m.retVec(most)
	m.freeVec(most, magnitude)
	m.end()
}

// toGrid rounds v/step to an integer from lo to hi, and what is not a number to lo.
func toGrid(m machine, v, step, lo, hi *vec) {
	m.div(v, v, step)
	m.max(v, v, lo)
	m.min(v, v, hi)
	m.round(v, v)
}

// onGrid rounds v to the numbers of 8 bits times step.
func onGrid(m machine, v, step *vec) {
	toGrid(m, v, step, number(m, -128), number(m, 127))
	m.float(v, v)
	m.mul(v, v, step)
}

// quantizeName is the name of quantize without that of the instruction set.
func quantizeName(planes int) string { return fmt.Sprintf("quantize%d", planes) }

// quantize writes Set.Quantize for at most 65536 elements, so that a sum of 16-bit halves fits 32 bits.
func quantize(m machine, planes int) {
	m.begin(quantizeName(planes), fmt.Sprintf("is Set.Quantize for %d planes, size bytes apart, and at most 65536 elements.", planes), []field{
		{"dst", "*uint32"}, {"size", "int"}, {"x", "*float32"}, {"n", "int"}, {"step", "float32"}, {"lo", "float32"}, {"hi", "float32"},
	}, "int64")
	step, lo, hi := m.paramVec("step"), m.paramVec("lo"), m.paramVec("hi")
	lower, upper, zero := m.newVec(), m.newVec(), m.constantVec(0)
	m.set(lower, zero)
	m.set(upper, zero)
	pointers := append([]*word{m.param("x", 4)}, planePointers(m, planes)...)
	m.loop(m.param("n", 1), pointers, 1, func() {
		n, t := m.newVec(), m.newVec()
		m.load(n, pointers[0], 0)
		toGrid(m, n, step, lo, hi)
		m.keep(n, 0, zero)
		m.and(t, n, m.constantVec(0xffff))
		m.addInt(lower, lower, t)
		m.shiftRight(t, n, 16)
		m.addInt(upper, upper, t)
		storeDigits(m, n, pointers[1:], 0)
		m.freeVec(n, t)
	})
	m.fold(lower, m.addInt)
	m.fold(upper, m.addInt)
	m.retPair(lower, upper)
	m.freeVec(step, lo, hi, lower, upper)
	m.end()
}

// planePointers returns pointers to the planes of digits, which begin size bytes apart from dst on.
func planePointers(m machine, planes int) []*word {
	pointers := []*word{m.param("dst", 1)}
	size := m.param("size", 1)
	for range planes - 1 {
		next := m.copyWord(pointers[len(pointers)-1])
		m.advance(next, size)
		pointers = append(pointers, next)
	}
	m.freeWord(size)
	return pointers
}

// storeDigits writes the digits of integers as vector i of each plane, and changes n.
func storeDigits(m machine, n *vec, planes []*word, i int) {
	if len(planes) > 1 {
		// With 128 added to every digit, digits are the bytes of the sum.
		bias := m.constantVec(0x80808080 >> (32 - 8*len(planes)))
		m.addInt(n, n, bias)
		m.xor(n, n, bias)
	}
	for p, at := range planes {
		m.storeByte(n, p, at, i)
	}
}

// groupCols are the columns that groups may have.
var groupCols = []int{16, 32}

// quantizeGroupsName is the name of quantizeGroups without that of the instruction set.
func quantizeGroupsName(cols, planes int) string {
	return fmt.Sprintf("quantizeGroups%dx%d", cols, planes)
}

// quantizeGroups writes Set.QuantizeGroups for at least one group.
func quantizeGroups(m machine, cols, planes int) {
	m.begin(quantizeGroupsName(cols, planes), fmt.Sprintf("is Set.QuantizeGroups for groups of %d columns, %d planes, size bytes apart, and at least one group.", cols, planes), []field{
		{"dst", "*uint32"}, {"size", "int"}, {"sums", "*int32"}, {"x", "*float32"}, {"groups", "int"}, {"step", "float32"}, {"lo", "float32"}, {"hi", "float32"},
	}, "")
	step, lo, hi := m.paramVec("step"), m.paramVec("lo"), m.paramVec("hi")
	x, sums, digits := m.param("x", 4), m.param("sums", 4), planePointers(m, planes)
	m.times(m.param("groups", 1), func() {
		sum := m.newVec()
		m.set(sum, m.constantVec(0))
		for i := range cols / m.lanes() {
			n := m.newVec()
			m.load(n, x, i)
			toGrid(m, n, step, lo, hi)
			m.addInt(sum, sum, n)
			storeDigits(m, n, digits, i)
			m.freeVec(n)
		}
		m.fold(sum, m.addInt)
		m.storeFirst(sum, sums)
		m.freeVec(sum)
		m.advanceBy(x, cols)
		m.advanceBy(sums, 1)
		for _, p := range digits {
			m.advanceBy(p, cols)
		}
	})
	m.freeWord(x, sums)
	m.freeWord(digits...)
	m.freeVec(step, lo, hi)
	m.end()
}
