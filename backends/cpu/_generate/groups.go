package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

const (
	// groupCols is the number of columns that share a scale, groupBits the bits of their codes.
	groupCols, groupBits = 32, 4
	// groupSteps and groupCodes are the steps of a group and the bytes of its codes in a block.
	groupSteps = groupBits
	groupCodes = groupSteps * stepBytes
	// groupScales is the bytes of a group's scales in a block: a float16 for each row.
	groupScales = 2 * blockRows
	// fieldsOfByte is the number of codes in a byte, each for a word of digits of its own.
	fieldsOfByte = 8 / groupBits
)

// groupsSignature is that of every kernel for groups.
const groupsSignature = "func(dst *float32, stride int, w *byte, blockStride int, x *uint32, starts *int64, steps *float32, blocks, groups int)"

// groupTiles lists for each number of digits how many rows of activations the kernels of an instruction set take.
type groupTiles map[int][]int

// each calls f for every kernel.
func (t groupTiles) each(f func(planes, rows int)) {
	for _, planes := range slices.Sorted(maps.Keys(t)) {
		for _, rows := range t[planes] {
			f(planes, rows)
		}
	}
}

// groupsName names a kernel.
func groupsName(planes, rows int, isa string) string {
	return fmt.Sprintf("groups%dx%d%s", planes, rows, isa)
}

// groupsDoc describes a kernel.
func groupsDoc(planes, rows int, isa string) string {
	return fmt.Sprintf("%s is Set.MulGroups for int4 codes, %d planes and %d rows.", groupsName(planes, rows, isa), planes, rows)
}

// groupsTable writes the Go table of an instruction set's kernels, indexed by planes and rows.
func groupsTable(w io.Writer, isa string, tiles groupTiles) {
	fmt.Fprintf(w, "\n// groups%s holds the products of groups of int4 codes by planes and rows.\nvar groups%[1]s = [MaxPlanes + 1][]groupsFunc{\n", isa)
	for _, planes := range slices.Sorted(maps.Keys(tiles)) {
		fmt.Fprintf(w, "\t%d: {\n", planes)
		for _, rows := range tiles[planes] {
			fmt.Fprintf(w, "\t\t%d: %s,\n", rows, groupsName(planes, rows, isa))
		}
		fmt.Fprint(w, "\t},\n")
	}
	fmt.Fprint(w, "}\n")
}
