package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/sdk"
)

const (
	// barsAfter is how long work must take before bars are shown: what is quick needs none.
	barsAfter = 400 * time.Millisecond
	// lineEvery is the least time between two plain lines about the same work.
	lineEvery = 5 * time.Second
	// rateOver is the time over which a rate is measured.
	rateOver = 10 * time.Second
)

// progress shows what long work is doing: bars on a terminal, now and then a line
// elsewhere. It is also the writer for everything else that goes to standard error
// meanwhile, which it keeps apart from the bars. It is safe for concurrent use.
type progress struct {
	app *app

	mu      sync.Mutex
	started time.Time // of the first work
	tasks   []*task
	bars    *mpb.Progress
}

// task is one piece of work.
type task struct {
	name     string
	bytes    bool // counted in bytes, else in steps
	done     int64
	total    int64 // 0 when not known
	base     int64 // done when it began: not part of the rate
	began    time.Time
	finished bool
	told     time.Time // of the last plain line
	window   []sample
	bar      *mpb.Bar
	// figures is what the bar shows. The bar reads it in a goroutine that the
	// display waits for with its lock held, so it has to do without the lock.
	figures atomic.Pointer[string]
}

// sample is how far a task was at a time.
type sample struct {
	at   time.Time
	done int64
}

// newProgress returns a display that shows nothing yet.
func newProgress(a *app) *progress { return &progress{app: a} }

// Write writes text above the bars.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.write(b)
}

// write is Write with the lock held.
func (p *progress) write(b []byte) (int, error) {
	if p.bars != nil {
		return p.bars.Write(b)
	}
	return p.app.err.Write(b)
}

// end takes the bars away.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tasks {
		if t.bar != nil {
			t.bar.Abort(true)
		}
	}
	if p.bars != nil {
		p.bars.Shutdown()
	}
	p.bars, p.tasks = nil, nil
}

// events returns the callbacks that feed the display.
func (p *progress) events() sdk.Events {
	if p.app.global.quiet {
		return sdk.Events{}
	}
	return sdk.Events{
		Resolved: func(r catalog.Release) { p.line("installing %s@%s", r.Model, r.Version) },
		Waiting: func(model, version string) {
			p.line("waiting for another process that is installing %s@%s", model, version)
		},
		Notice:   func(text string) { p.line("note: %s", text) },
		Download: p.download,
		Convert:  func(done, total int64) { p.update("convert", true, done, total, 0) },
		Verify:   func(what string, done, total int64) { p.update("verify "+what, true, done, total, 0) },
		Gate: func(stage string, done, total int) {
			p.update("gate: "+stage, false, int64(done), int64(total), 0)
		},
		Synthesize: func(done, total int64) { p.update("write random weights", true, done, total, 0) },
		Bench: func(stage string, done, total int) {
			p.update("bench: "+stage, false, int64(done), int64(total), 0)
		},
	}
}

// line prints a line.
func (p *progress) line(format string, args ...any) {
	_, _ = fmt.Fprintf(p, format+"\n", args...)
}

// download shows what happens to a file.
func (p *progress) download(e download.Event) {
	switch e.Stage {
	case download.StageVerify:
		p.update("check "+e.File, true, e.DoneBytes, e.TotalBytes, 0)
	case download.StageFetch:
		p.update("fetch "+e.File, true, e.DoneBytes, e.TotalBytes, e.ResumedBytes)
	case download.StageRetry:
		p.line("%s: %v; trying again", e.File, e.Err)
	case download.StageDone:
		p.finish("check " + e.File)
		p.finish("fetch " + e.File)
	}
}

// update sets how far a task is; base is how much of it was done before.
func (p *progress) update(name string, bytes bool, done, total, base int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.started.IsZero() {
		p.started = now
	}
	t := p.task(name)
	if t == nil {
		t = &task{name: name, bytes: bytes, base: base, began: now, told: now}
		p.tasks = append(p.tasks, t)
	}
	if done < t.done {
		t.window, t.base, t.began = nil, done, now // it has begun anew
	}
	t.done, t.total = done, total
	t.sample(now)
	if total > 0 && done >= total {
		t.finished = true
	}
	p.show(t, now)
}

// finish ends a task whose total may not have been known.
func (p *progress) finish(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.task(name); t != nil && !t.finished {
		t.finished = true
		t.total = t.done
		p.show(t, time.Now())
	}
}

// task returns the unfinished task of a name, or nil.
func (p *progress) task(name string) *task {
	for _, t := range p.tasks {
		if t.name == name && !t.finished {
			return t
		}
	}
	return nil
}

// show brings a task's state to the display. The lock is held.
func (p *progress) show(t *task, now time.Time) {
	if !p.app.live {
		if !t.finished && now.Sub(t.told) >= lineEvery || t.finished && now.Sub(t.began) >= lineEvery {
			t.told = now
			fmt.Fprintln(p.app.err, t.line(now))
		}
		return
	}
	text := t.describe(now)
	t.figures.Store(&text)
	if t.bar == nil {
		if t.finished || now.Sub(p.started) < barsAfter {
			return
		}
		p.addBar(t)
	}
	if t.total > 0 {
		t.bar.SetTotal(t.total, t.finished)
	}
	t.bar.SetCurrent(t.done)
	if t.finished && t.total == 0 {
		t.bar.Abort(true)
	}
}

// addBar gives a task a bar.
func (p *progress) addBar(t *task) {
	if p.bars == nil {
		p.bars = mpb.New(mpb.WithOutput(p.app.err), mpb.WithWidth(40), mpb.WithAutoRefresh())
	}
	// A bar that begins with a total would not take another one later.
	t.bar = p.bars.AddBar(0,
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(t.name, decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return *t.figures.Load() })),
	)
}

// sample notes how far the task is.
func (t *task) sample(now time.Time) {
	n := len(t.window)
	if n > 0 && now.Sub(t.window[n-1].at) < 100*time.Millisecond {
		return
	}
	t.window = append(t.window, sample{now, t.done})
	for len(t.window) > 2 && now.Sub(t.window[0].at) > rateOver {
		t.window = t.window[1:]
	}
}

// rate returns what is done in a second, or 0 when that is not known.
func (t *task) rate(now time.Time) float64 {
	if len(t.window) == 0 {
		return 0
	}
	first := t.window[0]
	span := now.Sub(first.at).Seconds()
	if span < 0.2 {
		return 0
	}
	return float64(t.done-first.done) / span
}

// line describes the task for a log.
func (t *task) line(now time.Time) string { return t.name + ": " + t.describe(now) }

// describe gives amount, share, rate and time left.
func (t *task) describe(now time.Time) string {
	amount := func(n int64) string {
		if t.bytes {
			return size(n)
		}
		return fmt.Sprint(n)
	}
	if t.finished {
		return fmt.Sprintf("%s in %s", amount(t.done), duration(now.Sub(t.began)))
	}
	var b strings.Builder
	b.WriteString(amount(t.done))
	if t.total > 0 {
		fmt.Fprintf(&b, " of %s (%d%%)", amount(t.total), 100*t.done/t.total)
	}
	if r := t.rate(now); r > 0 {
		if t.bytes {
			fmt.Fprintf(&b, ", %s/s", size(int64(r)))
		}
		if t.total > t.done {
			if left := float64(t.total-t.done) / r; left >= 1 {
				fmt.Fprintf(&b, ", %s left", timeLeft(left))
			}
		}
	}
	return b.String()
}

// timeLeft writes an estimate, which deserves no fractions.
func timeLeft(seconds float64) string {
	switch {
	case seconds < 60:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds > 99*3600:
		return "days"
	}
	return duration(time.Duration(seconds) * time.Second)
}

var _ io.Writer = (*progress)(nil)
