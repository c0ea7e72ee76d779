package plugintest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
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
	// pidVariable is the file into which it writes its process id.
	pidVariable = "ZOO_PLUGINTEST_PID"
)

// roles lists the plugins that the test binary can be.
func roles() map[string]zoo.Plugin {
	return map[string]zoo.Plugin{"e2b": gemma4e2b.New(), "e4b": gemma4e4b.New()}
}

// TestMain runs the tests, or is a plugin that they start.
func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	switch role {
	case "":
		os.Exit(m.Run())
	case "future": // says that it speaks a version of the protocol that nobody knows
		fmt.Println("1|99|unix|/nowhere|grpc|x")
		select {}
	}
	if path := os.Getenv(pidVariable); path != "" {
		part := path + ".new"
		if err := errors.Join(os.WriteFile(part, []byte(strconv.Itoa(os.Getpid())), 0o600), os.Rename(part, path)); err != nil {
			panic(err)
		}
	}
	rpc.Serve(roles()[role])
}

// options are those of a client whose plugin is the test binary.
func options(t testing.TB, role string, env ...string) rpc.Options {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return rpc.Options{
		Path: path, Env: append(env, roleVariable+"="+role, "GORACE=atexit_sleep_ms=0"),
		Logger: slog.New(slog.DiscardHandler), HangTimeout: 2 * time.Second, StopTimeout: time.Second,
	}
}

// client starts a plugin in a process of its own.
func client(t testing.TB, role string) (zoo.Plugin, *plugintest.Process) {
	t.Helper()
	pid := filepath.Join(t.TempDir(), "pid")
	start := func(env ...string) (zoo.Plugin, func() error, error) {
		c := rpc.New(options(t, role, env...))
		p, err := c.Resolve(t.Context())
		return p, c.Close, err
	}
	find := func() (*os.Process, error) {
		data, err := os.ReadFile(pid)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, os.ErrProcessDone
		}
		if err != nil {
			return nil, err
		}
		id, err := strconv.Atoi(string(data))
		if err != nil {
			return nil, err
		}
		return os.FindProcess(id)
	}
	signal := func(s os.Signal) func() error {
		if s == nil {
			return nil
		}
		return func() error {
			p, err := find()
			if err == nil {
				err = p.Signal(s)
			}
			if errors.Is(err, os.ErrProcessDone) {
				return nil
			}
			return err
		}
	}
	p := rpc.New(options(t, role, pidVariable+"="+pid))
	skewed := rpc.New(options(t, "future"))
	t.Cleanup(func() { _, _ = p.Close(), skewed.Close() })
	return p, &plugintest.Process{Kill: signal(os.Kill), Pause: signal(pause), Start: start, Skewed: skewed}
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
