// Package gemma4e4b is the plugin for checkpoints of Gemma 4 E4B: those of bfloat16
// weights that were trained for blocks of 4 bits, and the official mobile ones, of codes
// of 2, 4 and 8 bits with static activation scales. It gives package gemma4 a name and a
// version.
package gemma4e4b

import (
	_ "embed"

	"github.com/zoo-sdk/zoo/plugins/gemma4"
)

const (
	// Name is the plugin's name in catalogs.
	Name = "gemma4e4b"
	// Version is part of the identity of every pack: it rises with every change of
	// what the plugin writes.
	Version = "1.0.0"
)

// The sizes of the official checkpoints, for random weights. They are no model's configuration.
var (
	//go:embed shapes/floats.json
	floats []byte
	//go:embed shapes/mobile.json
	mobile []byte
)

// New returns the plugin.
func New() *gemma4.Plugin {
	return gemma4.NewPlugin(Name, Version, "Gemma 4 E4B: 4 bits in blocks, or mixed 2, 4 and 8 bits", map[string]gemma4.Shapes{
		"gemma-4-e4b":         {Config: floats, Recipe: map[string]string{"grid": "q4_0"}},
		"gemma-4-e4b-absmax7": {Config: floats, Recipe: map[string]string{"grid": "absmax7"}},
		"gemma-4-e4b-mobile":  {Config: mobile},
	})
}
