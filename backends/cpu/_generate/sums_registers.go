package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
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

// loader loads a register. Lanes beyond a mask, if any, become zero.
type loader func(from operand.Mem, mask reg.Register, v reg.VecVirtual)

// reader makes float32 of numbers in two steps, each of one instruction. There may be no convert.
type reader struct {
	load    loader
	convert func(v reg.VecVirtual)
}

var (
	elementF32 = element{"F32", "float32", floatBytes, func(c *build.Context, _ simd) reader {
		return reader{load: loadFloats(c)}
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
func masked(plain func(ops ...operand.Op), zeroing func(from, mask, v operand.Op)) loader {
	return func(from operand.Mem, mask reg.Register, v reg.VecVirtual) {
		if mask == nil {
			plain(from, v)
		} else {
			zeroing(from, mask, v)
		}
	}
}

// loadFloats loads float32.
func loadFloats(c *build.Context) loader { return masked(c.VMOVUPS, c.VMOVUPS_Z) }

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

// paramMem returns the address of a parameter.
func paramMem(c *build.Context, name string) operand.Mem {
	p, err := c.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}
