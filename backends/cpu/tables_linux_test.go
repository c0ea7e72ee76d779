package cpu_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/internal/mmap"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// tableMatrix is a table of 64 MB and more, in rows that are no multiple of a page.
var tableMatrix = quant.Matrix{Format: quant.Int4, Layout: quant.Rows, Rows: 14_000, Cols: 9600}

// tableWeight is the number of the table in tableProgram.
const tableWeight = 1

// tableProgram adds a product with a row of the table to that of a head, which is also looked up in.
func tableProgram(w *backendtest.Weights) *program.Program {
	const hidden = 32
	vocab, cols := tableMatrix.Rows, tableMatrix.Cols
	head := w.Add(quant.Matrix{Format: quant.Int4, Layout: quant.Blocks, Rows: vocab, Cols: hidden})
	table := program.Weight{Name: "table", Matrix: tableMatrix}
	down := w.Add(quant.Matrix{Format: quant.Int4, Layout: quant.Blocks, Rows: hidden, Cols: cols})
	norm := w.Add(quant.Matrix{Format: quant.F32, Layout: quant.Rows, Rows: 1, Cols: hidden})
	const state, token, branch, final, logits = 0, 1, 2, 3, 4
	return &program.Program{
		Version: program.Version, Vocab: vocab, TokenLimit: vocab, Context: 100,
		Weights: []program.Weight{head, table, down, norm},
		Buffers: []program.Buffer{{Name: "state", Cols: hidden}, {Name: "token", Cols: cols}, {Name: "branch", Cols: hidden}, {Name: "final", Cols: hidden}, {Name: "logits", Cols: vocab}},
		State:   state, Hidden: final, Logits: logits,
		Ops: []program.Op{
			{Embed: &program.Embed{Table: 0, Out: state, Mul: 3}},
			{Embed: &program.Embed{Table: tableWeight, Out: token, Mul: 2}},
			{Linear: &program.Linear{Weight: 2, In: token, Parts: []program.Part{{Rows: hidden, Out: branch}}}},
			{AddNorm: &program.AddNorm{State: state, In: branch, Weight: 3, Eps: 1e-6}},
			{Select: &program.Select{Buffers: []program.BufferID{state}}},
			{Norm: &program.Norm{In: state, Out: final, Weight: 3, Cols: hidden, Eps: 1e-6, Rotation: program.None}},
			{Linear: &program.Linear{Weight: 0, In: final, Parts: []program.Part{{Rows: vocab, Out: logits}}}},
		},
	}
}

// fileWeights are the tensors of a program in a file, which may be mapped.
type fileWeights struct {
	data []byte
	at   map[string]int
	of   map[string]quant.Matrix
}

// Tensor implements backends.Weights.
func (w fileWeights) Tensor(name string) ([]byte, quant.Matrix, bool) {
	m, ok := w.of[name]
	if !ok {
		return nil, m, false
	}
	return w.data[w.at[name]:][:m.SizeBytes()], m, true
}

// mapped are weights that lie in a mapped file.
type mapped struct{ fileWeights }

// Mapping implements backends.Mapping.
func (w mapped) Mapping() []byte { return w.data }

// tableFile writes the weights of tableProgram to a file and returns them as they lie in the heap.
func tableFile(t *testing.T, path string) (*program.Program, fileWeights) {
	t.Helper()
	tensors := backendtest.NewWeights(1)
	p := tableProgram(tensors)
	w := fileWeights{at: map[string]int{}, of: map[string]quant.Matrix{}}
	for _, weight := range p.Weights {
		w.at[weight.Name], w.of[weight.Name] = len(w.data), weight.Matrix
		if data, _, ok := tensors.Tensor(weight.Name); ok {
			w.data = append(w.data, data...)
		} else {
			w.data = append(w.data, make([]byte, weight.SizeBytes())...)
		}
		w.data = w.data[:(len(w.data)+63)&^63]
	}
	table, _, _ := w.Tensor("table")
	rng := rand.NewChaCha8([32]byte{})
	for row := range slices.Chunk(table, tableMatrix.RowBytes()) {
		_, _ = rng.Read(row[:tableMatrix.CodeBytes()])
		binary.LittleEndian.PutUint32(row[tableMatrix.CodeBytes():], math.Float32bits(0.01))
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(w.data); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	return p, w
}

// dropped maps a file of which nothing is in memory, until the test ends.
func dropped(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	m, err := mmap.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	if n, known := mmap.Resident(m.Bytes(), 0, m.Len()); !known || n > 0 {
		t.Skipf("this file system keeps %d bytes of a file that is not used", n)
	}
	return m.Bytes()
}

// TestTables decodes with a table of which nothing is in memory: mapped, the
// pages of the rows that are looked up get there and no others; resident, all
// of them do. Logits are those of weights in the heap.
func TestTables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	p, heap := tableFile(t, path)
	tokens := make([]int32, 40)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range tokens {
		tokens[i] = rng.Int32N(int32(p.TokenLimit))
	}
	tokens[0], tokens[1] = 0, int32(p.TokenLimit-1)
	want, _ := decode(t, p, heap, "", tokens)
	size := int(tableMatrix.SizeBytes())
	for _, place := range []backends.TablePlacement{"", backends.TablesMapped, backends.TablesResident} {
		t.Run("tables="+string(place), func(t *testing.T) {
			w := mapped{heap}
			w.data = dropped(t, path)
			before := lockedMemory(t)
			got, stats := decode(t, p, w, place, tokens)
			if after := lockedMemory(t); after != before {
				t.Errorf("locked memory was %q before and is %q after", before, after)
			}
			if !bytes.Equal(got, want) {
				t.Error("the logits differ from those of weights in the heap")
			}
			from := w.at["table"]
			held, _ := mmap.Resident(w.data, from, from+size)
			if place == backends.TablesResident {
				if held != int64(size) || stats.Tables != place || stats.LockedBytes != 0 && stats.LockedBytes != int64(size) {
					t.Errorf("%d of %d bytes are in memory; %+v", held, size, stats)
				}
				return
			}
			if stats.Tables != backends.TablesMapped || stats.LockedBytes != 0 {
				t.Errorf("%+v", stats)
			}
			rows := map[int32]bool{}
			for _, id := range tokens {
				rows[id] = true
				at := from + int(id)*tableMatrix.RowBytes()
				if n, _ := mmap.Resident(w.data, at, at+tableMatrix.RowBytes()); n != int64(tableMatrix.RowBytes()) {
					t.Errorf("%d bytes of the row of token %d are in memory", n, id)
				}
			}
			// A row touches three pages at most. At the ends lies what was read ahead for the tensors beside the table.
			held, _ = mmap.Resident(w.data, from+size/4, from+size*3/4)
			if most := int64(3 * os.Getpagesize() * len(rows)); held > most {
				t.Errorf("%d bytes in the middle of the table are in memory, at most %d for %d rows", held, most, len(rows))
			}
		})
	}
}

// lockedMemory returns how much memory the process has locked.
func lockedMemory(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmLck:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// decode feeds tokens in a batch and one by one, and returns the bits of their logits.
func decode(t *testing.T, p *program.Program, w backends.Weights, place backends.TablePlacement, tokens []int32) (logits []byte, stats backends.Stats) {
	t.Helper()
	const batch = 8
	e, err := cpu.New("").Compile(t.Context(), p, w, backends.Options{MaxRows: batch, MaxLogits: 1, Threads: 2, Tables: place})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s, err := e.NewSlot()
	if err != nil {
		t.Fatal(err)
	}
	step := func(rows []backends.Row) {
		if err := e.Step(t.Context(), &backends.Batch{Rows: rows}); err != nil {
			t.Fatal(err)
		}
		for _, x := range e.Logits(0) {
			logits = binary.LittleEndian.AppendUint32(logits, math.Float32bits(x))
		}
	}
	rows := make([]backends.Row, len(tokens))
	for i, id := range tokens {
		rows[i] = backends.Row{Token: id, Slot: s, Pos: i, Logits: i >= batch-1}
	}
	step(rows[:batch])
	for i := batch; i < len(rows); i++ {
		step(rows[i : i+1])
	}
	stats = e.Stats()
	b := &backends.Batch{Rows: rows[len(rows)-1:]}
	if n := testing.AllocsPerRun(20, func() {
		if err := e.Truncate(s, len(tokens)-1); err != nil {
			t.Fatal(err)
		}
		if err := e.Step(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%g allocations a step", n)
	}
	return logits, stats
}
