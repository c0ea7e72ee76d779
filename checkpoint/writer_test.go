package checkpoint_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nlpodyssey/safetensors"

	"github.com/zoo-sdk/zoo/checkpoint"
)

// specs are tensors of odd sizes, one of them empty.
var specs = []checkpoint.Spec{
	{Name: "z", DType: checkpoint.BF16, Shape: []int{3, 5}},
	{Name: `a "quoted" <name>`, DType: checkpoint.U8, Shape: []int{7}},
	{Name: "none", DType: checkpoint.F32, Shape: []int{0, 4}},
	{Name: "one", DType: checkpoint.F32, Shape: nil},
	{Name: "m", DType: "I64", Shape: []int{11}},
}

// write writes specs, filled with their own number.
func write(t *testing.T, w io.Writer, l *checkpoint.Layout) {
	t.Helper()
	out, err := checkpoint.NewWriter(w, l)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range l.Tensors() {
		err := out.WriteTensor(p.Name, func(w io.Writer) error {
			for range p.SizeBytes {
				if _, err := w.Write([]byte{byte(i + 1)}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWriter(t *testing.T) {
	for _, opts := range []checkpoint.LayoutOptions{
		{},
		{Metadata: map[string]string{"format": "pt", "a": "b"}},
		{Align: 64},
		{Align: 64, FileAlign: 16 << 10},
		{FileAlign: 4096},
	} {
		t.Run(fmt.Sprintf("%+v", opts), func(t *testing.T) {
			layout, err := checkpoint.NewLayout(specs, opts)
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			write(t, &b, layout)
			if int64(b.Len()) != layout.SizeBytes() || b.Len()%max(opts.FileAlign, 1) != 0 {
				t.Errorf("%d bytes, the layout says %d", b.Len(), layout.SizeBytes())
			}
			st, err := safetensors.Deserialize(b.Bytes())
			if err != nil {
				t.Fatalf("the library refuses it: %v", err)
			}
			c, err := checkpoint.Open(put(t, map[string][]byte{"model.safetensors": b.Bytes()}))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if len(opts.Metadata) > 0 {
				if diff := cmp.Diff(opts.Metadata, c.Metadata()); diff != "" {
					t.Errorf("metadata (-want +got):\n%s", diff)
				}
			}
			placed := layout.Tensors()
			if len(placed) != len(specs) {
				t.Fatalf("%d tensors placed, want %d", len(placed), len(specs))
			}
			for i, p := range placed {
				if diff := cmp.Diff(specs[i], p.Spec); diff != "" {
					t.Errorf("order (-want +got):\n%s", diff)
				}
				if p.Offset%int64(max(opts.Align, 1)) != 0 || i == 0 && p.Offset%8 != 0 {
					t.Errorf("%q lies at %d", p.Name, p.Offset)
				}
				got, ok := c.Tensor(p.Name)
				want := bytes.Repeat([]byte{byte(i + 1)}, int(p.SizeBytes))
				if !ok || !bytes.Equal(got.Data, want) || got.DType != p.DType || len(got.Shape) != len(p.Shape) {
					t.Errorf("%q comes back as %+v", p.Name, got)
				}
				if !bytes.Equal(b.Bytes()[p.Offset:][:p.SizeBytes], want) {
					t.Errorf("%q does not lie at %d", p.Name, p.Offset)
				}
				if v, ok := st.Tensor(p.Name); !ok || !bytes.Equal(v.Data(), want) {
					t.Errorf("the library reads %q differently", p.Name)
				}
			}
		})
	}
}

// TestWriterIsDeterministic holds a file against its bytes, which must never change: packs are known by them.
func TestWriterIsDeterministic(t *testing.T) {
	layout, err := checkpoint.NewLayout(
		[]checkpoint.Spec{{Name: "b", DType: checkpoint.U8, Shape: []int{2}}, {Name: "a", DType: checkpoint.BF16, Shape: []int{1, 1}}},
		checkpoint.LayoutOptions{Align: 16, Metadata: map[string]string{"y": "1", "x": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	write(t, &b, layout)
	header := `{"__metadata__":{"x":"2","y":"1"},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},` +
		`"__padding__.1":{"dtype":"U8","shape":[14],"data_offsets":[2,16]},"a":{"dtype":"BF16","shape":[1,1],"data_offsets":[16,18]}}`
	header += strings.Repeat(" ", -(8+len(header))&15)
	want := file(header, 0)
	want = append(append(append(want, 1, 1), make([]byte, 14)...), 2, 2)
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLayoutRefused(t *testing.T) {
	one := func(name string, d checkpoint.DType, shape ...int) []checkpoint.Spec {
		return []checkpoint.Spec{{Name: name, DType: d, Shape: shape}}
	}
	cases := []struct {
		name    string
		tensors []checkpoint.Spec
		opts    checkpoint.LayoutOptions
	}{
		{"no name", one("", checkpoint.U8, 1), checkpoint.LayoutOptions{}},
		{"reserved name", one("__metadata__", checkpoint.U8, 1), checkpoint.LayoutOptions{}},
		{"name of padding", one("__padding__.1", checkpoint.U8, 1), checkpoint.LayoutOptions{}},
		{"name twice", append(one("a", checkpoint.U8, 1), one("a", checkpoint.U8, 1)...), checkpoint.LayoutOptions{}},
		{"unknown type", one("a", "F4", 1), checkpoint.LayoutOptions{}},
		{"negative size", one("a", checkpoint.U8, -1), checkpoint.LayoutOptions{}},
		{"overflow", one("a", checkpoint.U8, 1<<32, 1<<32), checkpoint.LayoutOptions{}},
		{"overflow in all", append(one("a", checkpoint.U8, 1<<62), one("b", checkpoint.U8, 1<<62)...), checkpoint.LayoutOptions{}},
		{"overflow by padding", one("a", checkpoint.U8, 1<<62, 1), checkpoint.LayoutOptions{FileAlign: 3}},
		{"many dimensions", one("a", checkpoint.U8, make([]int, 17)...), checkpoint.LayoutOptions{}},
		{"alignment", one("a", checkpoint.U8, 1), checkpoint.LayoutOptions{Align: 48}},
		{"large alignment", one("a", checkpoint.U8, 1), checkpoint.LayoutOptions{Align: 1 << 21}},
		{"long header", one(strings.Repeat("a", checkpoint.MaxHeaderBytes), checkpoint.U8, 1), checkpoint.LayoutOptions{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if _, err := checkpoint.NewLayout(c.tensors, c.opts); err == nil {
				t.Error("accepted")
			}
		})
	}
}

// limited fails after some bytes.
type limited struct{ left int }

var errFull = errors.New("full")

func (w *limited) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return 0, errFull
	}
	w.left -= len(p)
	return len(p), nil
}

func TestWriterRefused(t *testing.T) {
	two := []checkpoint.Spec{{Name: "a", DType: checkpoint.U8, Shape: []int{4}}, {Name: "b", DType: checkpoint.U8, Shape: []int{4}}}
	fill := func(n int) func(io.Writer) error {
		return func(w io.Writer) error { _, err := w.Write(make([]byte, n)); return err }
	}
	steps := []struct {
		name string
		run  func(w *checkpoint.Writer) error
		want string
	}{
		{"too few bytes", func(w *checkpoint.Writer) error { return w.WriteTensor("a", fill(3)) }, "1 of 4 bytes are missing"},
		{"too many bytes", func(w *checkpoint.Writer) error { return w.WriteTensor("a", fill(5)) }, "1 bytes more than declared"},
		{"wrong order", func(w *checkpoint.Writer) error { return w.WriteTensor("b", fill(4)) }, `where "a" is next`},
		{"not all", func(w *checkpoint.Writer) error { return errors.Join(w.WriteTensor("a", fill(4)), w.Close()) }, `"b" is not written`},
		{"too many", func(w *checkpoint.Writer) error {
			return errors.Join(w.WriteTensor("a", fill(4)), w.WriteTensor("b", fill(4)), w.WriteTensor("c", fill(4)))
		}, "after the last"},
		{"error sticks", func(w *checkpoint.Writer) error { _ = w.WriteTensor("b", fill(4)); return w.WriteTensor("a", fill(4)) }, `where "a" is next`},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			l, err := checkpoint.NewLayout(two, checkpoint.LayoutOptions{})
			if err != nil {
				t.Fatal(err)
			}
			w, err := checkpoint.NewWriter(io.Discard, l)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.run(w); err == nil || !strings.Contains(err.Error(), s.want) {
				t.Errorf("%v does not say %q", err, s.want)
			}
		})
	}
	l, err := checkpoint.NewLayout(two, checkpoint.LayoutOptions{Align: 64, FileAlign: 512})
	if err != nil {
		t.Fatal(err)
	}
	for n := range int(l.SizeBytes()) {
		w, err := checkpoint.NewWriter(&limited{n}, l)
		if err == nil {
			err = errors.Join(w.WriteTensor("a", fill(4)), w.WriteTensor("b", fill(4)), w.Close())
		}
		if !errors.Is(err, errFull) {
			t.Fatalf("a device that takes %d bytes: %v", n, err)
		}
	}
}
