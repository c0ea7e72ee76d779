package gemma4

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// reportRows is the number of rows whose errors are summed before they are added to the
// others, so that the sum does not depend on the number of goroutines.
const reportRows = 64

// rounding is what both grids do to a family of tensors, or to a part of one.
type rounding [2]errorSums // by the index of the grid in quant.Grids

// add adds what they do to other numbers.
func (r *rounding) add(o *rounding) {
	for i := range r {
		r[i].add(o[i])
	}
}

// roundable returns the matrices that grids round, as they are.
func (s *floats) roundable() ([]*weights, error) {
	var all []*weights
	for _, g := range decoderGroups(s.cfg) {
		for _, m := range g.modules {
			if m.kind == norm || gridFor(m, quant.GridQ4_0) == "" {
				continue
			}
			plain, err := s.bfloats(m, floatsWhy)
			if err != nil {
				return nil, err
			}
			if plain != nil { // else a head that the embedding stands for
				all = append(all, plain)
			}
		}
	}
	return all, nil
}

// report measures what each grid does to each family of matrices. A family that a grid
// cannot hold has a problem and no errors.
func (s *floats) report(ctx context.Context, matrices []*weights, m *meter) ([]zoo.RoundingError, error) {
	var order []string
	families := map[string]*rounding{}
	tensors := map[string]int{}
	for _, plain := range matrices {
		name := familyName(plain.name)
		if tensors[name] == 0 {
			order = append(order, name)
			families[name] = &rounding{}
		}
		tensors[name]++
		sums, err := s.measure(ctx, plain, m)
		if err != nil {
			return nil, err
		}
		families[name].add(sums)
	}
	var report []zoo.RoundingError
	for _, name := range order {
		for i, grid := range quant.Grids() {
			e := families[name][i]
			r := zoo.RoundingError{Family: name, Grid: string(grid), Tensors: tensors[name], Numbers: e.numbers}
			if e.err != nil {
				r.Problem = e.err.Error()
			} else {
				r.RelL2, r.MaxAbs = math.Sqrt(e.errors/max(e.squares, math.SmallestNonzeroFloat64)), e.most
			}
			report = append(report, r)
		}
	}
	return report, nil
}

// familyName returns a module's name with "*" for the number of its layer.
func familyName(module string) string {
	layer, rest, ok := strings.Cut(strings.TrimPrefix(module, layersPrefix), ".")
	if !ok || !strings.HasPrefix(module, layersPrefix) || layer == "" {
		return module
	}
	return layersPrefix + "*." + rest
}

// errorSums are sums over numbers and what rounding makes of them.
type errorSums struct {
	numbers int64
	// squares and errors are the sums of the squares of numbers and of errors.
	squares, errors float64
	// most is the largest magnitude of an error.
	most float64
	// err is the first number that the grid cannot hold; the sums then mean nothing.
	err error
}

// add adds the sums of other numbers.
func (e *errorSums) add(o errorSums) {
	e.numbers += o.numbers
	e.squares += o.squares
	e.errors += o.errors
	e.most = max(e.most, o.most)
	if e.err == nil {
		e.err = o.err
	}
}

// measure sums the errors of a matrix on both grids.
func (s *floats) measure(ctx context.Context, plain *weights, m *meter) (*rounding, error) {
	workers := make([]*measurer, runtime.GOMAXPROCS(0))
	for w := range workers {
		var err error
		if workers[w], err = s.newMeasurer(plain); err != nil {
			return nil, err
		}
	}
	pieces := make([]rounding, (plain.rows+reportRows-1)/reportRows)
	var next atomic.Int64
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(pieces) {
					return
				}
				first, end := i*reportRows, min(plain.rows, (i+1)*reportRows)
				w.rows(&pieces[i], first, end)
				m.add(int64(end-first) * plain.rowBytes)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	sum := &rounding{}
	for i := range pieces {
		sum.add(&pieces[i])
	}
	return sum, nil
}

// measurer compares rows of a matrix with what grids make of them.
type measurer struct {
	plain   *weights
	rounded []*weights // by the index of the grid
	matrix  quant.Matrix

	codes, row     []byte
	scales, values []float32
}

// newMeasurer returns a measurer with room for a row.
func (s *floats) newMeasurer(plain *weights) (*measurer, error) {
	m := quant.Matrix{Format: quant.Int4x32, Layout: quant.Rows, Rows: 1, Cols: plain.cols}
	w := &measurer{
		plain: plain, matrix: m, codes: make([]byte, m.CodeBytes()), row: make([]byte, m.RowBytes()),
		scales: make([]float32, m.Groups()), values: make([]float32, plain.cols),
	}
	for _, grid := range quant.Grids() {
		rounded, err := s.rounded(plain, grid)
		if err != nil {
			return nil, err
		}
		w.rounded = append(w.rounded, rounded)
	}
	return w, nil
}

// rows sums the errors of the rows from first to before end.
func (m *measurer) rows(sums *rounding, first, end int) {
	for r := first; r < end; r++ {
		exact, err := m.plain.row(r, nil, nil)
		for i, rounded := range m.rounded {
			sum := &sums[i]
			sum.numbers += int64(m.plain.cols)
			var codes []byte
			if err == nil && sum.err == nil {
				codes, sum.err = rounded.row(r, m.codes, m.scales)
			}
			if sum.err = cmp.Or(sum.err, err); sum.err != nil {
				continue
			}
			quant.PackRow(m.row, m.matrix, codes, m.scales)
			quant.Row(m.values, m.matrix, m.row, 0)
			for c, v := range m.values {
				x := float64(quant.BF16ToF32(binary.LittleEndian.Uint16(exact[2*c:])))
				d := math.Abs(x - float64(v))
				sum.squares += float64(x * x)
				sum.errors += float64(d * d)
				sum.most = max(sum.most, d)
			}
		}
	}
}
