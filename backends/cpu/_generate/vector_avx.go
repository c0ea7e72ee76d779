package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// avx is the machine of x86: AVX-512 with masks for the last round of a loop,
// and AVX2, where masks are vectors. avo assigns registers by where values are used.
type avx struct {
	c    *build.Context
	bits int // of a vector
	// data holds the constants of the file by name.
	data map[string]operand.Mem
	// labels counts the loops of the function.
	labels int
	// cur is the loop being written, nil outside.
	cur *avxRound
}

// avxRound is a round of a loop.
type avxRound struct {
	index    reg.GPVirtual // elements done
	pointers []*word
	// masks hold which lanes of each vector are active, and bytes which of its
	// bytes are written, in the last round; nil before.
	masks, bytes []reg.Register
}

// newAVX returns the machine of 256 or 512 bits.
func newAVX(c *build.Context, bits int, data map[string]operand.Mem) *avx {
	return &avx{c: c, bits: bits, data: data}
}

func (m *avx) suffix() string {
	if m.bits == 512 {
		return "AVX512"
	}
	return "AVX2"
}

func (m *avx) lanes() int { return m.bits / 32 }

func (m *avx) begin(name, doc string, params []field, result string) {
	all := make([]string, len(params))
	for i, p := range params {
		all[i] = p.name + " " + p.typ
	}
	if result != "" {
		result = " (ret " + result + ")"
	}
	name += m.suffix()
	m.c.Function(name)
	m.c.Attributes(attr.NOSPLIT)
	m.c.SignatureExpr("func(" + strings.Join(all, ", ") + ")" + result)
	m.c.Doc(name + " " + doc)
	m.c.Pragma("noescape")
	m.labels = 0
}

func (m *avx) end() {
	m.c.VZEROUPPER()
	m.c.RET()
}

// register returns a vector register of so many bits.
func (m *avx) register(bits int) reg.VecVirtual {
	switch bits {
	case 512:
		return m.c.ZMM()
	case 256:
		return m.c.YMM()
	}
	return m.c.XMM()
}

// gp returns the register of a word.
func gp(w *word) reg.GPVirtual {
	if w.free {
		panic("a word is used after it was freed")
	}
	return w.reg.(reg.GPVirtual)
}

// vr returns the register of a vector.
func vr(v *vec) reg.VecVirtual {
	if v.free || v.reg == nil {
		panic("a vector is used after it was freed, or a constant changed")
	}
	return v.reg.(reg.VecVirtual)
}

// wr returns the registers of float64.
func wr(w *wide) [2]reg.VecVirtual {
	if w.free {
		panic("a wide is used after it was freed")
	}
	return [2]reg.VecVirtual{w.regs[0].(reg.VecVirtual), w.regs[1].(reg.VecVirtual)}
}

// bytes returns a constant in memory.
func (m *avx) bytes(name string, words ...uint32) operand.Mem {
	if at, ok := m.data[name]; ok {
		return at
	}
	at := m.c.StaticGlobal(name)
	m.c.DataAttributes(attr.RODATA | attr.NOPTR)
	for i, w := range words {
		m.c.AddDatum(4*i, operand.U32(w))
	}
	m.data[name] = at
	return at
}

// constant returns the memory of a constant vector.
func (m *avx) constant(bits uint32) operand.Mem {
	words := make([]uint32, 8) // AVX-512 spreads the first
	for i := range words {
		words[i] = bits
	}
	return m.bytes(fmt.Sprintf("all_%08x", bits), words...)
}

// source returns the register of an operand, after loading a constant.
func (m *avx) source(v *vec) operand.Op {
	if v.reg != nil {
		return vr(v)
	}
	r := m.register(m.bits)
	m.c.VBROADCASTSS(m.constant(v.constant), r)
	return r
}

// memory returns where vector i of elements of size bytes is.
func (m *avx) memory(p *word, i, size int) operand.Mem {
	at := operand.Mem{Base: gp(p), Disp: i * m.lanes() * size}
	if m.cur != nil {
		for _, q := range m.cur.pointers {
			if p == q {
				at.Index, at.Scale = m.cur.index, uint8(p.size)
			}
		}
	}
	return at
}

// mask returns which lanes of vector i are active, nil for all.
func (m *avx) mask(i int) reg.Register {
	if m.cur == nil || m.cur.masks == nil {
		return nil
	}
	return m.cur.masks[i]
}

// Words.

func (m *avx) param(name string, size int) *word {
	r := m.c.GP64()
	m.c.Load(m.c.Param(name), r)
	return &word{reg: r, size: size}
}

// address returns where a parameter or result is.
func (m *avx) address(name string) operand.Mem {
	c := m.c.Param(name)
	if name == "ret" {
		c = m.c.Return(name)
	}
	b, err := c.Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

func (m *avx) paramVec(name string) *vec {
	v := m.newVec()
	m.c.VBROADCASTSS(m.address(name), vr(v))
	return v
}

func (m *avx) retVec(v *vec) { m.c.VMOVSS(vr(v).AsX(), m.address("ret")) }

func (m *avx) retPair(low, high *vec) {
	l, h := m.c.GP64(), m.c.GP64()
	m.c.VMOVD(vr(low).AsX(), l.As32())
	m.c.VMOVD(vr(high).AsX(), h.As32())
	m.c.MOVLQSX(h.As32(), h)
	m.c.SHLQ(operand.U8(16), h)
	m.c.ADDQ(l, h)
	m.c.MOVQ(h, m.address("ret"))
}

func (m *avx) copyWord(w *word) *word {
	r := m.c.GP64()
	m.c.MOVQ(gp(w), r)
	return &word{reg: r, size: w.size}
}

func (m *avx) move(dst, src *word) { m.c.MOVQ(gp(src), gp(dst)) }

func (m *avx) advance(p, n *word) {
	m.c.LEAQ(operand.Mem{Base: gp(p), Index: gp(n), Scale: uint8(p.size)}, gp(p))
}

func (m *avx) advanceBy(p *word, n int) { m.c.ADDQ(operand.I32(int32(n*p.size)), gp(p)) }

func (m *avx) freeWord(all ...*word) {
	for _, w := range all {
		gp(w)
		w.free = true
	}
}

// Loops.

// label returns a new name of a place in the function.
func (m *avx) label(what string) string {
	m.labels++
	return fmt.Sprintf("%s%d", what, m.labels)
}

func (m *avx) times(n *word, body func()) {
	label := m.label("times")
	m.c.Label(label)
	body()
	m.c.DECQ(gp(n))
	m.c.JNZ(operand.LabelRef(label))
	m.freeWord(n)
}

func (m *avx) loop(n *word, pointers []*word, vectors int, body func()) {
	step := vectors * m.lanes()
	full, last, done := m.label("full"), m.label("last"), m.label("done")
	m.cur = &avxRound{index: m.c.GP64(), pointers: pointers}
	m.c.XORQ(m.cur.index, m.cur.index)
	m.c.SUBQ(operand.I32(int32(step)), gp(n))
	m.c.JLT(operand.LabelRef(last))
	m.c.Label(full)
	body()
	m.c.ADDQ(operand.I32(int32(step)), m.cur.index)
	m.c.SUBQ(operand.I32(int32(step)), gp(n))
	m.c.JGE(operand.LabelRef(full))
	m.c.Label(last)
	m.c.ADDQ(operand.I32(int32(step)), gp(n))
	m.c.JZ(operand.LabelRef(done))
	m.setMasks(n, vectors)
	body()
	m.c.Label(done)
	m.cur = nil
	m.freeWord(n)
	m.freeWord(pointers...)
}

// setMasks makes n lanes of the round's vectors active.
func (m *avx) setMasks(n *word, vectors int) {
	writesBytes := false
	for _, p := range m.cur.pointers {
		writesBytes = writesBytes || p.size == 1
	}
	if m.bits == 512 {
		m.cur.masks = m.opmasks(gp(n), vectors)
		if writesBytes {
			up := m.c.GP64()
			m.c.LEAQ(operand.Mem{Base: gp(n), Disp: 3}, up)
			m.c.ANDQ(operand.I8(-4), up)
			m.cur.bytes = m.opmasks(up, vectors)
		}
		return
	}
	m.cur.masks = m.vectorMasks(gp(n), 256, vectors, m.lanes())
	if writesBytes {
		up := m.c.GP64()
		m.c.LEAQ(operand.Mem{Base: gp(n), Disp: 3}, up)
		m.c.SHRQ(operand.U8(2), up)
		m.cur.bytes = m.vectorMasks(up, 128, vectors, m.lanes()/4)
	}
}

// opmasks returns masks of n lanes, 16 in each.
func (m *avx) opmasks(n reg.GPVirtual, vectors int) (masks []reg.Register) {
	if vectors > 4 {
		panic("more than 64 lanes in a round")
	}
	bits := m.c.GP64()
	m.c.MOVQ(operand.I32(-1), bits)
	m.c.BZHIQ(n, bits, bits)
	for i := range vectors {
		if i > 0 {
			m.c.SHRQ(operand.U8(16), bits)
		}
		k := m.c.K()
		m.c.KMOVW(bits.As32(), k)
		masks = append(masks, k)
	}
	return masks
}

// vectorMasks returns masks of n lanes in vectors of so many bits, of which each takes so many of n.
func (m *avx) vectorMasks(n reg.GPVirtual, bits, vectors, each int) (masks []reg.Register) {
	all := m.register(bits)
	m.c.VMOVD(n.As32(), all.AsX())
	m.c.VPBROADCASTD(all.AsX(), all)
	for i := range vectors {
		index := make([]uint32, bits/32)
		for l := range index {
			index[l] = math.MaxInt32
			if l < each {
				index[l] = uint32(i*each + l)
			}
		}
		mask := m.register(bits)
		m.c.VPCMPGTD(m.bytes(fmt.Sprintf("lanes_%dx%d_%d", bits, each, i), index...), all, mask)
		masks = append(masks, mask)
	}
	return masks
}

// Vectors.

func (m *avx) newVec() *vec { return &vec{reg: m.register(m.bits)} }

func (m *avx) constantVec(bits uint32) *vec { return &vec{constant: bits} }

func (m *avx) freeVec(all ...*vec) {
	for _, v := range all {
		vr(v)
		v.free = true
	}
}

func (m *avx) set(dst, src *vec) {
	switch {
	case src.reg == nil && src.constant == 0:
		m.zero(vr(dst))
	case src.reg == nil:
		m.c.VBROADCASTSS(m.constant(src.constant), vr(dst))
	default:
		m.c.VMOVAPS(vr(src), vr(dst))
	}
}

// zero clears a register.
func (m *avx) zero(r reg.VecVirtual) {
	if m.bits == 512 {
		m.c.VPXORD(r, r, r)
	} else {
		m.c.VPXOR(r, r, r)
	}
}

func (m *avx) load(dst *vec, p *word, i int) {
	at, k := m.memory(p, i, 4), m.mask(i)
	switch {
	case k == nil:
		m.c.VMOVUPS(at, vr(dst))
	case m.bits == 512:
		m.c.VMOVUPS_Z(at, k, vr(dst))
	default:
		m.c.VMASKMOVPS(at, k, vr(dst))
	}
}

func (m *avx) splat(dst *vec, p *word, i int) {
	m.c.VBROADCASTSS(operand.Mem{Base: gp(p), Disp: 4 * i}, vr(dst))
}

func (m *avx) store(v *vec, p *word, i int) {
	at, k := m.memory(p, i, 4), m.mask(i)
	switch {
	case k == nil:
		m.c.VMOVUPS(vr(v), at)
	case m.bits == 512:
		m.c.VMOVUPS(vr(v), k, at)
	default:
		m.c.VMASKMOVPS(vr(v), k, at)
	}
}

func (m *avx) storeFirst(v *vec, p *word) { m.c.VMOVSS(vr(v).AsX(), operand.Mem{Base: gp(p)}) }

func (m *avx) storeByte(v *vec, at int, p *word, i int) {
	to := m.memory(p, i, 1)
	if m.bits == 512 {
		from, packed := vr(v), m.c.XMM()
		if at > 0 {
			from = m.c.ZMM()
			m.c.VPSRLD(operand.U8(8*at), vr(v), from)
		}
		m.c.VPMOVDB(from, packed)
		if m.mask(i) == nil {
			m.c.VMOVDQU(packed, to)
		} else {
			m.c.VMOVDQU8(packed, m.cur.bytes[i], to)
		}
		return
	}
	// The byte of each of the four lanes of a half goes to the half's first lane.
	const none = 0x80808080
	first := uint32(at) * 0x01010101
	pick := m.bytes(fmt.Sprintf("byte_%d", at), first+0x0c080400, none, none, none, first+0x0c080400, none, none, none)
	packed, upper := m.c.YMM(), m.c.XMM()
	m.c.VPSHUFB(pick, vr(v), packed)
	m.c.VEXTRACTI128(operand.U8(1), packed, upper)
	m.c.VPUNPCKLDQ(upper, packed.AsX(), upper)
	if m.mask(i) == nil {
		m.c.VMOVQ(upper, to)
	} else {
		m.c.VPMASKMOVD(upper, m.cur.bytes[i], to)
	}
}

func (m *avx) keep(v *vec, i int, other *vec) {
	switch k := m.mask(i); {
	case k == nil:
	case m.bits == 512:
		m.c.VBLENDMPS(vr(v), m.source(other), k, vr(v))
	default:
		m.c.VBLENDVPS(k, vr(v), m.source(other), vr(v))
	}
}

// instruction is a method of avo's context.
type instruction = func(ops ...operand.Op)

// operate writes dst = a op b, where spread is the instruction that takes b from a single number in memory.
func (m *avx) operate(whole, spread instruction, dst, a, b *vec) {
	first := m.source(a)
	switch {
	case b.reg != nil:
		whole(vr(b), first, vr(dst))
	case m.bits == 512:
		spread(m.constant(b.constant), first, vr(dst))
	default:
		whole(m.constant(b.constant), first, vr(dst))
	}
}

// three turns a method of three operands into an instruction.
func three(f func(a, b, c operand.Op)) instruction {
	return func(ops ...operand.Op) { f(ops[0], ops[1], ops[2]) }
}

func (m *avx) add(dst, a, b *vec) { m.operate(m.c.VADDPS, m.c.VADDPS_BCST, dst, a, b) }
func (m *avx) sub(dst, a, b *vec) { m.operate(m.c.VSUBPS, m.c.VSUBPS_BCST, dst, a, b) }
func (m *avx) mul(dst, a, b *vec) { m.operate(m.c.VMULPS, m.c.VMULPS_BCST, dst, a, b) }
func (m *avx) div(dst, a, b *vec) { m.operate(m.c.VDIVPS, m.c.VDIVPS_BCST, dst, a, b) }
func (m *avx) max(dst, a, b *vec) { m.operate(m.c.VMAXPS, m.c.VMAXPS_BCST, dst, a, b) }
func (m *avx) min(dst, a, b *vec) { m.operate(m.c.VMINPS, m.c.VMINPS_BCST, dst, a, b) }

func (m *avx) addInt(dst, a, b *vec) { m.operate(m.c.VPADDD, m.c.VPADDD_BCST, dst, a, b) }
func (m *avx) maxInt(dst, a, b *vec) { m.operate(m.c.VPMAXSD, m.c.VPMAXSD_BCST, dst, a, b) }

func (m *avx) and(dst, a, b *vec) {
	whole := three(m.c.VPAND)
	if m.bits == 512 {
		whole = m.c.VPANDD
	}
	m.operate(whole, m.c.VPANDD_BCST, dst, a, b)
}

func (m *avx) xor(dst, a, b *vec) {
	whole := three(m.c.VPXOR)
	if m.bits == 512 {
		whole = m.c.VPXORD
	}
	m.operate(whole, m.c.VPXORD_BCST, dst, a, b)
}

func (m *avx) choose(dst, a, b, x, y *vec) {
	const less = 17 // ordered and quiet
	first, otherwise := m.source(a), m.source(y)
	if m.bits == 512 {
		k := m.c.K()
		if b.reg != nil {
			m.c.VCMPPS(operand.U8(less), vr(b), first, k)
		} else {
			m.c.VCMPPS_BCST(operand.U8(less), m.constant(b.constant), first, k)
		}
		if x.reg != nil {
			m.c.VBLENDMPS(vr(x), otherwise, k, vr(dst))
		} else {
			m.c.VBLENDMPS_BCST(m.constant(x.constant), otherwise, k, vr(dst))
		}
		return
	}
	mask := m.c.YMM()
	if b.reg != nil {
		m.c.VCMPPS(operand.U8(less), vr(b), first, mask)
	} else {
		m.c.VCMPPS(operand.U8(less), m.constant(b.constant), first, mask)
	}
	if x.reg != nil {
		m.c.VBLENDVPS(mask, vr(x), otherwise, vr(dst))
	} else {
		m.c.VBLENDVPS(mask, m.constant(x.constant), otherwise, vr(dst))
	}
}

func (m *avx) shiftLeft(dst, a *vec, bits int)  { m.c.VPSLLD(operand.U8(bits), vr(a), vr(dst)) }
func (m *avx) shiftRight(dst, a *vec, bits int) { m.c.VPSRAD(operand.U8(bits), vr(a), vr(dst)) }

func (m *avx) round(dst, a *vec) { m.c.VCVTPS2DQ(vr(a), vr(dst)) }
func (m *avx) float(dst, a *vec) { m.c.VCVTDQ2PS(vr(a), vr(dst)) }

func (m *avx) fold(v *vec, op func(dst, a, b *vec)) {
	t := m.newVec()
	r, upper := vr(v), vr(t)
	if m.bits == 512 {
		m.c.VSHUFF64X2(operand.U8(0x0e), r, r, upper)
		op(v, v, t)
		m.c.VSHUFF64X2(operand.U8(0x01), r, r, upper)
		op(v, v, t)
	} else {
		m.c.VPERM2F128(operand.U8(0x01), r, r, upper)
		op(v, v, t)
	}
	m.c.VPERMILPS(operand.U8(0x0e), r, upper)
	op(v, v, t)
	m.c.VPERMILPS(operand.U8(0x01), r, upper)
	op(v, v, t)
	m.freeVec(t)
}

// Wides.

func (m *avx) newWide() *wide {
	return &wide{regs: []any{m.register(m.bits), m.register(m.bits)}}
}

func (m *avx) freeWide(w *wide) {
	wr(w)
	w.free = true
}

// half returns the memory of half h of the int32 of vector i.
func (m *avx) half(p *word, i, h int) operand.Mem {
	return m.memory(p, i, 4).Offset(m.bits / 16 * h)
}

func (m *avx) widen(w *wide, p *word, i int) {
	for h, r := range wr(w) {
		m.c.VCVTDQ2PD(m.half(p, i, h), r)
	}
}

func (m *avx) horner(w *wide, p *word, i int) {
	const base = 256
	bits := math.Float64bits(base)
	lo, hi := uint32(bits), uint32(bits>>32)
	at := m.bytes("wide_256", lo, hi, lo, hi, lo, hi, lo, hi)
	for h, r := range wr(w) {
		if m.bits == 512 {
			m.c.VMULPD_BCST(at, r, r)
		} else {
			m.c.VMULPD(at, r, r)
		}
		digit := m.register(m.bits)
		m.c.VCVTDQ2PD(m.half(p, i, h), digit)
		m.c.VADDPD(digit, r, r)
	}
}

func (m *avx) addWide(w *wide, p *word) {
	t := m.register(m.bits)
	m.c.VBROADCASTSD(operand.Mem{Base: gp(p)}, t)
	for _, r := range wr(w) {
		m.c.VADDPD(t, r, r)
	}
}

func (m *avx) narrow(dst *vec, w *wide) {
	d, r := vr(dst), wr(w)
	upper := m.register(m.bits)
	if m.bits == 512 {
		m.c.VCVTPD2PS(r[0], d.AsY())
		m.c.VCVTPD2PS(r[1], upper.AsY())
		m.c.VINSERTF64X4(operand.U8(1), upper.AsY(), d, d)
		return
	}
	m.c.VCVTPD2PSY(r[0], d.AsX())
	m.c.VCVTPD2PSY(r[1], upper.AsX())
	m.c.VINSERTF128(operand.U8(1), upper.AsX(), d, d)
}
