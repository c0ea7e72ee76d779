package main

import "math"

// A kernel on floats is described once, over a machine, and written for each
// instruction set by that set's machine.

// field is a parameter of a function; typ is "int", "float32" or a pointer.
type field struct{ name, typ string }

// word is a general register: a count, or a pointer to elements of so many bytes.
type word struct {
	reg  any // the machine's
	size int
	free bool
}

// vec is a vector register of float32 or int32 lanes, or a constant in all of
// them, which may be read wherever a register may be.
type vec struct {
	reg      any // the machine's; nil for a constant
	constant uint32
	free     bool
}

// wide is a float64 for each lane of a vector, in as many registers as that takes.
type wide struct {
	regs []any // the machine's
	free bool
}

// machine writes functions for one instruction set. Where a method has dst, it
// may be one of the operands. What has been freed must not be used again: the machine panics.
type machine interface {
	// suffix ends the names of the set's functions.
	suffix() string
	// lanes is the number of lanes of a vector: 4, 8 or 16.
	lanes() int

	// begin starts a function with its name, its comment, its parameters and the
	// type of its result "ret", which is "" for none. Everything until end belongs to it.
	begin(name, doc string, params []field, result string)
	// end returns.
	end()

	// param returns an integer or a pointer to elements of size bytes in a new register.
	param(name string, size int) *word
	// paramVec returns a float32 in all lanes of a new register.
	paramVec(name string) *vec
	// retVec sets the result, float32 or int32, to lane 0.
	retVec(v *vec)
	// retPair sets an int64 result to high<<16 + low, where lanes 0 of the two hold an int32 and a uint32.
	retPair(low, high *vec)

	// copyWord returns a new register with the value and size of w.
	copyWord(w *word) *word
	// move sets dst to src.
	move(dst, src *word)
	// advance adds n elements to a pointer, or n to a count whose size is 1.
	advance(p *word, n *word)
	// advanceBy adds a constant number of elements, maybe negative, to a pointer or a count of size 1.
	advanceBy(p *word, n int)
	// freeWord frees registers.
	freeWord(all ...*word)

	// times writes body in a loop of n rounds, at least one. It uses n up.
	times(n *word, body func())
	// loop writes body in a loop over n elements, n >= 0, of which each round takes
	// the next vectors*lanes: it advances the pointers by them. body is to treat
	// vector i of the round for all i < vectors. In a last round of fewer elements, the
	// inactive lanes of loads are 0 (vectors of no active lanes included), and
	// stores leave them alone. It uses n and the pointers up. Nothing is looped within it; times may be within times.
	loop(n *word, pointers []*word, vectors int, body func())

	// newVec returns a register of any contents.
	newVec() *vec
	// constantVec returns a constant in all lanes.
	constantVec(bits uint32) *vec
	// freeVec frees registers.
	freeVec(all ...*vec)
	// set copies src.
	set(dst, src *vec)

	// load reads vector i from p on: lane l is element i*lanes + l.
	load(dst *vec, p *word, i int)
	// splat sets all lanes to element i of p.
	splat(dst *vec, p *word, i int)
	// store writes vector i from p on.
	store(v *vec, p *word, i int)
	// storeFirst writes lane 0 to what p points at.
	storeFirst(v *vec, p *word)
	// storeByte writes byte number at (0 lowest) of every lane as vector i of p, whose size is 1.
	// In a last round, up to three bytes after those of the active lanes are written
	// with them, up to a multiple of four: v must be 0 in inactive lanes.
	storeByte(v *vec, at int, p *word, i int)
	// keep sets the lanes of v that are inactive in vector i of a round to other's.
	keep(v *vec, i int, other *vec)

	// Float operations, each rounded to nearest even.
	add(dst, a, b *vec)
	sub(dst, a, b *vec)
	mul(dst, a, b *vec)
	div(dst, a, b *vec)
	// max is a > b ? a : b, and min is a < b ? a : b: b where one is not a number, and where both are zeros.
	max(dst, a, b *vec)
	min(dst, a, b *vec)
	// choose is a < b ? x : y: y where a or b is not a number.
	choose(dst, a, b, x, y *vec)

	// Integer operations, which wrap around.
	addInt(dst, a, b *vec)
	maxInt(dst, a, b *vec) // signed
	and(dst, a, b *vec)
	xor(dst, a, b *vec)
	shiftLeft(dst, a *vec, bits int)
	shiftRight(dst, a *vec, bits int) // signed

	// round converts floats to int32, ties to even; what fits no int32 gives anything.
	round(dst, a *vec)
	// float converts int32 to float.
	float(dst, a *vec)

	// fold combines lane i with lane i+lanes/2, then the lower half of the
	// results likewise, down to lane 0. Other lanes have any contents afterwards.
	fold(v *vec, op func(dst, a, b *vec))

	// newWide returns registers of any contents.
	newWide() *wide
	// freeWide frees registers.
	freeWide(w *wide)
	// widen sets w to the int32 of vector i from p on. All three are for full vectors only.
	widen(w *wide, p *word, i int)
	// horner sets w to w*256 plus the int32 of vector i from p on.
	horner(w *wide, p *word, i int)
	// addWide adds the float64 that p, whose size is 8, points at to all lanes.
	addWide(w *wide, p *word)
	// narrow sets dst to float32(w).
	narrow(dst *vec, w *wide)
}

// number returns a constant float in all lanes.
func number(m machine, f float32) *vec { return m.constantVec(math.Float32bits(f)) }
