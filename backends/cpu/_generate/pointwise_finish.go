package main

import "fmt"

// blockRows is the number of matrix rows in a block.
const blockRows = 16

// final is a kind of Finish.
type final struct {
	name string
	grid bool // for results on a grid
}

// finals lists the kinds.
var finals = []final{
	{"", false},
	{"Grid", true},
}

// finishName is the name of finish without that of the instruction set.
func finishName(planes int, f final) string { return fmt.Sprintf("finish%s%d", f.name, planes) }

// finish writes Set.Finish. The totals of two blocks are block numbers apart.
// Parameters that few need are read again where they are.
func finish(m machine, planes int, f final) {
	params := []field{
		{"dst", "*float32"}, {"stride", "int"}, {"totals", "*int32"}, {"block", "int"},
		{"scales", "*byte"}, {"scaleStride", "int"}, {"starts", "*float64"}, {"steps", "*float32"},
		{"blocks", "int"}, {"rows", "int"}, {"out", "float32"}, {"mul", "float32"},
	}
	m.begin(finishName(planes, f), fmt.Sprintf("is Set.Finish for %d planes.", planes), params, "")
	by := func(p *word, name string) {
		n := m.param(name, 1)
		m.advance(p, n)
		m.freeWord(n)
	}
	vectors := blockRows / m.lanes()
	mul := m.paramVec("mul")
	var out *vec
	if f.grid {
		out = m.paramVec("out")
	}
	dst, totals, scales := m.param("dst", 4), m.param("totals", 4), m.param("scales", 1)
	m.times(m.param("blocks", 1), func() {
		var rowScales []*vec
		for i := range vectors {
			s := m.newVec()
			m.load(s, scales, i)
			rowScales = append(rowScales, s)
		}
		to, from, starts, steps := m.copyWord(dst), m.copyWord(totals), m.param("starts", 8), m.param("steps", 4)
		m.times(m.param("rows", 1), func() {
			step := m.newVec()
			m.splat(step, steps, 0)
			for i := range vectors {
				sum := m.newVec()
				total(m, sum, planes, i, from, starts)
				m.mul(sum, sum, step)
				m.mul(sum, sum, rowScales[i])
				if f.grid {
					onGrid(m, sum, out)
				}
				m.mul(sum, sum, mul)
				m.store(sum, to, i)
				m.freeVec(sum)
			}
			m.freeVec(step)
			m.advanceBy(from, planes*blockRows)
			m.advanceBy(steps, 1)
			m.advanceBy(starts, 1)
			by(to, "stride")
		})
		m.freeWord(to, from, starts, steps)
		m.freeVec(rowScales...)
		m.advanceBy(dst, blockRows)
		by(totals, "block")
		by(scales, "scaleStride")
	})
	m.freeWord(dst, totals, scales)
	m.freeVec(mul)
	if f.grid {
		m.freeVec(out)
	}
	m.end()
}

// total sets dst to the total of vector i of a row's lanes and its start.
func total(m machine, dst *vec, planes, i int, from, start *word) {
	each := blockRows / m.lanes()
	w := m.newWide()
	m.widen(w, from, (planes-1)*each+i)
	for p := planes - 2; p >= 0; p-- {
		m.horner(w, from, p*each+i)
	}
	m.addWide(w, start)
	m.narrow(dst, w)
	m.freeWide(w)
}
