//go:build !linux

package mmap

// stream does nothing where the system chooses the size of pages itself.
func stream([]byte) {}
