// Package packing turns the matrices of a checkpoint into the tensors of a pack. A plugin
// says where the numbers of each matrix come from, row by row, and which of them lie
// together; this package works out how they lie, and writes them with all processors in
// constant memory.
//
//	checkpoint.Tensor -> BF16 -> Round(grid) -\
//	GGUF, Noise, anything else -> Matrix ------> Group, NewTable -> Tensor -> Write -> pack
//	float32 -----------------------------------> NewVector --------/
//
// Beside that it has what the conversions of most families have in common: the recipe that
// names a grid ([ParseGrid]), the small files of a pack ([ReadFiles], [Tokenizer]), the
// sources that make up its identity ([Sources]), the errors of rounding ([Report]), what a
// pack is going to be ([Pack.EstimateBytes]), and packs of random weights ([Noise],
// [Pack.WriteSynthetic]).
//
// Equal matrices give equal bytes, whatever the number of processors.
package packing
