// Package cpu runs programs on the processor.
//
// Compile turns each operation of a program into a task with its buffers and
// weights bound; a step replays the tasks in order. A task divides its work
// into units (blocks of matrix rows, rows of a norm, heads and blocks of
// attention), never the inside of a sum, and a pool of threads shares the units.
// Nothing is allocated in a step but what a longer context takes now and then:
// a page of cache, and room for the sums of its blocks.
//
// The inner loops are those of package kernels: plain Go, complete and exact as
// package backends defines it, and assembly that gives the same bits.
package cpu
