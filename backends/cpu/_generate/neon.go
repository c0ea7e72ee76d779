package main

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"strings"

	"github.com/mmcloughlin/avo/gotypes"
)

// xreg is a general register of arm64, vreg a vector register.
type (
	xreg int
	vreg int
)

// String returns the register as Go's assembler names it.
func (r xreg) String() string { return fmt.Sprintf("R%d", int(r)) }

// String returns the register as Go's assembler names it in loads and stores.
func (r vreg) String() string { return fmt.Sprintf("F%d", int(r)) }

// as returns the register with an arrangement of lanes as Go's assembler names it.
func (r vreg) as(arrangement string) string { return fmt.Sprintf("V%d.%s", int(r), arrangement) }

// arm64 writes functions in Go's assembly for arm64 and their declarations.
// It panics on what is a mistake in a kernel's description.
type arm64 struct {
	text, stubs bytes.Buffer
	signature   *gotypes.Signature
	xs, vs      pool
}

// pool holds which of up to 32 registers are taken.
type pool struct {
	kind string
	free uint32
}

// take returns the lowest free register.
func (p *pool) take() int {
	for i := range 32 {
		if p.free>>i&1 == 1 {
			p.free &^= 1 << i
			return i
		}
	}
	panic("no free register " + p.kind)
}

// release frees a register.
func (p *pool) release(i int) {
	if p.free>>i&1 == 1 {
		panic(fmt.Sprintf("register %s%d is free already", p.kind, i))
	}
	p.free |= 1 << i
}

// generalRegisters are those that neither the platforms, the assembler, Go nor calls use: R0 to R15 and R19 to R26.
const generalRegisters = 0x07f8ffff

// function begins a function. Registers of the one before are free again.
func (a *arm64) function(name, doc, signature string) {
	s, err := gotypes.ParseSignature(signature)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	a.signature = s
	a.xs, a.vs = pool{"R", generalRegisters}, pool{"V", 1<<32 - 1}
	fmt.Fprintf(&a.stubs, "\n// %s\n//\n//go:noescape\nfunc %s%s\n", doc, name, s)
	fmt.Fprintf(&a.text, "\n// func %s%s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, s, name, s.Bytes())
}

// x takes a general register.
func (a *arm64) x() xreg { return xreg(a.xs.take()) }

// v takes a vector register.
func (a *arm64) v() vreg { return vreg(a.vs.take()) }

// vectors takes n vector registers.
func (a *arm64) vectors(n int) []vreg {
	all := make([]vreg, n)
	for i := range all {
		all[i] = a.v()
	}
	return all
}

// freeX releases general registers.
func (a *arm64) freeX(regs ...xreg) {
	for _, r := range regs {
		a.xs.release(int(r))
	}
}

// freeV releases vector registers.
func (a *arm64) freeV(regs ...vreg) {
	for _, r := range regs {
		a.vs.release(int(r))
	}
}

// op writes an instruction of Go's assembler, the destination last.
func (a *arm64) op(name string, operands ...any) {
	texts := make([]string, len(operands))
	for i, o := range operands {
		texts[i] = fmt.Sprint(o)
	}
	fmt.Fprintf(&a.text, "\t%s\t%s\n", name, strings.Join(texts, ", "))
}

// label writes a label.
func (a *arm64) label(name string) { fmt.Fprintf(&a.text, "\n%s:\n", name) }

// param returns where a parameter lies.
func (a *arm64) param(name string) string { return a.address(a.signature.Params().Lookup(name)) }

// result returns where a result lies.
func (a *arm64) result(name string) string { return a.address(a.signature.Results().Lookup(name)) }

// address returns where a parameter or result lies.
func (a *arm64) address(c gotypes.Component) string {
	b, err := c.Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr.Asm()
}

// load takes a general register and loads a parameter of 64 bits into it.
func (a *arm64) load(name string) xreg {
	r := a.x()
	a.op("MOVD", a.param(name), r)
	return r
}

// mem returns an address.
func mem(base xreg, offset int) string {
	if offset == 0 {
		return fmt.Sprintf("(%s)", base)
	}
	return fmt.Sprintf("%d(%s)", offset, base)
}

// imm returns a constant.
func imm(n int) string { return fmt.Sprintf("$%d", n) }

// encoded is an instruction that Go's assembler does not know: its name, the lanes of
// its destination and sources, and its encoding with all registers 0.
type encoded struct {
	name string
	d, n string
	code uint32
}

// Instructions that Go's assembler does not know.
var (
	sdot = encoded{"sdot", "4s", "16b", 0x4e809400}
	// sdotLane takes four bytes of its second source for all lanes.
	sdotLane = encoded{"sdot", "4s", "16b", 0x4f80e000}

	fadd      = encoded{"fadd", "4s", "4s", 0x4e20d400}
	fsub      = encoded{"fsub", "4s", "4s", 0x4ea0d400}
	fmul      = encoded{"fmul", "4s", "4s", 0x6e20dc00}
	fdiv      = encoded{"fdiv", "4s", "4s", 0x6e20fc00}
	fcmgt     = encoded{"fcmgt", "4s", "4s", 0x6ea0e400}
	smax      = encoded{"smax", "4s", "4s", 0x4ea06400}
	fcvtns    = encoded{"fcvtns", "4s", "4s", 0x4e21a800}
	scvtf     = encoded{"scvtf", "4s", "4s", 0x4e21d800}
	fcvtl     = encoded{"fcvtl", "4s", "4h", 0x0e217800}
	sxtl      = encoded{"sxtl", "2d", "2s", 0x0f20a400}
	sxtl2     = encoded{"sxtl2", "2d", "4s", 0x4f20a400}
	faddWide  = encoded{"fadd", "2d", "2d", 0x4e60d400}
	fmulWide  = encoded{"fmul", "2d", "2d", 0x6e60dc00}
	scvtfWide = encoded{"scvtf", "2d", "2d", 0x4e61d800}
	fcvtn     = encoded{"fcvtn", "2s", "2d", 0x0e616800}
	faddp     = encoded{"faddp", "4s", "4s", 0x6e20d400}
	fcvtn2    = encoded{"fcvtn2", "4s", "2d", 0x4e616800}
)

// word writes an instruction by its encoding, the destination first.
func (a *arm64) word(code uint32, format string, operands ...any) {
	fmt.Fprintf(&a.text, "\tWORD\t$0x%08x // %s\n", code, fmt.Sprintf(format, operands...))
}

// op3 writes an instruction with two sources.
func (a *arm64) op3(i encoded, d, n, m vreg) {
	a.word(i.code|uint32(d)|uint32(n)<<5|uint32(m)<<16, "%s v%d.%s, v%d.%s, v%d.%s", i.name, d, i.d, n, i.n, m, i.n)
}

// op2 writes an instruction with one source.
func (a *arm64) op2(i encoded, d, n vreg) {
	a.word(i.code|uint32(d)|uint32(n)<<5, "%s v%d.%s, v%d.%s", i.name, d, i.d, n, i.n)
}

// shiftRight writes a signed shift of four lanes.
func (a *arm64) shiftRight(d, n vreg, bits int) {
	a.word(0x4f000400|uint32(64-bits)<<16|uint32(n)<<5|uint32(d), "sshr v%d.4s, v%d.4s, #%d", d, n, bits)
}

// multiplyLane0 sets d to n times lane 0 of m.
func (a *arm64) multiplyLane0(d, n, m vreg) {
	a.word(0x4f809000|uint32(d)|uint32(n)<<5|uint32(m)<<16, "fmul v%d.4s, v%d.4s, v%d.s[0]", d, n, m)
}

// zero clears a vector register.
func (a *arm64) zero(v vreg) { a.op("VMOVI", imm(0), v.as("B16")) }

// dotLane writes sdotLane with word lane of m.
func (a *arm64) dotLane(d, n, m vreg, lane int) {
	code := sdotLane.code | uint32(d) | uint32(n)<<5 | uint32(m)<<16 | uint32(lane&1)<<21 | uint32(lane>>1)<<11
	a.word(code, "sdot v%d.4s, v%d.16b, v%d.4b[%d]", d, n, m, lane)
}

// writeARM64 writes NAME_arm64.s and the declarations of its functions in stubs_NAME_arm64.go.
func writeARM64(dir, name string, add func(a *arm64)) error {
	var a arm64
	add(&a)
	const header = "// Code generated by %s. DO NOT EDIT.\n\n//go:build %s\n\n"
	asm := fmt.Sprintf(header, generator, tags) + "#include \"textflag.h\"\n" + a.text.String()
	if err := os.WriteFile(filepath.Join(dir, name+"_arm64.s"), []byte(asm), 0o644); err != nil {
		return err
	}
	stubs := "stubs_" + name + "_arm64.go"
	text, err := format.Source([]byte(fmt.Sprintf(header, generator, tags) + "package kernels\n" + a.stubs.String()))
	if err != nil {
		return fmt.Errorf("%s: %w", stubs, err)
	}
	return os.WriteFile(filepath.Join(dir, stubs), text, 0o644)
}
