package metaltest_test

import (
	"testing"

	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
)

func TestChecked(t *testing.T) {
	metaltest.Require(t)
	d := metaltest.New(metaltest.Options{Checked: true})
	dev, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if err := dev.Load(t.Context(), firstSource, []string{"scale_one", "scale_two"}); err != nil {
		t.Fatal(err)
	}
	in, _ := dev.Alloc(4096 * 4)
	out, err := dev.Alloc(4096 * 4)
	if err != nil {
		t.Fatal(err)
	}
	args := make([]byte, 8)
	for _, size := range []int{16384, 16384 - 1} {
		l, err := dev.Record([]metal.Dispatch{{Kernel: "scale_two", Args: args, Buffers: []metal.Binding{{Buffer: in, Size: 16384}, {Buffer: out, Size: size}}, Groups: [3]int{16, 1, 1}, Threads: 256, SharedBytes: 1024}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := dev.Submit([]metal.List{l})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(s.Wait())
	}
}
