//go:build !linux

package mmap

// advise does nothing where the system chooses the size of pages itself.
func advise([]byte) {}
