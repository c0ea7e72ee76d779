package backends_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/mmap"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// tablesProgram looks up in tables of every kind. Its weights are named after what they are.
func tablesProgram() *program.Program {
	const rows, cols = 1024, 64
	p := &program.Program{Vocab: rows, TokenLimit: rows}
	weight := func(name string, f quant.Format, l quant.Layout) program.WeightID {
		p.Weights = append(p.Weights, program.Weight{Name: name, Matrix: quant.Matrix{Format: f, Layout: l, Rows: rows, Cols: cols}})
		return program.WeightID(len(p.Weights) - 1)
	}
	buffer := func() program.BufferID {
		p.Buffers = append(p.Buffers, program.Buffer{Cols: cols})
		return program.BufferID(len(p.Buffers) - 1)
	}
	embed := func(table program.WeightID, out program.BufferID) {
		p.Ops = append(p.Ops, program.Op{Embed: &program.Embed{Table: table, Out: out, Mul: 1}})
	}
	multiply := func(w program.WeightID) {
		p.Ops = append(p.Ops, program.Op{Linear: &program.Linear{Weight: w, In: buffer(), Parts: []program.Part{{Rows: rows, Out: buffer()}}}})
	}
	embed(weight("codes", quant.Int8, quant.Rows), buffer())
	multiply(weight("matrix of codes", quant.Int8, quant.Blocks))
	embed(weight("bf16", quant.BF16, quant.Rows), buffer())
	multiply(weight("matrix of bf16", quant.BF16, quant.Rows))
	embed(weight("f32", quant.F32, quant.Rows), buffer())
	twice := weight("bf16 looked up twice", quant.BF16, quant.Rows)
	embed(twice, buffer())
	embed(twice, buffer())
	embed(weight("codes in blocks", quant.Int8, quant.Blocks), buffer())
	tied := weight("tied bf16", quant.BF16, quant.Rows)
	embed(tied, buffer())
	multiply(tied)
	overwritten := buffer()
	embed(weight("bf16 into a buffer that others write", quant.BF16, quant.Rows), overwritten)
	embed(weight("codes into a buffer that others write", quant.Int8, quant.Rows), overwritten)
	return p
}

// tablesOf are the tables of tablesProgram.
var tablesOf = []string{"codes", "bf16", "f32", "bf16 looked up twice"}

// TestGathered takes for tables what is in rows and nothing but looked up in, codes and floats alike.
func TestGathered(t *testing.T) {
	t.Parallel()
	p := tablesProgram()
	var got []string
	for i, gathered := range backends.Gathered(p) {
		if gathered {
			got = append(got, p.Weights[i].Name)
		}
	}
	if diff := cmp.Diff(tablesOf, got); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
}

// tablesFile holds the weights of a program in a mapped file, one behind the other.
type tablesFile struct {
	p    *program.Program
	data []byte
}

// mapTables writes and maps the weights of a program until the test ends.
func mapTables(t *testing.T, p *program.Program) tablesFile {
	t.Helper()
	size := int64(0)
	for _, w := range p.Weights {
		size += w.SizeBytes()
	}
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
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
	return tablesFile{p, m.Bytes()}
}

// Mapping implements backends.Mapping.
func (w tablesFile) Mapping() []byte { return w.data }

// Tensor implements backends.Weights.
func (w tablesFile) Tensor(name string) ([]byte, quant.Matrix, bool) {
	at := 0
	for _, weight := range w.p.Weights {
		size := int(weight.SizeBytes())
		if weight.Name == name {
			return w.data[at : at+size], weight.Matrix, true
		}
		at += size
	}
	return nil, quant.Matrix{}, false
}

// tableBytes returns the size of all tables.
func (w tablesFile) tableBytes() (total int64) {
	for _, weight := range w.p.Weights {
		if slices.Contains(tablesOf, weight.Name) {
			total += weight.SizeBytes()
		}
	}
	return total
}

// TestHoldTablesErrors stops with the context's cause, and refuses weights that lie elsewhere.
func TestHoldTablesErrors(t *testing.T) {
	t.Parallel()
	w := mapTables(t, tablesProgram())
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := backends.HoldTables(ctx, w.p, w, backends.TablesResident); !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := backends.HoldTables(t.Context(), w.p, elsewhere{w}, backends.TablesMapped); !errors.Is(err, fault.ErrIntegrity) {
		t.Errorf("weights elsewhere: %v", err)
	}
}

// elsewhere has weights that do not lie in what it says is their mapping.
type elsewhere struct{ tablesFile }

// Mapping implements backends.Mapping.
func (elsewhere) Mapping() []byte { return nil }
