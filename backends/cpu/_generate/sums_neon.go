package main

import "fmt"

// simdNEON has registers of four lanes: a sum in 16 lanes takes four of them,
// and 32 hold six sums, with what is multiplied.
var simdNEON = simd{
	name: "NEON", width: 4,
	dots:     [][2]int{{6, 1}, {4, 1}, {3, 2}, {2, 3}, {1, 6}},
	weighted: [][2]int{{8, 2}, {4, 4}, {2, 8}, {1, 16}},
}

// addSumsNEON adds the kernels of dot products, and of reading.
func addSumsNEON(a *arm64) {
	for _, n := range []element{elementF32, elementBF16} {
		for _, t := range simdNEON.dots {
			dotsNEON(a, n, t[0], t[1])
			if t[1] > 1 {
				dotsNEON(a, n, t[0], 1)
			}
		}
	}
	dotF32NEON(a)
	readNEON(a)
}

// eightColumns is how many numbers of an element are loaded at once, into two registers.
const eightColumns = 8

// loadEight loads 8 columns of numbers as float32, offset columns behind base.
func (a *arm64) loadEight(n element, base xreg, offset int, v [2]vreg, zero vreg) {
	low, high := v[0], v[1]
	switch n.bytes {
	case 4:
		a.op("FLDPQ", mem(base, 4*offset), fmt.Sprintf("(%s, %s)", low, high))
	case 2:
		// Zeros below make a float32 of a bfloat16.
		a.op("FMOVQ", mem(base, 2*offset), low)
		a.op("VZIP2", low.as("H8"), zero.as("H8"), high.as("H8"))
		a.op("VZIP1", low.as("H8"), zero.as("H8"), low.as("H8"))
	}
}

// zeroVectors takes n vector registers and clears them.
func (a *arm64) zeroVectors(n int) []vreg {
	all := a.vectors(n)
	for _, v := range all {
		a.zero(v)
	}
	return all
}

// loadBytes takes a register and loads a number of numbers of so many bytes into it, as bytes.
func (a *arm64) loadBytes(name string, bytes int) xreg {
	x := a.load(name)
	a.op("LSL", imm(bytes/2), x, x) // of 2 and 4
	return x
}

// rows takes n registers and sets them to addresses stride apart; the first is that of a parameter.
func (a *arm64) rows(n int, name string, stride xreg) []xreg {
	all := make([]xreg, n)
	for i := range all {
		all[i] = a.x()
	}
	a.setRows(all, name, stride)
	return all
}

// setRows sets registers to addresses stride apart; the first is that of a parameter.
func (a *arm64) setRows(all []xreg, name string, stride xreg) {
	a.op("MOVD", a.param(name), all[0])
	a.nextRows(all, stride)
}

// nextRows sets registers to addresses stride apart, from the first on.
func (a *arm64) nextRows(all []xreg, stride xreg) {
	for i := 1; i < len(all); i++ {
		a.op("ADD", stride, all[i-1], all[i])
	}
}

// prefetch asks for so many bytes.
func (a *arm64) prefetch(base xreg, bytes int) {
	const line = 64
	for at := 0; at < bytes; at += line {
		a.op("PRFM", mem(base, at), "PLDL1KEEP")
	}
}

// multiplyAdd adds a product to a sum, each rounded.
func (a *arm64) multiplyAdd(sum, x, y vreg) {
	t := a.v()
	a.op3(fmul, t, x, y)
	a.op3(fadd, sum, sum, t)
	a.freeV(t)
}

// dotsNEON adds a kernel that multiplies a tile of heads with positions, tile after tile of positions.
func dotsNEON(a *arm64, n element, heads, positions int) {
	name := simdNEON.dotsName(n, heads, positions)
	a.function(name, fmt.Sprintf("%s multiplies %d heads with a multiple of %d positions, of a multiple of 16 numbers.", name, heads, positions),
		fmt.Sprintf("func(dst, q *float32, keys *%s, dim, positions, stride int, scale float32)", n.goType))
	dst, key, left := a.load("dst"), a.load("keys"), a.load("positions")
	qBytes, keyBytes, outBytes := a.loadBytes("dim", floatBytes), a.loadBytes("dim", n.bytes), a.loadBytes("stride", floatBytes)
	q, keys := a.rows(heads, "q", qBytes), make([]xreg, positions)
	for i := range keys {
		keys[i] = a.x()
	}
	var zero vreg
	if n.bytes == 2 {
		zero = a.zeroVectors(1)[0]
	}
	steps, ahead := a.x(), a.x()

	a.label("tile")
	a.setRows(q, "q", qBytes)
	a.op("MOVD", key, keys[0])
	a.nextRows(keys, keyBytes)
	a.op("ADD", keyBytes, keys[positions-1], ahead)
	a.op("LSR", imm(6), qBytes, steps) // 16 numbers of 4 bytes
	sums := a.zeroVectors(4 * heads * positions)
	a.label("step")
	// While a tile is multiplied, the next, which follows in memory, is fetched.
	step := positions * sumLanes * n.bytes
	a.prefetch(ahead, step)
	a.op("ADD", imm(step), ahead, ahead)
	// The numbers of the fewer rows stay in registers while those of the others are loaded.
	held, others, heldOf, othersOf := keys, q, n, elementF32
	if heads < positions {
		held, others, heldOf, othersOf = q, keys, elementF32, n
	}
	for at := 0; at < sumLanes; at += eightColumns {
		hold := make([][2]vreg, len(held))
		for i, base := range held {
			hold[i] = [2]vreg(a.vectors(2))
			a.loadEight(heldOf, base, at, hold[i], zero)
		}
		v := [2]vreg(a.vectors(2))
		for i, base := range others {
			a.loadEight(othersOf, base, at, v, zero)
			for half := range 2 {
				for j := range held {
					h, p := i, j
					if heads < positions {
						h, p = j, i
					}
					a.multiplyAdd(sums[4*(h*positions+p)+at/4+half], v[half], hold[j][half])
				}
			}
		}
		a.freeV(v[:]...)
		for _, h := range hold {
			a.freeV(h[:]...)
		}
	}
	for _, base := range q {
		a.op("ADD", imm(sumLanes*floatBytes), base, base)
	}
	for _, base := range keys {
		a.op("ADD", imm(sumLanes*n.bytes), base, base)
	}
	a.op("SUBS", imm(1), steps, steps)
	a.op("BNE", "step")

	row, to := a.x(), a.x()
	a.op("MOVD", dst, row)
	scale := a.v()
	a.op("FMOVS", a.param("scale"), scale)
	for i := 0; i < heads*positions; i += 4 {
		count := min(4, heads*positions-i)
		sum := a.tree(sums[4*i : 4*(i+count)])
		a.multiplyLane0(sum, sum, scale)
		for lane := range count {
			if (i+lane)%positions == 0 {
				if i+lane > 0 {
					a.op("ADD", outBytes, row, row)
				}
				a.op("MOVD", row, to)
			}
			a.op("VST1.P", fmt.Sprintf("%s[%d]", sum.as("S"), lane), mem(to, floatBytes))
		}
	}
	a.op("ADD", imm(positions*floatBytes), dst, dst)
	a.op("MOVD", keys[positions-1], key) // which has come to the next row
	a.op("SUBS", imm(positions), left, left)
	a.op("BNE", "tile")
	a.op("RET")
}

// tree adds the 16 lanes of up to four sums, of four registers each: lane i of
// the result is the total of sum i. It is one of the sums' registers, and others change.
func (a *arm64) tree(sums []vreg) vreg {
	for i := 0; i < len(sums); i += 4 {
		a.op3(fadd, sums[i], sums[i], sums[i+2])
		a.op3(fadd, sums[i+1], sums[i+1], sums[i+3])
		a.op3(fadd, sums[i], sums[i], sums[i+1])
	}
	// pair adds the upper half of a quarter to its lower half, for two quarters.
	pair := func(i int) vreg {
		first, second := sums[4*i], sums[4*i]
		if 4*i+4 < len(sums) {
			second = sums[4*i+4]
		}
		t := sums[4*i+1]
		a.op("VZIP1", second.as("D2"), first.as("D2"), t.as("D2"))
		a.op("VZIP2", second.as("D2"), first.as("D2"), first.as("D2"))
		a.op3(fadd, t, t, first)
		return t
	}
	low := pair(0)
	high := low
	if len(sums) > 8 {
		high = pair(2)
	}
	a.op3(faddp, low, low, high)
	return low
}

// dotF32NEON adds a kernel that multiplies two vectors.
func dotF32NEON(a *arm64) {
	a.function("dotF32NEON", "dotF32NEON is Set.DotF32 of a multiple of 16 numbers.", "func(a, b *float32, n int) (ret float32)")
	first, second, n := a.load("a"), a.load("b"), a.load("n")
	sums := a.zeroVectors(4)
	x, y := [2]vreg(a.vectors(2)), [2]vreg(a.vectors(2))
	a.label("step")
	for at := 0; at < sumLanes; at += eightColumns {
		a.loadEight(elementF32, first, at, x, 0)
		a.loadEight(elementF32, second, at, y, 0)
		for half := range 2 {
			a.multiplyAdd(sums[at/4+half], x[half], y[half])
		}
	}
	a.op("ADD", imm(sumLanes*floatBytes), first, first)
	a.op("ADD", imm(sumLanes*floatBytes), second, second)
	a.op("SUBS", imm(sumLanes), n, n)
	a.op("BNE", "step")
	a.op("FMOVS", a.tree(sums), a.result("ret"))
	a.op("RET")
}

// readNEON adds a kernel that adds the 64-bit words of lines of 64 bytes.
func readNEON(a *arm64) {
	const unroll = 4
	a.function("readNEON", "readNEON adds the 64-bit words of a number of lines of 64 bytes.", "func(data *byte, lines int) (ret uint64)")
	data, lines := a.load("data"), a.load("lines")
	sums := a.zeroVectors(4 * unroll)
	words := a.vectors(4)
	line := func(i int) {
		for j := 0; j < 4; j += 2 {
			a.op("FLDPQ", mem(data, 64*i+16*j), fmt.Sprintf("(%s, %s)", words[j], words[j+1]))
		}
		for j, v := range words {
			s := sums[4*i+j]
			a.op("VADD", v.as("D2"), s.as("D2"), s.as("D2"))
		}
	}
	a.op("SUBS", imm(unroll), lines, lines)
	a.op("BLT", "rest")
	a.label("four")
	a.op("PRFM", mem(data, prefetchBytes), "PLDL1KEEP")
	for i := range unroll {
		line(i)
	}
	a.op("ADD", imm(64*unroll), data, data)
	a.op("SUBS", imm(unroll), lines, lines)
	a.op("BGE", "four")
	a.label("rest")
	a.op("ADDS", imm(unroll), lines, lines)
	a.op("BEQ", "done")
	a.label("one")
	line(0)
	a.op("ADD", imm(64), data, data)
	a.op("SUBS", imm(1), lines, lines)
	a.op("BNE", "one")
	a.label("done")
	for n := len(sums) / 2; n > 0; n /= 2 {
		for i := range n {
			a.op("VADD", sums[i+n].as("D2"), sums[i].as("D2"), sums[i].as("D2"))
		}
	}
	low, high := a.x(), a.x()
	a.op("VMOV", sums[0].as("D[0]"), low)
	a.op("VMOV", sums[0].as("D[1]"), high)
	a.op("ADD", high, low, low)
	a.op("MOVD", low, a.result("ret"))
	a.op("RET")
}
