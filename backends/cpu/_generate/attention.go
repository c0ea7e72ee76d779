package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// addAttention adds the kernels that weight values.
func addAttention(c *build.Context) {
	for _, s := range []simd{simd256, simd512} {
		for _, t := range s.weighted {
			weighted(c, s, t[0], t[1])
		}
	}
}

// valuesAhead is how many rows ahead of the one in use the values of a tile are asked for.
const valuesAhead = 16

// multiplier returns what multiplies registers with one number. A broadcast into
// 512 bits alone is a shuffle, but nothing where it is part of the product.
func (s simd) multiplier(c *build.Context, number operand.Mem) func(v, product reg.VecVirtual) {
	if s.width == sumLanes {
		return func(v, product reg.VecVirtual) { c.VMULPS_BCST(number, v, product) }
	}
	all := s.vec(c)
	c.VBROADCASTSS(number, all)
	return func(v, product reg.VecVirtual) { c.VMULPS(v, all, product) }
}

// weighted adds a kernel that adds the values of all positions, times the
// weights of some heads, for a tile of columns after another, then for single
// registers of columns.
func weighted(c *build.Context, s simd, heads, registers int) {
	name := s.weightedName(heads, registers)
	function(c, name, "func(dst, w, values *float32, dim, positions, stride int)",
		fmt.Sprintf("%s sums the values for %d heads, %d registers of columns at once.", name, heads, registers))
	values, cols := param(c, "values"), param(c, "dim")
	rowBytes := paramBytes(c, "dim", floatBytes) // of a head and of a position
	w, dst := newRowSet(c, heads, paramBytes(c, "stride", floatBytes)), newRowSet(c, heads, rowBytes)
	c.Load(c.Param("dst"), dst.bases[0])
	dst.setBase(c)

	load := loadFloats(c)
	// tile does the columns of some registers.
	tile := func(loop string, registers int, mask reg.Register) {
		c.Load(c.Param("w"), w.bases[0])
		w.setBase(c)
		row, left, next := c.GP64(), param(c, "positions"), paramBytes(c, "dim", valuesAhead*floatBytes)
		c.MOVQ(values, row)
		c.ADDQ(values, next)
		sums := s.zeros(c, heads*registers)
		c.Label(loop)
		value := func(i int) operand.Mem { return operand.Mem{Base: row, Disp: i * s.width * floatBytes} }
		numbers := s.vecs(c, registers)
		if heads == 1 {
			multiply := s.multiplier(c, w.at(0, 0))
			for i, sum := range sums {
				load(value(i), mask, numbers[i])
				multiply(numbers[i], numbers[i])
				c.VADDPS(numbers[i], sum, sum)
			}
		} else {
			for i, v := range numbers {
				load(value(i), mask, v)
			}
			for h := range heads {
				multiply, product := s.multiplier(c, w.at(h, 0)), s.vec(c)
				for i, v := range numbers {
					multiply(v, product)
					sum := sums[h*registers+i]
					c.VADDPS(product, sum, sum)
				}
			}
		}
		w.advance(c, floatBytes)
		// A tile takes a part of each row, which is too far from the last for the
		// machine to foresee: it is asked for, and so is that of the tile to come.
		c.PREFETCHT0(operand.Mem{Base: next})
		for at := 0; at < registers*s.width*floatBytes; at += 64 {
			c.PREFETCHT1(operand.Mem{Base: row, Disp: registers*s.width*floatBytes + at})
		}
		c.ADDQ(rowBytes, next)
		c.ADDQ(rowBytes, row)
		c.DECQ(left)
		c.JNZ(operand.LabelRef(loop))
		for h := range heads {
			for i := range registers {
				to, sum := dst.at(h, i*s.width*floatBytes), sums[h*registers+i]
				if mask == nil {
					c.VMOVUPS(sum, to)
				} else {
					c.VMOVUPS(sum, mask, to)
				}
			}
		}
	}
	// tiles does as many tiles as there are columns for.
	tiles := func(name string, registers int) {
		end := name + "end"
		c.SUBQ(operand.I32(registers*s.width), cols)
		c.JLT(operand.LabelRef(end))
		c.Label(name)
		tile(name+"position", registers, nil)
		dst.advance(c, registers*s.width*floatBytes)
		c.ADDQ(operand.I32(registers*s.width*floatBytes), values)
		c.SUBQ(operand.I32(registers*s.width), cols)
		c.JGE(operand.LabelRef(name))
		c.Label(end)
		c.ADDQ(operand.I32(registers*s.width), cols)
	}
	tiles("many", registers)
	if s.width == sumLanes || registers*s.width > sumLanes { // columns may be left over
		tiles("one", 1)
	}
	if s.width == sumLanes {
		mask := ragged(c, cols)
		c.KTESTW(mask, mask)
		c.JZ(operand.LabelRef("done"))
		tile("tailposition", 1, mask)
		c.Label("done")
	}
	c.VZEROUPPER()
	c.RET()
}
