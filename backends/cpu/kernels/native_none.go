//go:build purego || (!amd64 && !arm64)

package kernels

// native returns the sets in assembly that this machine runs.
func native() []*Set { return nil }
