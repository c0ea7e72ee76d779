package sdk

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
	"github.com/zoo-sdk/zoo/zoo"
)

// rivals are two hosts of one plugin, in name and version and all that it does. To one it
// is built in, to the other a program. Both know no other plugin.
type rivals struct{ inside, outside func(tb testing.TB) *Zoo }

// newRivals builds the program and installs it.
func newRivals(tb testing.TB) rivals {
	tb.Helper()
	program := filepath.Join(tb.TempDir(), "plugin")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	names := fmt.Sprintf("-s -w -X main.name=%s -X main.version=%s", gemma4e2b.Name, gemma4e2b.Version)
	if out, err := exec.CommandContext(tb.Context(), "go", "build", "-ldflags", names, "-o", program, "./testdata/plugin").CombinedOutput(); err != nil {
		tb.Fatalf("build the plugin: %v\n%s", err, out)
	}
	of := func(plugins ...zoo.Plugin) func(tb testing.TB) *Zoo {
		home := tb.TempDir()
		return func(tb testing.TB) *Zoo {
			tb.Helper()
			z, err := newZoo(settings{}.with([]Option{WithHome(home), WithOffline(), WithBackend(cpuName), AllowUngated()}), plugins, builtinBackends())
			if err != nil {
				tb.Fatal(err)
			}
			return z
		}
	}
	r := rivals{inside: of(gemma4e2b.New()), outside: of()}
	z := r.outside(tb)
	defer z.Close()
	if _, err := z.InstallPluginFile(tb.Context(), program); err != nil {
		tb.Fatal(err)
	}
	return r
}

// convertDemo makes a pack of the demonstration model.
func convertDemo(tb testing.TB, z *Zoo) *Converted {
	tb.Helper()
	files, err := catalog.Embedded("demo")
	if err != nil {
		tb.Fatal(err)
	}
	checkpoint := tb.TempDir()
	if err := os.CopyFS(checkpoint, files); err != nil {
		tb.Fatal(err)
	}
	made, err := z.Convert(tb.Context(), ConvertOptions{Checkpoint: checkpoint, Plugin: gemma4e2b.Name, Output: filepath.Join(tb.TempDir(), "pack")})
	if err != nil {
		tb.Fatal(err)
	}
	return made
}

// synthesizeLayers makes a pack of random weights with all layers of the full-size model,
// which are narrow: what a plugin is told and tells of it is as large as in full size.
func synthesizeLayers(tb testing.TB) (dir string) {
	tb.Helper()
	config, err := os.ReadFile(filepath.Join("..", "plugins", "gemma4e2b", "shapes", "mobile.json"))
	if err != nil {
		tb.Fatal(err)
	}
	text := strings.NewReplacer(`_size": 262144`, `_size": 2048`, `"hidden_size": 1536`, `"hidden_size": 128`, `"intermediate_size": 6144`, `"intermediate_size": 256`,
		`_per_layer_input": 262144`, `_per_layer_input": 2048`, `_per_layer_input": 256`, `_per_layer_input": 32`).Replace(string(config))
	dir = tb.TempDir()
	id := zoo.PluginID{Name: gemma4e2b.Name, Version: gemma4e2b.Version}
	if err := gemma4.Synthesize(tb.Context(), id, gemma4.Shapes{Config: []byte(text)}, zoo.SynthesizeRequest{Dir: dir}); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// openPack opens a pack, and closes it when the test ends.
func openPack(tb testing.TB, z *Zoo, dir string) *Model {
	tb.Helper()
	m, err := z.Open(tb.Context(), dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	})
	return m
}

// askDemo is a question to the demonstration model.
const askDemo = "What is the capital of France?"

// greedy feeds the tokens of a question and then the most likely ones, and tells each with its logits.
func greedy(tb testing.TB, m *Model, tokens int, tell func(token int32, logits []float32)) {
	tb.Helper()
	s, err := m.engine.NewSession()
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	ids, err := m.text.ask(tb.Context(), askDemo)
	if err != nil {
		tb.Fatal(err)
	}
	for range tokens {
		if err := s.Feed(tb.Context(), ids, 1); err != nil {
			tb.Fatal(err)
		}
		logits := s.Logits(0)
		ids = []int32{int32(slices.Index(logits, slices.Max(logits)))}
		tell(ids[0], logits)
	}
}

// TestSamePlugin takes the demonstration model through a plugin that is built in and
// through the same in a process: there is no bit of difference.
func TestSamePlugin(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	t.Parallel()
	type said struct {
		tokens []int32
		logits []uint32
		answer string
	}
	var packs [2]catalog.Digest
	var all [2]said
	r := newRivals(t)
	for i, of := range []func(testing.TB) *Zoo{r.inside, r.outside} {
		z := of(t)
		defer z.Close()
		made := convertDemo(t, z)
		m := openPack(t, z, made.Dir)
		greedy(t, m, 48, func(token int32, logits []float32) {
			all[i].tokens = append(all[i].tokens, token)
			for _, v := range logits {
				all[i].logits = append(all[i].logits, math.Float32bits(v))
			}
		})
		var err error
		if all[i].answer, err = m.Respond(t.Context(), askDemo); err != nil {
			t.Fatal(err)
		}
		packs[i] = made.Digest
		if processes := len(z.registry.clients); processes != i {
			t.Errorf("host %d has %d plugins in processes", i, processes)
		}
	}
	if packs[0] != packs[1] {
		t.Errorf("the packs have the digests %s and %s", packs[0], packs[1])
	}
	if a, b := all[0], all[1]; !slices.Equal(a.tokens, b.tokens) || a.answer != b.answer {
		t.Errorf("built in it says %v, %q, in a process %v, %q", a.tokens, a.answer, b.tokens, b.answer)
	} else if !slices.Equal(a.logits, b.logits) {
		t.Error("the logits differ")
	} else if !strings.Contains(a.answer, "Paris") || len(a.logits) < 48*256 {
		t.Errorf("%d logits and the answer %q were compared", len(a.logits), a.answer)
	}
}

// BenchmarkOpen opens packs with a plugin that is built in, with one whose process runs,
// and with one whose process has to be started; ending it is not counted.
func BenchmarkOpen(b *testing.B) {
	r := newRivals(b)
	z := r.inside(b)
	packs := []struct{ name, dir string }{{"demo", convertDemo(b, z).Dir}, {"35-layers", synthesizeLayers(b)}}
	for _, pack := range packs {
		for _, way := range []struct {
			name string
			host func(testing.TB) *Zoo
			cold bool
		}{{"in-process", r.inside, false}, {"out-of-process/warm", r.outside, false}, {"out-of-process/cold", r.outside, true}} {
			b.Run(pack.name+"/"+way.name, func(b *testing.B) {
				z := way.host(b)
				defer func() { _ = z.Close() }()
				openPack(b, z, pack.dir) // the first time a pack is read through
				for b.Loop() {
					b.StopTimer()
					if way.cold {
						_ = z.Close() // which returns nil
						z = way.host(b)
					}
					b.StartTimer()
					m, err := z.Open(b.Context(), pack.dir)
					b.StopTimer()
					if err == nil {
						err = m.Close()
					}
					if err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			})
		}
	}
}

// BenchmarkDecode generates 64 tokens with the demonstration model, which a plugin has
// converted and described that is built in, or in a process that still runs.
func BenchmarkDecode(b *testing.B) {
	const tokens = 64
	r := newRivals(b)
	for _, way := range []struct {
		name string
		host func(testing.TB) *Zoo
	}{{"in-process", r.inside}, {"out-of-process", r.outside}} {
		b.Run(way.name, func(b *testing.B) {
			z := way.host(b)
			defer z.Close()
			m := openPack(b, z, convertDemo(b, z).Dir)
			for b.Loop() {
				greedy(b, m, tokens, func(int32, []float32) {})
			}
			b.ReportMetric(float64(b.N*tokens)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
