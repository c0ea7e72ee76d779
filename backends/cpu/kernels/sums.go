//go:build !purego && (amd64 || arm64)

package kernels

// sums holds one instruction set's kernels of sums in 16 lanes, each for tiles
// of some heads, most first, down to one.
type sums struct {
	// whole is what the length of a head must be a multiple of, 0 for any: others are left to plain Go.
	whole int

	dotsF32  []dotsTile[float32]
	dotsBF16 []dotsTile[byte]
	weighted []weightedTile
	dot      func(a, b *float32, n int) float32
	read     func(data *byte, lines int) uint64
}

// dotsFunc sets dst[head*stride + pos] to the product of a head with a position, times scale.
type dotsFunc[T float32 | byte] func(dst, q *float32, keys *T, dim, positions, stride int, scale float32)

// dotsTile multiplies a number of heads: many takes a multiple of positions, one any number.
type dotsTile[T float32 | byte] struct {
	heads, positions int
	many, one        dotsFunc[T]
}

// weightedTile sums positions for a number of heads.
type weightedTile struct {
	heads int
	all   func(dst, w, values *float32, dim, positions, stride int)
}

const (
	// cacheBytes is what a tile may take of the fastest cache, which most machines
	// have 32 kB of, for what it reads again and again.
	cacheBytes = 24 << 10
	// rowsBytes is what the rows of a matrix that several tiles read may take of the cache of the second level.
	rowsBytes = 128 << 10
	// wholeRows is a number of rows that all tiles divide.
	wholeRows = 8
)

// fits tells that the kernels take a shape: all of it is there, and no columns are left over.
func (k *sums) fits(heads, positions, dim int) bool {
	return heads > 0 && positions > 0 && dim > 0 && (k.whole == 0 || dim%k.whole == 0)
}

// runDots goes through the heads of a product, tile by tile. A number takes size elements of keys.
func runDots[T float32 | byte](tiles []dotsTile[T], dst, q []float32, keys []T, size int, s AttentionShape, scale float32) {
	for h := 0; h < s.Heads; h += tiles[0].heads {
		for tiles[0].heads > s.Heads-h {
			tiles = tiles[1:]
		}
		t := &tiles[0]
		n := s.Positions - s.Positions%t.positions
		if n > 0 {
			t.many(&dst[h*s.Stride], &q[h*s.Dim], &keys[0], s.Dim, n, s.Stride, scale)
		}
		if n < s.Positions {
			t.one(&dst[h*s.Stride+n], &q[h*s.Dim], &keys[n*s.Dim*size], s.Dim, s.Positions-n, s.Stride, scale)
		}
	}
}

// runWeighted goes through the heads of weighted sums, tile by tile.
func runWeighted(tiles []weightedTile, dst, w, values []float32, s AttentionShape) {
	for h := 0; h < s.Heads; h += tiles[0].heads {
		for tiles[0].heads > s.Heads-h {
			tiles = tiles[1:]
		}
		tiles[0].all(&dst[h*s.Dim], &w[h*s.Stride], &values[0], s.Dim, s.Positions, s.Stride)
	}
}

// install puts the kernels in a set.
func (k *sums) install(set *Set) {
	set.scores = func(dst, q, keys []float32, s AttentionShape, scale float32) {
		if !k.fits(s.Heads, s.Positions, s.Dim) {
			scores(dst, q, keys, s, scale)
			return
		}
		runDots(k.dotsF32, dst, q, keys, 1, s, scale)
	}
	set.mulBF16 = func(dst []float32, stride int, w []byte, x []float32, s FloatShape) {
		if !k.fits(s.Batch, s.Rows, s.Cols) {
			mulBF16(dst, stride, w, x, s)
			return
		}
		tiles := k.dotsBF16
		for len(tiles) > 1 && tiles[0].heads > 4 && 4*tiles[0].heads*s.Cols > cacheBytes {
			tiles = tiles[1:]
		}
		// Rows that fit in the cache of the second level meet all tiles before the next rows.
		block := max(1, rowsBytes/(2*s.Cols)/wholeRows) * wholeRows
		for r := 0; r < s.Rows; r += block {
			runDots(tiles, dst[r:], x, w[2*r*s.Cols:], 2, AttentionShape{
				Heads: s.Batch, Positions: min(block, s.Rows-r), Dim: s.Cols, Stride: stride,
			}, s.Mul)
		}
	}
	set.weighted = func(dst, w, values []float32, s AttentionShape) {
		if !k.fits(s.Heads, s.Positions, s.Dim) {
			weighted(dst, w, values, s)
			return
		}
		runWeighted(k.weighted, dst, w, values, s)
	}
	set.dotF32 = func(a, b []float32) float32 {
		if !k.fits(1, 1, len(a)) {
			return dotF32(a, b)
		}
		return k.dot(&a[0], &b[0], len(a))
	}
	set.read = func(data []byte) uint64 {
		lines := len(data) / 64
		if lines == 0 {
			return read(data)
		}
		return k.read(&data[0], lines) + read(data[64*lines:])
	}
}
