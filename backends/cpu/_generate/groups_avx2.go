package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// groupTiles256 are those of AVX2: a row takes a register for the sum of each
// digit and two for what its groups add up to, and what is left of 16 holds codes, digits and products.
var groupTiles256 = groupTiles{1: {1, 2, 4}, 2: {1, 2, 3}, 3: {1, 2}}

// groups256 writes kernels on 256-bit registers, which treat half of the lanes of
// a group after the other. All products of a group fit into sums of 16 bits.
type groups256 struct {
	groupLoops
	mask, ones operand.Mem         // what selects a code in bytes, and 1 in words
	sums       [2][]reg.VecVirtual // of the groups so far, by half of the lanes and row
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

// half sums a half of the lanes, by row and plane.
func (g *groups256) half(h int) [][]reg.VecVirtual {
	parts := make([][]reg.VecVirtual, g.rows)
	for r := range parts {
		for range g.planes {
			parts[r] = append(parts[r], g.YMM())
		}
	}
	field, digits := g.YMM(), g.YMM()
	word := 0
	for i := range groupSteps {
		if h == 0 {
			g.fetch(i)
		}
		at := operand.Mem{Base: g.w, Disp: stepBytes*i + 32*h}
		for j := range fieldsOfByte {
			g.VMOVDQU(at, field)
			if j > 0 {
				g.VPSRLW(operand.U8(groupBits*j), field, field)
			}
			g.VPAND(g.mask, field, field)
			for r := range g.rows {
				for p := range g.planes {
					g.VPBROADCASTD(operand.Mem{Base: g.x, Disp: 4 * word}, digits)
					if i == 0 && j == 0 {
						g.VPMADDUBSW(digits, field, parts[r][p])
					} else {
						g.VPMADDUBSW(digits, field, digits)
						g.VPADDW(digits, parts[r][p], parts[r][p])
					}
					word++
				}
			}
		}
	}
	return parts
}

// add adds the product of a row's half of the lanes to its sum.
func (g *groups256) add(h, row int, parts []reg.VecVirtual, sum reg.VecVirtual) {
	for _, p := range parts {
		g.VPMADDWD(g.ones, p, p)
	}
	total := parts[len(parts)-1]
	for p := len(parts) - 2; p >= 0; p-- {
		g.VPSLLD(operand.U8(8), total, total)
		g.VPADDD(parts[p], total, total)
	}
	other := g.YMM()
	g.VPBROADCASTD(operand.Mem{Base: g.starts, Disp: 8 * row}, other)
	g.VPADDD(other, total, total)
	g.VCVTDQ2PS(total, total)
	g.VBROADCASTSS(operand.Mem{Base: g.steps, Disp: 4 * row}, other)
	g.VMULPS(other, total, total)
	g.VCVTPH2PS(operand.Mem{Base: g.scales, Disp: blockRows * h}, other)
	g.VMULPS(other, total, total)
	g.VADDPS(total, sum, sum)
}

// store writes the sum of a row.
func (g *groups256) store(row int, to reg.GPVirtual) {
	for h := range g.sums {
		g.VMOVUPS(g.sums[h][row], operand.Mem{Base: to, Disp: 32 * h})
	}
}
