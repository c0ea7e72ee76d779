package litertlm

import (
	"encoding/binary"
	"fmt"
	"math"
)

const (
	// maxStringBytes bounds a string: names of merged operations can have some kilobytes.
	maxStringBytes = 1 << 20
	// maxTextBytes bounds all strings together, which are copied, unlike the numbers.
	maxTextBytes = 64 << 20
	// maxTables bounds the tables of a FlatBuffer: a large decoder has some hundred thousand.
	maxTables = 1 << 20
)

// flatbuffer reads a FlatBuffer with every access checked. It keeps the first
// error; after one, all reads give zeros, so that errors can be looked at in the end.
type flatbuffer struct {
	data []byte
	// budget is how many bytes may still be read. Parts of a sound FlatBuffer are
	// read once, but for strings that are shared; without a limit, a small file
	// whose offsets all point to the same place could cost any amount of memory.
	budget int
	// tables counts the tables that were read, textBytes the bytes of strings.
	tables, textBytes int
	err               error
}

// table is one table of a FlatBuffer; its zero value has no fields.
type table struct {
	f *flatbuffer
	// at and size are the place and the size of the fields within the table, vtable
	// and slots those of the list of their places.
	at, size, vtable, slots int
}

// newFlatbuffer prepares to read data.
func newFlatbuffer(data []byte) *flatbuffer {
	budget := math.MaxInt
	if len(data) < math.MaxInt/4 {
		budget = 2*len(data) + 1024
	}
	return &flatbuffer{data: data, budget: budget}
}

// fail records the first error.
func (f *flatbuffer) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

// spend takes n bytes of the budget.
func (f *flatbuffer) spend(n int) bool {
	if f.err != nil {
		return false
	}
	if n > f.budget {
		f.fail("its parts overlap: they add up to more than the whole")
		return false
	}
	f.budget -= n
	return true
}

// within reports whether size bytes at at are inside of the data.
func (f *flatbuffer) within(at, size int) bool {
	return at >= 0 && size >= 0 && at <= len(f.data) && size <= len(f.data)-at
}

// u16 reads a number that is known to be within the data.
func (f *flatbuffer) u16(at int) int { return int(binary.LittleEndian.Uint16(f.data[at:])) }

// u32 reads a number that is known to be within the data.
func (f *flatbuffer) u32(at int) uint32 { return binary.LittleEndian.Uint32(f.data[at:]) }

// root returns the outermost table.
func (f *flatbuffer) root() table {
	if !f.within(0, 4) {
		f.fail("%d bytes are too few", len(f.data))
		return table{}
	}
	return f.follow(0)
}

// follow returns the table that the offset at at leads to.
func (f *flatbuffer) follow(at int) table {
	if f.err != nil {
		return table{}
	}
	to := int64(at) + int64(f.u32(at))
	if to > int64(len(f.data))-4 {
		f.fail("a table at byte %d of %d", to, len(f.data))
		return table{}
	}
	t := table{f: f, at: int(to)}
	vtable := to - int64(int32(f.u32(t.at)))
	if vtable < 0 || vtable > int64(len(f.data))-4 {
		f.fail("the table at byte %d has its fields listed at byte %d of %d", to, vtable, len(f.data))
		return table{}
	}
	t.vtable = int(vtable)
	t.slots, t.size = f.u16(t.vtable), f.u16(t.vtable+2)
	if t.slots < 4 || t.slots%2 != 0 || !f.within(t.vtable, t.slots) || t.size < 4 || !f.within(t.at, t.size) {
		f.fail("the table at byte %d, with %d bytes and %d for the places of its fields, does not fit in %d", to, t.size, t.slots, len(f.data))
		return table{}
	}
	if f.tables++; f.tables > maxTables {
		f.fail("more than %d tables", maxTables)
	}
	if !f.spend(4) {
		return table{}
	}
	return t
}

// field returns the place of a field of that many bytes, and false if it has its default.
func (t table) field(slot, size int) (int, bool) {
	if t.f == nil || t.f.err != nil || 4+2*slot+2 > t.slots {
		return 0, false
	}
	offset := t.f.u16(t.vtable + 4 + 2*slot)
	switch {
	case offset == 0:
		return 0, false
	case offset < 4 || offset+size > t.size:
		t.f.fail("field %d of the table at byte %d lies outside of it", slot, t.at)
		return 0, false
	}
	return t.at + offset, true
}

// byteAt returns a field of one byte, 0 by default.
func (t table) byteAt(slot int) byte {
	at, ok := t.field(slot, 1)
	if !ok {
		return 0
	}
	return t.f.data[at]
}

// number16 returns a field of two bytes, 0 by default.
func (t table) number16(slot int) uint16 {
	at, ok := t.field(slot, 2)
	if !ok {
		return 0
	}
	return binary.LittleEndian.Uint16(t.f.data[at:])
}

// number32 returns a field of four bytes, 0 by default.
func (t table) number32(slot int) uint32 {
	at, ok := t.field(slot, 4)
	if !ok {
		return 0
	}
	return t.f.u32(at)
}

// number64 returns a field of eight bytes, 0 by default.
func (t table) number64(slot int) uint64 {
	at, ok := t.field(slot, 8)
	if !ok {
		return 0
	}
	return binary.LittleEndian.Uint64(t.f.data[at:])
}

// child returns a field that is a table.
func (t table) child(slot int) table {
	at, ok := t.field(slot, 4)
	if !ok {
		return table{}
	}
	return t.f.follow(at)
}

// vector returns the place and the length of a field that is a vector.
func (t table) vector(slot, elementBytes int) (at, n int) {
	at, ok := t.field(slot, 4)
	if !ok {
		return 0, 0
	}
	to := int64(at) + int64(t.f.u32(at))
	if to > int64(len(t.f.data))-4 {
		t.f.fail("a vector at byte %d of %d", to, len(t.f.data))
		return 0, 0
	}
	count := int64(t.f.u32(int(to)))
	if count > (int64(len(t.f.data))-to-4)/int64(elementBytes) {
		t.f.fail("the vector at byte %d has %d elements of %d bytes, which is more than follows", to, count, elementBytes)
		return 0, 0
	}
	if !t.f.spend(4 + int(count)*elementBytes) {
		return 0, 0
	}
	return int(to) + 4, int(count)
}

// bytes returns a field that is a vector, as a slice of the data.
func (t table) bytes(slot, elementBytes int) []byte {
	at, n := t.vector(slot, elementBytes)
	if n == 0 {
		return nil
	}
	end := at + n*elementBytes
	return t.f.data[at:end:end]
}

// text returns a field that is a string.
func (t table) text(slot int) string {
	b := t.bytes(slot, 1)
	if len(b) == 0 {
		return ""
	}
	t.f.textBytes += len(b)
	switch {
	case len(b) > maxStringBytes:
		t.f.fail("a string of %d bytes, at most %d are allowed", len(b), maxStringBytes)
		return ""
	case t.f.textBytes > maxTextBytes:
		t.f.fail("more than %d bytes of strings", maxTextBytes)
		return ""
	}
	return string(b)
}

// integers returns a field that is a vector of at most most 32-bit numbers; what says what they are.
func integers[T int | int32](t table, slot, most int, what string) []T {
	b := t.bytes(slot, 4)
	switch n := len(b) / 4; {
	case n == 0:
		return nil
	case n > most:
		t.f.fail("%d %s, at most %d are allowed", n, what, most)
		return nil
	}
	numbers := make([]T, len(b)/4)
	for i := range numbers {
		numbers[i] = T(int32(binary.LittleEndian.Uint32(b[4*i:])))
	}
	return numbers
}

// tables returns a field that is a vector of tables, which are not more than may
// still be read. Each is checked when it is asked for.
func (t table) tables(slot int) tableVector {
	at, n := t.vector(slot, 4)
	if n > 0 && n > maxTables-t.f.tables {
		t.f.fail("more than %d tables", maxTables)
		n = 0
	}
	return tableVector{f: t.f, at: at, n: n}
}

// tableVector is a vector of tables.
type tableVector struct {
	f     *flatbuffer
	at, n int
}

// get returns table i, which lies in 0 to n-1.
func (v tableVector) get(i int) table { return v.f.follow(v.at + 4*i) }
