package metal

import (
	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/quant"
)

const (
	// pointwiseThreads is the number of columns of a row that a group treats, and of the logits that share a peak.
	pointwiseThreads = backends.PeakRun
	// normThreads is the number of threads of a norm.
	normThreads = 128
	// storeThreads is the number of threads that write a head.
	storeThreads = 64
)

// columns returns the grid of a kernel whose groups treat some columns of a row each.
func columns(cols uint32, rows int) launch {
	return launch{Groups: [3]int{(int(cols) + pointwiseThreads - 1) / pointwiseThreads, rows, 1}, Threads: pointwiseThreads}
}

// embedArgs is EmbedArgs: what embed takes.
type embedArgs struct {
	Cols, Bits uint32
	Group      uint32 // columns that share a scale
	HalfScales uint32 // 1 for float16, 0 for float32
	Blocks     uint32 // 1 if 16 rows are interleaved
	Stride     uint32 // bytes of a block or a row
	ScalesAt   uint32 // where in these the scales begin
	Mul        float32
}

// newEmbedArgs returns the arguments for a table.
func newEmbedArgs(m quant.Matrix, mul float32) embedArgs {
	a := embedArgs{
		Cols: uint32(m.Cols), Bits: uint32(m.Bits), Group: uint32(m.Cols), Mul: mul,
		Stride: uint32(m.RowBytes()), ScalesAt: uint32(m.CodeBytes()),
	}
	if m.Group > 0 {
		a.Group = uint32(m.Group)
	}
	if m.Scale == quant.ScaleF16 {
		a.HalfScales = 1
	}
	if m.Layout == quant.Blocks {
		a.Blocks, a.Stride, a.ScalesAt = 1, uint32(m.BlockBytes()), uint32(m.BlockCodeBytes())
	}
	return a
}

// launch returns the grid.
func (a *embedArgs) launch(rows int) launch { return columns(a.Cols, rows) }

// normArgs is NormArgs: what norm takes.
type normArgs struct {
	Cols                  uint32 // of a run
	Stride                uint32 // of a row
	Eps                   float32
	Weighted, Rotated     uint32 // 1 for yes
	AngleCols, AngleFirst uint32 // of the table of sines and cosines, and where those of the rotation begin
}

// launch returns the grid.
func (a *normArgs) launch(rows int) launch {
	return launch{Groups: [3]int{int(a.Stride / a.Cols), rows, 1}, Threads: normThreads}
}

// addNormArgs is AddNormArgs: what add_norm takes.
type addNormArgs struct {
	Cols     uint32
	Eps      float32
	Mul      float32
	Weighted uint32 // 1 for yes
}

// launch returns the grid.
func (a *addNormArgs) launch(rows int) launch {
	return launch{Groups: [3]int{1, rows, 1}, Threads: normThreads}
}

// addMulArgs is AddMulArgs: what add_mul takes.
type addMulArgs struct {
	Cols uint32
	Mul  float32
}

// launch returns the grid.
func (a *addMulArgs) launch(rows int) launch { return columns(a.Cols, rows) }

// geluMulArgs is GELUMulArgs: what gelu_mul takes.
type geluMulArgs struct {
	Cols           uint32 // of a and out
	First, BStride uint32 // of the columns of b, and the length of its rows
}

// launch returns the grid.
func (a *geluMulArgs) launch(rows int) launch { return columns(a.Cols, rows) }

// softcapArgs is SoftcapArgs: what softcap takes.
type softcapArgs struct {
	Cols uint32
	Cap  float32
}

// launch returns the grid.
func (a *softcapArgs) launch(rows int) launch { return columns(a.Cols, rows) }

// peaksArgs is PeaksArgs: what peaks takes.
type peaksArgs struct{ Cols uint32 }

// launch returns the grid.
func (a *peaksArgs) launch(rows int) launch {
	l := columns(a.Cols, rows)
	l.SharedBytes = 4 * pointwiseThreads / SIMDWidth
	return l
}

// selectArgs is SelectArgs: what select_rows takes.
type selectArgs struct{ Cols uint32 }

// launch returns the grid for so many rows that are kept.
func (a *selectArgs) launch(rows int) launch { return columns(a.Cols, rows) }

// storeArgs is StoreArgs: what store_float, store_half and store_int8 take.
type storeArgs struct {
	KVHeads, Dim         uint32
	Table, Ring          uint32 // as of the attention
	KeyScale, ValueScale float32
}

// launch returns the grid.
func (a *storeArgs) launch(rows int) launch {
	return launch{Groups: [3]int{int(a.KVHeads), rows, 1}, Threads: storeThreads}
}
