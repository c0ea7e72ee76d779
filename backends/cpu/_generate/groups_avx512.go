package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// groupTiles512 are those of AVX-512: a row takes a register for the sum of each
// digit and one for what its groups add up to, 24 in all.
var groupTiles512 = groupTiles{1: {1, 2, 3, 4, 6, 8, 12}, 2: {1, 2, 3, 4, 6, 8}, 3: {1, 2, 3, 4, 6}}

// groups512 writes kernels on 512-bit registers, which sum a group as dot512
// does and make floats of the sums while they are in registers.
type groups512 struct {
	groupLoops
	masks []reg.VecVirtual // of fields in place, or of the lowest
	sums  []reg.VecVirtual // of the groups so far, by row
}

// inPlace tells that fields stay in their places in the bytes, with sums of their own.
func (g *groups512) inPlace() bool { return g.rows*(g.planes*fieldsOfByte+1) <= 16 }

// constants fills the masks.
func (g *groups512) constants() {
	n := 1
	if g.inPlace() {
		n = fieldsOfByte
	}
	for j := range n {
		m, mask := g.GP32(), g.ZMM()
		g.MOVL(operand.U32(uint32(1<<groupBits-1)<<(groupBits*j)*0x01010101), m)
		g.VPBROADCASTD(m, mask)
		g.masks = append(g.masks, mask)
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
	for i := range groupSteps {
		g.fetch(i)
		g.VMOVDQU64(operand.Mem{Base: g.w, Disp: stepBytes * i}, codes)
		for j := range fieldsOfByte {
			at := 0
			switch {
			case g.inPlace():
				g.VPANDD(codes, g.masks[j], field)
				at = j
			case j == 0:
				g.VPANDD(codes, g.masks[0], field)
			default:
				g.VPSRLW(operand.U8(groupBits*j), codes, field)
				g.VPANDD(field, g.masks[0], field)
			}
			for r := range g.rows {
				for p := range g.planes {
					g.VPDPBUSD_BCST(operand.Mem{Base: g.x, Disp: 4 * word}, field, parts[r][p][at])
					word++
				}
			}
		}
	}
	scale := g.ZMM()
	g.VCVTPH2PS(operand.Mem{Base: g.scales}, scale)
	for r, sum := range g.sums {
		total := g.total(parts[r])
		g.VCVTDQ2PS(total, total)
		g.VMULPS_BCST(operand.Mem{Base: g.steps, Disp: 4 * r}, total, total)
		g.VMULPS(scale, total, total)
		g.VADDPS(total, sum, sum)
	}
}

// parts begins the sums of a group by row, plane and field; one begins with what the midpoint adds.
func (g *groups512) parts() [][][]reg.VecVirtual {
	all := make([][][]reg.VecVirtual, g.rows)
	for r := range all {
		all[r] = make([][]reg.VecVirtual, g.planes)
		for p := range all[r] {
			for j := range g.masks {
				s := g.ZMM()
				if p == 0 && j == 0 {
					g.VPBROADCASTD(operand.Mem{Base: g.starts, Disp: 8 * r}, s)
				} else {
					g.VPXORD(s, s, s)
				}
				all[r][p] = append(all[r][p], s)
			}
		}
	}
	return all
}

// total returns the total of a row's sums by plane and field. They may wrap around; the total does not.
func (g *groups512) total(parts [][]reg.VecVirtual) reg.VecVirtual {
	for _, fields := range parts {
		for j := 1; j < len(fields); j++ {
			g.VPSRAD(operand.U8(groupBits*j), fields[j], fields[j])
			g.VPADDD(fields[j], fields[0], fields[0])
		}
	}
	total := parts[len(parts)-1][0]
	for p := len(parts) - 2; p >= 0; p-- {
		g.VPSLLD(operand.U8(8), total, total)
		g.VPADDD(parts[p][0], total, total)
	}
	return total
}

// store writes the sum of a row.
func (g *groups512) store(row int, to reg.GPVirtual) { g.VMOVUPS(g.sums[row], operand.Mem{Base: to}) }
