package metal_test

import (
	"testing"

	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/quant"
)

// TestContract runs random decoders in every format and holds each logit, and
// each token of a burst, against the definition.
func TestContract(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	if testing.Short() {
		t.Skip("takes long, and what runs concurrently is in other tests")
	}
	b := metal.New(metaltest.New(metaltest.Options{}))
	if err := backendtest.TestWith(t.Context(), b, backendtest.Options{
		Threads: []int{1}, Refused: []quant.Format{quant.Int8x32, quant.Int8x16, quant.Int4x32Min, quant.Int8x32Min},
	}); err != nil {
		t.Error(err)
	}
}
