package metal

import (
	"encoding/binary"
	"fmt"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/program"
)

const (
	// pageUnit is what offsets in the arena are multiples of, and counted in.
	pageUnit = 256
	// firstArena is the size of the arena at first, and leastArena what it grows by where it cannot be doubled.
	firstArena, leastArena = 1 << 20, 64 << 20
)

// caches is the memory of all slots' keys and values: pages of 256 positions in
// one arena, and a table that says where each page of each slot lies.
type caches struct {
	memory *allocator
	list   []cacheLayout
	// entries is the length of a slot's part of the table.
	entries int

	arena, table Buffer
	used         int           // of the arena; what lies behind is untouched
	free         map[int][]int // offsets of pages given back, by size
	slots        [][]bool      // of each slot: which entries of its part of the table have a page
}

// cacheLayout is one program.Cache.
type cacheLayout struct {
	program.Cache
	first     int // in a slot's part of the table
	ring      int // number of pages, 0 for a full cache
	pageBytes int
}

// elementBytes returns the size of a number of a cache.
func elementBytes(t backends.CacheType) int {
	switch t {
	case backends.CacheInt8:
		return 1
	case backends.CacheHalf:
		return 2
	}
	return 4
}

// newCaches lays the table out; rows is the most positions that are written at once.
func newCaches(m *allocator, p *program.Program, o backends.Options, rows int) (*caches, error) {
	c := &caches{memory: m, free: map[int][]int{}}
	for _, k := range p.Caches {
		l := cacheLayout{
			Cache: k, first: c.entries, ring: backends.RingPages(k.Window, rows),
			pageBytes: 2 * k.KVHeads * k.HeadDim * backends.BlockPositions * elementBytes(o.Cache),
		}
		full := (o.Context + backends.BlockPositions - 1) / backends.BlockPositions
		if l.ring == 0 {
			c.entries += full
		} else {
			l.ring = min(l.ring, full)
			c.entries += l.ring
		}
		c.list = append(c.list, l)
	}
	var err error
	if c.arena, err = m.alloc(firstArena); err != nil {
		return nil, fmt.Errorf("caches: %w", err)
	}
	if c.table, err = m.alloc(max(4*c.entries, 4)); err != nil {
		m.free(c.arena)
		return nil, fmt.Errorf("caches: %w", err)
	}
	return c, nil
}

// release frees everything.
func (c *caches) release() {
	c.memory.free(c.arena)
	c.memory.free(c.table)
}

// open makes room for a slot in the table. It reports whether buffers were replaced.
func (c *caches) open(slot backends.Slot) (moved bool, err error) {
	for len(c.slots) <= int(slot) {
		c.slots = append(c.slots, make([]bool, c.entries))
	}
	if need := 4 * c.entries * len(c.slots); need > len(c.table.Bytes()) {
		return true, c.replace(&c.table, 2*need, len(c.table.Bytes()))
	}
	return false, nil
}

// replace makes a buffer larger and keeps its first bytes.
func (c *caches) replace(b *Buffer, size, keep int) error {
	larger, err := c.memory.alloc(size)
	if err != nil {
		return fmt.Errorf("caches: %w", err)
	}
	copy(larger.Bytes(), (*b).Bytes()[:keep])
	c.memory.free(*b)
	*b = larger
	return nil
}

// close gives the pages of a slot back, and returns how many bytes they have.
func (c *caches) close(slot backends.Slot) (freed int64) {
	for n, l := range c.list {
		end := c.entries
		if n+1 < len(c.list) {
			end = c.list[n+1].first
		}
		for i := l.first; i < end; i++ {
			if c.slots[slot][i] {
				c.free[l.pageBytes] = append(c.free[l.pageBytes], int(c.entry(slot, i))*pageUnit)
				c.slots[slot][i] = false
				freed += int64(l.pageBytes)
			}
		}
	}
	return freed
}

// first returns where a slot's part of the table begins.
func (c *caches) first(slot backends.Slot) int { return int(slot) * c.entries }

// entry returns an entry of the table.
func (c *caches) entry(slot backends.Slot, i int) uint32 {
	return binary.LittleEndian.Uint32(c.table.Bytes()[4*(c.first(slot)+i):])
}

// grow makes room for a position of a slot in every cache. It returns the bytes
// taken and whether buffers were replaced. What it has taken stays the slot's when it fails.
func (c *caches) grow(slot backends.Slot, pos int) (added int64, moved bool, err error) {
	for i := range c.list {
		l := &c.list[i]
		block := pos / backends.BlockPositions
		if l.ring > 0 {
			block %= l.ring
		}
		at := l.first + block
		if c.slots[slot][at] {
			continue
		}
		offset, replaced, err := c.take(l.pageBytes)
		moved = moved || replaced
		if err != nil {
			return added, moved, err
		}
		c.slots[slot][at] = true
		binary.LittleEndian.PutUint32(c.table.Bytes()[4*(c.first(slot)+at):], uint32(offset/pageUnit))
		added += int64(l.pageBytes)
	}
	return added, moved, nil
}

// take returns the offset of a free page.
func (c *caches) take(size int) (offset int, moved bool, err error) {
	if list := c.free[size]; len(list) > 0 {
		c.free[size] = list[:len(list)-1]
		return list[len(list)-1], false, nil
	}
	if need := c.used + size; need > len(c.arena.Bytes()) {
		if err := c.replace(&c.arena, max(2*len(c.arena.Bytes()), need), c.used); err != nil {
			// Twice as much may not be there where less would do, for a while or just once.
			if c.replace(&c.arena, need+leastArena, c.used) != nil {
				if err := c.replace(&c.arena, need, c.used); err != nil {
					return 0, false, err
				}
			}
		}
		moved = true
	}
	offset = c.used
	c.used += size
	return offset, moved, nil
}
