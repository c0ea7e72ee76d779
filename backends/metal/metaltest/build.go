//go:build linux

package metaltest

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/zoo-sdk/zoo/backends/metal"
)

//go:embed runner/*
var runnerFiles embed.FS

// language are the files of the runner that kernels include.
var language = []string{"abi.h", "atomic.h", "matrix.h", "metal.h", "simd.h"}

// library is kernels that are compiled.
type library struct {
	program string // the path of a runner for them
	kernels []kernel
	source  *source
}

// source is a source as it is compiled.
type source struct {
	text    string // as it was given
	code    string // as C++
	kernels []kernel
	slicer  *slicer
}

// read turns a text into a source.
func (c *compiler) read(ctx context.Context, dir, text string) (*source, error) {
	c.mu.Lock()
	known := c.sources[text]
	c.mu.Unlock()
	if known != nil {
		return known, nil
	}
	expanded, err := c.preprocess(ctx, dir, text)
	if err != nil {
		return nil, err
	}
	s := &source{text: text}
	if s.code, s.kernels, err = rewrite(expanded); err != nil {
		return nil, err
	}
	s.slicer = newSlicer(s.code)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources[text] = s
	return s, nil
}

// compilers limits how many compilers a process runs.
var compilers = make(chan struct{}, runtime.NumCPU())

// builder compiles a library.
type builder struct {
	*compiler
	options Options
	dir     string   // with the files of the runner
	all     []string // what every key depends on
}

// build compiles the named kernels of a source.
func (c *compiler) build(ctx context.Context, options Options, text string, names []string) (*library, error) {
	dir, err := os.MkdirTemp("", "zoo-metaltest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, runnerFiles); err != nil {
		return nil, err
	}
	b := &builder{c, options, filepath.Join(dir, "runner"), []string{c.path, c.version, machineKey()}}
	s, err := c.read(ctx, dir, text)
	if err != nil {
		return nil, err
	}
	names = slices.Compact(slices.Sorted(slices.Values(names))) // their order is of no importance
	l := &library{source: s, kernels: make([]kernel, len(names))}
	for i, name := range names {
		n := slices.IndexFunc(s.kernels, func(k kernel) bool { return k.name == name })
		if n < 0 {
			return nil, fmt.Errorf("%w: there is no kernel %s", metal.ErrKernel, name)
		}
		l.kernels[i] = s.kernels[n]
	}
	if err := b.check(ctx, s.code); err != nil {
		return nil, err
	}
	objects := make([]string, len(names)+1)
	group, together := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		objects[len(names)], err = b.runner(together)
		return err
	})
	for i, k := range l.kernels {
		group.Go(func() (err error) {
			objects[i], err = b.kernel(together, k, s.slicer.slice(k.name))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	l.program, err = cached(ctx, key(b.all, objects), func(path string) error {
		_, err := c.run(ctx, b.dir, "", append([]string{"-pthread", "-o", path}, objects...)...)
		return err
	})
	return l, err
}

// files returns the names and contents of some files of the runner.
func files(names []string) ([]string, error) {
	var all []string
	for _, name := range names {
		data, err := runnerFiles.ReadFile("runner/" + name)
		if err != nil {
			return nil, err
		}
		all = append(all, name, string(data))
	}
	return all, nil
}

// inHeader puts a source between what goes before and after all of them.
func inHeader(code string) string {
	return "#include \"metal.h\"\n" + code + "\n#pragma clang attribute pop\n"
}

// check looks at all of a source, once.
func (b *builder) check(ctx context.Context, code string) error {
	headers, err := files(language)
	if err != nil {
		return err
	}
	flags := append(kernelFlags(Options{}), "-I", ".", "-fsyntax-only", "-")
	_, err = cached(ctx, key(b.all, headers, flags, spacesFlags, []string{code}), func(path string) error {
		// This one comes first since its messages are to the point.
		for _, args := range [][]string{spacesFlags, flags} {
			if _, err := b.run(ctx, b.dir, inHeader(code), args...); err != nil {
				return err
			}
		}
		return os.WriteFile(path, nil, 0o600)
	})
	return err
}

// kernel returns the path of an object file with a kernel.
func (b *builder) kernel(ctx context.Context, k kernel, code string) (string, error) {
	headers, err := files(language)
	if err != nil {
		return "", err
	}
	flags := append(kernelFlags(b.options), "-I", ".", "-c", "-")
	code = inHeader(code) + k.trampoline()
	return cached(ctx, key(b.all, headers, flags, []string{code}), func(path string) error {
		compilers <- struct{}{}
		defer func() { <-compilers }()
		_, err := b.run(ctx, b.dir, code, append(flags, "-o", path)...)
		return err
	})
}

// runner returns the path of an object file with the runner.
func (b *builder) runner(ctx context.Context) (string, error) {
	entries, err := runnerFiles.ReadDir("runner")
	if err != nil {
		return "", err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	all, err := files(names)
	if err != nil {
		return "", err
	}
	flags := append(runnerFlags(b.options), "-c", "runner.cpp")
	return cached(ctx, key(b.all, all, flags), func(path string) error {
		_, err := b.run(ctx, b.dir, "", append(flags, "-o", path)...)
		return err
	})
}

// machineKey tells machines apart for which the compiler makes different code.
func machineKey() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "flags") || strings.HasPrefix(line, "Features") {
			return line
		}
	}
	return ""
}
