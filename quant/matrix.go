package quant

import (
	"errors"
	"fmt"
	"slices"
)

const (
	// BlockRows is the number of rows that a block interleaves.
	BlockRows = 16
	// StepBytes is the size of one step of a block: four bytes for each row.
	StepBytes = 4 * BlockRows
	// RowAlign is the alignment in bytes of a row in the row layout.
	RowAlign = 64
	// MaxDim bounds rows and columns of a matrix, so that sizes fit in int64 and column sums in int32.
	MaxDim = 1 << 24
	// MaxBlockCols bounds the columns of a matrix that is multiplied: 255*128 times as many still fit in int32.
	MaxBlockCols = 1 << 16
)

// ErrFormat reports a format, layout or shape that this package does not know or that contradicts itself.
var ErrFormat = errors.New("unsupported matrix format")

// ScaleType is the number type of scales.
type ScaleType string

const (
	// ScaleNone marks a matrix of plain floats.
	ScaleNone ScaleType = ""
	// ScaleF32 is an IEEE 754 single.
	ScaleF32 ScaleType = "f32"
	// ScaleF16 is an IEEE 754 half.
	ScaleF16 ScaleType = "f16"
)

// bytes returns the size of one scale.
func (s ScaleType) bytes() int {
	switch s {
	case ScaleF32:
		return 4
	case ScaleF16:
		return 2
	}
	return 0
}

// Format describes one number of a matrix.
type Format struct {
	// Bits is 2, 4 or 8 for codes, 16 for bfloat16, 32 for float32.
	Bits int `json:"bits"`
	// Group is the number of neighbouring columns that share a scale; 0 means the whole row.
	Group int `json:"group,omitempty"`
	// Scale is the type of the scales; empty for bfloat16 and float32.
	Scale ScaleType `json:"scale,omitempty"`
	// Minimum says that each group has a minimum, too, of the type of the scales, which is subtracted.
	Minimum bool `json:"minimum,omitempty"`
}

// The formats of matrices that are multiplied, and plain floats.
var (
	// Int2 has one float32 scale a row.
	Int2 = Format{Bits: 2, Scale: ScaleF32}
	// Int4 has one float32 scale a row.
	Int4 = Format{Bits: 4, Scale: ScaleF32}
	// Int8 has one float32 scale a row.
	Int8 = Format{Bits: 8, Scale: ScaleF32}
	// Int4x32 has one float16 scale for each 32 columns of a row.
	Int4x32 = Format{Bits: 4, Group: 32, Scale: ScaleF16}
	// Int8x32 has one float16 scale for each 32 columns of a row, as q8_0 and q5_0 of ggml.
	Int8x32 = Format{Bits: 8, Group: 32, Scale: ScaleF16}
	// Int8x16 has one float32 scale for each 16 columns of a row, as q6_k.
	Int8x16 = Format{Bits: 8, Group: 16, Scale: ScaleF32}
	// Int4x32Min has a float32 scale and a float32 minimum for each 32 columns of a row, as q4_k and q4_1.
	Int4x32Min = Format{Bits: 4, Group: 32, Scale: ScaleF32, Minimum: true}
	// Int8x32Min is the same with codes of 8 bits, as q5_k and q5_1.
	Int8x32Min = Format{Bits: 8, Group: 32, Scale: ScaleF32, Minimum: true}
	// BF16 is plain bfloat16.
	BF16 = Format{Bits: 16}
	// F32 is plain float32.
	F32 = Format{Bits: 32}
)

// MultipliedFormats lists the formats of codes that matrices in blocks may have.
func MultipliedFormats() []Format {
	return []Format{Int2, Int4, Int8, Int4x32, Int8x32, Int8x16, Int4x32Min, Int8x32Min}
}

// Codes reports whether the format holds scaled integer codes rather than floats.
func (f Format) Codes() bool { return f.Bits <= 8 }

// Midpoint returns the code that counts as 0. Codes of fewer than 8 bits count from 0 if there are minimums.
func (f Format) Midpoint() int32 {
	if f.Minimum && f.Bits < 8 {
		return 0
	}
	return 1 << (f.Bits - 1)
}

// String returns a short name such as "int4", "int4/32", "int4/32-min" or "bf16".
func (f Format) String() string {
	switch {
	case f.Bits == 16:
		return "bf16"
	case f.Bits == 32:
		return "f32"
	case f.Minimum:
		return fmt.Sprintf("int%d/%d-min", f.Bits, f.Group)
	case f.Group > 0:
		return fmt.Sprintf("int%d/%d", f.Bits, f.Group)
	}
	return fmt.Sprintf("int%d", f.Bits)
}

// Layout is the order in which the numbers of a matrix lie.
type Layout string

const (
	// Blocks interleaves 16 rows; for matrices of codes that are multiplied.
	Blocks Layout = "blocks16"
	// Rows lies row after row; for gathered tables and for plain floats.
	Rows Layout = "rows"
)

// Matrix is the shape, format and layout of a packed matrix. It holds no data:
// its methods tell where in the data things lie.
type Matrix struct {
	Format
	// Layout is the order of the numbers.
	Layout Layout `json:"layout"`
	// Rows and Cols are the logical shape.
	Rows int `json:"rows"`
	Cols int `json:"cols"`
}

// Validate reports whether the matrix is one that this package can lay out. The error matches ErrFormat.
func (m Matrix) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
	}
	if m.Rows < 1 || m.Cols < 1 || m.Rows > MaxDim || m.Cols > MaxDim {
		return bad("shape [%d, %d] is outside 1 to %d", m.Rows, m.Cols, MaxDim)
	}
	switch m.Bits {
	case 2, 4, 8:
		if m.Scale.bytes() == 0 {
			return bad("%d-bit codes need f32 or f16 scales, not %q", m.Bits, m.Scale)
		}
	case 16, 32:
		if m.Scale != ScaleNone || m.Group != 0 || m.Minimum {
			return bad("%d-bit floats have no scales, groups or minimums", m.Bits)
		}
		if m.Layout != Rows {
			return bad("%d-bit floats lie in rows, not %q", m.Bits, m.Layout)
		}
		return nil
	default:
		return bad("%d bits", m.Bits)
	}
	if m.Group < 0 || m.Group > 0 && m.Cols%m.Group != 0 {
		return bad("groups of %d do not divide %d columns", m.Group, m.Cols)
	}
	if m.Minimum && m.Group == 0 {
		return bad("minimums of whole rows")
	}
	switch m.Layout {
	case Rows:
		if m.Cols*m.Bits%8 != 0 {
			return bad("%d columns of %d bits do not fill bytes", m.Cols, m.Bits)
		}
	case Blocks:
		if m.Cols > MaxBlockCols {
			return bad("%d columns to multiply, at most %d", m.Cols, MaxBlockCols)
		}
		if !slices.Contains(MultipliedFormats(), m.Format) {
			return bad("blocks of %s with %s scales", m.Format, m.Scale)
		}
	default:
		return bad("layout %q", m.Layout)
	}
	return nil
}

// Groups returns the number of groups of columns in a row, one if all share a scale; 0 for floats.
func (m Matrix) Groups() int {
	switch {
	case !m.Codes():
		return 0
	case m.Group == 0:
		return 1
	}
	return m.Cols / m.Group
}

// NumScales returns how many numbers of the type of the scales a row has: for each
// group its scale and, if the format has them, its minimum.
func (m Matrix) NumScales() int { return m.Groups() * m.perGroup() }

// perGroup returns how many of these a group has.
func (f Format) perGroup() int {
	if f.Minimum {
		return 2
	}
	return 1
}

// ScaleBytes returns the bytes of a row's scales and minimums.
func (m Matrix) ScaleBytes() int { return m.NumScales() * m.Scale.bytes() }

// CodeBytes returns the bytes of a row's numbers in the checkpoint's own packing: lowest bits first, no padding.
func (m Matrix) CodeBytes() int { return (m.Cols*m.Bits + 7) / 8 }

// RowBytes returns the distance in bytes between two rows in the row layout.
func (m Matrix) RowBytes() int {
	if !m.Codes() {
		return m.CodeBytes()
	}
	return alignUp(m.CodeBytes()+m.ScaleBytes(), RowAlign)
}

// StepCols returns the number of columns that one step of a block covers.
func (m Matrix) StepCols() int { return 32 / m.Bits }

// Steps returns the number of steps in a block; the last may reach past the columns.
func (m Matrix) Steps() int { return (m.Cols + m.StepCols() - 1) / m.StepCols() }

// NumBlocks returns the number of blocks of 16 rows; the last may reach past the rows.
func (m Matrix) NumBlocks() int { return (m.Rows + BlockRows - 1) / BlockRows }

// BlockCodeBytes returns the bytes of a block's codes, which come first in it.
func (m Matrix) BlockCodeBytes() int { return m.Steps() * StepBytes }

// BlockBytes returns the size of a block: its codes, then its scales and minimums.
func (m Matrix) BlockBytes() int {
	return m.BlockCodeBytes() + alignUp(BlockRows*m.ScaleBytes(), RowAlign)
}

// SizeBytes returns the size of the whole matrix in its layout.
func (m Matrix) SizeBytes() int64 {
	if m.Layout == Blocks {
		return int64(m.NumBlocks()) * int64(m.BlockBytes())
	}
	return int64(m.Rows) * int64(m.RowBytes())
}

// alignUp rounds n up to a multiple of a, a power of two.
func alignUp(n, a int) int { return (n + a - 1) &^ (a - 1) }
