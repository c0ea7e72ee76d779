package sdk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		samples []float64
		want    BenchSpread
	}{
		{"one", []float64{3}, BenchSpread{3, 3, 3}},
		{"odd", []float64{5, 1, 2}, BenchSpread{2, 1, 5}},
		{"even", []float64{4, 1, 2, 9}, BenchSpread{3, 1, 9}},
	} {
		if diff := cmp.Diff(test.want, spread(test.samples)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestBandwidth(t *testing.T) {
	t.Parallel()
	want := &BenchBandwidth{Before: 20e9, After: 30e9, Median: 25e9, Bytes: 7e8, Share: 0.8, Ceiling: 31.25}
	if diff := cmp.Diff(want, bandwidth(20e9, 30e9, 7e8, 8e8, 25)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if b := bandwidth(0, 0, 0, 0, 5); b.Share != 0 || b.Ceiling != 0 {
		t.Errorf("of nothing: %+v", b)
	}
}

func TestProfile(t *testing.T) {
	t.Parallel()
	ops := []backends.OpProfile{
		{Name: "norm", Calls: 20, Time: 10 * time.Millisecond},
		{Name: "linear", Calls: 10, Time: 50 * time.Millisecond, Bytes: 1e9},
		{Name: "never"},
	}
	ops = add(ops[:2:2], []backends.OpProfile{{Name: "linear", Calls: 10, Time: 50 * time.Millisecond, Bytes: 1e9}, ops[2]})
	want := &BenchProfile{Steps: 10, Seconds: 0.02, Other: 0.009, Operations: []BenchOperation{
		{Name: "linear", Calls: 2, Seconds: 0.01, Share: 0.5, BytesPerSecond: 2e10},
		{Name: "norm", Calls: 2, Seconds: 0.001, Share: 0.05},
	}}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-12*math.Abs(a+b) })
	if diff := cmp.Diff(want, profile(ops, 10, 200*time.Millisecond), near); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBenchContext(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name         string
		how          BenchOptions
		asked, limit int
		want         int // 0: an error
		depths       []int
	}{
		{name: "default", limit: 131072, want: 4096},
		{name: "small model", limit: 1000, want: 1000},
		{name: "deep", how: BenchOptions{Depth: 8000}, limit: 131072, want: 8064},
		{name: "asked", asked: 192, limit: 1000, want: 192},
		{name: "too small", asked: 191, limit: 1000},
		{name: "too small a model", limit: 100},
		{name: "too long a prompt", how: BenchOptions{Prompt: 2000, Depth: 1}, limit: 1000},
		{name: "curve", how: BenchOptions{CurveTo: 4096}, limit: 131072, want: 4160, depths: []int{128, 512, 1024, 2048, 4096}},
		{name: "odd curve", how: BenchOptions{CurveTo: 3000}, limit: 131072, want: 4096, depths: []int{128, 512, 1024, 2048, 3000}},
		{name: "curve to the end", how: BenchOptions{CurveTo: 4096}, limit: 2048, want: 2048, depths: []int{128, 512, 1024, 1984}},
		{name: "short curve", how: BenchOptions{CurveTo: 100}, limit: 2048, want: 2048, depths: []int{100}},
	} {
		how, err := test.how.fill()
		if err != nil {
			t.Fatal(err)
		}
		got, err := how.context(test.asked, test.limit)
		if test.want == 0 {
			if !errors.Is(err, zoo.ErrUsage) {
				t.Errorf("%s: %d, error %v", test.name, got, err)
			}
			continue
		}
		if err != nil || got != test.want {
			t.Errorf("%s: %d, error %v, want %d", test.name, got, err, test.want)
		}
		if diff := cmp.Diff(test.depths, how.depths(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	for _, how := range []BenchOptions{{Prompt: -1}, {Generate: -1}, {Depth: -1}, {CurveTo: -1}, {Rounds: -1}, {Rounds: maxBenchRounds + 1}} {
		if _, err := how.fill(); !errors.Is(err, zoo.ErrUsage) {
			t.Errorf("%+v: %v", how, err)
		}
	}
}

// TestStreamed leaves out tables that are only looked up.
func TestStreamed(t *testing.T) {
	t.Parallel()
	matrix := quant.Matrix{Format: quant.F32, Layout: quant.Rows, Rows: 4, Cols: 4} // 64 bytes
	m, p := &zoo.Manifest{}, &program.Program{}
	for i, name := range []string{"head", "table", "norm", "product", "both", "lookup", "last"} {
		m.Tensors = append(m.Tensors, zoo.Tensor{Name: name, Matrix: matrix, Offset: int64(i) * 64})
		p.Weights = append(p.Weights, program.Weight{Name: name, Matrix: matrix})
	}
	p.Ops = []program.Op{
		{Embed: &program.Embed{Table: 1}}, {Embed: &program.Embed{Table: 4}}, {Embed: &program.Embed{Table: 5}},
		{Linear: &program.Linear{Weight: 0}}, {Linear: &program.Linear{Weight: 4}}, {GateUp: &program.GateUp{Weight: 3}},
	}
	file := make([]byte, 7*64)
	for i := range file {
		file[i] = byte(i / 64)
	}
	if got := streamed(m, p, file); len(got) != 3*64 || got[0] != 2 || got[len(got)-1] != 4 {
		t.Errorf("%d bytes, %v", len(got), got)
	}
}

// tinyPlugin is a plugin that makes random weights in small shapes.
type tinyPlugin struct {
	*gemma4.Plugin
	made   *int
	during func()
}

// Synthesize implements zoo.Synthesizer.
func (p tinyPlugin) Synthesize(ctx context.Context, req zoo.SynthesizeRequest) error {
	*p.made++
	config, err := gemma4test.Tiny().Config()
	if err != nil {
		return err
	}
	progress := req.Progress
	req.Progress = func(done, total int64) {
		if p.during != nil {
			p.during()
		}
		progress(done, total)
	}
	return gemma4.Synthesize(ctx, zoo.PluginID{Name: gemma4e2b.Name, Version: gemma4e2b.Version}, gemma4.Shapes{Config: config}, req)
}

// plainPlugin is a plugin that makes no random weights.
type plainPlugin struct{ zoo.Plugin }

// tinyCatalog has a model whose plugin makes random weights.
const tinyCatalog = `
schema: 1
models:
  - name: tiny
    title: Small shapes
    aliases: [small]
    releases:
      - version: 1.0.0
        plugin: {name: gemma4e2b, constraint: ^1}
        licence: {spdx: MIT, url: "https://example.org/licence"}
        source:
          kind: embedded
          repository: demo
          files:
            - path: config.json
`

// tinyZoo returns a store with one plugin, and the notices that it gives.
func tinyZoo(t *testing.T, home string, plugin zoo.Plugin) (*Zoo, *[]string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "catalog.yaml")
	if err := os.WriteFile(file, []byte(tinyCatalog), 0o644); err != nil {
		t.Fatal(err)
	}
	notices := &[]string{}
	set := settings{}.with([]Option{WithHome(home), WithCatalog(file), WithOffline(), WithProgress(Events{
		Notice: func(text string) { *notices = append(*notices, text) },
	})})
	z, err := newZoo(set, []zoo.Plugin{plugin}, builtinBackends())
	if err != nil {
		t.Fatal(err)
	}
	return z, notices
}

// TestSynthesize writes random weights, takes them again, and makes them anew where they are damaged.
func TestSynthesize(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	made := 0
	z, notices := tinyZoo(t, home, tinyPlugin{Plugin: gemma4e2b.New(), made: &made})
	dir, err := z.Synthesize(t.Context(), "small")
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(home, "synthetic", "tiny"); dir != want {
		t.Errorf("folder %q, want %q", dir, want)
	}
	if len(*notices) != 1 || !strings.Contains((*notices)[0], "remove that folder") {
		t.Errorf("notices %q", *notices)
	}
	if _, err := z.Synthesize(t.Context(), "tiny"); err != nil || made != 1 {
		t.Errorf("made %d times, error %v", made, err)
	}
	weights := filepath.Join(dir, zoo.WeightsFile)
	data, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := errors.Join(os.Chmod(weights, 0o644), os.WriteFile(weights, data, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := z.Synthesize(t.Context(), "tiny"); err != nil || made != 2 {
		t.Errorf("damaged: made %d times, error %v", made, err)
	}

	*notices = nil
	r, err := z.Bench(t.Context(), dir, BenchOptions{Prompt: 8, Generate: 4, Depth: 12, Rounds: 3, CurveTo: 64, Profile: true}, WithThreads(1), WithContext(100))
	if err != nil {
		t.Fatal(err)
	}
	checkReport(t, r)
	if r.Name != "tiny" || !r.Synthetic || r.Context != 100 || r.Threads != 1 || r.Depth != 12 || r.Cache != "int8" {
		t.Errorf("%+v", r)
	}
	if len(r.Curve) != 1 || r.Curve[0].Depth != 64 || r.Curve[0].Decode.Median <= 0 {
		t.Errorf("curve %+v", r.Curve)
	}
	for _, p := range []*BenchProfile{r.PrefillProfile, r.DecodeProfile} {
		if p == nil || len(p.Operations) < 5 || p.Seconds <= 0 {
			t.Errorf("profile %+v", p)
		}
	}
	if r.DecodeProfile.Steps != 12 || r.PrefillProfile.Steps != 3 {
		t.Errorf("%d tokens and %d prompts profiled", r.DecodeProfile.Steps, r.PrefillProfile.Steps)
	}
}

// checkReport checks what every report has.
func checkReport(t *testing.T, r *BenchReport) {
	t.Helper()
	for name, s := range map[string]BenchSpread{"load": r.Load, "first token": r.FirstToken, "prefill": r.Prefill, "decode": r.Decode} {
		if !(0 < s.Min && s.Min <= s.Median && s.Median <= s.Max) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if r.FirstPrompt <= 0 || r.StepBytes <= 0 || r.Memory.Mapped != r.PackBytes || r.Memory.Buffers <= 0 || r.Memory.Caches <= 0 {
		t.Errorf("%+v", r)
	}
	if (r.Bandwidth == nil) == (r.BandwidthProblem == "") {
		t.Errorf("bandwidth %+v, problem %q", r.Bandwidth, r.BandwidthProblem)
	}
	if r.Machine.OS == "linux" && r.Memory.Private <= 0 {
		t.Error("no private memory, which Linux tells")
	}
}

// TestSynthesizeCancelled leaves nothing behind, and refuses what it cannot do.
func TestSynthesizeCancelled(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	made := 0
	z, _ := tinyZoo(t, home, tinyPlugin{Plugin: gemma4e2b.New(), made: &made, during: cancel})
	if _, err := z.Synthesize(ctx, "tiny"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	for _, folder := range []string{"synthetic/tiny", "tmp/*"} {
		if left, _ := filepath.Glob(filepath.Join(home, folder)); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
	if _, err := z.Synthesize(t.Context(), "nosuch"); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("no such model: %v", err)
	}
	z, _ = tinyZoo(t, home, plainPlugin{gemma4e2b.New()})
	if _, err := z.Synthesize(t.Context(), "tiny"); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a plugin that makes none: %v", err)
	}
}

// brokenMeter is a backend that measures no bandwidth.
type brokenMeter struct {
	backends.Backend
	err error
}

// ReadBandwidth implements backends.Meter.
func (m brokenMeter) ReadBandwidth(context.Context, []byte, int, int) (float64, error) {
	return 0, m.err
}

// TestMeter passes on why bandwidth cannot be measured, and any other failure.
func TestMeter(t *testing.T) {
	t.Parallel()
	z, _ := tinyZoo(t, t.TempDir(), tinyPlugin{Plugin: gemma4e2b.New(), made: new(int)})
	dir, err := z.Synthesize(t.Context(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	how := BenchOptions{Prompt: 4, Generate: 2, Rounds: 1}
	cpu, err := chooseBackend(z.backends, cpuName)
	if err != nil {
		t.Fatal(err)
	}
	z.backends = []backends.Backend{brokenMeter{cpu.device, fmt.Errorf("%w: too many threads", zoo.ErrUsage)}}
	r, err := z.Bench(t.Context(), dir, how, WithContext(100))
	if err != nil {
		t.Fatal(err)
	}
	if r.Bandwidth != nil || r.BandwidthProblem != "too many threads" {
		t.Errorf("bandwidth %+v, problem %q", r.Bandwidth, r.BandwidthProblem)
	}
	failure := errors.New("failure")
	z.backends = []backends.Backend{brokenMeter{cpu.device, failure}}
	if _, err := z.Bench(t.Context(), dir, how, WithContext(100)); !errors.Is(err, failure) {
		t.Errorf("error %v", err)
	}
}

// TestCheckBench refuses what suits no model, and nothing else.
func TestCheckBench(t *testing.T) {
	t.Parallel()
	z, _ := tinyZoo(t, t.TempDir(), plainPlugin{gemma4e2b.New()})
	for _, test := range []struct {
		name string
		how  BenchOptions
		opts []Option
		bad  bool
	}{
		{name: "defaults"},
		{name: "long", how: BenchOptions{Prompt: 1 << 20}},
		{name: "too long", how: BenchOptions{Depth: math.MaxInt}, bad: true},
		{name: "rounds", how: BenchOptions{Rounds: 5000}, bad: true},
		{name: "cache", opts: []Option{WithCache("int5")}, bad: true},
		{name: "threads", opts: []Option{WithThreads(5000)}, bad: true},
		{name: "backend", opts: []Option{WithBackend("x")}, bad: true},
		{name: "context", opts: []Option{WithContext(192)}},
		{name: "small context", opts: []Option{WithContext(191)}, bad: true},
	} {
		err := z.CheckBench(test.how, test.opts...)
		if bad := errors.Is(err, zoo.ErrUsage); bad != test.bad || !bad && err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// TestBenchStops ends with its context, and needs a gate for what has one.
func TestBenchStops(t *testing.T) {
	t.Parallel()
	made := 0
	z, _ := tinyZoo(t, t.TempDir(), tinyPlugin{Plugin: gemma4e2b.New(), made: &made})
	dir, err := z.Synthesize(t.Context(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range []string{"load", "warm up", "prefill", "read bandwidth", "decode", "decode at 64", "profile of the prompt", "profile of decoding"} {
		ctx, cancel := context.WithCancel(t.Context())
		seen := false
		events := Events{Bench: func(s string, done, total int) {
			if s == stage {
				seen = true
				cancel()
			}
		}}
		how := BenchOptions{Prompt: 8, Generate: 4, Rounds: 2, CurveTo: 64, Profile: true}
		if _, err := z.Bench(ctx, dir, how, WithProgress(events), WithContext(100)); !errors.Is(err, context.Canceled) || !seen {
			t.Errorf("%s: error %v, reached %v", stage, err, seen)
		}
		cancel()
	}
	if _, err := z.Bench(t.Context(), dir, BenchOptions{Prompt: 300}); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a prompt that does not fit: %v", err)
	}
	if _, err := z.Bench(t.Context(), t.TempDir(), BenchOptions{}); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("no pack: %v", err)
	}
}
