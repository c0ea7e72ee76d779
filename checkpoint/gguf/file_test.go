package gguf_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// TestMetadata reads a value of every type.
func TestMetadata(t *testing.T) {
	f := openTypes(t)
	if f.Version != 3 || f.Name != typesFile {
		t.Errorf("%q is of version %d", f.Name, f.Version)
	}
	ints, floats, bools, texts := map[string]int64{}, map[string]float64{}, map[string]bool{}, map[string]string{}
	var rest []string
	for _, key := range f.Keys() {
		v, ok := f.Value(key)
		if !ok {
			t.Errorf("key %q has no value", key)
		}
		if n, ok := v.Int(); ok {
			ints[key] = n
		} else if x, ok := v.Float(); ok {
			floats[key] = x
		} else if b, ok := v.Bool(); ok {
			bools[key] = b
		} else if s, ok := v.Text(); ok {
			texts[key] = s
		} else {
			rest = append(rest, key+": "+v.String())
		}
	}
	wantInts := map[string]int64{"general.alignment": 64, "u8": 200, "i8": -3, "u16": 60000, "i16": -300, "u32": 4000000000, "i32": -70000, "i64": -1 << 40}
	wantRest := []string{"bools: array of 3 bool", "floats: array of 2 float32", "ints: array of 3 int32", "nested: array of 2 array", "texts: array of 3 string", "u64: uint64"}
	for _, diff := range []string{
		cmp.Diff(wantInts, ints), cmp.Diff(map[string]float64{"f32": 0.25, "f64": 0.1}, floats), cmp.Diff(map[string]bool{"yes": true, "no": false}, bools),
		cmp.Diff(map[string]string{"general.architecture": "types", "text": "▁é\n"}, texts), cmp.Diff(wantRest, rest),
	} {
		if diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if n, err := f.Uint("u64"); err != nil || n != 1<<63 {
		t.Errorf("u64 is %d, %v", n, err)
	}
	if n, err := f.Int("i8"); err != nil || n != -3 {
		t.Errorf("i8 is %d, %v", n, err)
	}
	if x, err := f.Float("f32"); err != nil || x != 0.25 {
		t.Errorf("f32 is %v, %v", x, err)
	}
	if b, err := f.Bool("yes"); err != nil || !b {
		t.Errorf("yes is %v, %v", b, err)
	}
	if s, err := f.Text("text"); err != nil || s != "▁é\n" {
		t.Errorf("text is %q, %v", s, err)
	}
	if all, err := f.Ints("ints"); err != nil || cmp.Diff([]int64{1, -2, 3}, all) != "" {
		t.Errorf("ints are %v, %v", all, err)
	}
	if all, err := f.Floats("floats"); err != nil || cmp.Diff([]float64{0.5, -0.5}, all) != "" {
		t.Errorf("floats are %v, %v", all, err)
	}
	if all, err := f.Bools("bools"); err != nil || cmp.Diff([]bool{true, false, true}, all) != "" {
		t.Errorf("bools are %v, %v", all, err)
	}
	if all, err := f.Texts("texts"); err != nil || cmp.Diff([]string{"a", "", "ccc"}, all) != "" {
		t.Errorf("texts are %v, %v", all, err)
	}
	nested, _ := f.Value("nested")
	var lens []int
	for v := range nested.All() {
		for e := range v.All() {
			n, ok := e.Int()
			if !ok {
				t.Errorf("nested has a %s", e.Type())
			}
			lens = append(lens, int(n))
		}
		lens = append(lens, -v.Len())
	}
	if diff := cmp.Diff([]int{1, 2, -2, 3, -1}, lens); diff != "" {
		t.Errorf("nested (-want +got):\n%s", diff)
	}
}

// TestKeyRefused asks for values that are missing or of another kind.
func TestKeyRefused(t *testing.T) {
	f := openTypes(t)
	check := func(err error, want string) {
		t.Helper()
		ke, ok := errors.AsType[*gguf.KeyError](err)
		if !ok || !errors.Is(err, fault.ErrIntegrity) || ke.File != typesFile || !strings.Contains(err.Error(), want) || fault.Hint(err) == "" {
			t.Errorf("%v, want an error that says %q", err, want)
		}
	}
	_, err := f.Uint("none")
	check(err, `key "none": it is missing`)
	_, err = f.Uint("i8")
	check(err, "should be an integer that is not negative")
	_, err = f.Int("u64")
	check(err, "type uint64, or out of range")
	_, err = f.Float("u32")
	check(err, "type uint32")
	_, err = f.Bool("text")
	check(err, "should be a bool")
	_, err = f.Text("texts")
	check(err, "array of 3 string")
	_, err = f.Ints("floats")
	check(err, "should be an array of integers")
	_, err = f.Texts("text")
	check(err, "should be an array of strings")
}

// TestOpen finds files, or does not.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	_, err := gguf.Open(dir, "model.gguf")
	if _, ok := errors.AsType[*checkpoint.MissingError](err); !ok || !errors.Is(err, fault.ErrNotFound) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.gguf"), []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := gguf.Open(dir, "model.gguf"); !errors.Is(err, fault.ErrIntegrity) {
		t.Errorf("a file that is cut: %v", err)
	}
	if _, err := gguf.Open(dir, "../model.gguf"); !errors.Is(err, fault.ErrIntegrity) {
		t.Errorf("a file elsewhere: %v", err)
	}
	f, err := gguf.Open("testdata", typesFile)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestVersion2 reads the version before.
func TestVersion2(t *testing.T) {
	b := &builder{version: 2}
	f, err := gguf.Parse("x", b.number("n", 7).tensor("t", gguf.Q8_0, 0, 32, 2).file(68))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Uint("n"); f.Version != 2 || n != 7 || err != nil {
		t.Errorf("version %d, n = %d, %v", f.Version, n, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestParseRefused reads files that are wrong in every way there is.
func TestParseRefused(t *testing.T) {
	good := func() *builder {
		return new(builder).number("n", 7).tensor("a", gguf.F32, 0, 8, 2).tensor("b", gguf.Q8_0, 64, 32)
	}
	whole := good().file(98)
	key := func(kind gguf.ValueType, f func(b *builder)) []byte {
		b := new(builder)
		return b.key("k", kind, func() { f(b) }).file(0)
	}
	array := func(elem gguf.ValueType, n uint64, f func(b *builder)) []byte {
		return key(gguf.Array, func(b *builder) {
			b.u32(uint32(elem))
			b.u64(n)
			f(b)
		})
	}
	nothing := func(*builder) {}
	bare := func(tensors, keys uint64) []byte { return (&builder{tensors: tensors, keys: keys}).file(0) }
	tensor := func(name string, typ gguf.Type, dims ...uint64) []byte {
		return new(builder).tensor(name, typ, 0, dims...).file(64)
	}
	cases := []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "no GGUF file"},
		{"zip", []byte("PK\x03\x04aaaaaaaaaaaaaaaaaaaaaaa"), "no GGUF file"},
		{"magic alone", whole[:4], "at byte 4, the file ends at 4: it is truncated"},
		{"within the header", whole[:20], "truncated"},
		{"within a key", new(builder).number("nnnnnnnnnnnnnnn", 7).file(0)[:40], "truncated"},
		{"within a tensor", new(builder).tensor("a", gguf.F32, 0, 8, 2, 1).file(0)[:64], `tensor "a"`},
		{"without data", whole[:len(whole)-98], `tensor "a": it should have 64 bytes from byte 0 of the data on, the file holds 0`},
		{"without the last byte", whole[:len(whole)-1], `tensor "b": it should have 34 bytes from byte 64 of the data on, the file holds 97`},
		{"endless keys", bare(0, 1<<60), "keys in"},
		{"more keys than bytes", bare(0, 20), "20 keys in 32 bytes"},
		{"endless tensors", bare(1<<60, 0), "tensors in"},
		{"a key twice", new(builder).number("n", 7).number("n", 7).file(0), `key "n": it is there twice`},
		{"a key without a name", new(builder).number("", 7).file(0), "it is no key"},
		{"a key that is no text", new(builder).number("\xff", 7).file(0), "it is no key"},
		{"a key that is too long", new(builder).number(strings.Repeat("n", 1025), 7).file(0), "it is no key"},
		{"a value of a type that is not known", key(13, nothing), "values of type 13 are not known"},
		{"a bool of 2", key(gguf.Bool, func(b *builder) { b.body = append(b.body, 2) }), "neither 0 nor 1"},
		{"an array with a bool of 2", array(gguf.Bool, 2, func(b *builder) { b.body = append(b.body, 1, 2) }), "neither 0 nor 1"},
		{"an endless text", key(gguf.String, func(b *builder) { b.u64(math.MaxUint64) }), "truncated"},
		{"an endless array", array(gguf.Uint8, math.MaxUint64, nothing), "an array of 18446744073709551615 uint8"},
		{"an array whose size overflows", array(gguf.Uint64, 1<<61+1, nothing), "truncated"},
		{"an array that is cut", array(gguf.Uint32, 20, nothing), "truncated"},
		{"an endless array of texts", array(gguf.String, 1<<40, nothing), "truncated"},
		{"an array with a text that is cut", array(gguf.String, 1, func(b *builder) { b.u64(100) }), "truncated"},
		{"an array of a type that is not known", array(99, 1, nothing), "values of type 99"},
		{"an empty array of a type that is not known", array(99, 0, nothing), "values of type 99"},
		{"arrays without end", array(gguf.Array, 1, func(b *builder) {
			for range 10 {
				b.u32(uint32(gguf.Array))
				b.u64(1)
			}
		}), "more than 4 deep"},
		{"alignment 0", new(builder).number(gguf.AlignmentKey, 0).file(0), "no power of two"},
		{"alignment 48", new(builder).number(gguf.AlignmentKey, 48).file(0), "no power of two"},
		{"alignment of another type", new(builder).key(gguf.AlignmentKey, gguf.Bool, func() {}).file(64), "no power of two"},
		{"alignment beyond the file", new(builder).number(gguf.AlignmentKey, 1<<31).tensor("t", gguf.F32, 0, 1).file(64), "the file holds 0"},
		{"a tensor twice", new(builder).tensor("t", gguf.F32, 0, 8).tensor("t", gguf.F32, 32, 8).file(64), `tensor "t": it is there twice`},
		{"a tensor without a name", tensor("", gguf.F32, 8), "it has no name"},
		{"a tensor whose name is too long", tensor(strings.Repeat("n", 1025), gguf.F32, 8), "it has no name"},
		{"no dimensions", tensor("t", gguf.F32), "0 dimensions"},
		{"five dimensions", tensor("t", gguf.F32, 1, 1, 1, 1, 1), "5 dimensions"},
		{"a dimension of 0", tensor("t", gguf.F32, 8, 0), "a dimension of 0 after [8]"},
		{"a dimension beyond all bounds", tensor("t", gguf.F32, 1<<63), "a dimension of"},
		{"dimensions that overflow", tensor("t", gguf.F32, 1<<30, 1<<30, 1<<4), "a dimension of 1073741824 after [1073741824]"},
		{"columns that fill no block", tensor("t", gguf.Q4_K, 128), "128 columns of Q4_K, which come in blocks of 256"},
		{"an offset beyond all bounds", new(builder).tensor("t", gguf.F32, math.MaxUint64-31, 8).file(64), "the file holds 64"},
		{"an offset off the grid", new(builder).tensor("t", gguf.F32, 16, 8).file(64), "no multiple of 32"},
		{"the same place", new(builder).tensor("t", gguf.F32, 0, 8).tensor("u", gguf.F32, 0, 8).file(64), `tensor "u": it begins at byte 0 of the data, within tensor "t"`},
		{"overlap", new(builder).tensor("t", gguf.F32, 32, 8).tensor("u", gguf.F32, 0, 9).file(128), `tensor "t": it begins at byte 32 of the data, within tensor "u", which ends at 36`},
		{"overlap of a type that is not decoded", new(builder).tensor("t", 10, 0, 256).tensor("u", gguf.F32, 64, 8).file(128), `within tensor "t", which ends at 84`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := gguf.Parse("x.gguf", c.data)
			fe, ok := errors.AsType[*gguf.FormatError](err)
			if !ok || !errors.Is(err, fault.ErrIntegrity) || fe.File != "x.gguf" {
				t.Fatalf("%v is no error of the format", err)
			}
			if !strings.Contains(err.Error(), c.want) || len(err.Error()) > 600 {
				t.Errorf("%q does not say %q", err, c.want)
			}
			if !strings.Contains(fault.Hint(err), "fetch it again") {
				t.Errorf("the hint is %q", fault.Hint(err))
			}
		})
	}
	for n := range len(whole) {
		if _, err := gguf.Parse("", whole[:n]); !errors.Is(err, fault.ErrIntegrity) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
	}
	if _, err := gguf.Parse("", whole); err != nil {
		t.Errorf("the whole file: %v", err)
	}
}

// TestParseUnsupported reads files that may be sound.
func TestParseUnsupported(t *testing.T) {
	cases := []struct {
		name string
		data []byte
		want string
	}{
		{"version 1", (&builder{version: 1}).file(0), "version 1 of the format is not known, only 2 and 3"},
		{"version 4", (&builder{version: 4}).file(0), "version 4"},
		{"big-endian", (&builder{version: 3 << 24}).file(0), "big-endian"},
		{"a type of a later version", new(builder).tensor("blk.0.x", 200, 0, 32).file(64), `tensor "blk.0.x": numbers of type 200 are not supported`},
	}
	for _, c := range cases {
		if _, err := gguf.Parse("x.gguf", c.data); !errors.Is(err, fault.ErrUsage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// FuzzParse reads damaged files, and all that they hold.
func FuzzParse(f *testing.F) {
	f.Add(readTestdata(f, typesFile))
	f.Add(new(builder).number("n", 7).tensor("a", gguf.F32, 0, 8, 2).tensor("b", gguf.Q6_K, 64, 256).file(512))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse("fuzz", data)
		if err != nil {
			if !errors.Is(err, fault.ErrIntegrity) && !errors.Is(err, fault.ErrUsage) {
				t.Fatal(err)
			}
			return
		}
		for _, key := range file.Keys() {
			v, _ := file.Value(key)
			walk(t, v)
		}
		total := 0
		for _, tensor := range file.Tensors() {
			total += len(tensor.Data)
			values := make([]float32, tensor.Cols())
			for row := range tensor.Rows() {
				if err := tensor.Dequantize(values, row); err != nil && !errors.Is(err, fault.ErrIntegrity) && !errors.Is(err, fault.ErrUsage) {
					t.Fatal(err)
				}
			}
		}
		if total > len(data) {
			t.Errorf("%d bytes of tensors in a file of %d", total, len(data))
		}
	})
}

// walk reads a value and what is in it.
func walk(t *testing.T, v gguf.Value) {
	n := 0
	for e := range v.All() {
		walk(t, e)
		n++
	}
	if n != v.Len() {
		t.Errorf("an array of %d has %d elements", v.Len(), n)
	}
	v.Int()
	v.Uint()
	v.Float()
	v.Bool()
	v.Text()
}
