package main

import (
	"fmt"
	"io"

	"github.com/mmcloughlin/avo/attr"
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

// simd is an instruction set for sums in 16 lanes.
type simd struct {
	name string
	// width is the number of lanes of a register: what does not fit is done in another pass.
	width int
	// dots and weighted list the tiles of the kernels: heads by positions, and heads by registers of columns.
	dots, weighted [][2]int
}

// Of the tiles with several heads each has enough sums to hide the latency of
// an addition, and registers left for a number of each kind, a product and the
// tree's temporaries. Tiles of one position take what positions are left over.
var simd512 = simd{
	name: "AVX512", width: 16,
	dots:     [][2]int{{8, 2}, {4, 4}, {2, 8}, {1, 8}},
	weighted: [][2]int{{8, 2}, {4, 4}, {2, 8}, {1, 8}},
}

// passes returns how often a kernel of dot products goes through the numbers.
func (s simd) passes() int { return sumLanes / s.width }

// simd256 has half the registers of simd512, of half the lanes.
var simd256 = simd{
	name: "AVX2", width: 8,
	dots:     [][2]int{{4, 2}, {2, 4}, {1, 8}},
	weighted: [][2]int{{4, 2}, {2, 4}, {1, 8}},
}

// vec returns a new register.
func (s simd) vec(c *build.Context) reg.VecVirtual {
	if s.width == 16 {
		return c.ZMM()
	}
	return c.YMM()
}

// vecs returns n new registers.
func (s simd) vecs(c *build.Context, n int) []reg.VecVirtual {
	all := make([]reg.VecVirtual, n)
	for i := range all {
		all[i] = s.vec(c)
	}
	return all
}

// zeros returns n new registers that hold zeros. The first is copied, since avo
// takes the operands of VPXORD for inputs, even where they cancel, and keeps a
// register for them from a function's beginning.
func (s simd) zeros(c *build.Context, n int) []reg.VecVirtual {
	all := s.vecs(c, n)
	for i := range all {
		switch {
		case s.width < sumLanes:
			c.VPXOR(all[i], all[i], all[i])
		case i == 0:
			c.VPXORD(all[i], all[i], all[i])
		default:
			c.VMOVAPS(all[0], all[i])
		}
	}
	return all
}

// element is a type of numbers in memory that kernels multiply.
type element struct {
	name, goType string
	bytes        int
	// begin writes what a function needs before its loops to read such numbers.
	begin func(c *build.Context, s simd) reader
}

// reader makes float32 of numbers in two steps, each of one instruction. Lanes
// beyond a mask, if any, become zero. There may be no convert.
type reader struct {
	load    func(from operand.Mem, mask reg.Register, v reg.VecVirtual)
	convert func(v reg.VecVirtual)
}

var (
	elementF32 = element{"F32", "float32", floatBytes, func(c *build.Context, _ simd) reader {
		return reader{load: masked(c.VMOVUPS, c.VMOVUPS_Z)}
	}}
	elementInt8 = element{"Int8", "int8", 1, func(c *build.Context, _ simd) reader {
		return reader{masked(c.VPMOVSXBD, c.VPMOVSXBD_Z), func(v reg.VecVirtual) { c.VCVTDQ2PS(v, v) }}
	}}
	elementBF16 = element{"BF16", "byte", 2, func(c *build.Context, s simd) reader {
		if s.width < sumLanes {
			return reader{masked(c.VPMOVZXWD, c.VPMOVZXWD_Z), func(v reg.VecVirtual) { c.VPSLLD(operand.U8(16), v, v) }}
		}
		// One permutation moves words apart and up, where widening and shifting would take two.
		spread, upper := c.ZMM(), c.K()
		bytes, words := c.GP64(), c.GP32()
		half, all := c.XMM(), c.XMM()
		c.MOVQ(operand.U64(0x0706050403020100), bytes)
		c.VMOVQ(bytes, all)
		c.MOVQ(operand.U64(0x0f0e0d0c0b0a0908), bytes)
		c.VMOVQ(bytes, half)
		c.VPUNPCKLQDQ(half, all, all)
		c.VPMOVZXBD(all, spread)
		c.VPSLLD(operand.U8(16), spread, spread)
		c.MOVL(operand.U32(0xaaaaaaaa), words)
		c.KMOVD(words, upper)
		load := masked(c.VMOVDQU16, c.VMOVDQU16_Z)
		return reader{
			func(from operand.Mem, mask reg.Register, v reg.VecVirtual) {
				load(from, mask, v.AsY().(reg.VecVirtual))
			},
			func(v reg.VecVirtual) { c.VPERMW_Z(v, spread, upper, v) },
		}
	}}
)

// masked returns a load with and without a mask.
func masked(plain func(ops ...operand.Op), zeroing func(from, mask, v operand.Op)) func(operand.Mem, reg.Register, reg.VecVirtual) {
	return func(from operand.Mem, mask reg.Register, v reg.VecVirtual) {
		if mask == nil {
			plain(from, v)
		} else {
			zeroing(from, mask, v)
		}
	}
}

// readAll loads registers from where at says, and converts them afterwards: the
// two steps run in different units, which a mixture of them keeps less busy.
func readAll(r reader, to []reg.VecVirtual, mask reg.Register, at func(i int) operand.Mem) {
	for i, v := range to {
		r.load(at(i), mask, v)
	}
	if r.convert != nil {
		for _, v := range to {
			r.convert(v)
		}
	}
}

// rowSet addresses up to 16 rows that are stride bytes apart.
type rowSet struct {
	bases          []reg.GPVirtual // of every fourth row
	stride, triple reg.GPVirtual
}

// newRowSet returns the addresses of n rows; setBase puts them somewhere.
func newRowSet(c *build.Context, n int, stride reg.GPVirtual) rowSet {
	r := rowSet{stride: stride}
	for range (n + 3) / 4 {
		r.bases = append(r.bases, c.GP64())
	}
	if n > 3 {
		r.triple = c.GP64()
		c.LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 2}, r.triple)
	}
	return r
}

// setBase lets the first row begin at an address that bases[0] holds.
func (r rowSet) setBase(c *build.Context) {
	for i := 1; i < len(r.bases); i++ {
		c.LEAQ(operand.Mem{Base: r.bases[i-1], Index: r.stride, Scale: 4}, r.bases[i])
	}
}

// at returns the address of row i, disp bytes in.
func (r rowSet) at(i, disp int) operand.Mem {
	m := operand.Mem{Base: r.bases[i/4], Disp: disp}
	switch i % 4 {
	case 1, 2:
		m.Index, m.Scale = r.stride, uint8(i%4)
	case 3:
		m.Index, m.Scale = r.triple, 1
	}
	return m
}

// advance moves all rows by some bytes.
func (r rowSet) advance(c *build.Context, bytes int) {
	for _, b := range r.bases {
		c.ADDQ(operand.I32(bytes), b)
	}
}

// param loads a parameter into a new register.
func param(c *build.Context, name string) reg.GPVirtual {
	r := c.GP64()
	c.Load(c.Param(name), r)
	return r
}

// paramBytes loads a number of numbers into a new register, as bytes.
func paramBytes(c *build.Context, name string, bytes int) reg.GPVirtual {
	r := param(c, name)
	for ; bytes > 1; bytes /= 2 {
		c.ADDQ(r, r)
	}
	return r
}

// function begins a function.
func function(c *build.Context, name, signature, doc string) {
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr(signature)
	c.Doc(doc)
	c.Pragma("noescape")
}

// ragged returns a mask of the lanes of the last columns of a row, zero for none.
func ragged(c *build.Context, cols reg.GPVirtual) reg.OpmaskVirtual {
	left, ones, mask := c.GP32(), c.GP32(), c.K()
	c.MOVL(cols.As32(), left)
	c.ANDL(operand.U8(sumLanes-1), left)
	c.MOVL(operand.U32(1<<32-1), ones)
	c.BZHIL(left, ones, ones)
	c.KMOVW(ones, mask)
	return mask
}

// addSums adds the kernels of dot products, and of reading.
func addSums(c *build.Context) {
	for _, s := range []simd{simd256, simd512} {
		for _, n := range []element{elementF32, elementInt8, elementBF16} {
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
	read := elementF32.begin(c, s)
	step := func(mask reg.Register) {
		for i, sum := range sums {
			x, y := s.vec(c), s.vec(c)
			read.load(operand.Mem{Base: a, Disp: i * s.width * floatBytes}, mask, x)
			read.load(operand.Mem{Base: b, Disp: i * s.width * floatBytes}, mask, y)
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
func (s simd) weightedName(n element, heads, registers int) string {
	return fmt.Sprintf("weighted%dx%d%s%s", heads, registers, n.name, s.name)
}

// sumsTable writes the Go table of an instruction set's kernels.
func sumsTable(w io.Writer, s simd) {
	fmt.Fprintf(w, "\n// sums%s holds the sums of products.\nvar sums%[1]s = sums{\n", s.name)
	if s.passes() > 1 {
		fmt.Fprintf(w, "\twhole: %d,\n", sumLanes)
	}
	for _, n := range []element{elementF32, elementInt8, elementBF16} {
		fmt.Fprintf(w, "\tdots%s: []dotsTile[%s]{\n", n.name, n.goType)
		for _, t := range s.dots {
			fmt.Fprintf(w, "\t\t{%d, %d, %s, %s},\n", t[0], t[1], s.dotsName(n, t[0], t[1]), s.dotsName(n, t[0], 1))
		}
		fmt.Fprint(w, "\t},\n")
	}
	for _, n := range []element{elementF32, elementInt8} {
		fmt.Fprintf(w, "\tweighted%s: []weightedTile[%s]{\n", n.name, n.goType)
		for _, t := range s.weighted {
			fmt.Fprintf(w, "\t\t{%d, %s},\n", t[0], s.weightedName(n, t[0], t[1]))
		}
		fmt.Fprint(w, "\t},\n")
	}
	fmt.Fprintf(w, "\tdot: dotF32%s,\n\tread: read%[1]s,\n}\n", s.name)
}

// dots adds a kernel that multiplies a tile of heads with positions, tile after
// tile of positions. The lanes of a tile's sums are added in one tree.
func dots(c *build.Context, s simd, n element, heads, positions int) {
	name := s.dotsName(n, heads, positions)
	function(c, name, fmt.Sprintf("func(dst, q *float32, keys *%s, dim, positions, stride int, keyScale, scale float32)", n.goType),
		fmt.Sprintf("%s multiplies %d heads with a multiple of %d positions.", name, heads, positions))
	key, dst, left := param(c, "keys"), param(c, "dst"), param(c, "positions")
	q := newRowSet(c, heads, paramBytes(c, "dim", floatBytes))
	keyStride := q.stride
	if n.bytes != floatBytes {
		keyStride = paramBytes(c, "dim", n.bytes)
	}
	keys := newRowSet(c, positions, keyStride)
	var mask reg.OpmaskVirtual
	if s.width == sumLanes {
		mask = ragged(c, param(c, "dim"))
	}

	readQueries, readKeys := elementF32.begin(c, s), n.begin(c, s)
	// What is read is in the same registers in all steps: where only halves are
	// written, they are taken from a function's beginning, like those of zeros.
	widened := s.vecs(c, positions)
	// kept holds the sums of the first pass, of lanes that are added to those of the second.
	var kept operand.Mem
	if s.passes() > 1 {
		kept = c.AllocLocal(heads * positions * s.width * floatBytes)
	}

	c.Label("tile")
	var sums []reg.VecVirtual
	for pass := range s.passes() {
		c.Load(c.Param("q"), q.bases[0])
		q.setBase(c)
		c.MOVQ(key, keys.bases[0])
		keys.setBase(c)
		sums = s.zeros(c, heads*positions)
		step := func(mask reg.Register) {
			key := func(p int) operand.Mem { return keys.at(p, pass*s.width*n.bytes) }
			query := s.vec(c)
			if heads == 1 {
				readQueries.load(q.at(0, pass*s.width*floatBytes), mask, query)
				for p, sum := range sums {
					product := widened[p : p+1]
					readAll(readKeys, product, mask, func(int) operand.Mem { return key(p) })
					c.VMULPS(query, product[0], product[0])
					c.VADDPS(product[0], sum, sum)
				}
				return
			}
			product := s.vec(c)
			readAll(readKeys, widened, mask, key)
			for h := range heads {
				readQueries.load(q.at(h, pass*s.width*floatBytes), mask, query)
				for p, w := range widened {
					c.VMULPS(w, query, product)
					sum := sums[h*positions+p]
					c.VADDPS(product, sum, sum)
				}
			}
		}
		// While a tile is multiplied, rows further on are fetched into the cache of the
		// second level, or the machine would alternate between waiting and multiplying.
		var next reg.GPVirtual
		if pass == 0 {
			next = c.GP64()
			c.LEAQ(operand.Mem{Base: key, Index: keyStride, Scale: rowsAhead}, next)
		}
		steps := param(c, "dim")
		loop, tail, done := fmt.Sprintf("step%d", pass), fmt.Sprintf("tail%d", pass), fmt.Sprintf("done%d", pass)
		c.SHRQ(operand.U8(4), steps)
		c.JZ(operand.LabelRef(tail))
		c.Label(loop)
		step(nil)
		if next != nil {
			bytes := positions * sumLanes * n.bytes
			for at := 0; at < bytes; at += 64 {
				c.PREFETCHT1(operand.Mem{Base: next, Disp: at})
			}
			c.ADDQ(operand.I32(bytes), next)
		}
		q.advance(c, sumLanes*floatBytes)
		keys.advance(c, sumLanes*n.bytes)
		c.DECQ(steps)
		c.JNZ(operand.LabelRef(loop))
		c.Label(tail)
		if mask != nil {
			c.KTESTW(mask, mask)
			c.JZ(operand.LabelRef(done))
			step(mask)
			c.Label(done)
		}
		for i, sum := range sums {
			if s.passes() == 1 {
				break
			}
			at := kept.Offset(i * s.width * floatBytes)
			if pass == 0 {
				c.VMOVUPS(sum, at)
			} else {
				c.VADDPS(at, sum, sum)
			}
		}
	}
	sum := s.tree(c, sums)
	for _, factor := range []string{"keyScale", "scale"} {
		f := s.vec(c)
		c.VBROADCASTSS(paramMem(c, factor), f)
		c.VMULPS(f, sum, sum)
	}
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

// paramMem returns the address of a parameter.
func paramMem(c *build.Context, name string) operand.Mem {
	p, err := c.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
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
		c.PREFETCHT1(operand.Mem{Base: data, Disp: prefetchBytes + 64*i})
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
