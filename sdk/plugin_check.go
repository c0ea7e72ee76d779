package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/plugins/plugintest"
	"github.com/zoo-sdk/zoo/plugins/rpc"
	"github.com/zoo-sdk/zoo/zoo"
)

const (
	// checkHang is how long a plugin under check may hang before it is killed: less than
	// usual, since the check lets it hang.
	checkHang = 2 * time.Second
	// checkStop is how long a cancelled call may take to end before the process is killed:
	// longer than usual, since that is found fault with.
	checkStop = 5 * time.Second
	// checkBackend is the backend on which programs are tried.
	checkBackend = "cpu"
)

// PluginCheck says what a plugin is checked with.
type PluginCheck struct {
	// Checkpoint is the folder of a small checkpoint, which is converted dozens of times.
	// Without one only that is checked which needs none.
	Checkpoint string
	// Recipe is the recipe of its conversion.
	Recipe map[string]string
	// Reference is a folder of reference values of the checkpoint, or "".
	Reference string
	// Begin, if set, is told each part of the check when it begins.
	Begin func(part string)
}

// PluginReport is what [Zoo.CheckPlugin] found.
type PluginReport struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Title   string `json:"title"`
	// SHA256 is the digest of the program.
	SHA256 string `json:"sha256"`
	// Parts are those that were checked.
	Parts []string `json:"parts"`
	// Findings are the ways in which the plugin differs from the contract.
	Findings []PluginFinding `json:"findings"`
}

// PluginFinding is one way in which a plugin differs from the contract of package
// plugintest.
type PluginFinding struct {
	// Rule is what was broken, Call the method that broke it, and with what.
	Rule string `json:"rule"`
	Call string `json:"call"`
	// Problem says how.
	Problem string `json:"problem"`
}

// CheckPlugin holds the plugin in a file to the contract of package plugintest: every
// call, with a checkpoint and with what it must refuse, through a process that is killed
// and stopped meanwhile. The error is for what kept it from being checked; what is wrong
// with the plugin is in the report. Nothing of the store is touched.
func (z *Zoo) CheckPlugin(ctx context.Context, file string, o PluginCheck) (*PluginReport, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	if err := checkProgram(file); err != nil {
		return nil, err
	}
	_, sum, err := hashFile(ctx, file, func(int64) {})
	if err != nil {
		return nil, err
	}
	about, err := z.ask(ctx, file, sum)
	if err != nil {
		return nil, err
	}
	report := &PluginReport{Name: about.Name, Version: about.Version, Title: about.Title, SHA256: sum, Parts: []string{}, Findings: []PluginFinding{}}
	start := func(o rpc.Options) *rpc.Client {
		o.Path, o.SHA256, o.Logger, o.HangTimeout, o.StopTimeout = file, sum, z.set.logger, checkHang, checkStop
		return rpc.New(o)
	}
	another := func(o rpc.Options) (zoo.Plugin, func() error, error) {
		c := start(o)
		p, err := c.Resolve(ctx)
		return p, c.Close, err
	}
	var confine func(memoryBytes int64) (zoo.Plugin, func() error, error)
	if runtime.GOOS == "linux" { // elsewhere processes have no such limit
		confine = func(memoryBytes int64) (zoo.Plugin, func() error, error) {
			return another(rpc.Options{Limits: rpc.Limits{MemoryBytes: memoryBytes}})
		}
	}
	client, skewed := start(rpc.Options{}), start(rpc.Options{Protocols: []int{rpc.Protocol + 1}})
	newer := start(rpc.Options{Protocols: []int{rpc.Protocol + 1, rpc.Protocol}})
	defer client.Close()
	defer skewed.Close()
	defer newer.Close()
	send := func(s os.Signal) func() error {
		if s == nil {
			return nil
		}
		return func() error {
			if err := client.Signal(s); !errors.Is(err, os.ErrProcessDone) {
				return err
			}
			return nil
		}
	}
	err = plugintest.Test(ctx, client, plugintest.Options{
		Checkpoint: o.Checkpoint, Recipe: o.Recipe, Reference: o.Reference, Backend: z.named(checkBackend),
		Process: &plugintest.Process{
			Kill: send(os.Kill), Pause: send(pauseSignal), Running: client.Running, Skewed: skewed, Newer: newer,
			Start:   func(env ...string) (zoo.Plugin, func() error, error) { return another(rpc.Options{Env: env}) },
			Confine: confine,
		},
		Part: func(part string) bool {
			report.Parts = append(report.Parts, part)
			if o.Begin != nil {
				o.Begin(part)
			}
			return true
		},
	})
	for _, f := range plugintest.Findings(err) {
		report.Findings = append(report.Findings, PluginFinding{Rule: string(f.Rule), Call: f.Call, Problem: f.Err.Error()})
	}
	if context.Cause(ctx) != nil {
		return nil, context.Cause(ctx)
	}
	if err := obstacle(err); err != nil {
		return nil, fmt.Errorf("check of %q: %w", file, err)
	}
	return report, nil
}

// obstacle returns what an error of the suite holds beside findings, or nil.
func obstacle(err error) error {
	if err == nil || len(plugintest.Findings(err)) == 0 {
		return err
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if e := obstacle(e); e != nil {
				return e
			}
		}
	}
	return nil
}

// named returns the backend of a name, or nil.
func (z *Zoo) named(name string) backends.Backend {
	i := slices.IndexFunc(z.backends, func(b backends.Backend) bool { return b.Name() == name })
	if i < 0 {
		return nil
	}
	return z.backends[i]
}
