package main

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
)

// safeBuffer may be written and read by several goroutines.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestPlainProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out safeBuffer
		p := newProgress(&app{streams: streams{err: &out}})
		e := p.events()
		e.Resolved(catalog.Release{Model: "m", Version: "1.0.0"})
		const total = 2_000_000_000
		for i := range 21 {
			e.Download(download.Event{File: "w", Stage: download.StageFetch, DoneBytes: int64(i) * total / 20, TotalBytes: total})
			if i == 10 {
				e.Download(download.Event{File: "w", Stage: download.StageRetry, Err: errors.New("reset by peer")})
			}
			time.Sleep(time.Second)
		}
		e.Download(download.Event{File: "w", Stage: download.StageDone, DoneBytes: total, TotalBytes: total})
		e.Convert(1, 10) // what is quick is not told
		e.Convert(10, 10)
		e.Notice("all is well")
		p.end()
		want := `installing m@1.0.0
fetch w: 500 MB of 2.0 GB (25%), 100 MB/s, 15 s left
fetch w: 1.0 GB of 2.0 GB (50%), 100 MB/s, 10 s left
w: reset by peer; trying again
fetch w: 1.5 GB of 2.0 GB (75%), 100 MB/s, 5 s left
fetch w: 2.0 GB in 20.0 s
note: all is well
`
		if got := out.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

func TestQuietProgress(t *testing.T) {
	t.Parallel()
	e := newProgress(&app{global: globalFlags{quiet: true}}).events()
	if e.Resolved != nil || e.Download != nil || e.Notice != nil {
		t.Error("there are events for nobody")
	}
}

// Bars, what is printed meanwhile, and the end of it all do not wait for each other.
func TestBars(t *testing.T) {
	t.Parallel()
	var out safeBuffer
	p := newProgress(&app{streams: streams{err: &out}, live: true})
	e := p.events()
	lacks := func() string {
		got := out.String()
		for _, want := range []string{"fetch a", "hello c", "of 1.1 TB"} {
			if !strings.Contains(got, want) {
				return want
			}
		}
		return ""
	}
	begin := time.Now()
	var wg sync.WaitGroup
	for _, file := range []string{"a", "b", "c"} {
		wg.Go(func() {
			for i := int64(0); ; i++ {
				e.Download(download.Event{File: file, Stage: download.StageFetch, DoneBytes: i, TotalBytes: 1 << 40})
				if i%1000 != 0 {
					continue
				}
				e.Notice("hello " + file)
				if lacks() == "" || time.Since(begin) > time.Minute {
					return
				}
			}
		})
	}
	wg.Wait()
	e.Download(download.Event{File: "a", Stage: download.StageDone})
	p.end()
	e.Notice("the end")
	p.end()
	if want := lacks(); want != "" || !strings.Contains(out.String(), "the end\n") {
		t.Errorf("%q or the end is not in %q", want, out.String())
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0:                           "0 ms",
		450 * time.Millisecond:      "450 ms",
		12340 * time.Millisecond:    "12.3 s",
		90 * time.Second:            "1 min 30 s",
		2*time.Hour + 3*time.Minute: "2 h 03 min",
	} {
		if got := duration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
