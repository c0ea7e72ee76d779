//go:build !linux

package kernels_test

import "testing"

// guardedBytes returns plain memory.
func guardedBytes(_ testing.TB, n int) []byte { return make([]byte, n) }
