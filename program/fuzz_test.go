package program_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/program"
)

// FuzzDecode runs whatever can be decoded.
func FuzzDecode(f *testing.F) {
	p, w := backendtest.Decoder(shape)
	data, err := program.Encode(p)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(strings.Replace(string(data), `"cols":32`, `"cols":16`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := program.Decode(data); err == nil {
			run(t, p, w)
		}
	})
}

// FuzzEdits changes a valid program, a few numbers and operations at a time:
// most of what it tries gets past the parser and much of it past the checks.
func FuzzEdits(f *testing.F) {
	_, w := backendtest.Decoder(shape)
	f.Add([]byte{})
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Fuzz(func(t *testing.T, edits []byte) {
		p, _ := backendtest.Decoder(shape)
		edit(p, edits[:min(len(edits), 64)])
		if p.Validate() == nil {
			run(t, p, w)
		}
	})
}

// TestEdits does what FuzzEdits does, with the same edits each time.
func TestEdits(t *testing.T) {
	t.Parallel()
	_, w := backendtest.Decoder(shape)
	rng := rand.New(rand.NewPCG(1, 2))
	valid := 0
	for i := range 1500 {
		edits := make([]byte, 4*(1+i%3))
		for i := range edits {
			edits[i] = byte(rng.Uint32())
		}
		p, _ := backendtest.Decoder(shape)
		edit(p, edits)
		if p.Validate() == nil {
			valid++
			run(t, p, w)
		}
	}
	t.Logf("%d of 1500 edited programs are valid", valid)
	if valid < 100 {
		t.Errorf("%d of 1500 edited programs are valid: the edits are too coarse to test anything", valid)
	}
}

// edit changes a program: each four bytes are a place, what to do there, and a value.
func edit(p *program.Program, edits []byte) {
	for ; len(edits) >= 4; edits = edits[4:] {
		place, kind, value := int(binary.LittleEndian.Uint16(edits)), edits[2], edits[3]
		i, j := place%max(1, len(p.Ops)), int(value)%max(1, len(p.Ops))
		switch {
		case kind < 192:
			leaves := numbers(nil, reflect.ValueOf(p).Elem())
			set(leaves[place%len(leaves)], kind, value)
		case len(p.Ops) == 0:
		case kind < 208:
			p.Ops[i], p.Ops[j] = p.Ops[j], p.Ops[i]
		case kind < 224:
			p.Ops = slices.Insert(p.Ops, i, p.Ops[j])
		case kind < 240:
			p.Ops = slices.Delete(p.Ops, i, i+1)
		default:
			p.Layers = nil
		}
	}
}

// set changes a number to one that may be valid, or to one that is meant to hurt.
func set(v reflect.Value, kind, value byte) {
	if v.Kind() == reflect.Float32 {
		odd := []float64{0, 1, -1, math.NaN(), math.Inf(1), 1e-45, 1e-38, math.MaxFloat32, -math.MaxFloat32, 1e-6}
		v.SetFloat(odd[int(value)%len(odd)])
		return
	}
	odd := []int64{-1, 0, 1, 2, math.MaxInt64, math.MinInt64, 1 << 24, 1 << 32}
	switch kind % 4 {
	case 0:
		v.SetInt(odd[int(value)%len(odd)])
	case 1:
		v.SetInt(v.Int() + int64(int8(value)))
	case 2:
		v.SetInt(v.Int() * int64(value%5) / 2)
	default:
		v.SetInt(int64(value) % 32) // an index
	}
}

// numbers appends every number of a value to list.
func numbers(list []reflect.Value, v reflect.Value) []reflect.Value {
	switch v.Kind() {
	case reflect.Int, reflect.Float32:
		list = append(list, v)
	case reflect.Struct:
		for _, field := range v.Fields() {
			list = numbers(list, field)
		}
	case reflect.Slice:
		for i := range v.Len() {
			list = numbers(list, v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			list = numbers(list, v.Elem())
		}
	}
	return list
}

// run replays a valid program: it must not make a backend panic or touch memory
// that is not its own, and gives what the interpreter gives.
func run(t *testing.T, p *program.Program, w *backendtest.Weights) {
	t.Helper()
	size := 0
	for _, b := range p.Buffers {
		size += b.Cols
	}
	for _, c := range p.Caches {
		size += c.KVHeads * c.HeadDim * backends.BlockPositions
	}
	if size > 1<<18 {
		return // honest, but more than a fuzzer should allocate
	}
	opts := backends.Options{Threads: 1, MaxRows: 2, MaxLogits: 1, Activations: backends.ActivationsStatic}
	e, err := cpu.New("").Compile(t.Context(), p, w, opts)
	if err != nil {
		return
	}
	defer e.Close()
	s, err := e.NewSlot()
	if err != nil {
		t.Fatal(err)
	}
	b := &backends.Batch{
		Rows:  []backends.Row{{Token: 0, Slot: s}, {Token: 0, Slot: s, Pos: 1, Logits: true}},
		Trace: func(_ int, state []float32) { _ = state[len(state)-1] },
	}
	if err := e.Step(t.Context(), b); err != nil {
		return
	}
	logits, hidden := backendtest.Interpret(p, w, opts, []int32{0, 0})
	equal(t, "logits", e.Logits(0), logits[1])
	equal(t, "hidden", e.Hidden(0), hidden[1])
}

// equal compares bits, those of what is not a number aside.
func equal(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && !(got[i] != got[i] && want[i] != want[i]) {
			t.Fatalf("%s[%d] = %v, the interpreter has %v", what, i, got[i], want[i])
		}
	}
}
