package gemma4_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/zoo-sdk/zoo/plugins/gemma4"
)

func ExampleParseConfig() {
	data, err := os.ReadFile(filepath.Join("testdata", "e2b-tiny", "config.json"))
	if err != nil {
		log.Fatal(err)
	}
	cfg, err := gemma4.ParseConfig(data)
	if err != nil {
		log.Fatal(err)
	}
	last := cfg.Layer(cfg.Text.NumHiddenLayers - 1)
	fmt.Println(last.Full, last.HeadDim, last.FFN, last.KVSource)

	bits, err := cfg.Quantization.Bits("model.language_model.layers.9.mlp.up_proj", false)
	fmt.Println(bits, err)
	// Output:
	// true 32 256 4
	// 2 <nil>
}
