package cpu

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// Backend runs programs on the processor. Its zero value is ready for use.
type Backend struct{}

// New returns the backend.
func New() *Backend { return &Backend{} }

// Name implements backends.Backend.
func (*Backend) Name() string { return "cpu" }

// Describe implements backends.Backend.
func (*Backend) Describe() string {
	return fmt.Sprintf("%s, %d processors, generic kernels", runtime.GOARCH, runtime.GOMAXPROCS(0))
}

// Available implements backends.Backend.
func (*Backend) Available() error { return nil }

// Compile implements backends.Backend.
func (*Backend) Compile(ctx context.Context, p *program.Program, w backends.Weights, opts backends.Options) (backends.Executor, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if err := backends.CheckWeights(p, w); err != nil {
		return nil, err
	}
	opts, err := complete(p, opts)
	if err != nil {
		return nil, err
	}
	c := compiler{e: &executor{p: p, opts: opts, limit: fixedPoint(opts.Activations)}, w: w}
	c.buffers()
	for i, op := range p.Ops {
		c.index = i
		c.op(op)
	}
	if opts.Profile {
		for _, name := range c.kinds {
			c.e.profile = append(c.e.profile, backends.OpProfile{Name: name})
		}
	}
	for _, n := range c.integers {
		c.e.stats.BufferBytes += n.bytes()
	}
	c.e.scratch = make([]scratch, opts.Threads)
	for i := range c.e.scratch {
		c.e.scratch[i].sum = make([]float32, c.headDim)
	}
	c.e.pool = newPool(opts.Threads)
	return c.e, nil
}

// complete fills in defaults and checks the options against the program.
func complete(p *program.Program, o backends.Options) (backends.Options, error) {
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if o.MaxRows <= 0 {
		o.MaxRows = 64
	}
	if o.MaxLogits <= 0 {
		o.MaxLogits = 8
	}
	o.MaxLogits = min(o.MaxLogits, o.MaxRows)
	if o.Context <= 0 || o.Context > p.Context {
		o.Context = p.Context
	}
	switch o.Activations {
	case "":
		o.Activations = backends.ActivationsStatic
	case backends.ActivationsStatic, backends.ActivationsFloat, backends.Activations16, backends.Activations8:
	default:
		return o, fmt.Errorf("%w: activations %q", fault.ErrUsage, o.Activations)
	}
	switch o.Cache {
	case "":
		o.Cache = backends.CacheFloat
	case backends.CacheFloat:
	case backends.CacheInt8:
		for _, c := range p.Caches {
			if c.KeyScale == 0 || c.ValueScale == 0 {
				return o, fault.WithHint(fmt.Errorf("%w: the checkpoint has no int8 grid for cache %q", fault.ErrUsage, c.Name), "use `--kv float`")
			}
		}
	default:
		return o, fmt.Errorf("%w: cache type %q", fault.ErrUsage, o.Cache)
	}
	return o, nil
}

// compiler binds the operations of a program to buffers and weights.
type compiler struct {
	e        *executor
	w        backends.Weights
	index    int // of the operation at hand
	selected bool
	headDim  int
	integers []*integers // of the first, second, … operand of every product
	kinds    []string    // of operations, for the profile
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
		for _, id := range outputs(op) {
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
	}
	for _, k := range p.Caches {
		c.headDim = max(c.headDim, k.HeadDim)
	}
}

// outputs lists the buffers that an operation writes.
func outputs(op program.Op) []program.BufferID {
	switch {
	case op.Embed != nil:
		return []program.BufferID{op.Embed.Out}
	case op.Linear != nil:
		var ids []program.BufferID
		for _, p := range op.Linear.Parts {
			ids = append(ids, p.Out)
		}
		return ids
	case op.GateUp != nil:
		return []program.BufferID{op.GateUp.Out}
	case op.Norm != nil:
		return []program.BufferID{op.Norm.Out}
	case op.Attention != nil:
		return []program.BufferID{op.Attention.Out}
	case op.AddMul != nil:
		return []program.BufferID{op.AddMul.Out}
	case op.GELUMul != nil:
		return []program.BufferID{op.GELUMul.Out}
	}
	return nil
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

// cols returns the length of a buffer.
func (c *compiler) cols(id program.BufferID) int { return c.e.p.Buffers[id].Cols }

// add appends a step of the replay: units a batch row and units in all, and multiplications a row.
func (c *compiler) add(kind string, t task, perRow, fixed, work int) {
	c.e.ops = append(c.e.ops, operation{task: t, op: c.index, kind: c.kind(kind), unitsPerRow: perRow, units: fixed, workPerRow: work})
}

// addProduct is add for what reads a matrix, so many bytes of it.
func (c *compiler) addProduct(kind string, m quant.Matrix, bytes int64, t task, units, work int) {
	c.e.stats.StepBytes += bytes
	c.add(fmt.Sprintf("%s %s %dx%d", kind, m.Format, m.Rows, m.Cols), t, 0, units, work)
	c.e.ops[len(c.e.ops)-1].bytes = bytes
}

// op compiles one operation.
func (c *compiler) op(op program.Op) {
	e := c.e
	switch {
	case op.Embed != nil:
		m, data := c.weight(op.Embed.Table)
		e.stats.StepBytes += int64(m.CodeBytes() + m.Groups()*4)
		c.add("embed", &embed{e, m, data, op.Embed.Out, op.Embed.Mul}, 1, 0, m.Cols)
	case op.Linear != nil:
		c.linear(op.Linear)
	case op.GateUp != nil:
		c.gateUp(op.GateUp)
	case op.Norm != nil:
		o := op.Norm
		c.add("norm", &norm{e, o.In, o.Out, c.vector(o.Weight), o.Cols, o.Eps, o.Rotation}, 1, 0, 4*c.cols(o.In))
	case op.AddNorm != nil:
		o := op.AddNorm
		c.add("add norm", &addNorm{e, o.State, o.In, c.vector(o.Weight), o.Eps, one(o.Mul)}, 1, 0, 4*c.cols(o.In))
	case op.Store != nil:
		o := op.Store
		c.add("store", &store{e, o.Cache, o.Key, o.Value}, 1, 0, 4*c.cols(o.Key))
	case op.Attention != nil:
		o := op.Attention
		// The work depends on the positions; it is taken as that of one block.
		c.add("attention", &attention{e, o.Cache, o.Query, o.Out, o.Heads, o.Scale}, o.Heads, 0, 2*backends.BlockPositions*c.cols(o.Query))
	case op.AddMul != nil:
		o := op.AddMul
		c.add("add", &addMul{e, o.A, o.B, o.Out, o.Mul}, 1, 0, c.cols(o.Out))
	case op.GELUMul != nil:
		o := op.GELUMul
		c.add("gelu", &geluMul{e, o.A, o.B, o.Out, o.First}, 1, 0, 16*c.cols(o.A))
	case op.Softcap != nil:
		o := op.Softcap
		n := c.cols(o.Buffer)
		c.add("softcap", &softcap{e, o.Buffer, o.Cap}, 0, (n+softcapUnit-1)/softcapUnit, 16*n)
	case op.Select != nil:
		c.selected = true
		e.ops = append(e.ops, operation{op: c.index, keep: op.Select.Buffers})
	}
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
	work := rows * m.Cols
	if !m.Codes() {
		c.addProduct("linear", m, int64(rows*m.RowBytes()), &floatLinear{c.e, m, data, o.In, one(o.Mul), o.Parts}, rows, work)
		return
	}
	q := c.quantizer(m, o.In)
	t := &linear{e: c.e, padded: q.padded, mul: one(o.Mul)}
	blocks := 0
	for _, p := range o.Parts {
		n := (p.Rows + quant.BlockRows - 1) / quant.BlockRows
		t.parts = append(t.parts, linearPart{
			product:    c.product(q, m, data, p.Rounding),
			firstBlock: p.First / quant.BlockRows, blocks: n, out: p.Out,
		})
		blocks += n
	}
	c.add("quantize", q, 1, 0, 2*m.Cols*len(q.operands))
	c.addProduct("linear", m, int64(blocks*m.BlockBytes()), t, blocks, work)
}

// gateUp compiles a fused pair of products.
func (c *compiler) gateUp(o *program.GateUp) {
	m, data := c.weight(o.Weight)
	q := c.quantizer(m, o.In)
	t := &gateUp{
		e: c.e, padded: q.padded, out: o.Out, cols: c.cols(o.Out),
		gate: c.product(q, m, data, o.Gate), up: c.product(q, m, data, o.Up),
	}
	c.add("quantize", q, 1, 0, 2*m.Cols*len(q.operands))
	c.addProduct("gate and up", m, m.SizeBytes(), t, m.NumBlocks()/2, m.Rows*m.Cols)
}

// quantizer returns the task that makes integers of a product's input.
func (c *compiler) quantizer(m quant.Matrix, in program.BufferID) *quantize {
	return &quantize{e: c.e, in: in, cols: m.Cols, padded: m.Steps() * m.StepCols(), group: m.Group}
}

// product binds a matrix to its input on the grid that the options ask for.
func (c *compiler) product(q *quantize, m quant.Matrix, data []byte, r program.Rounding) product {
	if c.e.opts.Activations != backends.ActivationsStatic {
		r = program.Rounding{}
	}
	return product{m: m, data: data, operand: c.operand(q, r.InScale, m.Groups()), out: r.OutScale}
}

// rows returns the most rows that are live at this point of the program.
func (c *compiler) rows() int {
	if c.selected {
		return c.e.opts.MaxLogits
	}
	return c.e.opts.MaxRows
}

// operand returns the operand on a grid; parts of a product that share a grid share it.
func (c *compiler) operand(q *quantize, grid float32, groups int) *operand {
	for _, o := range q.operands {
		if o.grid == grid {
			return o
		}
	}
	n := len(q.operands)
	if n == len(c.integers) {
		c.integers = append(c.integers, &integers{})
	}
	c.integers[n].grow(c.rows(), q.padded, groups)
	o := &operand{grid: grid, narrow: grid != 0 || c.e.limit == max8, integers: c.integers[n]}
	q.operands = append(q.operands, o)
	return o
}
