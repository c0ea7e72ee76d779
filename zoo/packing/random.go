package packing

import (
	"encoding/binary"
	"hash/fnv"
	"math"

	"github.com/zoo-sdk/zoo/quant"
)

// Noise is a stream of random numbers (SplitMix64), for packs that show how fast a model
// is and say nothing. They need to be quick and the same everywhere, no more.
type Noise uint64

// NewNoise returns the stream of a name.
func NewNoise(name string) *Noise {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	n := Noise(h.Sum64())
	return &n
}

// Around returns a number from a half to one and a half of x.
func (n *Noise) Around(x float64) float32 {
	return float32(x * (0.5 + float64(n.next()>>40)/(1<<24)))
}

// Vector returns numbers from 0.5 to 1, as the weights of a norm may be.
func (n *Noise) Vector(length int) []float32 {
	v := make([]float32, length)
	for i := range v {
		v[i] = 0.5 + float32(n.next()>>57)/256
	}
	return v
}

// Matrix returns a matrix of random numbers in a format. Codes have scales with which span
// neighbouring columns of a row have a length near 1, and minimums that centre them;
// bfloat16 have magnitudes from 1/32 to 1/8. The numbers of a row follow from the stream
// and the number of the row, so that rows can be made in any order.
func (n *Noise) Matrix(name string, f quant.Format, rows, cols, span int) *Matrix {
	stream := *n
	m := &Matrix{Name: name, Format: f, Rows: rows, Cols: cols}
	shape := m.shape()
	m.RowBytes = int64(shape.CodeBytes() + 4*shape.NumScales())
	if !f.Codes() {
		m.Read = func(r int, to *Row) error {
			stream.row(r).fill(to.Codes)
			for i := 1; i < len(to.Codes); i += 2 {
				to.Codes[i] = to.Codes[i]&0x80 | 0x3d
			}
			return nil
		}
		return m
	}
	step := codeStep(f.Bits, span)
	// Codes without a midpoint of their own count from 0.
	low := float32(int32(1)<<(f.Bits-1) - f.Midpoint())
	m.Read = func(r int, to *Row) error {
		s := stream.row(r)
		for i := 0; i < len(to.Scales); i++ {
			scale := s.Around(step)
			if f.Scale == quant.ScaleF16 {
				scale = quant.F16ToF32(quant.F32ToF16(scale))
			}
			to.Scales[i] = scale
			if f.Minimum {
				i++
				to.Scales[i] = scale * low // a power of two at most, which is exact
			}
		}
		s.fill(to.Codes)
		return nil
	}
	return m
}

// codeStep returns a scale with which cols random codes have a length near 1.
func codeStep(bits, cols int) float64 {
	// The mean square of -n to n-1 is (2n²+1)/6.
	n := float64(int(1) << (bits - 1))
	return 1 / math.Sqrt((2*n*n+1)/6*float64(cols))
}

// row returns the stream of a row.
func (n Noise) row(row int) *Noise {
	seed := n ^ Noise(row)*0x9fb21c651e98df25
	s := Noise(seed.next())
	return &s
}

// next returns the next number.
func (n *Noise) next() uint64 {
	*n += 0x9e3779b97f4a7c15
	z := uint64(*n)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// fill fills with random bytes: every byte is a valid code.
func (n *Noise) fill(dst []byte) {
	s := *n
	for ; len(dst) >= 8; dst = dst[8:] {
		binary.LittleEndian.PutUint64(dst, s.next())
	}
	if len(dst) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], s.next())
		copy(dst, last[:])
	}
	*n = s
}
