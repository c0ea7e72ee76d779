package plugintest_test

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
	"github.com/zoo-sdk/zoo/plugins/gemma4e4b"
	"github.com/zoo-sdk/zoo/plugins/plugintest"
	"github.com/zoo-sdk/zoo/plugins/rpc"
	"github.com/zoo-sdk/zoo/zoo"
)

const (
	// roleVariable says which plugin the test binary is when it is started as one.
	roleVariable = "ZOO_PLUGINTEST_ROLE"
	// markVariable is a file that a plugin leaves behind which can be started once.
	markVariable = "ZOO_PLUGINTEST_MARK"
	// offeredVariable is by which a plugin is told the versions of the protocol that the host speaks.
	offeredVariable = "PLUGIN_PROTOCOL_VERSIONS"
)

// roles lists the plugins that the test binary can be, beside those that break a rule.
func roles() map[string]zoo.Plugin {
	return map[string]zoo.Plugin{
		"e2b": gemma4e2b.New(), "e4b": gemma4e4b.New(), "sound": sound{}, "once": sound{}, "parrot": sound{}, "narrow": sound{}, "reader": reader(), "exits": exits(),
	}
}

// TestMain runs the tests, or is a plugin that they start.
func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	p, ok := roles()[role]
	switch role {
	case "":
		os.Exit(m.Run())
	case "once": // does not clean up after itself, and stumbles over what it has left
		mark, err := os.OpenFile(os.Getenv(markVariable), os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_ = mark.Close()
	case "parrot": // says that it speaks whatever it is asked for
		repeat(os.Getenv(offeredVariable))
	case "narrow": // understands no list
		if os.Getenv(offeredVariable) != strconv.Itoa(rpc.Protocol) {
			os.Exit(1)
		}
	default:
		if !ok {
			rule, name, _ := strings.Cut(role, "/")
			p = wrongs()[plugintest.Rule(rule)][name].plugin
		}
	}
	rpc.Serve(p)
}

// repeat has the program say that it speaks the first of the versions that the host does.
func repeat(offered string) {
	version, _, _ := strings.Cut(offered, ",")
	stdout := os.Stdout
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	os.Stdout = w
	go func() {
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			line := strings.Replace(lines.Text(), fmt.Sprintf("1|%d|", rpc.Protocol), "1|"+version+"|", 1)
			_, _ = fmt.Fprintln(stdout, line)
		}
	}()
}

// client starts a plugin in a process of its own.
func client(t testing.TB, role string, env ...string) (zoo.Plugin, *plugintest.Process) {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func(o rpc.Options) *rpc.Client {
		o.Path, o.Logger, o.HangTimeout, o.StopTimeout = path, slog.New(slog.DiscardHandler), 2*time.Second, 5*time.Second
		o.Env = slices.Concat(env, o.Env, []string{roleVariable + "=" + role, "GORACE=atexit_sleep_ms=0"})
		c := rpc.New(o)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	c := start(rpc.Options{})
	signal := func(s os.Signal) func() error {
		if s == nil {
			return nil
		}
		return func() error {
			if err := c.Signal(s); !errors.Is(err, os.ErrProcessDone) {
				return err
			}
			return nil
		}
	}
	another := func(o rpc.Options) (zoo.Plugin, func() error, error) {
		c := start(o)
		p, err := c.Resolve(t.Context())
		return p, c.Close, err
	}
	var confine func(memoryBytes int64) (zoo.Plugin, func() error, error)
	if runtime.GOOS == "linux" {
		confine = func(memoryBytes int64) (zoo.Plugin, func() error, error) {
			return another(rpc.Options{Limits: rpc.Limits{MemoryBytes: memoryBytes}})
		}
	}
	return c, &plugintest.Process{
		Kill: signal(os.Kill), Pause: signal(pause), Running: c.Running,
		Start:   func(env ...string) (zoo.Plugin, func() error, error) { return another(rpc.Options{Env: env}) },
		Confine: confine,
		Skewed:  start(rpc.Options{Protocols: []int{rpc.Protocol + 1}}), Newer: start(rpc.Options{Protocols: []int{rpc.Protocol + 1, rpc.Protocol}}),
	}
}

// TestPlugins holds the plugins of this module to the contract, in this process and in one of their own.
func TestPlugins(t *testing.T) {
	testdata := filepath.Join("..", "gemma4", "testdata")
	for _, tt := range []struct{ role, checkpoint, reference string }{
		{"e2b", "e2b-tiny", "e2b-tiny"},
		{"e4b", "e4b-tiny", "e4b-tiny"},
	} {
		o := plugintest.Options{Checkpoint: filepath.Join(testdata, tt.checkpoint), Reference: filepath.Join(testdata, tt.reference), Backend: cpu.New("")}
		if testing.Short() && tt.role != "e4b" {
			continue
		}
		if tt.role == "e4b" {
			o.Recipe = map[string]string{"grid": "none"}
		}
		t.Run(tt.role, func(t *testing.T) {
			o := o
			o.Dir = t.TempDir()
			if err := plugintest.Test(t.Context(), roles()[tt.role], o); err != nil {
				t.Error(err)
			}
		})
		t.Run(tt.role+" in a process", func(t *testing.T) {
			t.Parallel()
			o := o
			o.Dir = t.TempDir()
			var p zoo.Plugin
			p, o.Process = client(t, tt.role)
			if err := plugintest.Test(t.Context(), p, o); err != nil {
				t.Error(err)
			}
		})
	}
}
