package gguf_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/quant"
)

// TestValues holds every type against the values of the format's own package.
func TestValues(t *testing.T) {
	f := openTypes(t)
	want := floats(readTestdata(t, "types.f32"))
	seen := map[gguf.Type]bool{}
	for _, tensor := range f.Tensors() {
		if tensor.Name == "i32" {
			continue
		}
		seen[tensor.Type] = true
		if !strings.EqualFold(tensor.Name, tensor.Type.String()) {
			t.Errorf("tensor %s is of %s", tensor.Name, tensor.Type)
		}
		got := make([]float32, tensor.Cols())
		for row := range tensor.Rows() {
			if err := tensor.Dequantize(got, row); err != nil {
				t.Fatal(err)
			}
			if i := firstDiff(got, want); i >= 0 {
				t.Errorf("%s: row %d, column %d: %x, want %x", tensor.Type, row, i, got[i], want[i])
			}
			want = want[len(got):]
		}
	}
	if len(want) != 0 {
		t.Errorf("%d values are left", len(want))
	}
	for _, typ := range gguf.Decoded() {
		if !seen[typ] {
			t.Errorf("no tensor of %s", typ)
		}
	}
}

// TestDecode checks that codes, scales and minimums are what their type says, and that a
// quantised row goes into a matrix of 8-bit codes without loss.
func TestDecode(t *testing.T) {
	f := openTypes(t)
	var r gguf.Row // used again from tensor to tensor
	for _, tensor := range f.Tensors() {
		c, ok := tensor.Type.Coding()
		if !ok {
			continue
		}
		low, high := 0, 0
		for row := range tensor.Rows() {
			if err := tensor.Decode(&r, row); err != nil {
				t.Fatal(err)
			}
			groups := tensor.Cols() / c.Group
			minimums := 0
			if c.Minimums {
				minimums = groups
			}
			if r.Group != c.Group || len(r.Codes) != tensor.Cols() || len(r.Scales) != groups || len(r.Minimums) != minimums {
				t.Fatalf("%s: %d codes in groups of %d, %d scales, %d minimums", tensor.Type, len(r.Codes), r.Group, len(r.Scales), len(r.Minimums))
			}
			for i, q := range r.Codes {
				low, high = min(low, int(int8(q))), max(high, int(int8(q)))
				code, scale := float32(int8(q)), r.Scales[i/c.Group]
				if float64(code*scale) != float64(code)*float64(scale) {
					t.Errorf("%s: %v*%v is rounded", tensor.Type, code, scale)
				}
			}
			for _, x := range append(r.Scales, r.Minimums...) {
				if c.HalfScales && quant.F16ToF32(quant.F32ToF16(x)) != x {
					t.Errorf("%s: %v is no half", tensor.Type, x)
				}
			}
			want := make([]float32, tensor.Cols())
			if err := tensor.Dequantize(want, row); err != nil {
				t.Fatal(err)
			}
			checkPacked(t, tensor, &r, want)
		}
		if low < c.Low || high > c.High || high-low < (c.High-c.Low)*3/4 {
			t.Errorf("%s: codes are %d to %d, want %d to %d", tensor.Type, low, high, c.Low, c.High)
		}
	}
}

// checkPacked packs a row into a matrix and reads it from there.
func checkPacked(t *testing.T, tensor gguf.Tensor, r *gguf.Row, want []float32) {
	t.Helper()
	m := quant.Matrix{Format: quant.Format{Bits: 8, Group: r.Group, Scale: quant.ScaleF32}, Layout: quant.Rows, Rows: 1, Cols: tensor.Cols()}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, m.SizeBytes())
	quant.PackRow(data, m, r.Codes, r.Scales)
	got := make([]float32, m.Cols)
	quant.Row(got, m, data, 0)
	for i, minimum := range r.Minimums {
		for c := range r.Group {
			got[i*r.Group+c] -= minimum
		}
	}
	if i := firstDiff(got, want); i >= 0 {
		t.Errorf("%s: column %d comes back as %x, want %x", tensor.Type, i, got[i], want[i])
	}
}

// TestDecodeRefused asks for rows that cannot be had.
func TestDecodeRefused(t *testing.T) {
	f := openTypes(t)
	values := make([]float32, 512)
	get := func(name string) gguf.Tensor {
		tensor, ok := f.Tensor(name)
		if !ok {
			t.Fatalf("no tensor %q", name)
		}
		return tensor
	}
	err := get("i32").Dequantize(values, 0)
	te, ok := errors.AsType[*gguf.TypeError](err)
	if !ok || !errors.Is(err, fault.ErrUsage) || te.Tensor != "i32" || te.Type.String() != "I32" || te.File != typesFile {
		t.Errorf("numbers of I32: %v", err)
	}
	if hint := fault.Hint(err); !strings.Contains(hint, "F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16") {
		t.Errorf("the hint is %q", hint)
	}
	if err := get("bf16").Decode(new(gguf.Row), 0); !errors.Is(err, fault.ErrUsage) {
		t.Errorf("codes of floats: %v", err)
	}
	for _, row := range []int{-1, 3} {
		if err := get("f32").Dequantize(values, row); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("row %d: %v", row, err)
		}
		if err := get("q8_0").Dequantize(values, row); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("row %d of codes: %v", row, err)
		}
	}
	// Numbers that are none, wherever a type keeps them.
	places := map[string][]int{"f32": {0, 252}, "f16": {2}, "bf16": {4}, "q4_0": {0, 18}, "q4_1": {0, 2}, "q5_0": {22}, "q5_1": {2}, "q8_0": {34}, "q4_k": {0, 2}, "q5_k": {176, 178}, "q6_k": {208}}
	for name, at := range places {
		for _, at := range at {
			tensor := get(name)
			tensor.Data = append([]byte{}, tensor.Data...)
			binary.LittleEndian.PutUint16(tensor.Data[at:], 0xfe00)
			if name == "f32" {
				binary.LittleEndian.PutUint32(tensor.Data[at:], 0xff800000)
			}
			if name == "bf16" {
				binary.LittleEndian.PutUint16(tensor.Data[at:], 0x7f80)
			}
			err := tensor.Dequantize(values, 0)
			if fe, ok := errors.AsType[*gguf.FormatError](err); !ok || fe.Tensor != name || !strings.Contains(err.Error(), "row 0") {
				t.Errorf("%s with no number at byte %d: %v", name, at, err)
			}
		}
	}
}

// TestShape reads a tensor of three dimensions.
func TestShape(t *testing.T) {
	f := openTypes(t)
	tensor, _ := f.Tensor("i32")
	if diff := cmp.Diff([]int{2, 3, 4}, tensor.Shape); diff != "" || tensor.Rows() != 6 || tensor.Cols() != 4 {
		t.Errorf("%d rows of %d, shape (-want +got):\n%s", tensor.Rows(), tensor.Cols(), diff)
	}
	for i := range 24 {
		if got := binary.LittleEndian.Uint32(tensor.Data[4*i:]); got != uint32(i) {
			t.Errorf("number %d is %d", i, got)
		}
	}
	if _, ok := f.Tensor("none"); ok {
		t.Error("there is a tensor of no name")
	}
}
