package metal_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/internal/fmath"
	"github.com/zoo-sdk/zoo/quant"
)

const (
	keyScale   = 0.047
	valueScale = 0.031
)

// heads is the shape of an attention and its cache.
type heads struct {
	cache        backends.CacheType
	query, kv    int // heads
	dim          int
	window, ring int
}

// String names a shape.
func (h heads) String() string {
	return fmt.Sprintf("%s %dx%d over %d window %d", h.cache, h.query, h.dim, h.kv, h.window)
}

// args returns the arguments of an attention whose groups take so many heads; the table begins behind one other entry.
func (h heads) args(perGroup int) metal.AttentionArgs {
	return metal.AttentionArgs{
		Heads: uint32(h.query), KVHeads: uint32(h.kv), Dim: uint32(h.dim), Window: uint32(h.window), Table: 1, Ring: uint32(h.ring),
		HeadsPerGroup: uint32(perGroup), Scale: 0.37, KeyScale: keyScale, ValueScale: valueScale,
	}
}

// keep returns numbers as the cache keeps them; over int8 these are codes.
func (h heads) keep(x []float32, scale float32) []float32 {
	y := slices.Clone(x)
	for i, v := range x {
		switch h.cache {
		case backends.CacheInt8:
			y[i] = float32(kernels.ToGrid(v, scale, -128, 127))
		case backends.CacheHalf:
			y[i] = quant.F16ToF32(quant.F32ToF16(v))
		}
	}
	return y
}

// sequence is the keys and values of a slot by position, as a cache keeps them.
type sequence struct{ keys, values [][]float32 }

// sequence returns random keys and values; one number in salt is extreme, none for 0.
func (h heads) sequence(rng *rand.Rand, n, salt int) (s sequence) {
	for range n {
		s.keys = append(s.keys, h.keep(floats(rng, h.kv*h.dim, salt), keyScale))
		s.values = append(s.values, h.keep(floats(rng, h.kv*h.dim, salt), valueScale))
	}
	return s
}

// memory is an arena with the pages of slots, and the table that tells where they are.
type memory struct {
	heads
	entries int // of a slot in the table
	table   []uint32
	arena   []byte
}

// memory returns the pages of slots in a mixed order, with all bits set where nothing was written.
func (h heads) memory(rng *rand.Rand, slots []sequence) *memory {
	m := &memory{heads: h, entries: 1 + h.ring}
	if h.ring == 0 {
		for _, s := range slots { // with room for one more position
			m.entries = max(m.entries, 2+len(s.keys)/backends.BlockPositions)
		}
	}
	page := (m.width()*2*h.kv*h.dim*backends.BlockPositions + 255) / 256
	for _, i := range rng.Perm(len(slots) * m.entries) {
		m.table = append(m.table, uint32(i*page))
	}
	m.arena = make([]byte, len(m.table)*page*256)
	for i := range m.arena {
		m.arena[i] = 0xff
	}
	for i, s := range slots {
		for pos := range s.keys {
			m.put(i, pos, s.keys[pos], s.values[pos])
		}
	}
	return m
}

// width returns the bytes of a number.
func (h heads) width() int {
	switch h.cache {
	case backends.CacheInt8:
		return 1
	case backends.CacheHalf:
		return 2
	}
	return 4
}

// put writes what is kept of a position.
func (m *memory) put(slot, pos int, key, value []float32) {
	block := pos / backends.BlockPositions
	if m.ring > 0 {
		block %= m.ring
	}
	page := m.arena[int(m.table[slot*m.entries+1+block])*256:]
	for i := range key {
		at := (i/m.dim*backends.BlockPositions+pos%backends.BlockPositions)*m.dim + i%m.dim
		m.number(page, at, key[i])
		m.number(page, at+m.kv*backends.BlockPositions*m.dim, value[i])
	}
}

// number writes a kept number to its place in a page.
func (m *memory) number(page []byte, at int, x float32) {
	switch m.cache {
	case backends.CacheInt8:
		page[at] = byte(int8(x))
	case backends.CacheHalf:
		binary.LittleEndian.PutUint16(page[2*at:], quant.F32ToF16(x))
	default:
		binary.LittleEndian.PutUint32(page[4*at:], math.Float32bits(x))
	}
}

// place is where a row stands: a slot and a position.
type place struct{ slot, pos int }

// rows returns the list of rows at some places, of which so many are live.
func (m *memory) rows(live int, places ...place) operand {
	var all []row
	for i, p := range places {
		all = append(all, row{pos: int32(p.pos), pages: int32(p.slot * m.entries), angles: int32(i)})
	}
	return step(live, all...)
}

// laneSum adds n terms in 16 lanes by index, the first of which is from, and then the lanes as a tree.
func laneSum(n, from int, term func(i int) float32) float32 {
	s := make([]float32, 16)
	for i := range n {
		s[(from+i)%16] += term(i)
	}
	for len(s) > 1 {
		half := len(s) / 2
		for i := range half {
			s[i] += s[i+half]
		}
		s = s[:half]
	}
	return s[0]
}

// fixed returns 24-bit fixed point and its step.
func fixed(x []float32) (n []int64, step float32) {
	const limit = 1<<23 - 32896 - 1
	step = kernels.Generic().MaxAbs(x) / limit
	for _, v := range x {
		if step == 0 {
			n = append(n, 0)
		} else {
			n = append(n, int64(kernels.ToGrid(v, step, -limit, limit)))
		}
	}
	return n, step
}

// attend is attention as package backends defines it, for one head at a position.
func (h heads) attend(q []float32, s sequence, head, pos int) []float32 {
	from := 0
	if h.window > 0 {
		from = max(0, pos-h.window+1)
	}
	args := h.args(1)
	at := head / (h.query / h.kv) * h.dim
	query, queryStep := fixed(q)
	var top, total float32
	var acc []float32
	for first := from; first <= pos; {
		end := min(pos+1, (first/backends.BlockPositions+1)*backends.BlockPositions)
		weights := make([]float32, end-first)
		for i := range weights {
			k := s.keys[first+i][at:][:h.dim]
			if h.cache == backends.CacheInt8 {
				sum := int64(0)
				for d, n := range query {
					sum += n * int64(k[d])
				}
				weights[i] = float32(float32(float32(float32(sum)*queryStep)*args.KeyScale) * args.Scale)
			} else {
				weights[i] = float32(laneSum(h.dim, 0, func(d int) float32 { return float32(q[d] * k[d]) }) * args.Scale)
			}
		}
		largest := slices.Max(weights) // not a number if there is one
		for i, w := range weights {
			weights[i] = fmath.Exp(w - largest)
		}
		part := make([]float32, h.dim)
		var sum float32
		if h.cache == backends.CacheInt8 {
			n, step := fixed(weights)
			all := int64(0)
			for _, w := range n {
				all += w
			}
			sum = float32(float32(all) * step)
			for d := range part {
				column := int64(0)
				for i, w := range n {
					column += w * int64(s.values[first+i][at+d])
				}
				part[d] = float32(float32(float32(column)*step) * args.ValueScale)
			}
		} else {
			sum = laneSum(len(weights), first, func(i int) float32 { return weights[i] })
			for i, w := range weights {
				for d := range part {
					part[d] += float32(w * s.values[first+i][at+d])
				}
			}
		}
		if acc == nil {
			top, total, acc = largest, sum, part
		} else {
			most := max(top, largest)
			old, added := fmath.Exp(top-most), fmath.Exp(largest-most)
			top, total = most, float32(total*old)+float32(sum*added)
			for d := range acc {
				acc[d] = float32(acc[d]*old) + float32(part[d]*added)
			}
		}
		first = end
	}
	for d := range acc {
		acc[d] /= total
	}
	return acc
}

// perGroup lists how many heads a group may take.
func (h heads) perGroup() (all []int) {
	for _, n := range []int{1, 2, 4} {
		if h.query/h.kv%n == 0 {
			all = append(all, n)
		}
	}
	return all
}

// caches lists the types of caches, and what their kernels' names end with.
var caches = []backends.CacheType{backends.CacheFloat, backends.CacheHalf, backends.CacheInt8}

// attentionBench opens a device with the kernels of attention.
func attentionBench(t *testing.T, seed uint64) *bench {
	t.Helper()
	names := []string{"vec_combine"}
	for _, c := range caches {
		names = append(names, "attention_"+string(c), "vec_attention_"+string(c))
	}
	return newBench(t, metaltest.Options{Checked: true, Seed: seed}, names...)
}

func TestAttention(t *testing.T) {
	t.Parallel()
	device := attentionBench(t, 1).device
	for _, c := range []struct {
		heads
		salt int
		rows []place
	}{
		{heads{query: 8, kv: 1, dim: 256}, 0, []place{{0, 0}, {0, 1}, {1, 255}, {0, 256}}},
		{heads{query: 8, kv: 2, dim: 64, window: 300, ring: 2}, 0, []place{{0, 530}, {0, 531}, {1, 299}, {1, 300}}},
		{heads{query: 4, kv: 2, dim: 20}, 0, []place{{0, 600}, {1, 3}, {1, 511}, {0, 0}}},
		{heads{query: 6, kv: 2, dim: 18, window: 40, ring: 1}, 0, []place{{0, 260}, {0, 261}, {1, 769}, {1, 770}}},
		{heads{query: 3, kv: 1, dim: 15}, 0, []place{{0, 100}, {1, 270}}},
		{heads{query: 2, kv: 1, dim: 512}, 0, []place{{0, 257}, {1, 17}}},
		{heads{query: 16, kv: 4, dim: 48, window: 256, ring: 2}, 0, []place{{0, 255}, {0, 256}, {1, 400}}},
		{heads{query: 2, kv: 1, dim: 32}, 700, []place{{0, 100}, {1, 300}, {1, 301}}},
		{heads{query: 4, kv: 1, dim: 36}, 40, []place{{0, 40}, {1, 258}}},
	} {
		for _, c.cache = range caches {
			rng := rand.New(rand.NewPCG(uint64(c.dim), uint64(c.salt)))
			slots := []sequence{{}, {}}
			for _, r := range c.rows {
				if more := r.pos + 1 - len(slots[r.slot].keys); more > 0 {
					s := c.sequence(rng, more, c.salt)
					slots[r.slot] = sequence{append(slots[r.slot].keys, s.keys...), append(slots[r.slot].values, s.values...)}
				}
			}
			query := floats(rng, len(c.rows)*c.query*c.dim, c.salt)
			for i := range c.dim { // all scores alike in one head, huge ones in another
				query[i] = 0
				query[(c.query-1)*c.dim+i] *= 1e18
			}
			m := c.memory(rng, slots)
			want := unset(len(query))
			for i, r := range c.rows[:len(c.rows)-1] {
				for h := range c.query {
					at := (i*c.query + h) * c.dim
					copy(want[at:], c.attend(query[at:][:c.dim], slots[r.slot], h, r.pos))
				}
			}
			for _, n := range c.perGroup() {
				t.Run(fmt.Sprintf("%v by %d", c.heads, n), func(t *testing.T) {
					b, args, got := bench{t, device}, c.args(n), unset(len(query))
					b.run("attention_"+string(c.cache), args, metal.AttentionLaunch(&args, c.cache, len(c.rows)),
						in(query), m.rows(len(c.rows)-1, c.rows...), in(m.table), in(m.arena), out(got))
					mustEqual(t, got, want)
				})
			}
		}
	}
}

// TestAttentionExact has the sums over codes reach what a float holds exactly.
func TestAttentionExact(t *testing.T) {
	t.Parallel()
	device := attentionBench(t, 0).device
	h := heads{cache: backends.CacheInt8, query: 4, kv: 1, dim: 512}
	rng := rand.New(rand.NewPCG(7, 8))
	const limit, lows = 127<<16 + 127<<8 + 127, 2040<<12 - 2048 // of lows both digits are as large as they get
	query := make([]float32, h.query*h.dim)
	for i := range query {
		query[i] = []float32{lows, -lows - 1, limit, lows}[i/h.dim]
		if i%h.dim == 0 {
			query[i] = limit // so that the step is 1
		}
	}
	near := randomFloats(rng, len(query), 1e-3) // of which all weights are near 1, with digits of all kinds
	huge := slices.Repeat([]float32{3e38}, len(query))
	for _, c := range []struct {
		query        []float32
		first, other float32 // codes of keys of the first block, the second of every second key
		second       float32 // of the second block
	}{
		{query, -128, -128, -128}, {query, 127, 127, 127}, {near, 127, -3, 127},
		{huge, -128, -127, 0}, // of the first block's scores none is finite
	} {
		var s sequence
		for pos := range 512 {
			key := slices.Repeat([]float32{c.first}, h.dim)
			for i := range key {
				if pos >= backends.BlockPositions {
					key[i] = c.second
				} else if rng.IntN(2) == 0 {
					key[i] = c.other
				}
			}
			s.keys, s.values = append(s.keys, key), append(s.values, slices.Repeat([]float32{c.first}, h.dim))
		}
		m := h.memory(rng, []sequence{s})
		for _, n := range h.perGroup() {
			b, args, got, want := bench{t, device}, h.args(n), unset(len(query)), unset(len(query))
			b.run("attention_int8", args, metal.AttentionLaunch(&args, h.cache, 1), in(c.query), m.rows(1, place{0, 511}), in(m.table), in(m.arena), out(got))
			for i := range h.query {
				copy(want[i*h.dim:], h.attend(c.query[i*h.dim:][:h.dim], s, i, 511))
			}
			mustEqual(t, got, want)
		}
	}
}

// prepared is the norm of each head of x, times weight, with its halves rotated, both unless nil.
func prepared(x []float32, dim int, eps float32, weight, angles []float32) []float32 {
	k := kernels.Generic()
	y := make([]float32, len(x))
	for at := 0; at < len(x); at += dim {
		in, out := x[at:][:dim], y[at:][:dim]
		mean := k.DotF32(in, in) / float32(dim)
		k.Norm(out, in, weight, 1/float32(math.Sqrt(float64(mean+eps))))
		if angles != nil {
			k.Rotate(out, angles)
		}
	}
	return y
}

func TestVecAttention(t *testing.T) {
	t.Parallel()
	device := attentionBench(t, 2).device
	for _, c := range []struct {
		heads
		owner, pos, salt int
		weighted         bool // the norms of query and key
	}{
		{heads{query: 8, kv: 1, dim: 256}, 1, 0, 0, true},
		{heads{query: 8, kv: 1, dim: 256}, 1, 255, 0, true},
		{heads{query: 8, kv: 1, dim: 256}, 1, 256, 0, true},
		{heads{query: 8, kv: 1, dim: 256}, 0, 256, 0, true},
		{heads{query: 8, kv: 2, dim: 64, window: 300, ring: 3}, 1, 900, 0, true},
		{heads{query: 8, kv: 2, dim: 64, window: 300, ring: 3}, 0, 900, 0, true},
		{heads{query: 4, kv: 2, dim: 20}, 1, 600, 0, true},
		{heads{query: 6, kv: 2, dim: 18, window: 40, ring: 1}, 1, 270, 0, true},
		{heads{query: 2, kv: 1, dim: 15}, 1, 257, 0, true},
		{heads{query: 2, kv: 1, dim: 512}, 1, 300, 0, true},
		{heads{query: 4, kv: 1, dim: 36}, 1, 258, 60, true},
		{heads{query: 4, kv: 1, dim: 36}, 0, 258, 800, true},
		{heads{query: 4, kv: 2, dim: 15}, 1, 258, 0, false},
		{heads{query: 4, kv: 2, dim: 32}, 0, 2, 0, false},
	} {
		for _, c.cache = range caches {
			for _, n := range c.perGroup() {
				t.Run(fmt.Sprintf("%v by %d at %d owner %d weighted %v", c.heads, n, c.pos, c.owner, c.weighted), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(uint64(c.dim), uint64(n)))
					slots := []sequence{c.sequence(rng, 5, 0), c.sequence(rng, c.pos+1-c.owner, c.salt)}
					m := c.memory(rng, slots)
					q, k, v := floats(rng, c.query*c.dim, c.salt), floats(rng, c.kv*c.dim, c.salt), floats(rng, c.kv*c.dim, 0)
					qWeight, kWeight := floats(rng, c.dim, 0), floats(rng, c.dim, 0)
					angleCols := c.dim + 3
					angles := floats(rng, 2*angleCols, 0)
					blocks := c.pos/backends.BlockPositions + 2 // one more than there is
					args := metal.VecAttentionArgs{
						Attention: c.args(n), Owner: uint32(c.owner), QueryWeighted: yes(c.weighted), KeyWeighted: yes(c.weighted),
						QueryEps: 1e-6, KeyEps: 1e-5, ValueEps: 1e-4, AngleCols: uint32(angleCols), AngleFirst: 2, Totals: uint32(blocks*c.query + 1),
					}
					rows := step(1, row{pos: int32(c.pos), pages: int32(m.entries), angles: 1})
					sums, largest := unset(blocks*c.query*c.dim), unset(2*blocks*c.query+1)
					arena := slices.Clone(m.arena)
					operands := []operand{
						in(q), in(k), in(v), in(qWeight), in(kWeight), in(angles), rows, in(m.table), out(arena), out(sums), out(largest),
					}
					if c.owner == 0 {
						operands[1], operands[2], operands[4] = unbound(), unbound(), unbound()
					}
					if !c.weighted {
						operands[3], operands[4] = unbound(), unbound()
						qWeight, kWeight = nil, nil
					}
					b := bench{t, device}
					b.run("vec_attention_"+string(c.cache), args, metal.VecAttentionLaunch(&args, c.cache, blocks), operands...)
					combine := metal.VecCombineArgs{Heads: uint32(c.query), Dim: uint32(c.dim), Window: uint32(c.window), Totals: args.Totals}
					got := unset(len(q))
					b.run("vec_combine", combine, metal.VecCombineLaunch(&combine), in(sums), in(largest), rows, out(got))

					turn := angles[angleCols+2:]
					if c.owner == 1 {
						key, value := c.keep(prepared(k, c.dim, 1e-5, kWeight, turn), keyScale), c.keep(prepared(v, c.dim, 1e-4, nil, nil), valueScale)
						slots[1].keys, slots[1].values = append(slots[1].keys, key), append(slots[1].values, value)
						m.put(1, c.pos, key, value)
					}
					query := prepared(q, c.dim, 1e-6, qWeight, turn)
					for h := range c.query {
						want := c.attend(query[h*c.dim:][:c.dim], slots[1], h, c.pos)
						mustEqual(t, got[h*c.dim:][:c.dim], want)
					}
					if at := m.firstDifference(arena); at >= 0 {
						t.Errorf("byte %d of the arena differs", at)
					}
				})
			}
		}
	}
}

// firstDifference returns the first byte of an arena that differs from what the
// definition makes of it, where all that is not a number is equal; -1 for none.
func (m *memory) firstDifference(arena []byte) int {
	if bytes.Equal(arena, m.arena) {
		return -1
	}
	for at := 0; at < len(arena); at += m.width() {
		got, want := arena[at:][:m.width()], m.arena[at:][:m.width()]
		if !slices.Equal(got, want) && !(m.isNaN(got) && m.isNaN(want)) {
			return at
		}
	}
	return -1
}

// isNaN reports whether a number of the cache is none.
func (m *memory) isNaN(b []byte) bool {
	switch m.cache {
	case backends.CacheHalf:
		return binary.LittleEndian.Uint16(b)&0x7fff > 0x7c00
	case backends.CacheFloat:
		return binary.LittleEndian.Uint32(b)&0x7fffffff > 0x7f800000
	}
	return false
}

// TestVecAttentionIdle runs the kernels where no row is live.
func TestVecAttentionIdle(t *testing.T) {
	t.Parallel()
	h := heads{cache: backends.CacheFloat, query: 2, kv: 1, dim: 16}
	rng := rand.New(rand.NewPCG(1, 2))
	m := h.memory(rng, []sequence{h.sequence(rng, 3, 0)})
	x, got := floats(rng, 64, 0), unset(64)
	args := metal.VecAttentionArgs{Attention: h.args(1), Owner: 1, AngleCols: 16, Totals: 2}
	combine := metal.VecCombineArgs{Heads: 2, Dim: 16, Totals: 2}
	rows := m.rows(0, place{0, 3})
	b := attentionBench(t, 0)
	b.run("vec_attention_float", args, metal.VecAttentionLaunch(&args, h.cache, 1),
		in(x), in(x), in(x), in(x), in(x), in(x), rows, in(m.table), in(m.arena), out(got), out(got))
	b.run("vec_combine", combine, metal.VecCombineLaunch(&combine), in(x), in(x), rows, out(got))
	mustEqual(t, got, unset(64))
}

func TestVecCombine(t *testing.T) {
	t.Parallel()
	device := attentionBench(t, 0).device
	for _, c := range []struct{ heads, dim, window, pos, salt int }{
		{1, 20, 0, 100, 0},
		{2, 16, 0, 256, 0},
		{3, 200, 0, 40 * 256, 0},
		{1, 20, 0, 300*256 + 3, 0},
		{2, 32, 512, 3000, 0},
		{2, 32, 1, 3000, 0},
		{2, 32, 0, 2000, 30},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(c.dim), uint64(c.pos)))
			first := 0
			if c.window > 0 {
				first = max(0, c.pos-c.window+1) / backends.BlockPositions
			}
			blocks := c.pos/backends.BlockPositions - first + 1
			sums, largest := floats(rng, blocks*c.heads*c.dim, c.salt), floats(rng, blocks*c.heads, c.salt)
			totals := floats(rng, blocks*c.heads, c.salt)
			for i, x := range largest {
				if x != x || math.IsInf(float64(x), 1) { // such blocks have totals that are not a number
					totals[i] = float32(math.NaN())
				}
			}
			args := metal.VecCombineArgs{Heads: uint32(c.heads), Dim: uint32(c.dim), Window: uint32(c.window), Totals: uint32(len(largest))}
			b, got, want := bench{t, device}, unset(c.heads*c.dim), unset(c.heads*c.dim)
			b.run("vec_combine", args, metal.VecCombineLaunch(&args), in(sums), in(append(slices.Clone(largest), totals...)),
				step(1, row{pos: int32(c.pos)}), out(got))
			for h := range c.heads {
				acc := slices.Clone(sums[h*c.dim:][:c.dim])
				top, total := largest[h], totals[h]
				for block := 1; block < blocks; block++ {
					at := block*c.heads + h
					most := max(top, largest[at])
					old, added := fmath.Exp(top-most), fmath.Exp(largest[at]-most)
					top, total = most, float32(total*old)+float32(totals[at]*added)
					kernels.Generic().ScaleAdd(acc, sums[at*c.dim:][:c.dim], old, added)
				}
				kernels.Generic().Div(acc, total)
				copy(want[h*c.dim:], acc)
			}
			mustEqual(t, got, want)
		})
	}
}

func TestHeadsPerGroup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ heads, kv, times, want int }{
		{8, 1, 1, 1}, {8, 1, 3, 1}, {8, 1, 6, 2}, {8, 1, 12, 4}, {8, 2, 100, 4}, {6, 2, 100, 1}, {12, 2, 100, 2}, {8, 8, 100, 1},
	} {
		if got := metal.HeadsPerGroup(c.heads, c.kv, c.times); got != c.want {
			t.Errorf("%d heads over %d, %d times: %d a group, want %d", c.heads, c.kv, c.times, got, c.want)
		}
	}
}

// TestAttentionShared holds the memory of a group against what every Apple GPU has.
func TestAttentionShared(t *testing.T) {
	t.Parallel()
	for _, cache := range caches {
		for _, n := range []int{1, 2, 4} {
			args := heads{cache: cache, query: 8, kv: 1, dim: metal.MaxHeadDim}.args(n)
			all := metal.VecAttentionArgs{Attention: args}
			for _, l := range []metal.Launch{metal.AttentionLaunch(&args, cache, 1), metal.VecAttentionLaunch(&all, cache, 1)} {
				if l.SharedBytes > 32<<10 || l.SharedBytes%16 != 0 || l.Threads%metal.SIMDWidth != 0 {
					t.Errorf("%s, %d heads a group: %+v", cache, n, l)
				}
			}
		}
	}
}
