// Package program describes a decoder as data: a flat list of operations over
// named buffers.
//
// A plugin records a [Program] once from a model's configuration; a backend
// compiles it once and replays it for every step. Shapes, weights and buffers
// are fixed in the program. What changes from step to step is the batch: up to
// M rows, each with a token, a cache slot, a position and whether it wants
// logits. Operations work on every live row of the batch until a [Select],
// after which only the rows that want logits go on: what lies behind the last
// operation that writes a cache is of no use to any other row.
//
// A program knows no device, and it holds no weights, only their names and
// shapes in a pack. It can be serialised with [Encode] and comes back, checked
// down to the last index, with [Decode]: that is how a plugin in another
// process runs a model on the host's backend.
//
// # Arithmetic
//
// The operations are defined to the bit, so that every backend and every path
// gives the same numbers; package backends states how.
package program
