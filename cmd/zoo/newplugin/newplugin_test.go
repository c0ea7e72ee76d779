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

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	free := filepath.Join(dir, "free")
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
		"no parent": {t.Context(), newplugin.Options{Name: "a", Dir: filepath.Join(free, "x")}, os.ErrNotExist},
		"cancelled": {cancelled, newplugin.Options{Name: "a", Dir: free}, context.Canceled},
	} {
		if err := newplugin.Write(test.ctx, test.o); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
