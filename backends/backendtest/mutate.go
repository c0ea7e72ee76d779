package backendtest

import (
	"math"
	"reflect"
	"slices"

	"github.com/zoo-sdk/zoo/program"
)

// Mutate returns a copy of a program that a script changes, a few bytes for each
// change. Numbers become extreme ones; operations come twice, go, or change
// places; buffers stand in for others of their length; heads, runs and windows are
// cut otherwise, and matrices and tables have other formats. Any script will do.
// Most changes of the second kind make programs that are valid and that nobody would record.
func Mutate(p *program.Program, script []byte) *program.Program {
	m := mutation{p: clone(p), script: script}
	for len(m.script) > 0 {
		changes[m.below(len(changes))](&m)
	}
	return m.p
}

// clone returns a deep copy.
func clone(p *program.Program) *program.Program {
	q := *p
	q.Weights, q.Buffers, q.Caches = slices.Clone(p.Weights), slices.Clone(p.Buffers), slices.Clone(p.Caches)
	q.Rotations, q.Layers, q.Ops = slices.Clone(p.Rotations), slices.Clone(p.Layers), slices.Clone(p.Ops)
	for i := range q.Rotations {
		q.Rotations[i].Freqs = slices.Clone(q.Rotations[i].Freqs)
	}
	for i, op := range q.Ops {
		q.Ops[i] = cloneOp(op)
	}
	return &q
}

// cloneOp returns a deep copy of an operation.
func cloneOp(op program.Op) program.Op {
	v := reflect.ValueOf(&op).Elem()
	for _, f := range v.Fields() {
		if !f.IsNil() {
			to := reflect.New(f.Type().Elem())
			to.Elem().Set(f.Elem())
			f.Set(to)
		}
	}
	if op.Linear != nil {
		op.Linear.Parts = slices.Clone(op.Linear.Parts)
	}
	if op.Select != nil {
		op.Select.Buffers = slices.Clone(op.Select.Buffers)
	}
	return op
}

// mutation is a program that a script changes.
type mutation struct {
	p      *program.Program
	script []byte
}

// below takes a number from the script: at least 0 and less than n, or 0 for n < 1.
func (m *mutation) below(n int) int {
	x, bytes := 0, 1
	if n > 1<<8 {
		bytes = 2
	}
	for range min(bytes, len(m.script)) {
		x = x<<8 | int(m.script[0])
		m.script = m.script[1:]
	}
	if n < 1 {
		return 0
	}
	return x % n
}

// pick takes an element of a list from the script, or reports that there is none.
func pick[T any](m *mutation, list []T) (*T, bool) {
	i := m.below(len(list))
	if len(list) == 0 {
		return nil, false
	}
	return &list[i], true
}

// changes are all kinds of changes; those that stand here twice are twice as likely.
var changes = []func(m *mutation){
	(*mutation).opNumber, (*mutation).opNumber, (*mutation).listNumber, (*mutation).headNumber,
	(*mutation).twice, (*mutation).remove, (*mutation).swap, (*mutation).join,
	(*mutation).alias, (*mutation).alias, (*mutation).output, (*mutation).weight,
	(*mutation).format, (*mutation).format, (*mutation).table, (*mutation).trim,
	(*mutation).heads, (*mutation).runs, (*mutation).window, (*mutation).grids,
	(*mutation).part, (*mutation).keep, (*mutation).layers, (*mutation).context,
}

// op takes an operation from the script that is of a kind, or reports that there is none.
func (m *mutation) op(is func(program.Op) bool) (*program.Op, bool) {
	var all []int
	for i, op := range m.p.Ops {
		if is(op) {
			all = append(all, i)
		}
	}
	if i, ok := pick(m, all); ok {
		return &m.p.Ops[*i], true
	}
	return nil, false
}

// anyOp is true of any operation.
func anyOp(program.Op) bool { return true }

// numbers appends every number in a value to a list.
func numbers(list []reflect.Value, v reflect.Value) []reflect.Value {
	switch v.Kind() {
	case reflect.Int, reflect.Float32:
		list = append(list, v)
	case reflect.Struct:
		for _, field := range v.Fields() {
			list = numbers(list, field)
		}
	case reflect.Slice:
		for i := range v.Len() {
			list = numbers(list, v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			list = numbers(list, v.Elem())
		}
	}
	return list
}

var (
	oddInts   = []int64{0, 1, -1, 2, 15, 16, 17, math.MaxInt64, math.MinInt64, 1 << 14, 1 << 16, 1 << 24, 1 << 32, 1 << 62}
	oddFloats = []float64{0, 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-45, 1e-38, math.MaxFloat32, -math.MaxFloat32, 1e-6, -0.5}
)

// number changes one of the numbers in a value.
func (m *mutation) number(v any) {
	leaf, ok := pick(m, numbers(nil, reflect.ValueOf(v)))
	if !ok {
		return
	}
	how := m.below(256)
	if leaf.Kind() == reflect.Float32 {
		leaf.SetFloat(oddFloats[how%len(oddFloats)])
		return
	}
	x := leaf.Int()
	switch how /= 4; m.below(4) {
	case 0:
		x = oddInts[how%len(oddInts)]
	case 1:
		x += int64(how) - 32
	case 2:
		x = x * int64(how%5) / 2
	default: // an index
		x = int64(how)
	}
	leaf.SetInt(x)
}

// opNumber changes a number of an operation.
func (m *mutation) opNumber() {
	if op, ok := m.op(anyOp); ok {
		m.number(op)
	}
}

// listNumber changes a number of something that operations name.
func (m *mutation) listNumber() {
	switch m.below(5) {
	case 0:
		if b, ok := pick(m, m.p.Buffers); ok {
			m.number(b)
		}
	case 1:
		if w, ok := pick(m, m.p.Weights); ok {
			m.number(w)
		}
	case 2:
		if c, ok := pick(m, m.p.Caches); ok {
			m.number(c)
		}
	case 3:
		if r, ok := pick(m, m.p.Rotations); ok {
			m.number(r)
		}
	default:
		if l, ok := pick(m, m.p.Layers); ok {
			m.number(l)
		}
	}
}

// headNumber changes a number of the program itself.
func (m *mutation) headNumber() {
	p := m.p
	own := struct {
		Ints    []*int
		Buffers []*program.BufferID
	}{[]*int{&p.Version, &p.Vocab, &p.TokenLimit, &p.Context}, []*program.BufferID{&p.State, &p.Hidden, &p.Logits}}
	m.number(&own)
}

// twice repeats an operation somewhere.
func (m *mutation) twice() {
	if op, ok := m.op(anyOp); ok {
		m.insert(cloneOp(*op))
	}
}

// insert puts an operation somewhere, and layers with it.
func (m *mutation) insert(op program.Op) {
	at := m.below(len(m.p.Ops) + 1)
	m.p.Ops = slices.Insert(m.p.Ops, at, op)
	m.shift(at, 1)
}

// shift moves the borders of layers behind an operation.
func (m *mutation) shift(at, by int) {
	for i := range m.p.Layers {
		l := &m.p.Layers[i]
		if l.First > at {
			l.First += by
		}
		if l.End > at {
			l.End += by
		}
	}
}

// remove drops an operation.
func (m *mutation) remove() {
	at := m.below(len(m.p.Ops))
	if at < len(m.p.Ops) {
		m.p.Ops = slices.Delete(m.p.Ops, at, at+1)
		m.shift(at, -1)
	}
}

// swap has two operations change places.
func (m *mutation) swap() {
	a, ok := m.op(anyOp)
	if !ok {
		return
	}
	b, _ := m.op(anyOp)
	*a, *b = *b, *a
}

// join makes one operation of two, or none of one.
func (m *mutation) join() {
	a, ok := m.op(anyOp)
	if !ok {
		return
	}
	if b, _ := m.op(anyOp); a != b {
		from := reflect.ValueOf(cloneOp(*b))
		to := reflect.ValueOf(a).Elem()
		for i := range to.NumField() {
			if to.Field(i).IsNil() {
				to.Field(i).Set(from.Field(i))
			}
		}
		return
	}
	*a = program.Op{}
}

// alias has one of the buffers of an operation stand in for another of its length.
func (m *mutation) alias() {
	op, ok := m.op(anyOp)
	if !ok {
		return
	}
	var own []*program.BufferID
	for _, v := range numbers(nil, reflect.ValueOf(op)) {
		if id, ok := v.Addr().Interface().(*program.BufferID); ok {
			own = append(own, id)
		}
	}
	if id, ok := pick(m, own); ok {
		**id = m.alike(**id)
	}
}

// alike takes a buffer of the same length from the script.
func (m *mutation) alike(id program.BufferID) program.BufferID {
	var all []program.BufferID
	for i, b := range m.p.Buffers {
		if id >= 0 && int(id) < len(m.p.Buffers) && b.Cols == m.p.Buffers[id].Cols {
			all = append(all, program.BufferID(i))
		}
	}
	if other, ok := pick(m, all); ok {
		return *other
	}
	return id
}

// output has another buffer carry the state, the hidden state or the logits.
func (m *mutation) output() {
	p := m.p
	id, _ := pick(m, []*program.BufferID{&p.State, &p.Hidden, &p.Logits})
	if m.below(2) == 0 {
		**id = m.alike(**id)
		return
	}
	**id = program.BufferID(m.below(len(p.Buffers)))
}

// weight has an operation read another weight.
func (m *mutation) weight() {
	op, ok := m.op(func(op program.Op) bool { return op.Embed != nil || len(op.Weights()) > 0 })
	if !ok {
		return
	}
	for _, v := range numbers(nil, reflect.ValueOf(op)) {
		if id, ok := v.Addr().Interface().(*program.WeightID); ok {
			*id = program.WeightID(m.below(len(m.p.Weights)+1) - 1)
			return
		}
	}
}
