package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/quant"
)

// Limits on programs from outside, so that no number in one makes a backend
// allocate without measure. The largest model known here needs a tenth of each.
const (
	// MaxEncoded is the size in bytes of an encoded program.
	MaxEncoded = 4 << 20
	// MaxObjects is the number of objects in one: an empty one of three bytes takes a
	// hundred once it is decoded.
	MaxObjects = 1 << 18
	// MaxList is the length of any list of a program.
	MaxList = 1 << 16
	// MaxOps is the number of operations: backends may look at all of them for each.
	MaxOps = 1 << 14
	// MaxCaches is the number of caches: a table may have an entry for each page of each.
	MaxCaches = 1 << 10
	// MaxContext is the number of positions.
	MaxContext = 1 << 24
	// MaxHeadDim is the size of a head, and twice the number of frequencies of a rotation.
	MaxHeadDim = 1 << 14
	// MaxBufferCols is the length of all buffers together.
	MaxBufferCols = 1 << 22
	// MaxBatchCols is the length of those together that are written before the
	// select: they hold a row for each of a batch, the others for those that want logits.
	MaxBatchCols = 1 << 20
	// MaxCacheCols is the length of one position's keys in all caches together.
	MaxCacheCols = 1 << 20
	// MaxFreqs is the number of frequencies of all rotations together.
	MaxFreqs = 1 << 16
)

// maxErrors is how many faults of a program are told.
const maxErrors = 8

// ErrProgram reports a program that cannot be run. It matches fault.ErrIntegrity.
var ErrProgram = fmt.Errorf("%w: invalid program", fault.ErrIntegrity)

// Encode serialises p.
func Encode(p *Program) ([]byte, error) { return json.Marshal(p) }

// Decode parses a serialised program and validates it. Errors match ErrProgram.
func Decode(data []byte) (*Program, error) {
	if len(data) > MaxEncoded {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrProgram, len(data), MaxEncoded)
	}
	if n := bytes.Count(data, []byte("{")); n > MaxObjects {
		return nil, fmt.Errorf("%w: %d objects, at most %d", ErrProgram, n, MaxObjects)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var p Program
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProgram, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: more follows its end", ErrProgram)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &p, nil
}

// checker collects what is wrong with a program.
type checker struct {
	p *Program
	// live tells which buffers hold rows: written, and not lost by the select.
	live     []bool
	stored   []bool
	selected bool
	errs     []error
}

// Validate checks every index, shape and number of the program, that buffers
// are written before they are read and caches before they are attended to, and
// that the state is there wherever a layer begins or ends. Errors match ErrProgram.
func (p *Program) Validate() error {
	c := &checker{p: p}
	if p.Version != Version {
		return fmt.Errorf("%w: version %d of the operations, this host has version %d", ErrProgram, p.Version, Version)
	}
	c.lists()
	if len(c.errs) == 0 {
		borders := map[int]bool{} // operations before which a layer begins or ends
		for _, l := range p.Layers {
			borders[l.First], borders[l.End] = true, true
		}
		for i, op := range p.Ops {
			if borders[i] {
				c.read(fmt.Sprintf("state at operation %d", i), p.State, 0)
			}
			c.op(i, op)
			if len(c.errs) > 0 {
				break
			}
		}
		c.outputs()
	}
	if err := errors.Join(c.errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrProgram, err)
	}
	return nil
}

// require notes an error unless ok, and unless there are many already.
func (c *checker) require(ok bool, format string, args ...any) bool {
	if !ok && len(c.errs) < maxErrors {
		c.errs = append(c.errs, fmt.Errorf(format, args...))
	}
	return ok
}

// finite reports whether f is a number.
func finite(f float32) bool { return !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) }

// grid reports whether f is a usable step of a rounding grid: 0 or positive and finite.
func grid(f float32) bool { return finite(f) && f >= 0 }

// lists checks everything that does not depend on the operations.
func (c *checker) lists() {
	p := c.p
	c.require(p.Vocab > 0 && p.Vocab <= quant.MaxDim, "vocabulary of %d", p.Vocab)
	c.require(p.TokenLimit > 0 && p.TokenLimit <= quant.MaxDim, "token limit of %d", p.TokenLimit)
	c.require(p.Context > 0 && p.Context <= MaxContext, "context of %d positions", p.Context)
	for _, n := range []int{len(p.Weights), len(p.Buffers), len(p.Rotations), len(p.Layers)} {
		c.require(n <= MaxList, "list of %d entries", n)
	}
	c.require(len(p.Ops) <= MaxOps, "%d operations, at most %d", len(p.Ops), MaxOps)
	c.require(len(p.Caches) <= MaxCaches, "%d caches, at most %d", len(p.Caches), MaxCaches)
	names := make(map[string]int, len(p.Weights))
	for i, w := range p.Weights {
		if err := w.Validate(); err != nil {
			c.require(false, "weight %d %.40q: %w", i, w.Name, err)
		}
		first, twice := names[w.Name]
		c.require(!twice, "weights %d and %d are both of tensor %.40q", first, i, w.Name)
		names[w.Name] = i
	}
	buffers, caches, freqs := int64(0), int64(0), 0
	for i, b := range p.Buffers {
		if c.require(b.Cols > 0 && b.Cols <= quant.MaxDim, "buffer %d %.40q has %d columns", i, b.Name, b.Cols) {
			buffers += int64(b.Cols)
		}
	}
	for i, k := range p.Caches {
		if c.require(k.KVHeads > 0 && k.HeadDim > 0 && k.HeadDim <= MaxHeadDim && k.KVHeads <= MaxHeadDim, "cache %d %.40q has shape [%d, %d]", i, k.Name, k.KVHeads, k.HeadDim) {
			caches += int64(k.KVHeads) * int64(k.HeadDim)
		}
		c.require(k.Window >= 0 && k.Window <= MaxContext, "cache %d %.40q has a window of %d", i, k.Name, k.Window)
		c.require(grid(k.KeyScale) && grid(k.ValueScale), "cache %d %.40q has scales %g and %g", i, k.Name, k.KeyScale, k.ValueScale)
	}
	for i, r := range p.Rotations {
		c.require(len(r.Freqs) > 0 && len(r.Freqs) <= MaxHeadDim/2, "rotation %d has %d frequencies", i, len(r.Freqs))
		for _, f := range r.Freqs {
			if !c.require(finite(f) && f >= 0 && f <= 1024, "rotation %d has the frequency %g", i, f) {
				break
			}
		}
		freqs += len(r.Freqs)
	}
	c.require(buffers <= MaxBufferCols, "buffers of %d columns, at most %d", buffers, MaxBufferCols)
	c.require(caches <= MaxCacheCols, "caches of %d columns, at most %d", caches, MaxCacheCols)
	c.require(freqs <= MaxFreqs, "%d frequencies, at most %d", freqs, MaxFreqs)
	end := 0
	for i, l := range p.Layers {
		c.require(l.First >= end && l.End > l.First && l.End <= len(p.Ops), "layer %d spans operations %d to %d", i, l.First, l.End)
		end = l.End
	}
	c.live = make([]bool, len(p.Buffers))
	c.stored = make([]bool, len(p.Caches))
}

// outputs checks the buffers that the host reads.
func (c *checker) outputs() {
	for _, out := range []struct {
		name string
		id   BufferID
	}{{"state", c.p.State}, {"hidden", c.p.Hidden}, {"logits", c.p.Logits}} {
		c.read(out.name, out.id, 0)
	}
	if len(c.errs) == 0 {
		c.require(c.p.Buffers[c.p.Logits].Cols == c.p.Vocab, "logits have %d columns for a vocabulary of %d", c.p.Buffers[c.p.Logits].Cols, c.p.Vocab)
		c.require(c.selected, "no select: every row would want logits")
	}
}

// cols returns the length of a buffer, 0 if there is none of that number.
func (c *checker) cols(id BufferID) int {
	if id < 0 || int(id) >= len(c.p.Buffers) {
		return 0
	}
	return c.p.Buffers[id].Cols
}

// read checks that a buffer exists, holds rows and, unless cols is 0, has that length.
func (c *checker) read(what string, id BufferID, cols int) {
	if !c.require(c.cols(id) > 0, "%s: no buffer %d", what, id) {
		return
	}
	c.require(c.live[id], "%s: buffer %d is read before it is written", what, id)
	c.require(cols == 0 || c.cols(id) == cols, "%s: buffer %d has %d columns, not %d", what, id, c.cols(id), cols)
}

// write checks that a buffer exists and has the length, and marks it written.
func (c *checker) write(what string, id BufferID, cols int) {
	if !c.require(c.cols(id) > 0, "%s: no buffer %d", what, id) {
		return
	}
	c.require(c.cols(id) == cols, "%s: buffer %d has %d columns, not %d", what, id, c.cols(id), cols)
	c.live[id] = true
}

// weight returns the matrix of a weight.
func (c *checker) weight(what string, id WeightID) (quant.Matrix, bool) {
	if !c.require(id >= 0 && int(id) < len(c.p.Weights), "%s: no weight %d", what, id) {
		return quant.Matrix{}, false
	}
	return c.p.Weights[id].Matrix, true
}

// vector checks a float32 weight of one row.
func (c *checker) vector(what string, id WeightID, cols int) {
	if id == None {
		return
	}
	if m, ok := c.weight(what, id); ok {
		c.require(m.Format == quant.F32 && m.Rows == 1 && m.Cols == cols, "%s: weight %d is %s [%d, %d], not f32 [1, %d]", what, id, m.Format, m.Rows, m.Cols, cols)
	}
}

// cache returns a cache.
func (c *checker) cache(what string, id CacheID) (Cache, bool) {
	if !c.require(id >= 0 && int(id) < len(c.p.Caches), "%s: no cache %d", what, id) {
		return Cache{}, false
	}
	return c.p.Caches[id], true
}

// op checks one operation.
func (c *checker) op(i int, op Op) {
	set, what := 0, ""
	v := reflect.ValueOf(op)
	for f := range v.NumField() {
		if !v.Field(f).IsNil() {
			set++
			what = fmt.Sprintf("operation %d (%s)", i, v.Type().Field(f).Name)
		}
	}
	if !c.require(set == 1, "operation %d has %d kinds, not 1", i, set) {
		return
	}
	switch {
	case op.Embed != nil:
		c.embed(what, op.Embed)
	case op.Linear != nil:
		c.linear(what, op.Linear)
	case op.GateUp != nil:
		c.gateUp(what, op.GateUp)
	case op.Norm != nil:
		c.norm(what, op.Norm)
	case op.AddNorm != nil:
		o := op.AddNorm
		c.read(what, o.In, 0)
		c.read(what, o.State, c.cols(o.In))
		c.vector(what, o.Weight, c.cols(o.In))
		c.require(o.In != o.State, "%s: adds a buffer to itself", what)
		c.require(finite(o.Eps) && o.Eps > 0 && finite(o.Mul), "%s: eps %g, mul %g", what, o.Eps, o.Mul)
	case op.Store != nil:
		o := op.Store
		if k, ok := c.cache(what, o.Cache); ok {
			c.read(what, o.Key, k.KVHeads*k.HeadDim)
			c.read(what, o.Value, k.KVHeads*k.HeadDim)
			c.require(!c.selected, "%s: writes a cache behind the select", what)
			c.require(!c.stored[o.Cache], "%s: writes a cache twice", what)
			c.stored[o.Cache] = true
		}
	case op.Attention != nil:
		o := op.Attention
		if k, ok := c.cache(what, o.Cache); ok {
			c.require(c.stored[o.Cache], "%s: cache %d is read before it is written", what, o.Cache)
			c.require(o.Heads > 0 && o.Heads <= MaxHeadDim && o.Heads%k.KVHeads == 0, "%s: %d heads share %d", what, o.Heads, k.KVHeads)
			c.read(what, o.Query, o.Heads*k.HeadDim)
			c.write(what, o.Out, o.Heads*k.HeadDim)
			c.require(o.Query != o.Out, "%s: overwrites its query", what)
			c.require(finite(o.Scale), "%s: scale %g", what, o.Scale)
		}
	case op.AddMul != nil:
		o := op.AddMul
		c.read(what, o.A, 0)
		c.read(what, o.B, c.cols(o.A))
		c.write(what, o.Out, c.cols(o.A))
		c.require(finite(o.Mul), "%s: mul %g", what, o.Mul)
	case op.GELUMul != nil:
		o := op.GELUMul
		c.read(what, o.A, 0)
		c.read(what, o.B, 0)
		c.require(o.First >= 0 && o.First <= c.cols(o.B)-c.cols(o.A), "%s: columns %d to %d of %d", what, o.First, o.First+c.cols(o.A), c.cols(o.B))
		c.write(what, o.Out, c.cols(o.A))
		c.require(o.Out != o.B, "%s: overwrites its factor", what)
	case op.Softcap != nil:
		c.read(what, op.Softcap.Buffer, 0)
		c.require(finite(op.Softcap.Cap) && op.Softcap.Cap > 0, "%s: cap %g", what, op.Softcap.Cap)
	case op.Select != nil:
		c.require(!c.selected, "%s: the second select", what)
		c.selected = true
		batch := 0
		for id, live := range c.live {
			if live {
				batch += c.p.Buffers[id].Cols
			}
		}
		c.require(batch <= MaxBatchCols, "%s: %d columns are written before it, at most %d", what, batch, MaxBatchCols)
		kept := make([]bool, len(c.live))
		for _, id := range op.Select.Buffers {
			c.read(what, id, 0)
			if c.cols(id) > 0 {
				c.require(!kept[id], "%s: buffer %d twice", what, id)
				kept[id] = true
			}
		}
		c.live = kept
	}
}

// embed checks a gather.
func (c *checker) embed(what string, o *Embed) {
	m, ok := c.weight(what, o.Table)
	if !ok {
		return
	}
	c.require(m.Rows >= c.p.TokenLimit, "%s: table of %d rows for %d tokens", what, m.Rows, c.p.TokenLimit)
	c.require(finite(o.Mul), "%s: mul %g", what, o.Mul)
	c.require(!c.selected, "%s: gathers behind the select", what)
	c.write(what, o.Out, m.Cols)
}

// linear checks a product.
func (c *checker) linear(what string, o *Linear) {
	m, ok := c.weight(what, o.Weight)
	if !ok {
		return
	}
	c.require(m.Layout == quant.Blocks || m.Format == quant.BF16, "%s: cannot multiply %s in %s", what, m.Format, m.Layout)
	c.read(what, o.In, m.Cols)
	c.require(finite(o.Mul), "%s: mul %g", what, o.Mul)
	c.require(len(o.Parts) > 0 && len(o.Parts) <= 16, "%s: %d parts", what, len(o.Parts))
	outs := map[BufferID]bool{o.In: true}
	for _, part := range o.Parts {
		c.require(part.First >= 0 && part.Rows > 0 && part.Rows <= m.Rows && part.First <= m.Rows-part.Rows, "%s: rows %d to %d of %d", what, part.First, part.First+part.Rows, m.Rows)
		c.require(!m.Codes() || part.First%quant.BlockRows == 0, "%s: part starts at row %d, not at a block", what, part.First)
		c.rounding(what, part.Rounding, m)
		c.require(!outs[part.Out], "%s: buffer %d is used twice", what, part.Out)
		outs[part.Out] = true
		c.write(what, part.Out, part.Rows)
	}
}

// gateUp checks a fused pair of products.
func (c *checker) gateUp(what string, o *GateUp) {
	m, ok := c.weight(what, o.Weight)
	if !ok {
		return
	}
	c.require(m.Layout == quant.Blocks && m.Rows%(2*quant.BlockRows) == 0, "%s: needs pairs of blocks, not %d rows in %s", what, m.Rows, m.Layout)
	c.read(what, o.In, m.Cols)
	c.rounding(what, o.Gate, m)
	c.rounding(what, o.Up, m)
	c.require(o.In != o.Out, "%s: overwrites its input", what)
	if c.require(c.cols(o.Out) > m.Rows/2-quant.BlockRows && c.cols(o.Out) <= m.Rows/2, "%s: %d columns out of %d rows", what, c.cols(o.Out), m.Rows) {
		c.write(what, o.Out, c.cols(o.Out))
	}
}

// rounding checks the grids of a product.
func (c *checker) rounding(what string, r Rounding, m quant.Matrix) {
	c.require(grid(r.InScale) && grid(r.OutScale), "%s: grids %g and %g", what, r.InScale, r.OutScale)
	c.require(m.Codes() || r == Rounding{}, "%s: static rounding of a float product", what)
}

// norm checks a norm.
func (c *checker) norm(what string, o *Norm) {
	c.read(what, o.In, 0)
	n := c.cols(o.In)
	if !c.require(o.Cols > 0 && n%o.Cols == 0, "%s: runs of %d in %d columns", what, o.Cols, n) {
		return
	}
	c.write(what, o.Out, n)
	c.vector(what, o.Weight, o.Cols)
	c.require(finite(o.Eps) && o.Eps > 0, "%s: eps %g", what, o.Eps)
	if o.Rotation == None {
		return
	}
	if c.require(o.Rotation >= 0 && int(o.Rotation) < len(c.p.Rotations), "%s: no rotation %d", what, o.Rotation) {
		c.require(2*len(c.p.Rotations[o.Rotation].Freqs) == o.Cols, "%s: %d frequencies for heads of %d", what, len(c.p.Rotations[o.Rotation].Freqs), o.Cols)
	}
}
