package packing_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// Example packs one matrix of bfloat16 as it is.
func Example() {
	ones := checkpoint.Tensor{Name: "model.w.weight", DType: checkpoint.BF16, Shape: []int{2, 2}, Data: []byte{0x80, 0x3f, 0x80, 0x3f, 0x80, 0x3f, 0x80, 0x3f}}
	m, err := packing.BF16("w", ones)
	if err != nil {
		log.Fatal(err)
	}
	t, err := packing.NewMatrix(m)
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pack")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	pack := &packing.Pack{Plugin: zoo.PluginID{Name: "mine", Version: "1.0.0"}, Tensors: []*packing.Tensor{t}}
	if err := pack.Write(context.Background(), dir, packing.NewMeter(nil)); err != nil {
		log.Fatal(err)
	}
	made, err := zoo.OpenPack(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer made.Close()
	for _, t := range made.Manifest().Tensors {
		fmt.Println(t.Name, t.Format, t.Rows, t.Cols)
	}
	// Output: w bf16 2 2
}
