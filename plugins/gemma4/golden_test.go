package gemma4_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// model is a converted reference checkpoint.
type model struct {
	dir     string // of the checkpoint and its golden files
	weights backends.Weights
	program *program.Program
}

// modelOf makes a pack of a checkpoint folder and records its program.
func modelOf(t testing.TB, dir string, recipe map[string]string) *model {
	t.Helper()
	plugin := gemma4.NewPlugin("gemma4", "1.0.0", "", nil)
	packDir := t.TempDir()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var sources []catalog.File
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), "golden") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, catalog.File{Path: e.Name(), SizeBytes: int64(len(data)), SHA256: catalog.DigestOf(data).Hex()})
	}
	if _, err := plugin.Convert(t.Context(), zoo.ConvertRequest{Checkpoint: dir, Sources: sources, Dir: packDir, Recipe: recipe}); err != nil {
		t.Fatal(err)
	}
	pack, err := zoo.OpenPack(packDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pack.Close() })
	p, err := plugin.Run(t.Context(), zoo.RunRequest{Pack: pack.Info()})
	if err != nil {
		t.Fatal(err)
	}
	return &model{dir: dir, weights: pack, program: p}
}

// open converts one of the reference checkpoints by name, which may end in a grid: "e4b-tiny/q4_0".
func open(t testing.TB, name string) *model {
	t.Helper()
	recipe := recipe(name)
	name, _, _ = strings.Cut(name, "/")
	if name != "demo" {
		return modelOf(t, filepath.Join("testdata", name), recipe)
	}
	builtin, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	release, err := builtin.Resolve(catalog.Ref{Name: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, source := range []catalog.Source{release.Source, *release.Reference} {
		files, err := catalog.Embedded(source.Repository)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range source.Files {
			data, err := fs.ReadFile(files, f.Path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, f.Path), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return modelOf(t, dir, recipe)
}

// load compiles the model for the fastest kernels; all rows may want logits.
func (m *model) load(t *testing.T, o backends.Options) *engine.Model {
	t.Helper()
	return m.loadOn(t, cpu.New(""), o)
}

// device is what a test runs on.
type device struct {
	name    string
	backend backends.Backend
	// slow tells that it takes long.
	slow bool
	// require skips a test where the device is not there.
	require func(testing.TB)
}

// devices lists the processor with each set of kernels, and a GPU.
func devices() (all []device) {
	for _, kernels := range cpu.Kernels() {
		all = append(all, device{kernels, cpu.New(kernels), kernels == "generic", func(testing.TB) {}})
	}
	return append(all, device{"metal", metal.New(metaltest.New(metaltest.Options{})), true, metaltest.Require})
}

// loadOn is load for a backend.
func (m *model) loadOn(t *testing.T, b backends.Backend, o backends.Options) *engine.Model {
	t.Helper()
	if o.MaxRows == 0 {
		o.MaxRows = 64
	}
	o.MaxLogits = o.MaxRows
	e, err := engine.Load(t.Context(), m.program, m.weights, b, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// session opens a sequence.
func session(t *testing.T, m *engine.Model) *engine.Session {
	t.Helper()
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// goldenValues are one pair of golden files.
type goldenValues struct {
	Runs []struct {
		Prompt, Greedy []int32
		Margin         []float32
	}
	tensors map[string][]float32
}

// golden reads a pair of golden files; suffix is "" or "_int8kv".
func (m *model) golden(t *testing.T, suffix string) *goldenValues {
	t.Helper()
	var g goldenValues
	data, err := os.ReadFile(filepath.Join(m.dir, "golden"+suffix+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.OpenFile(m.dir, "golden"+suffix+".safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g.tensors = map[string][]float32{}
	for _, name := range c.Names() {
		tensor, _ := c.Tensor(name)
		values := make([]float32, len(tensor.Data)/4)
		for i := range values {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(tensor.Data[4*i:]))
		}
		g.tensors[name] = values
	}
	return &g
}

// argmax returns the index of the largest number.
func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// worst returns the largest difference, which is infinite where a number is none, and
// the largest magnitude of want.
func worst(got, want []float32) (diff, largest float64) {
	for i := range want {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		diff = max(diff, d)
		largest = max(largest, math.Abs(float64(want[i])))
	}
	return diff, largest
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		checkpoint, suffix string
		cache              backends.CacheType
		acts               backends.Activations
		// exact demands every token whose margin is at least 1e-3, and all logits within this share of the largest.
		exact float64
		// matched is the least number of tokens over all runs, of total.
		matched, total int
		// start is the share of the largest logit within which a position is that no flipped code has reached, and
		// close the least number of such positions: a fault in the arithmetic leaves none.
		start float64
		close int
		// answers demands every token up to the answer's stop, and prompt logits within 1.
		answers bool
	}{
		{checkpoint: "e2b-tiny", cache: backends.CacheFloat, exact: 3e-4, matched: 160, total: 160},
		// Random weights make much of what float16 rounds off.
		{checkpoint: "e2b-tiny", cache: backends.CacheHalf, matched: 152, total: 160, start: 0.07, close: 61},
		{checkpoint: "e2b-tiny", suffix: "_int8kv", cache: backends.CacheInt8, matched: 160, total: 160, start: 1e-4, close: 61},
		{checkpoint: "e2b-tiny-srq", cache: backends.CacheFloat, matched: 160, total: 160, start: 1e-5, close: 61},
		{checkpoint: "e2b-tiny-srq", suffix: "_int8kv", cache: backends.CacheInt8, matched: 151, total: 160, start: 1e-5, close: 60},
		{checkpoint: "e4b-tiny/none", cache: backends.CacheFloat, acts: backends.ActivationsFloat, exact: 3e-4, matched: 160, total: 160},
		{checkpoint: "e4b-tiny/q4_0", suffix: "_q4_0", cache: backends.CacheFloat, acts: backends.ActivationsFloat, exact: 3e-4, matched: 160, total: 160},
		{checkpoint: "e4b-tiny/absmax7", suffix: "_absmax7", cache: backends.CacheFloat, acts: backends.ActivationsFloat, exact: 3e-4, matched: 160, total: 160},
		{checkpoint: "demo", cache: backends.CacheFloat, matched: 320, total: 320, start: 1e-4, close: 158, answers: true},
		{checkpoint: "demo", cache: backends.CacheHalf, matched: 319, total: 320, answers: true},
	} {
		for _, d := range devices() {
			if d.slow && testing.Short() {
				continue
			}
			t.Run(fmt.Sprintf("%s%s/%s/%s", c.checkpoint, c.suffix, c.cache, d.name), func(t *testing.T) {
				t.Parallel()
				d.require(t)
				m := open(t, c.checkpoint)
				g := m.golden(t, c.suffix)
				e := m.loadOn(t, d.backend, backends.Options{Cache: c.cache, Activations: c.acts})
				matched, total, close, positions := 0, 0, 0, 0
				for r, run := range g.Runs {
					s := session(t, e)
					if err := s.Feed(t.Context(), run.Prompt, len(run.Prompt)); err != nil {
						t.Fatal(err)
					}
					want := g.tensors[fmt.Sprintf("logits.%d", r)]
					for i := range run.Prompt {
						diff, largest := worst(s.Logits(i), want[i*e.Vocab():][:e.Vocab()])
						if c.exact > 0 && diff > c.exact*largest {
							t.Errorf("run %d: logits at %d are off by %g of %g", r, i, diff, largest)
						}
						if diff <= c.start*largest {
							close++
						}
						positions++
						if c.answers && diff > 1 {
							t.Errorf("run %d: logits at %d are off by %g", r, i, diff)
						}
					}
					last := s.Logits(len(run.Prompt) - 1)
					stopped := false
					for i, token := range run.Greedy {
						total++
						if got := argmax(last); got == token {
							matched++
						} else if c.exact > 0 && run.Margin[i] >= 1e-3 || c.answers && !stopped {
							t.Errorf("run %d: token %d is %d, want %d with a margin of %g", r, i, got, token, run.Margin[i])
						}
						stopped = stopped || token == 1 || token == 106
						if err := s.Feed(t.Context(), []int32{token}, 1); err != nil {
							t.Fatal(err)
						}
						last = s.Logits(0)
					}
					if diff, largest := worst(last, g.tensors[fmt.Sprintf("last_logits.%d", r)]); c.exact > 0 && diff > c.exact*largest {
						t.Errorf("run %d: last logits are off by %g of %g", r, diff, largest)
					}
				}
				t.Logf("%d of %d tokens, %d of %d prompt positions before any flipped code", matched, total, close, positions)
				if close < c.close {
					t.Errorf("%d of %d prompt positions are within %g of the largest logit, want %d", close, positions, c.start, c.close)
				}
				if total != c.total || matched < c.matched {
					t.Errorf("%d of %d tokens agree, want %d of %d", matched, total, c.matched, c.total)
				}
			})
		}
	}
}

// TestLayers feeds every layer with the reference's own input: its output must
// be the reference's. With static rounding a value within float noise of a tie
// may round the other way; such a row must come out right when its input is
// changed by less than that noise.
func TestLayers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		checkpoint, suffix string
		cache              backends.CacheType
		flips              int // rows that a flipped code may reach
	}{
		{"e2b-tiny", "", backends.CacheFloat, 0},
		{"e2b-tiny", "_int8kv", backends.CacheInt8, 4},
		{"e2b-tiny-srq", "", backends.CacheFloat, 4},
		{"e2b-tiny-srq", "_int8kv", backends.CacheInt8, 4},
		{"e4b-tiny/none", "", backends.CacheFloat, 0},
		{"e4b-tiny/q4_0", "_q4_0", backends.CacheFloat, 0},
		{"e4b-tiny/absmax7", "_absmax7", backends.CacheFloat, 0},
		{"demo", "", backends.CacheFloat, 8},
	} {
		t.Run(c.checkpoint+c.suffix, func(t *testing.T) {
			t.Parallel()
			m := open(t, c.checkpoint)
			o := backends.Options{Cache: c.cache, Threads: 1}
			l := &layers{g: m.golden(t, c.suffix), m: m, o: o, n: len(m.program.Layers)}
			off := l.run(t, m.load(t, o), -1, nil)
			if len(off) > c.flips {
				t.Fatalf("%d rows are off, at most %d can be flips: %v", len(off), c.flips, off)
			}
			for at := range off {
				if !l.explained(t, at) {
					t.Errorf("layer %d, row %d: no change of the input within float noise gives the reference's output", at.layer, at.row)
				}
			}
		})
	}
}

// spot is a row of a layer's output.
type spot struct{ layer, row int }

// layers compares the layers of one model with hidden.0 of its golden file.
type layers struct {
	g *goldenValues
	m *model
	o backends.Options
	n int
}

// run feeds the first prompt with every layer's input replaced by the
// reference's, that of one layer changed by noise. It returns the rows of
// outputs that are off, with how far.
func (l *layers) run(t *testing.T, e *engine.Model, noisy int, noise *rand.Rand) map[spot]float64 {
	t.Helper()
	s := session(t, e)
	prompt := l.g.Runs[0].Prompt
	hidden := l.g.tensors["hidden.0"]
	size := len(hidden) / (l.n + 1)
	cols := size / len(prompt)
	off := map[spot]float64{}
	compare := func(layer int, got, want []float32) {
		for row := range prompt {
			if diff, largest := worst(got[row*cols:][:cols], want[row*cols:][:cols]); diff > 1e-5*max(1, largest) {
				off[spot{layer, row}] = diff
			}
		}
	}
	s.Trace(func(layer int, state []float32) {
		at := layer + 1
		if at == l.n { // the last layer's output is seen behind the final norm
			return
		}
		want := hidden[at*size:][:size]
		compare(layer, state, want)
		copy(state, want)
		if at == noisy {
			for i := range state {
				state[i] *= 1 + 1e-6*(noise.Float32()-0.5)
			}
		}
	})
	if err := s.Feed(t.Context(), prompt, len(prompt)); err != nil {
		t.Fatal(err)
	}
	var final []float32
	for i := range prompt {
		final = append(final, s.Hidden(i)...)
	}
	compare(l.n-1, final, hidden[l.n*size:])
	s.Close()
	return off
}

// explained reports whether a row comes out right under some noise.
func (l *layers) explained(t *testing.T, at spot) bool {
	t.Helper()
	noise := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		m := *l.m
		m.weights = &noisyWeights{l.m.weights, noise, fmt.Sprintf("layers.%d.", at.layer)}
		if _, off := l.run(t, m.load(t, l.o), at.layer, noise)[at]; !off {
			return true
		}
	}
	return false
}

// noisyWeights adds float noise where a layer's input does not bring it: to the
// per-layer inputs, which are computed before the layers, to the norms behind a
// rounding, and to the products of one layer. These are exact here but float
// sums in the reference, whose error is relative to the largest term and not to
// the sum.
type noisyWeights struct {
	backends.Weights
	noise *rand.Rand
	layer string
}

// Tensor implements backends.Weights.
func (w *noisyWeights) Tensor(name string) ([]byte, quant.Matrix, bool) {
	data, m, ok := w.Weights.Tensor(name)
	change := func(floats []byte, amount float32) {
		for at := 0; at < len(floats); at += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(floats[at:]))
			v *= 1 + amount*(w.noise.Float32()-0.5)
			binary.LittleEndian.PutUint32(floats[at:], math.Float32bits(v))
		}
	}
	switch {
	case name == "per_layer_projection_norm" || m.Format == quant.F32 && strings.HasPrefix(name, w.layer):
		data = slices.Clone(data)
		change(data, 1e-6)
	case m.Layout == quant.Blocks && strings.HasPrefix(name, w.layer):
		data = slices.Clone(data)
		for at := 0; at < len(data); at += m.BlockBytes() {
			change(data[at+m.BlockCodeBytes():][:4*quant.BlockRows], 2e-5)
		}
	}
	return data, m, ok
}

// TestPathsAgree feeds the same tokens in many ways: no bit may differ. The
// long prompts go past a block of attention and past the rings' wrap.
func TestPathsAgree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		checkpoint string
		cache      backends.CacheType
		acts       backends.Activations
		tokens     int
	}{
		{"e2b-tiny", backends.CacheFloat, backends.ActivationsStatic, 300},
		{"e2b-tiny-srq", backends.CacheInt8, backends.ActivationsStatic, 300},
		{"e2b-tiny-srq", backends.CacheInt8, backends.Activations16, 40},
		{"e2b-tiny-srq", backends.CacheInt8, backends.Activations8, 40},
		{"e4b-tiny/q4_0", backends.CacheFloat, backends.Activations16, 300},
		{"e4b-tiny/q4_0", backends.CacheHalf, backends.Activations8, 40},
		{"e4b-tiny/absmax7", backends.CacheFloat, backends.ActivationsFloat, 40},
		{"e4b-tiny/none", backends.CacheFloat, backends.ActivationsFloat, 40},
		{"demo", backends.CacheInt8, backends.ActivationsStatic, 300},
		{"demo", backends.CacheFloat, backends.ActivationsFloat, 300},
	} {
		t.Run(fmt.Sprintf("%s/%s/%s", c.checkpoint, c.cache, c.acts), func(t *testing.T) {
			t.Parallel()
			m := open(t, c.checkpoint)
			rng := rand.New(rand.NewPCG(3, 4))
			ids := make([]int32, c.tokens)
			for i := range ids {
				ids[i] = 107 + rng.Int32N(int32(m.program.Vocab)-107)
			}
			var want []float32
			seen := map[string]int{} // paths tried, by device
			check := func(name string, got []float32) {
				t.Helper()
				if want == nil {
					want = slices.Clone(got)
				}
				if !slices.EqualFunc(got, want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
					diff, largest := worst(got, want)
					t.Errorf("%s: logits are off by %g of %g", name, diff, largest)
				}
			}
			for _, d := range devices() {
				if d.name == "metal" && (testing.Short() || !metaltest.Found()) {
					continue // the long prompts take long there
				}
				for _, path := range []struct{ rows, threads int }{{64, 2}, {3, 1}, {1, 2}, {1, 1}, {3, 2}, {3, 5}, {64, 1}, {64, 5}, {1, 5}} {
					// Two paths tie what is slow to the others.
					if seen[d.name] == 2 && (d.slow || testing.Short()) {
						continue
					}
					name := fmt.Sprintf("%s, %d rows, %d threads", d.name, path.rows, path.threads)
					seen[d.name]++
					e := m.loadOn(t, d.backend, backends.Options{Cache: c.cache, Activations: c.acts, MaxRows: path.rows, Threads: path.threads})
					s := session(t, e)
					if err := s.Feed(t.Context(), ids, 1); err != nil {
						t.Fatal(err)
					}
					check(name, s.Logits(0))
					// Another continuation, then back.
					back := len(ids) - 5
					if err := s.Rewind(back); err != nil {
						t.Fatal(err)
					}
					if err := s.Feed(t.Context(), []int32{200, 300, 400, 500, 600, 700}, 2); err != nil {
						t.Fatal(err)
					}
					rest, err := s.Resume(ids)
					if err != nil {
						t.Fatal(err)
					}
					if len(rest) != 5 {
						t.Errorf("%d tokens are fed again after a rewind by 5", len(rest))
					}
					if err := s.Feed(t.Context(), rest, min(len(rest), 2)); err != nil {
						t.Fatal(err)
					}
					check(name+", after a rewind", s.Logits(min(len(rest), 2)-1))
					s.Close()
				}
			}
		})
	}
}

// TestRewindPastRing goes back further than the sliding caches reach: that is
// refused, and resuming starts again.
func TestRewindPastRing(t *testing.T) {
	t.Parallel()
	m := open(t, "demo")
	e := m.load(t, backends.Options{Cache: backends.CacheInt8})
	s := session(t, e)
	ids := make([]int32, 600)
	for i := range ids {
		ids[i] = int32(200 + i)
	}
	if err := s.Feed(t.Context(), ids, 1); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(s.Logits(0))
	if err := s.Rewind(100); !errors.Is(err, backends.ErrTruncate) {
		t.Fatalf("Rewind(100) of 600: %v, want ErrTruncate", err)
	}
	if s.Len() != 600 {
		t.Errorf("a refused rewind leaves %d tokens, want 600", s.Len())
	}
	rest, err := s.Resume(append(slices.Clone(ids[:100]), 7))
	if err != nil || len(rest) != 101 {
		t.Fatalf("Resume: %d tokens left, %v, want all 101", len(rest), err)
	}
	if rest, err = s.Resume(ids); err != nil || len(rest) != 600 {
		t.Fatalf("Resume: %d tokens left, %v, want all 600", len(rest), err)
	}
	if err := s.Feed(t.Context(), rest, 1); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Logits(0), want) {
		t.Error("the same tokens give other logits after a fresh start")
	}
}

// TestPrunedPrefill: the select stands in the last layer that writes a cache,
// behind all that is written, so that rows that want no logits end there.
func TestPrunedPrefill(t *testing.T) {
	t.Parallel()
	m := open(t, "e2b-tiny")
	at := slices.IndexFunc(m.program.Ops, func(o program.Op) bool { return o.Select != nil })
	for i, op := range m.program.Ops {
		if op.Store != nil && i > at {
			t.Errorf("operation %d writes a cache behind the select at %d", i, at)
		}
	}
	// The last layer with a cache is the fifth: in it and behind it only the row that wants logits is left.
	e := m.load(t, backends.Options{})
	s := session(t, e)
	cols := m.program.Buffers[m.program.State].Cols
	for _, want := range []int{1, 3} {
		s.Trace(func(layer int, state []float32) {
			rows := 7
			if layer >= 4 {
				rows = want
			}
			if len(state) != rows*cols {
				t.Errorf("with %d of 7 rows wanted, layer %d computes %d rows, want %d", want, layer, len(state)/cols, rows)
			}
		})
		if err := s.Feed(t.Context(), make([]int32, 7), want); err != nil {
			t.Fatal(err)
		}
	}
	if layer := m.program.Layers[4]; at < layer.First || at >= layer.End {
		t.Errorf("the select is operation %d, want it in the last layer with a cache, %d to %d", at, layer.First, layer.End)
	}
}

// TestErrors feeds what cannot be fed.
func TestErrors(t *testing.T) {
	t.Parallel()
	m := open(t, "e2b-tiny")
	e := m.load(t, backends.Options{Context: 32})
	s := session(t, e)
	ids := make([]int32, 33)
	var full *backends.ContextError
	for _, c := range []struct {
		name string
		err  error
		ok   func(error) bool
	}{
		{"nothing", s.Feed(t.Context(), nil, 0), func(err error) bool { return errors.Is(err, engine.ErrEmpty) }},
		{"too much", s.Feed(t.Context(), ids, 1), func(err error) bool { return errors.As(err, &full) && full.Need == 33 && full.Context == 32 }},
		{"a negative token", s.Feed(t.Context(), []int32{-1}, 1), func(err error) bool { return errors.Is(err, zoo.ErrUsage) }},
		{"a token past the vocabulary", s.Feed(t.Context(), []int32{1 << 20}, 1), func(err error) bool { return errors.Is(err, zoo.ErrUsage) }},
		{"more logits than tokens", s.Feed(t.Context(), []int32{5}, 2), func(err error) bool { return errors.Is(err, zoo.ErrUsage) }},
		{"a rewind past the end", s.Rewind(1), func(err error) bool { return errors.Is(err, zoo.ErrUsage) }},
	} {
		if !c.ok(c.err) {
			t.Errorf("feeding %s: %v", c.name, c.err)
		}
	}
	if s.Len() != 0 {
		t.Errorf("refused tokens were taken: the session has %d", s.Len())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if err := s.Feed(ctx, ids[:3], 1); !errors.Is(err, why) {
		t.Errorf("feeding in a cancelled context: %v, want its cause", err)
	}
	if err := s.Feed(t.Context(), ids[:3], 1); err != nil || s.Len() != 3 {
		t.Errorf("the session does not go on after a cancelled step: %v, %d tokens", err, s.Len())
	}
}

// TestNoAllocation decodes without touching the heap, in the first block of
// positions and in the third.
func TestNoAllocation(t *testing.T) {
	m := open(t, "demo")
	for _, threads := range []int{1, 2} {
		for _, depth := range []int{20, 2*backends.BlockPositions + 20} {
			e := m.load(t, backends.Options{Cache: backends.CacheInt8, Threads: threads})
			s := session(t, e)
			if err := s.Feed(t.Context(), make([]int32, depth), 1); err != nil {
				t.Fatal(err)
			}
			id := []int32{300}
			if n := testing.AllocsPerRun(50, func() {
				if err := s.Feed(t.Context(), id, 1); err != nil {
					t.Fatal(err)
				}
			}); n > 0 {
				t.Errorf("%d threads, after %d tokens: %g allocations a token", threads, depth, n)
			}
		}
	}
}

// BenchmarkDecode measures single tokens of the demo model.
func BenchmarkDecode(b *testing.B) {
	m := open(b, "demo")
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			e, err := engine.Load(b.Context(), m.program, m.weights, cpu.New(""), backends.Options{Cache: backends.CacheInt8, Threads: threads})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			s, err := e.NewSession()
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			b.SetBytes(e.Stats().StepBytes)
			id := []int32{300}
			for b.Loop() {
				if s.Len() == e.Context() {
					b.StopTimer()
					if err := s.Rewind(0); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				if err := s.Feed(b.Context(), id, 1); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
