package cpu

import (
	"testing"

	"github.com/zoo-sdk/zoo/backends/backendtest"
)

// TestContractShared shares even the smallest task between the threads: at the
// shapes of the contract most would be too small.
func TestContractShared(t *testing.T) {
	t.Parallel()
	b := New("")
	b.minWork = 1
	if err := backendtest.Test(t.Context(), b); err != nil {
		t.Error(err)
	}
}
