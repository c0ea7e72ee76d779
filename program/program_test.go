package program_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// shape is that of a small decoder with every operation.
var shape = backendtest.Shape{
	Seed: 1, Format: quant.Int4, Hidden: 32, FFN: 32, HeadDim: 16, Heads: 2, KVHeads: 1,
	Vocab: 40, Window: 8, Context: 64, Static: true,
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	p, _ := backendtest.Decoder(shape)
	data, err := program.Encode(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := program.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, got); diff != "" {
		t.Errorf("decoding gives another program (-want +got):\n%s", diff)
	}
}

// TestRefused plants one fault at a time in a valid program.
func TestRefused(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	for _, c := range []struct {
		name  string
		plant func(p *program.Program)
		want  string
	}{
		{"another version", func(p *program.Program) { p.Version++ }, "version"},
		{"no vocabulary", func(p *program.Program) { p.Vocab = 0 }, "vocabulary"},
		{"huge vocabulary", func(p *program.Program) { p.Vocab = 1 << 40 }, "vocabulary"},
		{"tokens past the table", func(p *program.Program) { p.TokenLimit = 41 }, "table of 40 rows"},
		{"no context", func(p *program.Program) { p.Context = 0 }, "context"},
		{"huge context", func(p *program.Program) { p.Context = 1 << 40 }, "context"},
		{"weight of no format", func(p *program.Program) { p.Weights[0].Bits = 3 }, "3 bits"},
		{"huge weight", func(p *program.Program) { p.Weights[0].Rows = 1 << 60 }, "shape"},
		{"empty buffer", func(p *program.Program) { p.Buffers[0].Cols = 0 }, "columns"},
		{"negative buffer", func(p *program.Program) { p.Buffers[0].Cols = -1 }, "columns"},
		{"huge buffer", func(p *program.Program) { p.Buffers[0].Cols = 1 << 50 }, "columns"},
		{"cache without heads", func(p *program.Program) { p.Caches[0].KVHeads = 0 }, "shape"},
		{"huge cache", func(p *program.Program) { p.Caches[0].HeadDim = 1 << 40 }, "shape"},
		{"negative window", func(p *program.Program) { p.Caches[0].Window = -1 }, "window"},
		{"cache scale not a number", func(p *program.Program) { p.Caches[0].KeyScale = nan }, "scales"},
		{"negative cache scale", func(p *program.Program) { p.Caches[0].ValueScale = -1 }, "scales"},
		{"rotation without frequencies", func(p *program.Program) { p.Rotations[0].Freqs = nil }, "frequencies"},
		{"rotation too short", func(p *program.Program) { p.Rotations[0].Freqs = p.Rotations[0].Freqs[1:] }, "frequencies for heads"},
		{"frequency not a number", func(p *program.Program) { p.Rotations[0].Freqs[0] = nan }, "frequency"},
		{"layers overlap", func(p *program.Program) { p.Layers[1].First-- }, "layer 1"},
		{"layer past the end", func(p *program.Program) { p.Layers[2].End = 1 << 20 }, "layer 2"},
		{"empty operation", func(p *program.Program) { p.Ops[3] = program.Op{} }, "0 kinds"},
		{"two operations in one", func(p *program.Program) { p.Ops[0].Norm = &program.Norm{} }, "2 kinds"},
		{"gather from nowhere", func(p *program.Program) { p.Ops[0].Embed.Table = 999 }, "no weight 999"},
		{"gather to nowhere", func(p *program.Program) { p.Ops[0].Embed.Out = -1 }, "no buffer -1"},
		{"gather to another length", func(p *program.Program) { p.Ops[0].Embed.Out = p.Logits - 2 }, "columns"},
		{"product of an unwritten buffer", func(p *program.Program) { p.Ops = p.Ops[2:]; p.Layers = nil }, "before it is written"},
		{"product of a table", func(p *program.Program) { p.Ops[2].Linear.Weight = p.Ops[1].Embed.Table }, "cannot multiply"},
		{"product without parts", func(p *program.Program) { p.Ops[2].Linear.Parts = nil }, "0 parts"},
		{"part past the matrix", func(p *program.Program) { p.Ops[2].Linear.Parts[0].First = 6 }, "rows 6"},
		{"part overflows", func(p *program.Program) { p.Ops[2].Linear.Parts[0].First = math.MaxInt }, "rows"},
		{"part inside a block", func(p *program.Program) { linear(p, 1).Parts[1].First++ }, "not at a block"},
		{"two parts into one buffer", func(p *program.Program) { l := linear(p, 1); l.Parts[2].Out = l.Parts[1].Out }, "used twice"},
		{"product in place", func(p *program.Program) { l := linear(p, 1); l.Parts[0].Out = l.In }, "used twice"},
		{"gate and up in place", func(p *program.Program) { g := gateUp(p); g.Out = g.In }, "overwrites"},
		{"static rounding of a float product", func(p *program.Program) { p.Ops[2].Linear.Parts[0].InScale = 1 }, "float product"},
		{"negative grid", func(p *program.Program) { linear(p, 1).Parts[0].InScale = -1 }, "grids"},
		{"grid not a number", func(p *program.Program) { linear(p, 1).Parts[0].OutScale = nan }, "grids"},
		{"norm over no columns", func(p *program.Program) { norm(p, 1).Cols = 0 }, "runs of 0"},
		{"norm over a part", func(p *program.Program) { norm(p, 1).Cols = 5 }, "runs of 5"},
		{"norm with another weight", func(p *program.Program) { norm(p, 1).Weight = 0 }, "not f32"},
		{"norm without eps", func(p *program.Program) { norm(p, 1).Eps = 0 }, "eps"},
		{"norm with no such rotation", func(p *program.Program) { norm(p, 1).Rotation = 7 }, "no rotation 7"},
		{"residual of itself", func(p *program.Program) { o := addNorm(p); o.In = o.State }, "itself"},
		{"store to no cache", func(p *program.Program) { store(p).Cache = 9 }, "no cache 9"},
		{"store twice", func(p *program.Program) { i := index(p, isStore); p.Ops[i+1] = p.Ops[i] }, "twice"},
		{"attention to an empty cache", func(p *program.Program) { attention(p).Cache = 1 }, "before it is written"},
		{"attention with heads that do not share", func(p *program.Program) {
			s := shape
			s.Heads, s.KVHeads = 4, 2
			other, _ := backendtest.Decoder(s)
			*p = *other
			attention(p).Heads = 3
		}, "3 heads share 2"},
		{"attention without heads", func(p *program.Program) { attention(p).Heads = 0 }, "0 heads share 1"},
		{"attention in place", func(p *program.Program) { a := attention(p); a.Out = a.Query }, "overwrites"},
		{"attention scale not a number", func(p *program.Program) { attention(p).Scale = nan }, "scale"},
		{"GELU past its factor", func(p *program.Program) { gelu(p).First = 33 }, "columns 33"},
		{"GELU before its factor", func(p *program.Program) { gelu(p).First = -1 }, "columns -1"},
		{"no cap", func(p *program.Program) { p.Ops[len(p.Ops)-1].Softcap.Cap = 0 }, "cap"},
		{"two selects", func(p *program.Program) { i := index(p, isSelect); p.Ops[i+1] = p.Ops[i] }, "second select"},
		{"select keeps a buffer twice", func(p *program.Program) { s := sel(p); s.Buffers = append(s.Buffers, s.Buffers[0]) }, "twice"},
		{"select loses the state", func(p *program.Program) { s := sel(p); s.Buffers = s.Buffers[:1] }, "before it is written"},
		{"store behind the select", func(p *program.Program) {
			i := index(p, isStore)
			p.Ops = append([]program.Op{p.Ops[0], p.Ops[1], {Select: &program.Select{Buffers: []program.BufferID{p.State}}}}, p.Ops[i:]...)
			p.Layers = nil
		}, "select"},
		{"no logits", func(p *program.Program) { p.Logits = p.State }, "logits have"},
		{"buffers without measure", func(p *program.Program) {
			for range 5 {
				p.Buffers = append(p.Buffers, program.Buffer{Cols: 1 << 20})
			}
		}, "buffers of"},
		{"batches without measure", func(p *program.Program) {
			p.Weights = append(p.Weights, program.Weight{Name: "wide", Matrix: quant.Matrix{Format: quant.F32, Layout: quant.Rows, Rows: p.TokenLimit, Cols: program.MaxBatchCols}})
			p.Buffers = append(p.Buffers, program.Buffer{Cols: program.MaxBatchCols})
			wide := program.Op{Embed: &program.Embed{Table: program.WeightID(len(p.Weights) - 1), Out: program.BufferID(len(p.Buffers) - 1)}}
			p.Ops, p.Layers = append([]program.Op{wide}, p.Ops...), nil
		}, "columns are written before it"},
		{"caches without measure", func(p *program.Program) {
			for range 5 {
				p.Caches = append(p.Caches, program.Cache{KVHeads: 1 << 9, HeadDim: 1 << 9})
			}
		}, "caches of"},
		{"rotations without measure", func(p *program.Program) {
			for range 9 {
				p.Rotations = append(p.Rotations, program.Rotation{Freqs: make([]float32, program.MaxHeadDim/2)})
			}
		}, "frequencies, at most"},
		{"operations without measure", func(p *program.Program) {
			for len(p.Ops) <= program.MaxOps {
				p.Ops = append(p.Ops, program.Op{Softcap: &program.Softcap{Buffer: p.Logits, Cap: 1}})
			}
		}, "operations, at most"},
		{"caches by the thousand", func(p *program.Program) {
			for len(p.Caches) <= program.MaxCaches {
				p.Caches = append(p.Caches, program.Cache{KVHeads: 1, HeadDim: 1})
			}
		}, "caches, at most"},
		{"two weights of one tensor", func(p *program.Program) { p.Weights[3].Name = p.Weights[5].Name }, "weights 3 and 5 are both of tensor"},
		{"too many parts", func(p *program.Program) { l := linear(p, 1); l.Parts = make([]program.Part, 17) }, "17 parts"},
		{"a layer before the state", func(p *program.Program) { p.Layers[0].First = 0 }, "state at operation 0"},
		{"a layer behind which the state is lost", func(p *program.Program) {
			s := sel(p) // a state that is only made behind the select has room for fewer rows than come before it
			p.State = norm(p, 1).Out
			s.Buffers = s.Buffers[:len(s.Buffers)-1]
			p.Layers = []program.Layer{{First: 6, End: index(p, isSelect) + 1}}
		}, "state at operation"},
		{"no such output", func(p *program.Program) { p.Hidden = 1000 }, "no buffer 1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, _ := backendtest.Decoder(shape)
			c.plant(p)
			err := p.Validate()
			if !errors.Is(err, program.ErrProgram) || !errors.Is(err, fault.ErrIntegrity) {
				t.Fatalf("Validate: %v, want ErrProgram", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("Validate: %v, want it to tell of %q", err, c.want)
			}
		})
	}
}

// index returns the position of the first operation that is so.
func index(p *program.Program, is func(program.Op) bool) int {
	for i, op := range p.Ops {
		if is(op) {
			return i
		}
	}
	return -1
}

func isStore(o program.Op) bool  { return o.Store != nil }
func isSelect(o program.Op) bool { return o.Select != nil }

func store(p *program.Program) *program.Store { return p.Ops[index(p, isStore)].Store }
func sel(p *program.Program) *program.Select  { return p.Ops[index(p, isSelect)].Select }

func addNorm(p *program.Program) *program.AddNorm {
	return p.Ops[index(p, func(o program.Op) bool { return o.AddNorm != nil })].AddNorm
}

func attention(p *program.Program) *program.Attention {
	return p.Ops[index(p, func(o program.Op) bool { return o.Attention != nil })].Attention
}

func gateUp(p *program.Program) *program.GateUp {
	return p.Ops[index(p, func(o program.Op) bool { return o.GateUp != nil })].GateUp
}

func gelu(p *program.Program) *program.GELUMul {
	return p.Ops[index(p, func(o program.Op) bool { return o.GELUMul != nil })].GELUMul
}

// linear returns the n-th product.
func linear(p *program.Program, n int) *program.Linear {
	return p.Ops[index(p, func(o program.Op) bool { n -= count(o.Linear != nil); return n < 0 })].Linear
}

// norm returns the n-th norm.
func norm(p *program.Program, n int) *program.Norm {
	return p.Ops[index(p, func(o program.Op) bool { n -= count(o.Norm != nil); return n < 0 })].Norm
}

// count returns 1 for true.
func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", "{", "[]", `{"version":1,"surprise":1}`, `{"version":1,"ops":[{"jump":{}}]}`, "null", strings.Repeat("[", 1<<20)} {
		if _, err := program.Decode([]byte(data)); !errors.Is(err, program.ErrProgram) {
			t.Errorf("Decode(%.20q): %v, want ErrProgram", data, err)
		}
	}
	p, _ := backendtest.Decoder(shape)
	data, err := program.Encode(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"x", "{}", "0"} {
		if _, err := program.Decode(append(data[:len(data):len(data)], more...)); !errors.Is(err, program.ErrProgram) {
			t.Errorf("Decode of a program and %q: %v, want ErrProgram", more, err)
		}
	}
	if _, err := program.Decode(append(data[:len(data):len(data)], " \n"...)); err != nil {
		t.Errorf("Decode of a program and a line's end: %v", err)
	}
	p.Weights[0].Name, p.Weights[0].Rows = strings.Repeat("w", 5000), -1
	for i := range p.Buffers {
		p.Buffers[i].Name, p.Buffers[i].Cols = strings.Repeat("b", 5000), -1
	}
	if err := p.Validate(); len(err.Error()) > 2000 {
		t.Errorf("a program with many faults makes an error of %d bytes", len(err.Error()))
	}
	if _, err := program.Decode([]byte(`{"version":1,"ops":[` + strings.Repeat("{},", program.MaxObjects) + `{}]}`)); !errors.Is(err, program.ErrProgram) || !strings.Contains(err.Error(), "objects") {
		t.Errorf("Decode of many empty operations: %v, want ErrProgram about objects", err)
	}
	if _, err := program.Decode(make([]byte, program.MaxEncoded+1)); !errors.Is(err, program.ErrProgram) {
		t.Errorf("Decode of too many bytes: %v, want ErrProgram", err)
	}
}
