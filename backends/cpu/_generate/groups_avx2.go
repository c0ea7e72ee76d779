package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// groups256Table lists the kernels of AVX2: a row takes a register for the sum of each
// digit, or two with codes of 8 bits, and two for what its groups add up to, and what is
// left of 16 holds codes, digits and products.
var groups256Table = groupTable{
	{int4x32, groupTiles{1: {1, 2, 4}, 2: {1, 2, 3}, 3: {1, 2}}},
	{int8x32, groupTiles{1: {1, 2}, 2: {1}, 3: {1}}},
	{int8x16, groupTiles{1: {1, 2}, 2: {1}, 3: {1}}},
	{int4x32Min, groupTiles{1: {1, 2, 4}, 2: {1, 2, 3}, 3: {1, 2}}},
	{int8x32Min, groupTiles{1: {1, 2}, 2: {1}, 3: {1}}},
}

// groups256 writes kernels on 256-bit registers, which treat half of the lanes of
// a group after the other. Codes of 8 bits are taken apart into two of 4, so that
// all products of a group fit into sums of 16 bits.
type groups256 struct {
	groupLoops
	groupConstants
	sums [2][]reg.VecVirtual // of the groups so far, by half of the lanes and row
}

// clear begins the sums of a block.
func (g *groups256) clear() {
	for h := range g.sums {
		for range g.rows {
			s := g.YMM()
			g.VPXOR(s, s, s)
			g.sums[h] = append(g.sums[h], s)
		}
	}
}

// group adds the products of a group.
func (g *groups256) group() {
	for h, sums := range g.sums {
		parts := g.half(h)
		for r, sum := range sums {
			g.add(h, r, parts[r], sum)
		}
	}
}

// half sums a half of the lanes, by row, plane and, with codes of 8 bits, their lower and upper parts.
func (g *groups256) half(h int) [][][]reg.VecVirtual {
	nibbles := g.bits / 4
	parts := make([][][]reg.VecVirtual, g.rows)
	for r := range parts {
		parts[r] = make([][]reg.VecVirtual, g.planes)
		for p := range parts[r] {
			for range nibbles {
				parts[r][p] = append(parts[r][p], g.YMM())
			}
		}
	}
	fields := make([]reg.VecVirtual, nibbles)
	for n := range fields {
		fields[n] = g.YMM()
	}
	digits, product := g.YMM(), g.YMM()
	word := 0
	for i := range g.steps() {
		if h == 0 {
			g.fetch(i)
		}
		at := operand.Mem{Base: g.w, Disp: stepBytes*i + 32*h}
		for j := range g.fields() {
			for n, field := range fields {
				g.VMOVDQU(at, field)
				if j+n > 0 {
					g.VPSRLW(operand.U8(4*(j+n)), field, field)
				}
				g.VPAND(g.mask, field, field)
			}
			for r := range g.rows {
				for p := range g.planes {
					g.VPBROADCASTD(operand.Mem{Base: g.x, Disp: 4 * word}, digits)
					for n, field := range fields {
						to := product
						if n == nibbles-1 {
							to = digits
						}
						if i == 0 && j == 0 {
							g.VPMADDUBSW(digits, field, parts[r][p][n])
							continue
						}
						g.VPMADDUBSW(digits, field, to)
						g.VPADDW(to, parts[r][p][n], parts[r][p][n])
					}
					word++
				}
			}
		}
	}
	return parts
}

// add adds the product of a row's half of the lanes to its sum.
func (g *groups256) add(h, row int, parts [][]reg.VecVirtual, sum reg.VecVirtual) {
	planes := make([]reg.VecVirtual, g.planes)
	for p, nibbles := range parts {
		planes[p] = nibbles[0]
		g.VPMADDWD(g.ones, planes[p], planes[p])
		for _, upper := range nibbles[1:] {
			g.VPMADDWD(g.sixteens, upper, upper)
			g.VPADDD(upper, planes[p], planes[p])
		}
	}
	other := g.YMM()
	var y reg.VecVirtual
	if g.wide(g.planes) {
		y = g.wideTotal(row, planes, other)
	} else {
		y = g.total(row, planes, other)
	}
	g.VBROADCASTSS(operand.Mem{Base: g.stepsAt, Disp: 4 * row}, other)
	g.VMULPS(other, y, y)
	if g.scaleBytes == 2 {
		g.VCVTPH2PS(operand.Mem{Base: g.scalesAt, Disp: blockRows * h}, other)
		g.VMULPS(other, y, y)
	} else {
		g.VMULPS(operand.Mem{Base: g.scalesAt, Disp: 32 * h}, y, y)
	}
	if g.minimums {
		g.VBROADCASTSS(operand.Mem{Base: g.sumsAt, Disp: 4 * row}, other)
		g.VMULPS(operand.Mem{Base: g.scalesAt, Disp: g.minimumsAt() + 32*h}, other, other)
		g.VSUBPS(other, y, y)
	}
	g.VADDPS(y, sum, sum)
}

// total makes floats of the totals of a row's sums by plane.
func (g *groups256) total(row int, planes []reg.VecVirtual, other reg.VecVirtual) reg.VecVirtual {
	total := planes[len(planes)-1]
	for p := len(planes) - 2; p >= 0; p-- {
		g.VPSLLD(operand.U8(8), total, total)
		g.VPADDD(planes[p], total, total)
	}
	if g.starts() {
		g.VPBROADCASTD(operand.Mem{Base: g.startsAt, Disp: 8 * row}, other)
		g.VPADDD(other, total, total)
	}
	g.VCVTDQ2PS(total, total)
	return total
}

// wideTotal is total where it may leave 32 bits: see [groupFormat.wide].
func (g *groups256) wideTotal(row int, planes []reg.VecVirtual, other reg.VecVirtual) reg.VecVirtual {
	lower, next, upper := planes[0], planes[1], planes[2]
	g.VPSLLD(operand.U8(8), next, next)
	g.VPADDD(next, lower, lower)
	if g.starts() {
		start := operand.Mem{Base: g.startsAt, Disp: 8 * row}
		g.VPBROADCASTD(start, other)
		g.VPAND(g.lower, other, other)
		g.VPADDD(other, lower, lower)
		g.VPBROADCASTD(start.Offset(2), other)
		g.VPADDD(other, upper, upper)
	}
	g.VPSRAD(operand.U8(16), lower, next)
	g.VPADDD(next, upper, upper)
	g.VPAND(g.lower, lower, lower)
	g.VCVTDQ2PS(lower, lower)
	g.VCVTDQ2PS(upper, upper)
	g.VMULPS(g.upper, upper, upper) // exact
	g.VADDPS(lower, upper, upper)
	return upper
}

// store writes the sum of a row.
func (g *groups256) store(row int, to reg.GPVirtual) {
	for h := range g.sums {
		g.VMOVUPS(g.sums[h][row], operand.Mem{Base: to, Disp: 32 * h})
	}
}
