// Package kernels holds the inner loops of the CPU backend for each instruction set.
//
// A [Set] is one implementation of all of them. The plain Go ones, which run
// everywhere, define to the bit what the others compute; every loop of the
// others is compared with them by ==. Which sets this machine runs is told by
// [Variants]; [Best] is what is taken without a wish.
//
// The assembly is generated: see backends/cpu/_generate.
package kernels

//go:generate go -C ../_generate run . ../kernels
