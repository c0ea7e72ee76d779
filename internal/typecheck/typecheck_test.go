package typecheck

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// subject is the package to check.
const subject = "github.com/zoo-sdk/zoo/backends/metal"

// platform is the environment in which the files in question are compiled.
var platform = []string{"GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=1"}

// listed is what go list tells of a package.
type listed struct {
	ImportPath, Dir                           string
	GoFiles, CgoFiles, MFiles, CFiles, HFiles []string
	ImportMap                                 map[string]string
	Module                                    *struct{ GoVersion string }
}

// version returns the language version of a package, "" for that of the compiler.
func (p listed) version() string {
	if p.Module == nil || p.Module.GoVersion == "" {
		return ""
	}
	return "go" + p.Module.GoVersion
}

// list runs go list on the subject and all that it imports, which comes first.
func list() ([]listed, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,CgoFiles,MFiles,CFiles,HFiles,ImportMap,Module", subject)
	cmd.Env = append(os.Environ(), platform...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// world is the subject and the types of all that it imports.
type world struct {
	fset    *token.FileSet
	subject listed
	imports map[string]*types.Package
}

// load checks the packages that the subject imports, once for all tests.
var load = sync.OnceValues(func() (*world, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	last := len(all) - 1
	if last < 0 || all[last].ImportPath != subject {
		return nil, fmt.Errorf("go list does not end with %s", subject)
	}
	w := &world{token.NewFileSet(), all[last], map[string]*types.Package{"unsafe": types.Unsafe}}
	for _, p := range all[:last] {
		if p.ImportPath == "unsafe" {
			continue
		}
		files, err := w.parse(p.Dir, slices.Concat(p.GoFiles, p.CgoFiles))
		if err != nil {
			return nil, err
		}
		pkg, err := w.check(p, types.Config{FakeImportC: true}, files)
		if err != nil {
			return nil, err
		}
		w.imports[p.ImportPath] = pkg
	}
	return w, nil
})

// parse reads files of a folder.
func (w *world) parse(dir string, names []string) ([]*ast.File, error) {
	var files []*ast.File
	for _, name := range names {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		f, err := parser.ParseFile(w.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// mapped imports what has been checked, by the names that a package has for it.
type mapped struct {
	imports map[string]*types.Package
	names   map[string]string
}

// Import implements types.Importer.
func (m mapped) Import(path string) (*types.Package, error) {
	if to, ok := m.names[path]; ok {
		path = to
	}
	if p := m.imports[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s was not listed", path)
}

// check checks a package that consists of files, and returns all errors as one.
func (w *world) check(p listed, c types.Config, files []*ast.File) (*types.Package, error) {
	var all []error
	c.Error = func(err error) { all = append(all, err) }
	c.Importer = mapped{w.imports, p.ImportMap}
	c.Sizes = types.SizesFor("gc", "arm64")
	c.GoVersion = p.version()
	pkg, _ := c.Check(p.ImportPath, w.fset, files, nil) // its error is the first of all
	return pkg, errors.Join(all...)
}

// mustLoad returns the world.
func mustLoad(t *testing.T) *world {
	t.Helper()
	w, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestGo checks the files as they are, where what is native counts as right.
func TestGo(t *testing.T) {
	t.Parallel()
	w := mustLoad(t)
	files, err := w.parse(w.subject.Dir, slices.Concat(w.subject.GoFiles, w.subject.CgoFiles))
	if err != nil {
		t.Fatal(err)
	}
	if len(w.subject.CgoFiles) == 0 || len(w.subject.MFiles) == 0 {
		t.Error("the package has no native part: is this test stale?")
	}
	if _, err := w.check(w.subject, types.Config{FakeImportC: true}, files); err != nil {
		t.Error(err)
	}
}

// TestPlanted plants errors that TestGo must see.
func TestPlanted(t *testing.T) {
	t.Parallel()
	w := mustLoad(t)
	for _, tt := range []struct{ name, body, want string }{
		{"nothing wrong", `func planted(d mtl.DeviceObject) string { return d.Name() }`, ""},
		{"no such method", `func planted(d mtl.DeviceObject) { d.CreateSystemDefaultDevice() }`, "CreateSystemDefaultDevice undefined"},
		{"a wrong argument", `func planted(d mtl.DeviceObject) { d.NewBufferWithLengthOptions("16", 0) }`, "cannot use"},
		{"a wrong result", `func planted(d mtl.DeviceObject) int { return d.Name() }`, "cannot use"},
		{"no such constant", `var planted = mtl.LanguageVersion9_9`, "undefined: mtl.LanguageVersion9_9"},
		{"a missing method", `type planted struct{ mtl.DeviceObject }; var _ Device = planted{}`, "missing method"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			files, err := w.parse(w.subject.Dir, slices.Concat(w.subject.GoFiles, w.subject.CgoFiles))
			if err != nil {
				t.Fatal(err)
			}
			text := "package metal\nimport mtl \"github.com/progrium/darwinkit/macos/metal\"\n" + tt.body
			f, err := parser.ParseFile(w.fset, "planted.go", text, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			if _, err := w.check(w.subject, types.Config{FakeImportC: true}, append(files, f)); err != nil {
				for line := range strings.Lines(err.Error()) {
					if strings.HasPrefix(line, "planted.go") {
						got.WriteString(line)
					}
				}
			}
			if (got.String() == "") != (tt.want == "") || !strings.Contains(got.String(), tt.want) {
				t.Errorf("%s: %q, want %q", tt.body, got.String(), tt.want)
			}
		})
	}
}
