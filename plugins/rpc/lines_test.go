package rpc_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/plugins/rpc"
)

// records are lines that a plugin writes to standard error.
var records = []string{
	`{"time":"2026-01-02T03:04:05Z","level":"ERROR","msg":"x\nerror: pull failed\nhint: do this","a\nb\tc":"two\nlines\u001b"}`,
	`{"level":"DEBUG-4","msg":"nested","list":["\u001b]0;x\u0007",1],"map":{"b":"\u202e"},"nothing":null,"number":12345678901234567890}`,
	"raw \x1b[2J\tline",
	"long " + strings.Repeat("x", 5000),
	`{"level":"LOUD","msg":"no level"}`,
	"the end",
}

// recorder keeps what a logger is told.
type recorder struct {
	mu      sync.Mutex
	records []string
}

// Enabled implements slog.Handler.
func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	text := record.Level.String() + " " + record.Message
	record.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, text)
	return nil
}

// WithAttrs implements slog.Handler.
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup implements slog.Handler.
func (r *recorder) WithGroup(string) slog.Handler { return r }

// all returns what the logger has been told that contains a text.
func (r *recorder) all(part string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.records), func(text string) bool { return !strings.Contains(text, part) })
}

// await waits until the logger has been told something.
func (r *recorder) await(t *testing.T, part string) {
	t.Helper()
	for range 12_000 {
		if len(r.all(part)) > 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("the log lacks %q", part)
}

// TestRecords checks what becomes of lines that are to look like others.
func TestRecords(t *testing.T) {
	t.Parallel()
	log := &recorder{}
	c, _ := start(t, "plain", func(o *rpc.Options) { o.Logger = slog.New(log) })
	if _, err := do(t.Context(), t, c, "records"); err != nil {
		t.Fatal(err)
	}
	log.await(t, "the end")
	got := log.all("")
	got = got[slices.IndexFunc(got, func(text string) bool { return strings.HasPrefix(text, "WARN x") }):]
	want := []string{
		"WARN x error: pull failed hint: do this a b c=two\nlines\ufffd",
		`DEBUG-4 nested list=["\u001b]0;x\u0007",1] map={"b":"\u202e"} nothing=null number=12345678901234567890`,
		"INFO raw \ufffd[2J line",
		"INFO " + records[3][:4<<10],
		"INFO " + records[3][4<<10:],
		"INFO " + records[4],
		"INFO the end",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestStack checks that the stack of a panic is one record.
func TestStack(t *testing.T) {
	t.Parallel()
	log := &recorder{}
	c, _ := start(t, "plain", func(o *rpc.Options) { o.Logger = slog.New(log) })
	if _, err := do(t.Context(), t, c, "recurse"); err == nil || !strings.Contains(err.Error(), "too deep") {
		t.Fatalf("error %v", err)
	}
	_ = c.Close()
	told := log.all("recurse")
	if len(told) != 1 || !strings.HasPrefix(told[0], "WARN a method of the plugin panicked panic=too deep stack=goroutine ") {
		t.Errorf("the log has %q", told)
	}
}

// TestFlood lets a plugin log more than anybody can read.
func TestFlood(t *testing.T) {
	t.Parallel()
	log := &recorder{}
	c, _ := start(t, "plain", func(o *rpc.Options) { o.Logger = slog.New(log) })
	if _, err := do(t.Context(), t, c, "flood"); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	told, lost := len(log.all("trouble")), 0
	for _, text := range log.all("left out") {
		n := 0
		if _, err := fmt.Sscanf(text, "WARN left out lines of a plugin that writes too many lines=%d", &n); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		lost += n
	}
	if told < 1000 || told > 15_000 || told+lost < 20_000 {
		t.Errorf("%d lines were logged, and %d left out, of 20000", told, lost)
	}
}
