package mmap_test

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zoo-sdk/zoo/internal/mmap"
)

// cold maps a file of so many pages of which nothing is in memory.
func cold(t *testing.T, pages int) []byte {
	t.Helper()
	path, _ := write(t, pages*os.Getpagesize())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	data := open(t, path)
	if held(t, data, 0, pages) > 0 {
		t.Skip("this file system does not let go of a file's pages")
	}
	return data
}

// held returns how many of some pages are in memory.
func held(t *testing.T, data []byte, from, to int) int {
	t.Helper()
	page := os.Getpagesize()
	n, known := mmap.Resident(data, from*page, to*page)
	if !known || n%int64(page) != 0 {
		t.Fatalf("%d bytes are in memory, known %v", n, known)
	}
	return int(n) / page
}

// TestRandom reads the page that is touched and no other.
func TestRandom(t *testing.T) {
	t.Parallel()
	data := cold(t, 256)
	mmap.Random(data, 0, len(data))
	if data[100*os.Getpagesize()] == 0 {
		t.Error("wrong content")
	}
	if n := held(t, data, 0, 256); n != 1 || held(t, data, 100, 101) != 1 {
		t.Errorf("%d pages are in memory", n)
	}
	if n, _ := mmap.Resident(data, 100*os.Getpagesize()+10, 101*os.Getpagesize()+10); n != int64(os.Getpagesize()-10) {
		t.Errorf("%d bytes of parts of two pages are in memory", n)
	}
}

// TestSoon reads without being touched, both pages of what crosses from one to the next, and no other.
func TestSoon(t *testing.T) {
	t.Parallel()
	data := cold(t, 256)
	mmap.Random(data, 0, len(data))
	end := 101 * os.Getpagesize()
	mmap.Advise(data, end-1, end+1, mmap.Soon)
	for limit := time.Now().Add(10 * time.Second); held(t, data, 100, 102) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("nothing was read")
		}
	}
	if n := held(t, data, 0, 256); n != 2 {
		t.Errorf("%d pages are in memory", n)
	}
}

// TestPopulate has all in memory when it returns.
func TestPopulate(t *testing.T) {
	t.Parallel()
	const pages = 20 << 20 >> 12 // more than is asked for at a time
	data := cold(t, pages+512)
	if err := mmap.Populate(t.Context(), data, 512*os.Getpagesize()+1, len(data)); err != nil {
		t.Fatal(err)
	}
	if n := held(t, data, 512, pages+512); n != pages {
		t.Errorf("%d of %d pages are in memory", n, pages)
	}
}
