package program_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// small records a decoder without layers over matrices that lie together, or apart.
func small(matrices map[string]quant.Matrix) (*program.Program, error) {
	b := program.NewBuilder(matrices, 20, 20, 64)
	state, hidden, logits := b.Buffer("state", 64), b.Buffer("hidden", 64), b.Buffer("logits", 20)
	b.Op(program.Op{Embed: &program.Embed{Table: b.Weight("table"), Out: state, Mul: 1}})
	b.Layer(func() {
		q, k, v := b.Buffer("q", 8), b.Buffer("k", 8), b.Buffer("v", 8)
		all := []program.Projection{{Name: "q", Out: q}, {Name: "k", Out: k}, {Name: "v", Out: v}}
		b.Norm(state, hidden, "norm", 64, 1e-6)
		b.Project("qkv", hidden, all, 2, 0)
		b.GateUp("both", hidden, b.Buffer("ffn", 64), program.Projection{Name: "gate"}, program.Projection{Name: "up"})
	})
	b.Op(program.Op{Select: &program.Select{Buffers: []program.BufferID{state, hidden}}})
	b.Linear(program.Projection{Name: "table", Out: logits}, hidden)
	return b.Finish(state, hidden, logits)
}

func TestBuilder(t *testing.T) {
	codes := func(rows int) quant.Matrix {
		return quant.Matrix{Format: quant.Int8x32, Layout: quant.Blocks, Rows: rows, Cols: 64}
	}
	norm := quant.Matrix{Format: quant.F32, Layout: quant.Rows, Rows: 1, Cols: 64}
	together, err := small(map[string]quant.Matrix{"table": codes(20), "norm": norm, "qkv": codes(48), "both": codes(128)})
	if err != nil {
		t.Fatal(err)
	}
	want := []program.Part{{First: 32, Rows: 8, Out: 5}, {First: 0, Rows: 8, Out: 3}}
	if diff := cmp.Diff(want, together.Ops[2].Linear.Parts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]program.Layer{{First: 1, End: 4}}, together.Layers); diff != "" || together.Ops[3].GateUp == nil {
		t.Errorf("%+v (-want +got):\n%s", together.Ops[3], diff)
	}
	matrices := map[string]quant.Matrix{"table": codes(20), "norm": norm, "q": codes(8), "v": codes(8), "gate": codes(64), "up": codes(64)}
	apart, err := small(matrices)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(apart.Ops); n != 1+1+2+3+1+1 || apart.Ops[6].GELUMul == nil {
		t.Errorf("%d operations: %+v", n, apart.Ops)
	}
	delete(matrices, "up")
	if _, err := small(matrices); !errors.Is(err, fault.ErrIntegrity) {
		t.Errorf("without a tensor: %v", err)
	}
}

// TestGateUpApart keeps a buffer of the author's across matrices that lie apart, whatever its name.
func TestGateUpApart(t *testing.T) {
	codes := quant.Matrix{Format: quant.Int8x32, Layout: quant.Blocks, Rows: 64, Cols: 64}
	b := program.NewBuilder(map[string]quant.Matrix{"gate": codes, "up": codes, "gate2": codes, "up2": codes}, 64, 64, 64)
	state, in, out := b.Buffer("up", 64), b.Buffer("in", 64), b.Buffer("ffn", 64)
	b.Op(program.Op{Embed: &program.Embed{Table: b.Weight("gate"), Out: state, Mul: 1}})
	b.Op(program.Op{Embed: &program.Embed{Table: b.Weight("gate"), Out: in, Mul: 1}})
	b.Layer(func() {
		b.GateUp("both", in, out, program.Projection{Name: "gate"}, program.Projection{Name: "up"})
		b.GateUp("both2", in, out, program.Projection{Name: "gate2"}, program.Projection{Name: "up2"})
	})
	b.Op(program.Op{Select: &program.Select{Buffers: []program.BufferID{state, out}}})
	p, err := b.Finish(state, out, b.Buffer("ffn", 64))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(p.Buffers); n != 4 {
		t.Errorf("%d buffers: %+v", n, p.Buffers)
	}
	for i, op := range p.Ops[1:] {
		if l := op.Linear; l != nil && l.Parts[0].Out == state || op.GELUMul != nil && op.GELUMul.B == state {
			t.Errorf("operation %d overwrites the state: %+v", i+1, op)
		}
	}
	if again := b.Buffer("up", 64); again != state {
		t.Errorf("buffer %d, not %d", again, state)
	}
}

func TestRotations(t *testing.T) {
	b := program.NewBuilder(nil, 1, 1, 1)
	a, again, other := b.Rotation(program.Frequencies(1e4, 8, 4)), b.Rotation(program.Frequencies(1e4, 8, 4)), b.Rotation(program.Frequencies(1e4, 8, 2))
	if a != again || a == other {
		t.Errorf("rotations %d, %d and %d", a, again, other)
	}
	freqs := program.Frequencies(1e6, 256, 100)
	for i, f := range freqs {
		want := math.Pow(1e6, -2*float64(i)/256)
		if i >= 100 {
			want = 0
		}
		if d := math.Abs(float64(f) - want); d > want*1e-5 {
			t.Errorf("frequency %d is %g, not %g", i, f, want)
		}
	}
}
