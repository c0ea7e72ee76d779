package zoo_test

import (
	"errors"
	"testing"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// TestPlannedBytes holds the size of packs told beforehand against that of a pack.
func TestPlannedBytes(t *testing.T) {
	for name, s := range map[string]packSpec{"plain": {}, "recipe": {recipe: map[string]string{"grid": "q4_0"}}} {
		dir, _ := buildPack(t, s)
		pack := openPack(t, dir)
		m := pack.Manifest()
		list := func(entries []zoo.ManifestFileEntry) (files []catalog.File) {
			for _, e := range entries {
				if e.Path != zoo.WeightsFile {
					files = append(files, catalog.File{Path: e.Path, SizeBytes: e.SizeBytes})
				}
			}
			return files
		}
		var tensors []zoo.PlannedTensor
		for _, tensor := range m.Tensors {
			tensors = append(tensors, zoo.PlannedTensor{Name: tensor.Name, Matrix: tensor.Matrix})
		}
		got, err := zoo.PlannedBytes(m.Plugin, m.Recipe, list(m.Sources), list(m.Files), tensors, m.Constants)
		if err != nil || got != pack.SizeBytes() {
			t.Errorf("%s: %d bytes, the pack has %d, %v", name, got, pack.SizeBytes(), err)
		}
	}
	if _, err := zoo.PlannedBytes(zoo.PluginID{}, nil, nil, nil, nil, nil); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("no tensors: %v", err)
	}
	if _, err := zoo.PlannedBytes(zoo.PluginID{}, nil, nil, nil, []zoo.PlannedTensor{{Name: "a", Matrix: quant.Matrix{}}}, nil); err == nil {
		t.Error("a tensor of nothing has a size")
	}
}
