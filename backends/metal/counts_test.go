package metal_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// idleDevice is a device that takes everything and does nothing.
type idleDevice struct{ submissions, waits, mappedBytes int }

func (d *idleDevice) Open() (metal.Device, error) { return d, nil }

func (*idleDevice) Info() metal.DeviceInfo {
	return metal.DeviceInfo{
		Name: "idle", MemoryBytes: 64 << 30, MaxBufferBytes: 64 << 30, PageBytes: 16 << 10, MaxThreads: 1024, SharedBytes: 32 << 10,
	}
}

func (*idleDevice) Alloc(size int) (metal.Buffer, error) { return &idleBuffer{make([]byte, size)}, nil }

func (d *idleDevice) Map(memory []byte) (metal.Buffer, error) {
	d.mappedBytes += len(memory)
	return &idleBuffer{memory}, nil
}

func (*idleDevice) Load(context.Context, string, []string) error    { return nil }
func (*idleDevice) Record([]metal.Dispatch) (metal.List, error)     { return idleList{}, nil }
func (d *idleDevice) Submit([]metal.List) (metal.Submission, error) { d.submissions++; return d, nil }
func (d *idleDevice) Wait() error                                   { d.waits++; return nil }
func (*idleDevice) Close() error                                    { return nil }

type idleBuffer struct{ data []byte }

func (b *idleBuffer) Bytes() []byte { return b.data }
func (*idleBuffer) Release()        {}

type idleList struct{}

func (idleList) Release() {}

// shapes are weights that have addresses and no contents.
type shapes struct {
	whole   []byte
	tensors map[string]quant.Matrix
	at      map[string]int
}

// newShapes lays the tensors of a program out as a pack does.
func newShapes(p *program.Program) *shapes {
	s := &shapes{tensors: map[string]quant.Matrix{}, at: map[string]int{}}
	size := 0
	for _, w := range p.Weights {
		s.tensors[w.Name], s.at[w.Name] = w.Matrix, size
		size = (size + int(w.SizeBytes()) + 63) &^ 63
	}
	// Nobody touches the bytes, so that they take addresses and no memory.
	s.whole = make([]byte, (size+16383)&^16383)
	return s
}

func (s *shapes) Tensor(name string) ([]byte, quant.Matrix, bool) {
	m, ok := s.tensors[name]
	if !ok {
		return nil, m, false
	}
	return s.whole[s.at[name]:][:m.SizeBytes()], m, true
}

func (s *shapes) Mapping() []byte { return s.whole }

// TestCounts holds what a token of the full-size model takes against the
// product's limits: dispatches, bytes, and waits.
func TestCounts(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector would keep books of 2 GB")
	}
	config, err := os.ReadFile("../../plugins/gemma4e2b/shapes/mobile.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := gemma4.SyntheticProgram(t.Context(), gemma4.Shapes{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	w := newShapes(p)
	device := &idleDevice{}
	e, err := metal.New(device).Compile(t.Context(), p, w, backends.Options{Cache: backends.CacheInt8, Context: 8192})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, pos := range []int{127, 4095} {
		decode, pick, ops, err := metal.Decode(e, pos)
		if err != nil {
			t.Fatal(err)
		}
		n := len(decode) + len(pick)
		kernels := map[string]int{}
		// Bytes that a dispatch moves, each counted once; again are those of inputs that its other groups read, too.
		bytes, again, groups := int64(0), int64(0), 0
		for i, d := range decode {
			kernels[d.Kernel]++
			n := d.Groups[0] * d.Groups[1] * d.Groups[2]
			groups += n
			bytes += ops[i].Bytes
			for at, b := range d.Buffers {
				switch {
				case b.Buffer == nil || ops[i].Bytes > 0 && at == 0: // a matrix, which is counted
				case d.Kernel == "embed" && at == 0: // a row of a table
				case ops[i].Bytes > 0 && strings.HasPrefix(d.Kernel, "vec_") && at == 8:
					bytes += int64(metal.Results(d))
				case strings.HasPrefix(d.Kernel, "vec_attention") && at == 8: // the caches, which come below
				default:
					bytes += int64(b.Size)
				}
				if input := at == 2 || at == 3 || at == 5 || at == 6; input && ops[i].Bytes > 0 && strings.HasPrefix(d.Kernel, "vec_") {
					again += int64((n - 1) * b.Size)
				}
			}
		}
		cache := int64(0)
		var sharers []int // groups that read the same keys, of each attention
		for _, d := range decode {
			if strings.HasPrefix(d.Kernel, "vec_attention") {
				sharers = append(sharers, d.Groups[0])
			}
		}
		for _, op := range p.Ops {
			if op.Attention != nil {
				c := p.Caches[op.Attention.Cache]
				seen := pos + 1
				if c.Window > 0 {
					seen = min(seen, c.Window)
				}
				size := int64(2 * seen * c.KVHeads * c.HeadDim)
				cache += size
				again += size * int64(sharers[0]/c.KVHeads-1)
				sharers = sharers[1:]
			}
		}
		need := e.Stats().StepBytes + cache
		bytes += cache
		t.Logf("position %d: %d dispatches, %d groups, %.1f MB read and written, %.1f MB needed (%.2f%% more), %.1f MB read again by other groups; %v",
			pos, n, groups, float64(bytes)/1e6, float64(need)/1e6, 100*float64(bytes-need)/float64(need), float64(again)/1e6, kernels)
		if n > 260 {
			t.Errorf("position %d: %d dispatches, at most 260 are wanted", pos, n)
		}
		if float64(bytes) > 1.03*float64(need) {
			t.Errorf("position %d: %d bytes are moved where %d are needed", pos, bytes, need)
		}
		for kernel := range kernels {
			if strings.Contains(kernel, "_t8") || strings.Contains(kernel, "_t32") {
				t.Errorf("position %d: a single row goes through %s", pos, kernel)
			}
		}
	}
}
