package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// neon is the machine of arm64: 128-bit registers, which it assigns as they are
// taken and freed. A last round of a loop loads and stores lane by lane.
//
// Constants must be in registers, and which can stay there is known when a
// function has ended. So functions are described twice, the first time to learn that.
type neon struct {
	a *arm64
	// needs of the functions by name: learned, then known.
	needs  map[string]*neonNeeds
	known  bool
	needed *neonNeeds
	// kept are the constants that stay in registers.
	kept map[constant]vreg
	// temps are registers of the operation being written, and loaded tells how many of them hold constants.
	temps  []vreg
	loaded int
	// often is how often, by a rough guess, what is being written runs.
	often  int
	labels int
	// active is the number of active lanes in the last round of a loop.
	active *word
}

// neonNeeds is what a function needs of registers.
type neonNeeds struct {
	// uses of constants.
	uses map[constant]int
	// most is the most registers in use at once, all including constants that do not stay.
	most, all int
}

// constant is a number in four lanes of 32 bits, or in two of 64.
type constant struct {
	bits uint64
	wide bool
}

// describeNEON writes what is described over a machine.
func describeNEON(a *arm64, describe func(m machine)) {
	m := &neon{a: new(arm64), needs: map[string]*neonNeeds{}}
	describe(m)
	describe(&neon{a: a, needs: m.needs, known: true})
}

func (m *neon) suffix() string { return "NEON" }

func (m *neon) lanes() int { return 4 }

func (m *neon) begin(name, doc string, params []field, result string) {
	all := make([]string, len(params))
	for i, p := range params {
		all[i] = p.name + " " + p.typ
	}
	if result != "" {
		result = " (ret " + result + ")"
	}
	name += m.suffix()
	m.a.function(name, name+" "+doc, "func("+strings.Join(all, ", ")+")"+result)
	m.kept, m.often, m.labels = map[constant]vreg{}, 1, 0
	if !m.known {
		m.needs[name] = &neonNeeds{uses: map[constant]int{}}
	}
	m.needed = m.needs[name]
	if !m.known {
		return
	}
	n := m.needed
	constants := slices.SortedFunc(maps.Keys(n.uses), func(a, b constant) int {
		return cmp.Or(cmp.Compare(n.uses[b], n.uses[a]), cmp.Compare(a.bits, b.bits))
	})
	if len(constants)+n.most > 32 {
		constants = constants[:min(len(constants), 32-n.all)]
	}
	for i, c := range constants {
		v := vreg(31 - i)
		m.a.vs.free &^= 1 << v
		m.kept[c] = v
		m.fill(v, c)
	}
}

func (m *neon) end() { m.a.op("RET") }

// fill sets a register to a constant.
func (m *neon) fill(v vreg, c constant) {
	if c.bits == 0 {
		m.a.zero(v)
		return
	}
	x := m.a.x()
	m.a.op("MOVD", fmt.Sprintf("$%#x", c.bits), x)
	if c.wide {
		m.a.op("VDUP", x, v.as("D2"))
	} else {
		m.a.op("VDUP", x, v.as("S4"))
	}
	m.a.freeX(x)
}

// take takes a register.
func (m *neon) take() vreg {
	v := m.a.v()
	used := 32 - bits.OnesCount32(m.a.vs.free) - len(m.kept)
	m.needed.most = max(m.needed.most, used-m.loaded)
	m.needed.all = max(m.needed.all, used)
	return v
}

// temp takes a register for the operation being written.
func (m *neon) temp() vreg {
	v := m.take()
	m.temps = append(m.temps, v)
	return v
}

// done frees the registers of an operation.
func (m *neon) done() {
	m.a.freeV(m.temps...)
	m.temps, m.loaded = m.temps[:0], 0
}

// constant returns a register with a constant.
func (m *neon) constant(c constant) vreg {
	m.needed.uses[c] += m.often
	if v, ok := m.kept[c]; ok {
		return v
	}
	m.loaded++
	v := m.temp()
	m.fill(v, c)
	return v
}

// v returns the register of a vector.
func (m *neon) v(v *vec) vreg {
	if v.free || v.reg == nil {
		panic("a vector is used after it was freed, or a constant changed")
	}
	return v.reg.(vreg)
}

// source returns the register of an operand.
func (m *neon) source(v *vec) vreg {
	if v.reg == nil {
		return m.constant(constant{bits: uint64(v.constant)})
	}
	return m.v(v)
}

// x returns the register of a word.
func (m *neon) x(w *word) xreg {
	if w.free {
		panic("a word is used after it was freed")
	}
	return w.reg.(xreg)
}

// w returns the registers of float64.
func (m *neon) w(w *wide) [2]vreg {
	if w.free {
		panic("a wide is used after it was freed")
	}
	return [2]vreg{w.regs[0].(vreg), w.regs[1].(vreg)}
}

// Words.

func (m *neon) param(name string, size int) *word { return &word{reg: m.a.load(name), size: size} }

func (m *neon) paramVec(name string) *vec {
	v := m.newVec()
	m.a.op("FMOVS", m.a.param(name), m.v(v))
	m.a.op("VDUP", m.v(v).as("S[0]"), m.v(v).as("S4"))
	return v
}

func (m *neon) retVec(v *vec) {
	x := m.a.x()
	m.a.op("FMOVS", m.source(v), x)
	m.a.op("MOVW", x, m.a.result("ret"))
	m.a.freeX(x)
	m.done()
}

func (m *neon) retPair(low, high *vec) {
	l, h := m.a.x(), m.a.x()
	m.a.op("VMOV", m.v(low).as("S[0]"), l)
	m.a.op("VMOV", m.v(high).as("S[0]"), h)
	m.a.op("MOVW", h, h)
	m.a.op("ADD", fmt.Sprintf("%s<<16", h), l, l)
	m.a.op("MOVD", l, m.a.result("ret"))
	m.a.freeX(l, h)
}

func (m *neon) copyWord(w *word) *word {
	c := &word{reg: m.a.x(), size: w.size}
	m.move(c, w)
	return c
}

func (m *neon) move(dst, src *word) { m.a.op("MOVD", m.x(src), m.x(dst)) }

func (m *neon) advance(p, n *word) {
	m.a.op("ADD", fmt.Sprintf("%s<<%d", m.x(n), bits.TrailingZeros(uint(p.size))), m.x(p), m.x(p))
}

func (m *neon) advanceBy(p *word, n int) { m.a.op("ADD", imm(n*p.size), m.x(p), m.x(p)) }

func (m *neon) freeWord(all ...*word) {
	for _, w := range all {
		m.a.freeX(m.x(w))
		w.free = true
	}
}

// Loops.

// label returns a new name of a place in the function.
func (m *neon) label(what string) string {
	m.labels++
	return fmt.Sprintf("%s%d", what, m.labels)
}

// repeated writes what runs in a loop.
func (m *neon) repeated(body func()) {
	const rounds = 8
	m.often *= rounds
	body()
	m.often /= rounds
}

func (m *neon) times(n *word, body func()) {
	label := m.label("times")
	m.a.label(label)
	m.repeated(body)
	m.a.op("SUBS", imm(1), m.x(n), m.x(n))
	m.a.op("BNE", label)
	m.freeWord(n)
}

func (m *neon) loop(n *word, pointers []*word, vectors int, body func()) {
	step := vectors * m.lanes()
	full, last, done := m.label("full"), m.label("last"), m.label("done")
	m.a.op("SUBS", imm(step), m.x(n), m.x(n))
	m.a.op("BLT", last)
	m.a.label(full)
	m.repeated(body)
	for _, p := range pointers {
		m.advanceBy(p, step)
	}
	m.a.op("SUBS", imm(step), m.x(n), m.x(n))
	m.a.op("BGE", full)
	m.a.label(last)
	m.a.op("ADDS", imm(step), m.x(n), m.x(n))
	m.a.op("BEQ", done)
	m.active = n
	body()
	m.active = nil
	m.a.label(done)
	m.freeWord(n)
	m.freeWord(pointers...)
}

// lanewise writes what is to be done with vector i: whole if all its lanes are
// active; else one for each that is, the first first.
func (m *neon) lanewise(i int, whole func(), one func(lane int)) {
	if m.active == nil {
		whole()
		return
	}
	n, some, done := m.x(m.active), m.label("some"), m.label("done")
	m.a.op("CMP", imm(4*i+4), n)
	m.a.op("BLT", some)
	whole()
	m.a.op("B", done)
	m.a.label(some)
	for lane := range 3 {
		m.a.op("CMP", imm(4*i+lane+1), n)
		m.a.op("BLT", done)
		one(lane)
	}
	m.a.label(done)
}

// Vectors.

func (m *neon) newVec() *vec { return &vec{reg: m.take()} }

func (m *neon) constantVec(bits uint32) *vec { return &vec{constant: bits} }

func (m *neon) freeVec(all ...*vec) {
	for _, v := range all {
		m.a.freeV(m.v(v))
		v.free = true
	}
}

func (m *neon) set(dst, src *vec) {
	if src.reg == nil && src.constant == 0 {
		m.a.zero(m.v(dst))
	} else {
		m.copyVec(m.v(dst), m.source(src))
	}
	m.done()
}

// copyVec copies a register.
func (m *neon) copyVec(dst, src vreg) {
	if dst != src {
		m.a.op("VORR", src.as("B16"), src.as("B16"), dst.as("B16"))
	}
}

// at returns the address of vector i of elements of size bytes.
func (m *neon) at(p *word, i, size int) string { return mem(m.x(p), i*m.lanes()*size) }

// element calls f with the address of an element of 4 bytes, in a register alone, and the name of a lane of v.
func (m *neon) element(v vreg, p *word, i, lane int, f func(at, lane string)) {
	x := m.a.x()
	m.a.op("ADD", imm(4*(i*m.lanes()+lane)), m.x(p), x)
	f(mem(x, 0), fmt.Sprintf("%s[%d]", v.as("S"), lane))
	m.a.freeX(x)
}

func (m *neon) load(dst *vec, p *word, i int) {
	v := m.v(dst)
	if m.active != nil {
		m.a.zero(v)
	}
	m.lanewise(i, func() { m.a.op("FMOVQ", m.at(p, i, 4), v) }, func(lane int) {
		m.element(v, p, i, lane, func(at, lane string) { m.a.op("VLD1", at, lane) })
	})
}

func (m *neon) store(src *vec, p *word, i int) {
	v := m.source(src)
	m.lanewise(i, func() { m.a.op("FMOVQ", v, m.at(p, i, 4)) }, func(lane int) {
		m.element(v, p, i, lane, func(at, lane string) { m.a.op("VST1", lane, at) })
	})
	m.done()
}

func (m *neon) splat(dst *vec, p *word, i int) {
	m.a.op("FMOVS", mem(m.x(p), 4*i), m.v(dst))
	m.a.op("VDUP", m.v(dst).as("S[0]"), m.v(dst).as("S4"))
}

func (m *neon) storeFirst(v *vec, p *word) { m.a.op("FMOVS", m.v(v), mem(m.x(p), 0)) }

func (m *neon) storeByte(v *vec, at int, p *word, i int) {
	// Halves of 16 bits are picked, then bytes of those.
	pick := [...]string{"VUZP1", "VUZP2"}
	t := m.temp()
	m.a.op(pick[at/2], m.v(v).as("H8"), m.v(v).as("H8"), t.as("H8"))
	m.a.op(pick[at%2], t.as("B16"), t.as("B16"), t.as("B16"))
	store := func() { m.a.op("FMOVS", t, m.at(p, i, 1)) }
	if m.active == nil {
		store()
	} else {
		done := m.label("done")
		m.a.op("CMP", imm(4*i+1), m.x(m.active))
		m.a.op("BLT", done)
		store()
		m.a.label(done)
	}
	m.done()
}

func (m *neon) keep(v *vec, i int, other *vec) {
	if m.active == nil {
		return
	}
	o := m.source(other)
	skip := m.label("done")
	for lane := range 4 {
		// Lanes before are active.
		m.a.op("CMP", imm(4*i+4-lane), m.x(m.active))
		m.a.op("BGE", skip)
		at := fmt.Sprintf("S[%d]", 3-lane)
		m.a.op("VMOV", o.as(at), m.v(v).as(at))
	}
	m.a.label(skip)
	m.done()
}

// operate writes dst = a op b.
func (m *neon) operate(i encoded, dst, a, b *vec) {
	m.a.op3(i, m.v(dst), m.source(a), m.source(b))
	m.done()
}

// operateGo is operate with an instruction of Go's assembler.
func (m *neon) operateGo(name, lanes string, dst, a, b *vec) {
	m.a.op(name, m.source(b).as(lanes), m.source(a).as(lanes), m.v(dst).as(lanes))
	m.done()
}

func (m *neon) add(dst, a, b *vec) { m.operate(fadd, dst, a, b) }
func (m *neon) sub(dst, a, b *vec) { m.operate(fsub, dst, a, b) }
func (m *neon) mul(dst, a, b *vec) { m.operate(fmul, dst, a, b) }
func (m *neon) div(dst, a, b *vec) { m.operate(fdiv, dst, a, b) }
func (m *neon) max(dst, a, b *vec) { m.choose(dst, b, a, a, b) }
func (m *neon) min(dst, a, b *vec) { m.choose(dst, a, b, a, b) }

func (m *neon) choose(dst, a, b, x, y *vec) {
	d, first, second, yes, no := m.v(dst), m.source(a), m.source(b), m.source(x), m.source(y)
	switch {
	case d == yes && d != no:
		t := m.temp()
		m.a.op3(fcmgt, t, second, first)
		m.a.op("VBIF", t.as("B16"), no.as("B16"), d.as("B16"))
	case d == no:
		t := m.temp()
		m.a.op3(fcmgt, t, second, first)
		m.a.op("VBIT", t.as("B16"), yes.as("B16"), d.as("B16"))
	default:
		m.a.op3(fcmgt, d, second, first)
		m.a.op("VBSL", no.as("B16"), yes.as("B16"), d.as("B16"))
	}
	m.done()
}

func (m *neon) addInt(dst, a, b *vec) { m.operateGo("VADD", "S4", dst, a, b) }
func (m *neon) maxInt(dst, a, b *vec) { m.operate(smax, dst, a, b) }
func (m *neon) and(dst, a, b *vec)    { m.operateGo("VAND", "B16", dst, a, b) }
func (m *neon) xor(dst, a, b *vec)    { m.operateGo("VEOR", "B16", dst, a, b) }

func (m *neon) shiftLeft(dst, a *vec, bits int) {
	m.a.op("VSHL", imm(bits), m.source(a).as("S4"), m.v(dst).as("S4"))
	m.done()
}

func (m *neon) shiftRight(dst, a *vec, bits int) {
	m.a.shiftRight(m.v(dst), m.source(a), bits)
	m.done()
}

func (m *neon) round(dst, a *vec) {
	m.a.op2(fcvtns, m.v(dst), m.source(a))
	m.done()
}

func (m *neon) float(dst, a *vec) {
	m.a.op2(scvtf, m.v(dst), m.source(a))
	m.done()
}

func (m *neon) fold(v *vec, op func(dst, a, b *vec)) {
	t := m.newVec()
	from, to := m.v(v), m.v(t)
	m.a.op("VEXT", imm(8), from.as("B16"), from.as("B16"), to.as("B16"))
	op(v, v, t)
	m.a.op("VDUP", from.as("S[1]"), to.as("S4"))
	op(v, v, t)
	m.freeVec(t)
}

// Wides.

func (m *neon) newWide() *wide { return &wide{regs: []any{m.take(), m.take()}} }

func (m *neon) freeWide(w *wide) {
	r := m.w(w)
	m.a.freeV(r[:]...)
	w.free = true
}

// widenInto sets two registers to the int32 of vector i from p on.
func (m *neon) widenInto(low, high vreg, p *word, i int) {
	m.a.op("FMOVQ", m.at(p, i, 4), low)
	m.a.op2(sxtl2, high, low)
	m.a.op2(sxtl, low, low)
	m.a.op2(scvtfWide, high, high)
	m.a.op2(scvtfWide, low, low)
}

func (m *neon) widen(w *wide, p *word, i int) {
	r := m.w(w)
	m.widenInto(r[0], r[1], p, i)
}

func (m *neon) horner(w *wide, p *word, i int) {
	digits := [2]vreg{m.temp(), m.temp()}
	m.widenInto(digits[0], digits[1], p, i)
	base := m.constant(constant{math.Float64bits(256), true})
	for h, r := range m.w(w) {
		m.a.op3(fmulWide, r, r, base)
		m.a.op3(faddWide, r, r, digits[h])
	}
	m.done()
}

func (m *neon) addWide(w *wide, p *word) {
	t := m.temp()
	m.a.op("VLD1R", mem(m.x(p), 0), "["+t.as("D2]"))
	for _, r := range m.w(w) {
		m.a.op3(faddWide, r, r, t)
	}
	m.done()
}

func (m *neon) narrow(dst *vec, w *wide) {
	r := m.w(w)
	m.a.op2(fcvtn, m.v(dst), r[0])
	m.a.op2(fcvtn2, m.v(dst), r[1])
}
