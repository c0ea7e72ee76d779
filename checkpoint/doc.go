// Package checkpoint reads and writes folders of weights as they are published:
// safetensors files, alone or in shards with an index, and the small files
// beside them.
//
//	dir -> Open -> Checkpoint -> Tensor(name) -> bytes of the mapped file
//
// [Open] maps the files and copies nothing: a tensor's data is a slice of the
// mapping. Before the first tensor is handed out every header is checked down
// to the last offset, since these files come from outside: sizes are capped,
// names are unique, shapes do not overflow, and the tensors cover the data
// exactly, without gaps and without overlaps.
//
// [NewLayout] and [NewWriter] go the other way: all tensors are declared first,
// so that the header and all offsets are known, and then their data is streamed.
//
// # The library underneath
//
// This is the only package that imports nlpodyssey/safetensors, of which it uses
// the number types with their sizes, and the encoding of a header's entries. It
// reads headers itself: the library takes the last of two tensors of one name,
// its views do not notice shapes that overflow, its errors cannot be told
// apart, and it wants the data of all tensors in memory to write them. The
// tests hold both against each other: what this package accepts or writes, the
// library reads in the same way.
//
//	c, err := checkpoint.Open("gemma-4-E2B")
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	norm, ok := c.Tensor("model.language_model.norm.weight")
package checkpoint
