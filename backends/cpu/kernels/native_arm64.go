//go:build !purego

package kernels

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// native returns the sets in assembly that this machine runs, the fastest last.
func native() (all []*Set) {
	// All of Apple's processors for macOS have the dot product; old systems do not tell.
	if cpu.ARM64.HasASIMDDP || runtime.GOOS == "darwin" {
		all = append(all, neon())
	}
	return all
}

// neon returns the kernels on 128-bit registers with the dot product extension.
func neon() *Set {
	s := Generic()
	s.name = "neon"
	s.tiles = []int{1, 2, 3, 4, 6}
	s.dot = func(totals []int32, w []byte, x, odd []uint32, sh Shape) {
		dotsNEON[sh.Bits][sh.Rows](&totals[0], &w[0], &x[0], &odd[0], sh.Blocks, sh.Stride, sh.Steps)
	}
	sumsNEON.install(s)
	pointwiseNEON.install(s)
	installGroups(s, groupsNEON)
	return s
}
