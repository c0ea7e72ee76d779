package cpu

import (
	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/program"
)

// slot is the memory of one sequence.
type slot struct {
	used   bool
	length int
	// high is one more than the highest position written since the slot was empty; rings have lost what lies a ring before it.
	high   int
	caches []cache
}

// cache holds keys and values of one program.Cache in pages of 256 positions,
// so that a page is a block of attention. A full cache has as many pages as
// it needs; a ring goes round in a fixed number.
type cache struct {
	program.Cache
	int8  bool
	ring  int // number of pages, 0 for a full cache
	pages []page
}

// page holds [KVHeads, 256, HeadDim] keys and as many values, as float32 or codes.
type page struct {
	keys, values         []float32
	keyCodes, valueCodes []int8
}

// newCaches returns the empty caches of a slot.
func (e *executor) newCaches() []cache {
	caches := make([]cache, len(e.p.Caches))
	for i, c := range e.p.Caches {
		caches[i] = cache{Cache: c, int8: e.opts.Cache == backends.CacheInt8}
		if c.Window > 0 {
			caches[i].ring = (c.Window + e.opts.MaxRows + backends.BlockPositions - 1) / backends.BlockPositions
		}
	}
	return caches
}

// page returns the page that holds a position.
func (c *cache) page(pos int) *page {
	i := pos / backends.BlockPositions
	if c.ring > 0 {
		i %= c.ring
	}
	return &c.pages[i]
}

// grow makes room for a position and returns the bytes allocated.
func (c *cache) grow(pos int) (added int64) {
	need := pos/backends.BlockPositions + 1
	if c.ring > 0 {
		need = min(need, c.ring)
	}
	n := c.KVHeads * backends.BlockPositions * c.HeadDim
	for len(c.pages) < need {
		var p page
		if c.int8 {
			p.keyCodes, p.valueCodes = make([]int8, n), make([]int8, n)
			added += 2 * int64(n)
		} else {
			p.keys, p.values = make([]float32, n), make([]float32, n)
			added += 8 * int64(n)
		}
		c.pages = append(c.pages, p)
	}
	return added
}

// covers reports whether a ring that has been written up to high still holds
// what attention needs at position n.
func (c *cache) covers(n, high int) bool {
	if c.ring == 0 {
		return true
	}
	lost := high - c.ring*backends.BlockPositions // positions below this are overwritten
	return lost <= max(0, n-c.Window+1)
}

// store is the task of program.Store; a unit is a row.
type store struct {
	e          *executor
	cache      program.CacheID
	key, value program.BufferID
}

// size implements task.
func (s *store) size() (units, work int) { return s.e.live, 4 * s.e.live * s.e.buf[s.key].cols }

// do implements task.
func (s *store) do(_, first, end int) {
	for r := first; r < end; r++ {
		row := s.e.rows[r]
		c := &s.e.slots[row.Slot].caches[s.cache]
		p := c.page(row.Pos)
		key, value := s.e.row(s.key, r), s.e.row(s.value, r)
		for h := range c.KVHeads {
			at := (h*backends.BlockPositions + row.Pos%backends.BlockPositions) * c.HeadDim
			k, v := key[h*c.HeadDim:][:c.HeadDim], value[h*c.HeadDim:][:c.HeadDim]
			if !c.int8 {
				copy(p.keys[at:], k)
				copy(p.values[at:], v)
				continue
			}
			s.e.kernels.RoundInt8(p.keyCodes[at:], k, c.KeyScale)
			s.e.kernels.RoundInt8(p.valueCodes[at:], v, c.ValueScale)
		}
	}
}

// bytes returns the memory of all pages.
func (c *cache) bytes() int64 {
	n := 2 * int64(len(c.pages)) * int64(c.KVHeads*backends.BlockPositions*c.HeadDim)
	if !c.int8 {
		n *= 4
	}
	return n
}
