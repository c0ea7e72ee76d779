package litertlm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/checkpoint/litertlm"
	"github.com/zoo-sdk/zoo/checkpoint/litertlm/litertlmtest"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// small returns the model that is in testdata as well.
func small() *litertlmtest.Model {
	return &litertlmtest.Model{
		Subgraphs: []litertlmtest.Subgraph{
			{
				Name: "decode",
				Tensors: []litertlmtest.Tensor{
					{Name: "x", Type: litertlm.Int8, Shape: []int{1, 4}, Scales: []float32{0.5}},
					{Name: "layer_0/w2", Type: litertlm.Int2, Shape: []int{2, 4}, Data: []byte{0b11100100, 0b00011011}, Scales: []float32{0.25, 0.5}},
					{Name: "w4", Type: litertlm.Int4, Shape: []int{2, 4}, Data: []byte{0x21, 0xf8, 0x07, 0x70}, Scales: []float32{1, 2}},
					{Name: "gamma", Type: litertlm.Float32, Shape: []int{2}, Data: []byte{0, 1, 2, 3, 4, 5, 6, 7}},
					{Name: "y", Type: litertlm.Int8, Shape: []int{1, 2}, Scales: []float32{0.125}},
					{Name: "z", Type: litertlm.Float32, Shape: []int{1, 2}},
				},
				Operators: []litertlmtest.Operator{
					{Op: litertlm.FullyConnected, Inputs: []int{0, 1, -1}, Outputs: []int{4}},
					{Op: litertlm.Composite, Name: "odml.rms_norm", Inputs: []int{4, 3}, Outputs: []int{5}},
				},
			},
			{Name: "decomposition", Tensors: []litertlmtest.Tensor{{Name: "a", Shape: []int{1, 2}}}},
		},
		Signatures: []litertlm.Signature{{Key: "decode"}},
	}
}

// checkModel compares a model with what small says.
func checkModel(t *testing.T, m *litertlm.Model) {
	t.Helper()
	want := small()
	if diff := cmp.Diff(want.Signatures, m.Signatures); diff != "" {
		t.Errorf("signatures (-want +got):\n%s", diff)
	}
	if len(m.Subgraphs) != len(want.Subgraphs) {
		t.Fatalf("%d subgraphs", len(m.Subgraphs))
	}
	for i, w := range want.Subgraphs {
		g := m.Subgraphs[i]
		var operators []litertlmtest.Operator
		for _, o := range g.Operators {
			operators = append(operators, litertlmtest.Operator{
				Op: o.Op, Name: o.Name, Inputs: numbers(o.Inputs), Outputs: numbers(o.Outputs), Activation: o.Activation, WeightsFormat: o.WeightsFormat,
			})
		}
		var tensors []litertlmtest.Tensor
		for _, n := range g.Tensors {
			tensor := litertlmtest.Tensor{Name: n.Name, Type: n.Type, Shape: n.Shape, Data: n.Data}
			if q := n.Quantization; q != nil {
				for i := range q.NumScales() {
					tensor.Scales = append(tensor.Scales, q.Scale(i))
				}
				if !q.Symmetric() || q.Custom || q.Dimension != 0 {
					t.Errorf("%s: %+v", n.Name, q)
				}
			}
			tensors = append(tensors, tensor)
		}
		if diff := cmp.Diff(w, litertlmtest.Subgraph{Name: g.Name, Tensors: tensors, Operators: operators}); diff != "" {
			t.Errorf("subgraph %d (-want +got):\n%s", i, diff)
		}
	}
}

// numbers returns numbers as the writer takes them.
func numbers(list []int32) []int {
	out := make([]int, len(list))
	for i, n := range list {
		out[i] = int(n)
	}
	return out
}

// TestParseModel reads models whose data lies within the FlatBuffer and behind it.
func TestParseModel(t *testing.T) {
	for _, appended := range []bool{false, true} {
		m := small()
		m.Appended = appended
		got, err := litertlm.ParseModel(t.Context(), m.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		checkModel(t, got)
	}
	// A zero point that is none, another dimension, and data that is elsewhere.
	m := small()
	w := &m.Subgraphs[0].Tensors[1]
	w.ZeroPoint, w.Dimension, w.External, w.Data = -1, 1, 7, nil
	got, err := litertlm.ParseModel(t.Context(), m.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if n := got.Subgraphs[0].Tensors[1]; n.Quantization.Symmetric() || n.Quantization.Dimension != 1 || !n.External || n.Data != nil {
		t.Errorf("%+v", n)
	}
	// A sparse tensor has fewer numbers than its shape has.
	m = small()
	w = &m.Subgraphs[0].Tensors[1]
	w.Sparse, w.Data = litertlmtest.Sparse, w.Data[:1]
	o := m.Subgraphs[0].Operators
	o[0].Activation, o[0].WeightsFormat, o[1].Attributes = 1, 2, litertlmtest.Attribute("epsilon", 0.5)
	if got, err = litertlm.ParseModel(t.Context(), m.Bytes()); err != nil {
		t.Fatal(err)
	}
	if g := got.Subgraphs[0]; !g.Tensors[1].Sparse || g.Tensors[2].Sparse {
		t.Errorf("%+v", g.Tensors[1])
	}
	if o := got.Subgraphs[0].Operators; o[0].Activation != 1 || o[0].WeightsFormat != 2 || string(o[1].Attributes) != string(litertlmtest.Attribute("epsilon", 0.5)) {
		t.Errorf("%+v", o)
	}
	// Of the other operators the activation is elsewhere, or there is none.
	m = small()
	for _, op := range []litertlm.Op{litertlm.Concatenation, litertlm.Mul, litertlm.Pack} {
		m.Subgraphs[0].Operators = append(m.Subgraphs[0].Operators, litertlmtest.Operator{Op: op, Inputs: []int{0}, Outputs: []int{4}, Activation: 3})
	}
	if got, err = litertlm.ParseModel(t.Context(), m.Bytes()); err != nil {
		t.Fatal(err)
	}
	if o := got.Subgraphs[0].Operators[2:]; o[0].Activation != 3 || o[1].Activation != 3 || o[2].Activation != 0 {
		t.Errorf("%+v", o)
	}
}

// TestParseModelCancelled reads a model that nobody wants any more.
func TestParseModelCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := litertlm.ParseModel(ctx, small().Bytes()); !errors.Is(err, cause) || errors.Is(err, fault.ErrIntegrity) {
		t.Error(err)
	}
}

// TestParseModelMemory reads models that say little with many bytes: they must not
// cost many times their length.
func TestParseModelMemory(t *testing.T) {
	operands := func(n int) *litertlmtest.Model {
		m := small()
		m.Subgraphs[0].Operators[0].Inputs = make([]int, n)
		return m
	}
	if _, err := litertlm.ParseModel(t.Context(), operands(1024).Bytes()); err != nil {
		t.Error(err)
	}
	many := small()
	for range 1000 {
		many.Subgraphs[0].Operators = append(many.Subgraphs[0].Operators, litertlmtest.Operator{Inputs: make([]int, 1024), Outputs: []int{0}})
	}
	long := small()
	for range 65 {
		long.Subgraphs[1].Tensors = append(long.Subgraphs[1].Tensors, litertlmtest.Tensor{Name: strings.Repeat("n", 1<<20)})
	}
	cases := []struct {
		name string
		data []byte
		want string
		most float64 // times the length
	}{
		{"inputs of one operator", operands(1 << 20).Bytes(), "1048576 inputs of an operator, at most 1024", 0.1},
		{"inputs of many operators", many.Bytes(), "", 1.5},
		{"a shape", change(func(m *litertlmtest.Model) { m.Subgraphs[0].Tensors[0].Shape = make([]int, 1<<20) }), "1048576 dimensions, at most 16", 0.1},
		{"names", long.Bytes(), "more than 67108864 bytes of strings", 1.5},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := litertlm.ParseModel(t.Context(), c.data)
			runtime.ReadMemStats(&after)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v does not say %q", err, c.want)
			}
			if got, most := after.TotalAlloc-before.TotalAlloc, c.most*float64(len(c.data)); float64(got) > most {
				t.Errorf("%d bytes of a file take %d in memory", len(c.data), got)
			}
		})
	}
}

// change returns the small model with something changed.
func change(f func(m *litertlmtest.Model)) []byte {
	m := small()
	f(m)
	return m.Bytes()
}

// TestParseModelRefused reads models that are wrong in every way there is.
func TestParseModelRefused(t *testing.T) {
	good := small().Bytes()
	appended := change(func(m *litertlmtest.Model) { m.Appended = true })
	cases := []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "no TFLite model"},
		{"other mark", append([]byte("\x10\x00\x00\x00TFL2"), good[8:]...), "no TFLite model"},
		{"mark alone", good[:8], "a table at byte"},
		{"half", good[:len(good)/2], "of"},
		{"appended data cut off", appended[:len(appended)-1], "the model ends at"},
		{"input of another graph", change(func(m *litertlmtest.Model) { m.Subgraphs[0].Operators[0].Inputs[1] = 6 }), "takes tensor 6 of 6"},
		{"no output", change(func(m *litertlmtest.Model) { m.Subgraphs[0].Operators[0].Outputs[0] = -1 }), "gives tensor -1"},
		{"signature of no graph", change(func(m *litertlmtest.Model) { m.Signatures[0].Subgraph = 2 }), "subgraph 2 of 2"},
		{"signature twice", change(func(m *litertlmtest.Model) { m.Signatures = append(m.Signatures, m.Signatures[0]) }), "occurs twice"},
		{"fewer bytes", change(func(m *litertlmtest.Model) { m.Subgraphs[0].Tensors[2].Data = []byte{1, 2, 3} }), "3 bytes of data"},
		{"more bytes", change(func(m *litertlmtest.Model) { m.Subgraphs[0].Tensors[1].Data = []byte{1, 2, 3} }), "3 bytes of data"},
		{"negative shape", change(func(m *litertlmtest.Model) { m.Subgraphs[0].Tensors[1].Shape = []int{-2, -4} }), "shape [-2 -4]"},
		{"overflowing shape", change(func(m *litertlmtest.Model) {
			m.Subgraphs[0].Tensors[1].Shape = []int{1 << 30, 1 << 30, 1 << 30}
		}), "2 bytes of data"},
		{"dimensions", change(func(m *litertlmtest.Model) { m.Subgraphs[0].Tensors[0].Shape = make([]int, 17) }), "17 dimensions"},
		{"version", version(good, 2), "version 2 of the schema"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := litertlm.ParseModel(t.Context(), c.data)
			if _, ok := errors.AsType[*litertlm.FormatError](err); !ok || !errors.Is(err, fault.ErrIntegrity) {
				t.Fatalf("%v is no error of the format", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q does not say %q", err, c.want)
			}
		})
	}
}

// version returns a model with another number of the schema's version.
func version(model []byte, n uint32) []byte {
	data := slices.Clone(model)
	root := int(binary.LittleEndian.Uint32(data))
	vtable := root - int(int32(binary.LittleEndian.Uint32(data[root:])))
	binary.LittleEndian.PutUint32(data[root+int(binary.LittleEndian.Uint16(data[vtable+4:])):], n)
	return data
}

// TestShared reads a model in which many subgraphs are the same bytes, which could cost any amount of memory.
func TestShared(t *testing.T) {
	m := small()
	for range 300 {
		m.Subgraphs[0].Tensors = append(m.Subgraphs[0].Tensors, m.Subgraphs[0].Tensors[0])
		m.Subgraphs = append(m.Subgraphs, m.Subgraphs[1])
	}
	data := m.Bytes()
	if _, err := litertlm.ParseModel(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	// Let all subgraphs be the first one.
	root := int(binary.LittleEndian.Uint32(data))
	vtable := root - int(int32(binary.LittleEndian.Uint32(data[root:])))
	at := root + int(binary.LittleEndian.Uint16(data[vtable+4+2*2:]))
	vector := at + int(binary.LittleEndian.Uint32(data[at:]))
	first := vector + 4 + int(binary.LittleEndian.Uint32(data[vector+4:]))
	for i := range int(binary.LittleEndian.Uint32(data[vector:])) {
		slot := vector + 4 + 4*i
		binary.LittleEndian.PutUint32(data[slot:], uint32(first-slot))
	}
	if _, err := litertlm.ParseModel(t.Context(), data); err == nil || !strings.Contains(err.Error(), "overlap") {
		t.Errorf("shared subgraphs: %v", err)
	}
}

// FuzzModel reads damaged models.
func FuzzModel(f *testing.F) {
	built, err := os.ReadFile(builtFile)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(built[32768:])
	f.Add(small().Bytes())
	m := small()
	m.Appended = true
	f.Add(m.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := litertlm.ParseModel(t.Context(), data)
		if err != nil {
			return
		}
		for _, g := range m.Subgraphs {
			for _, n := range g.Tensors {
				if q := n.Quantization; q != nil {
					for i := range q.NumScales() {
						q.Scale(i)
					}
					q.Symmetric()
				}
			}
			for _, o := range g.Operators {
				_, _, _ = o.Attribute("epsilon")
				for _, i := range o.Inputs {
					if i >= 0 {
						_ = g.Tensors[i]
					}
				}
			}
		}
	})
}
