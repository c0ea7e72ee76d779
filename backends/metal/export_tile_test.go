package metal

// The arguments of the kernels for products, and what follows from a product's shape.
type (
	QuantizeArgs = quantizeArgs
	BF16Args     = bf16Args
	TileArgs     = tileArgs
	TileProduct  = tileProduct
)

var (
	EncodeArgs     = encodeArgs
	PaddedCols     = paddedCols
	QuantizeLaunch = (*quantizeArgs).launch
	BF16Launch     = (*bf16Args).launch
	TileName       = (*tileProduct).name
	TileLaunch     = (*tileProduct).launch
	TileNewArgs    = (*tileProduct).args
	TileGroup      = (*tileProduct).group
	TileShared     = (*tileProduct).shared
)
