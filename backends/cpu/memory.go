package cpu

import (
	"fmt"
	"unsafe"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// memory counts what an executor allocates for activations and caches, and
// refuses what is beyond a limit.
type memory struct {
	held  int64
	limit int64 // 0 for none
	// refused is the first refusal of atLeast.
	refused error
}

// take counts bytes that are about to be allocated, or says why they may not be.
func (m *memory) take(bytes int64) error {
	if m.limit > 0 && bytes > m.limit-m.held {
		return fault.WithHint(fmt.Errorf("%w: %d bytes more than the %d in use, of %d", backends.ErrMemory, bytes, m.held, m.limit),
			"ask for a smaller context with `--context`, close other conversations, or take a smaller model")
	}
	m.held += bytes
	return nil
}

// atLeast returns s or, if it is shorter than n, zeros in its place. Where these
// are refused it returns s, and notes why: whoever compiles looks before anything is run.
func atLeast[T any](m *memory, s []T, n int) []T {
	if len(s) >= n {
		return s
	}
	var one T
	if err := m.take(int64(n-len(s)) * int64(unsafe.Sizeof(one))); err != nil {
		if m.refused == nil {
			m.refused = err
		}
		return s
	}
	return make([]T, n)
}
