package main

import (
	"fmt"
	"io"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// stepBytes is the size of a step of a block. Steps follow each other through a
// worker's whole share of a matrix, which the hardware fetches ahead better
// alone: asking for lines in software cost a tenth of the bandwidth.
const stepBytes = 64

// tiles512 lists the numbers of activation rows of the AVX-512 kernels: with 24
// sums, what is left of the 32 registers holds codes, mask and a temporary.
var tiles512 = []int{1, 2, 3, 4, 6, 8, 12, 16, 24}

// addDots adds the products of codes with digits.
func addDots(c *build.Context) {
	for _, bits := range []int{2, 4, 8} {
		for _, rows := range tiles512 {
			dot512(c, bits, rows)
		}
	}
}

// dotName names a kernel.
func dotName(bits, rows int, isa string) string { return fmt.Sprintf("dot%dx%d%s", bits, rows, isa) }

// dotTable writes the Go table of an instruction set's kernels, indexed by bits and rows.
func dotTable(w io.Writer, isa string, tiles []int) {
	fmt.Fprintf(w, "\n// dots%s holds the products of codes by bits and rows.\nvar dots%[1]s = [9][%d]dotFunc{\n", isa, tiles[len(tiles)-1]+1)
	for _, bits := range []int{2, 4, 8} {
		fmt.Fprintf(w, "\t%d: {\n", bits)
		for _, rows := range tiles {
			fmt.Fprintf(w, "\t\t%d: %s,\n", rows, dotName(bits, rows, isa))
		}
		fmt.Fprint(w, "\t},\n")
	}
	fmt.Fprint(w, "}\n")
}

// dotSignature is that of every dot kernel.
const dotSignature = "func(totals *int32, w *byte, x, odd *uint32, blocks, stride, groups, steps int)"

// dotLoops holds the registers of the loops around a kernel's innermost one.
type dotLoops struct {
	totals, w, x, steps reg.GPVirtual
}

// dotFrame declares a kernel and writes its loops over blocks and groups. body
// writes the sums of one group: it advances w and x by what it reads, and
// totals by what it writes. constants fills registers before all.
func dotFrame(c *build.Context, name, doc string, constants func(), body func(l dotLoops)) {
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr(dotSignature)
	c.Doc(doc)
	c.Pragma("noescape")
	load := func(param string, r reg.GPVirtual) reg.GPVirtual {
		c.Load(c.Param(param), r)
		return r
	}
	l := dotLoops{totals: load("totals", c.GP64()), w: load("w", c.GP64()), x: c.GP64(), steps: c.GP64()}
	first, odd, blocks := load("x", c.GP64()), load("odd", c.GP64()), load("blocks", c.GP64())
	block, group := c.GP64(), c.GP64()
	constants()
	c.Label("block")
	c.MOVQ(first, l.x)
	c.MOVQ(l.w, block)
	load("groups", group)
	c.Label("group")
	load("steps", l.steps)
	body(l)
	c.DECQ(group)
	c.JNZ(operand.LabelRef("group"))
	load("stride", l.w)
	c.ADDQ(block, l.w)
	c.XCHGQ(first, odd)
	c.DECQ(blocks)
	c.JNZ(operand.LabelRef("block"))
	c.VZEROUPPER()
	c.RET()
}

// dot512 adds a kernel on 512-bit registers: a register holds a step of codes of
// 16 lanes, and VPDPBUSD adds their products with four digits of one row, the same for all lanes.
func dot512(c *build.Context, bits, rows int) {
	mask := c.ZMM()
	constants := func() {
		if bits < 8 {
			m := c.GP32()
			c.MOVL(operand.U32(uint32(1<<bits-1)*0x01010101), m)
			c.VPBROADCASTD(m, mask)
		}
	}
	name := dotName(bits, rows, "AVX512")
	dotFrame(c, name, fmt.Sprintf("%s is Set.Dot for int%d and rows in tiles of %d.", name, bits, rows), constants, func(l dotLoops) {
		words := 8 / bits
		// A sum is ready for the next addition after some cycles: few rows take several sums each.
		chains := 1
		for chains < words && chains*rows < 8 {
			chains *= 2
		}
		sums := make([][]reg.VecVirtual, chains)
		for i := range sums {
			sums[i] = make([]reg.VecVirtual, rows)
			for r := range rows {
				sums[i][r] = c.ZMM()
				c.VPXORD(sums[i][r], sums[i][r], sums[i][r])
			}
		}
		codes, field := c.ZMM(), c.ZMM()
		label := "step"
		c.Label(label)
		c.VMOVDQU64(operand.Mem{Base: l.w}, codes)
		for j := range words {
			v := field
			switch {
			case bits == 8:
				v = codes
			case j == 0:
				c.VPANDD(codes, mask, field)
			default:
				c.VPSRLW(operand.U8(bits*j), codes, field)
				c.VPANDD(field, mask, field)
			}
			for r := range rows {
				c.VPDPBUSD_BCST(operand.Mem{Base: l.x, Disp: 4 * (j*rows + r)}, v, sums[j%chains][r])
			}
		}
		c.ADDQ(operand.I32(stepBytes), l.w)
		c.ADDQ(operand.I32(4*words*rows), l.x)
		c.DECQ(l.steps)
		c.JNZ(operand.LabelRef(label))
		for r := range rows {
			for n := chains; n > 1; n /= 2 {
				for i := range n / 2 {
					c.VPADDD(sums[i+n/2][r], sums[i][r], sums[i][r])
				}
			}
			c.VMOVDQU32(sums[0][r], operand.Mem{Base: l.totals, Disp: 64 * r})
		}
		c.ADDQ(operand.I32(64*rows), l.totals)
	})
}
