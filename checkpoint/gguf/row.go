package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/quant"
)

// Row is one row of a quantised tensor. Column c has the value
//
//	float32(int8(Codes[c]))*Scales[c/Group] - Minimums[c/Group]
//
// of which the product is exact.
type Row struct {
	// Group is the number of neighbouring columns that share a scale and a minimum.
	Group int
	// Codes has a byte for each column, in two's complement, as quant.PackBlock and
	// quant.PackRow take codes of 8 bits.
	Codes []byte
	// Scales has a number for each group.
	Scales []float32
	// Minimums has a number for each group, or is empty: see [Coding].
	Minimums []float32
}

// Values writes the values of the row to dst, which holds as many numbers as there are codes.
func (r *Row) Values(dst []float32) {
	for g, scale := range r.Scales {
		codes, out := r.Codes[g*r.Group:][:r.Group], dst[g*r.Group:][:r.Group]
		if len(r.Minimums) == 0 {
			for i, c := range codes {
				out[i] = float32(int8(c)) * scale
			}
			continue
		}
		minimum := r.Minimums[g]
		for i, c := range codes {
			out[i] = float32(float32(int8(c))*scale) - minimum
		}
	}
}

// Decode reads a row of a quantised tensor into r, whose slices it uses again if they
// are large enough. A type without codes is a *TypeError, a scale that is not finite a
// *FormatError, and a row that is not there matches fault.ErrUsage.
func (t Tensor) Decode(r *Row, row int) error {
	info := types[t.Type]
	if info.coding == nil {
		return &TypeError{File: t.File, Tensor: t.Name, Type: t.Type}
	}
	data, err := t.row(row)
	if err != nil {
		return err
	}
	groups := t.Cols() / info.coding.Group
	r.Group = info.coding.Group
	r.Codes = slices.Grow(r.Codes[:0], t.Cols())[:t.Cols()]
	r.Scales = slices.Grow(r.Scales[:0], groups)[:groups]
	r.Minimums = r.Minimums[:0]
	if info.coding.Minimums {
		r.Minimums = slices.Grow(r.Minimums, groups)[:groups]
	}
	perBlock := info.cols / r.Group
	for b := range t.Cols() / info.cols {
		var minimums []float32
		if len(r.Minimums) > 0 {
			minimums = r.Minimums[b*perBlock:][:perBlock]
		}
		info.decode(r.Codes[b*info.cols:][:info.cols], r.Scales[b*perBlock:][:perBlock], minimums, data[b*info.bytes:][:info.bytes])
	}
	for _, numbers := range [][]float32{r.Scales, r.Minimums} {
		if i := notFinite(numbers); i >= 0 {
			return &FormatError{File: t.File, Tensor: t.Name, Problem: fmt.Sprintf("row %d: the scale or minimum of columns %d to %d is %v, which no model can have", row, i*r.Group, (i+1)*r.Group-1, numbers[i])}
		}
	}
	return nil
}

// Dequantize writes the values of a row to dst, which holds [Tensor.Cols] numbers. It
// takes floats and quantised types; for errors see [Tensor.Decode].
func (t Tensor) Dequantize(dst []float32, row int) error {
	if !t.Type.float() {
		var r Row
		if err := t.Decode(&r, row); err != nil {
			return err
		}
		r.Values(dst)
		return nil
	}
	data, err := t.row(row)
	if err != nil {
		return err
	}
	dst = dst[:t.Cols()]
	le := binary.LittleEndian
	for i := range dst {
		switch t.Type {
		case F32:
			dst[i] = math.Float32frombits(le.Uint32(data[4*i:]))
		case F16:
			dst[i] = quant.F16ToF32(le.Uint16(data[2*i:]))
		default:
			dst[i] = quant.BF16ToF32(le.Uint16(data[2*i:]))
		}
	}
	if i := notFinite(dst); i >= 0 {
		return &FormatError{File: t.File, Tensor: t.Name, Problem: fmt.Sprintf("row %d: column %d is %v, which no model can have", row, i, dst[i])}
	}
	return nil
}

// row returns the data of a row.
func (t Tensor) row(row int) ([]byte, error) {
	if row < 0 || row >= t.Rows() {
		return nil, fmt.Errorf("tensor %q: row %d of %d: %w", fault.Shorten(t.Name), row, t.Rows(), fault.ErrUsage)
	}
	return t.Data[row*t.rowBytes():][:t.rowBytes()], nil
}

// notFinite returns the index of the first number that is infinite or none, or -1.
func notFinite(numbers []float32) int {
	return slices.IndexFunc(numbers, func(x float32) bool { return x-x != 0 })
}

// half reads an IEEE 754 half.
func half(b []byte) float32 { return quant.F16ToF32(binary.LittleEndian.Uint16(b)) }

// decodeQ4_0 decodes half d, 16 bytes: the low halves are columns 0 to 15.
func decodeQ4_0(codes []byte, scales, _ []float32, block []byte) {
	scales[0] = half(block)
	for i, q := range block[2:18] {
		codes[i], codes[i+16] = q&15-8, q>>4-8
	}
}

// decodeQ4_1 decodes halves d and m, 16 bytes as in q4_0: m is added.
func decodeQ4_1(codes []byte, scales, minimums []float32, block []byte) {
	scales[0], minimums[0] = half(block), -half(block[2:])
	for i, q := range block[4:20] {
		codes[i], codes[i+16] = q&15, q>>4
	}
}

// decodeQ5_0 decodes half d, a fifth bit for each column, 16 bytes as in q4_0.
func decodeQ5_0(codes []byte, scales, _ []float32, block []byte) {
	scales[0] = half(block)
	fives(codes, block[2:])
	for i := range codes {
		codes[i] -= 16
	}
}

// decodeQ5_1 decodes halves d and m, the rest as in q5_0: m is added.
func decodeQ5_1(codes []byte, scales, minimums []float32, block []byte) {
	scales[0], minimums[0] = half(block), -half(block[2:])
	fives(codes, block[4:])
}

// fives decodes 32 codes of 5 bits: first all highest bits, then the lower ones.
func fives(codes, block []byte) {
	high := binary.LittleEndian.Uint32(block)
	for i, q := range block[4:20] {
		codes[i] = q&15 | byte(high>>i&1)<<4
		codes[i+16] = q>>4 | byte(high>>(i+16)&1)<<4
	}
}

// decodeQ8_0 decodes half d, 32 bytes in two's complement.
func decodeQ8_0(codes []byte, scales, _ []float32, block []byte) {
	scales[0] = half(block)
	copy(codes, block[2:34])
}

// decodeScales decodes halves d and m and, from 12 bytes, eight pairs of 6 bits that
// they are multiplied with: four pairs in the low bits of bytes 0 to 7, the others in
// bytes 8 to 11, with their two highest bits on top of the first eight bytes.
func decodeScales(scales, minimums []float32, block []byte) {
	d, m, packed := half(block), half(block[2:]), block[4:16]
	for i := range 4 {
		scales[i] = d * float32(packed[i]&63)
		minimums[i] = m * float32(packed[4+i]&63)
		scales[4+i] = d * float32(packed[8+i]&15|packed[i]>>6<<4)
		minimums[4+i] = m * float32(packed[8+i]>>4|packed[4+i]>>6<<4)
	}
}

// decodeQ4_K decodes scales and minimums, then 32 bytes for each 64 columns: the low
// halves are the first 32.
func decodeQ4_K(codes []byte, scales, minimums []float32, block []byte) {
	decodeScales(scales, minimums, block)
	for i, q := range block[16:144] {
		at := i/32*64 + i%32
		codes[at], codes[at+32] = q&15, q>>4
	}
}

// decodeQ5_K decodes scales and minimums, 32 bytes whose bit g is the fifth one of group
// g, and 128 bytes as in q4_k.
func decodeQ5_K(codes []byte, scales, minimums []float32, block []byte) {
	decodeScales(scales, minimums, block)
	high := block[16:48]
	for i, q := range block[48:176] {
		at, h := i/32*64+i%32, high[i%32]>>(i/32*2)
		codes[at], codes[at+32] = q&15|h&1<<4, q>>4|h>>1&1<<4
	}
}

// decodeQ6_K decodes 64 bytes of low and 32 of high bits for each 128 columns, a scale in
// two's complement for each 16 columns, half d.
func decodeQ6_K(codes []byte, scales, _ []float32, block []byte) {
	d := half(block[208:])
	for i, s := range block[192:208] {
		scales[i] = d * float32(int8(s))
	}
	for part := range 2 {
		out, low, high := codes[128*part:][:128], block[64*part:][:64], block[128+32*part:][:32]
		for i, h := range high {
			out[i] = (low[i]&15 | h&3<<4) - 32
			out[i+32] = (low[i+32]&15 | h>>2&3<<4) - 32
			out[i+64] = (low[i]>>4 | h>>4&3<<4) - 32
			out[i+96] = (low[i+32]>>4 | h>>6<<4) - 32
		}
	}
}
