package rpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/rpc"
	"github.com/zoo-sdk/zoo/zoo"
)

// release is a release with everything in it.
func release() catalog.Release {
	file := func(path string, n int64) catalog.File {
		return catalog.File{Path: path, SizeBytes: n, SHA256: strings.Repeat("0a", 32), Optional: n == 2}
	}
	return catalog.Release{
		Model: "m", Version: "1.0.0", Plugin: catalog.PluginRef{Name: "plain", Constraint: "^1"},
		Source:    catalog.Source{Kind: catalog.KindHub, Repository: "a/b", Revision: "main", Files: []catalog.File{file("config.json", 1), file("x", 2)}},
		Reference: &catalog.Source{Kind: catalog.KindEmbedded, Repository: "demo", Files: []catalog.File{file("golden.json", 3)}},
		Recipe:    map[string]string{"path": "p"},
		Licence:   catalog.Licence{SPDX: "MIT", URL: "https://example.com"},
		Gated:     true, Pack: "sha256:" + catalog.Digest(strings.Repeat("1", 64)),
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain")
	works(t, c)

	dir := t.TempDir()
	plan, err := c.Fetch(t.Context(), zoo.FetchRequest{Release: release(), Dir: dir})
	want := zoo.FetchPlan{Files: append(release().Source.Files, catalog.File{Path: "told/p"})}
	if diff := cmp.Diff(want, plan); err != nil || diff != "" {
		t.Errorf("fetch: %v\n%s", err, diff)
	}
	var told catalog.Release
	err = json.Unmarshal([]byte(word(t, dir, "release")), &told)
	if diff := cmp.Diff(release(), told); err != nil || diff != "" {
		t.Errorf("the release of fetch: %v\n%s", err, diff)
	}

	req := zoo.ConvertRequest{
		Checkpoint: filepath.Join("relative", "checkpoint"), Dir: t.TempDir(), Sources: release().Source.Files,
		Recipe: map[string]string{"grid": "q4_0"}, Report: true,
	}
	done, err := c.Convert(t.Context(), req)
	if diff := cmp.Diff(zoo.Conversion{Rounding: rounding(req)}, done); err != nil || diff != "" {
		t.Errorf("convert: %v\n%s", err, diff)
	}

	ref, err := c.Gate(t.Context(), zoo.GateRequest{Dir: filepath.Join("some", "where")})
	if err != nil || !reflect.DeepEqual(ref, reference("where")) { // too much to print
		t.Errorf("gate: %v, or other reference values", err)
	}

	manifest := &zoo.Manifest{Format: zoo.PackFormat, Plugin: zoo.PluginID{Name: "plain"}, Constants: map[string]float32{"one": 0.1}}
	p, err := c.Run(t.Context(), zoo.RunRequest{Pack: zoo.PackInfo{Manifest: manifest, Config: []byte("12345")}})
	if _, err := c.Run(t.Context(), zoo.RunRequest{Pack: zoo.PackInfo{Config: make([]byte, 33<<20)}}); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a request of 33 MiB: %v", err)
	}
	wantProgram := tiny()
	wantProgram.Context, wantProgram.Weights[0].Name = 5, "plain0.1"
	if diff := cmp.Diff(wantProgram, p); err != nil || diff != "" {
		t.Errorf("run: %v\n%s", err, diff)
	}
}

// TestCapabilities asks plugins for the optional interfaces through a registry.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	for role, want := range map[string][2]bool{"plain": {}, "synthesizer": {true, false}, "estimator": {false, true}, "full": {true, true}} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			c, _ := start(t, role)
			registry, err := zoo.NewRegistry(c)
			if err != nil {
				t.Fatal(err)
			}
			p, got, err := registry.Find(t.Context(), catalog.PluginRef{Name: about.Name})
			if err != nil || got != about {
				t.Fatalf("find: %+v, %v", got, err)
			}
			maker, synthesizes := p.(zoo.Synthesizer)
			estimator, estimates := p.(zoo.Estimator)
			if got := [2]bool{synthesizes, estimates}; got != want {
				t.Fatalf("synthesizes and estimates: %v, want %v", got, want)
			}
			if synthesizes {
				dir, told := t.TempDir(), int64(0)
				err := maker.Synthesize(t.Context(), zoo.SynthesizeRequest{Model: "m", Dir: dir, Progress: func(done, total int64) { told += 10*done + total }})
				if err != nil || told != 12 || word(t, dir, "synthetic") != "m" {
					t.Errorf("synthesize: %v, progress %d", err, told)
				}
			}
			if estimates {
				e, err := estimator.Estimate(t.Context(), zoo.EstimateRequest{Release: release(), Sources: release().Source.Files, Config: []byte("{}")})
				want := zoo.Estimate{PackBytes: 1, Program: tiny(), Assumptions: []string{"MIT", "{}"}}
				if diff := cmp.Diff(want, e); err != nil || diff != "" {
					t.Errorf("estimate: %v\n%s", err, diff)
				}
			}
		})
	}
}

// sentinels lists every error that callers tell apart.
var sentinels = map[string]error{
	"usage": zoo.ErrUsage, "notfound": zoo.ErrNotFound, "integrity": zoo.ErrIntegrity, "gate": zoo.ErrGateFailed, "network": zoo.ErrNetwork,
	"space": zoo.ErrNoSpace, "permitted": zoo.ErrNotPermitted, "cancelled": context.Canceled, "deadline": context.DeadlineExceeded,
}

// failures lists the errors that the plugin of tests can fail with.
func failures() map[string]error {
	all := map[string]error{
		"other":  errors.New("just so"),
		"joined": errors.Join(zoo.ErrNetwork, fault.WithHint(zoo.ErrNoSpace, "make room")),
		"typed":  &zoo.DamageError{Pack: "p", File: "f", Want: "a", Got: "b"},
		"rude":   errors.New("\x1b[2J\xff gone\x07\u202e"),
	}
	for name, err := range sentinels {
		all[name] = fmt.Errorf("read %q: %w", name, fault.WithHint(err, "do "+name))
	}
	return all
}

func TestErrorsSurvive(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain")
	for name, want := range failures() {
		_, err := c.Fetch(t.Context(), zoo.FetchRequest{Release: catalog.Release{Model: name}})
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		if name == "rude" {
			if strings.ContainsAny(err.Error(), "\x1b\x07\u202e") || !utf8.ValidString(err.Error()) || !strings.Contains(err.Error(), "gone") {
				t.Errorf("rude: %q", err)
			}
			continue
		}
		if err.Error() != want.Error() || zoo.Hint(err) != zoo.Hint(want) {
			t.Errorf("%s: %q with hint %q, want %q with hint %q", name, err, zoo.Hint(err), want, zoo.Hint(want))
		}
		for s, sentinel := range sentinels {
			if got, want := errors.Is(err, sentinel), errors.Is(want, sentinel); got != want {
				t.Errorf("%s: is %s: %v, want %v", name, s, got, want)
			}
		}
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain")
	for what, last := range map[string]int64{"progress": 1000, "back": 7} {
		var got []int64
		dir := t.TempDir()
		_, err := c.Convert(t.Context(), zoo.ConvertRequest{
			Dir: dir, Recipe: map[string]string{"do": what},
			Progress: func(done, _ int64) {
				got = append(got, done)
				if err := os.WriteFile(filepath.Join(dir, "heard"), nil, 0o600); err != nil {
					t.Error(err)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if i > 0 && got[i] < got[i-1] {
				t.Errorf("%s: progress goes back: %v", what, got)
			}
		}
		if len(got) < 2 || got[len(got)-1] != last {
			t.Errorf("%s: progress %v, want %d at last", what, got, last)
		}
	}
}

// TestCancel cancels a conversion and expects that the plugin has stopped when the call returns.
func TestCancel(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain")
	works(t, c)
	reason := errors.New("no more interest")
	ctx, cancel := context.WithCancelCause(t.Context())
	dir := t.TempDir()
	go func() {
		defer cancel(reason)
		for !exists(filepath.Join(dir, "pid")) {
			if t.Context().Err() != nil {
				return
			}
		}
	}()
	_, err := c.Convert(ctx, zoo.ConvertRequest{Dir: dir, Recipe: map[string]string{"do": "wait"}})
	if !errors.Is(err, reason) {
		t.Errorf("error %v, want the cause", err)
	}
	if !exists(filepath.Join(dir, "stopped")) {
		t.Error("the plugin was still at work when the call returned")
	}
	// A plugin that obeys is not killed.
	if next, err := do(t.Context(), t, c, ""); err != nil || word(t, dir, "pid") != word(t, next, "pid") {
		t.Errorf("the next call ran in another process; %v", err)
	}
	// A context that is over calls nothing.
	if _, err := c.Describe(ctx); !errors.Is(err, reason) {
		t.Errorf("error %v, want the cause", err)
	}
}

// TestCancelledGate cancels a gate that ends well all the same.
func TestCancelledGate(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain")
	works(t, c)
	reason := errors.New("no more interest")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(reason) })
	if _, err := c.Gate(ctx, zoo.GateRequest{Dir: "late"}); !errors.Is(err, reason) {
		t.Errorf("error %v, want the cause", err)
	}
}

// exists reports whether there is such a file.
func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain")
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			works(t, c)
			p, err := c.Run(t.Context(), zoo.RunRequest{Pack: zoo.PackInfo{Config: make([]byte, i+1)}})
			if err != nil || p.Context != i+1 {
				t.Errorf("run %d: %+v, %v", i, p, err)
			}
			dir, err := do(t.Context(), t, c, "progress")
			if err != nil {
				t.Error(err)
			}
			word(t, dir, "pid")
		})
	}
	group.Wait()
}

// TestTwoHosts runs two clients of one program.
func TestTwoHosts(t *testing.T) {
	t.Parallel()
	a, _ := start(t, "plain")
	b, _ := start(t, "plain")
	of, err := do(t.Context(), t, a, "")
	if err != nil {
		t.Fatal(err)
	}
	other, err := do(t.Context(), t, b, "")
	if err != nil || word(t, of, "pid") == word(t, other, "pid") {
		t.Errorf("both have one process, or %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	works(t, b)
}

func TestPrinting(t *testing.T) {
	t.Parallel()
	c, log := start(t, "noisy")
	if _, err := do(t.Context(), t, c, "print"); err != nil {
		t.Fatal(err)
	}
	works(t, c)
	for _, want := range []string{
		`level=DEBUG msg="a line before the handshake"`, `level=DEBUG msg="line 1999 of much noise"`,
		`level=INFO msg="printed to standard error"`, `level=WARN msg="said to the logger" plugin=`, "count=3",
	} {
		// What is printed does not wait for the call that it belongs to.
		for i := 0; !strings.Contains(log.String(), want); i++ {
			if i == 12_000 {
				t.Fatalf("the log lacks %q", want)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// TestEnvironment checks that nothing reaches a plugin but what it needs.
func TestEnvironment(t *testing.T) {
	for _, name := range []string{"HF_TOKEN", "HF_ENDPOINT", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "ZOO_HOME", "HTTPS_PROXY"} {
		t.Setenv(name, "very-secret")
	}
	t.Setenv("LC_ALL", "C.UTF-8")
	t.Setenv("GOMAXPROCS", "2")
	c, _ := start(t, "plain")
	dir, err := do(t.Context(), t, c, "environment")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?s)-----BEGIN CERTIFICATE.*END CERTIFICATE-----`).ReplaceAllString(word(t, dir, "environment"), "certificate")
	if strings.Contains(text, "very-secret") {
		t.Errorf("the plugin has\n%s", text)
	}
	allowed := map[string]bool{roleVariable: true, "GORACE": true, rpc.Handshake.MagicCookieKey: true}
	for name := range strings.FieldsSeq("TMPDIR TMP TEMP LANG LANGUAGE TZ GOMAXPROCS GOTRACEBACK SYSTEMROOT WINDIR") {
		allowed[name] = true
	}
	got := map[string]bool{}
	for line := range strings.SplitSeq(text, "\n") {
		name, _, ok := strings.Cut(line, "=")
		if !ok {
			continue // the end of the certificate
		}
		got[name] = true
		if !allowed[name] && !strings.HasPrefix(name, "LC_") && !strings.HasPrefix(name, "PLUGIN_") {
			t.Errorf("the plugin has %s", line)
		}
	}
	if !got["LC_ALL"] || !got["GOMAXPROCS"] || !got["TMPDIR"] {
		t.Errorf("the plugin lacks what it needs:\n%s", text)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain")
	ended := make(chan error)
	dir := t.TempDir()
	go func() {
		_, err := c.Convert(t.Context(), zoo.ConvertRequest{Dir: dir, Recipe: map[string]string{"do": "wait"}})
		ended <- err
	}()
	word(t, dir, "pid")
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	closed := func(what string, err error) {
		t.Helper()
		var want *rpc.ClosedError
		if !errors.As(err, &want) || !errors.Is(err, zoo.ErrUsage) || zoo.Hint(err) != "" {
			t.Errorf("%s: %v with hint %q", what, err, zoo.Hint(err))
		}
	}
	closed("a call that went on", <-ended)
	_, err := c.Describe(t.Context())
	closed("describe after close", err)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	starting, _ := start(t, "silent", func(o *rpc.Options) { o.StopTimeout = 100 * time.Millisecond })
	go func() {
		_, err := starting.Describe(t.Context())
		ended <- err
	}()
	for errors.Is(starting.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		time.Sleep(time.Millisecond)
	}
	_ = starting.Close()
	closed("a call that waited for the start", <-ended)
	unused := rpc.New(rpc.Options{})
	if err := unused.Close(); err != nil {
		t.Error(err)
	}
}

// TestByHand starts a plugin like any other program.
func TestByHand(t *testing.T) {
	t.Parallel()
	code, text := byHand(t, "plain")
	if code != 1 || !strings.Contains(text, "plugin of zoo") {
		t.Errorf("exit status %d, text %q", code, text)
	}
}
