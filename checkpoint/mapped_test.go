package checkpoint_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
)

func TestMapFile(t *testing.T) {
	dir := put(t, map[string][]byte{"a.bin": []byte("content"), "empty": nil})
	f, err := checkpoint.MapFile(dir, "a.bin")
	if err != nil {
		t.Fatal(err)
	}
	if string(f.Bytes()) != "content" {
		t.Errorf("%q", f.Bytes())
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if f.Bytes() != nil {
		t.Error("a closed file has content")
	}
	if f, err = checkpoint.MapFile(dir, "empty"); err != nil || len(f.Bytes()) != 0 {
		t.Fatalf("an empty file: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := checkpoint.MapFile(dir, "b.bin"); !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, fault.ErrNotFound) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := checkpoint.MapFile(filepath.Join(dir, "none"), "a.bin"); !errors.Is(err, fault.ErrNotFound) {
		t.Errorf("a folder that is not there: %v", err)
	}
	for _, name := range []string{"", ".", "..", "../a.bin", "x/a.bin"} {
		if _, err := checkpoint.MapFile(dir, name); !errors.Is(err, fault.ErrIntegrity) {
			t.Errorf("%q: %v", name, err)
		}
	}
	outside := filepath.Join(put(t, map[string][]byte{"a.bin": []byte("secret")}), "a.bin")
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	if _, err := checkpoint.MapFile(dir, "link"); err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("a link out of the folder: %v", err)
	}
}
