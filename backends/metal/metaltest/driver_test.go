package metaltest_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/mmap"
)

// mapFile maps a file of so many bytes, whose words are their indices.
func mapFile(t *testing.T, size int) []byte {
	t.Helper()
	data := make([]byte, size)
	for i := range size / 4 {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(i))
	}
	path := filepath.Join(t.TempDir(), "some file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
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

// helpers are kernels for these tests.
var helpers = lines(
	"kernel void copy(device const uint* in [[buffer(1)]], device uint* out [[buffer(2)]], uint i [[thread_position_in_grid]]) { out[i] = in[i]; }",
	"[[max_total_threads_per_threadgroup(128)]]",
	"kernel void add(device uint* x [[buffer(1)]], uint i [[thread_position_in_grid]]) { x[i]++; }",
	"kernel void sleep(device atomic_uint* x [[buffer(1)]], uint i [[thread_position_in_grid]]) {",
	"    if (i == 0) { atomic_store_explicit(x + 1, 1, memory_order_relaxed); while (atomic_load_explicit(x, memory_order_relaxed) == 0) {} }",
	"}",
)

// add is a dispatch of that kernel over a buffer of 64 words.
func add(buffer metal.Buffer) metal.Dispatch {
	return metal.Dispatch{Kernel: "add", Buffers: []metal.Binding{whole(buffer)}, Groups: [3]int{2, 1, 1}, Threads: 32}
}

func TestNoDevice(t *testing.T) {
	_, err := metaltest.New(metaltest.Options{NoDevice: true}).Open()
	if !errors.Is(err, metal.ErrNoDevice) || !errors.Is(err, fault.ErrNotFound) {
		t.Error(err)
	}
}

func TestInfo(t *testing.T) {
	for _, c := range []struct {
		options metaltest.Options
		want    metal.DeviceInfo
	}{
		{metaltest.Options{}, metal.DeviceInfo{Name: "test device", MemoryBytes: 64 << 30, MaxBufferBytes: 64 << 30, PageBytes: os.Getpagesize(), MaxThreads: 1024, SharedBytes: 32 << 10}},
		{
			metaltest.Options{MemoryBytes: 1 << 20, MaxBufferBytes: 1 << 16, MaxThreads: 256, SharedBytes: 1 << 10},
			metal.DeviceInfo{Name: "test device", MemoryBytes: 1 << 20, MaxBufferBytes: 1 << 16, PageBytes: os.Getpagesize(), MaxThreads: 256, SharedBytes: 1 << 10},
		},
	} {
		if diff := cmp.Diff(c.want, open(t, c.options).device.Info()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// TestMemory allocates until there is no more.
func TestMemory(t *testing.T) {
	b := open(t, metaltest.Options{MemoryBytes: 1 << 20, MaxBufferBytes: 600 << 10})
	if _, err := b.device.Alloc(600<<10 + 1); !errors.Is(err, metal.ErrMemory) {
		t.Errorf("larger than the largest: %v", err)
	}
	for _, size := range []int{0, -1} {
		if _, err := b.device.Alloc(size); !errors.Is(err, metal.ErrMemory) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	first, err := b.device.Alloc(600 << 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.device.Alloc(600 << 10); !errors.Is(err, metal.ErrMemory) {
		t.Errorf("more than there is: %v", err)
	}
	if _, err := b.device.Map(mapFile(t, 512<<10)); !errors.Is(err, metal.ErrMemory) {
		t.Errorf("mapping more than there is: %v", err)
	}
	first.Release()
	if _, err := b.device.Alloc(600 << 10); err != nil {
		t.Errorf("after a release: %v", err)
	}
	if c := b.driver.Counts(); c.Allocs != 2 || c.LiveBuffers != 1 || c.LiveBytes != 600<<10 {
		t.Errorf("%+v", c)
	}
}

// TestMap reads a part of a file.
func TestMap(t *testing.T) {
	page := os.Getpagesize()
	data := mapFile(t, 8*page)
	for _, options := range []metaltest.Options{{}, {Checked: true}} {
		b := load(t, options, helpers, "copy")
		mapped, err := b.device.Map(data[2*page : 5*page])
		if err != nil {
			t.Fatal(err)
		}
		out := b.buffer(page / 4)
		for k := range 3 {
			if err := b.run(metal.Dispatch{
				Kernel: "copy", Buffers: []metal.Binding{{Buffer: mapped, Offset: k * page, Size: page}, whole(out)}, Groups: [3]int{page / 128, 1, 1}, Threads: 32,
			}); err != nil {
				t.Fatal(err)
			}
			if got, want := words(out)[7], uint32((2+k)*page/4+7); got != want {
				t.Errorf("page %d: %d, want %d", k, got, want)
			}
		}
		if &mapped.Bytes()[0] != &data[2*page] {
			t.Error("the memory was copied")
		}
		mapped.Release()
		if c := b.driver.Counts(); c.Maps != 1 || c.LiveBuffers != 1 {
			t.Errorf("%+v", c)
		}
	}
}

func TestMapRefusals(t *testing.T) {
	b := open(t, metaltest.Options{})
	page := os.Getpagesize()
	data := mapFile(t, 4*page)
	heap := make([]byte, 64*page)
	heap = heap[page-int(uintptrOf(heap))%page:][:page]
	for _, c := range []struct {
		name   string
		memory []byte
		want   string
	}{
		{"not aligned", data[16 : 16+page], "multiples"},
		{"part of a page", data[:page/2], "multiples"},
		{"no file", heap, "no mapping of a file"},
		{"nothing", nil, "0 bytes"},
	} {
		if _, err := b.device.Map(c.memory); !errors.Is(err, metal.ErrMemory) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	path := filepath.Join(t.TempDir(), "gone")
	if err := os.WriteFile(path, make([]byte, page), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := mmap.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := b.device.Map(m.Bytes()); !errors.Is(err, metal.ErrMemory) {
		t.Errorf("a file that was removed: %v", err)
	}
}

// TestRecordRefusals records what no device would take.
func TestRecordRefusals(t *testing.T) {
	b := load(t, metaltest.Options{MaxThreads: 256, SharedBytes: 1024}, helpers, "add", "copy")
	buffer, gone := b.buffer(64), b.buffer(64)
	gone.Release()
	foreign := open(t, metaltest.Options{}).buffer(64)
	for _, c := range []struct {
		name   string
		change func(*metal.Dispatch)
		want   string
	}{
		{"kernel", func(d *metal.Dispatch) { d.Kernel = "subtract" }, "no such kernel"},
		{"no threads", func(d *metal.Dispatch) { d.Threads = 0 }, "threads"},
		{"threads", func(d *metal.Dispatch) { d.Threads = 33 }, "threads"},
		{"threads of the kernel", func(d *metal.Dispatch) { d.Threads = 160 }, "the kernel's source says 128 at most"},
		{"many threads", func(d *metal.Dispatch) { d.Threads = 512 }, "threads"},
		{"shared", func(d *metal.Dispatch) { d.SharedBytes = 8 }, "threadgroup memory"},
		{"much shared", func(d *metal.Dispatch) { d.SharedBytes = 2048 }, "threadgroup memory"},
		{"arguments", func(d *metal.Dispatch) { d.Args = make([]byte, 4100) }, "arguments"},
		{"no words", func(d *metal.Dispatch) { d.Args = make([]byte, 3) }, "arguments"},
		{"groups", func(d *metal.Dispatch) { d.Groups = [3]int{-1, 1, 1} }, "grid"},
		{"many groups", func(d *metal.Dispatch) { d.Groups = [3]int{1 << 20, 1 << 20, 1 << 20} }, "grid"},
		{"offset", func(d *metal.Dispatch) { d.Buffers[0].Offset = 8 }, "multiple of 16"},
		{"size", func(d *metal.Dispatch) { d.Buffers[0].Size = 257 }, "not within"},
		{"end", func(d *metal.Dispatch) { d.Buffers[0].Offset = 16 }, "not within"},
		{"released", func(d *metal.Dispatch) { d.Buffers[0].Buffer = gone }, "released"},
		{"foreign", func(d *metal.Dispatch) { d.Buffers[0].Buffer = foreign }, "another device"},
		{"many buffers", func(d *metal.Dispatch) { d.Buffers = make([]metal.Binding, 31) }, "buffers"},
	} {
		d := add(buffer)
		c.change(&d)
		if _, err := b.device.Record([]metal.Dispatch{d}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	d := add(buffer)
	d.Kernel = "subtract"
	if _, err := b.device.Record([]metal.Dispatch{d}); !errors.Is(err, metal.ErrKernel) {
		t.Error(err)
	}
	list, err := b.device.Record([]metal.Dispatch{add(buffer)})
	if err != nil {
		t.Fatal(err)
	}
	buffer.Release()
	if _, err := b.device.Submit([]metal.List{list}); err == nil {
		t.Error("a list of a released buffer is submitted")
	}
	list.Release()
	if _, err := b.device.Submit([]metal.List{list}); err == nil {
		t.Error("a released list is submitted")
	}
}

// TestArguments binds arguments of another size than the kernel's struct.
func TestArguments(t *testing.T) {
	source := "struct Args { uint a, b; };\nkernel void k(constant Args& args [[buffer(0)]], device uint* out [[buffer(1)]]) { out[0] = args.b; }\n"
	b := load(t, metaltest.Options{}, source, "k")
	out := b.buffer(1)
	d := metal.Dispatch{Kernel: "k", Args: args(1), Buffers: []metal.Binding{whole(out)}, Groups: [3]int{1, 1, 1}, Threads: 32}
	if err := b.run(d); !errors.Is(err, metal.ErrDevice) || !strings.Contains(err.Error(), "8 bytes and not 4") {
		t.Error(err)
	}
}

// TestOrderOfWork submits several lists, some several times, and waits later.
func TestOrderOfWork(t *testing.T) {
	for _, options := range []metaltest.Options{{}, {Checked: true, Seed: 1}} {
		b := load(t, options, helpers, "add", "copy")
		x, y := b.buffer(64), b.buffer(64)
		copying := metal.Dispatch{Kernel: "copy", Buffers: []metal.Binding{whole(x), whole(y)}, Groups: [3]int{2, 1, 1}, Threads: 32}
		adds, err := b.device.Record([]metal.Dispatch{add(x), add(x), copying, add(x)})
		if err != nil {
			t.Fatal(err)
		}
		more, err := b.device.Record([]metal.Dispatch{add(y)})
		if err != nil {
			t.Fatal(err)
		}
		before := b.driver.Counts()
		var running []metal.Submission
		for range 3 {
			s, err := b.device.Submit([]metal.List{adds, more, more})
			if err != nil {
				t.Fatal(err)
			}
			running = append(running, s)
		}
		if c := b.driver.Counts(); c.Running != 3 {
			t.Errorf("%+v", c)
		}
		if err := b.device.Close(); err == nil {
			t.Error("a device that works is closed")
		}
		// Memory that is asked for meanwhile need not wait.
		z := b.buffer(64)
		for _, s := range running {
			if err := s.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		if got := []uint32{words(x)[5], words(y)[5]}; !cmp.Equal(got, []uint32{5 + 9, 5 + 8 + 2}) {
			t.Errorf("%v", got)
		}
		z.Release()
		adds.Release()
		more.Release()
		x.Release()
		y.Release()
		after := b.driver.Counts()
		after.Submissions -= before.Submissions
		want := metaltest.Counts{
			Allocs: 3, Lists: 2, Submissions: 3, Waits: 3, Dispatches: 18, BoundBytes: 3 * (3*256 + 512 + 2*256), LiveDevices: 1,
		}
		if diff := cmp.Diff(want, after); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if err := b.device.Close(); err != nil {
			t.Fatal(err)
		}
		if c := b.driver.Counts(); c.LiveDevices != 0 {
			t.Errorf("%+v", c)
		}
	}
}

// TestLeaks counts what nobody released.
func TestLeaks(t *testing.T) {
	b := load(t, metaltest.Options{}, helpers, "add")
	x := b.buffer(64)
	if _, err := b.device.Record([]metal.Dispatch{add(x)}); err != nil {
		t.Fatal(err)
	}
	if c := b.driver.Counts(); c.LiveBuffers != 1 || c.LiveBytes != 256 || c.LiveLists != 1 {
		t.Errorf("%+v", c)
	}
	if err := b.device.Close(); err != nil {
		t.Fatal(err)
	}
	if c := b.driver.Counts(); c.LiveBuffers != 0 || c.LiveBytes != 0 || c.LiveLists != 0 {
		t.Errorf("closing frees nothing: %+v", c)
	}
	x.Release() // which is fine after Close
}

// TestSharedMemory has the process and a kernel see each other's writes while the kernel runs.
func TestSharedMemory(t *testing.T) {
	b := load(t, metaltest.Options{}, helpers, "sleep")
	x := b.buffer(64)
	clear(x.Bytes())
	list, err := b.device.Record([]metal.Dispatch{{Kernel: "sleep", Buffers: []metal.Binding{whole(x)}, Groups: [3]int{1, 1, 1}, Threads: 32}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.device.Submit([]metal.List{list})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(x)
	atomicWord(x, 0).Store(1)
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestKilled kills the device in the midst of work.
func TestKilled(t *testing.T) {
	b := load(t, metaltest.Options{}, helpers, "sleep", "add")
	x := b.buffer(64)
	clear(x.Bytes())
	list, err := b.device.Record([]metal.Dispatch{{Kernel: "sleep", Buffers: []metal.Binding{whole(x)}, Groups: [3]int{1, 1, 1}, Threads: 32}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.device.Submit([]metal.List{list})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(x)
	b.driver.Kill()
	if err := s.Wait(); !errors.Is(err, metal.ErrDevice) {
		t.Errorf("wait: %v", err)
	}
	lost(t, b, list)
}

// lost checks that everything fails with a device that is gone.
func lost(t *testing.T, b *bench, list metal.List) {
	t.Helper()
	if _, err := b.device.Submit([]metal.List{list}); !errors.Is(err, metal.ErrDevice) {
		t.Errorf("submit: %v", err)
	}
	if _, err := b.device.Alloc(64); !errors.Is(err, metal.ErrDevice) {
		t.Errorf("alloc: %v", err)
	}
	if _, err := b.device.Record(nil); !errors.Is(err, metal.ErrDevice) {
		t.Errorf("record: %v", err)
	}
	list.Release()
}

// TestFailAfter has the device go away after some dispatches.
func TestFailAfter(t *testing.T) {
	b := load(t, metaltest.Options{FailAfter: 5}, helpers, "add")
	x := b.buffer(64)
	list, err := b.device.Record([]metal.Dispatch{add(x), add(x), add(x)})
	if err != nil {
		t.Fatal(err)
	}
	first, err := b.device.Submit([]metal.List{list})
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.device.Submit([]metal.List{list})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Error(err)
	}
	if err := second.Wait(); !errors.Is(err, metal.ErrDevice) {
		t.Errorf("wait: %v", err)
	}
	if got := words(x)[0]; got != 5 {
		t.Errorf("%d dispatches were done", got)
	}
	lost(t, b, list)
}

// TestEndless ends a kernel that does not.
func TestEndless(t *testing.T) {
	b := load(t, metaltest.Options{TimeLimit: time.Second}, helpers, "sleep")
	x := b.buffer(64)
	clear(x.Bytes())
	err := b.run(metal.Dispatch{Kernel: "sleep", Buffers: []metal.Binding{whole(x)}, Groups: [3]int{1, 1, 1}, Threads: 32})
	if !errors.Is(err, metal.ErrDevice) || !strings.Contains(err.Error(), "kernel sleep") || !strings.Contains(err.Error(), "does not end") {
		t.Error(err)
	}
}
