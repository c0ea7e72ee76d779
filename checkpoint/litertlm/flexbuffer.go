package litertlm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// Kinds of values in a FlexBuffer; the two lowest bits of a type are the width of a value.
const (
	flexInt           = 1
	flexUint          = 2
	flexFloat         = 3
	flexIndirectInt   = 6
	flexIndirectUint  = 7
	flexIndirectFloat = 8
	flexMap           = 9
)

// flexbuffer reads a FlexBuffer with every access checked.
type flexbuffer []byte

// unsigned reads an unsigned number of 1, 2, 4 or 8 bytes.
func (b flexbuffer) unsigned(at, width int) (uint64, bool) {
	if at < 0 || at > len(b)-width {
		return 0, false
	}
	switch width {
	case 1:
		return uint64(b[at]), true
	case 2:
		return uint64(binary.LittleEndian.Uint16(b[at:])), true
	case 4:
		return uint64(binary.LittleEndian.Uint32(b[at:])), true
	case 8:
		return binary.LittleEndian.Uint64(b[at:]), true
	}
	return 0, false
}

// follow returns the place that an offset leads to, which is before it.
func (b flexbuffer) follow(at, width int) (int, bool) {
	n, ok := b.unsigned(at, width)
	if !ok || n > uint64(at) {
		return 0, false
	}
	return at - int(n), true
}

// number reads a value of a kind and width; its slot in the map has slotWidth bytes.
func (b flexbuffer) number(kind, at, width, slotWidth int) (float64, bool) {
	switch kind {
	case flexInt, flexUint, flexFloat:
		width = slotWidth
	case flexIndirectInt, flexIndirectUint, flexIndirectFloat:
		var ok bool
		if at, ok = b.follow(at, slotWidth); !ok {
			return 0, false
		}
	default:
		return 0, false
	}
	n, ok := b.unsigned(at, width)
	switch {
	case !ok:
		return 0, false
	case kind == flexUint || kind == flexIndirectUint:
		return float64(n), true
	case kind == flexInt || kind == flexIndirectInt:
		unused := 64 - 8*width
		return float64(int64(n<<unused) >> unused), true
	case width == 4:
		return float64(math.Float32frombits(uint32(n))), true
	case width == 8:
		return math.Float64frombits(n), true
	}
	return 0, false // shorter floats are read by no library
}

// mapNumber returns the number that a FlexBuffer, which must be a map, has under a
// key, and whether it has one.
func (b flexbuffer) mapNumber(key string) (value float64, found bool, err error) {
	damaged := fmt.Errorf("its %d bytes of attributes are no map of names and values", len(b))
	if len(b) < 3 || b[len(b)-2]>>2 != flexMap {
		return 0, false, damaged
	}
	// The last byte is the width of the offset before the two, which leads to the values.
	width := 1 << (b[len(b)-2] & 3)
	rootWidth := int(b[len(b)-1])
	values, ok := b.follow(len(b)-2-rootWidth, rootWidth)
	// Before the values stand where the names are, the width of their offsets, and how many there are.
	names, okNames := b.follow(values-3*width, width)
	nameWidth, okWidth := b.unsigned(values-2*width, width)
	count, okCount := b.unsigned(values-width, width)
	most := uint64(len(b))
	if !ok || !okNames || !okWidth || !okCount || count > most || nameWidth > 8 {
		return 0, false, damaged
	}
	n, step := int(count), int(nameWidth)
	for i := range n {
		at, ok := b.follow(names+i*step, step)
		kind, okKind := b.unsigned(values+n*width+i, 1)
		if !ok || !okKind {
			return 0, false, damaged
		}
		if !bytes.HasPrefix(b[at:], []byte(key)) || !bytes.HasPrefix(b[at+len(key):], []byte{0}) {
			continue
		}
		if found {
			return 0, false, fmt.Errorf("its attribute %q occurs twice", key)
		}
		if value, found = b.number(int(kind>>2), values+i*width, 1<<(kind&3), width); !found {
			return 0, false, fmt.Errorf("its attribute %q is no number", key)
		}
	}
	return value, found, nil
}
