package layers

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/zoo-sdk/zoo"

// rows lists all packages from the bottom to the top. A pattern ending in /... stands for a folder and what is below.
var rows = [][]string{
	{"internal/fault", "internal/fmath", "internal/layers", "internal/timeout", "internal/typecheck"},
	{"internal/atomicfile"},
	{"internal/filelock", "internal/mmap"},
	{"catalog", "quant", "tokenizer", "chat"},
	{"download", "program"},
	{"checkpoint", "checkpoint/litertlm", "backends"},
	{"checkpoint/gguf", "checkpoint/litertlm/litertlmtest", "backends/cpu/kernels"},
	{"zoo", "backends/cpu", "backends/metal", "backends/backendtest"},
	{"backends/metal/metaltest", "zoo/packing", "zoo/golden"},
	{"engine"},
	{"gate"},
	{"plugins/gemma3", "plugins/gemma4", "plugins/plugintest", "plugins/rpc/pluginpb"},
	{"plugins/gemma4e2b", "plugins/gemma4e4b", "plugins/gemma4/gemma4test", "plugins/rpc"},
	{"sdk"},
	{"cmd/zoo/..."},
}

// fence closes a door: only packages below the listed folders may import what matches.
type fence struct {
	imports string // an import path, or a prefix ending in /...
	allowed []string
	why     string
}

var fences = []fence{
	{module + "/backends/cpu/...", []string{"sdk", "backends/cpu"}, "engine, gate and plugins know operations and models, not devices"},
	{module + "/backends/metal/...", []string{"sdk", "backends/metal"}, "engine, gate and plugins know operations and models, not devices"},
	{module + "/plugins/...", []string{"plugins", "sdk"}, "sdk/builtin.go alone names plugins"},
	{"github.com/nlpodyssey/safetensors/...", []string{"checkpoint"}, "checkpoint is the one wrapper, which checks first"},
	{"github.com/progrium/darwinkit/...", []string{"backends/metal"}, "only the Metal driver talks to Apple's frameworks"},
	{"github.com/hashicorp/go-plugin/...", []string{"plugins/rpc"}, "one package carries plugins over the wire"},
	{"github.com/hashicorp/go-hclog/...", []string{"plugins/rpc"}, "everything else logs to log/slog"},
	{"google.golang.org/grpc/...", []string{"plugins/rpc"}, "one package carries plugins over the wire"},
	{"google.golang.org/protobuf/...", []string{"plugins/rpc"}, "one package carries plugins over the wire"},
	{"aead.dev/minisign/...", []string{"catalog"}, "one package says whose a catalog is"},
	{"github.com/spf13/...", []string{"cmd/zoo"}, "libraries take options, not flags or files"},
	{"net/http", []string{"download", "server"}, "one package fetches and one serves"},
	{"os/exec", []string{"plugins/rpc", "backends/metal/metaltest"}, "nothing from outside chooses a command, and only tests run a compiler"},
	{"unsafe", []string{"backends", "internal/mmap", "plugins/rpc/pluginpb"}, "memory is touched unchecked only where kernels, mappings and generated code need it"},
}

// platforms are the environments for go list that together see every file.
var platforms = [][]string{{"GOOS=linux"}, {"GOOS=darwin", "CGO_ENABLED=1"}, {"GOOS=windows"}, {"GOFLAGS=-tags=purego"}}

// listed is what go list tells of a package.
type listed struct {
	ImportPath string
	Imports    []string
	Dir        string
	GoFiles    []string
}

// list runs go list for one platform.
func list(t *testing.T, env ...string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Dir,GoFiles", module+"/...")
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []listed
	d := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		// Looking into the folder lets go test see that a file is new, and not answer from its cache.
		if _, err := os.ReadDir(p.Dir); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// matches reports whether path is the pattern, or below it.
func matches(pattern, path string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == dir || strings.HasPrefix(path, dir+"/")
	}
	return path == pattern
}

// row returns the number of a package's row, -1 if it has none.
func row(pkg string) int {
	return slices.IndexFunc(rows, func(r []string) bool {
		return slices.ContainsFunc(r, func(p string) bool { return matches(p, pkg) })
	})
}

// violations returns every broken rule of a package.
func violations(p listed) []string {
	pkg := strings.TrimPrefix(p.ImportPath, module+"/")
	own := row(pkg)
	var bad []string
	if own < 0 {
		bad = append(bad, fmt.Sprintf("%s has no row: add it where it belongs", pkg))
	}
	for _, path := range p.Imports {
		for _, f := range fences {
			if matches(f.imports, path) && !slices.ContainsFunc(f.allowed, func(a string) bool { return matches(a+"/...", pkg) }) {
				bad = append(bad, fmt.Sprintf("%s imports %s: %s", pkg, path, f.why))
			}
		}
		lower, ok := strings.CutPrefix(path, module+"/")
		if !ok {
			continue
		}
		switch r := row(lower); {
		case r == own && matches("cmd/zoo/...", pkg):
		case r >= own:
			bad = append(bad, fmt.Sprintf("%s (row %d) imports %s (row %d), which is not below it", pkg, own, lower, r))
		}
	}
	return bad
}

func TestLayers(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, env := range platforms {
		for _, p := range list(t, env...) {
			seen[strings.TrimPrefix(p.ImportPath, module+"/")] = true
			for _, v := range violations(p) {
				t.Errorf("%v: %s", env, v)
			}
		}
	}
	for _, r := range rows {
		for _, pattern := range r {
			if !slices.ContainsFunc(slices.Collect(keys(seen)), func(pkg string) bool { return matches(pattern, pkg) }) {
				t.Errorf("the row of %s is stale: there is no such package", pattern)
			}
		}
	}
}

// TestOutsiders keeps the plugin that shows what others can do to what others can import.
func TestOutsiders(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "GOOS=linux") {
		if p.ImportPath != module+"/plugins/gemma3" {
			continue
		}
		for _, path := range p.Imports {
			if strings.HasPrefix(path, module+"/internal/") {
				t.Errorf("plugins/gemma3 imports %s, which no other module can", path)
			}
		}
		return
	}
	t.Error("plugins/gemma3 is gone")
}

// keys yields the keys of a set.
func keys(set map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range set {
			if !yield(k) {
				return
			}
		}
	}
}

// TestRulesBite plants broken rules.
func TestRulesBite(t *testing.T) {
	t.Parallel()
	for _, p := range []listed{
		{ImportPath: module + "/engine", Imports: []string{module + "/gate"}},
		{ImportPath: module + "/engine", Imports: []string{module + "/backends/cpu"}},
		{ImportPath: module + "/catalog", Imports: []string{module + "/chat"}},
		{ImportPath: module + "/zoo", Imports: []string{"unsafe"}},
		{ImportPath: module + "/sdk", Imports: []string{"github.com/spf13/viper"}},
		{ImportPath: module + "/stray"},
	} {
		if len(violations(p)) == 0 {
			t.Errorf("%s may import %v", p.ImportPath, p.Imports)
		}
	}
}

// sourceFile is a parsed file of a package.
type sourceFile struct {
	pkg, name string
	*ast.File
}

// sources parses every file that some platform compiles, tests aside.
func sources(t *testing.T) []sourceFile {
	t.Helper()
	seen := map[string]bool{}
	var all []sourceFile
	for _, env := range platforms {
		for _, p := range list(t, env...) {
			for _, file := range p.GoFiles {
				name := filepath.Join(p.Dir, file)
				if seen[name] {
					continue
				}
				seen[name] = true
				f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, sourceFile{strings.TrimPrefix(p.ImportPath, module+"/"), file, f})
			}
		}
	}
	return all
}

// TestNoInit forbids func init: what is registered is a list that the caller makes.
func TestNoInit(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		if ast.IsGenerated(f.File) {
			continue
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s/%s has a func init", f.pkg, f.name)
			}
		}
	}
}

// modelName finds the names of models and of their family.
var modelName = regexp.MustCompile(`(?i)gemma|\be[24]b\b`)

// namesModels returns what in a file names a model. The command's texts may: its help
// shows what people type.
func namesModels(f sourceFile) (found []string) {
	ast.Inspect(f.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			help := matches("cmd/zoo/...", f.pkg) && strings.Contains(n.Value, " ")
			if n.Kind == token.STRING && modelName.MatchString(n.Value) && !help {
				found = append(found, n.Value)
			}
		case *ast.Ident:
			if modelName.MatchString(n.Name) {
				found = append(found, n.Name)
			}
		}
		return true
	})
	return found
}

// TestModelNames keeps names of models where models are described.
func TestModelNames(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		if matches("plugins/...", f.pkg) || matches("catalog/...", f.pkg) || f.pkg == "sdk" && f.name == "builtin.go" {
			continue
		}
		for _, name := range namesModels(f) {
			t.Errorf("%s/%s names a model: %s", f.pkg, f.name, name)
		}
	}
}

// TestModelNamesBite plants names.
func TestModelNamesBite(t *testing.T) {
	t.Parallel()
	for text, pkg := range map[string]string{
		`var gemma int`: "engine", `const x = "a gemma in a text"`: "tokenizer", `const x = "E2B"`: "zoo", `import _ "x/gemma4e2b"`: "gate",
		`const x = "gemma-4-e2b"`: "cmd/zoo",
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if len(namesModels(sourceFile{pkg, "x.go", f})) == 0 {
			t.Errorf("%s in %s is not found", text, pkg)
		}
	}
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nconst x = `zoo run gemma-4-e2b`", parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if found := namesModels(sourceFile{"cmd/zoo", "x.go", f}); len(found) != 0 {
		t.Errorf("help names %v", found)
	}
}
