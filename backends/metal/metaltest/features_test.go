package metaltest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
)

// feature is a part of the language: what a thread i of 64 writes to out[i].
// in[k] is k, shared has 1024 bytes, and lane and simd are i's.
type feature struct {
	name, body string
	want       func(i, lane, simd uint32) uint32
}

// is wants the same of every thread.
func is(x uint32) func(i, lane, simd uint32) uint32 {
	return func(uint32, uint32, uint32) uint32 { return x }
}

var features = []feature{
	// Vectors.
	{"splat", "float4 v = float4(2.5f); out[i] = as_type<uint>(v.x + v.y + v.z + v.w);", is(f(10))},
	{"implicit_splat", "float4 v = 2; v += 1; out[i] = as_type<uint>(v[0] * v[3]);", is(f(9))},
	{"parts", "float4 v = float4(float2(1, 2), 3, 4); out[i] = uint(v.x + 10 * v.y + 100 * v.z + 1000 * v.w);", is(4321)},
	{"parts_of_three", "uint3 a = uint3(1, 2, 3); uint4 v = uint4(a.zyx, 9); out[i] = v.x * 1000 + v.y * 100 + v.z * 10 + v.w;", is(3219)},
	{"convert", "int4 v = int4(float4(1.9f, -1.9f, 3, 4)); out[i] = uint(v.x + 100) * 1000 + uint(v.y + 100);", is(101099)},
	{"bytes", "uchar4 b = as_type<uchar4>(in[i] * 0x01010101u); uint4 v = uint4(b); out[i] = v.x + v.y + v.z + v.w;", func(i, _, _ uint32) uint32 { return 4 * i }},
	{"signed_bytes", "char4 b = char4(char(-1), char(2), char(-3), char(4)); float4 v = float4(b); out[i] = uint(int(v.x + v.y + v.z + v.w));", is(2)},
	{"swizzle", "uint4 v = uint4(1, 2, 3, 4); v.xz = v.wy; uint2 h = v.zw; out[i] = v.x * 1000 + v.z * 100 + h.x * 10 + h.y;", is(4224)},
	{"colours", "uint4 v = uint4(1, 2, 3, 4); out[i] = v.r + 10 * v.g + 100 * v.b + 1000 * v.a;", is(4321)},
	{"vec_template", "vec<uint, 3> v = vec<uint, 3>(i, 1, 2); out[i] = v.x + v.y + v.z + uint(sizeof(float3)) + uint(sizeof(vec<half, 2>));", func(i, _, _ uint32) uint32 { return i + 3 + 16 + 4 }},
	{"vector_pointer", "device const uint4* v = reinterpret_cast<device const uint4*>(in); out[i] = v[i].y;", func(i, _, _ uint32) uint32 { return 4*i + 1 }},
	{"packed", "device const packed_uint2* v = reinterpret_cast<device const packed_uint2*>(in + 1); uint2 w = v[i]; out[i] = w.x * 1000 + w.y;", func(i, _, _ uint32) uint32 { return (2*i+1)*1000 + 2*i + 2 }},
	{"constructed", "float2 v(1, 2); uchar2 w(3); out[i] = uint(v.x + v.y) + w.y;", is(6)},
	{"vector_select", "uint4 v = select(uint4(1, 2, 3, 4), uint4(5, 6, 7, 8), int4(i, 1, 2, 3) > int4(10, 1, 1, 1)); out[i] = v.x * 1000 + v.y * 100 + v.z * 10 + v.w;", func(i, _, _ uint32) uint32 {
		if i > 10 {
			return 5278
		}
		return 1278
	}},
	{"any_all", "int4 c = uint4(i, 1, 2, 3) == uint4(3, 1, 2, 3); out[i] = any(c) + 2 * all(c);", func(i, _, _ uint32) uint32 {
		if i == 3 {
			return 3
		}
		return 1
	}},
	{"vector_functions", "float4 v = fma(float4(2), float4(3), rint(float4(0.5f, 1.5f, 2.5f, -0.6f))); int4 w = max(int4(v), int4(7)); out[i] = uint(w.x + 100 * w.y + 10000 * w.z + 1000000 * w.w);", is(7080807)},

	// Numbers.
	{"double_literal", "out[i] = as_type<uint>(0.1 + 1e-1 + 1.5e0);", is(f(float32(0.1) + float32(0.1) + 1.5))},
	{"half_literal", "half h = 1.5h; out[i] = uint(h * 2.0h);", is(3)},
	{"half_rounds", "half a = 2048.0h; half b = a + half(1); out[i] = uint(float(b)) + uint(float(a + half(3) + half(in[i]) * half(0)));", is(2048 + 2052)},
	{"half_to_float", "out[i] = as_type<uint>(half(0.1f) * 2.0f);", is(f(0.199951171875))},
	{"half_bits", "out[i] = uint(as_type<ushort>(half(1.0f)));", is(0x3c00)},
	{"no_fusing", "float a = 1.0f + in[1] * 0x1p-12f; float b = a * a - 1.0f; out[i] = as_type<uint>(b);", is(f(0x1p-11))},
	{"fma", "float a = 1.0f + in[1] * 0x1p-12f; out[i] = as_type<uint>(fma(a, a, -1.0f));", is(f(0x1p-11 + 0x1p-24))},
	{"rounding", "out[i] = uint(rint(2.5f) + 10 * rint(3.5f) + 100 * floor(2.9f) + 1000 * ceil(2.1f) + 10000 * trunc(2.9f) + 100000 * round(2.5f));", is(323242)},
	{"integers", "out[i] = clz(in[1]) + ctz(in[8]) * 100 + popcount(in[7]) * 1000 + clz(ushort(1)) * 10000 + clz(ulong(1)) * 1000000 + ctz(in[0]) * 100000000;", is(31 + 300 + 3000 + 150000 + 63000000 + 3200000000)},
	{"rotate", "out[i] = rotate(0x80000001u, in[1]) + rotate(in[5], 0u);", is(3 + 5)},
	{"bits", "out[i] = reverse_bits(in[1]) + extract_bits(0x12345678u, 8, 8) + uint(extract_bits(int(0xf00), 8, 4));", is(0x80000000 + 0x56 - 1)},
	{"mulhi", "out[i] = mulhi(0x80000000u, in[6]) + absdiff(in[3], in[10]) + uint(mulhi(int(-1), int(1)));", is(3 + 7 - 1)},
	{"min_max", "out[i] = min(in[3], in[5]) + 10 * max(in[3], in[5]) + 100 * clamp(in[9], in[2], in[4]) + 1000 * uint(abs(-2)) + 10000 * uint(max(1.5f, 3.0f));", is(32453)},
	{"fmin_nan", "float n = as_type<float>(0x7fc00000u); out[i] = uint(fmin(n, 2.0f) + fmax(n, 3.0f) + clamp(n, 4.0f, 5.0f)) + 100 * isnan(n) + 1000 * isinf(n) + 10000 * isfinite(n);", is(109)},
	{"float_bits", "out[i] = uint(copysign(3.0f, -1.0f) + 10) + 100 * signbit(-0.0f) + 1000 * uint(fabs(-4.0f)) + 10000 * uint(sqrt(25.0f)) + 100000 * uint(ldexp(1.5f, 2)) + 1000000 * uint(sign(3.0f) + 1) + 10000000 * uint(saturate(7.0f));", is(7 + 100 + 4000 + 50000 + 600000 + 2000000 + 10000000)},
	{"scalar_select", "out[i] = select(in[4], in[6], i > 5);", func(i, _, _ uint32) uint32 {
		if i > 5 {
			return 6
		}
		return 4
	}},
	{"precise", "out[i] = as_type<uint>(precise::sqrt(2.0f));", is(0x3fb504f3)},
	{"long_numbers", "ulong x = ulong(in[i]) << 33; long y = -long(x); out[i] = uint(ulong(-y) >> 32);", func(i, _, _ uint32) uint32 { return 2 * i }},

	// SIMD groups.
	{"shuffle", "out[i] = simd_shuffle(in[i], ushort(31 - lane));", func(_, lane, simd uint32) uint32 { return 32*simd + 31 - lane }},
	{"shuffle_xor", "out[i] = simd_shuffle_xor(in[i], 5);", func(i, _, _ uint32) uint32 { return i ^ 5 }},
	{"shuffle_down", "out[i] = simd_shuffle_down(in[i], 7);", func(i, lane, _ uint32) uint32 {
		if lane+7 < 32 {
			return i + 7
		}
		return i
	}},
	{"shuffle_up", "out[i] = simd_shuffle_up(in[i], 7);", func(i, lane, _ uint32) uint32 {
		if lane >= 7 {
			return i - 7
		}
		return i
	}},
	{"rotate_down", "out[i] = simd_shuffle_rotate_down(in[i], 3);", func(_, lane, simd uint32) uint32 { return 32*simd + (lane+3)%32 }},
	{"rotate_up", "out[i] = simd_shuffle_rotate_up(in[i], 3);", func(_, lane, simd uint32) uint32 { return 32*simd + (lane+29)%32 }},
	{"broadcast", "out[i] = simd_broadcast(in[i], 9) + simd_broadcast_first(in[i]);", func(_, _, simd uint32) uint32 { return 64*simd + 9 }},
	{"shuffle_vector", "half4 v = simd_shuffle_xor(half4(half(i), 1, 2, 3), 1); float4 w = simd_broadcast(float4(i), 2); out[i] = uint(v.x + v.w) * 1000 + uint(w.z);", func(i, _, simd uint32) uint32 { return ((i^1)+3)*1000 + 32*simd + 2 }},
	{"sum", "out[i] = simd_sum(in[i]) + 10000 * uint(simd_sum(float(lane))) + uint(simd_sum(float2(1, 2)).y);", func(_, _, simd uint32) uint32 { return 496 + 32*32*simd + 4960000 + 64 }},
	{"least_most", "out[i] = simd_min(in[i]) + 1000 * simd_max(in[i]) + 1000000 * uint(simd_max(-float(lane)) + 1);", func(_, _, simd uint32) uint32 { return 32*simd + 1000*(32*simd+31) + 1000000 }},
	{"and_or_xor", "out[i] = simd_and(0xf0u | lane) + 1000 * simd_or(lane) + 1000000 * simd_xor(lane == 3 ? 5u : 0u);", is(0xf0 + 31000 + 5000000)},
	{"product", "out[i] = simd_product(lane < 5 ? 2u : 1u);", is(32)},
	{"prefix", "out[i] = simd_prefix_exclusive_sum(lane) + 1000 * simd_prefix_inclusive_sum(1u);", func(_, lane, _ uint32) uint32 { return lane*(lane-1)/2 + 1000*(lane+1) }},
	{"votes", "simd_vote v = simd_ballot(lane % 2 == 0); out[i] = uint(simd_vote::vote_t(v)) + simd_any(lane == 40) + 2 * simd_any(lane == 4) + 4 * simd_all(lane < 31) + 8 * simd_all(lane < 32);", is(0x55555555 + 2 + 8)},
	{"simd_memory", "threadgroup uint* s = reinterpret_cast<threadgroup uint*>(shared); s[i] = i; simdgroup_barrier(mem_flags::mem_threadgroup); out[i] = s[i ^ 3];", func(i, _, _ uint32) uint32 { return i ^ 3 }},

	// Groups.
	{"shared_memory", "threadgroup uint* s = reinterpret_cast<threadgroup uint*>(shared); s[i] = i; threadgroup_barrier(mem_flags::mem_threadgroup); out[i] = s[63 - i];", func(i, _, _ uint32) uint32 { return 63 - i }},
	{"device_memory", "out[i] = i; threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup); uint x = out[63 - i]; threadgroup_barrier(mem_flags::mem_device); out[i] = x;", func(i, _, _ uint32) uint32 { return 63 - i }},
	{"shared_atomics", lines(
		"threadgroup atomic_uint* s = reinterpret_cast<threadgroup atomic_uint*>(shared);",
		"if (i < 7) atomic_store_explicit(&s[i], i == 5 ? 1000u : i == 4 ? 0xffffu : 0u, memory_order_relaxed);",
		"threadgroup_barrier(mem_flags::mem_threadgroup);",
		"atomic_fetch_add_explicit(&s[0], 2, memory_order_relaxed);",
		"atomic_fetch_sub_explicit(&s[1], 1, memory_order_relaxed);",
		"atomic_fetch_or_explicit(&s[2], 1u << lane, memory_order_relaxed);",
		"atomic_fetch_xor_explicit(&s[3], i, memory_order_relaxed);",
		"atomic_fetch_and_explicit(&s[4], ~i, memory_order_relaxed);",
		"atomic_fetch_min_explicit(&s[5], i + 5, memory_order_relaxed);",
		"atomic_fetch_max_explicit(&s[6], i, memory_order_relaxed);",
		"threadgroup_barrier(mem_flags::mem_threadgroup);",
		"out[i] = i < 7 ? atomic_load_explicit(&s[i], memory_order_relaxed) : 0;",
	), func(i, _, _ uint32) uint32 {
		return append([]uint32{128, ^uint32(63), ^uint32(0), 0, 0xffff &^ 63, 5, 63}, make([]uint32, 64)...)[i]
	}},
	{"atomic_exchange", lines(
		"threadgroup atomic_int* s = reinterpret_cast<threadgroup atomic_int*>(shared);",
		"if (i == 0) atomic_store_explicit(s, -1, memory_order_relaxed);",
		"threadgroup_barrier(mem_flags::mem_threadgroup);",
		"int expected = -1; bool mine = atomic_compare_exchange_weak_explicit(s, &expected, 7, memory_order_relaxed, memory_order_relaxed);",
		"threadgroup_barrier(mem_flags::mem_threadgroup);",
		"int last = atomic_exchange_explicit(s, 7, memory_order_relaxed);",
		"out[i] = uint(last) + simd_sum(uint(mine)) * (i < 32 ? 100 : 0) * 0 + uint(mine ? 0 : expected - 7);",
	), is(7)},

	// Matrices.
	{"matrix", lines(
		"threadgroup float* s = reinterpret_cast<threadgroup float*>(shared);",
		"simdgroup_float8x8 a, b;",
		"simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);",
		"if (simd == 0) { s[2 * lane] = float(2 * lane); s[2 * lane + 1] = float(2 * lane + 1); s[64 + 2 * lane] = lane == 0 ? 1 : 0; s[64 + 2 * lane + 1] = lane == 0 ? 2 : 0; }",
		"threadgroup_barrier(mem_flags::mem_threadgroup);",
		"simdgroup_load(a, s); simdgroup_load(b, s + 64);",
		"simdgroup_multiply_accumulate(c, a, b, c);",
		"threadgroup_barrier(mem_flags::mem_threadgroup);",
		"if (simd == 1) simdgroup_store(c, s + 128);",
		"threadgroup_barrier(mem_flags::mem_threadgroup);",
		"out[i] = uint(s[128 + i]);",
	), func(i, _, _ uint32) uint32 {
		row, col := i/8, i%8 // b has 1 and 2 in its first row
		switch col {
		case 0:
			return 8*row + 1
		case 1:
			return 2*8*row + 1
		}
		return 1
	}},
	{"matrix_half", lines(
		"threadgroup half* s = reinterpret_cast<threadgroup half*>(shared);",
		"threadgroup float* r = reinterpret_cast<threadgroup float*>(shared + 512);",
		"s[i] = half(i); s[64 + i] = half(1); s[128 + i] = half(i); threadgroup_barrier(mem_flags::mem_threadgroup);",
		"simdgroup_half8x8 a, b; simdgroup_float8x8 c;",
		"simdgroup_load(a, s, 16, ulong2(8, 1), false); simdgroup_load(b, s, 8, ulong2(0, 0), true);",
		"simdgroup_multiply(c, a, simdgroup_half8x8(2.0h));",
		"if (simd == 0) { simdgroup_store(c, r); }",
		"threadgroup_barrier(mem_flags::mem_threadgroup);",
		"uint x = uint(r[i]); threadgroup_barrier(mem_flags::mem_threadgroup);",
		"simdgroup_multiply(c, b, simdgroup_half8x8(1.0h));",
		"if (simd == 1) { simdgroup_store(c, r, 8, ulong2(0, 0), true); }",
		"threadgroup_barrier(mem_flags::mem_threadgroup);",
		"out[i] = x * 1000 + uint(r[i]);",
	), func(i, _, _ uint32) uint32 {
		at := 8 + 16*(i/8+1) + i%8
		x := uint32(1)
		if at < 64 {
			x = at
		} else if at >= 128 {
			x = at - 128
		}
		return 2000*x + i
	}},

	// The language.
	{"constant_table", "out[i] = Table[i % 4] + Big;", func(i, _, _ uint32) uint32 { return []uint32{2, 3, 5, 7}[i%4] + 300 }},
	{"templates", "Shape<4> s = {i}; out[i] = twice<3>(i) + Shape<5>::Own + doubled(s.other) + tripled(1);", func(i, _, _ uint32) uint32 { return 8*i + 13 }},
	{"declarations", "Words v = later(i); Kinds k = Second; out[i] = v.y + pick<char>(1) + pick<half>(1) + inner::five() + k + uint(Colour::Blue) + Pair{1, 2}.total();", func(i, _, _ uint32) uint32 { return i + 100 + 7 + 5 + 9 + 4 + 3 }},
	{"references", "thread uint x = i; bump(x); Pair p = {x, 2}; thread Pair& q = p; q.b += q.a; out[i] = q.b;", func(i, _, _ uint32) uint32 { return i + 3 }},
	{"structs", "device const Pair* p = reinterpret_cast<device const Pair*>(in); Pair q = p[i]; out[i] = q.a + q.b;", func(i, _, _ uint32) uint32 { return 4*i + 1 }},
	{"arrays", "uint a[8]; for (uint k = 0; k < 8; k++) { a[k] = i + k; } uint sum = 0; for (uint k = 0; k < 8; k++) { sum += a[(k + i) % 8]; } out[i] = sum;", func(i, _, _ uint32) uint32 { return 8*i + 28 }},
	{"arguments", "out[i] = args.words + uint(args.number * 2);", is(17)},
}

// featureSource is a kernel for each feature.
func featureSource() (string, []string) {
	var b strings.Builder
	b.WriteString(lines(
		"constant uint Table[4] = {2, 3, 5, 7};",
		"constant constexpr uint Big = 300;",
		"template <uint N> struct Shape { static constant constexpr uint Own = 2 * N; uint other; };",
		"constexpr uint doubled(uint x) { return 2 * x; }",
		"static inline const uint tripled(const uint x) { return 3 * x; }",
		"struct Pair { uint a, b; uint total() { return a + b; } };",
		"using Words = uint2;",
		"enum Kinds { First = 8, Second };",
		"enum class Colour : uint { Red = 3, Blue };",
		"inline Words later(uint x);",
		"template <typename T> inline uint pick(uint x) { return 7 * x; }",
		"template <> inline uint pick<char>(uint x) { return 100 * x; }",
		"namespace inner { inline uint five() { return 5; } }",
		"inline Words later(uint x) { return Words(0, x); }",
		"struct Args { uint words; float number; };",
		"template <int N> inline uint twice(uint x) { return 2 * N * x; }",
		"inline void bump(thread uint& x) { x++; }",
	))
	var names []string
	for _, f := range features {
		fmt.Fprintf(&b, "kernel void %s(constant Args& args [[buffer(0)]], device const uint* in [[buffer(1)]], device uint* out [[buffer(2)]], threadgroup uchar* shared [[threadgroup(0)]], "+
			"uint i [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]]) {\n%s\n}\n", f.name, f.body)
		names = append(names, f.name)
	}
	return b.String(), names
}

func TestFeatures(t *testing.T) {
	source, names := featureSource()
	for _, mode := range []struct {
		name    string
		options metaltest.Options
	}{
		{"fast", metaltest.Options{}},
		{"permuted", metaltest.Options{Seed: 3}},
		{"flushing", metaltest.Options{FlushDenormals: true}},
		{"checked", metaltest.Options{Checked: true}},
		{"checked and permuted", metaltest.Options{Checked: true, Seed: 7}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			b := load(t, mode.options, source, names...)
			in, out := b.buffer(512), b.buffer(64)
			defer in.Release()
			defer out.Release()
			for _, f := range features {
				if err := b.run(metal.Dispatch{
					Kernel: f.name, Args: args(10, float32(3.5)), Buffers: []metal.Binding{whole(in), whole(out)}, Groups: [3]int{1, 1, 1}, Threads: 64, SharedBytes: 1024,
				}); err != nil {
					t.Errorf("%s: %v", f.name, err)
					continue
				}
				var want []uint32
				for i := range uint32(64) {
					want = append(want, f.want(i, i%32, i/32))
				}
				if diff := cmp.Diff(want, words(out)); diff != "" {
					t.Errorf("%s: (-want +got)\n%s", f.name, diff)
				}
			}
		})
	}
}

// TestPlaces runs a grid whose threads tell where they are.
func TestPlaces(t *testing.T) {
	source := lines(
		"kernel void tell(device uint* out [[buffer(1)]], uint3 at [[thread_position_in_grid]], uint3 group [[threadgroup_position_in_grid]],",
		"    uint3 in_group [[thread_position_in_threadgroup]], uint3 grid [[threads_per_grid]], uint3 groups [[threadgroups_per_grid]],",
		"    ushort2 size [[threads_per_threadgroup]], uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],",
		"    uint simd [[simdgroup_index_in_threadgroup]], uint simds [[simdgroups_per_threadgroup]], uint width [[threads_per_simdgroup]]) {",
		"    device uint* own = out + 12 * (at.x + grid.x * (at.y + grid.y * at.z));",
		"    own[0] = group.x; own[1] = group.y; own[2] = group.z; own[3] = in_group.x; own[4] = groups.x * 100 + groups.y * 10 + groups.z;",
		"    own[5] = size.x; own[6] = size.y; own[7] = index; own[8] = lane; own[9] = simd; own[10] = simds; own[11] = width;",
		"}",
	)
	for _, options := range []metaltest.Options{{}, {Seed: 5}, {Checked: true}, {Checked: true, Seed: 6}} {
		b := load(t, options, source, "tell")
		const x, y, z, threads = 3, 4, 5, 64
		out := b.buffer(x * y * z * threads * 12)
		clear(out.Bytes())
		tell := metal.Dispatch{Kernel: "tell", Threads: threads, Buffers: []metal.Binding{whole(out)}, Groups: [3]int{x, y, z}}
		if err := b.run(tell); err != nil {
			t.Fatal(err)
		}
		var want []uint32
		for k := range uint32(z) {
			for j := range uint32(y) {
				for i := range uint32(x * threads) {
					in := i % threads
					want = append(want, i/threads, j, k, in, x*100+y*10+z, threads, 1, in, in%32, in/32, threads/32, 32)
				}
			}
		}
		if diff := cmp.Diff(want, words(out)); diff != "" {
			t.Fatalf("%+v: (-want +got)\n%s", options, diff)
		}
		for _, groups := range [][3]int{{0, y, z}, {x, 0, z}, {x, y, 0}, {}} {
			clear(out.Bytes())
			tell.Groups = groups
			if err := b.run(tell); err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(words(out), func(w uint32) bool { return w != 0 }) {
				t.Errorf("%+v: a grid of %v groups does something", options, groups)
			}
		}
	}
}

// TestFlush computes with numbers below the normal ones.
func TestFlush(t *testing.T) {
	source := "kernel void tiny(device float* x [[buffer(1)]], uint i [[thread_index_in_threadgroup]]) { x[i] = x[i] * 0.5f; }\n"
	for flush, want := range map[bool]uint32{false: 0x00400000, true: 0} {
		b := load(t, metaltest.Options{FlushDenormals: flush}, source, "tiny")
		x := b.buffer(32)
		copy(x.Bytes(), args(0x00800000))
		if err := b.run(metal.Dispatch{Kernel: "tiny", Threads: 32, Buffers: []metal.Binding{whole(x)}, Groups: [3]int{1, 1, 1}}); err != nil {
			t.Fatal(err)
		}
		if got := words(x)[0]; got != want {
			t.Errorf("flush %v: %#x, want %#x", flush, got, want)
		}
	}
}
