//go:build !purego

package kernels

// native returns the sets in assembly that this machine runs, the fastest last.
func native() []*Set { return nil }
