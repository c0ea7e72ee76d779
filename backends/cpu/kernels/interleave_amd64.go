//go:build !purego

package kernels

// interleaveAVX is Set.Interleave.
func interleaveAVX(dst []uint32, stride int, src []uint32, rows int) {
	n := len(src) / rows
	whole := n &^ 3
	r := 0
	for ; whole > 0 && r+4 <= rows; r += 4 {
		interleave4AVX(&dst[r], stride, &src[r*n], n, whole/4)
		for i := r; i < r+4; i++ {
			for k := whole; k < n; k++ {
				dst[k*stride+i] = src[i*n+k]
			}
		}
	}
	if r < rows {
		interleave(dst[r:], stride, src[r*n:rows*n], rows-r)
	}
}
