package gemma4

import (
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

// report measures what each grid does to each family of the weights that grids round.
func (s *floats) report(ctx context.Context) ([]zoo.RoundingError, error) {
	var order []string
	families := map[string]map[quant.Grid]*errorSums{}
	tensors := map[string]int{}
	for _, g := range decoderGroups(s.cfg) {
		for _, m := range g.modules {
			if m.kind == norm || gridFor(m, quant.GridQ4_0) == "" {
				continue
			}
			plain, err := s.bfloats(m, "a checkpoint of floats has bfloat16 weights")
			if err != nil {
				return nil, err
			}
			if plain == nil { // a head that the embedding stands for
				continue
			}
			name := familyName(m.name)
			if tensors[name] == 0 {
				order = append(order, name)
				families[name] = map[quant.Grid]*errorSums{}
			}
			tensors[name]++
			for _, grid := range quant.Grids() {
				sums, err := s.measure(ctx, plain, grid)
				if err != nil {
					return nil, err
				}
				if families[name][grid] == nil {
					families[name][grid] = &errorSums{}
				}
				families[name][grid].add(sums)
			}
		}
	}
	var report []zoo.RoundingError
	for _, name := range order {
		for _, grid := range quant.Grids() {
			e := families[name][grid]
			report = append(report, zoo.RoundingError{
				Family: name, Grid: string(grid), Tensors: tensors[name], Numbers: e.numbers,
				RelL2: math.Sqrt(e.errors / max(e.squares, math.SmallestNonzeroFloat64)), MaxAbs: e.most,
			})
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
}

// add adds the sums of other numbers.
func (e *errorSums) add(o errorSums) {
	e.numbers += o.numbers
	e.squares += o.squares
	e.errors += o.errors
	e.most = max(e.most, o.most)
}

// measure sums the errors of a matrix on a grid.
func (s *floats) measure(ctx context.Context, plain *weights, grid quant.Grid) (errorSums, error) {
	rounded, err := s.rounded(plain, grid)
	if err != nil {
		return errorSums{}, err
	}
	pieces := make([]errorSums, (plain.rows+reportRows-1)/reportRows)
	var next atomic.Int64
	var wg sync.WaitGroup
	failures := make([]error, runtime.GOMAXPROCS(0))
	for w := range failures {
		wg.Go(func() {
			m := newMeasurer(plain, rounded)
			for failures[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(pieces) {
					return
				}
				if failures[w] = context.Cause(ctx); failures[w] == nil {
					pieces[i], failures[w] = m.rows(i*reportRows, min(plain.rows, (i+1)*reportRows))
				}
			}
		})
	}
	wg.Wait()
	var sum errorSums
	for _, piece := range pieces {
		sum.add(piece)
	}
	for _, err := range failures {
		if err != nil {
			return errorSums{}, err
		}
	}
	return sum, nil
}

// measurer compares rows of a matrix with what rounding makes of them.
type measurer struct {
	plain, rounded *weights
	matrix         quant.Matrix
	codes, row     []byte
	scales, values []float32
}

// newMeasurer returns a measurer with room for a row.
func newMeasurer(plain, rounded *weights) *measurer {
	m := quant.Matrix{Format: rounded.Format, Layout: quant.Rows, Rows: 1, Cols: rounded.cols}
	return &measurer{
		plain: plain, rounded: rounded, matrix: m,
		codes: make([]byte, rounded.codeBytes()), row: make([]byte, m.RowBytes()),
		scales: make([]float32, rounded.groups), values: make([]float32, rounded.cols),
	}
}

// rows sums the errors of the rows from first to before end.
func (m *measurer) rows(first, end int) (errorSums, error) {
	var sum errorSums
	for r := first; r < end; r++ {
		exact, err := m.plain.row(r, nil, nil)
		if err != nil {
			return sum, err
		}
		codes, err := m.rounded.row(r, m.codes, m.scales)
		if err != nil {
			return sum, err
		}
		quant.PackRow(m.row, m.matrix, codes, m.scales)
		quant.Row(m.values, m.matrix, m.row, 0)
		for i, v := range m.values {
			x := float64(quant.BF16ToF32(binary.LittleEndian.Uint16(exact[2*i:])))
			d := math.Abs(x - float64(v))
			sum.squares += float64(x * x)
			sum.errors += float64(d * d)
			sum.most = max(sum.most, d)
		}
		sum.numbers += int64(len(m.values))
	}
	return sum, nil
}
