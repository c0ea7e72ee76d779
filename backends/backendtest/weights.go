package backendtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// tensor is a random matrix both as plain numbers and packed.
type tensor struct {
	quant.Matrix
	codes  []int32   // [rows, cols], value before the midpoint is taken off
	scales []float32 // [rows, groups], each with its minimum behind it if there is one
	floats []float32 // [rows, cols], for formats without codes
	data   []byte
}

// value returns the number at [row, col].
func (t *tensor) value(row, col int) float32 {
	i := row*t.Cols + col
	if !t.Codes() {
		return t.floats[i]
	}
	scale, minimum := t.scale(row, col/(t.Cols/t.Groups()))
	return float32(float32(t.codes[i]-t.Midpoint())*scale) - minimum
}

// scale returns the scale and the minimum of a group; a minimum that there is none of is 0.
func (t *tensor) scale(row, group int) (scale, minimum float32) {
	s := t.scales[row*t.NumScales():][:t.NumScales()]
	if t.Minimum {
		return s[2*group], s[2*group+1]
	}
	return s[group], 0
}

// Weights is a set of random tensors. It implements backends.Weights.
type Weights struct {
	rng     *rand.Rand
	tensors map[string]*tensor
}

// NewWeights returns a set without tensors, whose numbers a seed draws.
func NewWeights(seed uint64) *Weights {
	return &Weights{rng: rand.New(rand.NewPCG(seed, 1)), tensors: map[string]*tensor{}}
}

// Tensor implements backends.Weights.
func (w *Weights) Tensor(name string) ([]byte, quant.Matrix, bool) {
	t, ok := w.tensors[name]
	if !ok {
		return nil, quant.Matrix{}, false
	}
	return t.data, t.Matrix, true
}

// Add makes a random tensor and returns the program's weight for it. Values
// are of a size that keeps activations near one.
func (w *Weights) Add(m quant.Matrix) program.Weight {
	if err := m.Validate(); err != nil {
		panic(err) // a wrong test
	}
	name := fmt.Sprintf("tensor %d", len(w.tensors))
	w.tensors[name] = newTensor(m, w.rng)
	return program.Weight{Name: name, Matrix: m}
}

// WeightsOf returns random tensors that fit a valid program.
func WeightsOf(p *program.Program) *Weights {
	w := NewWeights(1)
	for _, t := range p.Weights {
		w.tensors[t.Name] = newTensor(t.Matrix, w.rng)
	}
	return w
}

// newTensor draws a tensor.
func newTensor(m quant.Matrix, rng *rand.Rand) *tensor {
	t := &tensor{Matrix: m}
	t.draw(rng)
	t.pack()
	return t
}

// draw draws codes and scales, or plain numbers.
func (t *tensor) draw(rng *rand.Rand) {
	if t.Codes() {
		t.drawCodes(rng)
	} else {
		t.drawFloats(rng)
	}
}

// pack lays the tensor out. Its numbers become those of the types that it has.
func (t *tensor) pack() {
	t.data = make([]byte, t.SizeBytes())
	if t.Codes() {
		t.packCodes()
	} else {
		t.packFloats()
	}
}

// between draws a number from least to least+span.
func between(rng *rand.Rand, least, span float32) float32 {
	return least + float32(span*float32(rng.Float32()))
}

// drawCodes draws codes and scales.
func (t *tensor) drawCodes(rng *rand.Rand) {
	m := t.Matrix
	t.codes = make([]int32, m.Rows*m.Cols)
	t.scales = make([]float32, m.Rows*m.NumScales())
	for i := range t.codes {
		t.codes[i] = rng.Int32N(1 << m.Bits)
	}
	middle := float32(int32(1) << (m.Bits - 1))
	size := 2 / (float32(math.Sqrt(float64(m.Cols))) * middle)
	for i := range t.scales {
		t.scales[i] = size * between(rng, 0.5, 1)
		if m.Minimum && i%2 == 1 { // about as far from 0 as the middle of the codes
			t.scales[i] *= middle - float32(m.Midpoint())
			if m.Midpoint() > 0 {
				t.scales[i] = size * between(rng, -20, 40)
			}
		}
	}
}

// packCodes packs codes and scales.
func (t *tensor) packCodes() {
	m, n := t.Matrix, t.NumScales()
	if m.Scale == quant.ScaleF16 {
		for i, s := range t.scales {
			t.scales[i] = quant.F16ToF32(quant.F32ToF16(s))
		}
	}
	if m.Layout == quant.Rows {
		for r := range m.Rows {
			quant.PackRow(t.data[r*m.RowBytes():], m, t.packed(r), t.scales[r*n:][:n])
		}
		return
	}
	for b := range m.NumBlocks() {
		var rows [][]byte
		first := b * quant.BlockRows
		end := min(first+quant.BlockRows, m.Rows)
		for r := first; r < end; r++ {
			rows = append(rows, t.packed(r))
		}
		quant.PackBlock(t.data[b*m.BlockBytes():], m, rows, t.scales[first*n:end*n])
	}
}

// packed returns a row in the packing of checkpoints.
func (t *tensor) packed(row int) []byte {
	out := make([]byte, t.CodeBytes())
	for c := range t.Cols {
		code := t.codes[row*t.Cols+c]
		if t.Bits == 8 {
			out[c] = byte(code - 128)
			continue
		}
		out[c*t.Bits/8] |= byte(code << (c * t.Bits % 8))
	}
	return out
}

// drawFloats draws plain numbers.
func (t *tensor) drawFloats(rng *rand.Rand) {
	t.floats = make([]float32, t.Rows*t.Cols)
	size := 1 / float32(math.Sqrt(float64(t.Cols)))
	if t.Rows == 1 {
		size = 1
	}
	for i := range t.floats {
		f := size * between(rng, 0.5, 1)
		if t.Rows > 1 && rng.IntN(2) == 0 {
			f = -f
		}
		t.floats[i] = f
	}
}

// packFloats packs plain numbers.
func (t *tensor) packFloats() {
	for i, f := range t.floats {
		if t.Bits == 16 {
			b := uint16(math.Float32bits(f) >> 16)
			f = quant.BF16ToF32(b)
			binary.LittleEndian.PutUint16(t.data[2*i:], b)
		} else {
			binary.LittleEndian.PutUint32(t.data[4*i:], math.Float32bits(f))
		}
		t.floats[i] = f
	}
}
