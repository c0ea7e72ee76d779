package metal

import (
	"encoding/binary"
	"fmt"
)

// encodeArgs returns a struct of 32-bit numbers, or of such structs, as kernels see it.
func encodeArgs(args any) []byte {
	data, err := binary.Append(nil, binary.LittleEndian, args)
	if err != nil {
		panic(fmt.Sprintf("arguments %T: %v", args, err)) // not of fixed size: a mistake in this package
	}
	return data
}
