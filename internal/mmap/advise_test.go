package mmap_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/zoo-sdk/zoo/internal/mmap"
)

// write writes a file of so many bytes, none of them 0.
func write(t *testing.T, size int) (path string, content []byte) {
	t.Helper()
	content = make([]byte, size)
	for i := range content {
		content[i] = byte(i%251 + 1)
	}
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path, content
}

// open maps a file until the test ends.
func open(t *testing.T, path string) []byte {
	t.Helper()
	m, err := mmap.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m.Bytes()
}

// TestAdvice changes no content, whatever is asked for, and takes memory that is no file's.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"empty": 0, "byte": 1, "page": 4096, "odd": 100_003} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, want := write(t, size)
			data := open(t, path)
			heap := append(make([]byte, 0, size+1), want...)
			for _, span := range [][2]int{{0, size}, {1, size}, {size, size}, {0, 0}, {size / 2, size/2 + 5}, {5, 2}, {-1, 1}, {0, size + 1}, {size + 4096, size + 8192}, {0, math.MaxInt}} {
				for _, a := range []mmap.Advice{mmap.Stream, mmap.Soon} {
					mmap.Advise(data, span[0], span[1], a)
					mmap.Advise(heap, span[0], span[1], a)
				}
				mmap.Random(data, span[0], span[1]).Release()
				mmap.Random(heap, span[0], span[1]).Release()
			}
			if err := mmap.Populate(t.Context(), data, 0, size); err != nil {
				t.Error(err)
			}
			if h, err := mmap.Lock(data, size/2, size); err == nil {
				h.Release()
			}
			if !bytes.Equal(data, want) || !bytes.Equal(heap, want) {
				t.Error("the content has changed")
			}
		})
	}
}

func TestPopulateStops(t *testing.T) {
	t.Parallel()
	path, _ := write(t, 100_000)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if err := mmap.Populate(ctx, open(t, path), 0, 100_000); !errors.Is(err, why) {
		t.Errorf("error %v, want the cause", err)
	}
}

func TestOffset(t *testing.T) {
	t.Parallel()
	all := make([]byte, 100)
	data := all[20:80]
	for _, c := range []struct {
		name string
		part []byte
		want int
		ok   bool
	}{
		{"all", data, 0, true},
		{"inside", data[7:9], 7, true},
		{"the end", data[50:], 50, true},
		{"nothing at the end", data[60:], 60, true},
		{"before", all[10:15], 0, false},
		{"from before", all[19:30], 0, false},
		{"past the end", all[70:81], 0, false},
		{"behind", all[90:], 0, false},
		{"elsewhere", make([]byte, 8), 0, false},
	} {
		if got, ok := mmap.Offset(data, c.part); ok != c.ok || got != c.want {
			t.Errorf("%s: %d, %v, want %d, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}
