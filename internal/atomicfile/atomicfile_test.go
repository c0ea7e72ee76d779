package atomicfile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// killVariable makes the test binary write a file and die in the middle.
const killVariable = "ZOO_TEST_KILL_IN_WRITE"

func TestMain(m *testing.M) {
	if target := os.Getenv(killVariable); target != "" {
		err := atomicfile.Write(context.Background(), target, atomicfile.Options{}, func(w io.Writer) error {
			if _, err := io.WriteString(w, "half"); err != nil {
				return err
			}
			self, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			return errors.Join(self.Kill(), context.DeadlineExceeded)
		})
		fmt.Println("survived:", err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// tree lists everything below dir: files with their content, folders with a slash.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			got[filepath.ToSlash(name)+"/"] = ""
			return nil
		}
		data, err := os.ReadFile(path)
		got[filepath.ToSlash(name)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func TestWrite(t *testing.T) {
	errFill := errors.New("fill")
	errCause := errors.New("cause")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(errCause)
	tests := []struct {
		name   string
		before map[string]string
		ctx    context.Context
		target string
		opts   atomicfile.Options
		fill   func(io.Writer) error
		want   error
		mode   fs.FileMode
		after  map[string]string
	}{
		{name: "new", target: "a", fill: text("x"), mode: 0o644, after: map[string]string{"a": "x"}},
		{name: "empty", target: "a", fill: text(""), mode: 0o644, after: map[string]string{"a": ""}},
		{name: "replaced", before: map[string]string{"a": "old and long"}, target: "a", fill: text("x"), mode: 0o644, after: map[string]string{"a": "x"}},
		{name: "read-only", target: "a", opts: atomicfile.Options{ReadOnly: true}, fill: text("x"), mode: 0o444, after: map[string]string{"a": "x"}},
		{name: "private", target: "a", opts: atomicfile.Options{Perm: 0o600}, fill: text("x"), mode: 0o600, after: map[string]string{"a": "x"}},
		{name: "read-only bits", target: "a", opts: atomicfile.Options{Perm: 0o400}, fill: text("x"), mode: 0o400, after: map[string]string{"a": "x"}},
		{
			name: "fill fails", before: map[string]string{"a": "old"}, target: "a",
			fill: func(w io.Writer) error { return errors.Join(text("half")(w), errFill) }, want: errFill, after: map[string]string{"a": "old"},
		},
		{name: "cancelled", before: map[string]string{"a": "old"}, ctx: cancelled, target: "a", fill: text("x"), want: errCause, after: map[string]string{"a": "old"}},
		{
			name: "cancelled, fill does not notice", ctx: cancelled, target: "a",
			fill: func(io.Writer) error { return nil }, want: errCause, after: map[string]string{},
		},
		{name: "no folder", target: "b/a", fill: text("x"), want: fs.ErrNotExist, after: map[string]string{}},
		{name: "too large", before: map[string]string{"a": "old"}, target: "a", opts: atomicfile.Options{SizeBytes: math.MaxInt64}, fill: text("x"), want: fault.ErrNoSpace, after: map[string]string{"a": "old"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, data := range test.before {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			ctx := test.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			target := filepath.Join(dir, test.target)
			if err := atomicfile.Write(ctx, target, test.opts, test.fill); !errors.Is(err, test.want) {
				t.Fatalf("error %v, want %v", err, test.want)
			}
			if diff := cmp.Diff(test.after, tree(t, dir)); diff != "" {
				t.Errorf("folder (-want +got):\n%s", diff)
			}
			if test.mode != 0 && runtime.GOOS != "windows" {
				info, err := os.Stat(target)
				if err != nil {
					t.Fatal(err)
				}
				if info.Mode().Perm() != test.mode {
					t.Errorf("mode %v, want %v", info.Mode().Perm(), test.mode)
				}
			}
		})
	}
}

func TestWriteOverReadOnly(t *testing.T) {
	target := filepath.Join(t.TempDir(), "a")
	for _, data := range []string{"first", "second"} {
		if err := atomicfile.WriteFile(t.Context(), target, []byte(data), atomicfile.Options{ReadOnly: true}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "second" {
		t.Errorf("content %q, error %v", got, err)
	}
}

func TestCommitOverFolder(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "a")
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteFile(t.Context(), target, []byte("x"), atomicfile.Options{}); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if diff := cmp.Diff(map[string]string{"a/": ""}, tree(t, dir)); diff != "" {
		t.Errorf("folder (-want +got):\n%s", diff)
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	f, err := atomicfile.Create(filepath.Join(dir, "a"), atomicfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name := range tree(t, dir) {
		if !strings.HasPrefix(name, atomicfile.TempPrefix) {
			t.Errorf("unfinished file is named %q", name)
		}
	}
	if _, err := f.Write([]byte("0123")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("ab"), 6); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("XY"), 1); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != "0XY3\x00\x00ab" {
		t.Errorf("read %q, %v", got, err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "0XY3\x00\x00ab"}, tree(t, dir)); diff != "" {
		t.Errorf("folder (-want +got):\n%s", diff)
	}
	if err := f.Abort(); err != nil {
		t.Errorf("Abort after Commit: %v", err)
	}
	if err := f.Commit(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second Commit: %v", err)
	}
	if _, err := f.Write(nil); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Write after Commit: %v", err)
	}
	if diff := cmp.Diff(map[string]string{"a": "0XY3\x00\x00ab"}, tree(t, dir)); diff != "" {
		t.Errorf("folder after the second Commit (-want +got):\n%s", diff)
	}
}

func TestConcurrentWrites(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "a")
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			data := strings.Repeat(string(rune('a'+i)), 100_000)
			if err := atomicfile.WriteFile(t.Context(), target, []byte(data), atomicfile.Options{ReadOnly: true}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	got := tree(t, dir)
	if len(got) != 1 || len(got["a"]) != 100_000 || strings.Count(got["a"], got["a"][:1]) != 100_000 {
		t.Errorf("%d files, content of %d bytes is mixed or cut", len(got), len(got["a"]))
	}
}

func TestKilledInWrite(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "a")
	if err := os.WriteFile(target, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), killVariable+"="+target)
	if out, err := cmd.CombinedOutput(); err == nil || len(out) > 0 {
		t.Fatalf("the process was not killed: %v, %s", err, out)
	}
	got := tree(t, dir)
	if got["a"] != "old" || len(got) != 2 {
		t.Errorf("folder after the kill: %v", got)
	}
	removed, err := atomicfile.CleanTemps(dir, 0)
	if err != nil || len(removed) != 1 {
		t.Errorf("CleanTemps removed %q, %v", removed, err)
	}
	if diff := cmp.Diff(map[string]string{"a": "old"}, tree(t, dir)); diff != "" {
		t.Errorf("folder after CleanTemps (-want +got):\n%s", diff)
	}
}

// fill makes files, given with their content, and folders, given with a slash.
func fill(t *testing.T, dir string, names map[string]string) {
	t.Helper()
	for name, data := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = os.WriteFile(path, []byte(data), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestCommitDir(t *testing.T) {
	content := map[string]string{"a": "x", "b/": "", "b/c": "y", "b/d/": ""}
	tests := []struct {
		name   string
		before map[string]string
		exists bool
	}{
		{name: "new"},
		{name: "folder exists", before: map[string]string{"final/a": "old"}, exists: true},
		{name: "empty folder exists", before: map[string]string{"final/": ""}, exists: true},
		{name: "file exists", before: map[string]string{"final": "old"}, exists: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir, test.before)
			before := tree(t, dir)
			tmp, err := atomicfile.MkdirTemp(dir)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(filepath.Base(tmp), atomicfile.TempPrefix) {
				t.Errorf("temporary folder is named %q", tmp)
			}
			fill(t, tmp, content)
			final := filepath.Join(dir, "final")
			err = atomicfile.CommitDir(tmp, final, atomicfile.DirOptions{ReadOnly: true})
			if !test.exists {
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(content, tree(t, final)); diff != "" {
					t.Errorf("folder (-want +got):\n%s", diff)
				}
				if info, err := os.Stat(filepath.Join(final, "b", "c")); err != nil || info.Mode().Perm()&0o222 != 0 {
					t.Errorf("file may be written: %v, %v", info.Mode(), err)
				}
				if err := os.RemoveAll(final); err != nil {
					t.Errorf("read-only folder cannot be removed: %v", err)
				}
				return
			}
			var exist *atomicfile.ExistError
			if !errors.As(err, &exist) || exist.Path != final || !errors.Is(err, fs.ErrExist) {
				t.Errorf("error %v, want an ExistError", err)
			}
			if diff := cmp.Diff(content, tree(t, tmp)); diff != "" {
				t.Errorf("temporary folder (-want +got):\n%s", diff)
			}
			if err := os.RemoveAll(tmp); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
				t.Errorf("folder (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCommitDirRefuses(t *testing.T) {
	t.Run("symbolic link", func(t *testing.T) {
		dir := t.TempDir()
		tmp, err := atomicfile.MkdirTemp(dir)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, tmp, map[string]string{"a": "x"})
		if err := os.Symlink("a", filepath.Join(tmp, "link")); err != nil {
			t.Skip("no symbolic links here:", err)
		}
		if err := atomicfile.CommitDir(tmp, filepath.Join(dir, "final"), atomicfile.DirOptions{}); err == nil {
			t.Error("a folder with a symbolic link was committed")
		}
		if _, err := os.Lstat(filepath.Join(dir, "final")); err == nil {
			t.Error("the target exists")
		}
	})
	t.Run("missing", func(t *testing.T) {
		dir := t.TempDir()
		if err := atomicfile.CommitDir(filepath.Join(dir, "none"), filepath.Join(dir, "final"), atomicfile.DirOptions{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("missing parent", func(t *testing.T) {
		if _, err := atomicfile.MkdirTemp(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v", err)
		}
	})
}

func TestCleanTemps(t *testing.T) {
	dir := t.TempDir()
	p := atomicfile.TempPrefix
	fill(t, dir, map[string]string{
		p + "old": "x", p + "new": "x", p + "oldfolder/a": "x", p + "busyfolder/a": "x", "kept": "x", "sub/" + p + "deep": "x",
	})
	old := time.Now().Add(-2 * time.Hour)
	for _, name := range []string{p + "old", p + "oldfolder/a", p + "oldfolder", p + "busyfolder", "kept", "sub/" + p + "deep"} {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := atomicfile.CleanTemps(dir, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{p + "old", p + "oldfolder"}, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	want := map[string]string{p + "new": "x", p + "busyfolder/": "", p + "busyfolder/a": "x", "kept": "x", "sub/": "", "sub/" + p + "deep": "x"}
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Errorf("folder (-want +got):\n%s", diff)
	}
	if removed, err := atomicfile.CleanTemps(filepath.Join(dir, "none"), 0); err != nil || removed != nil {
		t.Errorf("missing folder: %q, %v", removed, err)
	}
}

func TestMapError(t *testing.T) {
	plain := errors.New("plain")
	tests := []struct {
		name string
		err  error
		want []error
		not  []error
	}{
		{"nil", nil, []error{nil}, nil},
		{"plain", plain, []error{plain}, []error{fault.ErrNoSpace, fault.ErrNotPermitted}},
		{"missing", &fs.PathError{Op: "open", Path: "p", Err: syscall.ENOENT}, []error{fs.ErrNotExist}, []error{fault.ErrNoSpace, fault.ErrNotPermitted}},
		{"full", &fs.PathError{Op: "write", Path: "p", Err: syscall.ENOSPC}, []error{fault.ErrNoSpace, syscall.ENOSPC}, []error{fault.ErrNotPermitted}},
		{"quota", fmt.Errorf("x: %w", syscall.EDQUOT), []error{fault.ErrNoSpace, syscall.EDQUOT}, []error{fault.ErrNotPermitted}},
		{"refused", &os.LinkError{Op: "rename", Err: syscall.EACCES}, []error{fault.ErrNotPermitted, fs.ErrPermission}, []error{fault.ErrNoSpace}},
		{"not the owner", syscall.EPERM, []error{fault.ErrNotPermitted}, []error{fault.ErrNoSpace}},
		{"read-only file system", syscall.EROFS, []error{fault.ErrNotPermitted, syscall.EROFS}, []error{fault.ErrNoSpace}},
		{"joined", errors.Join(plain, syscall.ENOSPC), []error{fault.ErrNoSpace, plain}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := atomicfile.MapError("/some/path", test.err)
			for _, want := range test.want {
				if !errors.Is(got, want) {
					t.Errorf("%v is not %v", got, want)
				}
			}
			for _, not := range test.not {
				if errors.Is(got, not) {
					t.Errorf("%v is %v", got, not)
				}
			}
			if again := atomicfile.MapError("/other", got); again != got {
				t.Errorf("mapped twice: %v", again)
			}
			classified := errors.Is(got, fault.ErrNoSpace) || errors.Is(got, fault.ErrNotPermitted)
			if hint := fault.Hint(got); classified != (hint != "") || classified && !strings.Contains(got.Error(), "/some/path") {
				t.Errorf("error %q, hint %q", got, hint)
			}
		})
	}
}

func TestCheckSpace(t *testing.T) {
	below := filepath.Join(t.TempDir(), "not", "there", "yet")
	free, err := atomicfile.FreeBytes(below)
	if err != nil || free <= 0 {
		t.Fatalf("FreeBytes = %d, %v", free, err)
	}
	if err := atomicfile.CheckSpace(below, 1); err != nil {
		t.Error(err)
	}
	err = atomicfile.CheckSpace(below, math.MaxInt64)
	var space *atomicfile.SpaceError
	if !errors.As(err, &space) || !errors.Is(err, fault.ErrNoSpace) || space.NeedBytes != math.MaxInt64 || space.FreeBytes <= 0 {
		t.Fatalf("error %v, want a SpaceError", err)
	}
	for _, part := range []string{"needed", "free", below} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
	if hint := fault.Hint(err); !strings.Contains(hint, "EB") || !strings.Contains(hint, "ZOO_HOME") {
		t.Errorf("hint %q", hint)
	}
}
