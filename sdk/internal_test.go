package sdk

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
)

func TestParseDefaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text string
		want       Defaults
		bad        bool
	}{
		{name: "list", text: `{"eos_token_id": [1, 106], "do_sample": false}`, want: Defaults{Temperature: 1, StopIDs: []int32{1, 106}}},
		{name: "number", text: `{"eos_token_id": 1}`, want: Defaults{Temperature: 1, StopIDs: []int32{1}}},
		{name: "none", text: `{"eos_token_id": null}`, want: Defaults{Temperature: 1}},
		{
			name: "sampling", text: `{"do_sample": true, "temperature": 0.5, "top_k": 64, "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.1, "eos_token_id": 1}`,
			want: Defaults{Sample: true, Temperature: 0.5, TopK: 64, TopP: 0.95, MinP: 0.1, RepeatPenalty: 1.1, StopIDs: []int32{1}},
		},
		{name: "no JSON", text: `{`, bad: true},
		{name: "text id", text: `{"eos_token_id": "1"}`, bad: true},
		{name: "negative id", text: `{"eos_token_id": [-1]}`, bad: true},
		{name: "huge id", text: `{"eos_token_id": 1e12}`, bad: true},
		{name: "top_p", text: `{"top_p": 2}`, bad: true},
		{name: "temperature", text: `{"temperature": -1}`, bad: true},
		{name: "top_k", text: `{"top_k": -3}`, bad: true},
	} {
		got, err := parseDefaults([]byte(test.text))
		if test.bad != errors.Is(err, fault.ErrIntegrity) || !test.bad && err != nil {
			t.Errorf("%s: error %v", test.name, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestParseTokenizerConfig(t *testing.T) {
	t.Parallel()
	yes := true
	for _, test := range []struct {
		text string
		want tokenizerConfig
		bad  bool
	}{
		{text: `{"bos_token": "<bos>", "eos_token": {"content": "<eos>"}, "add_bos_token": true}`, want: tokenizerConfig{BOS: "<bos>", EOS: "<eos>", AddBOS: &yes}},
		{text: `{"bos_token": null}`},
		{text: `{"bos_token": 7}`, bad: true},
		{text: `[]`, bad: true},
	} {
		got, err := parseTokenizerConfig([]byte(test.text))
		if test.bad != errors.Is(err, fault.ErrIntegrity) || !test.bad && err != nil {
			t.Errorf("%s: error %v", test.text, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.text, diff)
		}
	}
}

// The small files of a pack come from outside: whatever they hold is an answer or an error of integrity.
func FuzzPackFiles(f *testing.F) {
	f.Add([]byte(`{"eos_token_id": [1, 106], "do_sample": true, "temperature": 1.0, "top_k": 64, "top_p": 0.95}`))
	f.Add([]byte(`{"bos_token": {"content": "<bos>"}, "add_bos_token": false}`))
	f.Add([]byte(`{"eos_token_id": -1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, err := parseDefaults(data); err == nil {
			for _, id := range d.StopIDs {
				if id < 0 {
					t.Errorf("stop id %d", id)
				}
			}
		} else if !errors.Is(err, fault.ErrIntegrity) {
			t.Errorf("defaults: %v", err)
		}
		if _, err := parseTokenizerConfig(data); err != nil && !errors.Is(err, fault.ErrIntegrity) {
			t.Errorf("tokenizer: %v", err)
		}
	})
}

func TestDefaultContext(t *testing.T) {
	t.Parallel()
	full := program.Cache{KVHeads: 1, HeadDim: 512}
	ring := program.Cache{KVHeads: 1, HeadDim: 256, Window: 512}
	p := func(caches ...program.Cache) *program.Program {
		return &program.Program{Context: 131072, Caches: caches}
	}
	for _, test := range []struct {
		name   string
		p      *program.Program
		cache  backends.CacheType
		memory int64
		want   int
	}{
		{"roomy", p(ring, full, full, full), backends.CacheInt8, 64 << 30, 131072},
		{"int8 needs less", p(ring, full, full, full), backends.CacheInt8, 4 << 30, 131072},
		{"float", p(ring, full, full, full), backends.CacheFloat, 4 << 30, 43520},
		{"half is kept as float", p(ring, full, full, full), backends.CacheHalf, 4 << 30, 43520},
		{"small", p(ring, full, full, full), backends.CacheFloat, 64 << 20, 2048},
		{"unknown memory", p(ring, full, full, full), backends.CacheFloat, 0, 87296},
		{"rings alone", p(ring), backends.CacheFloat, 1 << 20, 131072},
		{"short model", &program.Program{Context: 100, Caches: []program.Cache{full}}, backends.CacheFloat, 1 << 20, 100},
	} {
		if got := defaultContext(test.p, test.cache, test.memory); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
	if n := totalMemory(); n < 0 {
		t.Errorf("memory of %d bytes", n)
	}
}

// device is a backend that may not be available.
type device struct {
	backends.Backend
	name string
	err  error
}

func (d device) Name() string     { return d.name }
func (d device) Available() error { return d.err }

func TestChooseBackend(t *testing.T) {
	t.Parallel()
	metal, other := device{name: "metal", err: errors.New("no GPU")}, device{name: "other", err: fmt.Errorf("another system: %w", errors.ErrUnsupported)}
	cpu, broken := device{name: "cpu"}, device{name: "cpu", err: fmt.Errorf("%w: no such kernels", fault.ErrUsage)}
	for _, test := range []struct {
		name      string
		all       []backends.Backend
		asked     string
		want, why string // or, with no want, what the error says
	}{
		{"alone", []backends.Backend{cpu}, "auto", "cpu", "the only backend of this build"},
		{"first", []backends.Backend{cpu, metal}, "", "cpu", "the first that is available of cpu, metal"},
		{"second", []backends.Backend{metal, cpu}, "auto", "cpu", "metal is not available: no GPU"},
		{"third", []backends.Backend{other, metal, cpu}, "auto", "cpu", "other is not available: another system: unsupported operation; metal is not available: no GPU"},
		{"asked", []backends.Backend{metal, cpu}, "cpu", "cpu", "asked for"},
		{"refused", []backends.Backend{metal, cpu}, "metal", "", `backend "metal" is not available here: no GPU`},
		{"unknown", []backends.Backend{metal, cpu}, "abacus", "", `usage: this build has no backend "abacus"`},
		{"none", []backends.Backend{metal}, "auto", "", "metal is not available: no GPU"},
		{"none of two", []backends.Backend{metal, broken}, "auto", "", "metal is not available: no GPU; cpu is not available: usage: no such kernels"},
		{"none that could be", []backends.Backend{other, broken}, "auto", "", "cpu is not available: usage: no such kernels"},
		{"none that can be", []backends.Backend{other}, "auto", "", "other is not available: another system: unsupported operation"},
		{"no backends", nil, "auto", "", "this build has no backend"},
	} {
		got, err := chooseBackend(test.all, test.asked)
		if test.want == "" {
			if got != nil || err == nil || err.Error() != test.why {
				t.Errorf("%s: %v, error %v, want %q", test.name, got, err, test.why)
			}
			continue
		}
		if err != nil || got.device.Name() != test.want || got.why != test.why {
			t.Errorf("%s: %+v, error %v", test.name, got, err)
		}
	}
}

// TestPassedOver tells of backends that are better than the one taken, and could be here.
func TestPassedOver(t *testing.T) {
	t.Parallel()
	metal := device{name: "metal", err: errors.New("no GPU")}
	other := device{name: "other", err: fmt.Errorf("another system: %w", errors.ErrUnsupported)}
	cpu, last := device{name: "cpu"}, device{name: "last", err: errors.New("gone")}
	for _, test := range []struct {
		name string
		want []string
	}{
		{"", []string{`backend "metal" is passed over, since it is not available: no GPU`}},
		{"auto", []string{`backend "metal" is passed over, since it is not available: no GPU`}},
		{"cpu", nil},
	} {
		var got []string
		z := &Zoo{backends: []backends.Backend{other, metal, cpu, last}}
		z.passedOver(settings{backend: test.name, events: Events{Notice: func(text string) { got = append(got, text) }}})
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q: %s", test.name, diff)
		}
	}
}

func TestEventsTakeTurns(t *testing.T) {
	t.Parallel()
	inside := false
	enter := func() {
		if inside {
			t.Error("two events at once")
		}
		inside = true
		defer func() { inside = false }()
	}
	e := Events{Notice: func(string) { enter() }, Convert: func(int64, int64) { enter() }}.serial()
	done := make(chan struct{})
	for range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 1000 {
				e.Notice("")
				e.Convert(0, 0)
				e.Gate("", 0, 0) // nobody listens
			}
		}()
	}
	for range 4 {
		<-done
	}
}

func TestDigestPinned(t *testing.T) {
	t.Parallel()
	z, err := New(WithHome(t.TempDir()), WithOffline())
	if err != nil {
		t.Fatal(err)
	}
	release, err := z.resolve("demo")
	if err != nil {
		t.Fatal(err)
	}
	release.Pack = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	if _, err := z.pull(context.Background(), z.set, release); !errors.Is(err, fault.ErrIntegrity) {
		t.Errorf("another pack than the catalog's: %v", err)
	}
	if list, err := z.store.Installed(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("installed all the same: %v, %v", list, err)
	}
}
