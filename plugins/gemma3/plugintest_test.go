package gemma3_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/checkpoint/gguf"
	"github.com/zoo-sdk/zoo/plugins/gemma3"
	"github.com/zoo-sdk/zoo/plugins/plugintest"
	"github.com/zoo-sdk/zoo/plugins/rpc"
	"github.com/zoo-sdk/zoo/sdk"
)

// TestMain runs the tests, or is the plugin if a host has started this program as one.
func TestMain(m *testing.M) {
	if os.Getenv("ZOO_PLUGIN") != "" {
		rpc.Serve(gemma3.New())
		return
	}
	os.Exit(m.Run())
}

// goldens writes what the decoder in float64 says of a GGUF file to a folder of reference values.
func goldens(t *testing.T, data []byte) string {
	t.Helper()
	r := newReference(ofFile(t, data))
	ids := slices.Clone(prompt)
	var margins []float64
	for range 6 {
		sorted := slices.Clone(r.logits(ids)[len(ids)-1])
		best := slices.Index(sorted, slices.Max(sorted))
		slices.Sort(sorted)
		margins = append(margins, sorted[len(sorted)-1]-sorted[len(sorted)-2])
		ids = append(ids, int32(best))
	}
	var last []byte
	for _, v := range r.logits(ids)[len(ids)-1] {
		last = binary.LittleEndian.AppendUint32(last, math.Float32bits(float32(v)))
	}
	layout, err := checkpoint.NewLayout([]checkpoint.Spec{{Name: "last_logits.0", DType: checkpoint.F32, Shape: []int{vocab()}}}, checkpoint.LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var numbers bytes.Buffer
	w, err := checkpoint.NewWriter(&numbers, layout)
	if err == nil {
		err = w.WriteTensor("last_logits.0", func(w io.Writer) error { _, err := w.Write(last); return err })
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	run := map[string]any{"prompt": prompt, "greedy": ids[len(prompt):], "margin": margins}
	return folder(t, map[string][]byte{"golden.json": encodeJSON(t, map[string]any{"runs": []any{run}}), "golden.safetensors": numbers.Bytes()})
}

// TestContract holds the plugin to the contract of all plugins, with both kinds of
// checkpoints, in this process and in one of its own.
func TestContract(t *testing.T) {
	like, plain := tensors(like270M...), tensors(gguf.BF16)
	for _, tt := range []struct {
		name   string
		files  map[string][]byte
		recipe map[string]string
		// data is the GGUF file that the values are computed from.
		data []byte
	}{
		{name: "gguf", files: map[string][]byte{"model.gguf": encode(keys(), like)}, data: encode(keys(), like)},
		{name: "safetensors", files: safetensors(t, plain, config()), recipe: map[string]string{"grid": "none"}, data: encode(keys(), plain)},
	} {
		checkpoint, values := folder(t, tt.files), goldens(t, tt.data)
		t.Run(tt.name, func(t *testing.T) {
			o := plugintest.Options{Checkpoint: checkpoint, Recipe: tt.recipe, Reference: values, Backend: cpu.New(""), Dir: t.TempDir()}
			if err := plugintest.Test(t.Context(), gemma3.New(), o); err != nil {
				t.Error(err)
			}
		})
		t.Run(tt.name+" in a process", func(t *testing.T) {
			if testing.Short() {
				t.Skip("starts programs dozens of times")
			}
			t.Parallel()
			z, err := sdk.New(sdk.WithHome(t.TempDir()), sdk.WithOffline())
			if err != nil {
				t.Fatal(err)
			}
			program, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			report, err := z.CheckPlugin(t.Context(), program, sdk.PluginCheck{Checkpoint: checkpoint, Recipe: tt.recipe, Reference: values})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range report.Findings {
				t.Errorf("%s: %s: %s", f.Rule, f.Call, f.Problem)
			}
			if report.Name != gemma3.Name {
				t.Errorf("the plugin that was checked is %q", report.Name)
			}
		})
	}
}
