package gemma4_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
	"github.com/zoo-sdk/zoo/plugins/gemma4e4b"
	"github.com/zoo-sdk/zoo/zoo"
)

// fullDir is a folder with room for checkpoints in the official shapes.
var fullDir = flag.String("full", "", "run at full size in this folder, which needs 24 GB")

// TestFullSize writes a random checkpoint in each official layout, converts it in
// bounded memory, verifies and opens the pack, and decodes. Then it does so with
// packs of random weights that no checkpoint was needed for.
func TestFullSize(t *testing.T) {
	if *fullDir == "" {
		t.Skip("needs -full DIR with 24 GB of room")
	}
	e2b, e4b := gemma4test.E2B(), gemma4test.E4B()
	q4_0 := map[string]string{"grid": "q4_0"}
	for _, c := range []struct {
		name   string
		plugin *gemma4.Plugin
		sizes  gemma4test.Sizes
		opts   gemma4test.Options
		recipe map[string]string
		// synthetic is the model whose random weights have the same shapes.
		synthetic string
		// cache is what the checkpoint's scales allow for.
		cache backends.CacheType
		// stepMB is about what a token reads.
		stepMB int64
	}{
		{"e2b-mobile", gemma4e2b.New(), e2b, gemma4test.E2BOptions(), nil, "gemma-4-e2b", backends.CacheInt8, 795},
		{"e2b-q4_0", gemma4e2b.New(), e2b.WithFloats(), gemma4test.Options{}, q4_0, "gemma-4-e2b-q4_0", backends.CacheFloat, 1301},
		{"e4b-mobile", gemma4e4b.New(), e4b, gemma4test.E2BOptions(), nil, "gemma-4-e4b-mobile", backends.CacheInt8, 2229},
		{"e4b-q4_0", gemma4e4b.New(), e4b.WithFloats(), gemma4test.Options{Shards: 4, SharedKV: true}, q4_0, "gemma-4-e4b", backends.CacheFloat, 2651},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := os.MkdirTemp(*fullDir, "zoo-full-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			checkpoint, packDir, randomDir := filepath.Join(dir, "checkpoint"), filepath.Join(dir, "pack"), filepath.Join(dir, "random")
			for _, d := range []string{checkpoint, packDir, randomDir} {
				if err := os.Mkdir(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			timed(t, "write the checkpoint", func() error {
				return gemma4test.Write(t.Context(), checkpoint, c.sizes, c.opts)
			})
			convertFull(t, c.plugin, zoo.ConvertRequest{Checkpoint: checkpoint, Sources: describe(t, checkpoint), Recipe: c.recipe, Dir: packDir})
			runFull(t, packDir, c.plugin, c.cache, c.stepMB)
			if err := os.RemoveAll(checkpoint); err != nil {
				t.Fatal(err)
			}
			timed(t, "write random weights", func() error {
				return c.plugin.Synthesize(t.Context(), zoo.SynthesizeRequest{Model: c.synthetic, Dir: randomDir})
			})
			runFull(t, randomDir, c.plugin, c.cache, c.stepMB)
			if c.cache == backends.CacheFloat { // nothing in the checkpoint says how to round activations
				activationsFull(t, randomDir, c.plugin)
			}
		})
	}
}

// convertFull converts in bounded memory.
func convertFull(t *testing.T, plugin *gemma4.Plugin, req zoo.ConvertRequest) {
	t.Helper()
	var total int64
	for _, s := range req.Sources {
		total += s.SizeBytes
	}
	before, err := anonymous()
	if err != nil {
		t.Skipf("memory is counted on Linux only: %v", err)
	}
	peak := watch(t)
	elapsed := timed(t, "convert", func() error {
		_, err := plugin.Convert(t.Context(), req)
		return err
	})
	grown := peak() - before
	t.Logf("converted %d MB of source at %.0f MB/s; anonymous memory grew by %d MB", total>>20, float64(total)/1e6/elapsed.Seconds(), grown>>20)
	if grown > 600<<20 {
		t.Errorf("conversion took %d MB of anonymous memory, at most 600", grown>>20)
	}
}

// runFull opens and verifies a pack in the official shapes, and decodes with it.
func runFull(t *testing.T, dir string, plugin *gemma4.Plugin, cache backends.CacheType, stepMB int64) {
	t.Helper()
	var pack *zoo.Pack
	timed(t, "open the pack", func() (err error) { pack, err = zoo.OpenPack(dir); return err })
	defer pack.Close()
	timed(t, "verify the pack", func() error { return pack.Verify(t.Context(), nil) })
	program, err := plugin.Run(t.Context(), zoo.RunRequest{Pack: pack.Info()})
	if err != nil {
		t.Fatal(err)
	}
	var e *engine.Model
	timed(t, "load", func() (err error) {
		e, err = engine.Load(t.Context(), program, pack, cpu.New(""), backends.Options{Cache: cache, Context: 4096})
		return err
	})
	defer e.Close()
	s := session(t, e)
	ids := make([]int32, 32)
	for i := range ids {
		ids[i] = int32(300 + 17*i)
	}
	d := timed(t, "prefill of 32 tokens", func() error { return s.Feed(t.Context(), ids, 1) })
	t.Logf("%.2f prompt tokens a second", 32/d.Seconds())
	const steps = 8
	d = timed(t, "decode of 8 tokens", func() error {
		for range steps {
			if err := s.Feed(t.Context(), []int32{argmax(s.Logits(0))}, 1); err != nil {
				return err
			}
		}
		return nil
	})
	stats := e.Stats()
	t.Logf("%.2f tokens a second, %d MB of weights a token, buffers of %d MB, caches of %d MB",
		steps/d.Seconds(), stats.StepBytes/1e6, stats.BufferBytes>>20, stats.CacheBytes>>20)
	if mb := stats.StepBytes / 1e6; mb < stepMB*98/100 || mb > stepMB*102/100 {
		t.Errorf("a token reads %d MB of weights, want about %d", mb, stepMB)
	}
}

// activationsFull compares activations of 16 and of 8 bits with float ones.
func activationsFull(t *testing.T, dir string, plugin *gemma4.Plugin) {
	t.Helper()
	pack, err := zoo.OpenPack(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer pack.Close()
	program, err := plugin.Run(t.Context(), zoo.RunRequest{Pack: pack.Info()})
	if err != nil {
		t.Fatal(err)
	}
	m := &model{weights: pack, program: program}
	for _, acts := range []backends.Activations{backends.Activations16, backends.Activations8} {
		relL2, agreed := activationError(t, m, acts)
		t.Logf("%s-bit activations against float: logits off by %.3g of their length, %d of %d tokens agree", acts, relL2, agreed, activationSteps)
		if math.IsNaN(relL2) || acts == backends.Activations16 && relL2 > 0.1 {
			t.Errorf("logits with %s-bit activations are off by %g of their length", acts, relL2)
		}
	}
}

// describe lists the files of a checkpoint with their digests.
func describe(t *testing.T, dir string) []catalog.File {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []catalog.File
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		// The digests only become part of the pack's identity: at this size the name will do.
		files = append(files, catalog.File{Path: e.Name(), SizeBytes: info.Size(), SHA256: catalog.DigestOf([]byte(e.Name())).Hex()})
	}
	return files
}

// timed runs f and logs how long it took.
func timed(t *testing.T, what string, f func() error) time.Duration {
	t.Helper()
	start := time.Now()
	if err := f(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	d := time.Since(start)
	t.Logf("%s: %v", what, d.Round(time.Millisecond))
	return d
}

// anonymous returns the process's resident memory that no file backs, in bytes.
func anonymous() (int64, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "RssAnon:"); ok {
			var kib int64
			_, err := fmt.Sscan(rest, &kib)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no RssAnon in /proc/self/status: %w", errors.Join(lines.Err(), fs.ErrNotExist))
}

// watch keeps the peak of anonymous memory until it is asked for.
func watch(t *testing.T) (peak func() int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	highest := int64(0)
	var failed error
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			now, err := anonymous()
			if err != nil {
				failed = err
				return
			}
			highest = max(highest, now)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return func() int64 {
		t.Helper()
		cancel()
		<-done
		if failed != nil {
			t.Fatal(failed)
		}
		return highest
	}
}
