package main

// groupTilesNEON are those of NEON: a row takes a register for the sum of each
// digit, four for what its groups add up to, and for each digit two for the words of a group.
var groupTilesNEON = groupTiles{1: {1, 2, 3}, 2: {1, 2}, 3: {1}}

// addGroupsNEON adds the products of groups of codes of arm64.
func addGroupsNEON(a *arm64) {
	groupTilesNEON.each(func(planes, rows int) {
		g := groupsNEON{arm64: a, planes: planes, rows: rows}
		g.add()
	})
}

// groupsNEON writes kernels on 128-bit registers, which treat four of the lanes of a group after the other.
type groupsNEON struct {
	*arm64
	planes, rows int

	w, scales, x, starts, steps xreg
	mask                        vreg
	// digits hold the words of a group.
	digits []vreg
	// sums are those of the groups so far, by row and four of the lanes.
	sums [][4]vreg
}

// add adds a kernel.
func (g *groupsNEON) add() {
	g.function(groupsName(g.planes, g.rows, "NEON"), groupsDoc(g.planes, g.rows, "NEON"), groupsSignature)
	dst, stride, block, blockStride := g.load("dst"), g.load("stride"), g.load("w"), g.load("blockStride")
	x, starts, blocks, groups := g.load("x"), g.load("starts"), g.load("blocks"), g.load("groups")
	g.steps = g.load("steps")
	g.w, g.scales, g.x, g.starts = g.arm64.x(), g.arm64.x(), g.arm64.x(), g.arm64.x()
	left, to := g.arm64.x(), g.arm64.x()
	g.mask = g.v()
	g.op("VMOVI", imm(1<<groupBits-1), g.mask.as("B16"))
	words := groupSteps * fieldsOfByte * g.rows * g.planes
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
	g.op("MOVD", imm(groupCodes), g.scales)
	g.op("MADD", groups, block, g.scales, g.scales)
	g.op("MOVD", x, g.x)
	g.op("MOVD", starts, g.starts)
	g.op("MOVD", groups, left)
	g.label("group")
	for i := range groupSteps {
		g.op("PRFM", mem(g.w, prefetchBytes+stepBytes*i), "PLDL1KEEP")
	}
	for i, v := range g.digits {
		g.op("FMOVQ", mem(g.x, 16*i), v)
	}
	for q := range 4 {
		g.quarter(q)
	}
	g.op("ADD", imm(groupCodes), g.w, g.w)
	g.op("ADD", imm(groupScales), g.scales, g.scales)
	g.op("ADD", imm(4*words), g.x, g.x)
	g.op("ADD", imm(8*g.rows), g.starts, g.starts)
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
	for i := range groupSteps {
		g.op("FMOVQ", mem(g.w, stepBytes*i+16*q), codes)
		for j := range fieldsOfByte {
			if j == 0 {
				g.op("VAND", g.mask.as("B16"), codes.as("B16"), field.as("B16"))
			} else {
				g.op("VUSHR", imm(groupBits), codes.as("B16"), field.as("B16"))
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
	g.op("FMOVD", mem(g.scales, 8*q), scale)
	g.op2(fcvtl, scale, scale)
	for r, row := range parts {
		total := row[len(row)-1]
		for p := len(row) - 2; p >= 0; p-- {
			g.op("VSHL", imm(8), total.as("S4"), total.as("S4"))
			g.op("VADD", row[p].as("S4"), total.as("S4"), total.as("S4"))
		}
		g.op("FMOVS", mem(g.starts, 8*r), other)
		g.op("VDUP", other.as("S[0]"), other.as("S4"))
		g.op("VADD", other.as("S4"), total.as("S4"), total.as("S4"))
		g.op2(scvtf, total, total)
		g.op("FMOVS", mem(g.steps, 4*r), other)
		g.multiplyLane0(total, total, other)
		g.op3(fmul, total, total, scale)
		g.op3(fadd, g.sums[r][q], g.sums[r][q], total)
		g.freeV(row...)
	}
	g.freeV(codes, field)
}
