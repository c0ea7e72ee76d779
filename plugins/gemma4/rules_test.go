package gemma4_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
)

// quantisation parses e2b-tiny's config.json with another quantization_config.
func quantisation(t *testing.T, q string) *gemma4.Quantization {
	t.Helper()
	cfg, err := gemma4.ParseConfig(tinyConfig(t, map[string]any{"quantization_config": json.RawMessage(q)}))
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Quantization
}

// TestReferenceRules applies the rules of the reference checkpoint.
func TestReferenceRules(t *testing.T) {
	cfg, err := gemma4.ParseConfig(tinyConfig(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	const text = "model.language_model."
	for module, want := range map[string]int{
		"lm_head":                                    2,
		text + "embed_tokens":                        2,
		text + "embed_tokens_per_layer":              4,
		text + "layers.0.mlp.up_proj":                4,
		text + "layers.4.mlp.down_proj":              4,
		text + "layers.5.mlp.gate_proj":              2,
		text + "layers.10.mlp.gate_proj":             2,
		text + "layers.7.per_layer_input_gate":       8,
		text + "layers.7.per_layer_projection":       8,
		text + "layers.9.self_attn.o_proj":           4,
		text + "per_layer_model_projection":          0,
		"model.vision_tower.encoder.layers.0.linear": 4, // the tower is exempt by "vision_tower" at the start or as a suffix only
		"model.embed_vision":                         0,
	} {
		got, err := cfg.Quantization.Bits(module, strings.Contains(module, "embed_tokens"))
		if err != nil || got != want {
			t.Errorf("%s: %d bits, %v; want %d", module, got, err, want)
		}
	}
}

func TestRules(t *testing.T) {
	const rules = `{"quant_method":"gemma","module_quant_configs":`
	cases := []struct {
		name, config, module string
		table                bool
		want                 int
	}{
		{"default", `{"quant_method":"gemma"}`, "a", false, 4},
		{"given default", `{"quant_method":"gemma","num_bits":8}`, "a", false, 8},
		{"first of two", rules + `{"a":{"num_bits":2},"a$":{"num_bits":8}}}`, "a", false, 2},
		{"first of two, the other way", rules + `{"a$":{"num_bits":8},"a":{"num_bits":2}}}`, "a", false, 8},
		{"first in the file, not in the name", rules + `{"tail":{"num_bits":8},"head":{"num_bits":2}}}`, "head.tail", false, 8},
		{"found anywhere", rules + `{"x":{"num_bits":2}}}`, "axb", false, 2},
		{"anchored", rules + `{"^x":{"num_bits":2}}}`, "axb", false, 4},
		{"named group of Python", rules + `{"(?P<layer>[0-9]+)\\.(?=mlp)":{"num_bits":2}}}`, "layers.12.mlp", false, 2},
		{"look-behind", rules + `{"(?<!\\.)mlp":{"num_bits":2}}}`, "layers.12.mlp", false, 4},
		{"ignoring case", rules + `{"(?i)MLP":{"num_bits":2}}}`, "layers.12.mlp", false, 2},
		{"option left out", rules + `{"x":{}},"num_bits":8}`, "x", false, 8},
		{"tables are floats", `{"quant_method":"gemma"}`, "embed", true, 0},
		{"tables are codes", `{"quant_method":"gemma","quantize_embeddings":true}`, "embed", true, 4},
		{"exempt by suffix", `{"quant_method":"gemma","modules_to_not_convert":["proj"]}`, "model.up_proj", false, 0},
		{"exempt by start", `{"quant_method":"gemma","modules_to_not_convert":["model.tower"]}`, "model.tower.layers.0", false, 0},
		{"not exempt within a name", `{"quant_method":"gemma","modules_to_not_convert":["layer.1"]}`, "layer.11.attn", false, 4},
		{"exempt up to a dot", `{"quant_method":"gemma","modules_to_not_convert":["layer.1"]}`, "layer.1.attn", false, 0},
		{"exempt by pattern", `{"quant_method":"gemma","modules_to_not_convert":["layer\\.\\d+\\.(q|k)"]}`, "layer.11.q", false, 0},
		{"not exempt in the middle", `{"quant_method":"gemma","modules_to_not_convert":["tower"]}`, "model.tower.linear", false, 4},
		{"exempt before the rules", `{"quant_method":"gemma","modules_to_not_convert":["a"],"module_quant_configs":{"a":{"num_bits":8}}}`, "a", false, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := quantisation(t, c.config).Bits(c.module, c.table)
			if err != nil || got != c.want {
				t.Errorf("%d bits, %v; want %d", got, err, c.want)
			}
		})
	}
}

func TestRulesRefused(t *testing.T) {
	many := make([]string, 2000)
	for i := range many {
		many[i] = `"` + strings.Repeat("a", i%900+1) + strings.Repeat("b", i/900) + `":{}`
	}
	malformed, unsupported := fault.ErrIntegrity, fault.ErrUsage
	for name, c := range map[string]struct {
		rules string
		kind  error
		want  string
	}{
		"not a pattern":     {`{"(":{"num_bits":2}}`, malformed, `"(" is not a pattern`},
		"twice":             {`{"a":{"num_bits":2},"a":{"num_bits":4}}`, malformed, `"a" occurs twice`},
		"3 bits":            {`{"a":{"num_bits":3}}`, unsupported, `["a"].num_bits is 3`},
		"bits a string":     {`{"a":{"num_bits":"2"}}`, malformed, "num_bits"},
		"option unknown":    {`{"a":{"group_size":32}}`, unsupported, "group_size"},
		"options a number":  {`{"a":2}`, malformed, "not an object"},
		"a list":            {`["a"]`, malformed, "not an object"},
		"too many":          {"{" + strings.Join(many, ",") + "}", malformed, "more than 1024 rules"},
		"a pattern of 2000": {`{"` + strings.Repeat("a", 2000) + `":{}}`, malformed, "2000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, tinyConfig(t, map[string]any{"quantization_config.module_quant_configs": json.RawMessage(c.rules)}), c.kind, c.want)
		})
	}
	for name, c := range map[string]struct{ skip, want string }{
		"exempts all": {`[""]`, "exempt every module"},
		"no pattern":  {`["["]`, "not a pattern"},
		"breaks out":  {`["a)|(b"]`, ""},
		"not strings": {`[1]`, "quantization_config"},
	} {
		t.Run(name, func(t *testing.T) {
			data := tinyConfig(t, map[string]any{"quantization_config.modules_to_not_convert": json.RawMessage(c.skip)})
			if c.want == "" {
				// Python's own f-string lets it through just the same.
				if _, err := gemma4.ParseConfig(data); err != nil {
					t.Error(err)
				}
				return
			}
			refused(t, data, malformed, c.want)
		})
	}
}

// TestEndlessPattern gives a pattern that backtracks for ages.
func TestEndlessPattern(t *testing.T) {
	name := strings.Repeat("a", 60) + "!"
	for _, q := range []string{
		`{"quant_method":"gemma","module_quant_configs":{"(a+)+$":{"num_bits":2}}}`,
		`{"quant_method":"gemma","modules_to_not_convert":["(a+)+$"]}`,
	} {
		start := time.Now()
		_, err := quantisation(t, q).Bits(name, false)
		if !errors.Is(err, fault.ErrIntegrity) || !strings.Contains(err.Error(), "(a+)+$") {
			t.Errorf("%s: %v", q, err)
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("it took %v", d)
		}
	}
}
