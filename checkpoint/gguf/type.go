package gguf

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// Type is the number type of a tensor.
type Type uint32

// The number types that are decoded; of the others only the size is known.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
	BF16 Type = 30
)

// Coding says what the codes, scales and minimums of a quantised type are like.
type Coding struct {
	// Low and High bound the codes.
	Low, High int
	// Group is the number of neighbouring columns that share a scale and a minimum.
	Group int
	// HalfScales says that each scale, and each minimum, is exact in an IEEE 754 half.
	HalfScales bool
	// Minimums says that a minimum is subtracted.
	Minimums bool
}

// typeInfo describes a type.
type typeInfo struct {
	name string
	// cols numbers lie in bytes bytes.
	cols, bytes int
	// coding is nil for floats and for what is not decoded.
	coding *Coding
	// decode writes the codes, scales and minimums of one block.
	decode func(codes []byte, scales, minimums []float32, block []byte)
}

// types lists the types of the format. What is not decoded is in it, as the size of
// every tensor must be known to tell whether tensors overlap.
var types = map[Type]typeInfo{
	F32:  {name: "F32", cols: 1, bytes: 4},
	F16:  {name: "F16", cols: 1, bytes: 2},
	BF16: {name: "BF16", cols: 1, bytes: 2},
	Q4_0: {"Q4_0", 32, 18, &Coding{Low: -8, High: 7, Group: 32, HalfScales: true}, decodeQ4_0},
	Q4_1: {"Q4_1", 32, 20, &Coding{High: 15, Group: 32, HalfScales: true, Minimums: true}, decodeQ4_1},
	Q5_0: {"Q5_0", 32, 22, &Coding{Low: -16, High: 15, Group: 32, HalfScales: true}, decodeQ5_0},
	Q5_1: {"Q5_1", 32, 24, &Coding{High: 31, Group: 32, HalfScales: true, Minimums: true}, decodeQ5_1},
	Q8_0: {"Q8_0", 32, 34, &Coding{Low: -128, High: 127, Group: 32, HalfScales: true}, decodeQ8_0},
	Q4_K: {"Q4_K", 256, 144, &Coding{High: 15, Group: 32, Minimums: true}, decodeQ4_K},
	Q5_K: {"Q5_K", 256, 176, &Coding{High: 31, Group: 32, Minimums: true}, decodeQ5_K},
	Q6_K: {"Q6_K", 256, 210, &Coding{Low: -32, High: 31, Group: 16}, decodeQ6_K},
	9:    {name: "Q8_1", cols: 32, bytes: 40},
	10:   {name: "Q2_K", cols: 256, bytes: 84},
	11:   {name: "Q3_K", cols: 256, bytes: 110},
	15:   {name: "Q8_K", cols: 256, bytes: 292},
	16:   {name: "IQ2_XXS", cols: 256, bytes: 66},
	17:   {name: "IQ2_XS", cols: 256, bytes: 74},
	18:   {name: "IQ3_XXS", cols: 256, bytes: 98},
	19:   {name: "IQ1_S", cols: 256, bytes: 50},
	20:   {name: "IQ4_NL", cols: 32, bytes: 18},
	21:   {name: "IQ3_S", cols: 256, bytes: 110},
	22:   {name: "IQ2_S", cols: 256, bytes: 82},
	23:   {name: "IQ4_XS", cols: 256, bytes: 136},
	24:   {name: "I8", cols: 1, bytes: 1},
	25:   {name: "I16", cols: 1, bytes: 2},
	26:   {name: "I32", cols: 1, bytes: 4},
	27:   {name: "I64", cols: 1, bytes: 8},
	28:   {name: "F64", cols: 1, bytes: 8},
	29:   {name: "IQ1_M", cols: 256, bytes: 56},
	34:   {name: "TQ1_0", cols: 256, bytes: 54},
	35:   {name: "TQ2_0", cols: 256, bytes: 66},
	39:   {name: "MXFP4", cols: 32, bytes: 17},
	40:   {name: "NVFP4", cols: 64, bytes: 36},
	41:   {name: "Q1_0", cols: 128, bytes: 18},
}

// Decoded lists the types that [Tensor.Dequantize] decodes.
func Decoded() []Type {
	return slices.SortedFunc(func(yield func(Type) bool) {
		for t := range maps.Keys(types) {
			if t.decoded() && !yield(t) {
				return
			}
		}
	}, cmp.Compare[Type])
}

// decoded reports whether numbers of the type are decoded.
func (t Type) decoded() bool { return t.float() || types[t].coding != nil }

// float reports whether the type is one of the floats that are decoded.
func (t Type) float() bool { return t == F32 || t == F16 || t == BF16 }

// String returns the type's name, such as "Q4_K", or its number.
func (t Type) String() string {
	if info, ok := types[t]; ok {
		return info.name
	}
	return "type " + strconv.FormatUint(uint64(t), 10)
}

// Coding says what a row of the type consists of. It is false for floats and for types
// that are not decoded.
func (t Type) Coding() (Coding, bool) {
	if c := types[t].coding; c != nil {
		return *c, true
	}
	return Coding{}, false
}
