package main

import (
	"fmt"
	"io"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	// sumLanes is the number of partial sums of a float sum.
	sumLanes = 16
	// rowsAhead is how many rows ahead of those in use the next ones are asked for.
	rowsAhead = 8
	// floatBytes is the size of a float32.
	floatBytes = 4
)

// addSums adds the kernels of dot products, and of reading.
func addSums(c *build.Context) {
	for _, s := range []simd{simd256, simd512} {
		for _, n := range []element{elementF32, elementBF16} {
			for _, t := range s.dots {
				dots(c, s, n, t[0], t[1])
				dots(c, s, n, t[0], 1)
			}
		}
		dotF32(c, s)
		read(c, s)
	}
}

// dotF32 adds a kernel that multiplies two vectors.
func dotF32(c *build.Context, s simd) {
	name := "dotF32" + s.name
	function(c, name, "func(a, b *float32, n int) float32", name+" is Set.DotF32 of n numbers.")
	a, b, n := param(c, "a"), param(c, "b"), param(c, "n")
	sums := s.zeros(c, s.passes())
	load := loadFloats(c)
	step := func(mask reg.Register) {
		for i, sum := range sums {
			x, y := s.vec(c), s.vec(c)
			load(operand.Mem{Base: a, Disp: i * s.width * floatBytes}, mask, x)
			load(operand.Mem{Base: b, Disp: i * s.width * floatBytes}, mask, y)
			c.VMULPS(y, x, x)
			c.VADDPS(x, sum, sum)
		}
	}
	var mask reg.OpmaskVirtual
	if s.width == sumLanes {
		mask = ragged(c, n)
	}
	c.SHRQ(operand.U8(4), n)
	c.JZ(operand.LabelRef("tail"))
	c.Label("step")
	step(nil)
	c.ADDQ(operand.I32(sumLanes*floatBytes), a)
	c.ADDQ(operand.I32(sumLanes*floatBytes), b)
	c.DECQ(n)
	c.JNZ(operand.LabelRef("step"))
	c.Label("tail")
	if mask != nil {
		c.KTESTW(mask, mask)
		c.JZ(operand.LabelRef("done"))
		step(mask)
		c.Label("done")
	}
	for _, upper := range sums[1:] {
		c.VADDPS(upper, sums[0], sums[0])
	}
	sum := s.tree(c, sums[:1])
	c.VZEROUPPER()
	c.Store(sum.AsX(), c.ReturnIndex(0))
	c.RET()
}

// dotsName names a kernel of dots.
func (s simd) dotsName(n element, heads, positions int) string {
	return fmt.Sprintf("dots%dx%d%s%s", heads, positions, n.name, s.name)
}

// weightedName names a kernel of weighted.
func (s simd) weightedName(heads, registers int) string {
	return fmt.Sprintf("weighted%dx%d%s", heads, registers, s.name)
}

// sumsTable writes the Go table of an instruction set's kernels.
func sumsTable(w io.Writer, s simd) {
	fmt.Fprintf(w, "\n// sums%s holds the sums of products.\nvar sums%[1]s = sums{\n", s.name)
	if s.passes() > 1 {
		fmt.Fprintf(w, "\twhole: %d,\n", sumLanes)
	}
	for _, n := range []element{elementF32, elementBF16} {
		fmt.Fprintf(w, "\tdots%s: []dotsTile[%s]{\n", n.name, n.goType)
		for _, t := range s.dots {
			fmt.Fprintf(w, "\t\t{%d, %d, %s, %s},\n", t[0], t[1], s.dotsName(n, t[0], t[1]), s.dotsName(n, t[0], 1))
		}
		fmt.Fprint(w, "\t},\n")
	}
	fmt.Fprint(w, "\tweighted: []weightedTile{\n")
	for _, t := range s.weighted {
		fmt.Fprintf(w, "\t\t{%d, %s},\n", t[0], s.weightedName(t[0], t[1]))
	}
	fmt.Fprintf(w, "\t},\n\tdot: dotF32%s,\n\tread: read%[1]s,\n}\n", s.name)
}

// dotsTile is what a kernel of dots has in registers besides its sums.
type dotsTile struct {
	simd
	c                     *build.Context
	keys                  element
	heads, positions      int
	queryRows, keyRows    rowSet
	readQueries, readKeys reader
	query, product        reg.VecVirtual
	// widened are the same registers in all steps: where only halves are written,
	// they are taken from a function's beginning, like those of zeros.
	widened []reg.VecVirtual
}

// dots adds a kernel that multiplies a tile of heads with positions, tile after
// tile of positions. The lanes of a tile's sums are added in one tree.
func dots(c *build.Context, s simd, n element, heads, positions int) {
	name := s.dotsName(n, heads, positions)
	function(c, name, fmt.Sprintf("func(dst, q *float32, keys *%s, dim, positions, stride int, scale float32)", n.goType),
		fmt.Sprintf("%s multiplies %d heads with a multiple of %d positions.", name, heads, positions))
	key, dst, left := param(c, "keys"), param(c, "dst"), param(c, "positions")
	t := dotsTile{simd: s, c: c, keys: n, heads: heads, positions: positions}
	t.queryRows = newRowSet(c, heads, paramBytes(c, "dim", floatBytes))
	keyStride := t.queryRows.stride
	if n.bytes != floatBytes {
		keyStride = paramBytes(c, "dim", n.bytes)
	}
	t.keyRows = newRowSet(c, positions, keyStride)
	var mask reg.Register
	if s.width == sumLanes {
		mask = ragged(c, param(c, "dim"))
	}
	t.readQueries, t.readKeys = elementF32.begin(c, s), n.begin(c, s)
	t.widened, t.query, t.product = s.vecs(c, positions), s.vec(c), s.vec(c)
	// kept holds the sums of the first pass, of lanes that are added to those of the second.
	var kept operand.Mem
	if s.passes() > 1 {
		kept = c.AllocLocal(heads * positions * s.width * floatBytes)
	}

	c.Label("tile")
	sums := t.pass(0, key, mask)
	if s.passes() > 1 {
		for i, sum := range sums {
			c.VMOVUPS(sum, kept.Offset(i*s.width*floatBytes))
		}
		sums = t.pass(1, key, mask)
		for i, sum := range sums {
			c.VADDPS(kept.Offset(i*s.width*floatBytes), sum, sum)
		}
	}
	sum := s.tree(c, sums)
	scale := s.vec(c)
	c.VBROADCASTSS(paramMem(c, "scale"), scale)
	c.VMULPS(scale, sum, sum)
	out := newRowSet(c, heads, paramBytes(c, "stride", floatBytes))
	c.MOVQ(dst, out.bases[0])
	out.setBase(c)
	s.scatter(c, sum, out, heads, positions)
	c.ADDQ(operand.I32(positions*floatBytes), dst)
	for range positions {
		c.ADDQ(keyStride, key)
	}
	c.SUBQ(operand.I32(positions), left)
	c.JNZ(operand.LabelRef("tile"))
	c.VZEROUPPER()
	c.RET()
}

// pass goes through all columns of the tile that begins at a key, and returns
// its sums in as many of their lanes as a register has.
func (t *dotsTile) pass(number int, key reg.GPVirtual, mask reg.Register) []reg.VecVirtual {
	c := t.c
	c.Load(c.Param("q"), t.queryRows.bases[0])
	t.queryRows.setBase(c)
	c.MOVQ(key, t.keyRows.bases[0])
	t.keyRows.setBase(c)
	sums := t.zeros(c, t.heads*t.positions)
	// While a tile is multiplied, rows further on are fetched into the cache of the
	// second level, or the machine would alternate between waiting and multiplying.
	// Each pass fetches its share of lines.
	next := c.GP64()
	c.LEAQ(operand.Mem{Base: key, Index: t.keyRows.stride, Scale: rowsAhead}, next)
	steps := param(c, "dim")
	loop, tail, done := fmt.Sprintf("step%d", number), fmt.Sprintf("tail%d", number), fmt.Sprintf("done%d", number)
	c.SHRQ(operand.U8(4), steps)
	c.JZ(operand.LabelRef(tail))
	c.Label(loop)
	t.step(sums, number*t.width, nil)
	bytes := t.positions * sumLanes * t.keys.bytes
	for at := 64 * number; at < bytes; at += 64 * t.passes() {
		c.PREFETCHT1(operand.Mem{Base: next, Disp: at})
	}
	c.ADDQ(operand.I32(bytes), next)
	t.queryRows.advance(c, sumLanes*floatBytes)
	t.keyRows.advance(c, sumLanes*t.keys.bytes)
	c.DECQ(steps)
	c.JNZ(operand.LabelRef(loop))
	c.Label(tail)
	if mask != nil {
		c.KTESTW(mask, mask)
		c.JZ(operand.LabelRef(done))
		t.step(sums, number*t.width, mask)
		c.Label(done)
	}
	return sums
}

// step adds the products of one register of each row, from a column on.
func (t *dotsTile) step(sums []reg.VecVirtual, column int, mask reg.Register) {
	key := func(p int) operand.Mem { return t.keyRows.at(p, column*t.keys.bytes) }
	if t.heads > 1 {
		readAll(t.readKeys, t.widened, mask, key)
	}
	for h := range t.heads {
		t.readQueries.load(t.queryRows.at(h, column*floatBytes), mask, t.query)
		for p, w := range t.widened {
			product := t.product
			if t.heads == 1 { // and many positions: few registers are left
				readAll(t.readKeys, t.widened[p:p+1], mask, func(int) operand.Mem { return key(p) })
				product = w
			}
			t.c.VMULPS(w, t.query, product)
			sum := sums[h*t.positions+p]
			t.c.VADDPS(product, sum, sum)
		}
	}
}

// tree adds the lanes of as many sums as a register has lanes, or fewer: lane i
// of the result is the total of sums[i].
//
// Each level puts one half of the lanes of two sums in one register and the
// other half in another, which are added. Sum 4k+j arrives in lane j of quarter k.
func (s simd) tree(c *build.Context, sums []reg.VecVirtual) reg.VecVirtual {
	at := func(i int) reg.VecVirtual {
		if i < len(sums) {
			return sums[i]
		}
		return nil
	}
	pair := func(a, b reg.VecVirtual, lower, upper func(a, b, to reg.VecVirtual)) reg.VecVirtual {
		if a == nil {
			return nil
		}
		if b == nil {
			b = a
		}
		x, y := s.vec(c), s.vec(c)
		lower(a, b, x)
		upper(a, b, y)
		c.VADDPS(y, x, x)
		return x
	}
	var quarters [4]reg.VecVirtual
	for j := range quarters {
		if s.width < sumLanes {
			quarters[j] = pair(at(j), at(4+j),
				func(a, b, to reg.VecVirtual) { c.VPERM2F128(operand.U8(0x20), b, a, to) },
				func(a, b, to reg.VecVirtual) { c.VPERM2F128(operand.U8(0x31), b, a, to) })
			continue
		}
		var halves [2]reg.VecVirtual
		for k := range halves {
			halves[k] = pair(at(8*k+j), at(8*k+4+j),
				func(a, b, to reg.VecVirtual) { c.VSHUFF64X2(operand.U8(0x44), b, a, to) },
				func(a, b, to reg.VecVirtual) { c.VSHUFF64X2(operand.U8(0xee), b, a, to) })
		}
		quarters[j] = pair(halves[0], halves[1],
			func(a, b, to reg.VecVirtual) { c.VSHUFF32X4(operand.U8(0x88), b, a, to) },
			func(a, b, to reg.VecVirtual) { c.VSHUFF32X4(operand.U8(0xdd), b, a, to) })
	}
	var eighths [2]reg.VecVirtual
	for i := range eighths {
		eighths[i] = pair(quarters[2*i], quarters[2*i+1],
			func(a, b, to reg.VecVirtual) { c.VUNPCKLPD(b, a, to) },
			func(a, b, to reg.VecVirtual) { c.VUNPCKHPD(b, a, to) })
	}
	return pair(eighths[0], eighths[1],
		func(a, b, to reg.VecVirtual) { c.VSHUFPS(operand.U8(0x88), b, a, to) },
		func(a, b, to reg.VecVirtual) { c.VSHUFPS(operand.U8(0xdd), b, a, to) })
}

// scatter stores lane h*n+i of a register at place i of row h, for n a power of two.
func (s simd) scatter(c *build.Context, v reg.VecVirtual, out rowSet, rows, n int) {
	switch n {
	case 16:
		c.VMOVUPS(v, out.at(0, 0))
		return
	case 8:
		for h := range rows {
			half := v.AsY()
			if h > 0 {
				half = c.YMM()
				c.VEXTRACTF64X4(operand.U8(h), v, half)
			}
			c.VMOVUPS(half, out.at(h, 0))
		}
		return
	}
	for at := 0; at < rows*n; at += 4 {
		quarter := v.AsX()
		if at > 0 {
			quarter = c.XMM()
			if s.width < sumLanes {
				c.VEXTRACTF128(operand.U8(at/4), v, quarter)
			} else {
				c.VEXTRACTF32X4(operand.U8(at/4), v, quarter)
			}
		}
		for j := 0; j < 4 && at+j < rows*n; j += n {
			to := out.at((at+j)/n, 0)
			switch {
			case n == 4:
				c.VMOVUPS(quarter, to)
			case n == 2 && j == 0:
				c.VMOVLPS(quarter, to)
			case n == 2:
				c.VMOVHPS(quarter, to)
			case j == 0:
				c.VMOVSS(quarter, to)
			default:
				c.VEXTRACTPS(operand.U8(j), quarter, to)
			}
		}
	}
}

// read adds a kernel that adds the 64-bit words of lines of 64 bytes.
func read(c *build.Context, s simd) {
	const unroll = 4
	name := "read" + s.name
	function(c, name, "func(data *byte, lines int) uint64", name+" adds the 64-bit words of a number of lines of 64 bytes.")
	data, lines := param(c, "data"), param(c, "lines")
	n := 16 / s.width // registers of a line
	sums := s.zeros(c, unroll*n)
	line := func(at int) {
		for i := range n {
			sum := sums[at*n+i]
			c.VPADDQ(operand.Mem{Base: data, Disp: 64*at + 4*s.width*i}, sum, sum)
		}
	}
	c.SUBQ(operand.I32(unroll), lines)
	c.JLT(operand.LabelRef("rest"))
	c.Label("four")
	for i := range unroll {
		line(i)
	}
	c.ADDQ(operand.I32(64*unroll), data)
	c.SUBQ(operand.I32(unroll), lines)
	c.JGE(operand.LabelRef("four"))
	c.Label("rest")
	c.ADDQ(operand.I32(unroll), lines)
	c.JZ(operand.LabelRef("done"))
	c.Label("one")
	line(0)
	c.ADDQ(operand.I32(64), data)
	c.DECQ(lines)
	c.JNZ(operand.LabelRef("one"))
	c.Label("done")
	for i := 1; i < len(sums); i++ {
		c.VPADDQ(sums[i], sums[0], sums[0])
	}
	if s.width == 16 {
		half := c.YMM()
		c.VEXTRACTI64X4(operand.U8(1), sums[0], half)
		c.VPADDQ(half, sums[0].AsY(), half)
		sums[0] = half
	}
	half, word := c.XMM(), c.XMM()
	c.VEXTRACTI128(operand.U8(1), sums[0].AsY(), half)
	c.VPADDQ(half, sums[0].AsX(), half)
	c.VPSHUFD(operand.U8(0xee), half, word)
	c.VPADDQ(word, half, half)
	total := c.GP64()
	c.VMOVQ(half, total)
	c.VZEROUPPER()
	c.Store(total, c.ReturnIndex(0))
	c.RET()
}
