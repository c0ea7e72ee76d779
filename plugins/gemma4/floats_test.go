package gemma4_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// TestGoldenCodes holds codes and scales of three tensors in both grids against the reference's, bit for bit.
func TestGoldenCodes(t *testing.T) {
	t.Parallel()
	dir := reference(t, "e4b-tiny")
	golden, err := checkpoint.OpenFile(dir, "golden_codes.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer golden.Close()
	ckpt, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	for _, grid := range quant.Grids() {
		for _, name := range []string{"layers.0.mlp.gate_proj", "layers.5.self_attn.k_proj", "embed_tokens"} {
			weight, ok := ckpt.Tensor("model.language_model." + name + ".weight")
			wantCodes, okCodes := golden.Tensor(string(grid) + "." + name + ".codes")
			wantScales, okScales := golden.Tensor(string(grid) + "." + name + ".scales")
			if !ok || !okCodes || !okScales {
				t.Fatalf("%s: %s is missing", grid, name)
			}
			rows, cols := weight.Shape[0], weight.Shape[1]
			codes, scales := make([]byte, cols/2), make([]float32, cols/32)
			for r := range rows {
				if err := grid.RoundBF16(codes, scales, weight.Data[2*cols*r:][:2*cols]); err != nil {
					t.Fatal(err)
				}
				for c := range cols {
					if got, want := int8(codes[c/2]>>(4*(c%2))&15)-8, int8(wantCodes.Data[r*cols+c]); got != want {
						t.Fatalf("%s: %s [%d, %d] has the code %d, want %d", grid, name, r, c, got, want)
					}
				}
				for i, s := range scales {
					if got, want := quant.F32ToF16(s), binary.LittleEndian.Uint16(wantScales.Data[2*(r*len(scales)+i):]); got != want {
						t.Fatalf("%s: %s: scale %d of row %d is %#x, want %#x", grid, name, i, r, got, want)
					}
				}
			}
		}
	}
}

// TestGrid checks that the grid is part of a pack's identity, and which is taken by default.
func TestGrid(t *testing.T) {
	dir := reference(t, "e4b-tiny")
	packs := map[string]*zoo.Pack{}
	for _, grid := range []string{"q4_0", "absmax7", "none"} {
		packs[grid] = convertTo(t, dir, map[string]string{"grid": grid})
		if got := packs[grid].Manifest().Recipe["grid"]; got != grid {
			t.Errorf("the recipe of a pack of %q says %q", grid, got)
		}
	}
	if convert(t, dir).Digest() != packs["q4_0"].Digest() {
		t.Error("q4_0 is not the default")
	}
	if packs["q4_0"].Digest() == packs["absmax7"].Digest() || packs["q4_0"].Digest() == packs["none"].Digest() {
		t.Error("packs of two grids have one digest")
	}
	req := request(t, dir)
	req.Recipe = map[string]string{"grid": "q5_1"}
	convertRefused(t, req, fault.ErrUsage, `grid "q5_1"`)
	req = request(t, dir)
	req.Sources = req.Sources[1:]
	convertRefused(t, req, fault.ErrUsage, "not among the sources")
}

// TestSharedKVDropped checks that keys and values that no layer reads change nothing but the source.
func TestSharedKVDropped(t *testing.T) {
	without := convert(t, made(t, gemma4test.TinyFloats(), gemma4test.Options{Seed: 8}))
	with := convert(t, made(t, gemma4test.TinyFloats(), gemma4test.Options{Seed: 8, SharedKV: true}))
	if !slices.Equal(without.Manifest().Tensors, with.Manifest().Tensors) {
		t.Error("the tensors differ")
	}
}

// bfloat returns a filler with one bfloat16 at one place of a tensor whose other numbers stay.
func bfloat(bits uint16) func(t gemma4test.Tensor) gemma4test.Tensor {
	return func(t gemma4test.Tensor) gemma4test.Tensor {
		fill, first := t.Fill, true
		t.Fill = func(r *rand.ChaCha8, dst []byte) {
			if fill(r, dst); first {
				binary.LittleEndian.PutUint16(dst[10:], bits)
			}
			first = false
		}
		return t
	}
}

// TestFloatsRefused converts checkpoints of floats that are wrong.
func TestFloatsRefused(t *testing.T) {
	change := func(name string, f func(gemma4test.Tensor) gemma4test.Tensor) func([]gemma4test.Tensor) []gemma4test.Tensor {
		return func(l []gemma4test.Tensor) []gemma4test.Tensor {
			i := slices.IndexFunc(l, func(t gemma4test.Tensor) bool { return t.Name == text+name })
			l[i] = f(l[i])
			return l
		}
	}
	as := func(d checkpoint.DType, shape ...int) func(gemma4test.Tensor) gemma4test.Tensor {
		return func(t gemma4test.Tensor) gemma4test.Tensor {
			t.DType = d
			if len(shape) > 0 {
				t.Shape = shape
			}
			return t
		}
	}
	drop := func(l []gemma4test.Tensor) []gemma4test.Tensor {
		return slices.DeleteFunc(l, func(t gemma4test.Tensor) bool { return t.Name == text+"layers.3.mlp.up_proj.weight" })
	}
	for _, c := range []struct {
		name   string
		change func([]gemma4test.Tensor) []gemma4test.Tensor
		grid   string
		tensor string
		want   string
	}{
		{"NaN", change("layers.3.mlp.down_proj.weight", bfloat(0x7fc1)), "q4_0", "layers.3.mlp.down_proj.weight", "number 5 is NaN"},
		{"NaN in the other grid", change("layers.3.mlp.down_proj.weight", bfloat(0xffc1)), "absmax7", "layers.3.mlp.down_proj.weight", "number 5 is NaN"},
		{"NaN that stays", change("layers.3.mlp.down_proj.weight", bfloat(0xffc1)), "none", "layers.3.mlp.down_proj.weight", "number 5 is NaN"},
		{"infinity in the embedding", change("embed_tokens.weight", bfloat(0x7f80)), "q4_0", "embed_tokens.weight", "number 5 is +Inf"},
		{"infinity in the per-layer table", change("embed_tokens_per_layer.weight", bfloat(0xff80)), "q4_0", "embed_tokens_per_layer.weight", "number 5 is -Inf"},
		{"infinite projection", change("per_layer_model_projection.weight", bfloat(0xff80)), "q4_0", "per_layer_model_projection.weight", "number 5 is -Inf"},
		{"NaN in a norm", change("layers.0.input_layernorm.weight", bfloat(0x7fff)), "q4_0", "layers.0.input_layernorm.weight", "number 5 is NaN"},
		{"too large for a half", change("layers.3.mlp.down_proj.weight", bfloat(0x4980)), "q4_0", "layers.3.mlp.down_proj.weight", "beyond the largest half"},
		{"float32", change("layers.3.mlp.down_proj.weight", as(checkpoint.F32)), "q4_0", "layers.3.mlp.down_proj.weight", "BF16"},
		{"codes", change("layers.3.mlp.down_proj.weight", as(checkpoint.U8)), "q4_0", "layers.3.mlp.down_proj.weight", "BF16"},
		{"another shape", change("layers.3.mlp.down_proj.weight", as(checkpoint.BF16, 96, 64)), "q4_0", "layers.3.mlp.down_proj.weight", "[64, 96]"},
		{"missing", drop, "q4_0", "layers.3.mlp.up_proj", "no weights"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := request(t, made(t, gemma4test.TinyFloats(), gemma4test.Options{Seed: 8, Change: c.change}))
			req.Recipe = map[string]string{"grid": c.grid}
			err := convertRefused(t, req, fault.ErrIntegrity, c.want)
			te, ok := errors.AsType[*checkpoint.TensorError](err)
			if !ok || te.Tensor != text+c.tensor {
				t.Errorf("the error names %+v, not %q", te, c.tensor)
			}
		})
	}
	t.Run("columns that fill no blocks", func(t *testing.T) {
		sizes := gemma4test.TinyFloats()
		sizes.Hidden = 72
		convertRefused(t, request(t, made(t, sizes, gemma4test.Options{Seed: 8})), fault.ErrIntegrity, "72 columns")
	})
}

// TestShardsRefused converts checkpoints in shards with something wrong about their files.
func TestShardsRefused(t *testing.T) {
	const shards = 3
	shard := func(i int) string { return gemma4test.ShardName(i, shards) }
	index := func(t *testing.T, dir string, edit func(string) string) {
		t.Helper()
		name := filepath.Join(dir, checkpoint.IndexFile)
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		changed := edit(string(data))
		if changed == string(data) {
			t.Fatal("the index stays as it was")
		}
		if err := os.WriteFile(name, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string) error
		kind   error
		want   string
	}{
		{"a missing shard", func(t *testing.T, dir string) error { return os.Remove(filepath.Join(dir, shard(1))) }, fault.ErrNotFound, shard(1)},
		{"an extra shard", func(t *testing.T, dir string) error {
			data, err := os.ReadFile(filepath.Join(dir, shard(1)))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, gemma4test.ShardName(1, 4)), data, 0o600)
		}, fault.ErrIntegrity, "mixes two versions"},
		{"a truncated shard", func(t *testing.T, dir string) error { return os.Truncate(filepath.Join(dir, shard(2)), 3000) }, fault.ErrIntegrity, shard(2)},
		{"an empty shard", func(t *testing.T, dir string) error { return os.Truncate(filepath.Join(dir, shard(0)), 0) }, fault.ErrIntegrity, shard(0)},
		{"a tensor in another shard", func(t *testing.T, dir string) error {
			index(t, dir, func(s string) string {
				return strings.Replace(s, `norm.weight": "`+shard(2), `norm.weight": "`+shard(0), 1)
			})
			return nil
		}, fault.ErrIntegrity, "the index says"},
		{"a tensor that is nowhere", func(t *testing.T, dir string) error {
			index(t, dir, func(s string) string {
				return strings.Replace(s, `model.language_model.norm.weight`, `model.norm.weight`, 1)
			})
			return nil
		}, fault.ErrIntegrity, "the index says"},
		{"a shard outside of the folder", func(t *testing.T, dir string) error {
			index(t, dir, func(s string) string { return strings.Replace(s, shard(1), "../"+shard(1), 1) })
			return nil
		}, fault.ErrIntegrity, "not the name of a shard"},
		{"no index", func(t *testing.T, dir string) error { return os.Remove(filepath.Join(dir, checkpoint.IndexFile)) }, fault.ErrNotFound, checkpoint.WeightsFile},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := made(t, gemma4test.TinyFloats(), gemma4test.Options{Seed: 8, Shards: shards})
			if err := c.damage(t, dir); err != nil {
				t.Fatal(err)
			}
			convertRefused(t, request(t, dir), c.kind, c.want)
		})
	}
}

// testReportProblem reports on a checkpoint with a number that one grid cannot hold, and one
// that neither can: what does not concern the pack does not fail its conversion.
func testReportProblem(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		bits     uint16 // of a bfloat16
		grid     string
		problems []string
	}{
		{0x48f0, "q4_0", []string{"absmax7"}}, // 491520
		{0x4974, "none", []string{"q4_0", "absmax7"}},
	} {
		large := func(l []gemma4test.Tensor) []gemma4test.Tensor {
			i := slices.IndexFunc(l, func(t gemma4test.Tensor) bool { return t.Name == text+"layers.3.mlp.down_proj.weight" })
			l[i] = bfloat(c.bits)(l[i])
			return l
		}
		req := request(t, made(t, gemma4test.TinyFloats(), gemma4test.Options{Seed: 8, Change: large}))
		req.Recipe, req.Report = map[string]string{"grid": c.grid}, true
		var last, total int64
		req.Progress = func(done, all int64) { last, total = done, all }
		made, err := gemma4.Convert(t.Context(), plugin, req)
		if err != nil {
			t.Fatal(err)
		}
		if last != total || total == 0 {
			t.Errorf("progress ends at %d of %d", last, total)
		}
		var problems []string
		for _, e := range made.Rounding {
			if e.Problem != "" {
				problems = append(problems, e.Grid)
				if e.Family != "layers.*.mlp.down_proj" || !strings.Contains(e.Problem, "layers.3.mlp.down_proj") || e.RelL2 != 0 {
					t.Errorf("%+v", e)
				}
			}
		}
		if !slices.Equal(problems, c.problems) {
			t.Errorf("%s: problems with %v, want %v", c.grid, problems, c.problems)
		}
	}
}

// TestReport checks the errors of rounding against a sum over the pack's own numbers.
func TestReport(t *testing.T) {
	dir := reference(t, "e4b-tiny")
	req := request(t, dir)
	req.Report = true
	made, err := gemma4.Convert(t.Context(), plugin, req)
	if err != nil {
		t.Fatal(err)
	}
	if pack, err := zoo.OpenPack(req.Dir); err != nil {
		t.Error(err)
	} else {
		if pack.Digest() != convert(t, dir).Digest() {
			t.Error("the report changes the pack")
		}
		pack.Close()
	}
	families := map[string]int{}
	for _, e := range made.Rounding {
		families[e.Family]++
		// A step is a seventh to an eighth of the largest of 32 normal numbers.
		if e.RelL2 < 0.05 || e.RelL2 > 0.12 || e.MaxAbs <= 0 {
			t.Errorf("%+v", e)
		}
	}
	if len(families) != 11 || families["layers.*.mlp.gate_proj"] != 2 || families["embed_tokens"] != 2 {
		t.Errorf("families: %v", families)
	}
	ckpt, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	for _, grid := range quant.Grids() {
		var squares, errs, most float64
		weight, _ := ckpt.Tensor(text + "embed_tokens.weight")
		exact := unpack(t, ckpt, weight.Name, "", weight.Shape[1])
		got := rounded(t, grid, weight)
		for r := range exact.rows {
			for c := range exact.cols {
				x := float64(exact.at(r, c))
				d := math.Abs(x - float64(got.at(r, c)))
				squares, errs, most = squares+x*x, errs+d*d, max(most, d)
			}
		}
		i := slices.IndexFunc(made.Rounding, func(e zoo.RoundingError) bool { return e.Family == "embed_tokens" && e.Grid == string(grid) })
		e := made.Rounding[i]
		if math.Abs(e.RelL2-math.Sqrt(errs/squares)) > 1e-9 || e.MaxAbs != most || e.Tensors != 1 || e.Numbers != 2048*128 {
			t.Errorf("%+v, want rel_l2 %g and at most %g", e, math.Sqrt(errs/squares), most)
		}
	}
	testReportProblem(t)
	req = request(t, reference(t, "e2b-tiny"))
	req.Report = true
	if made, err := gemma4.Convert(t.Context(), plugin, req); err != nil || made.Rounding != nil {
		t.Errorf("codes: %+v, %v", made, err)
	}
}
