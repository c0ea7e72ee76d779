package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// groups512Table lists the kernels of AVX-512: a row takes a register for the sum of
// each digit and one for what its groups add up to, 24 in all.
var groups512Table = groupTable{
	{int4x32, groupTiles{1: {1, 2, 3, 4, 6, 8, 12}, 2: {1, 2, 3, 4, 6, 8}, 3: {1, 2, 3, 4, 6}}},
	{int8x32, groupTiles{1: {1, 2, 4, 8, 12}, 2: {1, 2, 4, 8}, 3: {1, 2, 4, 6}}},
	{int8x16, groupTiles{1: {1, 2, 4, 8, 12}, 2: {1, 2, 4, 8}, 3: {1, 2, 4, 6}}},
	{int4x32Min, groupTiles{1: {1, 2, 4, 8, 12}, 2: {1, 2, 4, 8}, 3: {1, 2, 4, 6}}},
	{int8x32Min, groupTiles{1: {1, 2, 4, 8, 12}, 2: {1, 2, 4, 8}, 3: {1, 2, 4, 6}}},
}

// groups512 writes kernels on 512-bit registers, which sum a group as dot512
// does and make floats of the sums while they are in registers.
type groups512 struct {
	groupLoops
	masks []reg.VecVirtual // of fields in place, or of the lowest
	lower reg.VecVirtual   // lowerMask, where sums are wide
	upper reg.VecVirtual   // upperUnit
	sums  []reg.VecVirtual // of the groups so far, by row
}

// inPlace tells that fields stay in their places in the bytes, with sums of their own.
func (g *groups512) inPlace() bool { return g.rows*(g.planes*g.fields()+1) <= 16 }

// partial returns the number of sums of a row and digit.
func (g *groups512) partial() int {
	if g.inPlace() {
		return g.fields()
	}
	return 1
}

// constants fills the masks.
func (g *groups512) constants() {
	constant := func(value uint32) reg.VecVirtual {
		m, v := g.GP32(), g.ZMM()
		g.MOVL(operand.U32(value), m)
		g.VPBROADCASTD(m, v)
		return v
	}
	if g.bits < 8 {
		for j := range g.partial() {
			g.masks = append(g.masks, constant(uint32(1<<g.bits-1)<<(g.bits*j)*0x01010101))
		}
	}
	if g.wide(g.planes) {
		g.lower, g.upper = constant(lowerMask), constant(upperUnit)
	}
}

// clear begins the sums of a block.
func (g *groups512) clear() {
	for range g.rows {
		s := g.ZMM()
		g.VPXORD(s, s, s)
		g.sums = append(g.sums, s)
	}
}

// group adds the products of a group.
func (g *groups512) group() {
	parts := g.parts()
	codes, field := g.ZMM(), g.ZMM()
	word := 0
	for i := range g.steps() {
		g.fetch(i)
		g.VMOVDQU64(operand.Mem{Base: g.w, Disp: stepBytes * i}, codes)
		for j := range g.fields() {
			at, v := 0, field
			switch {
			case g.bits == 8:
				v = codes
			case g.inPlace():
				g.VPANDD(codes, g.masks[j], field)
				at = j
			case j == 0:
				g.VPANDD(codes, g.masks[0], field)
			default:
				g.VPSRLW(operand.U8(g.bits*j), codes, field)
				g.VPANDD(field, g.masks[0], field)
			}
			for r := range g.rows {
				for p := range g.planes {
					g.VPDPBUSD_BCST(operand.Mem{Base: g.x, Disp: 4 * word}, v, parts[r][p][at])
					word++
				}
			}
		}
	}
	scale, minimum := g.ZMM(), g.ZMM()
	if g.scaleBytes == 2 {
		g.VCVTPH2PS(operand.Mem{Base: g.scalesAt}, scale)
	} else {
		g.VMOVUPS(operand.Mem{Base: g.scalesAt}, scale)
	}
	if g.minimums {
		g.VMOVUPS(operand.Mem{Base: g.scalesAt, Disp: g.minimumsAt()}, minimum)
	}
	for r, sum := range g.sums {
		y := g.total(parts[r])
		g.VMULPS_BCST(operand.Mem{Base: g.stepsAt, Disp: 4 * r}, y, y)
		g.VMULPS(scale, y, y)
		if g.minimums {
			less := codes // which are used up
			g.VMULPS_BCST(operand.Mem{Base: g.sumsAt, Disp: 4 * r}, minimum, less)
			g.VSUBPS(less, y, y)
		}
		g.VADDPS(y, sum, sum)
	}
}

// parts begins the sums of a group by row, plane and field, with what the midpoint adds.
func (g *groups512) parts() [][][]reg.VecVirtual {
	all := make([][][]reg.VecVirtual, g.rows)
	for r := range all {
		all[r] = make([][]reg.VecVirtual, g.planes)
		start := operand.Mem{Base: g.startsAt, Disp: 8 * r}
		for p := range all[r] {
			for j := range g.partial() {
				s := g.ZMM()
				switch wide := g.wide(g.planes); {
				case g.starts() && p == 0 && j == 0:
					g.VPBROADCASTD(start, s)
					if wide {
						g.VPANDD(g.lower, s, s)
					}
				case g.starts() && p == 2 && wide:
					g.VPBROADCASTD(start.Offset(2), s)
				default:
					g.VPXORD(s, s, s)
				}
				all[r][p] = append(all[r][p], s)
			}
		}
	}
	return all
}

// total makes floats of the totals of a row's sums by plane and field. Those may wrap
// around; what becomes a float does not.
func (g *groups512) total(parts [][]reg.VecVirtual) reg.VecVirtual {
	for _, fields := range parts {
		for j := 1; j < len(fields); j++ {
			g.VPSRAD(operand.U8(g.bits*j), fields[j], fields[j])
			g.VPADDD(fields[j], fields[0], fields[0])
		}
	}
	if g.wide(g.planes) {
		lower, next, upper := parts[0][0], parts[1][0], parts[2][0]
		g.VPSLLD(operand.U8(8), next, next)
		g.VPADDD(next, lower, lower)
		g.VPSRAD(operand.U8(16), lower, next)
		g.VPADDD(next, upper, upper)
		g.VPANDD(g.lower, lower, lower)
		g.VCVTDQ2PS(lower, lower)
		g.VCVTDQ2PS(upper, upper)
		g.VFMADD132PS(g.upper, lower, upper) // the product is exact
		return upper
	}
	total := parts[len(parts)-1][0]
	for p := len(parts) - 2; p >= 0; p-- {
		g.VPSLLD(operand.U8(8), total, total)
		g.VPADDD(parts[p][0], total, total)
	}
	g.VCVTDQ2PS(total, total)
	return total
}

// store writes the sum of a row.
func (g *groups512) store(row int, to reg.GPVirtual) { g.VMOVUPS(g.sums[row], operand.Mem{Base: to}) }
