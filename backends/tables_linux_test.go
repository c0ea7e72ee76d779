package backends_test

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/zoo-sdk/zoo/backends"
)

// Flags of pages, as the kernel names them.
const (
	lockedFlag = "lo"
	randomFlag = "rr"
	streamFlag = "hg"
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

// tablePages returns an x for every page of a file that is of a table, and a dot for every other.
func (w tablesFile) tablePages() string {
	pages, end := strings.Builder{}, 0
	for _, weight := range w.p.Weights {
		end += int(weight.SizeBytes())
		mark := "."
		if slices.Contains(tablesOf, weight.Name) {
			mark = "x"
		}
		pages.WriteString(strings.Repeat(mark, end/os.Getpagesize()-pages.Len()))
	}
	return pages.String()
}

// TestHoldTables tells the system of tables what it was told to, of floats as of codes,
// and goes on so until the last program on the same file has released them.
func TestHoldTables(t *testing.T) {
	for _, c := range []struct {
		place backends.TablePlacement
		flag  string
	}{
		{backends.TablesResident, lockedFlag},
		{backends.TablesMapped, randomFlag},
	} {
		t.Run(string(c.place), func(t *testing.T) {
			w := mapTables(t, tablesProgram())
			want := w.tablePages()
			none := strings.Repeat(".", len(want))
			hold := func() *backends.Tables {
				tables, err := backends.HoldTables(t.Context(), w.p, w, c.place)
				if err != nil {
					t.Fatal(err)
				}
				if c.place == backends.TablesResident && tables.LockedBytes() != w.tableBytes() {
					t.Skipf("%d of %d bytes may be locked here", tables.LockedBytes(), w.tableBytes())
				}
				return tables
			}
			expect := func(when, flag, want string) {
				t.Helper()
				if got := flagged(t, w.data, flag); got != want {
					t.Errorf("%s, pages with flag %q:\n got %s\nwant %s", when, flag, got, want)
				}
			}
			first, second := hold(), hold()
			expect("held twice", c.flag, want)
			first.Release()
			first.Release()
			expect("one of two released", c.flag, want)
			third := hold()
			second.Release()
			expect("another one held, and two released", c.flag, want)
			third.Release()
			expect("all released", c.flag, none)
			if got := second.LockedBytes(); got != 0 {
				t.Errorf("%d bytes are locked after they were released", got)
			}
		})
	}
}

// TestHoldTablesStreams asks for huge pages for all weights but the tables.
func TestHoldTablesStreams(t *testing.T) {
	w := mapTables(t, tablesProgram())
	tables, err := backends.HoldTables(t.Context(), w.p, w, backends.TablesMapped)
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Release()
	want := strings.NewReplacer("x", ".", ".", "x").Replace(w.tablePages())
	switch got := flagged(t, w.data, streamFlag); {
	case !strings.Contains(got, "x"):
		t.Skip("this kernel has no huge pages")
	case got != want:
		t.Errorf("pages\n got %s\nwant %s", got, want)
	}
}
