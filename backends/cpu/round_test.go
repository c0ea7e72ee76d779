package cpu

import (
	"math"
	"testing"
)

// TestNotANumber: whatever its place, one NaN in a row is not lost.
func TestNotANumber(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	for at := range 4 {
		x := []float32{5, -3, 0, 1}
		x[at] = nan
		codes := make([]int32, 4)
		if step, _ := quantizeFixed(codes, x, max24); step == step {
			t.Errorf("NaN at %d: the step is %v, want NaN", at, step)
		}
		if quantizeStatic(codes, x, 0.5); codes[at] != -128 {
			t.Errorf("NaN at %d becomes the code %d, want -128", at, codes[at])
		}
	}
}
