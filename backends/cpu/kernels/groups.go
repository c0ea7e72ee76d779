//go:build !purego && (amd64 || arm64)

package kernels

import "github.com/zoo-sdk/zoo/quant"

// groupsFunc is Set.MulGroups for one format and number of planes and rows.
type groupsFunc func(dst *float32, stride int, w *byte, blockStride int, x *uint32, starts *int64, sums, steps *float32, blocks, groups int)

// groupKernels are the products of a format by planes and rows.
type groupKernels struct {
	format quant.Format
	of     [MaxPlanes + 1][]groupsFunc
}

// installGroups makes a set use products of groups in assembly. Formats that there are none of are left to plain Go.
func installGroups(s *Set, all []groupKernels) {
	var of [len(groupFormats)]*[MaxPlanes + 1][]groupsFunc
	for i := range all {
		k := &all[i]
		f := groupFormat(k.format)
		of[f] = &k.of
		s.groupTiles[f] = groupTiles{}
		for planes, rows := range k.of {
			for n, kernel := range rows {
				if kernel != nil {
					s.groupTiles[f][planes] = append(s.groupTiles[f][planes], n)
				}
			}
		}
	}
	s.mulGroups = func(dst []float32, stride int, w []byte, a *GroupActivations, sh GroupShape) {
		k := of[groupFormat(sh.Format)]
		if k == nil {
			mulGroups(dst, stride, w, a, sh)
			return
		}
		k[sh.Planes][sh.Rows](&dst[0], stride, &w[0], sh.Stride, &a.Words[0], &a.Starts[0], first(a.Sums), &a.Steps[0], sh.Blocks, sh.Groups)
	}
}
