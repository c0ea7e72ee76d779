package mmap_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/mmap"
)

func TestOpen(t *testing.T) {
	for name, size := range map[string]int{"empty": 0, "byte": 1, "page": 4096, "odd": 100_003} {
		t.Run(name, func(t *testing.T) {
			want := make([]byte, size)
			for i := range want {
				want[i] = byte(i * 7)
			}
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, want, 0o444); err != nil {
				t.Fatal(err)
			}
			m, err := mmap.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Bytes(); got == nil || !bytes.Equal(got, want) || m.Len() != size {
				t.Errorf("%d bytes, Len %d, want %d", len(got), m.Len(), size)
			}
			if runtime.GOOS != "windows" {
				// A replaced file stays as it was for those who have mapped it.
				other := path + ".new"
				if err := os.WriteFile(other, []byte("other"), 0o444); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(other, path); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(m.Bytes(), want) {
					t.Error("the mapping changed when the file was replaced")
				}
			}
			var group sync.WaitGroup
			for range 4 {
				group.Go(func() {
					if err := m.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if m.Bytes() != nil || m.Len() != 0 {
				t.Error("bytes after Close")
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := mmap.Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := mmap.Open(dir); err == nil {
		t.Error("a folder was mapped")
	} else if !errors.Is(err, fault.ErrUsage) {
		t.Errorf("folder: %v", err)
	}
}
