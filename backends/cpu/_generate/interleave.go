package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// addInterleave adds the kernel that lays the words of four rows side by side,
// in squares of four by four: its stores, of 16 bytes each, are what bounds it.
func addInterleave(c *build.Context) {
	const name = "interleave4AVX"
	function(c, name, "func(dst *uint32, stride int, src *uint32, n, squares int)",
		name+" is Set.Interleave for four rows of n words, of which it takes 4*squares.")
	dst, stride, src, n, squares := param(c, "dst"), param(c, "stride"), param(c, "src"), param(c, "n"), param(c, "squares")
	c.SHLQ(operand.U8(2), stride)
	c.SHLQ(operand.U8(2), n)
	third := c.GP64() // three rows of bytes
	c.LEAQ(operand.Mem{Base: n, Index: n, Scale: 2}, third)
	column := c.GP64() // three columns of bytes
	c.LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 2}, column)
	c.Label("square")
	var rows, pairs, columns [4]reg.VecVirtual
	for i, m := range []operand.Mem{{Base: src}, {Base: src, Index: n, Scale: 1}, {Base: src, Index: n, Scale: 2}, {Base: src, Index: third, Scale: 1}} {
		rows[i] = c.XMM()
		c.VMOVDQU(m, rows[i])
	}
	for i := range 4 {
		pairs[i], columns[i] = c.XMM(), c.XMM()
	}
	c.VPUNPCKLDQ(rows[1], rows[0], pairs[0])
	c.VPUNPCKHDQ(rows[1], rows[0], pairs[1])
	c.VPUNPCKLDQ(rows[3], rows[2], pairs[2])
	c.VPUNPCKHDQ(rows[3], rows[2], pairs[3])
	for half := range 2 {
		c.VPUNPCKLQDQ(pairs[half+2], pairs[half], columns[2*half])
		c.VPUNPCKHQDQ(pairs[half+2], pairs[half], columns[2*half+1])
	}
	for i, m := range []operand.Mem{{Base: dst}, {Base: dst, Index: stride, Scale: 1}, {Base: dst, Index: stride, Scale: 2}, {Base: dst, Index: column, Scale: 1}} {
		c.VMOVDQU(columns[i], m)
	}
	c.ADDQ(operand.I32(16), src)
	c.LEAQ(operand.Mem{Base: dst, Index: stride, Scale: 4}, dst)
	c.DECQ(squares)
	c.JNZ(operand.LabelRef("square"))
	c.RET()
}
