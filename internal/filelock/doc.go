// Package filelock keeps two processes, or two goroutines, from doing the same
// work in the same folder at once.
//
// A lock is an advisory lock of the operating system on a file that is never
// removed; it vanishes with the process that holds it, however that ends. It binds
// only those who ask for it.
package filelock
