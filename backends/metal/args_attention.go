package metal

import "github.com/zoo-sdk/zoo/backends"

const (
	// maxHeadDim is the longest head that the attention kernels take.
	maxHeadDim = 512
	// attentionThreads is the number of threads of a group that goes through the blocks of a row.
	attentionThreads = 128
	// vecAttentionThreads is the number of threads of a group that computes one block of a single row.
	vecAttentionThreads = 256
	// combineThreads is the number of threads that put the blocks of a head together.
	combineThreads = 128
	// enoughGroups is the number of groups from which on a GPU is busy.
	enoughGroups = 24
	// headStateBytes is the size of HeadState.
	headStateBytes = 32
)

// launch is the grid of a kernel.
type launch struct {
	// Groups is the number of threadgroups in each direction.
	Groups [3]int
	// Threads is the number of threads of a group.
	Threads int
	// SharedBytes is the size of the memory of a group.
	SharedBytes int
}

// attentionArgs is AttentionArgs: what attention_float, attention_half and attention_int8 take.
type attentionArgs struct {
	Heads, KVHeads, Dim uint32
	Window              uint32 // positions that a row sees, 0 for all
	Table, Ring         uint32 // where the cache begins in a slot's part of the page table, and the pages of a ring or 0
	HeadsPerGroup       uint32 // of headsPerGroup
	Scale               float32
	KeyScale            float32
	ValueScale          float32
}

// headsPerGroup returns how many heads that share keys a group of an attention
// takes, if it has so many rows or blocks: more read less, but there must be groups enough.
func headsPerGroup(heads, kvHeads, times int) int {
	for _, n := range []int{4, 2} {
		if heads/kvHeads%n == 0 && heads/n*times >= enoughGroups {
			return n
		}
	}
	return 1
}

// sharedBytes returns the memory of a group besides what a kernel adds.
func (a *attentionArgs) sharedBytes(cache backends.CacheType, threads int) int {
	n := headStateBytes + 4*backends.BlockPositions + 4*alignUp(int(a.Dim), 16)
	n *= int(a.HeadsPerGroup)
	if cache == backends.CacheInt8 {
		n += 32 * threads
	}
	return n
}

// launch returns the grid for so many rows of a prompt.
func (a *attentionArgs) launch(cache backends.CacheType, rows int) launch {
	return launch{
		Groups:      [3]int{int(a.Heads / a.HeadsPerGroup), rows, 1},
		Threads:     attentionThreads,
		SharedBytes: alignUp(a.sharedBytes(cache, attentionThreads)+4*int(a.HeadsPerGroup*a.Dim), 16),
	}
}

// vecAttentionArgs is VecAttentionArgs: what vec_attention_float, vec_attention_half and vec_attention_int8 take.
type vecAttentionArgs struct {
	Attention                  attentionArgs
	Owner                      uint32 // 1 if key and value are new, 0 if they are in the cache
	QueryWeighted, KeyWeighted uint32 // 1 if these norms have weights
	QueryEps, KeyEps, ValueEps float32
	AngleCols, AngleFirst      uint32 // of the table of sines and cosines, and where those of the rotation begin
	Totals                     uint32 // how far behind the largest scores the totals begin, in floats
}

// launch returns the grid for a row that sees at most so many blocks.
func (a *vecAttentionArgs) launch(cache backends.CacheType, blocks int) launch {
	return launch{
		Groups:      [3]int{int(a.Attention.Heads / a.Attention.HeadsPerGroup), blocks, 1},
		Threads:     vecAttentionThreads,
		SharedBytes: alignUp(a.Attention.sharedBytes(cache, vecAttentionThreads)+8*int(a.Attention.Dim), 16),
	}
}

// vecCombineArgs is VecCombineArgs: what vec_combine takes.
type vecCombineArgs struct {
	Heads, Dim uint32
	Window     uint32 // as of the attention
	Totals     uint32 // likewise
}

// launch returns the grid.
func (a *vecCombineArgs) launch() launch {
	return launch{
		Groups: [3]int{int(a.Heads), 1, 1}, Threads: combineThreads,
		SharedBytes: 12*combineThreads + 4*combineThreads/SIMDWidth,
	}
}
