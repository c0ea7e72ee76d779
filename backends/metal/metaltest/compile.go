//go:build linux

package metaltest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/zoo-sdk/zoo/backends/metal"
)

// minVersion is the oldest clang that knows what the runner needs.
const minVersion = 16

// compiler is a clang.
type compiler struct {
	path    string
	version string // all that it says of itself

	mu      sync.Mutex
	sources map[string]*source // that it has seen before
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
			return &compiler{path: path, version: string(out), sources: map[string]*source{}}, nil
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

// spacesFlags have clang's OpenCL C++ look at a source, which knows address spaces.
var spacesFlags = []string{
	"-x", "clcpp", "-cl-std=clc++2021", "-cl-no-stdinc", "-DZOO_SPACES", "-fsyntax-only", "-Wno-everything", "-I", ".", "-",
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
