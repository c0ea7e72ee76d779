// Package quant describes packed matrices: codes, scales, and how both lie in memory.
//
// A [Format] says what one number of a matrix is (2, 4 or 8 bit codes with a
// scale per row or per group of columns, and perhaps a minimum per group, or
// plain bfloat16 or float32). A
// [Layout] says in which order the numbers lie. A [Matrix] is both with a
// shape, and from it every size and offset follows, so that a converter that
// writes a pack, a backend that reads it and a test that checks it agree
// without asking each other.
//
// Codes are unsigned throughout: the value of a code is
//
//	(code - midpoint) * scale - minimum
//
// where the midpoint is 2^(bits-1), but 0 for codes of fewer than 8 bits with
// minimums, and nothing is subtracted where there are none. The product and the
// difference are rounded to float32 one after the other.
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
// The scales follow the codes of a block: for each group the scales of the 16
// rows and then, where there are such, their minimums.
//
// # Rows
//
// Tables that are only gathered lie row after row: the codes of a row, lowest
// bits first, then the scale of each group, with its minimum behind it if there
// is one, then padding to [RowAlign] bytes, so
// that a look-up touches one place.
package quant
