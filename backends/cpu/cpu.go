package cpu

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// Backend runs programs on the processor.
type Backend struct {
	kernels *kernels.Set
	err     error // why there are none
	minWork int   // see pool
}

// New returns the backend with the named set of kernels: "generic", "avx2",
// "avx512" or "neon", or "" for the fastest that this processor runs. Where it
// does not run the set, Available and Compile say so.
func New(set string) *Backend {
	k, err := kernels.Named(set)
	return &Backend{k, err, minWork}
}

// Kernels returns the names of the sets that this processor runs, the fastest last.
func Kernels() (names []string) {
	for _, s := range kernels.Variants() {
		names = append(names, s.Name())
	}
	return names
}

// Name implements backends.Backend.
func (*Backend) Name() string { return "cpu" }

// Describe implements backends.Backend.
func (b *Backend) Describe() string {
	if b.err != nil {
		return runtime.GOARCH
	}
	return fmt.Sprintf("%s, %d processors, %s kernels", runtime.GOARCH, runtime.GOMAXPROCS(0), b.kernels.Name())
}

// Plain implements backends.Plain.
func (b *Backend) Plain() backends.Backend {
	if generic := kernels.Generic(); b.err != nil || b.kernels.Name() != generic.Name() {
		return New(generic.Name())
	}
	return nil
}

// Available implements backends.Backend.
func (b *Backend) Available() error { return b.err }

// Compile implements backends.Backend.
func (b *Backend) Compile(ctx context.Context, p *program.Program, w backends.Weights, opts backends.Options) (backends.Executor, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if b.err != nil {
		return nil, b.err
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if err := backends.CheckWeights(p, w); err != nil {
		return nil, err
	}
	opts.Tables = cmp.Or(opts.Tables, backends.TablesMapped)
	opts, err := opts.Complete(p)
	if err != nil {
		return nil, err
	}
	tables, err := backends.HoldTables(ctx, p, w, opts.Tables)
	if err != nil {
		return nil, err
	}
	c := compiler{fed: &digits{}, e: &executor{p: p, opts: opts, tables: tables, kernels: b.kernels, slots: backends.NewSlots(p, opts.MaxRows)}, w: w}
	c.e.planes, c.e.limit = fixedPoint(opts.Activations)
	c.buffers()
	for i, op := range p.Ops {
		c.index = i
		c.op(op)
	}
	c.index = len(p.Ops)
	c.e.peaks = make([]float32, opts.MaxLogits*runs(p.Vocab))
	c.add("peaks", &peaks{c.e})
	if opts.Profile {
		for _, name := range c.kinds {
			c.e.profile = append(c.e.profile, backends.OpProfile{Name: name})
		}
	}
	for _, d := range c.digits {
		c.e.stats.BufferBytes += d.bytes()
	}
	c.e.stats.BufferBytes += c.fed.bytes() + c.e.queries.bytes() + 4*int64(len(c.e.peaks))
	c.e.scratch = make([]scratch, opts.Threads)
	for i := range c.e.scratch {
		c.e.scratch[i] = c.need.scratch()
		c.e.stats.BufferBytes += c.e.scratch[i].bytes()
	}
	c.e.stats.StepBytes = backends.StepBytes(p)
	c.e.ahead()
	c.e.pool = newPool(opts.Threads, b.minWork, b.kernels.Read)
	return c.e, nil
}

// ahead tells each operation which one reads weights next; after the last it is the first of the next step.
func (e *executor) ahead() {
	var next reader
	for range 2 {
		for i := len(e.ops) - 1; i >= 0; i-- {
			e.ops[i].next = next
			if r, ok := e.ops[i].task.(reader); ok {
				next = r
			}
		}
	}
}

// compiler binds the operations of a program to buffers and weights.
type compiler struct {
	e        *executor
	w        backends.Weights
	index    int // of the operation at hand
	selected bool
	digits   []*digits // of the first, second, … operand of every product
	fed      *digits   // of the operands that a gateUp feeds
	need     needs
	kinds    []string // of operations, for the profile
}

// needs is how much scratch memory the operations take at most.
type needs struct{ digits, totals, groups, sharers, headDim int }

// scratch returns a worker's memory.
func (n needs) scratch() scratch {
	return scratch{
		digits:  make([]uint32, n.digits),
		totals:  make([]int32, n.totals),
		sums32:  make([]int32, n.groups),
		gate:    make([]float32, n.totals),
		up:      make([]float32, n.totals),
		weights: make([]float32, n.sharers*backends.BlockPositions),
		sums:    make([]float32, n.sharers*n.headDim),
		largest: make([]float32, 2*n.sharers), totalsOf: make([]float32, 2*n.sharers),
		codes:       make([]int8, n.headDim),
		weightWords: make([]uint32, n.sharers*planes24*backends.BlockPositions/4),
		steps:       make([]float32, n.sharers),
		starts:      make([]float64, n.sharers),
		padded:      make([]float32, n.sharers*(n.headDim+quant.BlockRows-1)),
	}
}

// kind returns the number of a kind of operation.
func (c *compiler) kind(name string) int {
	i := slices.Index(c.kinds, name)
	if i < 0 {
		i = len(c.kinds)
		c.kinds = append(c.kinds, name)
	}
	return i
}

// buffers allocates the activations. What is only written behind the select holds fewer rows.
func (c *compiler) buffers() {
	p, opts := c.e.p, c.e.opts
	early := make([]bool, len(p.Buffers))
	for _, op := range p.Ops {
		if op.Select != nil {
			break
		}
		for _, id := range op.Writes() {
			early[id] = true
		}
	}
	c.e.buf = make([]buffer, len(p.Buffers))
	for i, b := range p.Buffers {
		rows := opts.MaxLogits
		if early[i] {
			rows = opts.MaxRows
		}
		c.e.buf[i] = buffer{cols: b.Cols, data: make([]float32, rows*b.Cols)}
		c.e.stats.BufferBytes += 4 * int64(len(c.e.buf[i].data))
	}
	c.e.angles = make([]angles, len(p.Rotations))
	for i, r := range p.Rotations {
		c.e.angles[i] = angles{freqs: r.Freqs, table: make([]float32, opts.MaxRows*2*len(r.Freqs))}
		c.e.stats.BufferBytes += 4 * int64(len(c.e.angles[i].table))
	}
	for _, k := range p.Caches {
		c.need.headDim = max(c.need.headDim, k.HeadDim)
	}
}

// weight returns a weight's matrix and data.
func (c *compiler) weight(id program.WeightID) (quant.Matrix, []byte) {
	data, m, _ := c.w.Tensor(c.e.p.Weights[id].Name)
	return m, data
}

// vector returns a float32 weight of one row, nil for none.
func (c *compiler) vector(id program.WeightID) []float32 {
	if id == program.None {
		return nil
	}
	m, data := c.weight(id)
	v := make([]float32, m.Cols)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return v
}

// add appends a step of the replay.
func (c *compiler) add(kind string, t task) {
	c.e.ops = append(c.e.ops, operation{task: t, op: c.index, kind: c.kind(kind)})
}

// addProduct is add for what reads a matrix, so many bytes of it.
func (c *compiler) addProduct(kind string, m quant.Matrix, bytes int64, t task) {
	c.add(fmt.Sprintf("%s %s %dx%d", kind, m.Format, m.Rows, m.Cols), t)
	c.e.ops[len(c.e.ops)-1].bytes = bytes
}

// op compiles one operation.
func (c *compiler) op(op program.Op) {
	e := c.e
	switch {
	case op.Embed != nil:
		m, data := c.weight(op.Embed.Table)
		c.add("embed", &embed{e, m, data, op.Embed.Out, op.Embed.Mul})
	case op.Linear != nil:
		c.linear(op.Linear)
	case op.GateUp != nil:
		c.gateUp(op.GateUp)
	case op.Norm != nil:
		o := op.Norm
		c.add("norm", &norm{e, o.In, o.Out, c.vector(o.Weight), o.Cols, o.Eps, o.Rotation})
	case op.AddNorm != nil:
		o := op.AddNorm
		c.add("add norm", &addNorm{e, o.State, o.In, c.vector(o.Weight), o.Eps, one(o.Mul)})
	case op.Store != nil:
		o := op.Store
		c.add("store", &store{e, o.Cache, o.Key, o.Value})
	case op.Attention != nil:
		c.attention(op.Attention)
	case op.AddMul != nil:
		o := op.AddMul
		c.add("add", &addMul{e, o.A, o.B, o.Out, o.Mul})
	case op.GELUMul != nil:
		o := op.GELUMul
		c.add("gelu", &geluMul{e, o.A, o.B, o.Out, o.First})
	case op.Softcap != nil:
		c.add("softcap", &softcap{e, op.Softcap.Buffer, op.Softcap.Cap})
	case op.Select != nil:
		c.selected = true
		e.ops = append(e.ops, operation{op: c.index, keep: op.Select.Buffers})
	}
}

// attention compiles an attention.
func (c *compiler) attention(o *program.Attention) {
	a := newAttention(c.e, o)
	c.need.sharers = max(c.need.sharers, a.perKV)
	if c.e.opts.Cache == backends.CacheInt8 {
		words := (c.e.p.Caches[o.Cache].HeadDim + 3) / 4
		q := &c.e.queries
		q.words = atLeast(q.words, c.rows()*a.heads*planes24*words)
		q.steps = atLeast(q.steps, c.rows()*a.heads)
		q.starts = atLeast(q.starts, c.rows()*a.heads)
		c.need.digits = max(c.need.digits, a.perKV*planes24*max(words, backends.BlockPositions/4))
		c.need.totals = max(c.need.totals, maxTotals, a.perKV*planes24*quant.BlockRows)
	}
	c.add("attention", &planned{a})
	c.add("attention", a)
	c.add("attention", &combine{a})
}

// one returns f, or 1 for 0.
func one(f float32) float32 {
	if f == 0 {
		return 1
	}
	return f
}

// linear compiles a product.
func (c *compiler) linear(o *program.Linear) {
	m, data := c.weight(o.Weight)
	rows := 0
	for _, p := range o.Parts {
		rows += p.Rows
	}
	if !m.Codes() {
		c.addProduct("linear", m, int64(rows*m.RowBytes()), &floatLinear{c.e, m, data, o.In, one(o.Mul), o.Parts, rows})
		return
	}
	q := &quantize{e: c.e, in: o.In, m: m}
	t := &linear{e: c.e, work: rows * m.Cols}
	for _, p := range o.Parts {
		n := (p.Rows + quant.BlockRows - 1) / quant.BlockRows
		r := c.rounding(p.Rounding)
		t.parts = append(t.parts, linearPart{
			product:    newProduct(m, data, c.operand(q, r.InScale, c.planes(r)), r.OutScale, one(o.Mul)),
			firstBlock: p.First / quant.BlockRows, blocks: n, rows: p.Rows, out: p.Out,
		})
		t.units += n
	}
	c.feed(q)
	c.add("quantize", q)
	c.addProduct("linear", m, int64(t.units*m.BlockBytes()), t)
}

// feed has the operation before make the digits of a product's input, if it can.
// They lie in memory of their own, since those of its own input are in use.
func (c *compiler) feed(q *quantize) {
	if len(c.e.ops) == 0 || len(q.operands) != 1 {
		return
	}
	g, ok := c.e.ops[len(c.e.ops)-1].task.(*gateUp)
	o := q.operands[0]
	whole := q.m.Cols == 4*o.words // no padding that would have to be cleared
	if !ok || g.out != q.in || o.grid == 0 || o.planes != 1 || q.m.Group > 0 || !whole {
		return
	}
	c.fed.grow(c.rows(), o.words, 1, 0)
	o.digits = c.fed
	g.feeds, q.fed = o, g
}

// gateUp compiles a fused pair of products.
func (c *compiler) gateUp(o *program.GateUp) {
	m, data := c.weight(o.Weight)
	q := &quantize{e: c.e, in: o.In, m: m}
	gate, up := c.rounding(o.Gate), c.rounding(o.Up)
	planes := max(c.planes(gate), c.planes(up))
	t := &gateUp{
		e: c.e, out: o.Out, units: m.NumBlocks() / 2, work: m.Rows * m.Cols,
		gate: newProduct(m, data, c.operand(q, gate.InScale, planes), gate.OutScale, 1),
		up:   newProduct(m, data, c.operand(q, up.InScale, planes), up.OutScale, 1),
	}
	c.add("quantize", q)
	c.addProduct("gate and up", m, m.SizeBytes(), t)
}

// rounding returns the grids that the options ask for.
func (c *compiler) rounding(r program.Rounding) program.Rounding {
	if c.e.opts.Activations != backends.ActivationsStatic {
		return program.Rounding{}
	}
	return r
}

// planes returns the number of digits of a product's input.
func (c *compiler) planes(r program.Rounding) int {
	if r.InScale != 0 {
		return 1
	}
	return c.e.planes
}

// rows returns the most rows that are live at this point of the program.
func (c *compiler) rows() int {
	if c.selected {
		return c.e.opts.MaxLogits
	}
	return c.e.opts.MaxRows
}

// operand returns the operand on a grid; parts of a product that share a grid share it.
func (c *compiler) operand(q *quantize, grid float32, planes int) *operand {
	for _, o := range q.operands {
		if o.grid == grid {
			return o
		}
	}
	n := len(q.operands)
	if n == len(c.digits) {
		c.digits = append(c.digits, &digits{})
	}
	o := &operand{grid: grid, planes: planes, words: q.m.Steps() * q.m.StepCols() / 4, tilings: c.tilings(q.m.Format), digits: c.digits[n]}
	minimums := 0
	if q.m.Group > 0 {
		o.groups = q.m.Groups()
	}
	if q.m.Minimum {
		minimums = o.groups
	}
	o.grow(c.rows(), o.words*planes, o.groups, minimums)
	c.need.groups = max(c.need.groups, o.groups)
	c.need.digits = max(c.need.digits, quantizeRows*o.words*planes)
	tiles := c.e.kernels.Tiles()
	// Gate and up take two blocks at least.
	c.need.totals = max(c.need.totals, maxTotals, 2*min(tiles[len(tiles)-1], c.rows()*planes)*quant.BlockRows)
	q.operands = append(q.operands, o)
	return o
}

// tilings returns how rows are cut for products of a format.
func (c *compiler) tilings(f quant.Format) *tilings {
	if f.Group == 0 {
		f = quant.Format{}
	}
	for _, t := range c.e.tilings {
		if t.format == f {
			return t
		}
	}
	t := newTilings(c.e.kernels, f)
	c.e.tilings = append(c.e.tilings, t)
	return t
}
