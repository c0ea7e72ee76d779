package metal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/mmap"
	"github.com/zoo-sdk/zoo/program"
)

// weights is where the device finds the tensors of a program.
type weights struct {
	memory  *allocator
	buffers []Buffer
	at      []Binding // of each program.Weight; unbound for one whose rows the host looks up
	// mappedBytes is how much the device reads where the pack's file lies, and copiedBytes how much was copied.
	mappedBytes, copiedBytes int64
}

// placeWeights lets a device read the wanted tensors of a program: where they
// are mapped, in place, else from a copy.
func placeWeights(m *allocator, p *program.Program, w backends.Weights, wanted []bool) (_ *weights, err error) {
	placed := &weights{memory: m, at: make([]Binding, len(p.Weights))}
	defer func() {
		if err != nil {
			placed.release()
		}
	}()
	data := make([][]byte, len(p.Weights))
	order := []int{}
	for i, t := range p.Weights {
		if wanted[i] {
			data[i], _, _ = w.Tensor(t.Name)
			order = append(order, i)
		}
	}
	if whole, ok := w.(backends.Mapping); ok {
		return placed, placed.mapAll(whole.Mapping(), data, order)
	}
	return placed, placed.copyAll(data, order)
}

// bufferAlign is a multiple of what every device wants of an offset, and of the alignment of tensors in a pack.
const bufferAlign = 256

// copyAll copies tensors into one buffer.
func (w *weights) copyAll(data [][]byte, order []int) error {
	size := 0
	for _, i := range order {
		size = alignUp(size, bufferAlign) + len(data[i])
	}
	b, err := w.memory.alloc(max(size, 1))
	if err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	w.buffers = append(w.buffers, b)
	w.copiedBytes = int64(size)
	at := 0
	for _, i := range order {
		at = alignUp(at, bufferAlign)
		w.at[i] = Binding{b, at, copy(b.Bytes()[at:], data[i])}
		at += len(data[i])
	}
	return nil
}

// errOutside reports a tensor that does not lie in the mapping of its pack.
var errOutside = errors.New("tensor lies outside of the mapped file")

// span is a run of pages of a mapping.
type span struct{ from, to int }

// mapAll maps the pages of tensors: neighbours as one buffer, as far as the
// device's limit allows. What lies between them and is not wanted stays unmapped.
func (w *weights) mapAll(whole []byte, data [][]byte, order []int) error {
	info := w.memory.info
	offsets := make([]int, len(data))
	for _, i := range order {
		at, ok := mmap.Offset(whole, data[i])
		if !ok {
			return fmt.Errorf("weights: %w", errOutside)
		}
		offsets[i] = at
	}
	order = slices.SortedFunc(slices.Values(order), func(a, b int) int { return cmp.Compare(offsets[a], offsets[b]) })
	pages := func(i int) span {
		return span{offsets[i] / info.PageBytes * info.PageBytes, min(alignUp(offsets[i]+len(data[i]), info.PageBytes), len(whole))}
	}
	for len(order) > 0 {
		run := pages(order[0])
		n := 1
		for ; n < len(order); n++ {
			next := pages(order[n])
			if next.from > run.to || int64(next.to-run.from) > info.MaxBufferBytes {
				break
			}
			run.to = max(run.to, next.to)
		}
		b, err := w.memory.mapped(whole[run.from:run.to])
		if err != nil {
			return fmt.Errorf("weights: map %d bytes: %w", run.to-run.from, err)
		}
		w.buffers = append(w.buffers, b)
		w.mappedBytes += int64(run.to - run.from)
		for _, i := range order[:n] {
			w.at[i] = Binding{b, offsets[i] - run.from, len(data[i])}
		}
		order = order[n:]
	}
	return nil
}

// release frees the buffers.
func (w *weights) release() {
	for _, b := range w.buffers {
		w.memory.free(b)
	}
	w.buffers = nil
}

// alignUp rounds n up to a multiple of a, a power of two.
func alignUp(n, a int) int { return (n + a - 1) &^ (a - 1) }
