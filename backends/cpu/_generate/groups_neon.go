package main

// groupsNEONTable lists the kernels of NEON: a row takes a register for the sum of each
// digit, four for what its groups add up to, and for each digit two for the words of a group of 32 columns.
var groupsNEONTable = groupTable{
	{int4x32, groupTiles{1: {1, 2, 3}, 2: {1, 2}, 3: {1}}},
	{int8x32, groupTiles{1: {1, 2, 3}, 2: {1, 2}, 3: {1}}},
	{int8x16, groupTiles{1: {1, 2, 3}, 2: {1, 2}, 3: {1}}},
	{int4x32Min, groupTiles{1: {1, 2, 3}, 2: {1, 2}, 3: {1}}},
	{int8x32Min, groupTiles{1: {1, 2, 3}, 2: {1, 2}, 3: {1}}},
}

// addGroupsNEON adds the products of groups of codes of arm64.
func addGroupsNEON(a *arm64) {
	groupsNEONTable.each(func(f groupFormat, planes, rows int) {
		g := groupsNEON{arm64: a, groupFormat: f, planes: planes, rows: rows}
		g.add()
	})
}

// groupsNEON writes kernels on 128-bit registers, which treat four of the lanes of a group after the other.
//
// SDOT multiplies signed bytes. Codes of 4 bits are not negative as such; of codes of 8
// bits 128 is taken, which is the midpoint, so that nothing need be added for it.
type groupsNEON struct {
	*arm64
	groupFormat
	planes, rows int

	w, scalesAt, x, startsAt, sumsAt, stepsAt xreg
	// mask selects the low bits of bytes, or is 128 in all for codes of 8 bits.
	mask vreg
	// lower is lowerMask and upper upperUnit, where sums are wide.
	lower, upper vreg
	// digits hold the words of a group.
	digits []vreg
	// sums are those of the groups so far, by row and four of the lanes.
	sums [][4]vreg
}

// added tells that what the midpoint adds is not in the products.
func (g *groupsNEON) added() bool { return g.starts() && g.bits < 8 }

// add adds a kernel.
func (g *groupsNEON) add() {
	f := g.groupFormat
	g.function(groupsName(f, g.planes, g.rows, "NEON"), groupsDoc(f, g.planes, g.rows, "NEON"), groupsSignature)
	dst, stride, block, blockStride := g.load("dst"), g.load("stride"), g.load("w"), g.load("blockStride")
	x, starts, sums, blocks, groups := g.load("x"), g.load("starts"), g.load("sums"), g.load("blocks"), g.load("groups")
	g.stepsAt = g.load("steps")
	g.w, g.scalesAt, g.x, g.startsAt, g.sumsAt = g.arm64.x(), g.arm64.x(), g.arm64.x(), g.arm64.x(), g.arm64.x()
	left, to := g.arm64.x(), g.arm64.x()
	g.constants(to)
	words := g.words() * g.rows * g.planes
	g.digits = g.vectors(words / 4)
	for range g.rows {
		g.sums = append(g.sums, [4]vreg(g.vectors(4)))
	}
	g.op("LSL", imm(2), stride, stride)
	g.label("block")
	for _, row := range g.sums {
		for _, s := range row {
			g.zero(s)
		}
	}
	g.op("MOVD", block, g.w)
	g.op("MOVD", imm(g.codes()), g.scalesAt)
	g.op("MADD", groups, block, g.scalesAt, g.scalesAt)
	g.op("MOVD", x, g.x)
	g.op("MOVD", starts, g.startsAt)
	g.op("MOVD", sums, g.sumsAt)
	g.op("MOVD", groups, left)
	g.label("group")
	for i := range g.steps() {
		g.op("PRFM", mem(g.w, prefetchBytes+stepBytes*i), "PLDL1KEEP")
	}
	for i, v := range g.digits {
		g.op("FMOVQ", mem(g.x, 16*i), v)
	}
	for q := range 4 {
		g.quarter(q)
	}
	g.op("ADD", imm(g.codes()), g.w, g.w)
	g.op("ADD", imm(g.scales()), g.scalesAt, g.scalesAt)
	g.op("ADD", imm(4*words), g.x, g.x)
	g.op("ADD", imm(8*g.rows), g.startsAt, g.startsAt)
	g.op("ADD", imm(4*g.rows), g.sumsAt, g.sumsAt)
	g.op("SUBS", imm(1), left, left)
	g.op("BNE", "group")
	g.op("MOVD", dst, to)
	for _, row := range g.sums {
		for q, s := range row {
			g.op("FMOVQ", s, mem(to, 16*q))
		}
		g.op("ADD", stride, to, to)
	}
	g.op("ADD", imm(4*blockRows), dst, dst)
	g.op("ADD", blockStride, block, block)
	g.op("SUBS", imm(1), blocks, blocks)
	g.op("BNE", "block")
	g.op("RET")
}

// constants takes the registers of constants and fills them, by way of a general register.
func (g *groupsNEON) constants(by xreg) {
	g.mask = g.v()
	if g.bits == 8 {
		g.op("VMOVI", imm(128), g.mask.as("B16"))
	} else {
		g.op("VMOVI", imm(1<<g.bits-1), g.mask.as("B16"))
	}
	if !g.wide(g.planes) {
		return
	}
	g.lower, g.upper = g.v(), g.v()
	for _, c := range []struct {
		to    vreg
		value int
	}{{g.lower, lowerMask}, {g.upper, upperUnit}} {
		g.op("MOVD", imm(c.value), by)
		g.op("VDUP", by, c.to.as("S4"))
	}
}

// quarter adds the products of a group for four of the lanes.
func (g *groupsNEON) quarter(q int) {
	var parts [][]vreg // by row and plane
	for range g.rows {
		parts = append(parts, g.vectors(g.planes))
		for _, s := range parts[len(parts)-1] {
			g.zero(s)
		}
	}
	codes, field := g.v(), g.v()
	word := 0
	for i := range g.steps() {
		g.op("FMOVQ", mem(g.w, stepBytes*i+16*q), codes)
		for j := range g.fields() {
			switch {
			case g.bits == 8:
				g.op("VEOR", g.mask.as("B16"), codes.as("B16"), field.as("B16"))
			case j == 0:
				g.op("VAND", g.mask.as("B16"), codes.as("B16"), field.as("B16"))
			default:
				g.op("VUSHR", imm(g.bits), codes.as("B16"), field.as("B16"))
			}
			for r := range g.rows {
				for p := range g.planes {
					g.dotLane(parts[r][p], field, g.digits[word/4], word%4)
					word++
				}
			}
		}
	}
	scale, other := codes, field
	var minimum vreg
	if g.scaleBytes == 2 {
		g.op("FMOVD", mem(g.scalesAt, 8*q), scale)
		g.op2(fcvtl, scale, scale)
	} else {
		g.op("FMOVQ", mem(g.scalesAt, 16*q), scale)
	}
	if g.minimums {
		minimum = g.v()
		g.op("FMOVQ", mem(g.scalesAt, g.minimumsAt()+16*q), minimum)
	}
	for r, row := range parts {
		y := g.total(r, row, other)
		g.op("FMOVS", mem(g.stepsAt, 4*r), other)
		g.multiplyLane0(y, y, other)
		g.op3(fmul, y, y, scale)
		if g.minimums {
			g.op("FMOVS", mem(g.sumsAt, 4*r), other)
			g.multiplyLane0(other, minimum, other)
			g.op3(fsub, y, y, other)
		}
		g.op3(fadd, g.sums[r][q], g.sums[r][q], y)
		g.freeV(row...)
	}
	if g.minimums {
		g.freeV(minimum)
	}
	g.freeV(codes, field)
}

// total makes floats of the totals of a row's sums by plane.
func (g *groupsNEON) total(row int, planes []vreg, other vreg) vreg {
	if g.wide(g.planes) { // see groupFormat.wide
		lower, next, upper := planes[0], planes[1], planes[2]
		g.op("VSHL", imm(8), next.as("S4"), next.as("S4"))
		g.op("VADD", next.as("S4"), lower.as("S4"), lower.as("S4"))
		g.shiftRight(next, lower, 16)
		g.op("VADD", next.as("S4"), upper.as("S4"), upper.as("S4"))
		g.op("VAND", g.lower.as("B16"), lower.as("B16"), lower.as("B16"))
		g.op2(scvtf, lower, lower)
		g.op2(scvtf, upper, upper)
		g.op3(fmul, upper, upper, g.upper) // exact
		g.op3(fadd, upper, upper, lower)
		return upper
	}
	total := planes[len(planes)-1]
	for p := len(planes) - 2; p >= 0; p-- {
		g.op("VSHL", imm(8), total.as("S4"), total.as("S4"))
		g.op("VADD", planes[p].as("S4"), total.as("S4"), total.as("S4"))
	}
	if g.added() {
		g.op("FMOVS", mem(g.startsAt, 8*row), other)
		g.op("VDUP", other.as("S[0]"), other.as("S4"))
		g.op("VADD", other.as("S4"), total.as("S4"), total.as("S4"))
	}
	g.op2(scvtf, total, total)
	return total
}
