package metal_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/quant"
)

// benchOptions are the ways in which kernels are run: with every access checked,
// and with threads in another order.
var benchOptions = []metaltest.Options{{Checked: true}, {Seed: 7}}

// bench runs single kernels on the test device.
type bench struct {
	t      testing.TB
	device metal.Device
}

// newBench opens a device with some kernels loaded. The test closes it.
func newBench(t testing.TB, opts metaltest.Options, kernels ...string) *bench {
	t.Helper()
	metaltest.Require(t)
	device, err := metaltest.New(opts).Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := device.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := device.Load(context.Background(), metal.Source(), kernels); err != nil {
		t.Fatal(err)
	}
	return &bench{t, device}
}

// operand is the memory that a dispatch sees as one of its buffers.
type operand struct {
	data    []byte
	written bool
}

// in returns an operand that a kernel may only read.
func in[T any](data []T) operand { return operand{bytesOf(data), false} }

// out returns an operand that a kernel may write. It holds data before, and data is what it holds afterwards.
func out[T any](data []T) operand { return operand{bytesOf(data), true} }

// unbound returns an operand that a kernel must not touch.
func unbound() operand { return operand{} }

// bytesOf returns the memory of numbers or of structs of numbers.
func bytesOf[T any](data []T) []byte {
	if len(data) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), len(data)*int(unsafe.Sizeof(data[0])))
}

// run has a kernel work on operands, which are its buffers from 1 on, and waits.
// Operands over the same memory are the same buffer.
func (b *bench) run(kernel string, args any, l metal.Launch, operands ...operand) {
	b.t.Helper()
	d := metal.Dispatch{
		Kernel: kernel, Args: metal.EncodeArgs(args),
		Groups: l.Groups, Threads: l.Threads, SharedBytes: l.SharedBytes,
	}
	buffers := map[*byte]metal.Buffer{}
	for _, o := range operands {
		var at metal.Binding
		if o.data != nil {
			buffer := buffers[&o.data[0]]
			if buffer == nil {
				var err error
				if buffer, err = b.device.Alloc(len(o.data)); err != nil {
					b.t.Fatal(err)
				}
				defer buffer.Release()
				buffers[&o.data[0]] = buffer
				copy(buffer.Bytes(), o.data)
			}
			at = metal.Binding{Buffer: buffer, Size: len(o.data)}
		}
		d.Buffers = append(d.Buffers, at)
	}
	list, err := b.device.Record([]metal.Dispatch{d})
	if err != nil {
		b.t.Fatalf("%s: %v", kernel, err)
	}
	defer list.Release()
	submission, err := b.device.Submit([]metal.List{list})
	if err == nil {
		err = submission.Wait()
	}
	if err != nil {
		b.t.Fatalf("%s: %v", kernel, err)
	}
	for i, o := range operands {
		if o.written {
			copy(o.data, d.Buffers[i].Buffer.Bytes())
		}
	}
	for i, o := range operands {
		if o.data != nil && !bytes.Equal(o.data, d.Buffers[i].Buffer.Bytes()[:len(o.data)]) {
			b.t.Fatalf("%s writes to buffer %d, which it should read", kernel, i+1)
		}
	}
}

// row is Row of the kernels.
type row struct{ token, pos, pages, angles int32 }

// step returns Step of the kernels and the rows behind it, of which so many are live.
func step(live int, rows ...row) operand {
	words := []int32{int32(live), 0, 0, 0}
	for _, r := range rows {
		words = append(words, r.token, r.pos, r.pages, r.angles)
	}
	return in(words)
}

// fill says how random codes are drawn.
type fill int

const (
	anyCodes   fill = iota
	leastCodes      // the smallest in the first row, in others also the next
	mostCodes       // the largest likewise
)

// packed is a random matrix in blocks.
type packed struct {
	quant.Matrix
	data   []byte
	codes  []int32   // [rows, cols], without the midpoint
	scales []float32 // [rows, groups]
}

// randomPacked returns a matrix that is packed in blocks. Scales have both signs and differ by orders of magnitude.
func randomPacked(rng *rand.Rand, f quant.Format, rows, cols int, how fill) *packed {
	p := &packed{Matrix: quant.Matrix{Format: f, Layout: quant.Blocks, Rows: rows, Cols: cols}}
	if err := p.Validate(); err != nil {
		panic(err) // a wrong test
	}
	groups := p.Groups()
	p.codes, p.scales = make([]int32, rows*cols), make([]float32, rows*groups)
	for i := range p.codes {
		code := [...]int32{rng.Int32N(1 << f.Bits), 0, 1<<f.Bits - 1}[how]
		if i >= cols {
			code ^= rng.Int32N(2)
		}
		p.codes[i] = code - p.Midpoint()
	}
	for i := range p.scales {
		s := float32(math.Exp2(float64(rng.IntN(9) - 8)))
		s *= rng.Float32() - 0.5
		if f.Scale == quant.ScaleF16 {
			s = quant.F16ToF32(quant.F32ToF16(s))
		}
		p.scales[i] = s
	}
	p.data = make([]byte, p.SizeBytes())
	for b := range p.NumBlocks() {
		first := b * quant.BlockRows
		end := min(first+quant.BlockRows, rows)
		var block [][]byte
		for r := first; r < end; r++ {
			block = append(block, p.checkpointRow(r))
		}
		quant.PackBlock(p.data[b*p.BlockBytes():], p.Matrix, block, p.scales[first*groups:end*groups])
	}
	return p
}

// checkpointRow returns the codes of a row as quant.PackBlock takes them.
func (p *packed) checkpointRow(r int) []byte {
	row := make([]byte, p.CodeBytes())
	for c, code := range p.codes[r*p.Cols:][:p.Cols] {
		if p.Bits == 8 {
			row[c] = byte(code)
		} else {
			row[c*p.Bits/8] |= byte(code+p.Midpoint()) << (c * p.Bits % 8)
		}
	}
	return row
}

// randomFloats returns numbers of both signs, most of them of a magnitude up to about spread.
func randomFloats(rng *rand.Rand, n int, spread float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64()) * spread
	}
	return x
}

// randomBF16 returns bfloat16 numbers and what they stand for.
func randomBF16(rng *rand.Rand, n int, spread float32) (data []byte, x []float32) {
	x = randomFloats(rng, n, spread)
	for i, v := range x {
		b := uint16(math.Float32bits(v) >> 16)
		data = binary.LittleEndian.AppendUint16(data, b)
		x[i] = quant.BF16ToF32(b)
	}
	return data, x
}

// unset returns numbers that no kernel computes by chance.
func unset(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(0xffabcdef)
	}
	return x
}

// sameBits reports whether two numbers have the same bits or both are not a number.
func sameBits(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || isComputedNaN(a) && isComputedNaN(b)
}

// isComputedNaN reports whether x is not a number, and not one of unset.
func isComputedNaN(x float32) bool { return x != x && math.Float32bits(x) != 0xffabcdef }

// firstDiff returns the index of the first number whose bits differ, or -1.
func firstDiff(got, want []float32) int {
	for i := range want {
		if !sameBits(got[i], want[i]) {
			return i
		}
	}
	return -1
}
