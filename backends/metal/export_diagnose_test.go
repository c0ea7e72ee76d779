package metal

// DeclaredKernels is declaredKernels.
var DeclaredKernels = declaredKernels
