package mmap_test

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/internal/mmap"
)

// flagged returns an x for every page of mapped data that has one of the kernel's
// flags, and a dot for every other. data begins at the start of a page. Where the kernel does not tell, the
// test is skipped.
func flagged(t *testing.T, data []byte, flag string) string {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	page := uintptr(os.Getpagesize())
	base := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	pages := []byte(strings.Repeat("?", (len(data)+int(page)-1)/int(page)))
	var from, to uintptr // of the mapping that the lines are about
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		var first, end uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x ", &first, &end); n == 2 {
			from, to = first, end
		}
		flags, ok := strings.CutPrefix(line, "VmFlags:")
		if !ok {
			continue
		}
		mark := byte('.')
		if slices.Contains(strings.Fields(flags), flag) {
			mark = 'x'
		}
		for i := range pages {
			if at := base + uintptr(i)*page; from <= at && at < to {
				pages[i] = mark
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(pages), "?") {
		t.Skip("the kernel does not tell the flags of memory")
	}
	return string(pages)
}

// TestHolds lets pages go when nobody holds them any more, and not before.
func TestHolds(t *testing.T) {
	t.Parallel()
	page := os.Getpagesize()
	type step struct {
		hold    [2]int // bytes, if any
		release int    // else the number of the hold
		want    string
	}
	hold := func(from, to int, want string) step { return step{hold: [2]int{from, to}, want: want} }
	release := func(i int, want string) step { return step{release: i, want: want} }
	for _, c := range []struct {
		name, flag string
		steps      []step
	}{
		{"the same bytes locked twice", "lo", []step{
			hold(page, 3*page, ".xx....."), hold(page, 3*page, ".xx....."), release(0, ".xx....."), release(0, ".xx....."), release(1, "........"),
		}},
		{"neighbours in a page", "lo", []step{
			hold(page, 2*page+9, ".xx....."), hold(2*page+9, 4*page-1, ".xxx...."), release(0, "..xx...."), release(1, "........"),
		}},
		{"one within another", "lo", []step{
			hold(0, 8*page-100, "xxxxxxxx"), hold(3*page, 4*page, "xxxxxxxx"), hold(6*page, 8*page-100, "xxxxxxxx"), release(0, "...x..xx"), release(2, "...x...."), release(1, "........"),
		}},
		{"random twice", "rr", []step{
			hold(page, 3*page, ".xx....."), hold(page, 5*page, ".xxxx..."), release(1, ".xx....."), release(1, ".xx....."), release(0, "........"),
		}},
		{"random but for shared pages", "rr", []step{
			hold(page-1, 3*page+1, ".xx....."), hold(3*page+1, 3*page+2, ".xx....."), hold(5*page+1, 8*page-100, ".xx...xx"), release(0, "......xx"), release(1, "......xx"), release(2, "........"),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, _ := write(t, 8*page-100)
			data := open(t, path)
			var holds []*mmap.Hold
			for i, s := range c.steps {
				switch {
				case s.hold == [2]int{}:
					holds[s.release].Release()
				case c.flag == "lo":
					h, err := mmap.Lock(data, s.hold[0], s.hold[1])
					if err != nil {
						t.Skip(err)
					}
					holds = append(holds, h)
				default:
					holds = append(holds, mmap.Random(data, s.hold[0], s.hold[1]))
				}
				if diff := cmp.Diff(s.want, flagged(t, data, c.flag)); diff != "" {
					t.Fatalf("after step %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// TestHoldsEnd with the mapping: one that is forgotten holds nothing of the next mapping
// at the same place.
func TestHoldsEnd(t *testing.T) {
	path, _ := write(t, 4*os.Getpagesize())
	for range 3 {
		m, err := mmap.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		data := m.Bytes()
		forgotten, err := mmap.Lock(data, 0, len(data))
		if err != nil {
			t.Skip(err)
		}
		second, err := mmap.Lock(data, 0, len(data))
		if err != nil {
			t.Skip(err)
		}
		second.Release()
		if got := flagged(t, data, "lo"); got != "xxxx" {
			t.Errorf("locked pages are %s", got)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := mmap.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		data = again.Bytes()
		h, err := mmap.Lock(data, 0, len(data))
		if err != nil {
			t.Skip(err)
		}
		forgotten.Release() // of a mapping that is no more
		if got := flagged(t, data, "lo"); got != "xxxx" {
			t.Errorf("locked pages are %s after another mapping's were released", got)
		}
		h.Release()
		if got := flagged(t, data, "lo"); got != "...." {
			t.Errorf("locked pages are %s when nobody holds them", got)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
