package checkpoint_test

import (
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/zoo-sdk/zoo/checkpoint"
)

func Example() {
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	// All tensors are declared first, then their data is streamed.
	layout, err := checkpoint.NewLayout([]checkpoint.Spec{
		{Name: "norm.weight", DType: checkpoint.BF16, Shape: []int{2}},
	}, checkpoint.LayoutOptions{Align: 64})
	if err != nil {
		log.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, checkpoint.WeightsFile))
	if err != nil {
		log.Fatal(err)
	}
	w, err := checkpoint.NewWriter(f, layout)
	if err != nil {
		log.Fatal(err)
	}
	err = w.WriteTensor("norm.weight", func(w io.Writer) error {
		_, err := w.Write([]byte{0x80, 0x3f, 0x00, 0x40})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}

	c, err := checkpoint.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	t, ok := c.Tensor("norm.weight")
	fmt.Println(ok, t.DType, t.Shape, t.Data)
	// Output: true BF16 [2] [128 63 0 64]
}
