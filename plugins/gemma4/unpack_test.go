package gemma4_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// unpacked is a matrix of a checkpoint as numbers.
type unpacked struct {
	rows, cols int
	at         func(r, c int) float32
}

// unpack reads a matrix of a checkpoint by the text of the layout, bits by its
// width: unsigned codes, lowest bits first, minus 2^(bits-1), times the scale of
// the row or of its part.
func unpack(t *testing.T, c *checkpoint.Checkpoint, codesName, scalesName string, cols int) unpacked {
	t.Helper()
	codes, ok := c.Tensor(codesName)
	if !ok {
		t.Fatalf("the checkpoint has no %q", codesName)
	}
	rows, width := codes.Shape[0], codes.Shape[1]
	if codes.DType == checkpoint.BF16 {
		return unpacked{rows, width, func(r, c int) float32 {
			return math.Float32frombits(uint32(binary.LittleEndian.Uint16(codes.Data[2*(r*width+c):])) << 16)
		}}
	}
	scales, ok := c.Tensor(scalesName)
	if !ok {
		t.Fatalf("the checkpoint has no %q", scalesName)
	}
	groups := scales.Shape[1]
	bits := width * 8 / cols
	scale := func(r, c int) float32 {
		return math.Float32frombits(binary.LittleEndian.Uint32(scales.Data[4*(r*groups+c*groups/cols):]))
	}
	return unpacked{rows, cols, func(r, c int) float32 {
		if bits == 8 {
			return float32(int8(codes.Data[r*width+c])) * scale(r, c)
		}
		b := int(codes.Data[r*width+c*bits/8])
		code := b/(1<<(c*bits%8))%(1<<bits) - 1<<(bits-1)
		return float32(code) * scale(r, c)
	}}
}

// rounded returns what a grid makes of a matrix of bfloat16; package quant holds the grids against their definitions.
func rounded(t *testing.T, grid quant.Grid, tensor checkpoint.Tensor) unpacked {
	t.Helper()
	rows, cols := tensor.Shape[0], tensor.Shape[1]
	values := make([]float32, rows*cols)
	m := quant.Matrix{Format: quant.Int4x32, Layout: quant.Rows, Rows: 1, Cols: cols}
	codes, scales, packed := make([]byte, m.CodeBytes()), make([]float32, m.Groups()), make([]byte, m.RowBytes())
	for r := range rows {
		if err := grid.RoundBF16(codes, scales, tensor.Data[2*cols*r:][:2*cols]); err != nil {
			t.Fatal(err)
		}
		quant.PackRow(packed, m, codes, scales)
		quant.Row(values[cols*r:], m, packed, 0)
	}
	return unpacked{rows, cols, func(r, c int) float32 { return values[r*cols+c] }}
}

// place says where a module's rows lie in the pack.
type place struct {
	tensor string
	// row returns the row of the tensor that holds row r of the module.
	row func(r int) int
}

// placeOf finds a module in a pack by the rules of the pack's names.
func placeOf(t *testing.T, p *zoo.Pack, cfg *gemma4.Config, module string) place {
	t.Helper()
	has := func(name string) bool { _, _, ok := p.Tensor(name); return ok }
	up := func(n int) int { return (n + 15) / 16 * 16 }
	same := func(r int) int { return r }
	if module == "lm_head" && !has(module) {
		return place{"embed_tokens", same}
	}
	parts := regexp.MustCompile(`^layers\.(\d+)\.(self_attn|mlp)\.([qkv]|gate|up)_proj$`).FindStringSubmatch(module)
	if parts == nil || has(module) {
		return place{module, same}
	}
	var i int
	if _, err := fmt.Sscan(parts[1], &i); err != nil {
		t.Fatal(err)
	}
	l := cfg.Layer(i)
	q, kv := up(cfg.Text.NumAttentionHeads*l.HeadDim), up(l.KVHeads*l.HeadDim)
	base := "layers." + parts[1] + "." + parts[2]
	switch parts[3] {
	case "q":
		return place{base + ".qkv_proj", same}
	case "k":
		return place{base + ".qkv_proj", func(r int) int { return q + r }}
	case "v":
		return place{base + ".qkv_proj", func(r int) int { return q + kv + r }}
	case "gate":
		return place{base + ".gate_up_proj", func(r int) int { return r/16*32 + r%16 }}
	}
	return place{base + ".gate_up_proj", func(r int) int { return r/16*32 + 16 + r%16 }}
}

// checkPack holds every number of a pack against the checkpoint it was made of.
func checkPack(t *testing.T, dir string, p *zoo.Pack) {
	t.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cfg, err := gemma4.ParseConfig(p.Info().Config)
	if err != nil {
		t.Fatal(err)
	}
	// The rows of each tensor of the pack that a module has given.
	given := map[string][]bool{}
	row := func(name string, r int) []float32 {
		data, m, ok := p.Tensor(name)
		if !ok {
			t.Fatalf("the pack has no %q", name)
		}
		if given[name] == nil {
			given[name] = make([]bool, m.Rows)
		}
		given[name][r] = true
		out := make([]float32, m.Cols)
		quant.Row(out, m, data, r)
		return out
	}
	constants := map[string]float32{}
	for _, full := range c.Names() {
		name, ours := strings.CutPrefix(full, "model.language_model.")
		ours = ours || strings.HasPrefix(full, "lm_head.")
		tensor, _ := c.Tensor(full)
		module, kind, _ := cutLast(name)
		switch {
		case !ours || unused(cfg, name):
		case len(tensor.Shape) == 0 || kind == "layer_scalar":
			if v := number(tensor); v != 0 {
				constants[name] = v
			}
		case len(tensor.Shape) == 1:
			got := row(module, 0)
			for i, want := range floats(tensor) {
				if got[i] != want {
					t.Fatalf("%s: number %d is %v, want %v", full, i, got[i], want)
				}
			}
		case kind == "weight" || kind == "embedding_quantized":
			scales := strings.TrimSuffix(full, kind) + "weight_scale"
			if kind == "embedding_quantized" {
				scales = strings.TrimSuffix(full, kind) + "embedding_scale"
			}
			at := placeOf(t, p, cfg, module)
			_, m, _ := p.Tensor(at.tensor)
			want := unpack(t, c, full, scales, m.Cols)
			if m.Codes() && tensor.DType == checkpoint.BF16 {
				want = rounded(t, quant.Grid(p.Manifest().Recipe["grid"]), tensor)
			}
			for r := range want.rows {
				got := row(at.tensor, at.row(r))
				for col := range got {
					if w := want.at(r, col); math.Float32bits(got[col]) != math.Float32bits(w) {
						t.Fatalf("%s [%d, %d]: %v in row %d of %q, want %v", full, r, col, got[col], at.row(r), at.tensor, w)
					}
				}
			}
		case kind == "weight_scale" || kind == "embedding_scale":
		default:
			t.Fatalf("this test does not know %q", full)
		}
	}
	for _, tensor := range p.Manifest().Tensors {
		rows := given[tensor.Name]
		if rows == nil {
			t.Errorf("tensor %q of the pack comes from nowhere", tensor.Name)
			continue
		}
		out := make([]float32, tensor.Cols)
		data, m, _ := p.Tensor(tensor.Name)
		for r, ok := range rows {
			if ok {
				continue
			}
			if quant.Row(out, m, data, r); slices.ContainsFunc(out, func(x float32) bool { return x != 0 }) {
				t.Errorf("row %d of %q fills up a block and is not 0", r, tensor.Name)
			}
		}
		if m.Layout == quant.Blocks {
			if given := slices.Index(rows, false); given >= 0 && given%16 == 0 {
				t.Errorf("block %d of %q comes from nowhere", given/16, tensor.Name)
			}
		}
	}
	got := p.Manifest().Constants
	for name, want := range constants {
		if got[name] != want {
			t.Errorf("constant %q is %v, want %v", name, got[name], want)
		}
	}
	for name := range got {
		if _, ok := constants[name]; !ok {
			t.Errorf("constant %q comes from nowhere", name)
		}
	}
}

// unused reports whether a tensor belongs to keys and values that a layer does not use.
func unused(cfg *gemma4.Config, name string) bool {
	m := regexp.MustCompile(`^layers\.(\d+)\.self_attn\.(k_|v_)`).FindStringSubmatch(name)
	if m == nil {
		return false
	}
	var i int
	_, err := fmt.Sscan(m[1], &i)
	return err == nil && !cfg.Layer(i).OwnsKV
}

// cutLast cuts a name at its last dot.
func cutLast(name string) (before, after string, ok bool) {
	i := strings.LastIndex(name, ".")
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// floats returns the numbers of a tensor of floats.
func floats(t checkpoint.Tensor) []float32 {
	var out []float32
	for i := 0; i < len(t.Data); i += t.DType.Size() {
		if t.DType == checkpoint.BF16 {
			out = append(out, math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.Data[i:]))<<16))
		} else {
			out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(t.Data[i:])))
		}
	}
	return out
}

// number returns the number of a scalar.
func number(t checkpoint.Tensor) float32 { return floats(t)[0] }
