package main

import "fmt"

// addAttentionNEON adds the kernels that weight values.
func addAttentionNEON(a *arm64) {
	for _, t := range simdNEON.weighted {
		weightedNEON(a, t[0], t[1])
	}
}

// aheadShift is the logarithm of how many positions ahead values are asked for.
const aheadShift = 3

// weightedNEON adds a kernel that adds the values of all positions, times the
// weights of some heads, for a tile of columns after another, then for 16 columns at once.
func weightedNEON(a *arm64, heads, registers int) {
	name := simdNEON.weightedName(heads, registers)
	a.function(name, fmt.Sprintf("%s sums the values for %d heads, %d registers of columns at once, of a multiple of 16 columns.", name, heads, registers),
		"func(dst, w, values *float32, dim, positions, stride int)")
	values, cols := a.load("values"), a.load("dim")
	rowBytes, weightBytes := a.loadBytes("dim", floatBytes), a.loadBytes("stride", floatBytes) // rowBytes are of a head and of a position
	dst := a.rows(heads, "dst", rowBytes)
	weights := make([]xreg, heads)
	for i := range weights {
		weights[i] = a.x()
	}
	row, left, ahead := a.x(), a.x(), a.x()

	// tiles does as many tiles of some registers as there are columns for.
	tiles := func(loop string, registers int) {
		columns := registers * simdNEON.width
		position, end := loop+"position", loop+"end"
		a.op("SUBS", imm(columns), cols, cols)
		a.op("BLT", end)
		a.label(loop)
		a.setRows(weights, "w", weightBytes)
		a.op("MOVD", values, row)
		a.op("ADD", fmt.Sprintf("%s<<%d", rowBytes, aheadShift), values, ahead)
		a.op("MOVD", a.param("positions"), left)
		sums := a.zeroVectors(heads * registers)
		w, v := a.vectors(heads), [2]vreg(a.vectors(2))
		a.label(position)
		a.prefetch(ahead, columns*floatBytes)
		a.op("ADD", rowBytes, ahead, ahead)
		for h, base := range weights {
			a.op("FMOVS.P", mem(base, floatBytes), w[h])
		}
		for at := 0; at < columns; at += eightColumns {
			a.loadEight(elementF32, row, at, v, 0)
			for half := range v {
				for h := range heads {
					t := a.v()
					a.multiplyLane0(t, v[half], w[h])
					sum := sums[h*registers+at/4+half]
					a.op3(fadd, sum, sum, t)
					a.freeV(t)
				}
			}
		}
		a.op("ADD", rowBytes, row, row)
		a.op("SUBS", imm(1), left, left)
		a.op("BNE", position)
		for h, to := range dst {
			for i := 0; i < registers; i += 2 {
				a.op("FSTPQ", fmt.Sprintf("(%s, %s)", sums[h*registers+i], sums[h*registers+i+1]), mem(to, 16*i))
			}
			a.op("ADD", imm(columns*floatBytes), to, to)
		}
		a.freeV(sums...)
		a.freeV(w...)
		a.freeV(v[:]...)
		a.op("ADD", imm(columns*floatBytes), values, values)
		a.op("SUBS", imm(columns), cols, cols)
		a.op("BGE", loop)
		a.label(end)
		a.op("ADD", imm(columns), cols, cols)
	}
	tiles("many", registers)
	if sumLanes%(registers*simdNEON.width) != 0 {
		tiles("few", sumLanes/simdNEON.width)
	}
	a.op("RET")
}
