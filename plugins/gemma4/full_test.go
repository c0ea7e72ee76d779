package gemma4_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/zoo"
)

// maxAnonymousBytes is what the conversion of a full-size checkpoint may hold in memory.
const maxAnonymousBytes = 600 << 20

// TestFullSize makes a checkpoint in the official shapes of Gemma 4 E2B, converts it
// and watches the anonymous memory of this process. It needs 6 GB of disk in the
// folder that ZOO_FULL names, and runs only then.
func TestFullSize(t *testing.T) {
	root := os.Getenv("ZOO_FULL")
	if root == "" {
		t.Skip("ZOO_FULL names no folder with 6 GB to spare")
	}
	dir, err := os.MkdirTemp(root, "full-size-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	source, target := filepath.Join(dir, "checkpoint"), filepath.Join(dir, "pack")
	for _, d := range []string{source, target} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	if err := gemma4test.Write(t.Context(), source, gemma4test.E2B(), gemma4test.E2BOptions()); err != nil {
		t.Fatal(err)
	}
	t.Logf("written in %v", time.Since(start))
	// The digests of the sources are the host's business, and cost it a pass of their own.
	req := zoo.ConvertRequest{Checkpoint: source, Dir: target, Sources: []catalog.File{}}
	var sourceBytes int64
	req.Progress = func(_, total int64) { sourceBytes = total }

	peak := watch(t)
	start = time.Now()
	if err := gemma4.Convert(t.Context(), plugin, req); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	anonymous := peak()
	t.Logf("%d MB of sources converted in %v, %.0f MB/s; at most %d MB of anonymous memory",
		sourceBytes/1e6, took, float64(sourceBytes)/1e6/took.Seconds(), anonymous/1e6)
	if anonymous > maxAnonymousBytes {
		t.Errorf("%d bytes of anonymous memory, at most %d are allowed", anonymous, int64(maxAnonymousBytes))
	}
	pack, err := zoo.OpenPack(target)
	if err != nil {
		t.Fatal(err)
	}
	defer pack.Close()
	cfg, err := gemma4.ParseConfig(pack.Info().Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gemma4.Record(pack.Manifest(), cfg); err != nil {
		t.Error(err)
	}
	t.Logf("pack %s of %d bytes", pack.Digest(), pack.SizeBytes())
}

// watch samples the anonymous memory of this process until the returned function is
// called, which returns the most that was seen, or 0 where the system does not tell.
func watch(t *testing.T) func() int64 {
	t.Helper()
	var most int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			most = max(most, anonymousBytes())
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	})
	return func() int64 { close(stop); wg.Wait(); return most }
}

// anonymousBytes returns the resident anonymous memory of this process, or 0 where the system does not tell.
func anonymousBytes() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, after, ok := bytes.Cut(status, []byte("RssAnon:"))
	if !ok {
		return 0
	}
	var kib int64
	if _, err := fmt.Sscan(string(after), &kib); err != nil {
		return 0
	}
	return kib << 10
}
