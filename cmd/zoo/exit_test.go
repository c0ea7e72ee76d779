package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/chat"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// codes lists every exported sentinel of the module with its exit code.
var codes = map[string]struct {
	err  error
	code int
}{
	"zoo.ErrUsage":         {zoo.ErrUsage, exitUsage},
	"zoo.ErrNotFound":      {zoo.ErrNotFound, exitNotFound},
	"zoo.ErrIntegrity":     {zoo.ErrIntegrity, exitIntegrity},
	"zoo.ErrGateFailed":    {zoo.ErrGateFailed, exitGateFailed},
	"zoo.ErrNetwork":       {zoo.ErrNetwork, exitNetwork},
	"zoo.ErrNoSpace":       {zoo.ErrNoSpace, exitNoSpace},
	"zoo.ErrNotPermitted":  {zoo.ErrNotPermitted, exitNotPermitted},
	"sdk.ErrClosed":        {sdk.ErrClosed, exitUsage},
	"sdk.ErrBusy":          {sdk.ErrBusy, exitUsage},
	"engine.ErrEmpty":      {engine.ErrEmpty, exitUsage},
	"engine.ErrClosed":     {engine.ErrClosed, exitOther},
	"engine.ErrLogits":     {engine.ErrLogits, exitOther},
	"engine.ErrNoLogits":   {engine.ErrNoLogits, exitUsage},
	"backends.ErrTruncate": {backends.ErrTruncate, exitUsage},
	"backends.ErrLogits":   {backends.ErrLogits, exitOther},
	"metal.ErrNoDevice":    {metal.ErrNoDevice, exitNotFound},
	"backends.ErrMemory":   {backends.ErrMemory, exitUsage},
	"metal.ErrMemory":      {metal.ErrMemory, exitOther},
	"metal.ErrKernel":      {metal.ErrKernel, exitOther},
	"metal.ErrDevice":      {metal.ErrDevice, exitOther},
	"chat.ErrLimit":        {chat.ErrLimit, exitIntegrity},
	"program.ErrProgram":   {program.ErrProgram, exitIntegrity},
	"quant.ErrFormat":      {quant.ErrFormat, exitOther},
}

func TestEverySentinelReachesItsExitCode(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir() && path != root && (name == "internal" || name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.VAR {
				continue
			}
			for _, spec := range group.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					if strings.HasPrefix(name.Name, "Err") {
						found[file.Name.Name+"."+name.Name] = true
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range found {
		if _, ok := codes[name]; !ok {
			t.Errorf("%s is exported: say here which exit code it has", name)
		}
	}
	used := map[int]bool{}
	for name, want := range codes {
		if !found[name] {
			t.Errorf("%s is not exported any more", name)
		}
		used[want.code] = true
		for _, err := range []error{want.err, fmt.Errorf("while at work: %w", want.err), errors.Join(errors.New("first"), want.err)} {
			if got := exitCode(err); got != want.code {
				t.Errorf("%s: %v has exit code %d, want %d", name, err, got, want.code)
			}
		}
	}
	for code := exitOther; code <= exitNotPermitted; code++ {
		if !used[code] {
			t.Errorf("nothing has exit code %d", code)
		}
	}
	if exitCode(nil) != 0 || exitCode(errInterrupted) != 130 || exitCode(errors.New("x")) != 1 {
		t.Error("done, interrupted or other have another exit code")
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err    error
		colour bool
		want   string
	}{
		{nil, false, ""},
		{errInterrupted, false, "interrupted\n"},
		{fmt.Errorf("%w: a context of -1 tokens", zoo.ErrUsage), false, "error: a context of -1 tokens\n"},
		{&usageError{"no", "say yes"}, false, "error: no\nhint: say yes\n"},
		{fmt.Errorf("run: %w", &usageError{"no", "say yes"}), true, "\x1b[1;31merror:\x1b[0m run: no\n\x1b[1;33mhint:\x1b[0m say yes\n"},
	} {
		var out bytes.Buffer
		a := &app{streams: streams{err: &out}, colour: test.colour}
		a.report(test.err)
		if out.String() != test.want {
			t.Errorf("%v: %q, want %q", test.err, out.String(), test.want)
		}
	}
}

// Standard output that cannot be written is an error, not a success.
func TestBrokenOutput(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no device that is always full")
	}
	defer full.Close()
	for _, args := range [][]string{{"version"}, {"list", "--json"}, {"list"}, {"doctor"}} {
		var stderr bytes.Buffer
		args = append(args, "--home", t.TempDir())
		if code := run(args, streams{in: strings.NewReader(""), out: full, err: &stderr}); code == 0 || !strings.Contains(stderr.String(), "cannot write the output") {
			t.Errorf("%q: exit code %d, %s", args, code, stderr.String())
		}
	}
}
