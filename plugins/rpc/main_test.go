package rpc_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
	"github.com/zoo-sdk/zoo/plugins/rpc"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// roleVariable says what the test binary is when it is started as a plugin.
const roleVariable = "ZOO_RPC_TEST_ROLE"

// TestMain runs the tests, or is one of the programs that they start.
func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	serve, ok := roles()[role]
	if !ok {
		panic("no role " + role)
	}
	serve()
}

// roles lists the programs that the test binary can be.
func roles() map[string]func() {
	all := map[string]func(){
		"plain":       func() { rpc.Serve(plain{}) },
		"synthesizer": func() { rpc.Serve(synthesizing{}) },
		"estimator":   func() { rpc.Serve(estimating{}) },
		"full":        func() { rpc.Serve(full{}) },
		"e2b":         func() { rpc.Serve(gemma4e2b.New()) },
		"noisy": func() {
			fmt.Println("a line before the handshake")
			fmt.Println("1|2")
			rpc.Serve(plain{})
		},
		"clinging": func() { // does not notice that its host is gone
			stdin, _, err := os.Pipe()
			if err != nil {
				panic(err)
			}
			os.Stdin = stdin
			rpc.Serve(plain{})
		},
		"ends":   func() { fmt.Fprintln(os.Stderr, "no such option"); os.Exit(3) },
		"silent": func() { time.Sleep(time.Minute) },
		"floods": func() {
			w := bufio.NewWriter(os.Stdout)
			for {
				if _, err := fmt.Fprintln(w, strings.Repeat("y", 100)); err != nil {
					return
				}
			}
		},
	}
	maps.Copy(all, badHandshakes())
	maps.Copy(all, badServers())
	all["liar"], all[hostRole] = serveLies, beHost
	return all
}

// plain is a plugin that does what the recipe or the model in a request names.
type plain struct{}

// about is what plain says of itself.
var about = zoo.Description{Name: "plain", Version: "1.2.3", Title: "A plugin of tests", Operations: program.Version}

// Describe implements zoo.Plugin.
func (plain) Describe(ctx context.Context) (zoo.Description, error) {
	return about, context.Cause(ctx)
}

// Fetch implements zoo.Plugin: it returns the files of the release, or fails as told, and
// leaves the release in the folder.
func (plain) Fetch(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
	if err, ok := failures()[req.Release.Model]; ok {
		return zoo.FetchPlan{}, err
	}
	if req.Dir != "" {
		text, err := json.Marshal(req.Release)
		if err := errors.Join(err, os.WriteFile(filepath.Join(req.Dir, "release"), text, 0o600)); err != nil {
			return zoo.FetchPlan{}, err
		}
	}
	files := append(slices.Clone(req.Release.Source.Files), catalog.File{Path: "told/" + req.Release.Recipe["path"]})
	return zoo.FetchPlan{Files: files}, nil
}

// Convert implements zoo.Plugin: it does what recipe["do"] says, and leaves word in the folder.
func (plain) Convert(ctx context.Context, req zoo.ConvertRequest) (zoo.Conversion, error) {
	note := func(name, text string) error {
		part := filepath.Join(req.Dir, name+".tmp")
		return errors.Join(os.WriteFile(part, []byte(text), 0o600), os.Rename(part, filepath.Join(req.Dir, name)))
	}
	if err := note("pid", strconv.Itoa(os.Getpid())); err != nil {
		return zoo.Conversion{}, err
	}
	switch req.Recipe["do"] {
	case "panic":
		panic("out of ideas")
	case "crash":
		slog.Info("about to crash", "in", "a goroutine")
		go func() { panic("in a goroutine") }()
		select {}
	case "recover": // long before the crash
		fmt.Fprintln(os.Stderr, "panic: not that bad")
		fmt.Fprintln(os.Stderr, "goroutine 1 [running]:")
		for i := range 50 {
			slog.Info("a harmless line", "count", i)
		}
		if req.Recipe["then"] == "exit" {
			os.Exit(3)
		}
		go func() { panic("too bad") }()
		select {}
	case "exit":
		fmt.Fprintln(os.Stderr, "that was it")
		os.Exit(7)
	case "break off":
		fmt.Print("that was")
		fmt.Fprint(os.Stderr, "that was it")
		os.Exit(7)
	case "goexit":
		runtime.Goexit()
	case "recurse":
		return recurse(req, 60)
	case "wait": // for the end of the context, and some time more
		<-ctx.Done()
		time.Sleep(20 * time.Millisecond)
		return zoo.Conversion{}, errors.Join(context.Cause(ctx), note("stopped", ""))
	case "deaf": // to the end of the context
		for i := 0; ; i++ {
			if err := note("count", strconv.Itoa(i)); err != nil {
				return zoo.Conversion{}, err
			}
			time.Sleep(time.Millisecond)
		}
	case "progress":
		for i := range int64(1000) {
			req.Progress(i+1, 1000)
			if i%100 == 0 {
				time.Sleep(20 * time.Millisecond)
			}
		}
	case "back": // progress that goes back, once the host has heard of some
		for _, n := range []int64{5, 3, 11, -1, 7} {
			req.Progress(n, 10)
			for !exists(filepath.Join(req.Dir, "heard")) {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(120 * time.Millisecond)
		}
	case "records":
		for _, line := range records {
			fmt.Fprintln(os.Stderr, line)
		}
		return zoo.Conversion{}, nil
	case "flood":
		for i := range 20_000 {
			slog.Error("trouble", "count", i)
		}
		return zoo.Conversion{}, nil
	case "answer at length":
		return zoo.Conversion{Rounding: slices.Repeat([]zoo.RoundingError{{Problem: strings.Repeat("x", 16<<10)}}, 500)}, nil
	case "answer with other bytes":
		return zoo.Conversion{Rounding: []zoo.RoundingError{{Family: "\xff"}}}, nil
	case "environment":
		return zoo.Conversion{}, note("environment", strings.Join(os.Environ(), "\n"))
	case "print":
		for i := range 2000 {
			fmt.Printf("line %d of much noise\n", i)
		}
		fmt.Print(strings.Repeat("x", 100_000), "\n")
		fmt.Fprintln(os.Stderr, "printed to standard error")
		slog.Warn("said to the logger", "count", 3)
		return zoo.Conversion{}, nil
	case "family", "daemon": // has a child that outlives it
		cmd := exec.Command(os.Args[0])
		if req.Recipe["do"] == "daemon" {
			leave(cmd)
		}
		cmd.Env = []string{roleVariable + "=silent"}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			return zoo.Conversion{}, err
		}
		return zoo.Conversion{}, note("child", strconv.Itoa(cmd.Process.Pid))
	case "interrupt":
		p, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = p.Signal(os.Interrupt)
		}
		time.Sleep(50 * time.Millisecond)
		return zoo.Conversion{}, err
	case "allocate":
		var all [][]byte
		for range 64 {
			all = append(all, make([]byte, 64<<20))
		}
		return zoo.Conversion{}, note("allocated", strconv.Itoa(len(all)))
	case "limits":
		return zoo.Conversion{}, note("limits", limits())
	}
	return zoo.Conversion{Rounding: rounding(req)}, nil
}

// recurse panics n calls deeper.
func recurse(req zoo.ConvertRequest, n int) (zoo.Conversion, error) {
	if n == 0 {
		panic("too deep")
	}
	return recurse(req, n-1)
}

// rounding makes an answer out of the whole request.
func rounding(req zoo.ConvertRequest) []zoo.RoundingError {
	return []zoo.RoundingError{
		{Family: filepath.Base(req.Checkpoint), Grid: req.Recipe["grid"], Tensors: len(req.Sources), Numbers: 1 << 40, RelL2: 0.25, MaxAbs: 1e-9},
		{Family: fmt.Sprint(req.Report, req.Progress != nil), Problem: "a number that it cannot hold"},
	}
}

// Gate implements zoo.Plugin. In the folder "late" it ends after it was cancelled, and well.
func (plain) Gate(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error) {
	if filepath.Base(req.Dir) == "late" {
		<-ctx.Done()
	}
	return reference(filepath.Base(req.Dir)), nil
}

// reference makes reference values, some of which need several frames.
func reference(name string) *zoo.Reference {
	run := func(prompt, greedy, vocabulary int) zoo.ReferenceRun {
		r := zoo.ReferenceRun{}
		number := func(i int) float32 { return float32(i%1013)/7 - 50 }
		for i := range prompt {
			r.Prompt = append(r.Prompt, int32(i*i))
			if vocabulary > 0 {
				row := make([]float32, vocabulary)
				for j := range row {
					row[j] = number(i + j)
				}
				r.PromptLogits = append(r.PromptLogits, row)
			}
		}
		for i := range greedy {
			r.Greedy, r.Margin = append(r.Greedy, int32(1000-i)), append(r.Margin, float32(i)/3)
		}
		for j := range vocabulary {
			r.LastLogits = append(r.LastLogits, number(-j))
		}
		return r
	}
	last := run(4, 2, 100)
	last.PromptLogits = nil
	ref := &zoo.Reference{Runs: []zoo.ReferenceRun{run(3, 5, rpc.LogitsFrame+17), run(7, 1, 0), run(2, 2, 3), last}, Prompts: []string{"Why?", name}}
	for i := range 3000 {
		ref.Questions = append(ref.Questions, zoo.Question{Question: strings.Repeat("q", i%700), Expected: strconv.Itoa(i), Reference: "r"})
	}
	return ref
}

// Run implements zoo.Plugin: the context of the program is the length of the configuration.
func (plain) Run(_ context.Context, req zoo.RunRequest) (*program.Program, error) {
	p := tiny()
	p.Context = len(req.Pack.Config)
	if m := req.Pack.Manifest; m != nil {
		p.Weights[0].Name = fmt.Sprint(m.Plugin.Name, m.Constants["one"])
	}
	return p, nil
}

// tiny is about the smallest program there is.
func tiny() *program.Program {
	return &program.Program{
		Version: program.Version, Vocab: 16, TokenLimit: 16, Context: 8,
		Weights: []program.Weight{
			{Name: "table", Matrix: quant.Matrix{Format: quant.F32, Layout: quant.Rows, Rows: 16, Cols: 16}},
		},
		Buffers: []program.Buffer{{Name: "state", Cols: 16}},
		Ops: []program.Op{
			{Embed: &program.Embed{Table: 0, Out: 0, Mul: 1}},
			{Softcap: &program.Softcap{Buffer: 0, Cap: 30}},
			{Select: &program.Select{Buffers: []program.BufferID{0}}},
		},
		Layers: []program.Layer{{First: 1, End: 2}},
	}
}

// synthesizer is the optional part of a plugin.
type synthesizer struct{}

// Synthesize implements zoo.Synthesizer.
func (synthesizer) Synthesize(_ context.Context, req zoo.SynthesizeRequest) error {
	if req.Progress != nil {
		req.Progress(1, 2)
	}
	return os.WriteFile(filepath.Join(req.Dir, "synthetic"), []byte(req.Model), 0o600)
}

// estimator is the other optional part.
type estimator struct{}

// Estimate implements zoo.Estimator.
func (estimator) Estimate(_ context.Context, req zoo.EstimateRequest) (zoo.Estimate, error) {
	return zoo.Estimate{PackBytes: req.Sources[0].SizeBytes, Program: tiny(), Assumptions: []string{req.Release.Licence.SPDX, string(req.Config)}}, nil
}

// Plugins with the optional parts.
type (
	synthesizing struct {
		plain
		synthesizer
	}
	estimating struct {
		plain
		estimator
	}
	full struct {
		plain
		synthesizer
		estimator
	}
)

// logs is a logger's output, by whole records.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns what has been logged.
func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// options are those of a client whose plugin is the test binary in a role.
func options(t testing.TB, role string, log io.Writer) rpc.Options {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return rpc.Options{
		Path:         path,
		Env:          []string{roleVariable + "=" + role, "GORACE=atexit_sleep_ms=0"},
		Logger:       slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		StartTimeout: time.Minute,
		StopTimeout:  20 * time.Second,
	}
}

// start returns a client whose plugin is the test binary in a role.
func start(t testing.TB, role string, change ...func(*rpc.Options)) (*rpc.Client, *logs) {
	t.Helper()
	log := &logs{}
	o := options(t, role, log)
	for _, f := range change {
		f(&o)
	}
	c := rpc.New(o)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if strings.Contains(log.String(), "DATA RACE") {
			t.Error("the plugin has a data race")
		}
		if t.Failed() {
			t.Logf("the log of %s:\n%s", role, log)
		}
	})
	return c, log
}

// do makes the plugin do something in a folder, which is returned.
func do(ctx context.Context, t testing.TB, p zoo.Plugin, what string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	_, err := p.Convert(ctx, zoo.ConvertRequest{Dir: dir, Recipe: map[string]string{"do": what}, Progress: func(int64, int64) {}})
	return dir, err
}

// word waits for what a plugin leaves in a folder.
func word(t testing.TB, dir, name string) string {
	t.Helper()
	for range 12_000 {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return string(text)
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("no word of %s", name)
	return ""
}

// works checks that a client can be called.
func works(t testing.TB, c *rpc.Client) {
	t.Helper()
	if got, err := c.Describe(t.Context()); err != nil || got != about {
		t.Errorf("describe: %+v, %v", got, err)
	}
}
