package checkpoint_test

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nlpodyssey/safetensors"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
)

func TestOpen(t *testing.T) {
	// The header is in the order of names, the data is not.
	header := object(`"__metadata__":{"format":"pt"}`,
		tensor("a", "F32", "[2,3]", 2, 26),
		tensor("b.weight", "BF16", "[1]", 0, 2),
		tensor("empty", "I64", "[0,4294967295,9]", 26, 26),
		tensor("scalar", "U8", "[]", 26, 27)) + "   \n"
	c, err := checkpoint.Open(put(t, map[string][]byte{"model.safetensors": file(header, 27)}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if diff := cmp.Diff([]string{"a", "b.weight", "empty", "scalar"}, c.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"format": "pt"}, c.Metadata()); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	want := checkpoint.Tensor{Name: "b.weight", DType: checkpoint.BF16, Shape: []int{1}, Data: []byte{0, 1}, File: "model.safetensors"}
	got, ok := c.Tensor("b.weight")
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("tensor (-want +got):\n%s", diff)
	}
	if s, _ := c.Tensor("scalar"); len(s.Shape) != 0 || len(s.Data) != 1 || s.Data[0] != 26 {
		t.Errorf("scalar: %+v", s)
	}
	if _, ok := c.Tensor("none"); ok {
		t.Error("there is no tensor \"none\"")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestHeaderRefused holds a file of every kind that must not be opened against what its error says.
func TestHeaderRefused(t *testing.T) {
	whole := file(object(tensor("a", "F32", "[4]", 0, 16)), 16)
	long := binary.LittleEndian.AppendUint64(nil, checkpoint.MaxHeaderBytes+1)
	cases := []struct {
		name string
		data []byte
		want string // part of the message
	}{
		{"nothing", nil, "too few"},
		{"less than the length", whole[:7], "too few"},
		{"truncated header", whole[:40], "the header should have"},
		{"truncated data", whole[:len(whole)-1], "truncated"},
		{"no data", whole[:len(whole)-16], "truncated"},
		{"bytes behind", append(slices.Clone(whole), 0), "1 bytes follow the last tensor"},
		{"huge header", append(long, make([]byte, 100)...), "at most 16777216 are allowed"},
		{"header of 2^64-1", append(binary.LittleEndian.AppendUint64(nil, math.MaxUint64), make([]byte, 100)...), "at most 16777216"},
		{"empty header", file("", 0), "does not start"},
		{"space first", file(" {}", 0), "does not start"},
		{"array", file("[]", 0), "does not start"},
		{"not UTF-8", file("{\"a\xff\":1}", 0), "UTF-8"},
		{"not JSON", file("{nonsense}", 0), "JSON"},
		{"unfinished", file(`{"a":{"dtype":"U8","shape":[`, 0), "unexpected EOF"},
		{"two objects", file("{}{}", 0), "follows the object"},
		{"tensor twice", file(object(tensor("a", "U8", "[1]", 0, 1), tensor("a", "U8", "[1]", 1, 2)), 2), `tensor "a": the name occurs twice`},
		{"twice by escape", file(object(tensor("a", "U8", "[1]", 0, 1), `"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}`), 2), "occurs twice"},
		{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`, 0), "occurs twice"},
		{"metadata key twice", file(`{"__metadata__":{"a":"1","a":"2"}}`, 0), `"a" twice`},
		{"metadata number", file(`{"__metadata__":{"a":1}}`, 0), "should be a string"},
		{"metadata string", file(`{"__metadata__":"a"}`, 0), "JSON"},
		{"no name", file(object(tensor("", "U8", "[1]", 0, 1)), 1), "without a name"},
		{"key twice", file(`{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), `"dtype" occurs twice`},
		{"key missing", file(`{"a":{"dtype":"U8","shape":[1]}}`, 1), `"data_offsets" is missing`},
		{"unknown key", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}`, 1), `unknown key "x"`},
		{"not an object", file(`{"a":5}`, 1), "JSON"},
		{"unknown type", file(object(tensor("a", "F4", "[1]", 0, 1)), 1), `"F4" is not known`},
		{"type in lower case", file(object(tensor("a", "u8", "[1]", 0, 1)), 1), `"u8" is not known`},
		{"type a number", file(`{"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}}`, 1), "not known"},
		{"negative size", file(object(tensor("a", "U8", "[-1]", 0, 1)), 1), `"-1" is not a size`},
		{"fraction", file(object(tensor("a", "U8", "[1.5]", 0, 1)), 1), `"1.5" is not a size`},
		{"exponent", file(object(tensor("a", "U8", "[1e0]", 0, 1)), 1), "not a size"},
		{"string in shape", file(object(tensor("a", "U8", `["1"]`, 0, 1)), 1), "not a number"},
		{"shape an object", file(object(tensor("a", "U8", "{}", 0, 1)), 1), "in place of"},
		{"many dimensions", file(object(tensor("a", "U8", "[1"+strings.Repeat(",1", 16)+"]", 0, 1)), 1), "more than 16"},
		{"overflow to 0", file(object(tensor("a", "U8", "[4294967296,4294967296]", 0, 0)), 0), "overflows"},
		{"overflow to 1", file(object(tensor("a", "U8", "[9223372036854775807,3,3]", 0, 1)), 1), "overflows"},
		{"overflow by type", file(object(tensor("a", "F64", "[2305843009213693952]", 0, 0)), 0), "overflows"},
		{"size beyond 2^63", file(object(tensor("a", "U8", "[18446744073709551615]", 0, 1)), 1), "not a size"},
		{"shape against offsets", file(object(tensor("a", "F32", "[4]", 0, 15)), 15), "needs 16 bytes, data_offsets give 15"},
		{"end before start", file(object(tensor("a", "U8", "[1]", 1, 0)), 1), "not a start and an end"},
		{"three offsets", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, 1), "more than 2"},
		{"one offset", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}}`, 1), "not a start and an end"},
		{"negative offset", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}}`, 1), "not a size"},
		{"out of range", file(object(tensor("a", "U8", "[100]", 0, 100)), 10), "the file holds 10"},
		{"far out of range", file(object(tensor("a", "U8", "[1]", 9223372036854775806, 9223372036854775807)), 10), "truncated"},
		{"gap before", file(object(tensor("a", "U8", "[1]", 1, 2)), 2), "bytes of no tensor"},
		{"gap between", file(object(tensor("a", "U8", "[1]", 0, 1), tensor("b", "U8", "[1]", 2, 3)), 3), `tensor "b": it starts at byte 2`},
		{"overlap", file(object(tensor("a", "U8", "[2]", 0, 2), tensor("b", "U8", "[2]", 1, 3)), 3), `tensor "b": it starts at byte 1 of the data, within`},
		{"same place", file(object(tensor("a", "U8", "[2]", 0, 2), tensor("b", "U8", "[2]", 0, 2)), 2), "within the tensor before it"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := checkpoint.Open(put(t, map[string][]byte{"model.safetensors": c.data}))
			if err == nil {
				got.Close()
				t.Fatal("opened")
			}
			fe, ok := errors.AsType[*checkpoint.FormatError](err)
			if !ok || fe.File != "model.safetensors" || !errors.Is(err, fault.ErrIntegrity) {
				t.Errorf("%T %v is not a FormatError of the file", err, err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q does not say %q", err, c.want)
			}
			if fault.Hint(err) == "" {
				t.Error("no hint")
			}
		})
	}
}

// TestEveryTruncation cuts a sound file at every byte.
func TestEveryTruncation(t *testing.T) {
	whole := file(object(tensor("a", "F32", "[4]", 0, 16), tensor("b", "U8", "[3]", 16, 19)), 19)
	for n := range whole {
		if _, err := checkpoint.ParseForTest(whole[:n]); !errors.Is(err, fault.ErrIntegrity) {
			t.Errorf("the first %d of %d bytes: %v", n, len(whole), err)
		}
	}
	if _, err := checkpoint.ParseForTest(whole); err != nil {
		t.Error(err)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(file(object(tensor("a", "F32", "[2,3]", 2, 26), tensor("b", "BF16", "[1]", 0, 2)), 26))
	f.Add(file(object(`"__metadata__":{"format":"pt"}`, tensor("a", "U8", "[]", 0, 1))+"  ", 1))
	f.Add(file(object(tensor("a", "U8", "[4294967296,4294967296]", 0, 0)), 0))
	f.Add(file(object(tensor("a", "U8", "[1]", 0, 1), tensor("a", "U8", "[1]", 1, 2)), 2))
	f.Add(file(`{"a":{"dtype":"U8","shape":[`, 0))
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, '{'})
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := checkpoint.ParseForTest(data)
		if err != nil {
			if !errors.Is(err, fault.ErrIntegrity) {
				t.Fatalf("%v is no integrity error", err)
			}
			return
		}
		// Whatever is accepted, the library reads in the same way.
		st, err := safetensors.Deserialize(data)
		if err != nil {
			t.Fatalf("the library refuses it: %v", err)
		}
		if st.Len() != len(tensors) {
			t.Fatalf("%d tensors, the library has %d", len(tensors), st.Len())
		}
		for _, got := range tensors {
			want, ok := st.Tensor(got.Name)
			if !ok {
				t.Fatalf("the library has no tensor %q", got.Name)
			}
			shape := make([]int, len(want.Shape()))
			for i, n := range want.Shape() {
				shape[i] = int(n)
			}
			if want.DType().String() != string(got.DType) || !slices.Equal(shape, got.Shape) || !slices.Equal(want.Data(), got.Data) {
				t.Fatalf("tensor %q: %s %v of %d bytes, the library has %s %v of %d bytes", got.Name, got.DType, got.Shape, len(got.Data), want.DType(), shape, len(want.Data()))
			}
		}
	})
}
