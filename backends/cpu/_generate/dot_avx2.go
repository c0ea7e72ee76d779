package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tiles256 lists the numbers of activation rows of the AVX2 kernels: with 12
// sums, what is left of the 16 registers holds codes, digits and products.
var tiles256 = []int{1, 2, 3, 4, 6}

// addDots256 adds the products of codes with digits on 256-bit registers.
func addDots256(c *build.Context) {
	two, four := words256(c, "dotMask2", 3, 1), words256(c, "dotMask4", 15, 1)
	masks := map[int]operand.Mem{2: two, 4: four, 8: four}
	weights := []operand.Mem{words256(c, "dotOne", 1, 2), words256(c, "dotHigh", 16, 2)}
	for _, bits := range []int{2, 4, 8} {
		for _, rows := range tiles256 {
			d := dot256{Context: c, bits: bits, rows: rows, part: min(bits, 4), mask: masks[bits], weights: weights}
			d.add()
		}
	}
}

// words256 defines 32 bytes in memory that repeat a number of so many bytes.
func words256(c *build.Context, name string, value uint64, bytes int) operand.Mem {
	at := c.StaticGlobal(name)
	c.DataAttributes(attr.RODATA | attr.NOPTR)
	for shift := bytes; shift < 8; shift += bytes {
		value |= value & (1<<(8*bytes) - 1) << (8 * shift)
	}
	for i := range 4 {
		c.AddDatum(8*i, operand.U64(value))
	}
	return at
}

// dot256 writes kernels on 256-bit registers, where a step is two registers.
//
// VPMADDUBSW multiplies codes of at most 4 bits with digits and adds pairs to 16
// bits; so many of those are added that they still fit, and only then widened.
// Codes of 8 bits are taken apart into two of 4.
type dot256 struct {
	*build.Context
	bits, rows int
	// part is the number of bits that are multiplied at once.
	part int
	// mask selects a part; held is the same in a register, nil where none is left.
	mask operand.Mem
	held operand.Op
	// weights of the parts, lowest first.
	weights []operand.Mem
}

// chunk returns how many steps fit into sums of 16 bits.
func (d *dot256) chunk() int {
	pair := (1<<d.part - 1) * 128 * 2
	return (1<<15 - 1) / pair / max(1, 8/d.bits)
}

// add adds a kernel.
func (d *dot256) add() {
	name := dotName(d.bits, d.rows, "AVX2")
	doc := fmt.Sprintf("%s is Set.Dot for int%d and rows in tiles of %d.", name, d.bits, d.rows)
	constants := func() {
		if d.rows < 6 && d.bits < 8 || d.rows < 3 || d.rows == 4 {
			held := d.YMM()
			d.VMOVDQU(d.mask, held)
			d.held = held
		}
	}
	dotFrame(d.Context, name, doc, constants, func(l dotLoops) {
		sums := d.YMM()
		d.VPXOR(sums, sums, sums)
		for i := range 2 * d.rows {
			d.VMOVDQU(sums, operand.Mem{Base: l.totals, Disp: 32 * i})
		}
		left := d.GP64()
		d.Label("chunk")
		d.MOVQ(operand.U32(d.chunk()), left)
		d.CMPQ(l.steps, left)
		d.CMOVQLT(l.steps, left)
		d.SUBQ(left, l.steps)
		if d.bits == 8 && d.rows > 3 {
			// The registers hold the sums of half the lanes: the codes are read twice, the second time from the nearest cache.
			w, x, n := d.GP64(), d.GP64(), d.GP64()
			d.MOVQ(l.w, w)
			d.MOVQ(l.x, x)
			d.MOVQ(left, n)
			d.steps(l, left, 0, 1)
			d.MOVQ(w, l.w)
			d.MOVQ(x, l.x)
			d.steps(l, n, 1, 2)
		} else {
			d.steps(l, left, 0, 2)
		}
		d.TESTQ(l.steps, l.steps)
		d.JNZ(operand.LabelRef("chunk"))
		d.ADDQ(operand.I32(64*d.rows), l.totals)
	})
}

// steps writes the loop over left steps for the halves from..to of the lanes,
// and adds its sums to the totals.
func (d *dot256) steps(l dotLoops, left reg.GPVirtual, from, to int) {
	parts := d.bits / d.part
	var sums [2][2][]reg.VecVirtual // by half, part of the codes and row
	for h := from; h < to; h++ {
		for p := range parts {
			for range d.rows {
				s := d.YMM()
				d.VPXOR(s, s, s)
				sums[h][p] = append(sums[h][p], s)
			}
		}
	}
	digits, product := d.YMM(), d.YMM()
	label := fmt.Sprintf("step%d", from)
	d.Label(label)
	// Digits are loaded once for the parts whose codes are in registers together.
	together := parts
	if d.rows == 3 {
		together = 1
	}
	words := 8 / d.bits
	for j := range words {
		for p := 0; p < parts; p += together {
			var codes [2][2]reg.VecVirtual
			for q := p; q < p+together; q++ {
				for h := from; h < to; h++ {
					codes[h][q] = d.YMM()
					d.codes(operand.Mem{Base: l.w, Disp: 32 * h}, codes[h][q], d.bits*j+d.part*q)
				}
			}
			for r := range d.rows {
				d.VPBROADCASTD(operand.Mem{Base: l.x, Disp: 4 * (j*d.rows + r)}, digits)
				for q := p; q < p+together; q++ {
					for h := from; h < to; h++ {
						d.VPMADDUBSW(digits, codes[h][q], product)
						d.VPADDW(product, sums[h][q][r], sums[h][q][r])
					}
				}
			}
		}
	}
	d.ADDQ(operand.I32(stepBytes), l.w)
	d.ADDQ(operand.I32(4*words*d.rows), l.x)
	d.DECQ(left)
	d.JNZ(operand.LabelRef(label))
	for r := range d.rows {
		for h := from; h < to; h++ {
			at := operand.Mem{Base: l.totals, Disp: 64*r + 32*h}
			for p := range parts {
				s := sums[h][p][r]
				d.VPMADDWD(d.weights[p], s, s)
				d.VPADDD(at, s, s)
				d.VMOVDQU(s, at)
			}
		}
	}
}

// codes loads the parts of codes that begin at a bit.
func (d *dot256) codes(at operand.Mem, dst reg.VecVirtual, bit int) {
	if bit == 0 && d.held != nil {
		d.VPAND(at, d.held, dst)
		return
	}
	d.VMOVDQU(at, dst)
	if bit > 0 {
		d.VPSRLW(operand.U8(bit), dst, dst)
	}
	if d.held != nil {
		d.VPAND(d.held, dst, dst)
	} else {
		d.VPAND(d.mask, dst, dst)
	}
}
