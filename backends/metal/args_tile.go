package metal

import (
	"fmt"
	"strings"

	"github.com/zoo-sdk/zoo/quant"
)

const (
	// smallTile and largeTile are the rows of activations that the kernels of tile.metal multiply at once.
	smallTile, largeTile = 8, 32
	// chunkCols is what digits are padded to: the most columns that those kernels treat at once.
	chunkCols = 64
	// quantizeThreads is the number of threads that make the digits of a row.
	quantizeThreads = 256
	// bf16Threads is the number of threads of linear_bf16, four for each matrix row.
	bf16Threads = 256
	// bf16Batch is the number of rows of activations that linear_bf16 multiplies at once.
	bf16Batch = 8
	// bf16SharedBytes is the memory in which linear_bf16 stages them.
	bf16SharedBytes = 4 * 2048
	// enoughSIMDs is the number of SIMD groups from which on a GPU is busy with products.
	enoughSIMDs = 512
	// maxSharedBytes is the memory of a group that every device has.
	maxSharedBytes = 32 << 10
)

// ceilDiv returns a/b, rounded up.
func ceilDiv(a, b int) int { return (a + b - 1) / b }

// paddedCols returns the columns of the digits of an input with so many columns.
func paddedCols(cols int) int { return alignUp(cols, chunkCols) }

// quantizeArgs is QuantizeArgs: what quantize takes. Buffers: input [rows, cols],
// step, digits [rows, planes, padded] bytes, steps [rows].
type quantizeArgs struct {
	Cols   uint32
	Padded uint32 // paddedCols
	Planes uint32 // digits of an integer
	Grid   float32
	Limit  float32 // the largest magnitude where Grid is 0
}

// launch returns the grid for so many rows.
func (a *quantizeArgs) launch(rows int) launch {
	return launch{Groups: [3]int{1, rows, 1}, Threads: quantizeThreads, SharedBytes: 4 * quantizeThreads / SIMDWidth}
}

// bf16Args is BF16Args: what linear_bf16 takes. Buffers: weights, step, input
// [rows, cols], result [rows, out stride].
type bf16Args struct {
	Cols      uint32
	FirstRow  uint32 // of the part in the matrix
	Rows      uint32 // of the part
	OutStride uint32
	Mul       float32
}

// launch returns the grid for so many rows of activations.
func (a *bf16Args) launch(rows int) launch {
	return launch{
		Groups:  [3]int{ceilDiv(int(a.Rows), bf16Threads/4), ceilDiv(rows, bf16Batch), 1},
		Threads: bf16Threads, SharedBytes: bf16SharedBytes,
	}
}

// tileArgs is TileArgs: what the linear and gate_up kernels of packed codes
// take. Buffers: weights, step, digits, steps, of gate_up those of up if it has
// its own, and the result [rows, out stride].
type tileArgs struct {
	FirstBlock uint32 // of the part in the matrix
	Blocks     uint32 // of the part; of gate_up those of gate and up
	Rows       uint32 // of the part, or of gate
	Steps      uint32 // of a block
	BlockBytes uint32
	Padded     uint32 // paddedCols
	OutStride  uint32
	Splits     uint32  // SIMD groups that share the columns of a block
	Operands   uint32  // 2 if up has digits of its own, else 1
	OutGrid    float32 // 0 for none; of gate_up that of gate
	UpGrid     float32
	Mul        float32 // of gate_up 1
}

// tileProduct is the shape of a product with a tile of rows.
type tileProduct struct {
	Matrix quant.Matrix
	// First is the first matrix row of the part, and Rows how many there are. Of
	// gate_up they are 0 and the rows of gate.
	First, Rows int
	// Planes is the number of digits of the activations' integers.
	Planes int
	// Live is the most rows of activations.
	Live int
	// Operands is 0 for linear. For gate_up it is 2 if up has digits of its own, else 1.
	Operands int
}

// name returns the kernel's name.
func (p *tileProduct) name() string {
	kind := "linear"
	if p.Operands > 0 {
		kind = "gate_up"
	}
	return fmt.Sprintf("%s_%s_p%d_t%d", kind, strings.ReplaceAll(p.Matrix.Format.String(), "/", "x"), p.Planes, p.tile())
}

// tile returns how many rows of activations are multiplied at once.
func (p *tileProduct) tile() int {
	if p.Live <= smallTile {
		return smallTile
	}
	return largeTile
}

// blocks returns how many blocks of the matrix are multiplied.
func (p *tileProduct) blocks() int {
	n := ceilDiv(p.Rows, quant.BlockRows)
	if p.Operands > 0 {
		n *= 2
	}
	return n
}

// stride returns the columns that are treated at once, and the bytes of a row of them in a group's memory.
func (p *tileProduct) stride() (cols, bytes int) {
	cols = chunkCols
	if p.Matrix.Group > 0 {
		cols = p.Matrix.Group
	}
	return cols, 2 * (cols + 8)
}

// group returns how many blocks a group multiplies and how many of its SIMD
// groups share the columns of a block. Columns are shared where there are too
// few blocks to keep a GPU busy, as long as each share is a few chunks.
func (p *tileProduct) group() (blocks, splits int) {
	least := min(2, 1+p.Operands) // gate and up go together
	most := 8 / least
	if p.tile() == largeTile {
		most = 4 / least
		if p.Matrix.Group > 0 {
			most = 1 // adding 32 rows in order would take longer
		}
	}
	cols, _ := p.stride()
	simds, chunks := p.blocks()*ceilDiv(p.Live, p.tile()), paddedCols(p.Matrix.Cols)/cols
	for splits = 1; 2*splits <= most && simds*splits < enoughSIMDs && chunks >= 8*splits; {
		splits *= 2
	}
	for blocks = max(least, 4/splits); blocks > least && (blocks >= 2*p.blocks() || p.shared(blocks, splits) > maxSharedBytes); {
		blocks /= 2
	}
	for splits > 1 && p.shared(blocks, splits) > maxSharedBytes {
		splits /= 2
	}
	return blocks, splits
}

// shared returns the memory of a group: codes for each SIMD group, or in turns 8 rows of products; then the digits.
func (p *tileProduct) shared(blocks, splits int) int {
	_, stride := p.stride()
	area := max(quant.BlockRows*stride, 4*p.Planes*smallTile*quant.BlockRows)
	return blocks*splits*area + splits*max(1, p.Operands)*p.Planes*p.tile()*stride
}

// launch returns the grid.
func (p *tileProduct) launch() launch {
	blocks, splits := p.group()
	return launch{
		Groups:      [3]int{ceilDiv(p.blocks(), blocks), ceilDiv(p.Live, p.tile()), 1},
		Threads:     blocks * splits * SIMDWidth,
		SharedBytes: p.shared(blocks, splits),
	}
}

// args returns the arguments without what does not follow from the shape.
func (p *tileProduct) args() tileArgs {
	_, splits := p.group()
	return tileArgs{
		FirstBlock: uint32(p.First / quant.BlockRows), Blocks: uint32(p.blocks()), Rows: uint32(p.Rows),
		Steps: uint32(p.Matrix.Steps()), BlockBytes: uint32(p.Matrix.BlockBytes()), Padded: uint32(paddedCols(p.Matrix.Cols)),
		Splits: uint32(splits), Operands: uint32(max(1, p.Operands)), Mul: 1,
	}
}
