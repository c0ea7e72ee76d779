package packing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/quant"
)

// Matrix gives access to the rows of one matrix of a checkpoint, in the format that the
// pack keeps it in.
type Matrix struct {
	// Name is the name of the tensor in the pack if the matrix is alone in it.
	Name string
	quant.Format
	// Rows and Cols are the shape.
	Rows, Cols int
	// RowBytes is what reading a row reads of the checkpoint.
	RowBytes int64
	// Read reads a row. It may be called by many goroutines. An error names a number that
	// the row cannot have.
	Read func(row int, to *Row) error

	// bf16 is the tensor that the rows are, if they are plain bfloat16.
	bf16 *checkpoint.Tensor
}

// Row takes a row of a matrix.
type Row struct {
	// Codes has room for the row's numbers, in the packing that quant.PackRow takes. Read
	// writes them there, or puts a slice of the checkpoint in its place.
	Codes []byte
	// Scales has room for what quant.PackRow takes as the row's scales, minimums among them. Read writes them there.
	Scales []float32
}

// shape returns the matrix as the pack would hold it in rows.
func (m *Matrix) shape() quant.Matrix {
	return quant.Matrix{Format: m.Format, Layout: quant.Rows, Rows: m.Rows, Cols: m.Cols}
}

// SourceBytes returns what reading all rows reads of the checkpoint.
func (m *Matrix) SourceBytes() int64 { return int64(m.Rows) * m.RowBytes }

// NewRow returns a Row with room for a row of the matrix.
func (m *Matrix) NewRow() *Row {
	s := m.shape()
	return &Row{Codes: make([]byte, s.CodeBytes()), Scales: make([]float32, s.NumScales())}
}

// BF16 returns the matrix of a tensor of bfloat16, which must have two dimensions. Numbers
// that are not finite come up when their row is read.
func BF16(name string, t checkpoint.Tensor) (*Matrix, error) {
	if t.DType != checkpoint.BF16 || len(t.Shape) != 2 {
		return nil, &checkpoint.TensorError{Tensor: t.Name, Problem: "not a matrix of bfloat16", Want: "BF16 [rows, columns]", Got: checkpoint.Describe(t.DType, t.Shape)}
	}
	cols := t.Shape[1]
	width := 2 * cols
	return &Matrix{
		Name: name, Format: quant.BF16, Rows: t.Shape[0], Cols: cols, RowBytes: int64(width), bf16: &t,
		Read: func(r int, to *Row) error {
			to.Codes = t.Data[r*width:][:width]
			return valueError(t.Name, r*cols, quant.CheckBF16(to.Codes))
		},
	}, nil
}

// Round returns a matrix of [BF16], rounded to a grid. The columns must fill the grid's blocks.
func (m *Matrix) Round(grid quant.Grid) (*Matrix, error) {
	if m.bf16 == nil {
		return nil, fmt.Errorf("%w: matrix %q is not bfloat16, and no grid rounds it", fault.ErrUsage, m.Name)
	}
	t, group := *m.bf16, quant.Int4x32.Group
	if m.Cols%group != 0 {
		return nil, &checkpoint.TensorError{Tensor: t.Name, Problem: fmt.Sprintf("%d columns do not fill blocks of %d, which grid %q needs", m.Cols, group, grid)}
	}
	width := 2 * m.Cols
	rounded := *m
	rounded.bf16, rounded.Format = nil, quant.Int4x32
	rounded.Read = func(r int, to *Row) error {
		return valueError(t.Name, r*m.Cols, grid.RoundBF16(to.Codes, to.Scales, t.Data[r*width:][:width]))
	}
	return &rounded, nil
}

// valueError names the tensor of a quant.ValueError in a row that starts with number first.
func valueError(tensor string, first int, err error) error {
	v, ok := errors.AsType[*quant.ValueError](err)
	if !ok {
		return err
	}
	at := *v
	at.Index += first
	if f := float64(v.Value); math.IsNaN(f) || math.IsInf(f, 0) {
		return checkpoint.NotFinite(tensor, at.Index, at.Value)
	}
	return &checkpoint.TensorError{Tensor: tensor, Problem: at.Error(), Advice: "no grid with half scales holds such a number: keep the weights as they are, with grid none"}
}

// Equal reports whether two matrices hold the same numbers in the same format.
func Equal(ctx context.Context, a, b *Matrix) (bool, error) {
	if a.Format != b.Format || a.Rows != b.Rows || a.Cols != b.Cols {
		return false, nil
	}
	bufA, bufB := a.NewRow(), b.NewRow()
	for r := range a.Rows {
		if r%4096 == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		rowA, rowB := *bufA, *bufB
		if err := errors.Join(a.Read(r, &rowA), b.Read(r, &rowB)); err != nil {
			return false, err
		}
		if !bytes.Equal(rowA.Codes, rowB.Codes) || !slices.Equal(rowA.Scales, rowB.Scales) {
			return false, nil
		}
	}
	return true, nil
}
