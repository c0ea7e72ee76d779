package gemma4_test

import (
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/program"
)

// record converts a checkpoint and records its decoder.
func record(t *testing.T, dir string) (*program.Program, *gemma4.Config) {
	t.Helper()
	info := convert(t, dir).Info()
	cfg, err := gemma4.ParseConfig(info.Config)
	if err != nil {
		t.Fatal(err)
	}
	p, err := gemma4.Record(info.Manifest, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p, cfg
}

// TestRecordKeyIsValue: where keys are values, the value is the key's product
// before the key's own norm and rotation. No reference value covers this.
func TestRecordKeyIsValue(t *testing.T) {
	t.Parallel()
	tiny := gemma4test.Tiny()
	p, cfg := record(t, made(t, tiny, gemma4test.Options{Seed: 5, Config: edit(t, config(t, tiny), map[string]any{"text_config.attention_k_eq_v": true})}))
	layers := 0
	for i, l := range p.Layers {
		if !cfg.Layer(i).OwnsKV {
			continue
		}
		for at := l.First; at < l.End; at++ {
			if p.Ops[at].Store == nil {
				continue
			}
			s, value, key := p.Ops[at].Store, p.Ops[at-2].Norm, p.Ops[at-1].Norm
			raw := s.Value
			if cfg.Layer(i).KeyIsValue {
				raw = s.Key
				layers++
			}
			if value == nil || key == nil || value.In != raw || value.Out != s.Value || value.Weight != program.None || value.Rotation != program.None ||
				key.In != s.Key || key.Out != s.Key || key.Weight == program.None || key.Rotation == program.None {
				t.Errorf("layer %d stores value %+v and key %+v", i, value, key)
			}
			product := p.Ops[at-3].Linear
			if product == nil || !writes(product, raw) || writes(product, s.Value) == cfg.Layer(i).KeyIsValue {
				t.Errorf("layer %d makes its key and value by %+v", i, product)
			}
		}
	}
	if layers == 0 {
		t.Error("no layer has keys as values: nothing was tested")
	}
}

// writes reports whether a product has a part that goes into a buffer.
func writes(l *program.Linear, out program.BufferID) bool {
	for _, p := range l.Parts {
		if p.Out == out {
			return true
		}
	}
	return false
}

// TestRecordApart: gate and up, where they differ in their bits, lie apart and are products of their own.
func TestRecordApart(t *testing.T) {
	t.Parallel()
	tiny := gemma4test.Tiny()
	p, _ := record(t, made(t, tiny, gemma4test.Options{Seed: 4, Config: mixed(t, tiny)}))
	products := map[string]int{}
	for _, op := range p.Ops {
		if op.Linear != nil {
			products[p.Weights[op.Linear.Weight].Name]++
		}
		if op.GateUp != nil {
			t.Errorf("%s is read as one matrix", p.Weights[op.GateUp.Weight].Name)
		}
	}
	for _, w := range p.Weights {
		if strings.HasSuffix(w.Name, "_proj") && products[w.Name] == 0 {
			t.Errorf("%s is never multiplied", w.Name)
		}
	}
}
