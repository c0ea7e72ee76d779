//go:build linux

package metaltest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/internal/filelock"
)

//go:embed runner/*
var runnerFiles embed.FS

// minVersion is the oldest clang that knows what the runner needs.
const minVersion = 16

// compiler is a clang.
type compiler struct {
	path    string
	version string // all that it says of itself
}

// findCompiler looks for a clang.
var findCompiler = sync.OnceValues(func() (*compiler, error) {
	for _, name := range []string{"clang++-19", "clang++-18", "clang++-17", "clang++-16", "clang++"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		out, err := exec.Command(path, "--version").Output()
		if err != nil {
			continue
		}
		_, after, _ := strings.Cut(string(out), "clang version ")
		major, _, _ := strings.Cut(after, ".")
		if n, err := strconv.Atoi(major); err == nil && n >= minVersion {
			return &compiler{path, string(out)}, nil
		}
	}
	return nil, fmt.Errorf("no clang++ of version %d or later", minVersion)
})

// runnerFlags and kernelFlags are how the runner's parts are compiled.
func runnerFlags(options Options) []string {
	flags := []string{"-x", "c++", "-std=c++17", "-O2", "-g1", "-fno-omit-frame-pointer"}
	if options.Checked {
		flags = append(flags, "-DZOO_CHECKED")
	}
	return flags
}

func kernelFlags(options Options) []string {
	flags := []string{
		"-x", "c++", "-std=c++14", "-g1", "-march=native", "-ffp-contract=off", "-fno-fast-math", "-fno-math-errno", "-Xclang", "-ffloat16-excess-precision=none",
		"-fsigned-char", "-fno-strict-aliasing", "-fno-optimize-sibling-calls", "-fno-exceptions", "-fno-rtti", "-Wno-everything",
		"-Werror=return-type", "-Werror=uninitialized", "-Werror=vla-extension",
	}
	if !options.Checked {
		return append(flags, "-O2", "-fwrapv")
	}
	// Accesses are checked by functions of the runner, one call each, and stay as they are in the source.
	flags = append(flags, "-O1", "-DZOO_CHECKED", "-fno-vectorize", "-fno-slp-vectorize",
		"-fsanitize=address,alignment,bounds,shift-exponent,float-cast-overflow,integer-divide-by-zero,signed-integer-overflow",
		"-fsanitize-address-use-after-return=never")
	for _, option := range []string{
		"-asan-instrumentation-with-call-threshold=0", "-asan-memory-access-callback-prefix=zoo_", "-asan-force-dynamic-shadow=1",
		"-asan-opt=0", "-asan-opt-same-temp=0", "-asan-opt-globals=0",
	} {
		flags = append(flags, "-mllvm", option)
	}
	return flags
}

// run runs the compiler in a folder and returns what it writes to standard output.
func (c *compiler) run(ctx context.Context, dir string, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(input)
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return "", cause
		}
		return "", fmt.Errorf("%w: %w\n%s", metal.ErrKernel, err, messages.String())
	}
	return out.String(), nil
}

// preprocess expands the macros of a Metal source, keeping its lines.
func (c *compiler) preprocess(ctx context.Context, dir, source string) (string, error) {
	for _, header := range []string{"metal_stdlib", "metal_simdgroup", "metal_simdgroup_matrix", "metal_atomic", "metal_math", "metal_integer"} {
		if err := os.WriteFile(filepath.Join(dir, header), nil, 0o600); err != nil {
			return "", err
		}
	}
	return c.run(ctx, dir, "#line 1 \"metal\"\n"+source, "-E", "-x", "c++", "-std=c++14", "-undef", "-nostdinc", "-D__METAL_VERSION__=300", "-I", ".", "-")
}

// keepFor is how long a compiled runner is kept that nobody uses.
const keepFor = 7 * 24 * time.Hour

// cached returns the path of a file of the cache, which make writes to the path that it is given if it is not there.
func (c *compiler) cached(ctx context.Context, key string, make func(path string) error) (string, error) {
	root, err := os.UserCacheDir()
	if err != nil {
		root = os.TempDir()
	}
	dir := filepath.Join(root, "zoo-metaltest")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(key))
	path := filepath.Join(dir, hex.EncodeToString(sum[:16]))
	now := time.Now()
	if err := os.Chtimes(path, now, now); err == nil {
		return path, nil
	}
	lock, err := filelock.Acquire(ctx, path+".lock", nil)
	if err != nil {
		return "", err
	}
	defer lock.Release()
	if _, err := os.Stat(path); err == nil {
		return path, nil // somebody else was faster
	}
	removeOld(dir, now.Add(-keepFor))
	// Locks are removed with what is old, so that two may hold them: the name is nobody else's.
	temp, err := os.MkdirTemp(dir, "making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	made := filepath.Join(temp, "made")
	if err := make(made); err != nil {
		return "", err
	}
	return path, os.Rename(made, path)
}

// removeOld removes what was last used before a time.
func removeOld(dir string, before time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.ModTime().Before(before) {
			_ = os.RemoveAll(filepath.Join(dir, e.Name())) // another time
		}
	}
}

// spacesFlags have clang's OpenCL C++ look at a source, which knows address spaces.
var spacesFlags = []string{
	"-x", "clcpp", "-cl-std=clc++2021", "-cl-no-stdinc", "-DZOO_SPACES", "-fsyntax-only", "-Wno-everything", "-I", ".", "-",
}

// build returns the path of a runner for kernels, and the named ones of them in the order of its tables.
func (c *compiler) build(ctx context.Context, options Options, source string, names []string) (string, []kernel, error) {
	dir, err := os.MkdirTemp("", "zoo-metaltest-")
	if err != nil {
		return "", nil, err
	}
	defer os.RemoveAll(dir)
	expanded, err := c.preprocess(ctx, dir, source)
	if err != nil {
		return "", nil, err
	}
	code, all, err := rewrite(expanded)
	if err != nil {
		return "", nil, err
	}
	code = "#include \"metal.h\"\n" + code + "\n#pragma clang attribute pop\n"
	kernels := make([]kernel, len(names))
	for i, name := range names {
		n := slices.IndexFunc(all, func(k kernel) bool { return k.name == name })
		if n < 0 {
			return "", nil, fmt.Errorf("%w: there is no kernel %s", metal.ErrKernel, name)
		}
		kernels[i] = all[n]
	}
	if err := os.CopyFS(dir, runnerFiles); err != nil {
		return "", nil, err
	}
	dir = filepath.Join(dir, "runner")
	base, err := c.baseKey()
	if err != nil {
		return "", nil, err
	}
	runner, err := c.cached(ctx, key(base, runnerFlags(options)), func(path string) error {
		_, err := c.run(ctx, dir, "", append(runnerFlags(options), "-c", "runner.cpp", "-o", path)...)
		return err
	})
	if err != nil {
		return "", nil, err
	}
	program, err := c.cached(ctx, key(base, []string{runner, code}, names, kernelFlags(options), spacesFlags), func(path string) error {
		return c.link(ctx, options, dir, base, code, kernels, runner, path)
	})
	return program, kernels, err
}

// compiling limits how many compilers a process runs.
var compiling = make(chan struct{}, runtime.NumCPU())

// link compiles kernels, each by itself, since programs need them in many
// combinations, and links them with the runner.
func (c *compiler) link(ctx context.Context, options Options, dir, base, code string, kernels []kernel, runner, path string) error {
	// This one is quick, and its messages are to the point.
	spaces := key(base, []string{code}, spacesFlags)
	if _, err := c.cached(ctx, spaces, func(path string) error {
		if _, err := c.run(ctx, dir, code, spacesFlags...); err != nil {
			return err
		}
		return os.WriteFile(path, nil, 0o600)
	}); err != nil {
		return err
	}
	objects := make([]string, len(kernels))
	group, together := errgroup.WithContext(ctx)
	for i, k := range kernels {
		group.Go(func() (err error) {
			objects[i], err = c.cached(together, key(base, []string{code, k.name}, kernelFlags(options)), func(path string) error {
				compiling <- struct{}{}
				defer func() { <-compiling }()
				_, err := c.run(together, dir, code+trampoline(k), append(kernelFlags(options), "-I", ".", "-c", "-", "-o", path)...)
				return err
			})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	list := filepath.Join(dir, "kernels.o")
	if _, err := c.run(ctx, dir, table(kernels), "-x", "c++", "-I", ".", "-c", "-", "-o", list); err != nil {
		return err
	}
	// The linker takes files of any name for what they hold. Functions that kernels share are in each of their files.
	_, err := c.run(ctx, dir, "", append([]string{"-pthread", "-Wl,-z,muldefs", "-o", path, list, runner}, objects...)...)
	return err
}

// key joins what makes a file of the cache what it is.
func key(base string, parts ...[]string) string {
	var all strings.Builder
	all.WriteString(base)
	for _, part := range parts {
		for _, s := range part {
			fmt.Fprintf(&all, "%d %s", len(s), s)
		}
		all.WriteByte(0)
	}
	return all.String()
}

// baseKey tells apart compilers, runners and machines.
func (c *compiler) baseKey() (string, error) {
	parts := []string{c.path, c.version, machineKey()}
	entries, err := runnerFiles.ReadDir("runner")
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		data, err := runnerFiles.ReadFile("runner/" + e.Name())
		if err != nil {
			return "", err
		}
		parts = append(parts, e.Name(), string(data))
	}
	return key("", parts), nil
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
