package metal

import (
	"fmt"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// add appends a dispatch. Bindings stand in the order of the kernel's parameters behind the arguments.
func (r *recorder) add(kernel string, args any, l launch, buffers ...Binding) {
	r.list = append(r.list, Dispatch{
		Kernel: kernel, Args: encodeArgs(args), Buffers: buffers,
		Groups: l.Groups, Threads: l.Threads, SharedBytes: l.SharedBytes,
	})
	r.ops = append(r.ops, backends.OpProfile{Name: kernel, Calls: 1})
}

// multiplies says that the last dispatch reads so many bytes of a matrix.
func (r *recorder) multiplies(kind string, m quant.Matrix, bytes int) {
	op := &r.ops[len(r.ops)-1]
	op.Name = fmt.Sprintf("%s %s %dx%d", kind, m.Format, m.Rows, m.Cols)
	op.Bytes = int64(bytes)
}

// yes returns 1 for true.
func yes(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// one returns f, or 1 for 0.
func one(f float32) float32 {
	if f == 0 {
		return 1
	}
	return f
}

// embed records a gather, unless the host does it.
func (r *recorder) embed(o *program.Embed) {
	table, m := r.weight(o.Table)
	if table.Buffer == nil {
		return
	}
	a := newEmbedArgs(m, o.Mul)
	r.add("embed", a, a.launch(r.rows), table, r.step, r.at[o.Out])
}

// norm records a norm.
func (r *recorder) norm(o *program.Norm) {
	weight, _ := r.weight(o.Weight)
	a := normArgs{Cols: uint32(o.Cols), Stride: uint32(r.cols(o.In)), Eps: o.Eps, Weighted: yes(o.Weight != program.None)}
	var angles Binding
	if o.Rotation != program.None {
		a.Rotated, a.AngleCols, a.AngleFirst = 1, uint32(r.e.mem.angleCols), uint32(r.e.mem.rotations[o.Rotation])
		angles = r.e.mem.angles
	}
	r.add("norm", a, a.launch(r.rows), r.at[o.In], weight, angles, r.step, r.at[o.Out])
}

// addNorm records a residual addition.
func (r *recorder) addNorm(o *program.AddNorm) {
	weight, _ := r.weight(o.Weight)
	a := addNormArgs{Cols: uint32(r.cols(o.In)), Eps: o.Eps, Mul: one(o.Mul), Weighted: yes(o.Weight != program.None)}
	r.add("add_norm", a, a.launch(r.rows), r.at[o.In], weight, r.step, r.at[o.State])
}

// addMul records a scaled addition.
func (r *recorder) addMul(o *program.AddMul) {
	a := addMulArgs{Cols: uint32(r.cols(o.A)), Mul: o.Mul}
	r.add("add_mul", a, a.launch(r.rows), r.at[o.A], r.at[o.B], r.step, r.at[o.Out])
}

// geluMul records a gated product of numbers.
func (r *recorder) geluMul(o *program.GELUMul) {
	a := geluMulArgs{Cols: uint32(r.cols(o.A)), First: uint32(o.First), BStride: uint32(r.cols(o.B))}
	r.add("gelu_mul", a, a.launch(r.rows), r.at[o.A], r.at[o.B], r.step, r.at[o.Out])
}

// softcap records a cap.
func (r *recorder) softcap(o *program.Softcap) {
	a := softcapArgs{Cols: uint32(r.cols(o.Buffer)), Cap: o.Cap}
	r.add("softcap", a, a.launch(r.rows), r.at[o.Buffer], r.step)
}

// peaks records the search for the largest logit of each run.
func (r *recorder) peaks() {
	a := peaksArgs{Cols: uint32(r.e.p.Vocab)}
	r.add("peaks", a, a.launch(r.rows), r.at[r.e.p.Logits], r.step, r.e.mem.peaks)
}

// selectRows records the copy of the rows that are kept of a buffer.
func (r *recorder) selectRows(id program.BufferID, to Binding) {
	a := selectArgs{Cols: uint32(r.cols(id))}
	r.add("select_rows", a, a.launch(r.rows), r.at[id], r.e.mem.keptRows, r.step, to)
}

// cacheKernel returns a kernel's name for the type of the caches.
func (r *recorder) cacheKernel(name string) string {
	return name + "_" + string(r.e.opts.Cache)
}

// store records the writing of keys and values.
func (r *recorder) store(o *program.Store) {
	c := r.e.caches.list[o.Cache]
	a := storeArgs{
		KVHeads: uint32(c.KVHeads), Dim: uint32(c.HeadDim), Table: uint32(c.first), Ring: uint32(c.ring),
		KeyScale: c.KeyScale, ValueScale: c.ValueScale,
	}
	r.add(r.cacheKernel("store"), a, a.launch(r.rows), r.at[o.Key], r.at[o.Value], r.step, whole(r.e.caches.table), whole(r.e.caches.arena))
}

// attentionArgs returns the arguments of an attention over so many rows or blocks.
func (r *recorder) attentionArgs(o *program.Attention, times int) attentionArgs {
	c := r.e.caches.list[o.Cache]
	return attentionArgs{
		Heads: uint32(o.Heads), KVHeads: uint32(c.KVHeads), Dim: uint32(c.HeadDim), Window: uint32(c.Window),
		Table: uint32(c.first), Ring: uint32(c.ring), HeadsPerGroup: uint32(headsPerGroup(o.Heads, c.KVHeads, times)),
		Scale: o.Scale, KeyScale: c.KeyScale, ValueScale: c.ValueScale,
	}
}

// attention records an attention whose groups go through all blocks of a row.
func (r *recorder) attention(o *program.Attention) {
	a := r.attentionArgs(o, r.rows)
	r.add(r.cacheKernel("attention"), a, a.launch(r.e.opts.Cache, r.rows),
		r.at[o.Query], r.step, whole(r.e.caches.table), whole(r.e.caches.arena), r.at[o.Out])
}

// whole returns all of a buffer.
func whole(b Buffer) Binding { return Binding{Buffer: b, Size: len(b.Bytes())} }

// sample records the pick of the next token.
func (r *recorder) sample() {
	p, m := r.key.pick, r.e.mem
	share := p.Share()
	a := sampleArgs{
		Vocab: uint32(r.e.p.Vocab), Runs: uint32(peakRuns(r.e.p.Vocab)), TopK: uint32(topK(p, r.e.p.Vocab)), Temperature: p.Temperature,
		TopPLow: uint32(share), TopPHigh: uint32(share >> 32), MinP: p.MinP, Stops: uint32(r.key.stops), Limit: uint32(r.e.p.TokenLimit),
	}
	l := launch{Groups: [3]int{1, 1, 1}, Threads: backends.PeakRun, SharedBytes: sampleSharedBytes}
	r.add("sample", a, l, r.at[r.e.p.Logits], m.peaks, m.step, m.random, m.stops, m.ring)
}

// sampleArgs is SampleArgs: what sample takes.
type sampleArgs struct {
	Vocab, Runs       uint32 // numbers of logits and of peaks
	TopK              uint32 // candidates, 0 for greedy
	Temperature       float32
	TopPLow, TopPHigh uint32 // of backends.Pick.Share
	MinP              float32
	Stops             uint32 // number of ids that end the text
	Limit             uint32 // tokens from it on may not be fed
}

const (
	// maxTopK is MaxTopK: the most candidates that the sample kernel weighs.
	maxTopK = 256
	// sampleSharedBytes is the size of SampleShared.
	sampleSharedBytes = 4*backends.PeakRun + maxTopK*(3*4+2*8) + 3*4*backends.PeakRun/SIMDWidth + 16
)

// topK returns the number of candidates of a pick, 0 for a greedy one.
func topK(p backends.Pick, vocab int) int {
	switch {
	case p.Greedy():
		return 0
	case p.TopK == 0:
		return vocab
	}
	return min(p.TopK, vocab)
}
