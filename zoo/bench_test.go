package zoo_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// largePack writes a pack of so many tensors of 256 KiB.
func largePack(b *testing.B, dir string, tensors int) {
	b.Helper()
	m := quant.Matrix{Format: quant.F32, Layout: quant.Rows, Rows: 1, Cols: 64 << 10}
	plan := make([]zoo.PlannedTensor, tensors)
	constants := map[string]float32{}
	for i := range plan {
		plan[i] = zoo.PlannedTensor{Name: fmt.Sprintf("layers.%d.projection", i), Matrix: m}
		constants[fmt.Sprintf("layers.%d.input_activation_scale", i)] = 1 / float32(i+3)
	}
	w, err := zoo.NewPackWriter(dir, testPlugin, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	if err := w.Plan(plan); err != nil {
		b.Fatal(err)
	}
	if err := w.SetConstants(constants); err != nil {
		b.Fatal(err)
	}
	data := make([]byte, m.SizeBytes())
	for _, t := range plan {
		if err := w.WriteTensor(t.Name, func(out io.Writer) error { _, err := out.Write(data); return err }); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := w.Finish(context.Background()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkPackWriter(b *testing.B) {
	const tensors = 400
	b.SetBytes(tensors * 256 << 10)
	b.ReportAllocs()
	parent := b.TempDir()
	for i := 0; b.Loop(); i++ {
		dir := filepath.Join(parent, fmt.Sprint(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		largePack(b, dir, tensors)
		if err := os.RemoveAll(dir); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	const tensors = 400
	dir := b.TempDir()
	largePack(b, dir, tensors)
	p := openPack(b, dir)
	b.SetBytes(p.SizeBytes())
	for b.Loop() {
		if err := p.Verify(context.Background(), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// Opening a pack that a stamp vouches for costs no reading of weights.
func BenchmarkOpenStamped(b *testing.B) {
	dir := b.TempDir()
	largePack(b, dir, 700)
	age(b, dir)
	s, _ := newStore(b)
	for b.Loop() {
		p, err := s.OpenDir(context.Background(), dir, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
