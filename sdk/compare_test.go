package sdk_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// tensorEdit changes a tensor of a pack: its bytes in place, or all of it; nil leaves it out.
type tensorEdit func(m quant.Matrix, data []byte) (quant.Matrix, []byte)

// edited writes the demo's pack with changes into a folder.
func edited(t *testing.T, tensors map[string]tensorEdit, constants map[string]float32) string {
	return editedFiles(t, tensors, constants, nil)
}

// editedFiles is edited with other files beside the weights.
func editedFiles(t *testing.T, tensors map[string]tensorEdit, constants map[string]float32, files func(path string, data []byte) []byte) string {
	t.Helper()
	from, err := zoo.OpenPack(filepath.Dir(find(t, filepath.Join(installed(t), "packs"), "pack.json")))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	dir := t.TempDir()
	old := from.Manifest()
	w, err := zoo.NewPackWriter(dir, old.Plugin, map[string]string{"test": t.Name()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var plan []zoo.PlannedTensor
	content := map[string][]byte{}
	for _, tensor := range old.Tensors {
		data, m, _ := from.Tensor(tensor.Name)
		data = slices.Clone(data)
		if edit := tensors[tensor.Name]; edit != nil {
			if m, data = edit(m, data); data == nil {
				continue
			}
		}
		content[tensor.Name] = data
		plan = append(plan, zoo.PlannedTensor{Name: tensor.Name, Matrix: m})
	}
	if err := w.Plan(plan); err != nil {
		t.Fatal(err)
	}
	for _, p := range plan {
		if err := w.WriteTensor(p.Name, func(out io.Writer) error { _, err := out.Write(content[p.Name]); return err }); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range old.Files {
		if f.Path == zoo.WeightsFile {
			continue
		}
		data, err := from.File(f.Path)
		if files != nil {
			data = files(f.Path, data)
		}
		if err := errors.Join(err, w.WriteFile(f.Path, data)); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]float32{}
	maps.Copy(all, old.Constants)
	for name, x := range constants {
		if all[name] = x; x == 0 {
			delete(all, name)
		}
	}
	if err := w.SetConstants(all); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// values returns all numbers of a matrix.
func values(m quant.Matrix, data []byte) []float32 {
	all := make([]float32, 0, m.Rows*m.Cols)
	row := make([]float32, m.Cols)
	for r := range m.Rows {
		quant.Row(row, m, data, r)
		all = append(all, row...)
	}
	return all
}

// gap is what comparing two lists of numbers should find.
type gap struct {
	Differ        int64
	MaxAbs, RelL2 float64
}

// near allows for the order of sums.
var near = cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(a) })

// TestCompareNumbers changes one thing of a pack and has it found.
func TestCompareNumbers(t *testing.T) {
	t.Parallel()
	const (
		down  = "layers.3.mlp.down_proj"
		table = "embed_tokens_per_layer"
		gate  = "layers.1.per_layer_input_gate"
		last  = "norm"
	)
	flip := func(at int, bits byte) tensorEdit {
		return func(m quant.Matrix, data []byte) (quant.Matrix, []byte) {
			data[at] ^= bits
			return m, data
		}
	}
	for _, test := range []struct {
		name      string
		tensor    string
		edit      tensorEdit
		constants map[string]float32

		family  string
		verdict sdk.Verdict
		codes   int64 // -1: none
		scales  sdk.CompareScales
		only    int // tensors that B lacks
	}{
		{name: "code in a block", tensor: down, edit: flip(1000, 0x10), family: "layers.*.mlp.down_proj", verdict: sdk.VerdictDiffers, codes: 1},
		{name: "two codes of a byte", tensor: down, edit: flip(500, 0x21), family: "layers.*.mlp.down_proj", verdict: sdk.VerdictDiffers, codes: 2},
		{name: "code in a row", tensor: table, edit: flip(0, 0x01), family: table, verdict: sdk.VerdictDiffers, codes: 1},
		{name: "scale", tensor: down, edit: func(m quant.Matrix, data []byte) (quant.Matrix, []byte) {
			scale := data[m.BlockCodeBytes():]
			binary.LittleEndian.PutUint32(scale, math.Float32bits(2*math.Float32frombits(binary.LittleEndian.Uint32(scale))))
			return m, data
		}, family: "layers.*.mlp.down_proj", verdict: sdk.VerdictDiffers, scales: sdk.CompareScales{Differ: 1, MaxRel: 0.5}},
		{name: "norm", tensor: last, edit: func(m quant.Matrix, data []byte) (quant.Matrix, []byte) {
			binary.LittleEndian.PutUint32(data[8:], math.Float32bits(0.25))
			return m, data
		}, family: last, verdict: sdk.VerdictDiffers, codes: -1},
		{name: "other format", tensor: gate, edit: truncated, family: "layers.*.per_layer_input_gate", verdict: sdk.VerdictClose, codes: -1},
		{name: "left out", tensor: last, edit: func(quant.Matrix, []byte) (quant.Matrix, []byte) { return quant.Matrix{}, nil },
			family: last, verdict: sdk.VerdictOnlyA, codes: -1, only: 1},
		{name: "constant", constants: map[string]float32{"layers.2.layer_scalar": 0.125}, family: "layers.*.layer_scalar", verdict: sdk.VerdictDiffers, codes: -1},
		{name: "constant left out", constants: map[string]float32{"layers.2.layer_scalar": 0}, family: "layers.*.layer_scalar", verdict: sdk.VerdictOnlyA, codes: -1, only: 1},
		{name: "nothing", verdict: sdk.VerdictEqual},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			tensors := map[string]tensorEdit{}
			if test.edit != nil {
				tensors[test.tensor] = test.edit
			}
			whole, changed := edited(t, nil, nil), edited(t, tensors, test.constants)
			c, err := client(t, installed(t)).Compare(t.Context(), whole, changed, sdk.CompareOptions{Tolerance: 0.01})
			if err != nil {
				t.Fatal(err)
			}
			if equal := test.verdict == sdk.VerdictEqual || test.verdict == sdk.VerdictClose; c.Equal != equal {
				t.Errorf("equal: %v", c.Equal)
			}
			for _, f := range c.Families {
				if f.Name != test.family {
					if f.Verdict != sdk.VerdictEqual || f.Differ != 0 || f.RelL2 != 0 || f.Numbers == 0 {
						t.Errorf("%+v", f)
					}
					continue
				}
				if f.Verdict != test.verdict || f.TensorsA-f.TensorsB != test.only {
					t.Errorf("%+v, want it %s", f, test.verdict)
				}
				if test.codes < 0 != (f.Codes == nil) || f.Codes != nil && (*f.Codes != test.codes || *f.Scales != test.scales) {
					t.Errorf("codes %v, scales %+v, want %d and %+v", f.Codes, f.Scales, test.codes, test.scales)
				}
				if want, ok := expected(t, whole, changed, test.family); ok {
					if diff := cmp.Diff(want, gap{f.Differ, f.MaxAbs, f.RelL2}, near); diff != "" {
						t.Errorf("numbers (-want +got):\n%s", diff)
					}
				}
			}
		})
	}
}

// truncated keeps the upper half of numbers of 32 bits.
func truncated(m quant.Matrix, data []byte) (quant.Matrix, []byte) {
	floats := quant.Matrix{Format: quant.BF16, Layout: quant.Rows, Rows: m.Rows, Cols: m.Cols}
	out := make([]byte, 0, floats.SizeBytes())
	for _, x := range values(m, data) {
		out = binary.LittleEndian.AppendUint16(out, uint16(math.Float32bits(x)>>16))
	}
	return floats, out
}

// TestCompareBothSides compares packs that both lack something, and families of which
// some tensors are in equal formats and others not.
func TestCompareBothSides(t *testing.T) {
	t.Parallel()
	gone := func(quant.Matrix, []byte) (quant.Matrix, []byte) { return quant.Matrix{}, nil }
	scaled := func(by float32) tensorEdit {
		return func(m quant.Matrix, data []byte) (quant.Matrix, []byte) {
			binary.LittleEndian.PutUint32(data[8:], math.Float32bits(by*math.Float32frombits(binary.LittleEndian.Uint32(data[8:]))))
			return m, data
		}
	}
	rounded := func(by float32) tensorEdit {
		return func(m quant.Matrix, data []byte) (quant.Matrix, []byte) { return truncated(scaled(by)(m, data)) }
	}
	const norms = "layers.*.input_layernorm"
	norm := func(layer string) string { return "layers." + layer + ".input_layernorm" }
	for _, test := range []struct {
		name                 string
		a, b                 map[string]tensorEdit
		constantsA           map[string]float32
		constantsB           map[string]float32
		family               string
		verdict              sdk.Verdict
		onlyA, onlyB, differ int // differ: how many numbers
		converted            bool
	}{
		{name: "tensors", a: map[string]tensorEdit{norm("1"): gone}, b: map[string]tensorEdit{norm("2"): gone},
			family: norms, verdict: sdk.VerdictOnlyOne, onlyA: 1, onlyB: 1},
		{name: "more tensors", a: map[string]tensorEdit{norm("1"): gone, norm("2"): gone}, b: map[string]tensorEdit{norm("3"): gone},
			family: norms, verdict: sdk.VerdictOnlyOne, onlyA: 1, onlyB: 2},
		{name: "tensors of B", a: map[string]tensorEdit{norm("1"): gone}, family: norms, verdict: sdk.VerdictOnlyB, onlyB: 1},
		{name: "constants", constantsA: map[string]float32{"layers.3.layer_scalar": 0}, constantsB: map[string]float32{"layers.4.layer_scalar": 0},
			family: "layers.*.layer_scalar", verdict: sdk.VerdictOnlyOne, onlyA: 1, onlyB: 1},
		{name: "other format", b: map[string]tensorEdit{norm("1"): rounded(1)}, family: norms, verdict: sdk.VerdictEqual, converted: true},
		{name: "rounded", b: map[string]tensorEdit{norm("1"): rounded(1.02)}, family: norms, verdict: sdk.VerdictClose, differ: 1, converted: true},
		// Of all norms together the difference is within the tolerance.
		{name: "rounded too far", b: map[string]tensorEdit{norm("1"): rounded(1.25)}, family: norms, verdict: sdk.VerdictDiffers, differ: 1, converted: true},
		{name: "rounded, and another changed", b: map[string]tensorEdit{norm("1"): rounded(1.02), norm("2"): scaled(1.001)},
			family: norms, verdict: sdk.VerdictDiffers, differ: 2, converted: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, err := client(t, installed(t)).Compare(t.Context(), edited(t, test.a, test.constantsA), edited(t, test.b, test.constantsB), sdk.CompareOptions{Tolerance: 0.01})
			if err != nil {
				t.Fatal(err)
			}
			if want := test.verdict == sdk.VerdictClose || test.verdict == sdk.VerdictEqual; c.Equal != want || c.NumbersEqual != want || !c.FilesEqual {
				t.Errorf("equal: %v, numbers: %v, files: %v", c.Equal, c.NumbersEqual, c.FilesEqual)
			}
			for _, f := range c.Families {
				switch {
				case f.Name != test.family:
					if f.Verdict != sdk.VerdictEqual {
						t.Errorf("%+v", f)
					}
				case f.Verdict != test.verdict || f.OnlyA != test.onlyA || f.OnlyB != test.onlyB || f.Differ != int64(test.differ):
					t.Errorf("%+v, want it %s", f, test.verdict)
				case (f.ConvertedRelL2 != nil) != test.converted:
					t.Errorf("%+v: rel_l2 %v of other formats", f, f.ConvertedRelL2)
				}
			}
		})
	}
}

// TestCompareFiles tells packs apart whose numbers are the same, by a file that decides
// what is made of them.
func TestCompareFiles(t *testing.T) {
	t.Parallel()
	wide := editedFiles(t, nil, nil, func(path string, data []byte) []byte {
		if path == "config.json" {
			data = append(data, '\n')
		}
		return data
	})
	c, err := client(t, installed(t)).Compare(t.Context(), edited(t, nil, nil), wide, sdk.CompareOptions{})
	if err != nil || c.Equal || c.FilesEqual || !c.NumbersEqual || len(c.Facts) != 1 || c.Facts[0].Name != "config.json" {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestCompareContext stops where the context is full.
func TestCompareContext(t *testing.T) {
	t.Parallel()
	z := client(t, installed(t))
	const room = 24
	c, err := z.Compare(t.Context(), "demo", "demo", sdk.CompareOptions{Tokens: 4096}, sdk.WithContext(room))
	if err != nil || len(c.Prompts) == 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	full := 0
	for _, p := range c.Prompts {
		switch {
		case p.Problem != "":
			if p.PromptTokens <= room || p.Matched != 0 {
				t.Errorf("%+v", p)
			}
		case p.Context != 0:
			full++
			if p.Context != room || p.Matched != room-p.PromptTokens+1 || p.Fork != nil {
				t.Errorf("%+v", p)
			}
		}
	}
	if full == 0 {
		t.Errorf("no context was filled: %+v", c.Prompts)
	}
	c, err = z.Compare(t.Context(), "demo", "demo", sdk.CompareOptions{Tokens: 1}, sdk.WithContext(4))
	if err != nil || c.Equal || c.Prompts[0].Problem == "" {
		t.Errorf("prompts that do not fit: %+v, %v", c, err)
	}
}

// expected works out what comparing the tensors of a family finds, if both packs have the same.
func expected(t *testing.T, whole, changed, family string) (gap, bool) {
	t.Helper()
	a, errA := zoo.OpenPack(whole)
	b, errB := zoo.OpenPack(changed)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	var g gap
	var sumA, sum float64
	found := false
	for _, tensor := range a.Manifest().Tensors {
		if ok, _ := filepath.Match(family, tensor.Name); !ok {
			continue
		}
		dataA, ma, _ := a.Tensor(tensor.Name)
		dataB, mb, ok := b.Tensor(tensor.Name)
		if !ok {
			return gap{}, false
		}
		found = true
		va, vb := values(ma, dataA), values(mb, dataB)
		for i := range va {
			d := math.Abs(float64(va[i]) - float64(vb[i]))
			sumA, sum, g.MaxAbs = sumA+float64(va[i])*float64(va[i]), sum+d*d, max(g.MaxAbs, d)
			if d != 0 {
				g.Differ++
			}
		}
	}
	g.RelL2 = math.Sqrt(sum / sumA)
	return g, found
}

// TestCompareApart compares matrices that lie together in one pack and apart in the other.
func TestCompareApart(t *testing.T) {
	t.Parallel()
	z := client(t, t.TempDir())
	var packs []string
	for _, grid := range []string{"none", "q4_0"} {
		dir := filepath.Join(t.TempDir(), grid)
		_, err := z.Convert(t.Context(), sdk.ConvertOptions{
			Checkpoint: filepath.Join("..", "plugins", "gemma4", "testdata", "e4b-tiny"), Plugin: "gemma4e4b", Output: dir, Recipe: map[string]string{"grid": grid},
		})
		if err != nil {
			t.Fatal(err)
		}
		packs = append(packs, dir)
	}
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		c, err := z.Compare(t.Context(), packs[order[0]], packs[order[1]], sdk.CompareOptions{Tolerance: 0.1})
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]int{}
		for _, f := range c.Families {
			names[f.Name] = f.TensorsA
			if f.TensorsA != f.TensorsB || f.Numbers == 0 || f.Codes != nil && f.Verdict != sdk.VerdictEqual {
				t.Errorf("%+v", f)
			}
		}
		for name, want := range map[string]int{
			"layers.*.self_attn.q_proj": 12, "layers.*.self_attn.k_proj": 6, "layers.*.self_attn.v_proj": 6,
			"layers.*.mlp.gate_proj": 12, "layers.*.mlp.up_proj": 12, "layers.*.self_attn.qkv_proj": 0, "layers.*.mlp.gate_up_proj": 0,
		} {
			if names[name] != want {
				t.Errorf("%d tensors %s, want %d", names[name], name, want)
			}
		}
		// Rounding to 4 bits is told from rows that do not belong together.
		if !c.Equal {
			t.Errorf("families %+v", c.Families)
		}
		if want := []sdk.Difference{{What: "recipe", Name: "grid", A: []string{"none", "q4_0"}[order[0]], B: []string{"none", "q4_0"}[order[1]]}}; !cmp.Equal(want, c.Facts) {
			t.Errorf("facts %+v", c.Facts)
		}
	}
}

// TestCompareTokens has packs answer, up to where they part.
func TestCompareTokens(t *testing.T) {
	t.Parallel()
	const tokens = 10
	var stages, weights int
	z := client(t, installed(t), sdk.WithProgress(sdk.Events{
		Gate: func(stage string, _, _ int) { stages++ },
		Verify: func(what string, done, total int64) {
			if what == "weights" && done <= total {
				weights++
			}
		},
	}))
	negated := func(m quant.Matrix, data []byte) (quant.Matrix, []byte) {
		for i := 3; i < len(data); i += 4 {
			data[i] ^= 0x80
		}
		return m, data
	}
	whole, other := edited(t, nil, nil), edited(t, map[string]tensorEdit{"norm": negated}, nil)
	c, err := z.Compare(t.Context(), "demo", whole, sdk.CompareOptions{Tokens: tokens})
	if err != nil || !c.Equal || len(c.Prompts) != 3 || c.TokensProblem != "" {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, p := range c.Prompts {
		if p.Matched != tokens || p.Fork != nil || p.RelL2 != 0 || p.PromptTokens == 0 || p.Text == "" || p.Problem != "" {
			t.Errorf("%+v", p)
		}
	}
	if stages != 4 || weights == 0 {
		t.Errorf("%d and %d events", stages, weights)
	}
	c, err = z.Compare(t.Context(), "demo", other, sdk.CompareOptions{Tokens: tokens}, sdk.WithCache("float"))
	if err != nil || c.Equal {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, p := range c.Prompts {
		if f := p.Fork; p.Matched != 0 || f == nil || f.A == f.B || f.MarginA <= 0 || f.MarginB <= 0 || p.MaxAbsLogit <= 0 || math.Abs(p.RelL2-2) > 0.5 {
			t.Errorf("%+v, fork %+v", p, f)
		}
	}
}

func TestCompareRefused(t *testing.T) {
	t.Parallel()
	z := client(t, installed(t))
	for name, test := range map[string]struct {
		a, b string
		how  sdk.CompareOptions
		want error
	}{
		"no pack":         {"demo", t.TempDir(), sdk.CompareOptions{}, zoo.ErrNotFound},
		"not installed":   {"gemma-4-e2b", "demo", sdk.CompareOptions{}, zoo.ErrNotFound},
		"negative tokens": {"demo", "demo", sdk.CompareOptions{Tokens: -1}, zoo.ErrUsage},
		"many tokens":     {"demo", "demo", sdk.CompareOptions{Tokens: 1 << 20}, zoo.ErrUsage},
		"tolerance":       {"demo", "demo", sdk.CompareOptions{Tolerance: math.NaN()}, zoo.ErrUsage},
		"less than equal": {"demo", "demo", sdk.CompareOptions{Tolerance: -1}, zoo.ErrUsage},
	} {
		_, err := z.Compare(t.Context(), test.a, test.b, test.how)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
		if test.want == zoo.ErrUsage && zoo.Hint(err) == "" {
			t.Errorf("%s: no hint with %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := z.Compare(ctx, "demo", "demo", sdk.CompareOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
