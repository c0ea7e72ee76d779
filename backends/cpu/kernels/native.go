//go:build !purego && (amd64 || arm64)

package kernels

// dotFunc is Set.Dot for one number of bits and rows.
type dotFunc func(totals *int32, w *byte, x, odd *uint32, blocks, stride, steps int)
