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
			d := dot512{Context: c, bits: bits, rows: rows}
			d.add()
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
const dotSignature = "func(totals *int32, w *byte, x, odd *uint32, blocks, stride, steps int)"

// dotLoops holds the registers of the loops around a kernel's innermost one.
type dotLoops struct {
	totals, w, x, steps reg.GPVirtual
}

// dotFrame declares a kernel and writes its loop over blocks. body writes the
// sums of one block: it advances w and x by what it reads, and totals by what it
// writes. constants fills registers before all.
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
	block := c.GP64()
	constants()
	c.Label("block")
	c.MOVQ(first, l.x)
	c.MOVQ(l.w, block)
	load("steps", l.steps)
	body(l)
	load("stride", l.w)
	c.ADDQ(block, l.w)
	c.XCHGQ(first, odd)
	c.DECQ(blocks)
	c.JNZ(operand.LabelRef("block"))
	c.VZEROUPPER()
	c.RET()
}

// sumRegisters is how many registers the sums may take.
const sumRegisters = 24

// dot512 writes kernels on 512-bit registers: a register holds a step of codes
// of 16 lanes, and VPDPBUSD adds their products with four digits of one row, the
// same for all lanes.
//
// Where there are registers for it, the codes of a byte stay in their places:
// field j counts 2^(bits*j) times, has sums of its own, and these are shifted
// down at the end, which is exact since all terms are multiples. That spares a
// shift for each field. 2^6 * 3 * 128 * quant.MaxBlockCols/4 still fits in 32 bits.
type dot512 struct {
	*build.Context
	bits, rows int
	// inPlace tells that fields have sums of their own.
	inPlace bool
	masks   []reg.VecVirtual // of fields in place, or of the lowest
	sums    [][]reg.VecVirtual
}

// fields returns the number of codes in a byte.
func (d *dot512) fields() int { return 8 / d.bits }

// add adds a kernel.
func (d *dot512) add() {
	d.inPlace = d.fields()*d.rows <= sumRegisters
	name := dotName(d.bits, d.rows, "AVX512")
	doc := fmt.Sprintf("%s is Set.Dot for int%d and rows in tiles of %d.", name, d.bits, d.rows)
	dotFrame(d.Context, name, doc, d.constants, d.block)
}

// constants fills the masks.
func (d *dot512) constants() {
	n := 1
	switch {
	case d.bits == 8:
		return
	case d.inPlace:
		n = d.fields()
	}
	for j := range n {
		m, mask := d.GP32(), d.ZMM()
		d.MOVL(operand.U32(uint32(1<<d.bits-1)<<(d.bits*j)*0x01010101), m)
		d.VPBROADCASTD(m, mask)
		d.masks = append(d.masks, mask)
	}
}

// block writes the sums of one block.
func (d *dot512) block(l dotLoops) {
	// A sum is ready for the next addition after some cycles: few rows take the
	// sums of two or four steps.
	fields := 1
	if d.inPlace {
		fields = d.fields()
	}
	steps := 1
	for 2*steps*fields*d.rows <= 8 {
		steps *= 2
	}
	d.sums = nil
	for range steps * fields {
		row := make([]reg.VecVirtual, d.rows)
		for r := range row {
			row[r] = d.ZMM()
			d.VPXORD(row[r], row[r], row[r])
		}
		d.sums = append(d.sums, row)
	}
	codes, field := d.ZMM(), d.ZMM()
	if steps > 1 {
		d.SUBQ(operand.I32(int32(steps)), l.steps)
		d.JLT(operand.LabelRef("rest"))
	}
	d.Label("step")
	for i := range steps {
		d.step(l, i, i*fields, codes, field)
	}
	d.advance(l, steps)
	if steps > 1 {
		d.SUBQ(operand.I32(int32(steps)), l.steps)
		d.JGE(operand.LabelRef("step"))
		d.Label("rest")
		d.ADDQ(operand.I32(int32(steps)), l.steps)
		d.JZ(operand.LabelRef("done"))
		d.Label("one")
		d.step(l, 0, 0, codes, field)
		d.advance(l, 1)
		d.DECQ(l.steps)
		d.JNZ(operand.LabelRef("one"))
		d.Label("done")
	} else {
		d.DECQ(l.steps)
		d.JNZ(operand.LabelRef("step"))
	}
	for r := range d.rows {
		for i := len(d.sums) - 1; i >= fields; i-- { // of the same field in other steps
			d.VPADDD(d.sums[i][r], d.sums[i-fields][r], d.sums[i-fields][r])
		}
		for j := 1; j < fields; j++ {
			d.VPSRAD(operand.U8(d.bits*j), d.sums[j][r], d.sums[j][r])
			d.VPADDD(d.sums[j][r], d.sums[0][r], d.sums[0][r])
		}
		d.VMOVDQU32(d.sums[0][r], operand.Mem{Base: l.totals, Disp: 64 * r})
	}
	d.ADDQ(operand.I32(64*d.rows), l.totals)
}

// step adds the products of step i from here, with the sums from the first on.
func (d *dot512) step(l dotLoops, i, first int, codes, field reg.VecVirtual) {
	at := operand.Mem{Base: l.w, Disp: stepBytes * i}
	d.VMOVDQU64(at, codes)
	for j := range d.fields() {
		sum, v := d.sums[first], field
		switch {
		case d.bits == 8:
			v = codes
		case d.inPlace:
			d.VPANDD(codes, d.masks[j], field)
			sum = d.sums[first+j]
		case j == 0:
			d.VPANDD(codes, d.masks[0], field)
		default:
			d.VPSRLW(operand.U8(d.bits*j), codes, field)
			d.VPANDD(field, d.masks[0], field)
		}
		for r := range d.rows {
			d.VPDPBUSD_BCST(operand.Mem{Base: l.x, Disp: 4 * ((i*d.fields()+j)*d.rows + r)}, v, sum[r])
		}
	}
}

// advance goes on by some steps.
func (d *dot512) advance(l dotLoops, steps int) {
	d.ADDQ(operand.I32(int32(stepBytes*steps)), l.w)
	d.ADDQ(operand.I32(int32(4*d.fields()*d.rows*steps)), l.x)
}
