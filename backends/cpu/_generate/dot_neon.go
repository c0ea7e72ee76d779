package main

import "fmt"

// prefetchBytes is how far ahead of the bytes in use the next ones are asked for.
const prefetchBytes = 4096

// tilesNEON lists the numbers of activation rows of the NEON kernels: with 24
// sums, what is left of the 32 registers holds codes and digits.
var tilesNEON = []int{1, 2, 3, 4, 6}

// addDotsNEON adds the products of codes with digits on 128-bit registers.
func addDotsNEON(a *arm64) {
	for _, bits := range []int{2, 4, 8} {
		for _, rows := range tilesNEON {
			d := dotNEON{arm64: a, bits: bits, rows: rows}
			d.add()
		}
	}
}

// dotNEON writes kernels on 128-bit registers, where a step is four registers.
//
// SDOT multiplies signed bytes. Codes of at most 4 bits are not negative as such;
// of codes of 8 bits 128 is taken, and 128 times the sum of the digits added to the total.
type dotNEON struct {
	*arm64
	bits, rows int

	// sums by chain, row and register of codes.
	sums [][][4]vreg
	// digits hold the words of a step, and digitSums the sums of the digits in each of their lanes.
	digits, digitSums []vreg
	// mask selects the low bits of bytes, or is 128 in all for codes of 8 bits.
	mask, ones vreg
	masked     bool
}

// add adds a kernel.
func (d *dotNEON) add() {
	name := dotName(d.bits, d.rows, "NEON")
	d.function(name, fmt.Sprintf("%s is Set.Dot for int%d and rows in tiles of %d.", name, d.bits, d.rows), dotSignature)
	totals, block, first, odd := d.load("totals"), d.load("w"), d.load("x"), d.load("odd")
	blocks, stride, steps := d.load("blocks"), d.load("stride"), d.load("steps")
	w, x, left := d.x(), d.x(), d.x()
	d.registers()
	d.label("block")
	d.op("MOVD", first, x)
	d.op("MOVD", block, w)
	d.op("MOVD", steps, left)
	d.clear()
	d.label("step")
	d.step(w, x)
	d.op("SUBS", imm(1), left, left)
	d.op("BNE", "step")
	d.store(totals)
	d.op("ADD", stride, block, block)
	d.op("MOVD", first, x)
	d.op("MOVD", odd, first)
	d.op("MOVD", x, odd)
	d.op("SUBS", imm(1), blocks, blocks)
	d.op("BNE", "block")
	d.op("RET")
}

// registers takes the vector registers and fills the constant ones.
func (d *dotNEON) registers() {
	words := 8 / d.bits
	// A sum is ready for the next addition after some cycles: few rows take two sums each.
	chains := 1
	if words > 1 && d.rows <= 2 {
		chains = 2
	}
	for range chains {
		sums := make([][4]vreg, d.rows)
		for r := range sums {
			sums[r] = [4]vreg(d.vectors(4))
		}
		d.sums = append(d.sums, sums)
	}
	d.digits = d.vectors((words*d.rows + 3) / 4)
	// The widest tile of 2 bits leaves no register for a mask.
	d.masked = d.bits == 4 || d.bits == 2 && d.rows < 6
	switch {
	case d.masked:
		d.mask = d.v()
		d.op("VMOVI", imm(1<<d.bits-1), d.mask.as("B16"))
	case d.bits == 8:
		d.digitSums = d.vectors(len(d.digits))
		d.mask, d.ones = d.v(), d.v()
		d.op("VMOVI", imm(128), d.mask.as("B16"))
		d.op("VMOVI", imm(1), d.ones.as("B16"))
	}
}

// clear sets the sums to 0.
func (d *dotNEON) clear() {
	for _, chain := range d.sums {
		for _, row := range chain {
			for _, s := range row {
				d.zero(s)
			}
		}
	}
	for _, s := range d.digitSums {
		d.zero(s)
	}
}

// step adds a step to the sums, and advances w and x.
func (d *dotNEON) step(w, x xreg) {
	words := 8 / d.bits
	d.op("PRFM", mem(w, prefetchBytes), "PLDL1KEEP")
	for i, v := range d.digits {
		at, n := mem(x, 16*i), min(4, words*d.rows-4*i)
		switch n {
		case 3:
			// The fourth word belongs to the next step, or to nobody.
			last := d.x()
			d.op("FMOVD", at, v)
			d.op("MOVWU", mem(x, 16*i+8), last)
			d.op("VMOV", last, v.as("S[2]"))
			d.freeX(last)
		default:
			d.op([...]string{1: "FMOVS", 2: "FMOVD", 4: "FMOVQ"}[n], at, v)
		}
	}
	for i, s := range d.digitSums {
		d.op3(sdot, s, d.ones, d.digits[i])
	}
	for q := range 4 {
		codes := d.v()
		d.op("FMOVQ", mem(w, 16*q), codes)
		for j := range words {
			field := d.field(codes, j)
			for r := range d.rows {
				word := j*d.rows + r
				d.dotLane(d.sums[j%len(d.sums)][r][q], field, d.digits[word/4], word%4)
			}
			if field != codes {
				d.freeV(field)
			}
		}
		d.freeV(codes)
	}
	d.op("ADD", imm(stepBytes), w, w)
	d.op("ADD", imm(4*words*d.rows), x, x)
}

// field returns a register with code j of every byte. The last one takes the place of all.
func (d *dotNEON) field(codes vreg, j int) vreg {
	if d.bits == 8 {
		d.op("VEOR", d.mask.as("B16"), codes.as("B16"), codes.as("B16"))
		return codes
	}
	v, shift := codes, d.bits*j
	last := shift+d.bits == 8
	if !last {
		v = d.v()
	}
	switch {
	case last:
		d.op("VUSHR", imm(shift), codes.as("B16"), v.as("B16"))
	case d.masked && j == 0:
		d.op("VAND", d.mask.as("B16"), codes.as("B16"), v.as("B16"))
	case d.masked:
		d.op("VUSHR", imm(shift), codes.as("B16"), v.as("B16"))
		d.op("VAND", d.mask.as("B16"), v.as("B16"), v.as("B16"))
	default:
		d.op("VSHL", imm(8-d.bits-shift), codes.as("B16"), v.as("B16"))
		d.op("VUSHR", imm(8-d.bits), v.as("B16"), v.as("B16"))
	}
	return v
}

// store writes the totals of a block, and advances totals.
func (d *dotNEON) store(totals xreg) {
	for _, s := range d.digitSums {
		d.op("VSHL", imm(7), s.as("S4"), s.as("S4"))
	}
	for r := range d.rows {
		if d.digitSums != nil {
			start := d.digits[0]
			d.op("VDUP", d.digitSums[r/4].as(fmt.Sprintf("S[%d]", r%4)), start.as("S4"))
			for _, s := range d.sums[0][r] {
				d.op("VADD", start.as("S4"), s.as("S4"), s.as("S4"))
			}
		}
		for q := range 4 {
			s := d.sums[0][r][q]
			for _, other := range d.sums[1:] {
				d.op("VADD", other[r][q].as("S4"), s.as("S4"), s.as("S4"))
			}
			d.op("FMOVQ", s, mem(totals, 64*r+16*q))
		}
	}
	d.op("ADD", imm(64*d.rows), totals, totals)
}
