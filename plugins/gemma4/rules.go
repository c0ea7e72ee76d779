package gemma4

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlclark/regexp2"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// Bounds of a quantization_config.
const (
	maxRules        = 1024
	maxPatternBytes = 1024
	// patternTimeout bounds the search of one pattern in one name: patterns come
	// from outside and may backtrack for ever.
	patternTimeout = 500 * time.Millisecond
)

// quantMethod is the quant_method of checkpoints in the layout of the official mobile ones.
const quantMethod = "gemma"

// Quantization is a checkpoint's quantization_config: rules that say how many bits
// the codes of a module have. It is read-only and safe for concurrent use.
type Quantization struct {
	// NumBits is for modules that no rule names.
	NumBits int
	// QuantizeEmbeddings says that tables are codes, too.
	QuantizeEmbeddings bool

	rules []bitsRule
	skip  []skipRule
}

// bitsRule gives the modules whose names it finds a number of bits.
type bitsRule struct {
	pattern *regexp2.Regexp
	bits    int
}

// skipRule exempts modules.
type skipRule struct {
	suffix string
	// start matches at the start of a name, up to a dot or the end.
	start *regexp2.Regexp
}

// Bits returns the bits of a module's codes: 2, 4 or 8, or 0 if its weights are
// floats. The name is the module's in the checkpoint, such as
// "model.language_model.layers.0.mlp.up_proj"; table says that it is an embedding.
//
// The rules are searched for in the name in the order of the file and the first
// that is found wins. Patterns are Python's; one that takes too long is a *checkpoint.ConfigError.
func (q *Quantization) Bits(module string, table bool) (int, error) {
	if table && !q.QuantizeEmbeddings {
		return 0, nil
	}
	for i, s := range q.skip {
		found, err := s.start.MatchString(module)
		if err != nil {
			return 0, &checkpoint.ConfigError{Field: fmt.Sprintf("quantization_config.modules_to_not_convert[%d]", i), Problem: fmt.Sprintf("%q does not come to an end on %q", s.suffix, module)}
		}
		if found || strings.HasSuffix(module, s.suffix) {
			return 0, nil
		}
	}
	for _, r := range q.rules {
		found, err := r.pattern.MatchString(module)
		if err != nil {
			return 0, &checkpoint.ConfigError{Field: "quantization_config.module_quant_configs", Problem: fmt.Sprintf("%q does not come to an end on %q", r.pattern.String(), module)}
		}
		if found {
			return r.bits, nil
		}
	}
	return q.NumBits, nil
}

// parseQuantization reads a quantization_config. A method other than "gemma" is an *checkpoint.UnsupportedError.
func parseQuantization(data []byte) (*Quantization, error) {
	var raw struct {
		QuantMethod         *string         `json:"quant_method"`
		NumBits             *int            `json:"num_bits"`
		QuantizeEmbeddings  *bool           `json:"quantize_embeddings"`
		ModuleQuantConfigs  json.RawMessage `json:"module_quant_configs"`
		ModulesToNotConvert []string        `json:"modules_to_not_convert"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, &checkpoint.ConfigError{Field: "quantization_config", Problem: "not the JSON it should be", Err: err}
	}
	if m := text(raw.QuantMethod); m != quantMethod {
		return nil, &checkpoint.UnsupportedError{Field: "quantization_config.quant_method", Got: strconv.Quote(fault.Shorten(m)), Want: strconv.Quote(quantMethod)}
	}
	q := &Quantization{NumBits: 4, QuantizeEmbeddings: raw.QuantizeEmbeddings != nil && *raw.QuantizeEmbeddings}
	if raw.NumBits != nil {
		q.NumBits = *raw.NumBits
	}
	if err := checkBits("quantization_config.num_bits", q.NumBits); err != nil {
		return nil, err
	}
	if len(raw.ModulesToNotConvert) > maxRules {
		return nil, &checkpoint.ConfigError{Field: "quantization_config.modules_to_not_convert", Problem: fmt.Sprintf("%d entries, at most %d are allowed", len(raw.ModulesToNotConvert), maxRules)}
	}
	for i, name := range raw.ModulesToNotConvert {
		field := fmt.Sprintf("quantization_config.modules_to_not_convert[%d]", i)
		if name == "" {
			return nil, &checkpoint.ConfigError{Field: field, Problem: "empty: it would exempt every module"}
		}
		start, err := compilePattern(field, name, `\A(?:`+name+`)(?:(?<=\.)|(?=\.|\z))`)
		if err != nil {
			return nil, err
		}
		q.skip = append(q.skip, skipRule{suffix: name, start: start})
	}
	if present(raw.ModuleQuantConfigs) {
		if err := q.parseRules(raw.ModuleQuantConfigs); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// parseRules reads module_quant_configs, an object whose order counts.
func (q *Quantization) parseRules(data []byte) error {
	const field = "quantization_config.module_quant_configs"
	bad := func(err error, format string, args ...any) error {
		return &checkpoint.ConfigError{Field: field, Problem: fmt.Sprintf(format, args...), Err: err}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return bad(err, "not an object")
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return bad(err, "not the JSON it should be")
		}
		pattern, _ := t.(string) // the decoder takes nothing else for a key
		switch {
		case seen[pattern]:
			return bad(nil, "%q occurs twice", fault.Shorten(pattern))
		case len(q.rules) == maxRules:
			return bad(nil, "more than %d rules", maxRules)
		}
		seen[pattern] = true
		var options map[string]json.RawMessage
		if err := d.Decode(&options); err != nil {
			return bad(err, "the options of %q are not an object", fault.Shorten(pattern))
		}
		bits := q.NumBits
		for _, name := range slices.Sorted(maps.Keys(options)) {
			if name != "num_bits" {
				return &checkpoint.UnsupportedError{Field: fmt.Sprintf("%s[%q].%s", field, fault.Shorten(pattern), fault.Shorten(name)), Got: "present", Want: "absent: num_bits is the only option"}
			}
			if err := json.Unmarshal(options[name], &bits); err != nil {
				return bad(err, "num_bits of %q is not a number", fault.Shorten(pattern))
			}
		}
		if err := checkBits(fmt.Sprintf("%s[%q].num_bits", field, fault.Shorten(pattern)), bits); err != nil {
			return err
		}
		re, err := compilePattern(field, pattern, pattern)
		if err != nil {
			return err
		}
		q.rules = append(q.rules, bitsRule{re, bits})
	}
	if _, err := d.Token(); err != nil {
		return bad(err, "not the JSON it should be")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad(err, "something follows the object")
	}
	return nil
}

// checkBits checks a number of bits.
func checkBits(field string, bits int) error {
	if bits != 2 && bits != 4 && bits != 8 {
		return &checkpoint.UnsupportedError{Field: field, Got: strconv.Itoa(bits), Want: "2, 4 or 8"}
	}
	return nil
}

// compilePattern compiles a pattern in Python's syntax, given is how the file has it.
func compilePattern(field, given, pattern string) (*regexp2.Regexp, error) {
	if len(given) > maxPatternBytes {
		return nil, &checkpoint.ConfigError{Field: field, Problem: fmt.Sprintf("a pattern of %d bytes, at most %d are allowed", len(given), maxPatternBytes)}
	}
	// RE2 adds the (?P<name>…) of Python to the backtracking syntax.
	re, err := regexp2.Compile(pattern, regexp2.RE2)
	if err != nil {
		return nil, &checkpoint.ConfigError{Field: field, Problem: fmt.Sprintf("%q is not a pattern that can be read", fault.Shorten(given)), Err: err}
	}
	re.MatchTimeout = patternTimeout
	return re, nil
}
