package metal_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// TestMutated runs programs that nobody would record, with every access checked.
func TestMutated(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	if testing.Short() {
		t.Skip("takes long, and what runs concurrently is in other tests")
	}
	const tries = 150
	trial := &backendtest.Trial{
		Backends: []backends.Backend{metal.New(metaltest.New(metaltest.Options{Checked: true, MemoryBytes: 64 << 20}))},
		Refusals: []error{metal.ErrMemory},
	}
	type base struct {
		p *program.Program
		w *backendtest.Weights
	}
	var bases []base
	for i, f := range []quant.Format{quant.Int4, quant.Int4x32} {
		p, w := backendtest.Decoder(backendtest.Shape{
			Seed: uint64(i), Format: f, Hidden: 32, FFN: 32, HeadDim: 16, Heads: 2, KVHeads: 1, Vocab: 40, Window: 8, Context: 300, Static: true,
		})
		bases = append(bases, base{p, w})
	}
	rng := rand.New(rand.NewPCG(3, 4))
	ran := 0
	for i := range tries {
		script := make([]byte, 4*(1+i%3))
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		b := bases[i%len(bases)]
		plan := backendtest.TrialPlan(rng.Uint64())
		ok, err := trial.Run(t.Context(), backendtest.Mutate(b.p, script), b.w, plan)
		if err != nil {
			t.Errorf("script %v, plan %d: %v", script, plan, err)
		}
		if ok {
			ran++
		}
	}
	t.Logf("%d of %d programs run", ran, tries)
	if ran < tries/8 {
		t.Errorf("%d of %d programs run: the scripts are too coarse to test anything", ran, tries)
	}
}

// TestManyOperations compiles as many operations as a program may have, of which
// each leaves open to the last whether it can be joined with another.
func TestManyOperations(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	p, _ := backendtest.Decoder(backendtest.Shape{
		Seed: 1, Format: quant.Int4, Hidden: 32, FFN: 32, HeadDim: 16, Heads: 2, KVHeads: 1, Vocab: 40, Window: 8, Context: 300,
	})
	at := slices.IndexFunc(p.Ops, func(op program.Op) bool { return op.Linear != nil && p.Weights[op.Linear.Weight].Codes() })
	product := *p.Ops[at].Linear
	product.Parts = product.Parts[:1]
	var more []program.Op
	for len(p.Ops)+len(more)+2 <= program.MaxOps {
		out := program.BufferID(len(p.Buffers))
		p.Buffers = append(p.Buffers, program.Buffer{Cols: product.Parts[0].Rows})
		o := product
		o.Parts = []program.Part{{Rows: product.Parts[0].Rows, Out: out, Rounding: product.Parts[0].Rounding}}
		o.Mul = float32(1 + len(more)) // so that no two of them are joined
		more = append(more, program.Op{Linear: &o})
	}
	p.Ops, p.Layers = slices.Insert(p.Ops, at, more...), nil
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	e, err := metal.New(metaltest.New(metaltest.Options{})).Compile(t.Context(), p, backendtest.WeightsOf(p), backends.Options{MaxRows: 2, MaxLogits: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
