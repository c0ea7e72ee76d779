// Package quant describes packed matrices: codes, scales, and how both lie in memory.
//
// A [Format] says what one number of a matrix is (2, 4 or 8 bit codes with a
// scale per row or per group of columns, or plain bfloat16 or float32). A
// [Layout] says in which order the numbers lie. A [Matrix] is both with a
// shape, and from it every size and offset follows, so that a converter that
// writes a pack, a backend that reads it and a test that checks it agree
// without asking each other.
//
// Codes are unsigned throughout: the value of a code is
//
//	(code - 2^(bits-1)) * scale
//
// # Blocks
//
// Matrices that are multiplied lie in blocks of [BlockRows] rows. In each step
// along the columns a block holds 64 bytes, four a row, row after row, so that
// a vector register of 16 32-bit lanes has one row in each lane. With n = 8/bits
// codes a byte a step covers 4n columns; code j of byte i of a row belongs to
// column 4n*step + 4j + i. Thus one mask and one shift give four neighbouring
// columns in the four bytes of a lane, which a dot-product instruction
// multiplies with four neighbouring activations.
//
// # Rows
//
// Tables that are only gathered lie row after row: the codes of a row, lowest
// bits first, then the scales of that row, then padding to [RowAlign] bytes, so
// that a look-up touches one place.
package quant
