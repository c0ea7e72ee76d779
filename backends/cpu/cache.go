package cpu

import (
	"fmt"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// cache holds keys and values of one program.Cache in pages of 256 positions,
// so that a page is a block of attention. A full cache has as many pages as
// it needs; a ring goes round in a fixed number.
type cache struct {
	program.Cache
	int8  bool
	half  bool // rounds to float16 and keeps float32
	ring  int  // number of pages, 0 for a full cache
	pages []page
}

const (
	// pageRows is the number of rows of 16 positions in a page.
	pageRows = backends.BlockPositions / quant.BlockRows
	// valueBytes is the size of the codes of 16 columns of the values of a page.
	valueBytes = backends.BlockPositions * quant.BlockRows
)

// page holds the keys and values of 256 positions for each of KVHeads: as float32
// [256, HeadDim] each, or as codes, unsigned, in blocks as package quant lays them
// out: of keys a matrix with a row for each position, of values one with a row for
// each column.
type page struct {
	keys, values         []float32
	keyCodes, valueCodes []byte
}

// keyBytes returns the size of the codes of the keys of 16 positions of a head.
func (c *cache) keyBytes() int { return (c.HeadDim + 3) / 4 * quant.StepBytes }

// valueBlocks returns the number of blocks of 16 columns of the values of a head.
func (c *cache) valueBlocks() int { return (c.HeadDim + quant.BlockRows - 1) / quant.BlockRows }

// pageBytes returns the size of the keys and of the values of a page.
func (c *cache) pageBytes() (keys, values int) {
	if !c.int8 {
		n := 4 * c.KVHeads * backends.BlockPositions * c.HeadDim
		return n, n
	}
	return c.KVHeads * pageRows * c.keyBytes(), c.KVHeads * c.valueBlocks() * valueBytes
}

// newCaches returns the empty caches of a slot.
func (e *executor) newCaches() []cache {
	caches := make([]cache, len(e.p.Caches))
	for i, c := range e.p.Caches {
		caches[i] = cache{Cache: c, int8: e.opts.Cache == backends.CacheInt8, half: e.opts.Cache == backends.CacheHalf}
		caches[i].ring = backends.RingPages(c.Window, e.opts.MaxRows)
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

// grow makes room for a position and returns the bytes allocated, or why they are refused.
func (c *cache) grow(m *memory, pos int) (added int64, err error) {
	need := pos/backends.BlockPositions + 1
	if c.ring > 0 {
		need = min(need, c.ring)
	}
	keys, values := c.pageBytes()
	// The pages of one position are taken together, or none.
	if missing := int64(max(0, need-len(c.pages))) * int64(keys+values); missing > 0 {
		if err := m.take(missing); err != nil {
			return 0, fmt.Errorf("cache %.40q at position %d: %w", c.Name, pos, err)
		}
	}
	for len(c.pages) < need {
		var p page
		if c.int8 {
			p.keyCodes, p.valueCodes = make([]byte, keys), make([]byte, values)
		} else {
			p.keys, p.values = make([]float32, keys/4), make([]float32, values/4)
		}
		added += int64(keys + values)
		c.pages = append(c.pages, p)
	}
	return added, nil
}

// store is the task of program.Store; a unit is a row.
type store struct {
	e          *executor
	cache      program.CacheID
	key, value program.BufferID
}

// prepare implements task.
func (s *store) prepare() (units, work int) { return s.e.live, 4 * s.e.live * s.e.buf[s.key].cols }

// do implements task.
func (s *store) do(worker, first, end int) {
	codes := s.e.scratch[worker].codes
	for r := first; r < end; r++ {
		row := s.e.rows[r]
		c := &s.e.caches[row.Slot][s.cache]
		p := c.page(row.Pos)
		at := row.Pos % backends.BlockPositions
		key, value := s.e.row(s.key, r), s.e.row(s.value, r)
		for h := range c.KVHeads {
			k, v := key[h*c.HeadDim:][:c.HeadDim], value[h*c.HeadDim:][:c.HeadDim]
			if c.int8 {
				s.e.kernels.RoundInt8(codes, k, c.KeyScale)
				c.putKey(p.keyCodes[h*pageRows*c.keyBytes():], at, codes)
				s.e.kernels.RoundInt8(codes, v, c.ValueScale)
				c.putValue(p.valueCodes[h*c.valueBlocks()*valueBytes:], at, codes)
				continue
			}
			c.put(p.keys[(h*backends.BlockPositions+at)*c.HeadDim:], k)
			c.put(p.values[(h*backends.BlockPositions+at)*c.HeadDim:], v)
		}
	}
}

// put writes a key or a value to its place among those of a page.
func (c *cache) put(dst, x []float32) {
	if !c.half {
		copy(dst, x)
		return
	}
	for i, v := range x {
		dst[i] = quant.F16ToF32(quant.F32ToF16(v))
	}
}

// putKey writes the codes of a key to its place among those of a page.
func (c *cache) putKey(page []byte, pos int, codes []int8) {
	dst := page[pos/quant.BlockRows*c.keyBytes()+pos%quant.BlockRows*4:]
	for i, v := range codes[:c.HeadDim] {
		dst[i/4*quant.StepBytes+i%4] = byte(v) ^ 0x80
	}
}

// putValue writes the codes of a value to its place among those of a page.
func (c *cache) putValue(page []byte, pos int, codes []int8) {
	dst := page[pos/4*quant.StepBytes+pos%4:]
	for i, v := range codes[:c.HeadDim] {
		dst[i/quant.BlockRows*valueBytes+i%quant.BlockRows*4] = byte(v) ^ 0x80
	}
}

// bytes returns the memory of all pages.
func (c *cache) bytes() int64 {
	keys, values := c.pageBytes()
	return int64(len(c.pages)) * int64(keys+values)
}
