package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	// maxAsks is how often the fastest kernels ask for memory: one that computes a sum.
	maxAsks = 5
	// askBytes is how far apart in memory these are, and nearBytes how far ahead of the codes in use the last is.
	askBytes, nearBytes = 8 << 10, 2 << 10
)

// addGroups adds the products of groups of codes of x86.
func addGroups(c *build.Context) {
	k := groupConstants{
		mask: words256(c, "groupMask", 1<<4-1, 1), ones: words256(c, "groupOnes", 1, 2), sixteens: words256(c, "groupSixteens", 16, 2),
		lower: words256(c, "groupLower", lowerMask, 4), upper: words256(c, "groupUpper", upperUnit, 4),
	}
	groups256Table.each(func(f groupFormat, planes, rows int) {
		g := &groups256{groupLoops: newGroupLoops(c, f, planes, rows, 2), groupConstants: k}
		g.frame("AVX2", func() {}, g.clear, g.group, g.store)
	})
	groups512Table.each(func(f groupFormat, planes, rows int) {
		g := &groups512{groupLoops: newGroupLoops(c, f, planes, rows, 1)}
		g.frame("AVX512", g.constants, g.clear, g.group, g.store)
	})
}

// groupConstants are 32 bytes each in memory.
type groupConstants struct {
	// mask selects the codes of 4 bits of bytes, ones and sixteens are words of 16 bits.
	mask, ones, sixteens operand.Mem
	// lower is lowerMask and upper upperUnit.
	lower, upper operand.Mem
}

// groupLoops writes what all kernels for groups of x86 have in common.
type groupLoops struct {
	*build.Context
	groupFormat
	planes, rows int
	// asks is how often memory is asked for a block or more ahead.
	asks int

	// Codes and scales of the group, its digits, what their midpoint adds or
	// what its minimums are multiplied with, the steps of the rows, and what is asked for ahead.
	w, scalesAt, x, startsAt, sumsAt, stepsAt, ahead reg.GPVirtual
}

// newGroupLoops returns those of a kernel, which takes so many registers for 16 lanes.
func newGroupLoops(c *build.Context, f groupFormat, planes, rows, registers int) groupLoops {
	return groupLoops{Context: c, groupFormat: f, planes: planes, rows: rows, asks: max(1, maxAsks+1-planes*rows*registers)}
}

// load takes a register and loads a parameter into it.
func (g *groupLoops) load(param string) reg.GPVirtual {
	r := g.GP64()
	g.Load(g.Param(param), r)
	return r
}

// frame declares a kernel and writes its loops over blocks and groups. constants
// fills registers before all, clear begins the sums of a block, group adds a
// group to them, and store writes the sum of a row.
func (g *groupLoops) frame(isa string, constants, clear, group func(), store func(row int, to reg.GPVirtual)) {
	g.Function(groupsName(g.groupFormat, g.planes, g.rows, isa))
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr(groupsSignature)
	g.Doc(groupsDoc(g.groupFormat, g.planes, g.rows, isa))
	g.Pragma("noescape")
	constants()
	dst, block, blocks := g.load("dst"), g.load("w"), g.load("blocks")
	g.stepsAt = g.load("steps")
	g.w, g.scalesAt, g.ahead = g.GP64(), g.GP64(), g.GP64()
	g.Label("block")
	clear()
	left := g.load("groups")
	g.MOVQ(block, g.w)
	g.IMUL3Q(operand.I32(g.codes()), left, g.scalesAt)
	g.ADDQ(block, g.scalesAt)
	next := g.load("blockStride")
	g.ADDQ(next, block)
	g.MOVQ(block, g.ahead)
	g.x = g.load("x")
	if g.starts() {
		g.startsAt = g.load("starts")
	}
	if g.minimums {
		g.sumsAt = g.load("sums")
	}
	g.Label("group")
	group()
	g.ADDQ(operand.I32(g.codes()), g.w)
	g.ADDQ(operand.I32(g.scales()), g.scalesAt)
	g.ADDQ(operand.I32(g.codes()+g.scales()), g.ahead)
	g.ADDQ(operand.I32(4*g.words()*g.rows*g.planes), g.x)
	if g.starts() {
		g.ADDQ(operand.I32(8*g.rows), g.startsAt)
	}
	if g.minimums {
		g.ADDQ(operand.I32(4*g.rows), g.sumsAt)
	}
	g.DECQ(left)
	g.JNZ(operand.LabelRef("group"))
	to := g.GP64()
	g.MOVQ(dst, to)
	for r := range g.rows {
		if r > 0 {
			stride := g.load("stride")
			g.LEAQ(operand.Mem{Base: to, Index: stride, Scale: 4}, to)
		}
		store(r, to)
	}
	g.ADDQ(operand.I32(4*blockRows), dst)
	g.DECQ(blocks)
	g.JNZ(operand.LabelRef("block"))
	g.VZEROUPPER()
	g.RET()
}

// fetch asks for what lies a block ahead of a step of the group; the last step also for what the scales add to it.
//
// The codes of a block and its scales are two streams that break off where it
// ends, and arithmetic fills the queues in which loads would run ahead. So what
// comes next is brought to the second-level cache a block ahead. Asked for as
// fast as it comes, that takes all of the bandwidth; kernels that are faster lose
// some of what they ask for, and ask several times.
func (g *groupLoops) fetch(step int) {
	lines := []int{stepBytes * step}
	if step == g.steps()-1 {
		for at := 0; at < g.scales(); at += stepBytes {
			lines = append(lines, g.codes()+at)
		}
	}
	for _, at := range lines {
		for i := range g.asks {
			g.PREFETCHT1(operand.Mem{Base: g.ahead, Disp: at + askBytes*i})
		}
	}
	if g.asks > 1 {
		g.PREFETCHT0(operand.Mem{Base: g.w, Disp: nearBytes + stepBytes*step})
	}
}
