package typecheck

import (
	"fmt"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clang returns a compiler that reads Objective-C for Apple's platforms, with
// the arguments that have it use the declarations in testdata. Without one it
// skips the test, unless ZOO_REQUIRE_CLANG is set.
func clang(t *testing.T) []string {
	t.Helper()
	include, err := filepath.Abs("testdata/include")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"clang-19", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			return []string{path, "-target", "arm64-apple-macos13", "-nostdlibinc", "-isystem", include}
		}
	}
	if os.Getenv("ZOO_REQUIRE_CLANG") != "" {
		t.Fatal("there is no clang here")
	}
	t.Skip("there is no clang here")
	return nil
}

// objectiveC checks native code and returns what the compiler says against it.
func objectiveC(t *testing.T, dir, file string) string {
	t.Helper()
	args := append(clang(t), "-fsyntax-only", "-fno-objc-arc", "-Wall", "-Wextra", "-Werror", "-x", "objective-c", "-I", dir, file)
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	return string(out)
}

// TestObjectiveC checks the native code.
func TestObjectiveC(t *testing.T) {
	t.Parallel()
	p := mustLoad(t).subject
	for _, name := range slices.Concat(p.MFiles, p.CFiles) {
		if out := objectiveC(t, p.Dir, filepath.Join(p.Dir, name)); out != "" {
			t.Error(out)
		}
	}
}

// TestObjectiveCPlanted plants errors that TestObjectiveC must see.
func TestObjectiveCPlanted(t *testing.T) {
	t.Parallel()
	p := mustLoad(t).subject
	for _, tt := range []struct{ name, old, planted string }{
		{"no such method", "waitUntilCompleted]", "waitUntilDone]"},
		{"a wrong argument", "length:d->args_bytes", "length:list"},
		{"no such field", "d->threads", "d->thread"},
		{"another signature", "int zoo_metal_wait(void *commands) {", "int zoo_metal_wait(int commands) {"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			found := false
			for _, name := range p.MFiles {
				data, err := os.ReadFile(filepath.Join(p.Dir, name))
				if err != nil {
					t.Fatal(err)
				}
				text := strings.Replace(string(data), tt.old, tt.planted, 1)
				if text == string(data) {
					continue
				}
				found = true
				file := filepath.Join(dir, name)
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if objectiveC(t, p.Dir, file) == "" {
					t.Errorf("%s passes for %s", tt.planted, tt.old)
				}
			}
			if !found {
				t.Errorf("%q is not there: plant it elsewhere", tt.old)
			}
		})
	}
}

// cgo has cgo read the files with native calls, which lie in dir, and checks what it makes of them.
func cgo(t *testing.T, w *world, dir string) error {
	t.Helper()
	compiler := clang(t)
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", slices.Concat(
		[]string{"tool", "cgo", "-objdir", out, "-importpath", subject, "--"}, compiler[1:], []string{"-I", w.subject.Dir}, w.subject.CgoFiles)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(platform, "CC="+compiler[0])...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cgo: %w\n%s", err, text)
	}
	translated, err := filepath.Glob(filepath.Join(out, "*.go"))
	if err != nil || len(translated) < 2 {
		t.Fatalf("cgo wrote %q: %v", translated, err)
	}
	files, err := w.parse(w.subject.Dir, slices.Concat(w.subject.GoFiles, translated))
	if err != nil {
		return err
	}
	_, err = w.check(w.subject, types.Config{}, files)
	return err
}

// TestCgo checks the calls of native code with the types that its header gives.
func TestCgo(t *testing.T) {
	t.Parallel()
	w := mustLoad(t)
	if err := cgo(t, w, w.subject.Dir); err != nil {
		t.Error(err)
	}
}

// TestCgoPlanted plants errors that TestCgo must see.
func TestCgoPlanted(t *testing.T) {
	t.Parallel()
	w := mustLoad(t)
	for _, tt := range []struct{ name, old, planted, want string }{
		{"no such function", "C.zoo_metal_wait(", "C.zoo_metal_waits(", "zoo_metal_waits"},
		{"a wrong argument", "C.size_t(b.offset)", "b.offset", "cannot use"},
		{"too few arguments", "unsafe.SliceData(lists), ", "", "not enough arguments"},
		{"no such field", "n.groups[i]", "n.grids[i]", "grids"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, name := range w.subject.CgoFiles {
				data, err := os.ReadFile(filepath.Join(w.subject.Dir, name))
				if err != nil {
					t.Fatal(err)
				}
				text := strings.ReplaceAll(string(data), tt.old, tt.planted)
				if text == string(data) {
					t.Errorf("%q is not in %s: plant it elsewhere", tt.old, name)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := cgo(t, w, dir); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s for %s: error %v", tt.planted, tt.old, err)
			}
		})
	}
}
