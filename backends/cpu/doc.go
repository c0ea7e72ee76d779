// Package cpu runs programs on the processor.
//
// Compile turns each operation of a program into a task with its buffers and
// weights bound; a step replays the tasks in order. A task divides its work
// into units (blocks of matrix rows, rows of a norm, heads of attention), never
// the inside of a sum, and a pool of threads shares the units. Nothing is
// allocated in a step but a page of cache now and then.
//
// The kernels are plain Go, complete and exact as package backends defines it.
package cpu
