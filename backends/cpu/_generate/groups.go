package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// groupFormat is a format whose groups of columns have scales of their own.
type groupFormat struct {
	// name is that of the variable of package quant.
	name string
	// bits of a code, and cols of a group.
	bits, cols int
	// scaleBytes is the size of a scale: 2 for float16, 4 for float32.
	scaleBytes int
	// minimums tells that the scales of a group are followed by as many minimums.
	minimums bool
}

var (
	int4x32    = groupFormat{name: "Int4x32", bits: 4, cols: 32, scaleBytes: 2}
	int8x32    = groupFormat{name: "Int8x32", bits: 8, cols: 32, scaleBytes: 2}
	int8x16    = groupFormat{name: "Int8x16", bits: 8, cols: 16, scaleBytes: 4}
	int4x32Min = groupFormat{name: "Int4x32Min", bits: 4, cols: 32, scaleBytes: 4, minimums: true}
	int8x32Min = groupFormat{name: "Int8x32Min", bits: 8, cols: 32, scaleBytes: 4, minimums: true}
)

// words returns the words of digits that a group of a row and plane is multiplied with.
func (f groupFormat) words() int { return f.cols / 4 }

// fields returns the number of codes in a byte, each for a word of its own.
func (f groupFormat) fields() int { return 8 / f.bits }

// steps returns the steps of a group.
func (f groupFormat) steps() int { return f.words() / f.fields() }

// codes returns the bytes of a group's codes in a block.
func (f groupFormat) codes() int { return f.steps() * stepBytes }

// minimumsAt returns where a group's minimums begin behind its scales.
func (f groupFormat) minimumsAt() int { return f.scaleBytes * blockRows }

// scales returns the bytes of a group's scales and minimums in a block.
func (f groupFormat) scales() int {
	if f.minimums {
		return 2 * f.minimumsAt()
	}
	return f.minimumsAt()
}

// starts tells that a midpoint adds something to the sums of codes.
func (f groupFormat) starts() bool { return f.bits == 8 || !f.minimums }

// wide tells that the sum of a group may leave 32 bits.
//
// Then its upper part, a multiple of 2^16 that is less than 2^40, and the rest, not
// negative and less than 2^16, become floats exactly, and their sum is rounded once,
// as the whole sum would be.
func (f groupFormat) wide(planes int) bool { return planes > 2 && (f.bits == 8 || f.minimums) }

const (
	// lowerMask selects the rest.
	lowerMask = 1<<16 - 1
	// upperUnit is 2^16 as a float32.
	upperUnit = 0x47800000
)

// groupsSignature is that of every kernel for groups.
const groupsSignature = "func(dst *float32, stride int, w *byte, blockStride int, x *uint32, starts *int64, sums, steps *float32, blocks, groups int)"

// groupTiles lists for each number of digits how many rows of activations the kernels of an instruction set take.
type groupTiles map[int][]int

// groupTable lists the formats of an instruction set's kernels and their tiles.
type groupTable []struct {
	groupFormat
	tiles groupTiles
}

// each calls f for every kernel.
func (t groupTable) each(f func(format groupFormat, planes, rows int)) {
	for _, format := range t {
		for _, planes := range slices.Sorted(maps.Keys(format.tiles)) {
			for _, rows := range format.tiles[planes] {
				f(format.groupFormat, planes, rows)
			}
		}
	}
}

// groupsName names a kernel.
func groupsName(f groupFormat, planes, rows int, isa string) string {
	return fmt.Sprintf("groups%s%dx%d%s", f.name, planes, rows, isa)
}

// groupsDoc describes a kernel.
func groupsDoc(f groupFormat, planes, rows int, isa string) string {
	return fmt.Sprintf("%s is Set.MulGroups for quant.%s, %d planes and %d rows.", groupsName(f, planes, rows, isa), f.name, planes, rows)
}

// write writes the Go table of an instruction set's kernels.
func (t groupTable) write(w io.Writer, isa string) {
	fmt.Fprintf(w, "\n// groups%s holds the products of groups.\nvar groups%[1]s = []groupKernels{\n", isa)
	for _, f := range t {
		fmt.Fprintf(w, "\t{quant.%s, [MaxPlanes + 1][]groupsFunc{\n", f.name)
		for _, planes := range slices.Sorted(maps.Keys(f.tiles)) {
			fmt.Fprintf(w, "\t\t%d: {\n", planes)
			for _, rows := range f.tiles[planes] {
				fmt.Fprintf(w, "\t\t\t%d: %s,\n", rows, groupsName(f.groupFormat, planes, rows, isa))
			}
			fmt.Fprint(w, "\t\t},\n")
		}
		fmt.Fprint(w, "\t}},\n")
	}
	fmt.Fprint(w, "}\n")
}
