package quant

import (
	"encoding/binary"
	"math"
)

// PackBlock writes one block of 16 rows into dst, which holds m.BlockBytes() bytes.
//
// codes holds up to 16 rows in the checkpoint's packing: m.CodeBytes() bytes
// each, lowest bits first, unsigned; with 8 bits they are two's complement.
// scales holds m.NumScales() numbers for each of these rows, row after row: the
// scale of each group and, if the format has minimums, the group's minimum behind
// it. They must be exact in the format's scale type. Missing rows and the columns
// past the last become zero bytes and zero scales.
func PackBlock(dst []byte, m Matrix, codes [][]byte, scales []float32) {
	dst = dst[:m.BlockBytes()]
	clear(dst)
	full, rest := m.Cols*m.Bits/32, m.Cols*m.Bits%32 // steps, and bits of one more
	for r, row := range codes {
		row = row[:m.CodeBytes()]
		for s := range full {
			w := binary.LittleEndian.Uint32(row[4*s:])
			binary.LittleEndian.PutUint32(dst[StepBytes*s+4*r:], interleave(w, m.Bits))
		}
		if rest > 0 {
			var tail [4]byte
			copy(tail[:], row[4*full:])
			mask := uint32(1)<<rest - 1
			w := interleave(binary.LittleEndian.Uint32(tail[:])&mask, m.Bits)
			if m.Bits == 8 { // interleave turns the top bits over, those of the padding too, and moves nothing
				w &= mask
			}
			binary.LittleEndian.PutUint32(dst[StepBytes*full+4*r:], w)
		}
	}
	n := m.NumScales()
	at := dst[m.BlockCodeBytes():]
	for r := range codes {
		for i, s := range scales[r*n:][:n] {
			putScale(at, m.Scale, i*BlockRows+r, s)
		}
	}
}

// interleave turns the codes of one row and step from the checkpoint's order into a block's:
// with n codes a byte, code 4j+i of the word moves to place j of byte i.
func interleave(w uint32, bits int) uint32 {
	switch bits {
	case 8:
		return w ^ 0x80808080
	case 4:
		return spread4(w&0xffff) | spread4(w>>16)<<4
	}
	return spread2(w&0xff) | spread2(w>>8&0xff)<<2 | spread2(w>>16&0xff)<<4 | spread2(w>>24)<<6
}

// spread4 moves nibble i of a 16-bit x to byte i.
func spread4(x uint32) uint32 {
	x = (x | x<<8) & 0x00ff00ff
	return (x | x<<4) & 0x0f0f0f0f
}

// spread2 moves the two-bit field i of an 8-bit x to byte i.
func spread2(x uint32) uint32 {
	x = (x | x<<12) & 0x000f000f
	return (x | x<<6) & 0x03030303
}

// PackRow writes one row in the row layout into dst, which holds m.RowBytes()
// bytes: codes and m.NumScales() scales as PackBlock takes them.
func PackRow(dst []byte, m Matrix, codes []byte, scales []float32) {
	dst = dst[:m.RowBytes()]
	clear(dst)
	n := copy(dst, codes[:m.CodeBytes()])
	if m.Bits == 8 {
		for i := range n {
			dst[i] ^= 0x80
		}
	}
	for i, s := range scales[:m.NumScales()] {
		putScale(dst[n:], m.Scale, i, s)
	}
}

// putScale writes scale number i.
func putScale(dst []byte, t ScaleType, i int, s float32) {
	if t == ScaleF16 {
		binary.LittleEndian.PutUint16(dst[2*i:], F32ToF16(s))
		return
	}
	binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(s))
}

// scale reads scale number i.
func scale(src []byte, t ScaleType, i int) float32 {
	if t == ScaleF16 {
		return F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
}

// Row writes the values of one row into dst, which holds m.Cols numbers. data
// is the whole matrix in its layout. It is how tables are gathered; a value is
// code minus midpoint, times scale, rounded, and less the minimum, rounded again.
func Row(dst []float32, m Matrix, data []byte, row int) {
	dst = dst[:m.Cols]
	switch {
	case m.Layout == Blocks:
		blockRow(dst, m, data, row)
	case m.Bits == 32:
		src := data[row*m.RowBytes():][:m.RowBytes()]
		for c := range dst {
			dst[c] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*c:]))
		}
	case m.Bits == 16:
		src := data[row*m.RowBytes():][:m.RowBytes()]
		for c := range dst {
			dst[c] = BF16ToF32(binary.LittleEndian.Uint16(src[2*c:]))
		}
	default:
		tableRow(dst, m, data[row*m.RowBytes():][:m.RowBytes()])
	}
}

// coding is what the codes of a group stand for.
type coding struct {
	midpoint       int32
	scale, minimum float32
}

// coding reads the coding of group g from the scales of a row or, where those of lanes
// rows lie side by side, of one of them.
func (m Matrix) coding(scales []byte, g, lanes, lane int) coding {
	c := coding{midpoint: m.Midpoint(), scale: scale(scales, m.Scale, g*m.perGroup()*lanes+lane)}
	if m.Minimum {
		c.minimum = scale(scales, m.Scale, (2*g+1)*lanes+lane)
	}
	return c
}

// value returns what a code stands for. Without a minimum nothing changes by taking 0 off.
func (c *coding) value(code byte) float32 {
	return float32(float32(int32(code)-c.midpoint)*c.scale) - c.minimum
}

// tabulate sets table to what all codes of so many bits stand for.
func (c *coding) tabulate(table *[16]float32, bits int) {
	for code := range 1 << bits {
		table[code] = c.value(byte(code))
	}
}

// tableRow unpacks a row of codes in the row layout.
func tableRow(dst []float32, m Matrix, src []byte) {
	var table [16]float32
	group := m.Cols / m.Groups()
	mask := byte(1<<m.Bits - 1)
	for g := range m.Groups() {
		c := m.coding(src[m.CodeBytes():], g, 1, 0)
		out := dst[g*group:][:group]
		if m.Bits == 8 {
			for i, code := range src[g*group:][:group] {
				out[i] = c.value(code)
			}
			continue
		}
		c.tabulate(&table, m.Bits)
		first := g * group * m.Bits
		if first%8 != 0 || len(out)*m.Bits%8 != 0 { // groups that share a byte
			for i := range out {
				at := first + i*m.Bits
				out[i] = table[src[at/8]>>(at%8)&mask]
			}
			continue
		}
		codes := src[first/8:][:len(out)*m.Bits/8]
		switch m.Bits {
		case 4:
			for i, c := range codes {
				pair := out[2*i:][:2]
				pair[0], pair[1] = table[c&15], table[c>>4]
			}
		case 2:
			for i, c := range codes {
				four := out[4*i:][:4]
				four[0], four[1], four[2], four[3] = table[c&3], table[c>>2&3], table[c>>4&3], table[c>>6]
			}
		}
	}
}

// blockRow unpacks a row of codes in the block layout.
func blockRow(dst []float32, m Matrix, data []byte, row int) {
	var table [16]float32
	block := data[row/BlockRows*m.BlockBytes():][:m.BlockBytes()]
	lane := row % BlockRows
	stepCols := m.StepCols()
	mask := uint32(1)<<m.Bits - 1
	group := m.Cols / m.Groups()
	for g := range m.Groups() {
		coding := m.coding(block[m.BlockCodeBytes():], g, BlockRows, lane)
		if m.Bits < 8 {
			coding.tabulate(&table, m.Bits)
		}
		for c := g * group; c < (g+1)*group; {
			w := binary.LittleEndian.Uint32(block[c/stepCols*StepBytes+4*lane:])
			for in := c % stepCols; in < stepCols && c < (g+1)*group; in, c = in+1, c+1 {
				code := w >> (in%4*8 + in/4*m.Bits) & mask
				if m.Bits == 8 {
					dst[c] = coding.value(byte(code))
				} else {
					dst[c] = table[code]
				}
			}
		}
	}
}
