package metaltest_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
)

const firstSource = `#include <metal_stdlib>
using namespace metal;
struct Args { uint n; float mul; };
template <int K> inline void scale(constant Args& args, device const float* in, device float* out, threadgroup float* shared, uint i, uint thread_) {
	shared[thread_] = in[i] * args.mul + K;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	float4 v = float4(shared[thread_ ^ 1], 1, 2, 3);
	out[i] = v.x + simd_sum(1.0f);
}
#define SCALE(NAME, K) kernel void NAME(constant Args& args [[buffer(0)]], device const float* in [[buffer(1)]], device float* out [[buffer(2)]], \
	threadgroup uchar* shared [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]], uint3 size [[threads_per_threadgroup]]) \
	{ scale<K>(args, in, out, (threadgroup float*)shared, group.x * size.x + index, index); }
SCALE(scale_one, 1)
SCALE(scale_two, 2)
`

func TestFirst(t *testing.T) {
	metaltest.Require(t)
	d := metaltest.New(metaltest.Options{})
	dev, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Load(t.Context(), firstSource, []string{"scale_one", "scale_two"}); err != nil {
		t.Fatal(err)
	}
	in, _ := dev.Alloc(4096 * 4)
	out, err := dev.Alloc(4096 * 4)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4096 {
		binary.LittleEndian.PutUint32(in.Bytes()[4*i:], math.Float32bits(float32(i)))
	}
	args := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 4096), math.Float32bits(2))
	l, err := dev.Record([]metal.Dispatch{{Kernel: "scale_two", Args: args, Buffers: []metal.Binding{{Buffer: in, Size: 16384}, {Buffer: out, Size: 16384}}, Groups: [3]int{16, 1, 1}, Threads: 256, SharedBytes: 1024}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := dev.Submit([]metal.List{l})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range 4096 {
		if got, want := math.Float32frombits(binary.LittleEndian.Uint32(out.Bytes()[4*i:])), float32(i^1)*2+2+32; got != want {
			t.Fatalf("%d: %v, want %v", i, got, want)
		}
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
}
