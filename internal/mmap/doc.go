// Package mmap maps whole files into memory for reading, so that gigabytes of
// weights cost no heap and are shared between processes.
//
// A mapped file must keep its length: when somebody else truncates it, touching the
// pages beyond the new end is a fault that ends the program (SIGBUS on Unix), and no
// error can report it. Files of a store are therefore read-only and are replaced by
// renaming, which leaves existing mappings of the old file intact.
package mmap
