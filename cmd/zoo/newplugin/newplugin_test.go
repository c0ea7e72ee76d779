package newplugin_test

import (
	"bytes"
	"context"
	"errors"
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/cmd/zoo/newplugin"
	"github.com/zoo-sdk/zoo/zoo"
)

// write writes a module and returns its files.
func write(t *testing.T, o newplugin.Options) map[string]string {
	t.Helper()
	o.Dir = filepath.Join(t.TempDir(), "module")
	if err := newplugin.Write(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	err := filepath.WalkDir(o.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[filepath.ToSlash(strings.TrimPrefix(path, o.Dir+string(filepath.Separator)))] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestWrite checks the files of modules. That they build and run is the command's test.
func TestWrite(t *testing.T) {
	t.Parallel()
	files := write(t, newplugin.Options{Name: "a", Version: "v1.2.0"})
	long := write(t, newplugin.Options{Name: "an-unusually-long.name_of_a-plugin", Module: "example.org/a/b"})
	for _, m := range []map[string]string{files, long} {
		for name, text := range m {
			if !strings.HasSuffix(name, ".go") {
				continue
			}
			formatted, err := format.Source([]byte(text))
			if err != nil || !bytes.Equal(formatted, []byte(text)) {
				t.Errorf("%s is not formatted: %v", name, err)
			}
		}
		models, err := catalog.Parse([]byte(m["catalog.yaml"]))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range models.Models[0].Releases[0].Source.Files {
			data := m["testdata/tiny/"+f.Path]
			if int64(len(data)) != f.SizeBytes || catalog.DigestOf([]byte(data)).Hex() != f.SHA256 {
				t.Errorf("the catalog has other sizes and digests than %s", f.Path)
			}
		}
	}
	if diff := cmp.Diff("module example.org/a\n\ngo 1.26\n\nrequire github.com/zoo-sdk/zoo v1.2.0\n", files["go.mod"]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("module example.org/a/b\n\ngo 1.26\n", long["go.mod"]); diff != "" {
		t.Error(diff)
	}
	if files["testdata/tiny/model.safetensors"] != long["testdata/tiny/model.safetensors"] {
		t.Error("the weights are not the same each time")
	}
}

// source writes a go.mod and a go.sum into a folder.
func source(t *testing.T, mod string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": mod, "go.sum": "sums\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestWriteReplace has modules built with the source of zoo in a folder.
func TestWriteReplace(t *testing.T) {
	t.Parallel()
	checkout := source(t, "// A comment.\nmodule \"github.com/zoo-sdk/zoo\" // another\n")
	files := write(t, newplugin.Options{Name: "a", Replace: checkout})
	want := "module example.org/a\n\ngo 1.26\n\nrequire github.com/zoo-sdk/zoo v0.0.0\n\nreplace github.com/zoo-sdk/zoo => " + filepath.ToSlash(checkout) + "\n"
	if diff := cmp.Diff(want, files["go.mod"]); diff != "" {
		t.Error(diff)
	}
	if files["go.sum"] != "sums\n" {
		t.Errorf("go.sum is %q", files["go.sum"])
	}
}

// TestPublished tells versions that can be fetched from what builds of commits have.
func TestPublished(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"v1.2.0":                               true,
		"v0.1.0":                               true,
		"v1.2.0-rc.1":                          true,
		"v0.0.0-20261130053236-b0208bfa1c2d":   false,
		"v1.2.1-0.20261130053236-b0208bfa1c2d": false,
		"v1.2.0-rc.1.0.20261130053236-b0208bfa1c2d": false,
		"v0.0.0-20261130053236-b0208bfa1c2d+dirty":  false,
		"v1.2.0+dirty":       false,
		"devel":              false,
		"devel-b0208bfa1c2d": false,
		"1.2.0":              false,
		"v1.2":               false,
		"":                   false,
	} {
		if got := newplugin.Published(version); got != want {
			t.Errorf("%q: %t", version, got)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	free := filepath.Join(dir, "free")
	other := source(t, "module example.org/other\n\ngo 1.26\n")
	empty := source(t, "go 1.26\n")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		o    newplugin.Options
		want error
	}{
		"name":      {t.Context(), newplugin.Options{Name: "../a", Dir: free}, zoo.ErrUsage},
		"module":    {t.Context(), newplugin.Options{Name: "a", Module: "a b", Dir: free}, zoo.ErrUsage},
		"taken":     {t.Context(), newplugin.Options{Name: "a", Dir: dir}, zoo.ErrUsage},
		"no source": {t.Context(), newplugin.Options{Name: "a", Dir: free, Replace: dir}, zoo.ErrNotFound},
		"other":     {t.Context(), newplugin.Options{Name: "a", Dir: free, Replace: other}, zoo.ErrNotFound},
		"no module": {t.Context(), newplugin.Options{Name: "a", Dir: free, Replace: empty}, zoo.ErrNotFound},
		"no parent": {t.Context(), newplugin.Options{Name: "a", Dir: filepath.Join(free, "x")}, zoo.ErrNotFound},
		"cancelled": {cancelled, newplugin.Options{Name: "a", Dir: free}, context.Canceled},
	} {
		err := newplugin.Write(test.ctx, test.o)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
		if errors.Is(err, zoo.ErrNotFound) && zoo.Hint(err) == "" {
			t.Errorf("%s: no hint with %v", name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
