package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/sdk"
)

var update = flag.Bool("update", false, "rewrite what scripts compare with")

func TestMain(m *testing.M) {
	testscript.Main(cleaned{m}, map[string]func(){"zoo": main, "minisign": minisignProgram})
}

// cleaned removes the shared store after all tests.
type cleaned struct{ m *testing.M }

func (c cleaned) Run() int {
	code := c.m.Run()
	if dir, _ := sharedStore(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	if pluginsDir != "" {
		_ = os.RemoveAll(pluginsDir)
	}
	return code
}

// sharedStore is a store in which the demo is installed. Scripts copy it, since
// converting and gating take seconds.
var sharedStore = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "zoo-cmd-test-")
	if err != nil {
		return "", err
	}
	z, err := sdk.New(sdk.WithHome(dir), sdk.WithOffline())
	if err != nil {
		return "", err
	}
	_, err = z.Pull(context.Background(), "demo")
	return dir, err
})

// TestScripts runs testdata/script. Beside the usual commands there are
//
//	exits N zoo ARG...      run and compare the exit code
//	installed               put the demo into the store
//	checkpoint DIR          write the demo's source files into a folder
//	flip FILE OFFSET        invert a bit of the file that a pattern names
//	rewrite FILE RE TEXT TO write FILE with the first match of an expression replaced to TO
//	await FILE BYTES        wait until a file that a pattern names has this size
//	floats DIR              copy a small checkpoint of floats, in shards, to DIR
//	plugins                 put the plugins tinyfam-VERSION of pluginVersions, and catalogs of them, into the folder
//	key FILE                set KEY to the public key in a file of minisign, which can be run
//	guide FILE              do what the shell blocks of a page of documentation say
//	hub MODE                serve the demo as hub/demo at HF_ENDPOINT; see fakeHub
//	asked TEXT              the hub was asked for something with this in it
//	nobody zoo ARG...       run as a user who may not write the store; exits 8 if negated
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("ZOO_HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("HF_HOME", filepath.Join(env.WorkDir, "hf"))
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
			env.Setenv("XDG_DATA_HOME", filepath.Join(env.WorkDir, "data"))
			// Under the race detector a program waits a second before it ends.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			if runtime.GOOS == "darwin" {
				// Whether there is a GPU, and how it works, is not what scripts are about.
				env.Setenv("ZOO_BACKEND", "cpu")
			}
			env.Values[hubKey{}] = &fakeHub{}
			return shortTemp(env)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":      exitsCommand,
			"installed":  installedCommand,
			"checkpoint": checkpointCommand,
			"floats":     floatsCommand,
			"flip":       flipCommand,
			"rewrite":    rewriteCommand,
			"await":      awaitCommand,
			"plugins":    pluginsCommand,
			"key":        keyCommand,
			"guide":      guideCommand,
			"hub":        hubCommand,
			"asked":      askedCommand,
			"nobody":     nobodyCommand,
		},
		Condition: func(name string) (bool, error) {
			if name == "nobody" {
				return canBeNobody, nil
			}
			return false, fmt.Errorf("no condition is named %q", name)
		},
	})
}

// shortTemp gives a script a temporary folder right below the system's, in place of one in
// its own folder: a plugin's socket is put there, and the path of that must be short. Where
// the system's is long itself, as it is on macOS, there is room for no more.
func shortTemp(env *testscript.Env) error {
	dir, err := os.MkdirTemp("", "z")
	if err != nil {
		return err
	}
	env.Defer(func() { _ = os.RemoveAll(dir) })
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		env.Setenv(name, dir)
	}
	return os.Chmod(dir, 0o777|fs.ModeSticky) // scripts run programs as another user, too
}

func exitsCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N command")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit interface{ ExitCode() int }
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func installedCommand(ts *testscript.TestScript, neg bool, args []string) {
	dir, err := sharedStore()
	ts.Check(err)
	ts.Check(os.CopyFS(ts.Getenv("ZOO_HOME"), os.DirFS(dir)))
}

// tinyFloats is a small checkpoint of floats, in shards.
var tinyFloats = filepath.Join("..", "..", "plugins", "gemma4", "testdata", "e4b-tiny")

func checkpointCommand(ts *testscript.TestScript, neg bool, args []string) {
	files, err := catalog.Embedded("demo")
	ts.Check(err)
	ts.Check(os.CopyFS(ts.MkAbs(args[0]), files))
}

func floatsCommand(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(os.CopyFS(ts.MkAbs(args[0]), os.DirFS(tinyFloats)))
}

// match returns the one file that a pattern names.
func match(ts *testscript.TestScript, pattern string) string {
	files, err := filepath.Glob(ts.MkAbs(pattern))
	ts.Check(err)
	if len(files) != 1 {
		ts.Fatalf("%q names %q", pattern, files)
	}
	return files[0]
}

func flipCommand(ts *testscript.TestScript, neg bool, args []string) {
	file := match(ts, args[0])
	offset, err := strconv.Atoi(args[1])
	ts.Check(err)
	data, err := os.ReadFile(file)
	ts.Check(err)
	data[offset] ^= 0x10
	info, err := os.Stat(file)
	ts.Check(err)
	ts.Check(os.Chmod(file, info.Mode()|0o200))
	ts.Check(os.WriteFile(file, data, 0o644))
	ts.Check(os.Chmod(file, info.Mode()))
}

func rewriteCommand(ts *testscript.TestScript, neg bool, args []string) {
	text := ts.ReadFile(args[0])
	at := regexp.MustCompile(args[1]).FindStringIndex(text)
	if at == nil {
		ts.Fatalf("%q does not match in\n%s", args[1], text)
	}
	file := ts.MkAbs(args[3])
	ts.Check(os.MkdirAll(filepath.Dir(file), 0o755))
	text = text[:at[0]] + strings.ReplaceAll(args[2], `\n`, "\n") + text[at[1]:]
	ts.Check(os.WriteFile(file, []byte(text), 0o644))
}

func awaitCommand(ts *testscript.TestScript, neg bool, args []string) {
	least, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	for range 2400 {
		files, err := filepath.Glob(ts.MkAbs(args[0]))
		ts.Check(err)
		for _, file := range files {
			if info, err := os.Stat(file); err == nil && info.Size() >= least {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	ts.Fatalf("%q does not appear", args[0])
}

func hubCommand(ts *testscript.TestScript, neg bool, args []string) {
	hub := ts.Value(hubKey{}).(*fakeHub)
	if hub.server == nil {
		files, err := catalog.Embedded("demo")
		ts.Check(err)
		hub.start(map[string]fs.FS{"hub/demo": files, shardedRepository: os.DirFS(tinyFloats), pluginRepository: plugins{}, guideRepository: os.DirFS(ts.MkAbs("acme"))})
		ts.Defer(hub.server.Close)
		ts.Setenv("HF_ENDPOINT", hub.server.URL)
		ts.Check(os.WriteFile(ts.MkAbs("catalog.yaml"), []byte(hubCatalog), 0o644))
	}
	hub.setMode(args[0])
}

func askedCommand(ts *testscript.TestScript, neg bool, args []string) {
	hub := ts.Value(hubKey{}).(*fakeHub)
	requests := hub.requests()
	found := strings.Contains(requests, args[0])
	if found == neg {
		ts.Fatalf("%q, found %v, in the requests\n%s", args[0], found, requests)
	}
}

// The scripts' binary and folders must be readable by another user.
func openUp(dir string) error {
	for filepath.Dir(dir) != dir {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o005 != 0o005 && strings.HasPrefix(dir, os.TempDir()) {
			if err := os.Chmod(dir, info.Mode().Perm()|0o055); err != nil {
				return err
			}
		}
		dir = filepath.Dir(dir)
	}
	return nil
}
