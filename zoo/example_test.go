package zoo_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// A pack of one tensor, written, opened and verified.
func Example() {
	dir, err := os.MkdirTemp("", "pack")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	w, err := zoo.NewPackWriter(dir, zoo.PluginID{Name: "example", Version: "1.0.0"}, nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	norm := zoo.PlannedTensor{Name: "norm", Matrix: quant.Matrix{Format: quant.F32, Layout: quant.Rows, Rows: 1, Cols: 4}}
	if err := w.Plan([]zoo.PlannedTensor{norm}); err != nil {
		log.Fatal(err)
	}
	err = w.WriteTensor("norm", func(out io.Writer) error {
		_, err := out.Write(make([]byte, norm.SizeBytes()))
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.WriteFile(zoo.ConfigFile, []byte("{}")); err != nil {
		log.Fatal(err)
	}
	digest, err := w.Finish(context.Background())
	if err != nil {
		log.Fatal(err)
	}

	p, err := zoo.OpenPack(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	if err := p.Verify(context.Background(), nil); err != nil {
		log.Fatal(err)
	}
	data, matrix, _ := p.Tensor("norm")
	fmt.Println(p.Digest() == digest, len(data), matrix.Format)
	// Output: true 16 f32
}
