package metal

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// listKind is what a list of dispatches is for.
type listKind uint8

const (
	batchList  listKind = iota // any rows
	tracedList                 // the same in parts that end where a layer does
	decodeList                 // one row that wants logits
	sampleList                 // the pick of the next token from its logits
)

// listKey identifies a list. Numbers of rows and blocks are rounded up, so that there are few.
type listKey struct {
	kind   listKind
	rows   int // live rows
	kept   int // of them, those that want logits
	blocks int // of 256 positions
	pick   backends.Pick
	stops  int
}

// recorded is what was recorded for a key. A nil list does nothing.
type recorded struct {
	lists          []List
	dispatches     [][]Dispatch         // of each list
	ops            []backends.OpProfile // of all dispatches
	states         []tracedState
	hidden, logits Binding // where the results lie, [rows, cols]
	single         []List  // each dispatch alone, for a profile
}

// tracedState is where the state lies behind the list of the same index.
type tracedState struct {
	at   Binding
	kept bool // its rows are those that want logits
}

// release frees the lists.
func (r *recorded) release() {
	for _, l := range append(r.lists, r.single...) {
		if l != nil {
			l.Release()
		}
	}
}

// key returns the key of a batch's list.
func (e *executor) key(rows []backends.Row, wanted int) listKey {
	if len(rows) == 1 && wanted == 1 {
		return e.decodeKey(rows[0].Pos)
	}
	k := listKey{kind: batchList, rows: roundRows(len(rows), e.opts.MaxRows), kept: wanted}
	if wanted > 1 {
		k.kept = e.opts.MaxLogits
	}
	return k
}

// traced returns the key of the traced list of a batch.
func traced(k listKey) listKey {
	k.kind, k.blocks = tracedList, 0
	return k
}

// decodeKey returns the key of the list for a row at a position.
func (e *executor) decodeKey(pos int) listKey {
	blocks := pos/backends.BlockPositions + 1
	return listKey{kind: decodeList, rows: 1, kept: 1, blocks: 1 << bits.Len(uint(blocks-1))}
}

// roundRows rounds a number of rows up to what lists are recorded for.
func roundRows(n, most int) int {
	switch {
	case n == 1:
		return 1
	case n <= smallTile:
		return min(smallTile, most)
	}
	return min(alignUp(n, largeTile), most)
}

// recorded returns the lists of a key.
func (e *executor) recorded(key listKey) (*recorded, error) {
	if r, ok := e.lists[key]; ok {
		return r, nil
	}
	r := &recorded{}
	switch key.kind {
	case decodeList:
		if err := e.growPartials(key.blocks); err != nil {
			return nil, hint(err)
		}
		f := e.fuser(key)
		f.record()
		r.dispatches, r.ops = [][]Dispatch{f.list}, f.ops
		r.hidden, r.logits = f.at[e.p.Hidden], f.at[e.p.Logits]
	case sampleList:
		l := e.recorder(key)
		l.sample()
		r.dispatches, r.ops = [][]Dispatch{l.list}, l.ops
	default:
		l := e.recorder(key)
		r.states = l.batch()
		r.dispatches, r.ops = l.cut(), l.ops
		r.hidden, r.logits = l.at[e.p.Hidden], l.at[e.p.Logits]
	}
	for _, d := range r.dispatches {
		var list List
		if len(d) > 0 {
			var err error
			if list, err = e.device.Record(d); err != nil {
				r.release()
				return nil, err
			}
		}
		r.lists = append(r.lists, list)
	}
	e.lists[key] = r
	return r, nil
}

// recorder turns operations into dispatches.
type recorder struct {
	e    *executor
	key  listKey
	rows int       // the most rows that are live at this point of the program
	step Binding   // which these are
	at   []Binding // where each program.Buffer lies at this point
	list []Dispatch
	ops  []backends.OpProfile // what each dispatch is in a profile, run once
	cuts []int                // lengths of list at which a traced list is cut
}

// batch records the whole program for any rows, and returns where the state lies at the cuts.
func (r *recorder) batch() (states []tracedState) {
	layer := -1
	border := func(op int) {
		layers := r.e.p.Layers
		for layer < len(layers) && (layer < 0 && len(layers) > 0 && op >= layers[0].First || layer >= 0 && op >= layers[layer].End) {
			r.cuts = append(r.cuts, len(r.list))
			states = append(states, tracedState{r.at[r.e.p.State], r.step == r.e.mem.keptStep})
			layer++
		}
	}
	for i, op := range r.e.p.Ops {
		border(i)
		r.op(op)
		if r.rows == 0 {
			break // nothing is left for the operations behind the select
		}
	}
	border(len(r.e.p.Ops))
	if r.rows > 0 {
		r.peaks()
	}
	return states
}

// cut divides the list at its cuts if it is traced.
func (r *recorder) cut() (lists [][]Dispatch) {
	from := 0
	if r.key.kind == tracedList {
		for _, to := range r.cuts {
			lists = append(lists, r.list[from:to])
			from = to
		}
	}
	return append(lists, r.list[from:])
}

// op records one operation.
func (r *recorder) op(op program.Op) {
	switch {
	case op.Embed != nil:
		r.embed(op.Embed)
	case op.Linear != nil:
		r.linear(op.Linear)
	case op.GateUp != nil:
		r.gateUp(op.GateUp)
	case op.Norm != nil:
		r.norm(op.Norm)
	case op.AddNorm != nil:
		r.addNorm(op.AddNorm)
	case op.Store != nil:
		r.store(op.Store)
	case op.Attention != nil:
		r.attention(op.Attention)
	case op.AddMul != nil:
		r.addMul(op.AddMul)
	case op.GELUMul != nil:
		r.geluMul(op.GELUMul)
	case op.Softcap != nil:
		r.softcap(op.Softcap)
	case op.Select != nil:
		r.keep(op.Select)
	}
}

// weight returns where a tensor lies and its matrix; an absent one is unbound.
func (r *recorder) weight(id program.WeightID) (Binding, quant.Matrix) {
	if id == program.None {
		return Binding{}, quant.Matrix{}
	}
	return r.e.weights.at[id], r.e.p.Weights[id].Matrix
}

// cols returns the length of a buffer.
func (r *recorder) cols(id program.BufferID) int { return r.e.p.Buffers[id].Cols }

// keep records the select.
func (r *recorder) keep(o *program.Select) {
	r.rows, r.step = r.key.kept, r.e.mem.keptStep
	if r.rows == 0 {
		return
	}
	for _, id := range o.Buffers {
		r.selectRows(id, r.e.mem.kept[id])
		r.at[id] = r.e.mem.kept[id]
	}
}

// rounding returns the grids that the options ask for.
func (e *executor) rounding(r program.Rounding) program.Rounding {
	if e.opts.Activations != backends.ActivationsStatic {
		return program.Rounding{}
	}
	return r
}

// planes returns the number of digits of a product's input.
func (e *executor) planes(r program.Rounding) int {
	switch {
	case r.InScale != 0 || e.opts.Activations == backends.Activations8:
		return 1
	case e.opts.Activations == backends.Activations16:
		return 2
	}
	return 3
}

// maxPlanes is the most digits of an activation.
const maxPlanes = 3

// Largest magnitudes of fixed-point activations of one, two and three digits.
var fixedLimits = [...]float32{0, 127, 127<<8 + 127, 127<<16 + 127<<8 + 127}

// kernelNames returns the kernels that any list of the program may need.
func (e *executor) kernelNames() []string {
	names := map[string]bool{}
	note := func(list []Dispatch) {
		for _, d := range list {
			names[d.Kernel] = true
		}
	}
	for _, rows := range []int{1, smallTile, largeTile} {
		for _, kept := range []int{1, e.opts.MaxLogits} {
			r := e.recorder(listKey{kind: batchList, rows: min(rows, e.opts.MaxRows), kept: kept})
			r.batch()
			note(r.list)
		}
	}
	decode := e.fuser(listKey{kind: decodeList, rows: 1, kept: 1, blocks: 1})
	decode.record()
	note(decode.list)
	sample := e.recorder(listKey{kind: sampleList})
	sample.sample()
	note(sample.list)
	return slices.Sorted(maps.Keys(names))
}

// recorder returns a recorder at the start of the program.
func (e *executor) recorder(key listKey) recorder {
	return recorder{e: e, key: key, rows: key.rows, step: e.mem.step, at: slices.Clone(e.mem.buffers)}
}

// fuser returns the recorder of a single row.
func (e *executor) fuser(key listKey) fuser {
	f := fuser{recorder: e.recorder(key), done: make([]bool, len(e.p.Ops)), spare: e.mem.spare}
	for id := range f.at {
		f.at[id] = e.mem.row(program.BufferID(id), 0)
	}
	return f
}
