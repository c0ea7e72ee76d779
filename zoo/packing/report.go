package packing

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

// Report measures what each grid does to each family of matrices of [BF16]: those of the
// same name in all layers, with "*" for the number of the layer. A family that a grid
// cannot hold has a problem and no errors. The meter counts the matrices' bytes, which the
// caller has it expect.
func Report(ctx context.Context, matrices []*Matrix, m *Meter) ([]zoo.RoundingError, error) {
	var order []string
	families := map[string]*rounding{}
	tensors := map[string]int{}
	for _, plain := range matrices {
		name := familyName(plain.Name)
		if tensors[name] == 0 {
			order = append(order, name)
			families[name] = &rounding{}
		}
		tensors[name]++
		sums, err := measure(ctx, plain, m)
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

// familyName returns the name of a matrix with "*" for each part that is a number.
func familyName(name string) string {
	parts := strings.Split(name, ".")
	for i, part := range parts {
		if part != "" && strings.Trim(part, "0123456789") == "" {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, ".")
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
func measure(ctx context.Context, plain *Matrix, m *Meter) (*rounding, error) {
	workers := make([]*measurer, runtime.GOMAXPROCS(0))
	for w := range workers {
		var err error
		if workers[w], err = newMeasurer(plain); err != nil {
			return nil, err
		}
	}
	pieces := make([]rounding, (plain.Rows+reportRows-1)/reportRows)
	var next atomic.Int64
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(pieces) {
					return
				}
				first, end := i*reportRows, min(plain.Rows, (i+1)*reportRows)
				w.rows(&pieces[i], first, end)
				m.Add(int64(end-first) * plain.RowBytes)
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
	plain   *Matrix
	rounded []*Matrix // by the index of the grid
	matrix  quant.Matrix

	exact, codes *Row
	row          []byte
	values       []float32
}

// newMeasurer returns a measurer with room for a row.
func newMeasurer(plain *Matrix) (*measurer, error) {
	m := quant.Matrix{Format: quant.Int4x32, Layout: quant.Rows, Rows: 1, Cols: plain.Cols}
	w := &measurer{plain: plain, matrix: m, exact: &Row{}, row: make([]byte, m.RowBytes()), values: make([]float32, plain.Cols)}
	for _, grid := range quant.Grids() {
		rounded, err := plain.Round(grid)
		if err != nil {
			return nil, err
		}
		w.rounded = append(w.rounded, rounded)
		w.codes = rounded.NewRow()
	}
	return w, nil
}

// rows sums the errors of the rows from first to before end.
func (m *measurer) rows(sums *rounding, first, end int) {
	for r := first; r < end; r++ {
		err := m.plain.Read(r, m.exact)
		for i, rounded := range m.rounded {
			sum := &sums[i]
			sum.numbers += int64(m.plain.Cols)
			if err == nil && sum.err == nil {
				sum.err = rounded.Read(r, m.codes)
			}
			if sum.err = cmp.Or(sum.err, err); sum.err != nil {
				continue
			}
			quant.PackRow(m.row, m.matrix, m.codes.Codes, m.codes.Scales)
			quant.Row(m.values, m.matrix, m.row, 0)
			for c, v := range m.values {
				x := float64(quant.BF16ToF32(binary.LittleEndian.Uint16(m.exact.Codes[2*c:])))
				d := math.Abs(x - float64(v))
				sum.squares += float64(x * x)
				sum.errors += float64(d * d)
				sum.most = max(sum.most, d)
			}
		}
	}
}
