package packing

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/quant"
)

// GGUF returns the matrix of a tensor of a GGUF file, which must have two dimensions. Codes
// are kept as they are, with scales and minimums that are exact: q4_0, q4_1 and q4_k in 4
// bits, q5_0, q5_1, q5_k, q6_k and q8_0 in 8. BF16 stays, and F16 and F32 are rounded to it,
// to even. Of numbers that were bfloat16 once, F32 gives all back, and F16 those that it had
// room for: of a magnitude from 2^-17 to 65280. Another type is a *gguf.TypeError; numbers
// that are not finite come up when their row is read.
func GGUF(name string, t gguf.Tensor) (*Matrix, error) {
	if len(t.Shape) != 2 {
		return nil, &checkpoint.TensorError{Tensor: t.Name, Problem: fmt.Sprintf("not a matrix: its shape is %v", t.Shape)}
	}
	format, ok := GGUFFormat(t.Type)
	if !ok {
		return nil, &gguf.TypeError{File: t.File, Tensor: t.Name, Type: t.Type}
	}
	m := &Matrix{Name: name, Format: format, Rows: t.Shape[0], Cols: t.Shape[1], RowBytes: int64(len(t.Data) / t.Shape[0])}
	if format.Codes() {
		m.Read = ggufCodes(t, format)
	} else {
		m.Read = ggufFloats(t)
	}
	return m, nil
}

// GGUFFormat returns the format that [GGUF] keeps numbers of a type in. It is false for types
// that are not decoded.
func GGUFFormat(t gguf.Type) (quant.Format, bool) {
	coding, ok := t.Coding()
	if !ok {
		return quant.BF16, slices.Contains(gguf.Decoded(), t)
	}
	f := quant.Format{Bits: 8, Group: coding.Group, Scale: quant.ScaleF32, Minimum: coding.Minimums}
	if coding.High-coding.Low < 16 {
		f.Bits = 4
	}
	if coding.HalfScales && !coding.Minimums {
		f.Scale = quant.ScaleF16
	}
	return f, true
}

// ggufCodes returns what reads rows of codes in a format.
func ggufCodes(t gguf.Tensor, f quant.Format) func(int, *Row) error {
	rows := sync.Pool{New: func() any { return new(gguf.Row) }}
	return func(r int, to *Row) error {
		row := rows.Get().(*gguf.Row)
		defer rows.Put(row)
		if err := t.Decode(row, r); err != nil {
			return err
		}
		if f.Minimum {
			for g, scale := range row.Scales {
				to.Scales[2*g], to.Scales[2*g+1] = scale, row.Minimums[g]
			}
		} else {
			copy(to.Scales, row.Scales)
		}
		if f.Bits == 8 {
			copy(to.Codes, row.Codes)
			return nil
		}
		zero := byte(f.Midpoint())
		for i := range to.Codes {
			to.Codes[i] = (row.Codes[2*i]+zero)&15 | (row.Codes[2*i+1]+zero)<<4
		}
		return nil
	}
}

// ggufFloats returns what reads rows of floats as bfloat16.
func ggufFloats(t gguf.Tensor) func(int, *Row) error {
	rows := sync.Pool{New: func() any { s := make([]float32, t.Cols()); return &s }}
	return func(r int, to *Row) error {
		row := rows.Get().(*[]float32)
		defer rows.Put(row)
		if err := t.Dequantize(*row, r); err != nil {
			return err
		}
		for i, v := range *row {
			bits := math.Float32bits(v)
			binary.LittleEndian.PutUint16(to.Codes[2*i:], uint16((bits+0x7fff+bits>>16&1)>>16))
		}
		return valueError(t.Name, r*t.Cols(), quant.CheckBF16(to.Codes))
	}
}

// GGUFVector returns the numbers of a tensor of a GGUF file that has one dimension, such as
// the weights of a norm, of a type of floats.
func GGUFVector(t gguf.Tensor) ([]float32, error) {
	if _, codes := t.Type.Coding(); codes || len(t.Shape) != 1 {
		return nil, &checkpoint.TensorError{Tensor: t.Name, Problem: "not a list of floats", Want: "F32 [n]", Got: fmt.Sprintf("%s %v", t.Type, t.Shape)}
	}
	v := make([]float32, t.Cols())
	return v, t.Dequantize(v, 0)
}
