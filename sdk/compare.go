package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/zoo"
)

// Difference is one thing in which two packs differ.
type Difference struct {
	// What is "plugin", "recipe", "source", "file", "tensor" or "constant", and Name which of them.
	What string `json:"what"`
	Name string `json:"name"`
	// A and B say what either pack has; "" for nothing.
	A string `json:"a"`
	B string `json:"b"`
}

// Compare returns in what the manifests of two packs differ, sorted by kind and
// name; nothing for packs of the same digest. The packs are named as for
// [Zoo.Open]. Weights are compared by their digests and not read.
func (z *Zoo) Compare(ctx context.Context, a, b string) ([]Difference, error) {
	var sides [2]map[[2]string]string
	for i, name := range [...]string{a, b} {
		pack, err := z.peek(name)
		if err != nil {
			return nil, err
		}
		sides[i] = facts(pack.Manifest())
		if err := errors.Join(pack.Close(), context.Cause(ctx)); err != nil {
			return nil, err
		}
	}
	list := []Difference{}
	for key, va := range sides[0] {
		if vb := sides[1][key]; va != vb {
			list = append(list, Difference{What: key[0], Name: key[1], A: va, B: vb})
		}
	}
	for key, vb := range sides[1] {
		if _, ok := sides[0][key]; !ok {
			list = append(list, Difference{What: key[0], Name: key[1], B: vb})
		}
	}
	slices.SortFunc(list, func(x, y Difference) int {
		return strings.Compare(x.What+"\x00"+x.Name, y.What+"\x00"+y.Name)
	})
	return list, nil
}

// peek opens the pack of a name without reading it through.
func (z *Zoo) peek(name string) (*zoo.Pack, error) {
	t, err := z.locate(name)
	switch {
	case err != nil:
		return nil, err
	case t.release != nil:
		return nil, &zoo.NotInstalledError{Model: t.release.Model}
	case t.record != nil:
		return zoo.OpenPack(z.packDir(t.record.Pack))
	}
	return zoo.OpenPack(t.dir)
}

// facts lists what a manifest says, by kind and name.
func facts(m *zoo.Manifest) map[[2]string]string {
	all := map[[2]string]string{{"plugin", m.Plugin.Name}: m.Plugin.Version}
	for k, v := range m.Recipe {
		all[[2]string{"recipe", k}] = v
	}
	for _, f := range m.Sources {
		all[[2]string{"source", f.Path}] = f.SHA256
	}
	for _, f := range m.Files {
		if f.Path != zoo.WeightsFile { // its tensors say more
			all[[2]string{"file", f.Path}] = f.SHA256
		}
	}
	for _, t := range m.Tensors {
		all[[2]string{"tensor", t.Name}] = fmt.Sprintf("%v [%d, %d] %s", t.Format, t.Rows, t.Cols, t.SHA256)
	}
	for k, v := range m.Constants {
		all[[2]string{"constant", k}] = fmt.Sprint(v)
	}
	return all
}
