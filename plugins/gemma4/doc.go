// Package gemma4 knows the Gemma 4 family: how its checkpoints are laid out and
// how its text decoder runs.
//
//	config.json -> ParseConfig -> Config
//	checkpoint  -> Convert     -> pack
//	pack        -> Record      -> program
//	golden.*    -> Gate        -> reference runs
//
// Everything follows from config.json; nothing about one model is written into
// code. The plugins gemma4e2b and its siblings are thin layers over this package:
// they give it a name and a version.
//
// # Conversion
//
// What a pack holds is the family's business: the groups of modules that a step
// reads together (modules.go) and how their rows lie in one tensor (plan.go,
// stream.go). How a checkpoint stores a module is the business of a source: that
// of the official mobile checkpoints, packed codes with static activation scales,
// is in mobile.go, that of floats in floats.go, and that of LiteRT-LM, the same
// codes in a .litertlm file, in litertlm.go.
//
// Names in a pack are those of the checkpoint without "model.language_model." and
// ".weight". Matrices that take the same input lie together if their formats are
// equal: self_attn.qkv_proj, with q, k and v one after another, each filled up to
// a multiple of 16 rows; mlp.gate_up_proj, with blocks of 16 rows of gate and up
// in turn. The head is stored as lm_head only if it differs from the embedding.
// Single numbers are constants of the manifest: layer scalars, scales of the
// caches, and static activation scales that are not 0.
package gemma4
