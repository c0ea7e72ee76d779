package zoo

import (
	"bytes"
	"fmt"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
)

const (
	// tensorAlign is what the offsets of tensors are multiples of: a cache line, and
	// what the widest vector loads want.
	tensorAlign = 64
	// weightsAlign is what the length of the weights file, and the start of the data
	// in it, are multiples of: the largest page in use, so that the whole file can be
	// handed to a device as it is mapped.
	weightsAlign = 16 << 10
)

// weightsLayout is where the tensors of a weights file lie. It follows from their
// names and matrices.
type weightsLayout struct {
	file    *checkpoint.Layout
	tensors []checkpoint.Placement
	header  []byte // the first bytes of the file, up to the data
}

// layoutWeights places the tensors. Errors match fault.ErrUsage or quant.ErrFormat.
func layoutWeights(planned []PlannedTensor) (*weightsLayout, error) {
	if len(planned) == 0 {
		return nil, fmt.Errorf("a pack without tensors: %w", fault.ErrUsage)
	}
	specs := make([]checkpoint.Spec, len(planned))
	var total int64
	for i, t := range planned {
		if err := checkPlanned(t); err != nil {
			return nil, err
		}
		if total += t.SizeBytes(); total > maxPackBytes {
			return nil, fmt.Errorf("tensor %q brings the weights to more than %d bytes: %w", t.Name, int64(maxPackBytes), fault.ErrUsage)
		}
		specs[i] = checkpoint.Spec{Name: t.Name, DType: checkpoint.U8, Shape: []int{int(t.SizeBytes())}}
	}
	file, err := checkpoint.NewLayout(specs, checkpoint.LayoutOptions{Align: tensorAlign, FileAlign: weightsAlign})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, fault.ErrUsage)
	}
	var header bytes.Buffer
	if _, err := checkpoint.NewWriter(&header, file); err != nil {
		return nil, err
	}
	return &weightsLayout{file: file, tensors: file.Tensors(), header: header.Bytes()}, nil
}

// offset returns where tensor i starts in the file.
func (l *weightsLayout) offset(i int) int64 { return l.tensors[i].Offset }

// sizeBytes returns the length of the file.
func (l *weightsLayout) sizeBytes() int64 { return l.file.SizeBytes() }

// span is a range of bytes of a file.
type span struct{ start, end int64 }

// paddings returns the ranges after the header that belong to no tensor; they hold zeros.
func (l *weightsLayout) paddings() []span {
	var gaps []span
	at := int64(len(l.header))
	for _, t := range l.tensors {
		if t.Offset > at {
			gaps = append(gaps, span{at, t.Offset})
		}
		at = t.Offset + t.SizeBytes
	}
	if at < l.sizeBytes() {
		gaps = append(gaps, span{at, l.sizeBytes()})
	}
	return gaps
}
