//go:build !purego && (amd64 || arm64)

package kernels

// groupsFunc is Set.MulGroups for codes of 4 bits and one number of planes and rows.
type groupsFunc func(dst *float32, stride int, w *byte, blockStride int, x *uint32, starts *int64, steps *float32, blocks, groups int)

// installGroups makes a set use products of groups in assembly, by planes and rows.
func installGroups(s *Set, all *[MaxPlanes + 1][]groupsFunc) {
	for planes, rows := range all {
		s.groupTiles[planes] = nil
		for n, f := range rows {
			if f != nil {
				s.groupTiles[planes] = append(s.groupTiles[planes], n)
			}
		}
	}
	s.mulGroups = func(dst []float32, stride int, w []byte, a *GroupActivations, sh GroupShape) {
		if sh.Bits != 4 {
			mulGroups(dst, stride, w, a, sh)
			return
		}
		all[sh.Planes][sh.Rows](&dst[0], stride, &w[0], sh.Stride, &a.Words[0], &a.Starts[0], &a.Steps[0], sh.Blocks, sh.Groups)
	}
}
