// Package metal runs programs on Apple GPUs.
//
// The kernels are written in the Metal Shading Language and embedded. A
// compiler turns a program into lists of dispatches once; an executor replays
// them. What it needs of a device is the small interface [Driver], of which
// there is an implementation over Apple's frameworks and, in package
// metaltest, one that runs the very same kernels on the processor.
package metal
