package cpu_test

import (
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/program"
)

// TestTraceBehindGate ends layers between a gated product and the product of what
// it computes. What a trace makes of the state there counts, for a row as for several.
func TestTraceBehindGate(t *testing.T) {
	t.Parallel()
	p, w := backendtest.Decoder(small)
	var ends []int
	for i, op := range p.Ops {
		if op.GateUp != nil {
			ends = append(ends, i+1)
			p.State = op.GateUp.Out
		}
	}
	sel := slices.IndexFunc(p.Ops, func(op program.Op) bool { return op.Select != nil })
	p.Ops[sel].Select.Buffers = append(p.Ops[sel].Select.Buffers, p.State)
	p.Layers = []program.Layer{{First: ends[0], End: ends[1]}, {First: ends[1], End: ends[2]}}
	for _, changed := range []int{-1, 0, 1, 2} {
		var want []float32
		for _, rows := range []int{1, 2} {
			e, err := cpu.New("").Compile(t.Context(), p, w, backends.Options{Threads: 1, MaxRows: 2, MaxLogits: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			batch := &backends.Batch{Trace: func(layer int, state []float32) {
				for i := range state {
					if layer == changed {
						state[i] = float32(i%small.FFN) - 3
					}
				}
			}}
			for range rows {
				s, err := e.NewSlot()
				if err != nil {
					t.Fatal(err)
				}
				batch.Rows = append(batch.Rows, backends.Row{Token: 5, Slot: s, Logits: true})
			}
			if err := e.Step(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = slices.Clone(e.Logits(0))
			} else if !slices.Equal(e.Logits(0), want) {
				t.Errorf("changed behind layer %d: logits %v of one row are %v of two", changed, want, e.Logits(0))
			}
		}
	}
}
