package packing

import (
	"slices"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// Arrangement says how several matrices lie in one tensor.
type Arrangement int

const (
	// Stacked puts the matrices one after another, each filled up to whole blocks of rows.
	Stacked Arrangement = iota
	// Alternating takes a block of each in turn.
	Alternating
)

// Tensor is one tensor of a pack and where its numbers come from.
type Tensor struct {
	zoo.PlannedTensor

	vector      []float32
	parts       []*Matrix
	arrangement Arrangement
}

// NewVector returns the tensor of a list of float32, such as the weights of a norm.
func NewVector(name string, v []float32) (*Tensor, error) {
	t := &Tensor{vector: v}
	t.Name, t.Matrix = name, quant.Matrix{Format: quant.F32, Layout: quant.Rows, Rows: 1, Cols: len(v)}
	return t, t.check()
}

// NewTable returns the tensor of a matrix whose rows are looked up and never multiplied.
func NewTable(m *Matrix) (*Tensor, error) {
	t := &Tensor{parts: []*Matrix{m}}
	t.Name, t.Matrix = m.Name, m.shape()
	return t, t.check()
}

// NewMatrix returns the tensor of a matrix that is multiplied.
func NewMatrix(m *Matrix) (*Tensor, error) {
	t := &Tensor{parts: []*Matrix{m}}
	t.Name, t.Matrix = m.Name, m.multiplied()
	return t, t.check()
}

// Group returns the tensors of matrices that are multiplied with the same input. If they
// are codes of one format they lie in one tensor of that name, so that a step reads one
// stream; else, or if there is but one, each is a tensor of its own name.
func Group(name string, a Arrangement, parts ...*Matrix) ([]*Tensor, error) {
	apart := slices.ContainsFunc(parts, func(m *Matrix) bool { return m.Format != parts[0].Format || m.Cols != parts[0].Cols || !m.Codes() })
	if a == Alternating {
		apart = apart || slices.ContainsFunc(parts, func(m *Matrix) bool { return m.Rows != parts[0].Rows })
	}
	if len(parts) > 1 && !apart {
		t := &Tensor{parts: parts, arrangement: a}
		t.Name, t.Matrix = name, parts[0].multiplied()
		t.Rows = 0
		for _, m := range parts {
			t.Rows += blocks(m.Rows) * quant.BlockRows
		}
		return []*Tensor{t}, t.check()
	}
	var all []*Tensor
	for _, m := range parts {
		t, err := NewMatrix(m)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// multiplied returns the matrix as the pack holds it to be multiplied.
func (m *Matrix) multiplied() quant.Matrix {
	s := m.shape()
	if m.Codes() {
		s.Layout = quant.Blocks
	}
	return s
}

// blocks returns the number of 16-row blocks of n rows.
func blocks(n int) int { return (n + quant.BlockRows - 1) / quant.BlockRows }

// check reports a shape that no pack can hold.
func (t *Tensor) check() error {
	if err := t.Matrix.Validate(); err != nil {
		return &checkpoint.TensorError{Tensor: t.Name, Problem: err.Error()}
	}
	return nil
}

// SourceBytes returns what is read of the checkpoint for the whole tensor.
func (t *Tensor) SourceBytes() int64 {
	n := int64(len(t.vector)) * 4
	for _, m := range t.parts {
		n += m.SourceBytes()
	}
	return n
}

// units returns the number of pieces that the tensor is packed in: blocks, or rows.
func (t *Tensor) units() int {
	if t.Layout == quant.Blocks {
		return t.NumBlocks()
	}
	return t.Rows
}

// unitBytes returns the size of a unit.
func (t *Tensor) unitBytes() int {
	if t.Layout == quant.Blocks {
		return t.BlockBytes()
	}
	return t.RowBytes()
}

// locate returns the matrix, and the first and the number of its rows, that a unit holds.
func (t *Tensor) locate(unit int) (m *Matrix, first, rows int) {
	if t.Layout == quant.Rows {
		return t.parts[0], unit, 1
	}
	if t.arrangement == Alternating && len(t.parts) > 1 {
		m = t.parts[unit%len(t.parts)]
		unit /= len(t.parts)
	} else {
		for _, m = range t.parts {
			if n := blocks(m.Rows); unit >= n {
				unit -= n
				continue
			}
			break
		}
	}
	first = unit * quant.BlockRows
	return m, first, min(quant.BlockRows, m.Rows-first)
}
