// Package gguf reads GGUF files, in which llama.cpp and its kin keep a model: its
// numbers, quantised or not, its settings and its vocabulary in one file.
//
//	dir, name -> Open ----> File -> Value(key), Uint(key), Texts(key), ...
//	bytes     -> Parse -/        -> Tensor(name) -> Decode     -> codes, scales, minimums
//	                                             -> Dequantize -> float32
//	                             -> Vocabulary   -> tokenizer.CompilePieces
//
// Nothing of the file is copied: the data of a tensor is a slice of it, and so is a
// value until it is asked for.
//
// # Format
//
// All numbers are little-endian. A file starts with "GGUF", a 32-bit version and the
// 64-bit numbers of tensors and of keys. Keys with their values follow, then for each
// tensor its name, its dimensions, the fastest first, its number type, and where
// its data lies, counted from the end of this header and a multiple of the alignment,
// which "general.alignment" gives. Texts have their length before them. Versions 2
// and 3 are the same but for byte order: big-endian files are not read.
//
// # Quantised rows
//
// A row of a quantised tensor is a list of blocks of 32 or 256 columns. For every type
// that this package decodes, a number of a block is
//
//	code*scale - minimum
//
// with an integer code for each column, and a scale and perhaps a minimum for each
// group of 32 or, in q6_k, 16 columns. [Tensor.Decode] gives these without loss: scales
// and minimums that are products of a half and a 6 or 8 bit number are exact in
// float32. So is code*scale, in which 11, 7 and 5 bits meet at most. Only where a minimum is
// subtracted is a number rounded, and once, so all implementations agree to the bit.
//
// # Hostile files
//
// Every length and every offset is checked against the length of the file before it is
// used, and counts are bounded. Tensors lie within the file and overlap nowhere, names
// and keys are unique. Errors about a file's content are *FormatError, those about types
// that are not known or not decoded *TypeError, those about a key a model needs *KeyError.
package gguf
