package backendtest

import (
	"math"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fmath"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// Interpret runs a program token by token, every operation written out as
// package backends defines it: no blocks of rows, no threads, no rings, nothing
// packed. It returns the logits and the hidden state of every token, and is
// what backends are held against, bit for bit.
func Interpret(p *program.Program, w *Weights, o backends.Options, tokens []int32) (logits, hidden [][]float32) {
	return interpretSome(p, w, o, tokens, func(int) bool { return true })
}

// interpretSome is [Interpret] where only some positions have logits and a hidden state; those of others are nil.
func interpretSome(p *program.Program, w *Weights, o backends.Options, tokens []int32, wanted func(pos int) bool) (logits, hidden [][]float32) {
	in := &interpreter{p: p, w: w, o: o, keys: make([][][]float32, len(p.Caches)), values: make([][][]float32, len(p.Caches))}
	in.buf = make([][]float32, len(p.Buffers))
	for i, b := range p.Buffers {
		in.buf[i] = make([]float32, b.Cols)
	}
	for pos, t := range tokens {
		in.pos, in.token = pos, int(t)
		want := wanted(pos)
		for _, op := range p.Ops {
			if op.Select != nil && !want {
				break
			}
			in.op(op)
		}
		if !want {
			logits, hidden = append(logits, nil), append(hidden, nil)
			continue
		}
		logits = append(logits, append([]float32(nil), in.buf[p.Logits]...))
		hidden = append(hidden, append([]float32(nil), in.buf[p.Hidden]...))
	}
	return logits, hidden
}

// interpreter holds one sequence.
type interpreter struct {
	p          *program.Program
	w          *Weights
	o          backends.Options
	buf        [][]float32
	keys       [][][]float32 // by cache and position; on the int8 grid these are codes
	values     [][][]float32
	pos, token int
}

// tensor returns the plain numbers of a weight.
func (in *interpreter) tensor(id program.WeightID) *tensor {
	return in.w.tensors[in.p.Weights[id].Name]
}

// op interprets one operation.
func (in *interpreter) op(op program.Op) {
	switch {
	case op.Embed != nil:
		t := in.tensor(op.Embed.Table)
		for c := range in.buf[op.Embed.Out] {
			in.buf[op.Embed.Out][c] = float32(t.value(in.token, c) * op.Embed.Mul)
		}
	case op.Linear != nil:
		in.linear(op.Linear)
	case op.GateUp != nil:
		o := op.GateUp
		t, gate, up := in.tensor(o.Weight), in.integers(in.buf[o.In], o.Gate), in.integers(in.buf[o.In], o.Up)
		for i := range in.buf[o.Out] {
			at := i/quant.BlockRows*2*quant.BlockRows + i%quant.BlockRows
			in.buf[o.Out][i] = float32(fmath.GELU(gate.product(t, at)) * up.product(t, at+quant.BlockRows))
		}
	case op.Norm != nil:
		in.norm(op.Norm)
	case op.AddNorm != nil:
		o := op.AddNorm
		mul := o.Mul
		if mul == 0 {
			mul = 1
		}
		x := in.buf[o.In]
		inv := inverse(x, o.Eps)
		for i := range x {
			y := float32(x[i] * inv)
			if o.Weight != program.None {
				y = float32(y * in.tensor(o.Weight).floats[i])
			}
			in.buf[o.State][i] = float32((in.buf[o.State][i] + y) * mul)
		}
	case op.Store != nil:
		o, c := op.Store, in.p.Caches[op.Store.Cache]
		in.keys[o.Cache] = append(in.keys[o.Cache], in.cached(in.buf[o.Key], c.KeyScale))
		in.values[o.Cache] = append(in.values[o.Cache], in.cached(in.buf[o.Value], c.ValueScale))
	case op.Attention != nil:
		for h := range op.Attention.Heads {
			in.head(op.Attention, h)
		}
	case op.AddMul != nil:
		o := op.AddMul
		for i := range in.buf[o.Out] {
			in.buf[o.Out][i] = float32((in.buf[o.A][i] + in.buf[o.B][i]) * o.Mul)
		}
	case op.GELUMul != nil:
		o := op.GELUMul
		for i, a := range in.buf[o.A] {
			in.buf[o.Out][i] = float32(fmath.GELU(a) * in.buf[o.B][o.First+i])
		}
	case op.Softcap != nil:
		o := op.Softcap
		for i, x := range in.buf[o.Buffer] {
			in.buf[o.Buffer][i] = float32(o.Cap * fmath.Tanh(x/o.Cap))
		}
	}
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

// inverse returns 1/sqrt(mean(x^2) + eps).
func inverse(x []float32, eps float32) float32 {
	mean := laneSum(len(x), 0, func(i int) float32 { return float32(x[i] * x[i]) }) / float32(len(x))
	return 1 / float32(math.Sqrt(float64(mean+eps)))
}

// norm interprets a norm with its rotation.
func (in *interpreter) norm(o *program.Norm) {
	for at := 0; at < len(in.buf[o.In]); at += o.Cols {
		x, y := in.buf[o.In][at:at+o.Cols], in.buf[o.Out][at:at+o.Cols]
		inv := inverse(x, o.Eps)
		for i := range x {
			y[i] = float32(x[i] * inv)
			if o.Weight != program.None {
				y[i] = float32(y[i] * in.tensor(o.Weight).floats[i])
			}
		}
		if o.Rotation == program.None {
			continue
		}
		half := o.Cols / 2
		for i, f := range in.p.Rotations[o.Rotation].Freqs {
			sin, cos := fmath.Sincos(float32(float32(in.pos) * f))
			a, b := y[i], y[half+i]
			y[i] = float32(a*cos) - float32(b*sin)
			y[half+i] = float32(b*cos) + float32(a*sin)
		}
	}
}

// round returns round_half_even(x/step) between lo and hi; NaN becomes lo. It
// is an integer, which has no negative zero.
func round(x, step, lo, hi float32) int64 {
	v := x / step
	if v != v {
		return int64(lo)
	}
	return int64(math.RoundToEven(math.Max(float64(lo), math.Min(float64(hi), float64(v)))))
}

// cached returns x as a cache keeps it.
func (in *interpreter) cached(x []float32, step float32) []float32 {
	y := append([]float32(nil), x...)
	for i := range y {
		switch in.o.Cache {
		case backends.CacheInt8:
			y[i] = float32(round(y[i], step, -128, 127))
		case backends.CacheHalf:
			y[i] = quant.F16ToF32(quant.F32ToF16(y[i]))
		}
	}
	return y
}

// linear interprets a product.
func (in *interpreter) linear(o *program.Linear) {
	t := in.tensor(o.Weight)
	mul := o.Mul
	if mul == 0 {
		mul = 1
	}
	for _, part := range o.Parts {
		var x integers
		if t.Codes() {
			x = in.integers(in.buf[o.In], part.Rounding)
		}
		for i := range part.Rows {
			var y float32
			if t.Codes() {
				y = x.product(t, part.First+i)
			} else {
				y = laneSum(t.Cols, 0, func(c int) float32 { return float32(in.buf[o.In][c] * t.value(part.First+i, c)) })
			}
			in.buf[part.Out][i] = float32(y * mul)
		}
	}
}

// integers is the input of a product with codes.
type integers struct {
	n    []int64
	step float32
	out  float32 // the output grid, or 0
}

// integers makes the input of a product on the grids that the options ask for.
func (in *interpreter) integers(x []float32, r program.Rounding) integers {
	n := make([]int64, len(x))
	if in.o.Activations != backends.ActivationsStatic {
		r = program.Rounding{}
	}
	if r.InScale != 0 {
		for i := range x {
			n[i] = round(x[i], r.InScale, -128, 127)
		}
		return integers{n, r.InScale, r.OutScale}
	}
	limit := map[backends.Activations]float32{backends.Activations8: 127, backends.Activations16: 32639}[in.o.Activations]
	if limit == 0 {
		limit = limit24
	}
	y := fixed(x, limit)
	y.out = r.OutScale
	return y
}

// fixed makes fixed point of at most limit.
func fixed(x []float32, limit float32) integers {
	n := make([]int64, len(x))
	largest := float32(0)
	for _, v := range x {
		largest = max(largest, float32(math.Abs(float64(v))))
	}
	step := largest / limit
	for i := range x {
		if step != 0 {
			n[i] = round(x[i], step, -limit, limit)
		}
	}
	return integers{n: n, step: step}
}

// limit24 is the largest magnitude of 24-bit fixed point.
const limit24 = 1<<23 - 32896 - 1

// fixed24 makes 24-bit fixed point.
func fixed24(x []float32) integers { return fixed(x, limit24) }

// times returns the exact sum of products with whole numbers, times the step.
func (x integers) times(codes []float32) float32 {
	sum := int64(0)
	for i, n := range x.n {
		sum += n * int64(codes[i])
	}
	return float32(float32(sum) * x.step)
}

// product interprets one row of a product with codes.
func (x integers) product(t *tensor, row int) float32 {
	groups := t.Groups()
	size := t.Cols / groups
	midpoint := t.Midpoint()
	y := float32(0)
	for g := range groups {
		sum, plain := int64(0), int64(0)
		codes := t.codes[row*t.Cols+g*size:][:size]
		for c, n := range x.n[g*size:][:size] {
			sum += int64(codes[c]-midpoint) * n
			plain += n
		}
		scale, minimum := t.scale(row, g)
		part := float32(float32(float32(sum)*x.step) * scale)
		if t.Minimum {
			part -= float32(float32(float32(plain)*x.step) * minimum)
		}
		if t.Group > 0 {
			part += y // which begins with 0: there is no -0 then
		}
		y = part
	}
	if x.out != 0 {
		y = float32(float32(round(y, x.out, -128, 127)) * x.out)
	}
	return y
}

// head interprets one head of attention.
func (in *interpreter) head(o *program.Attention, h int) {
	c := in.p.Caches[o.Cache]
	at := h / (o.Heads / c.KVHeads) * c.HeadDim
	q, out := in.buf[o.Query][h*c.HeadDim:][:c.HeadDim], in.buf[o.Out][h*c.HeadDim:][:c.HeadDim]
	from := 0
	if c.Window > 0 {
		from = max(0, in.pos-c.Window+1)
	}
	int8Cache := in.o.Cache == backends.CacheInt8
	query := fixed24(q)
	var top, total float32
	acc := make([]float32, c.HeadDim)
	for first := from; first <= in.pos; {
		end := min(in.pos+1, (first/backends.BlockPositions+1)*backends.BlockPositions)
		scores := make([]float32, end-first)
		largest := float32(math.Inf(-1))
		for i := range scores {
			k := in.keys[o.Cache][first+i][at:][:c.HeadDim]
			var s float32
			if int8Cache {
				s = float32(query.times(k) * c.KeyScale)
			} else {
				s = laneSum(c.HeadDim, 0, func(d int) float32 { return float32(q[d] * k[d]) })
			}
			scores[i] = float32(s * o.Scale)
			largest = max(largest, scores[i])
		}
		for i := range scores {
			scores[i] = fmath.Exp(scores[i] - largest)
		}
		var sum float32
		part := make([]float32, c.HeadDim)
		if int8Cache {
			weights := fixed24(scores)
			ones, column := make([]float32, len(scores)), make([]float32, len(scores))
			for i := range ones {
				ones[i] = 1
			}
			sum = weights.times(ones)
			for d := range part {
				for i := range column {
					column[i] = in.values[o.Cache][first+i][at+d]
				}
				part[d] = float32(weights.times(column) * c.ValueScale)
			}
		} else {
			sum = laneSum(len(scores), first, func(i int) float32 { return scores[i] })
			for i, weight := range scores {
				for d := range part {
					part[d] += float32(weight * in.values[o.Cache][first+i][at+d])
				}
			}
		}
		if first == from {
			top, total, acc = largest, sum, part
		} else {
			m := max(top, largest)
			old, add := fmath.Exp(top-m), fmath.Exp(largest-m)
			top, total = m, float32(total*old)+float32(sum*add)
			for d := range acc {
				acc[d] = float32(acc[d]*old) + float32(part[d]*add)
			}
		}
		first = end
	}
	for d := range out {
		out[d] = acc[d] / total
	}
}
