package packing

import (
	"fmt"
	"maps"
	"slices"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/quant"
)

// GridKey is the key of a recipe that names the grid which weights are rounded to, and
// GridNone its value for weights that stay as they are.
const (
	GridKey  = "grid"
	GridNone = "none"
)

// ParseGrid reads the recipe of a checkpoint of floats, whose only key is [GridKey]. It
// returns the recipe as the pack's identity has it, with the grid in it, and the grid,
// which is "" for [GridNone] and quant.GridQ4_0 if none is named. Anything else is fault.ErrUsage.
func ParseGrid(recipe map[string]string) (map[string]string, quant.Grid, error) {
	if err := checkKeys(recipe); err != nil {
		return nil, "", err
	}
	name := recipe[GridKey]
	switch name {
	case GridNone:
		return map[string]string{GridKey: GridNone}, "", nil
	case "":
		name = string(quant.GridQ4_0)
	}
	grid, err := quant.ParseGrid(name)
	if err != nil {
		return nil, "", fault.WithHint(fmt.Errorf("%w: recipe: there is no grid %q", fault.ErrUsage, fault.Shorten(name)), "choose q4_0, absmax7 or none")
	}
	return map[string]string{GridKey: name}, grid, nil
}

// CheckNoGrid checks the recipe of a checkpoint that nothing rounds, such as one of codes: it has
// no key, or a [GridKey] of [GridNone], and none at all as the pack's identity has it.
func CheckNoGrid(recipe map[string]string) error {
	if err := checkKeys(recipe); err != nil {
		return err
	}
	if name := recipe[GridKey]; name != "" && name != GridNone {
		return fault.WithHint(fmt.Errorf("%w: recipe: grid %q is for weights that are floats; those of this checkpoint are taken over as they are", fault.ErrUsage, fault.Shorten(name)),
			`leave the grid out, or give "none"`)
	}
	return nil
}

// checkKeys reports a key that is not GridKey.
func checkKeys(recipe map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(recipe)) {
		if key != GridKey {
			return fault.WithHint(fmt.Errorf("%w: recipe: %q is not a setting of this conversion", fault.ErrUsage, fault.Shorten(key)), `the only one is "grid"`)
		}
	}
	return nil
}
