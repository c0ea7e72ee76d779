//go:build !purego

package kernels

import "golang.org/x/sys/cpu"

// native returns the sets in assembly that this machine runs, the fastest last.
func native() (all []*Set) {
	x := &cpu.X86
	if x.HasAVX2 && x.HasF16C {
		all = append(all, avx2())
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI && x.HasBMI2 {
		all = append(all, avx512())
	}
	return all
}

// avx2 returns the kernels on 256-bit registers.
func avx2() *Set {
	s := Generic()
	s.name = "avx2"
	s.tiles = []int{1, 2, 3, 4, 6}
	s.dot = func(totals []int32, w []byte, x, odd []uint32, sh Shape) {
		dotsAVX2[sh.Bits][sh.Rows](&totals[0], &w[0], &x[0], &odd[0], sh.Blocks, sh.Stride, sh.Steps)
	}
	s.interleave = interleaveAVX
	sumsAVX2.install(s)
	pointwiseAVX2.install(s)
	installGroups(s, groupsAVX2)
	return s
}

// avx512 returns the kernels on 512-bit registers.
func avx512() *Set {
	s := Generic()
	s.name = "avx512"
	s.tiles = []int{1, 2, 3, 4, 6, 8, 12, 16, 24}
	s.dot = func(totals []int32, w []byte, x, odd []uint32, sh Shape) {
		dotsAVX512[sh.Bits][sh.Rows](&totals[0], &w[0], &x[0], &odd[0], sh.Blocks, sh.Stride, sh.Steps)
	}
	s.interleave = interleaveAVX
	sumsAVX512.install(s)
	pointwiseAVX512.install(s)
	installGroups(s, groupsAVX512)
	return s
}
