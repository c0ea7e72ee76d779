package packing

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/zoo"
)

// Pack is everything that a pack consists of.
type Pack struct {
	// Plugin is the name and the version of the plugin that makes it.
	Plugin zoo.PluginID
	// Recipe is how it is made, as its identity has it.
	Recipe map[string]string
	// Sources lists the files that it is made of; see [Sources].
	Sources []catalog.File
	// Tensors are written in their order.
	Tensors []*Tensor
	// Constants are single numbers.
	Constants map[string]float32
	// Files are the small ones, by name.
	Files map[string][]byte
}

// SourceBytes returns what is read of the checkpoint for all tensors.
func (p *Pack) SourceBytes() int64 {
	var n int64
	for _, t := range p.Tensors {
		n += t.SourceBytes()
	}
	return n
}

// Planned lists the tensors as zoo.PackWriter and zoo.PlannedBytes take them.
func (p *Pack) Planned() []zoo.PlannedTensor {
	planned := make([]zoo.PlannedTensor, len(p.Tensors))
	for i, t := range p.Tensors {
		planned[i] = t.PlannedTensor
	}
	return planned
}

// Manifest returns what of the pack's manifest a program is recorded from: its tensors,
// without places and digests, and its constants.
func (p *Pack) Manifest() *zoo.Manifest {
	m := &zoo.Manifest{Constants: p.Constants}
	for _, t := range p.Tensors {
		m.Tensors = append(m.Tensors, zoo.Tensor{Name: t.Name, Matrix: t.Matrix})
	}
	return m
}

// Write writes the pack into dir, an empty folder, with all processors and some megabytes
// of memory. The meter counts what has been read of [Pack.SourceBytes]; to expect them is
// the caller's task. After an error the folder holds no pack. Errors are those of
// [Matrix.Read] and of zoo.PackWriter.
func (p *Pack) Write(ctx context.Context, dir string, m *Meter) (err error) {
	w, err := zoo.NewPackWriter(dir, p.Plugin, p.Recipe, p.Sources)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return p.write(ctx, w, m)
}

// write writes everything.
func (p *Pack) write(ctx context.Context, w *zoo.PackWriter, m *Meter) error {
	if err := w.Plan(p.Planned()); err != nil {
		return err
	}
	packer := newPacker(m)
	for _, t := range p.Tensors {
		if err := w.WriteTensor(t.Name, func(out io.Writer) error { return packer.write(ctx, t, out) }); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		if err := w.WriteFile(name, p.Files[name]); err != nil {
			return err
		}
	}
	if err := w.SetConstants(p.Constants); err != nil {
		return err
	}
	_, err := w.Finish(ctx)
	return err
}
