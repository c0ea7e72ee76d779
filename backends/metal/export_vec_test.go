package metal

// The arguments of the kernels for products of a single row, and how they are divided.
type (
	VecArgs    = vecArgs
	VecPart    = vecPart
	VecProduct = vecProduct
)

var (
	VecName   = (*vecProduct).name
	VecFits   = (*vecProduct).fits
	VecDivide = (*vecProduct).divide
	VecLay    = (*vecProduct).lay
	VecGroups = (*vecArgs).groups
)

// VecDivideAs sets a division in arguments.
func VecDivideAs(a *VecArgs, d vecDivision) { a.vecDivision = d }
