package metal

import (
	"fmt"
	"strings"

	"github.com/zoo-sdk/zoo/quant"
)

const (
	// maxParts is the most parts of a product with a single row.
	maxParts = 4
	// vecTileSteps is the number of steps of a block that a SIMD group reads at once.
	vecTileSteps = 32
	// vecDigitsAt is where the digits begin in the memory of a group.
	vecDigitsAt = 16 + 4*maxSIMDs + 4*maxSIMDs*3
	// vecBlocks is the number of blocks of an attention that are put together at once.
	vecBlocks = 32
	// peakBlocks is the number of blocks of results of which the largest is kept.
	peakBlocks = 16
	// maxSIMDs is the most SIMD groups of a group of any kernel, and vecSIMDs that of
	// these: they need many registers.
	maxSIMDs, vecSIMDs = 32, 16
	// vecCores is the number of cores of a large GPU. Smaller ones take turns.
	vecCores = 40
	// pairSharedBytes is the most memory of a group that leaves room for another
	// one on a core, and trioSharedBytes that for two others.
	pairSharedBytes, trioSharedBytes = 30 << 10, 20 << 10
)

// vecPart is VecPart: a run of rows of the matrix.
type vecPart struct {
	FirstBlock uint32  // of the part in the matrix; of gate_up that of gate
	Blocks     uint32  // of 16 results
	Rows       uint32  // the number of results
	Out        uint32  // where in the output they go, in floats
	InGrid     float32 // 0 for fixed point, as all input grids; of gate_up that of gate
	OutGrid    float32
}

// vecArgs is VecArgs: what the vec and vec_gate_up kernels take. Buffers:
// weights, step, input, state before and after, the weights of the two norms, the
// input as it is written down, output, factors, peaks, and the largest scores and totals
// of an attention's blocks. Those that the arguments do not ask for may be unbound.
type vecArgs struct {
	Cols  uint32
	Limit float32 // the largest magnitude of fixed point

	Heads  uint32 // of the attention whose blocks make up the input, 0 for none
	Window uint32
	Totals uint32 // how far behind the largest scores the totals begin, in floats

	Add         uint32 // 1 to add the norm of the input to the state, which becomes the input
	AddWeighted uint32
	AddEps      float32
	AddMul      float32

	Norm         uint32 // 1 for a norm of the input
	NormWeighted uint32
	NormEps      float32
	NormKept     uint32 // 1 to write the result down

	Mul       float32
	GELU      uint32 // 1 for gelu(product) * factors
	GELUFirst uint32 // where the factors begin
	Softcap   uint32 // 1 for cap * tanh(product / cap)
	Cap       float32
	Peaks     uint32  // 1 to find the largest of each run of 256 results
	UpInGrid  float32 // of gate_up, as in vecPart for up
	UpGrid    float32

	vecDivision

	Parts uint32
	Part  [maxParts]vecPart
}

// vecDivision is how the work of a product is divided, and where in a group's memory things are.
type vecDivision struct {
	GroupBlocks uint32 // blocks of results of a group
	Splits      uint32 // SIMD groups that share the columns of a block
	Chunk       uint32 // tiles of the input whose digits are there at a time
	Batch       uint32 // tiles after which groups of columns are added up
	GroupSums   uint32 // in bytes, as those that follow
	Second      uint32 // how far behind gate's digits and sums those of up begin, 0 if they take turns or are the same
	Input       uint32
	Work        uint32
	Results     uint32
}

// vecProduct is a product with a single row.
type vecProduct struct {
	Matrix quant.Matrix
	// Planes is the number of digits of the activations' integers.
	Planes int
	// GateUp tells that blocks of gate and up alternate.
	GateUp bool
}

// name returns the kernel's name.
func (p *vecProduct) name() string {
	kind := "vec"
	if p.GateUp {
		kind = "vec_gate_up"
	}
	return fmt.Sprintf("%s_%s_p%d", kind, strings.ReplaceAll(p.Matrix.Format.String(), "/", "x"), p.Planes)
}

// fits reports whether a group's memory is large enough for the input that
// arguments ask for, however many blocks there are. One that is just read always
// fits; one that is computed takes four bytes a column besides its digits.
func (p *vecProduct) fits(a *vecArgs, sharedBytes int) bool {
	b := *a
	b.Parts = 1
	for _, blocks := range []uint32{1, quant.MaxDim} { // with all SIMD groups sharing a block, and with none
		b.Part[0].Blocks = blocks
		if _, ok := p.divide(&b, sharedBytes); !ok {
			return false
		}
	}
	return true
}

// divide sets how the work is divided in arguments that say everything else, and
// returns the grid. It reports false where a group's memory is too small for the input.
func (p *vecProduct) divide(a *vecArgs, sharedBytes int) (launch, bool) {
	blocks := 0
	for _, part := range a.Part[:a.Parts] {
		blocks += int(part.Blocks)
	}
	splits := p.splits(blocks)
	step := 1
	if a.Peaks != 0 {
		step = peakBlocks
	}
	var best launch
	least := 0
	for n := step; n == step || n <= p.mostBlocks(a); n += step {
		groups := a.groups(n)
		if n > step && groups <= vecCores {
			break
		}
		d, l, ok := p.lay(a, n, splits, sharedBytes)
		if !ok {
			break
		}
		// Cores take turns with groups until none is left.
		if cost := ceilDiv(groups, vecCores) * (p.inputCost(a) + n*p.blockCost()); least == 0 || cost <= least {
			least, best, a.vecDivision = cost, l, d
			best.Groups = [3]int{groups, 1, 1}
		}
	}
	return best, least > 0
}

// splits returns how many SIMD groups share the columns of a block: as many as
// keep all cores busy, but few enough that their shares are nearly the same.
func (p *vecProduct) splits(blocks int) int {
	busy := 24 // SIMD groups of a core, of which each needs registers
	if p.Planes > 1 {
		busy = 16
	}
	tiles := p.tiles()
	best, least := 1, 0
	for n := 1; n <= min(ceilDiv(vecCores*busy, blocks), tiles, vecSIMDs); n++ {
		longest := ceilDiv(tiles, n)
		if cost := longest * (longest * n) * (longest * n); least == 0 || cost < least {
			best, least = n, cost
		}
	}
	return best
}

// tiles returns the number of tiles of a block.
func (p *vecProduct) tiles() int { return ceilDiv(p.Matrix.Steps(), vecTileSteps) }

// groups returns the number of groups that have so many blocks each, and never of two parts.
func (a *vecArgs) groups(groupBlocks int) (n int) {
	for _, part := range a.Part[:a.Parts] {
		n += ceilDiv(int(part.Blocks), groupBlocks)
	}
	return n
}

// computed reports whether the input is computed, and not just read.
func (a *vecArgs) computed() bool { return a.Heads|a.Add|a.Norm != 0 }

// differs reports whether gate and up have digits of their own.
func (p *vecProduct) differs(a *vecArgs) bool { return p.GateUp && a.UpInGrid != a.Part[0].InGrid }

// inputCost estimates the instructions that the SIMD groups of a group need for the input.
func (p *vecProduct) inputCost(a *vecArgs) int {
	column := 12 + 7*p.Planes
	if p.differs(a) {
		column *= 2
	}
	if a.Part[0].InGrid == 0 || p.GateUp && a.UpInGrid == 0 {
		column += 10
	}
	if a.computed() {
		column += 20
	}
	return ceilDiv(p.Matrix.Cols*column, SIMDWidth)
}

// blockCost estimates the instructions for a block of results: for each code one, and one for each digit.
func (p *vecProduct) blockCost() int {
	codes := p.tiles() * vecTileSteps * p.Matrix.StepCols() * quant.BlockRows
	n := ceilDiv(codes*(1+p.Planes), SIMDWidth) + 100
	if p.GateUp {
		n *= 2
	}
	return n
}

// mostBlocks returns the number of blocks of results of a group from which on
// the input takes next to nothing of its time. With more the groups only get too few.
func (p *vecProduct) mostBlocks(a *vecArgs) int { return ceilDiv(64*p.inputCost(a), p.blockCost()) }

// lay divides a group of so many blocks of results whose columns are shared by
// so many SIMD groups, in the way that costs least besides the products.
func (p *vecProduct) lay(a *vecArgs, groupBlocks, splits, sharedBytes int) (division vecDivision, l launch, ok bool) {
	teams := min(groupBlocks, vecSIMDs/splits)
	rounds := ceilDiv(groupBlocks, teams)
	teams = ceilDiv(groupBlocks, rounds) // all with as many blocks, if possible
	l.Threads = teams * splits * SIMDWidth
	tiles := p.tiles()
	least := 0
	for chunk := 1; chunk <= tiles; chunk++ {
		for _, batch := range p.batches(chunk, splits) {
			d, size := p.memory(a, groupBlocks, teams, splits, chunk, batch)
			if size > min(sharedBytes, pairSharedBytes) {
				continue
			}
			cost := 0
			for first := 0; first < tiles; first += chunk {
				cost++ // all wait for digits
				for at := first; at < min(first+chunk, tiles); at += batch {
					cost += 4 * ceilDiv(min(batch, first+chunk-at, tiles-at), splits) // of a share
					if p.Matrix.Group > 0 && splits > 1 {
						cost++ // for groups of columns
					}
				}
			}
			if chunk < tiles && (rounds > 1 || p.GateUp) {
				cost += 100 // digits are made anew for each block
			}
			if size > trioSharedBytes && a.groups(groupBlocks) > 2*vecCores {
				cost += 3 // some groups wait for others to end
			}
			if least == 0 || cost < least || cost == least && size < l.SharedBytes {
				least, division, l.SharedBytes = cost, d, size
			}
		}
	}
	return division, l, least > 0
}

// batches lists after how many tiles of a chunk its groups of columns may be added up.
func (p *vecProduct) batches(chunk, splits int) (all []int) {
	switch {
	case p.Matrix.Group == 0:
		return []int{chunk}
	case splits == 1:
		return []int{1} // a SIMD group waits for itself only
	}
	for batch := splits; batch < chunk; batch += splits {
		all = append(all, batch)
	}
	return append(all, chunk)
}

// memory lays out the memory of a group and returns its size. What is computed
// takes the place of the input where that is no longer needed. Gate and up take
// turns with their digits where these are made anew all the time.
func (p *vecProduct) memory(a *vecArgs, groupBlocks, teams, splits, chunk, batch int) (vecDivision, int) {
	d := vecDivision{GroupBlocks: uint32(groupBlocks), Splits: uint32(splits), Chunk: uint32(chunk), Batch: uint32(batch)}
	size := 2 * chunk * vecTileSteps * p.Matrix.StepCols() * p.Planes
	d.GroupSums = uint32(vecDigitsAt + size)
	work := 0
	switch {
	case p.Matrix.Group > 0:
		groups := vecTileSteps * p.Matrix.StepCols() / p.Matrix.Group // of a tile
		size += 4 * p.Planes * chunk * groups
		work = 4 * teams * batch * groups * quant.BlockRows
	case splits > 1:
		work = 4 * teams * splits * p.Planes * SIMDWidth
	}
	if p.differs(a) && chunk == p.tiles() {
		d.Second = uint32(size)
		size *= 2
	}
	at := vecDigitsAt + alignUp(max(size, 4*int(a.Heads)*(2*vecBlocks+2)), 16)
	results := 0
	if a.Peaks != 0 {
		results = 4 * groupBlocks * quant.BlockRows
	}
	input := 0
	if a.computed() {
		input = alignUp(4*p.Matrix.Cols, 16)
	}
	d.Input, d.Work = uint32(at), uint32(at)
	if chunk < p.tiles() {
		d.Work += uint32(input)
	}
	d.Results = d.Work + uint32(work)
	return d, max(at+input, int(d.Results)+results)
}
