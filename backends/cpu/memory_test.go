package cpu_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// small is the shape of a small decoder.
var small = backendtest.Shape{
	Seed: 3, Format: quant.Int4, Hidden: 32, FFN: 32, HeadDim: 16, Heads: 2, KVHeads: 1, Vocab: 40, Window: 8, Context: 600, Static: true,
}

// allocated returns how many bytes f allocates.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestMemoryOfPrograms compiles programs that are small as data and whose
// operations, each alone, need little: so does the executor.
func TestMemoryOfPrograms(t *testing.T) {
	const most = 12 << 20
	for _, c := range []struct {
		name   string
		cache  backends.CacheType
		change func(p *program.Program)
	}{
		{"many heads here and long ones there", backends.CacheInt8, func(p *program.Program) {
			attend(p, 1, 4096, 1)
			attend(p, 1, 1, 4096)
		}},
		{"many attentions of many heads", backends.CacheInt8, func(p *program.Program) {
			attend(p, 1, 2048, 1)
			last := p.Ops[len(p.Ops)-1]
			for range 4000 {
				p.Ops = append(p.Ops, last)
			}
		}},
		{"many attentions of many heads, in floats", backends.CacheFloat, func(p *program.Program) {
			attend(p, 1, 2048, 1)
			last := p.Ops[len(p.Ops)-1]
			for range 4000 {
				p.Ops = append(p.Ops, last)
			}
		}},
		{"many norms with one weight", backends.CacheFloat, func(p *program.Program) {
			const cols = 1 << 14
			id := program.BufferID(len(p.Buffers))
			p.Buffers = append(p.Buffers, program.Buffer{Cols: cols})
			table, vector := addWeight(p, quant.F32, p.TokenLimit, cols), addWeight(p, quant.F32, 1, cols)
			ops := []program.Op{{Embed: &program.Embed{Table: table, Out: id, Mul: 1}}}
			for range 4000 {
				ops = append(ops, program.Op{Norm: &program.Norm{In: id, Out: id, Weight: vector, Cols: cols, Eps: 1, Rotation: program.None}})
			}
			p.Ops, p.Layers = append(ops, p.Ops...), nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := backendtest.Decoder(small)
			c.change(p)
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
			w := backendtest.WeightsOf(p)
			for _, set := range cpu.Kernels() {
				var e backends.Executor
				var err error
				got := allocated(func() {
					e, err = cpu.New(set).Compile(t.Context(), p, w, backends.Options{Threads: 4, MaxRows: 2, MaxLogits: 1, Cache: c.cache})
				})
				if err != nil {
					t.Fatal(err)
				}
				if got > most {
					t.Errorf("%s: %d bytes are allocated for %d operations", set, got, len(p.Ops))
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// addWeight adds a weight of rows and returns it.
func addWeight(p *program.Program, f quant.Format, rows, cols int) program.WeightID {
	p.Weights = append(p.Weights, program.Weight{Name: fmt.Sprint("added ", len(p.Weights)), Matrix: quant.Matrix{Format: f, Layout: quant.Rows, Rows: rows, Cols: cols}})
	return program.WeightID(len(p.Weights) - 1)
}

// attend puts a cache, whose rows are looked up, before all other operations, and an attention to it behind them.
func attend(p *program.Program, kvHeads, heads, headDim int) {
	id, cols := program.BufferID(len(p.Buffers)), heads*headDim
	p.Buffers = append(p.Buffers, program.Buffer{Cols: kvHeads * headDim}, program.Buffer{Cols: cols}, program.Buffer{Cols: cols})
	cache := program.CacheID(len(p.Caches))
	p.Caches = append(p.Caches, program.Cache{KVHeads: kvHeads, HeadDim: headDim, KeyScale: 1, ValueScale: 1})
	p.Layers = nil
	p.Ops = append([]program.Op{
		{Embed: &program.Embed{Table: addWeight(p, quant.F32, p.TokenLimit, kvHeads*headDim), Out: id, Mul: 1}},
		{Embed: &program.Embed{Table: addWeight(p, quant.F32, p.TokenLimit, cols), Out: id + 1, Mul: 1}},
		{Store: &program.Store{Cache: cache, Key: id, Value: id}},
	}, p.Ops...)
	for _, op := range p.Ops {
		if op.Select != nil {
			op.Select.Buffers = append(op.Select.Buffers, id+1)
		}
	}
	p.Ops = append(p.Ops, program.Op{Attention: &program.Attention{Cache: cache, Query: id + 1, Out: id + 2, Heads: heads, Scale: 1}})
}

// TestMemoryLimit compiles and runs with less memory than it takes, step by step, until that is enough.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	p, w := backendtest.Decoder(small)
	for _, cache := range []backends.CacheType{backends.CacheFloat, backends.CacheInt8} {
		opts := backends.Options{Threads: 2, MaxRows: 3, MaxLogits: 1, Cache: cache}
		e, err := cpu.New("").Compile(t.Context(), p, w, opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		buffers := e.Stats().BufferBytes
		for _, part := range []int64{1, 100, 1000, buffers / 2, buffers - 1} {
			opts.MemoryBytes = part
			if e, err := cpu.New("").Compile(t.Context(), p, w, opts); !refused(err) {
				t.Errorf("%s cache, %d bytes of %d: %v, want ErrMemory", cache, part, buffers, err)
				if err == nil {
					e.Close()
				}
			}
		}
		page := feedOne(t, e, 0).CacheBytes
		opts.MemoryBytes = buffers + page + page/2
		limited, err := cpu.New("").Compile(t.Context(), p, w, opts)
		if err != nil {
			t.Fatal(err)
		}
		defer limited.Close()
		first := feedOne(t, limited, 0)
		second, err := limited.NewSlot()
		if err != nil {
			t.Fatal(err)
		}
		row := backends.Row{Slot: second, Logits: true}
		for range 2 {
			if err := limited.Step(t.Context(), &backends.Batch{Rows: []backends.Row{row}}); !refused(err) {
				t.Errorf("%s cache: a second slot: %v, want ErrMemory", cache, err)
			}
		}
		if n := limited.Len(second); n != 0 {
			t.Errorf("%s cache: a refused step leaves %d positions", cache, n)
		}
		if held := limited.Stats(); held.BufferBytes+held.CacheBytes > opts.MemoryBytes || held.BufferBytes != first.BufferBytes {
			t.Errorf("%s cache: %+v are held, of %d bytes", cache, held, opts.MemoryBytes)
		}
		limited.FreeSlot(0) // makes room
		if err := limited.Step(t.Context(), &backends.Batch{Rows: []backends.Row{row}}); err != nil {
			t.Errorf("%s cache: a second slot when the first is gone: %v", cache, err)
		}
	}
}

// refused tells that memory was refused, in the words for it.
func refused(err error) bool {
	return errors.Is(err, backends.ErrMemory) && errors.Is(err, fault.ErrUsage) && fault.Hint(err) != ""
}

// feedOne feeds a token into a new slot, which must have a number.
func feedOne(t *testing.T, e backends.Executor, want backends.Slot) backends.Stats {
	t.Helper()
	s, err := e.NewSlot()
	if err != nil || s != want {
		t.Fatalf("slot %d, %v", s, err)
	}
	if err := e.Step(t.Context(), &backends.Batch{Rows: []backends.Row{{Slot: s, Logits: true}}}); err != nil {
		t.Fatal(err)
	}
	return e.Stats()
}
