package metal

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/zoo-sdk/zoo/backends"
)

// Results returns how many bytes a product with a single row writes of its output: its parts may lie far apart.
func Results(d Dispatch) int {
	var a vecArgs
	if err := binary.Read(bytes.NewReader(d.Args), binary.LittleEndian, &a); err != nil {
		panic(fmt.Sprintf("arguments of %s: %v", d.Kernel, err)) // a wrong test
	}
	total := 0
	for _, part := range a.Part[:a.Parts] {
		total += 4 * int(part.Rows)
	}
	return total
}

// Decode returns the dispatches of a token at a position and of its pick, and
// what each of the first is in a profile.
func Decode(x backends.Executor, pos int) (decode, pick []Dispatch, ops []backends.OpProfile, err error) {
	e := x.(*executor)
	d, err := e.recorded(e.decodeKey(pos))
	if err != nil {
		return nil, nil, nil, err
	}
	s, err := e.recorded(listKey{kind: sampleList})
	if err != nil {
		return nil, nil, nil, err
	}
	return d.dispatches[0], s.dispatches[0], d.ops, nil
}
