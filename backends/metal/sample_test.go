package metal_test

import (
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/metal"
)

// TestSampleStray: no token is picked where the logits hold none as large as their peaks say.
func TestSampleStray(t *testing.T) {
	t.Parallel()
	const unusable = 1 << 31
	for _, topK := range []uint32{0, 3} {
		b := newBench(t, benchOptions[0], "sample")
		logits, ring := make([]float32, 300), make([]uint32, 2)
		for i := range logits {
			logits[i] = -1000
		}
		rows := step(1, row{token: 1})
		rows.written = true
		args := metal.SampleArgs{
			Vocab: uint32(len(logits)), Runs: 2, TopK: topK, Temperature: 1, TopPLow: 1<<32 - 1, TopPHigh: 1<<32 - 1, Limit: uint32(len(logits)),
		}
		l := metal.Launch{Groups: [3]int{1, 1, 1}, Threads: backends.PeakRun, SharedBytes: metal.SampleSharedBytes}
		b.run("sample", args, l, in(logits), in([]float32{5, 4}), rows, in([]uint64{1 << 63}), in([]int32{0}), out(ring))
		if ring[1] != unusable+1 {
			t.Errorf("top-k %d: the word of the step is %#x, want %#x", topK, ring[1], uint32(unusable+1))
		}
	}
}
