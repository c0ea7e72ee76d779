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
func (b *Backend) Compile(ctx context.Context, p *program.Program, w backends.Weights, opts backends.Options) (_ backends.Executor, err error) {
	if b.err != nil {
		return nil, b.err
	}
	release, err := backends.Accept(ctx, p, w)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	opts.Tables = cmp.Or(opts.Tables, backends.TablesMapped)
	if opts, err = opts.Complete(p); err != nil {
		return nil, err
	}
	e := &executor{p: p, opts: opts, kernels: b.kernels, release: release, slots: backends.NewSlots(p, opts.MaxRows), memory: memory{limit: opts.MemoryBytes}}
	c := compiler{e: e, w: w, fed: &digits{}, vectors: map[program.WeightID][]float32{}, shares: map[int]*headShares{}}
	if err := c.program(); err != nil {
		return nil, err
	}
	if e.tables, err = backends.HoldTables(ctx, p, w, opts.Tables); err != nil {
		return nil, err
	}
	e.pool = newPool(opts.Threads, b.minWork, b.kernels.Read)
	return e, nil
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
	vectors  map[program.WeightID][]float32
	shares   map[int]*headShares // by the number of heads that share keys
	need     needs
	kinds    []string // of operations, for the profile
}

// needs is how much memory the operations take at most, any one of them: the most
// heads and the longest, say, need not be of the same attention.
type needs struct {
	// of a worker's scratch
	digits, totals, groups, sharers, sharerCols, headDim int
	// of all queries over codes, and their words
	queries, queryWords int
}

// scratch returns a worker's memory.
func (n needs) scratch(m *memory) (s scratch) {
	s.digits = atLeast(m, s.digits, n.digits)
	s.totals = atLeast(m, s.totals, n.totals)
	s.sums32 = atLeast(m, s.sums32, n.groups)
	s.gate = atLeast(m, s.gate, n.totals)
	s.up = atLeast(m, s.up, n.totals)
	s.weights = atLeast(m, s.weights, n.sharers*backends.BlockPositions)
	s.sums = atLeast(m, s.sums, n.sharerCols)
	s.largest = atLeast(m, s.largest, 2*n.sharers)
	s.totalsOf = atLeast(m, s.totalsOf, 2*n.sharers)
	s.codes = atLeast(m, s.codes, n.headDim)
	s.weightWords = atLeast(m, s.weightWords, n.sharers*planes24*backends.BlockPositions/4)
	s.steps = atLeast(m, s.steps, n.sharers)
	s.starts = atLeast(m, s.starts, n.sharers)
	s.padded = atLeast(m, s.padded, n.sharerCols)
	return s
}

// program compiles all operations and makes the memory that they need.
func (c *compiler) program() error {
	e := c.e
	e.planes, e.limit = fixedPoint(e.opts.Activations)
	c.buffers()
	for i, op := range e.p.Ops {
		if e.memory.refused != nil {
			return e.memory.refused
		}
		c.index = i
		c.op(op)
	}
	c.index = len(e.p.Ops)
	e.peaks = atLeast(&e.memory, e.peaks, e.opts.MaxLogits*runs(e.p.Vocab))
	c.add("peaks", &peaks{e})
	if e.opts.Profile {
		for _, name := range c.kinds {
			e.profile = append(e.profile, backends.OpProfile{Name: name})
		}
	}
	for _, d := range append(c.digits, c.fed) {
		d.allocate(&e.memory)
	}
	e.queries.allocate(&e.memory, c.need)
	e.scratch = make([]scratch, e.opts.Threads)
	for i := range e.scratch {
		e.scratch[i] = c.need.scratch(&e.memory)
	}
	e.stats.StepBytes = backends.StepBytes(e.p)
	e.ahead()
	return e.memory.refused
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
		c.e.buf[i] = buffer{cols: b.Cols, data: atLeast[float32](&c.e.memory, nil, rows*b.Cols)}
	}
	c.e.angles = make([]angles, len(p.Rotations))
	for i, r := range p.Rotations {
		c.e.angles[i] = angles{freqs: r.Freqs, table: atLeast[float32](&c.e.memory, nil, opts.MaxRows*2*len(r.Freqs))}
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

// vector returns a float32 weight of one row, nil for none: the same memory however many operations read it.
func (c *compiler) vector(id program.WeightID) []float32 {
	if id == program.None {
		return nil
	}
	v, ok := c.vectors[id]
	if !ok {
		m, data := c.weight(id)
		v = atLeast(&c.e.memory, v, m.Cols)
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		c.vectors[id] = v
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
	k := c.e.p.Caches[o.Cache]
	perKV := o.Heads / k.KVHeads
	shares, ok := c.shares[perKV]
	if !ok {
		shares = newHeadShares(c.e, perKV)
		c.shares[perKV] = shares
	}
	a := newAttention(c.e, o, shares)
	n := &c.need
	n.sharers = max(n.sharers, a.most)
	n.sharerCols = max(n.sharerCols, a.most*(k.HeadDim+quant.BlockRows-1))
	if c.e.opts.Cache == backends.CacheInt8 {
		words := (k.HeadDim + 3) / 4
		n.queries = max(n.queries, c.rows()*a.heads)
		n.queryWords = max(n.queryWords, c.rows()*a.heads*planes24*words)
		n.digits = max(n.digits, a.most*planes24*max(words, backends.BlockPositions/4))
		n.totals = max(n.totals, maxTotals, a.most*planes24*quant.BlockRows)
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
	traced := q.in == c.e.p.State  // and maybe changed in between
	if !ok || g.out != q.in || traced || o.grid == 0 || o.planes != 1 || q.m.Group > 0 || !whole {
		return
	}
	c.fed.note(c.rows(), o.words, 1, 0)
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
	o.note(c.rows(), o.words*planes, o.groups, minimums)
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
