package gemma4e2b_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
	"github.com/zoo-sdk/zoo/zoo"
)

// fullDir is a folder with 6 GB of room for a checkpoint in the official shapes.
var fullDir = flag.String("full", "", "run at full size in this folder, which needs 6 GB")

// TestFullSize writes a random checkpoint in the official shapes, converts it in
// bounded memory, verifies and opens the pack, and decodes. Then it does so with a
// pack of random weights that no checkpoint was needed for.
func TestFullSize(t *testing.T) {
	if *fullDir == "" {
		t.Skip("needs -full DIR with 6 GB of room")
	}
	dir, err := os.MkdirTemp(*fullDir, "zoo-full-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	checkpoint, packDir := filepath.Join(dir, "checkpoint"), filepath.Join(dir, "pack")
	for _, d := range []string{checkpoint, packDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	timed(t, "write the checkpoint", func() error {
		return gemma4test.Write(t.Context(), checkpoint, gemma4test.E2B(), gemma4test.E2BOptions())
	})
	sources := describe(t, checkpoint)
	var total int64
	for _, s := range sources {
		total += s.SizeBytes
	}
	plugin := gemma4e2b.New()
	before, err := anonymous()
	if err != nil {
		t.Skipf("memory is counted on Linux only: %v", err)
	}
	peak := watch(t)
	elapsed := timed(t, "convert", func() error {
		return plugin.Convert(t.Context(), zoo.ConvertRequest{Checkpoint: checkpoint, Sources: sources, Dir: packDir})
	})
	grown := peak() - before
	t.Logf("converted %d MB of source at %.0f MB/s; anonymous memory grew by %d MB", total>>20, float64(total)/1e6/elapsed.Seconds(), grown>>20)
	if grown > 600<<20 {
		t.Errorf("conversion took %d MB of anonymous memory, at most 600", grown>>20)
	}
	runFull(t, packDir)

	if err := os.RemoveAll(checkpoint); err != nil {
		t.Fatal(err)
	}
	randomDir := filepath.Join(dir, "random")
	if err := os.Mkdir(randomDir, 0o755); err != nil {
		t.Fatal(err)
	}
	timed(t, "write random weights", func() error {
		return plugin.Synthesize(t.Context(), zoo.SynthesizeRequest{Model: "gemma-4-e2b", Dir: randomDir})
	})
	runFull(t, randomDir)
}

// runFull opens and verifies a pack in the official shapes, and decodes with it.
func runFull(t *testing.T, dir string) {
	t.Helper()
	var pack *zoo.Pack
	timed(t, "open the pack", func() (err error) { pack, err = zoo.OpenPack(dir); return err })
	defer pack.Close()
	timed(t, "verify the pack", func() error { return pack.Verify(t.Context(), nil) })
	program, err := gemma4e2b.New().Run(t.Context(), zoo.RunRequest{Pack: pack.Info()})
	if err != nil {
		t.Fatal(err)
	}
	var e *engine.Model
	timed(t, "load", func() (err error) {
		e, err = engine.Load(t.Context(), program, pack, cpu.New(""), backends.Options{Cache: backends.CacheInt8, Context: 4096})
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
	if stats.StepBytes < 780e6 || stats.StepBytes > 810e6 {
		t.Errorf("a token reads %d MB of weights, want about 795", stats.StepBytes/1e6)
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
