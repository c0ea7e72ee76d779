package gguf_test

import (
	"fmt"
	"log"

	"github.com/zoo-sdk/zoo/checkpoint/gguf"
)

func Example() {
	f, err := gguf.Open("testdata", "types.gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	architecture, err := f.Text("general.architecture")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(architecture)

	t, _ := f.Tensor("q4_k")
	var row gguf.Row
	if err := t.Decode(&row, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Type, t.Shape, len(row.Codes), len(row.Scales), len(row.Minimums))
	// Output:
	// types
	// Q4_K [2 512] 512 16 16
}
