package gemma4

import (
	"context"

	"github.com/zoo-sdk/zoo/zoo/packing"
)

// source reads one layout of checkpoints. What a module holds and where it goes in
// the pack is the family's business; how it is stored in the checkpoint is the source's.
type source interface {
	// weights returns the weights of a linear layer or a table in the format that
	// the pack keeps them in, or nil if the checkpoint has none of that name. Scales
	// that the checkpoint has are checked; what is wrong with single numbers comes up
	// when their row is read.
	weights(ctx context.Context, m module) (*packing.Matrix, error)
	// vector returns the weights of a norm, exact in float32 and finite.
	vector(m module) ([]float32, error)
	// number returns a single number and whether there is one.
	number(c constant) (float32, bool, error)
	// rounding returns the static grids around a linear layer, 0 where there is none.
	rounding(m module) (in, out float32, err error)
	// finish reports a tensor of the decoder that nothing has asked for.
	finish() error
	// files names the files of the checkpoint that hold weights, and that say where they are.
	files() []string
}
