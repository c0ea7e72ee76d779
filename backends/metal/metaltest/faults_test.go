package metaltest_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
)

// mistake is a kernel with a mistake: what 2 groups of 64 threads do. Buffer in is
// const, out has 256 words, of which all but the last byte are bound, gone is
// not bound, and threadgroup memory has 256 bytes.
type mistake struct {
	name, body string
	want       string // of the report, a regular expression; none if all is well
	always     bool   // it is found without checking memory, too
}

// line3 is how a report names the line of a kernel's body.
const line3 = ` at line \d+ \(.*\)`

var faults = []mistake{
	// Races between threads.
	{"race", "s[i / 2] = i;", `thread \d+: writes the byte at offset \d+ of threadgroup memory at line \d+ \(s\[i / 2\] = i;\), which thread \d+ writes at line \d+ \(s\[i / 2\] = i;\)`, false},
	{"missing_barrier", "s[i] = i; out[64 * g + i] = s[i ^ 1];", `threadgroup memory|never written`, false},
	{"missing_second_barrier", "s[i] = i; " + barrier + " uint x = s[63 - i]; s[i] = x; " + barrier, `of threadgroup memory.* nothing orders the two`, false},
	{"with_barriers", "s[i] = i; " + barrier + " uint x = s[63 - i]; " + barrier + " s[i] = x;", ``, false},
	{"race_on_device", "out[64 * g] = i;", `writes the byte at offset \d+ of buffer 2`, false},
	{"read_then_write", "uint x = out[64 * g + (i + 1) % 64]; out[64 * g + i] = x;", `of buffer 2`, false},
	{"own_memory", "out[64 * g + i] = i; out[64 * g + i] += 1;", ``, false},
	{"wrong_barrier", "out[64 * g + i] = i; " + barrier + " s[i] = out[64 * g + 63 - i];", `reads the byte at offset \d+ of buffer 2`, false},
	{"right_barrier", "out[64 * g + i] = i; threadgroup_barrier(mem_flags::mem_device); s[i] = out[64 * g + 63 - i];", ``, false},
	{"wrong_barrier_for_shared", "s[i] = i; threadgroup_barrier(mem_flags::mem_device); out[64 * g + i] = s[63 - i];", `threadgroup memory`, false},
	{"simd_barrier", "s[i] = i; simdgroup_barrier(mem_flags::mem_threadgroup); out[64 * g + i] = s[i ^ 31];", ``, false},
	{"simd_barrier_across", "if (i == 33) { s[1] = 1; } if (i == 1) { s[1] = 1; } simdgroup_barrier(mem_flags::mem_threadgroup); out[64 * g + i] = s[1];", `threadgroup memory`, false},
	{"simd_barrier_twice", "s[i] = i; simdgroup_barrier(mem_flags::mem_threadgroup); uint x = s[i ^ 31]; simdgroup_barrier(mem_flags::mem_threadgroup); s[i] = x;", ``, false},
	{"no_barrier_but_shuffle", "s[i] = i; uint x = simd_shuffle_xor(i, 1); out[64 * g + i] = s[x];", `threadgroup memory|never written`, false},
	{"bytes_apart", "reinterpret_cast<threadgroup uchar*>(s)[i] = uchar(i); reinterpret_cast<device half*>(out)[64 * g + i] = half(i);", ``, false},
	{"atomic", "atomic_fetch_add_explicit(reinterpret_cast<device atomic_uint*>(out), 1, memory_order_relaxed);", ``, false},
	{"atomic_and_plain", "atomic_fetch_add_explicit(reinterpret_cast<device atomic_uint*>(out) + g, 1, memory_order_relaxed); s[i] = out[g];", `buffer 2`, false},
	{"plain_and_atomic", "s[i] = out[g]; atomic_fetch_add_explicit(reinterpret_cast<device atomic_uint*>(out) + g, 1, memory_order_relaxed);", `buffer 2`, false},

	// Races between groups.
	{"group_race", "if (i == 0) { out[0] = g; }", `group \(1, 0, 0\), thread 0: writes the byte at offset 0 of buffer 2 .* which another group writes`, false},
	{"group_reads", "if (i + g == 0) { out[0] = 1; } if (g == 1) { out[64 + i] = out[0]; }", `buffer 2.*another group`, false},
	{"group_reads_first", "s[i] = out[0]; if (i == 0 && g == 1) { out[0] = 1; }", `buffer 2.*another group`, false},
	{"groups_read", "s[i] = out[0] + in[0];", ``, false},
	{"groups_count", "atomic_fetch_add_explicit(reinterpret_cast<device atomic_uint*>(out), 1, memory_order_relaxed); s[i] = i == 0 && g == 1 ? out[0] : 0;", `buffer 2`, false},

	// Bounds.
	{"overrun", "out[g * 64 + i + 128] = i;", `writes 4 bytes at offset 1020 of buffer 2, of which 1023 bytes are bound,` + line3, false},
	{"overread", "s[i] = in[i + 192 + g];", `reads 4 bytes at offset 1024 of buffer 1, of which 1024 bytes are bound`, false},
	{"before", "out[int(i) - 1] = i;", `writes 4 bytes at offset -4 of buffer 2`, false},
	{"far_out", "out[1000000000u + i] = i;", `writes`, false},
	{"vector_overread", "uint4 v = reinterpret_cast<device const uint4*>(in)[i + g]; s[i] = v.x + v.w;", `reads 16 bytes at offset 1024 of buffer 1`, false},
	{"copied_struct", "Big b = reinterpret_cast<device const Big*>(in)[i / 16 + g]; s[i] = b.words[i % 60];", `of buffer 1, of which 1024 bytes`, false},
	{"shared_overrun", "s[i + 1] = i;", `writes 4 bytes at offset 256 of threadgroup memory, of which 256 bytes are bound`, false},
	{"arguments_overrun", "s[i] = (&args)[i];", `of the arguments, of which 4 bytes are bound`, false},
	{"to_const", "const_cast<device uint*>(in)[i] = 1;", `writes 4 bytes at offset 0 of buffer 1, which is const`, false},
	{"atomic_to_const", "atomic_fetch_add_explicit(reinterpret_cast<device atomic_uint*>(const_cast<device uint*>(in)), 1, memory_order_relaxed);", `atomically changes 4 bytes .* const`, false},
	{"unbound", "s[i] = gone[i];", `null pointer`, false},
	{"unbound_untouched", "if (args > 5) { s[i] = gone[i]; }", ``, false},
	{"uninitialised", "out[64 * g + i] = s[i];", `reads 4 bytes of threadgroup memory of which that at offset 0 was never written`, false},
	{"partly_initialised", "reinterpret_cast<threadgroup uchar*>(s)[4 * i + 1] = 1; out[64 * g + i] = s[i];", `offset 0 was never written`, false},
	{"initialised_before", "if (g == 0) { s[i] = i; } out[64 * g + i] = s[i];", `group \(1, 0, 0\).* never written`, false},
	{"local_array", "uint a[4] = {1, 2, 3, 4}; out[64 * g + i] = a[i % 5];", `beyond an array`, false},
	{"local_pointer", "uint a[4] = {1, 2, 3, 4}; out[64 * g + i] = pick(a, i % 5);", `beyond the end of a local array, at line 7 \(.*uint pick\(`, false},
	{"constant_array", "out[64 * g + i] = Table[i % 5];", `beyond an array`, false},
	{"misaligned", "s[i] = *reinterpret_cast<device const uint*>(reinterpret_cast<device const uchar*>(in) + 2);", `not aligned`, false},

	// Numbers.
	{"too_large_for_int", "s[i] = uint(int(float(in[100]) * 1e9f));", `integer cannot hold`, false},
	{"nan_to_int", "s[i] = uint(as_type<float>(0x7fc00000u + in[0]));", `integer cannot hold`, false},
	{"shift", "s[i] = 1u << in[i];", `shifts by more`, false},
	{"divide", "s[i] = 10 / in[i];", `divides by 0`, false},
	{"overflow", "s[i] = uint(int(in[i]) + 2147483647);", `overflows`, false},
	{"max_of_nan", "s[i] = uint(max(as_type<float>(0x7fc00000u + in[0]), 0.0f));", `max of what is not a number.*` + line3, false},
	{"inexact_sum", "s[i] = uint(simd_sum(0.1f * float(i)));", `rounds in simd_sum` + line3, false},
	{"exact_sum", "s[i] = uint(simd_sum(0.25f * float(i)));", ``, false},
	{"inexact_product", "simdgroup_float8x8 a(4097.0f), c(1.0f); simdgroup_multiply_accumulate(c, a, a, c);", `rounds in simdgroup_multiply_accumulate`, false},
	{"exact_product", "simdgroup_float8x8 a(4095.0f), c(1.0f); simdgroup_multiply_accumulate(c, a, a, c);", ``, false},

	// Threads that go different ways.
	{"divergent_simd", "if (i < 40) { s[i] = simd_sum(i); }", `kernel divergent_simd, .*thread \d+.*simd_sum`, true},
	{"divergent_simds", "if (i % 2 == 0) { s[i] = simd_sum(i); } else { s[i] = simd_sum(i + 1); }", `comes to simd_sum` + line3 + ` while thread \d+ of its SIMD group waits for simd_sum`, true},
	{"divergent_operations", "if (i % 2 == 0) { s[i] = simd_sum(i); } else { s[i] = simd_max(i); }", `simd_sum.*simd_max|simd_max.*simd_sum`, true},
	{"divergent_barrier", "if (i < 32) { " + barrier + " }", `ends while thread \d+ waits at the threadgroup_barrier|after a thread of its group has ended`, true},
	{"divergent_barriers", "if (i < 32) { " + barrier + " } else { " + barrier + " }", `comes to a threadgroup_barrier` + line3 + ` while thread \d+ waits at that` + line3, true},
	{"early_end", "if (i == 3) { return; } " + barrier, `ends while|has ended`, true},
	{"barrier_and_simd", "if (i % 32 < 16) { " + barrier + " } else { s[i] = simd_sum(i); }", `waits for|comes to`, true},
	{"whole_simds_diverge", "if (i < 32) { s[i] = simd_sum(i); } else { s[i] = simd_max(i); }", ``, true},
	{"no_such_lane", "s[i] = simd_shuffle(i, ushort(i));", `no thread of the SIMD group`, true},
}

const barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);"

// faultSource is a kernel for each fault.
func faultSource() (string, []string) {
	var b strings.Builder
	b.WriteString(lines(
		"constant uint Table[4] = {2, 3, 5, 7};",
		"struct Big { uint words[60]; };",
		"__attribute__((noinline)) uint pick(thread const uint* a, uint i) { return a[i]; }",
	))
	var names []string
	for _, f := range faults {
		fmt.Fprintf(&b, "kernel void %s(constant uint& args [[buffer(0)]], device const uint* in [[buffer(1)]], device uint* out [[buffer(2)]], device const uint* gone [[buffer(3)]], "+
			"threadgroup uint* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {\n%s\n}\n", f.name, f.body)
		names = append(names, f.name)
	}
	return b.String(), names
}

// dispatch runs a fault's kernel.
func (f mistake) dispatch(in, out metal.Buffer) metal.Dispatch {
	return metal.Dispatch{
		Kernel: f.name, Args: args(1), Buffers: []metal.Binding{whole(in), {Buffer: out, Size: len(out.Bytes()) - 1}, {}},
		Groups: [3]int{2, 1, 1}, Threads: 64, SharedBytes: 256,
	}
}

func TestFaults(t *testing.T) {
	source, names := faultSource()
	for _, options := range []metaltest.Options{{Checked: true}, {Checked: true, Seed: 2}} {
		b := load(t, options, source, names...)
		in, out := b.buffer(256), b.buffer(256)
		for _, f := range faults {
			err := b.run(f.dispatch(in, out))
			if f.want == "" {
				if err != nil {
					t.Errorf("seed %d, %s: %v", options.Seed, f.name, err)
				}
				continue
			}
			if !errors.Is(err, metal.ErrDevice) {
				t.Errorf("seed %d, %s: error %v is not ErrDevice", options.Seed, f.name, err)
				continue
			}
			want := f.want
			if options.Seed != 0 {
				want = "" // it may be found elsewhere
			}
			if !strings.Contains(err.Error(), "kernel "+f.name+", group (") || !regexp.MustCompile(want).MatchString(err.Error()) {
				t.Errorf("seed %d, %s: %v\nis not like %s", options.Seed, f.name, err, want)
			}
		}
		// A device is as good as new after all of that.
		if err := b.run(mistake{name: "with_barriers"}.dispatch(in, out)); err != nil {
			t.Error(err)
		}
	}
}

// TestFaultsUnchecked finds what is found without checking memory.
func TestFaultsUnchecked(t *testing.T) {
	source, _ := faultSource()
	var names []string
	for _, f := range faults {
		if f.always {
			names = append(names, f.name)
		}
	}
	for _, options := range []metaltest.Options{{}, {Seed: 4}, {Workers: 1}} {
		b := load(t, options, source, names...)
		in, out := b.buffer(256), b.buffer(256)
		for _, f := range faults {
			if !f.always {
				continue
			}
			err := b.run(f.dispatch(in, out))
			if f.want == "" && err != nil || f.want != "" && (!errors.Is(err, metal.ErrDevice) || !regexp.MustCompile(f.want).MatchString(err.Error())) {
				t.Errorf("%+v, %s: %v\nis not like %s", options, f.name, err, f.want)
			}
		}
	}
}

// TestWritesToMapped writes to memory that the process maps for reading.
func TestWritesToMapped(t *testing.T) {
	source := "kernel void write(device uint* out [[buffer(1)]]) { out[0] = 1; }\n"
	for _, checked := range []bool{true, false} {
		b := load(t, metaltest.Options{Checked: checked}, source, "write")
		mapped, err := b.device.Map(mapFile(t, 1<<16))
		if err != nil {
			t.Fatal(err)
		}
		err = b.run(metal.Dispatch{Kernel: "write", Buffers: []metal.Binding{whole(mapped)}, Groups: [3]int{1, 1, 1}, Threads: 32})
		if !errors.Is(err, metal.ErrDevice) || !strings.Contains(err.Error(), "kernel write, group (0, 0, 0), thread 0") {
			t.Errorf("checked %v: %v", checked, err)
		}
	}
}

// TestOrder runs a kernel whose result depends on the order of groups and threads.
func TestOrder(t *testing.T) {
	source := lines(
		"kernel void last(device atomic_uint* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {",
		"    atomic_store_explicit(out, i, memory_order_relaxed);",
		"}",
	)
	results := map[uint32]bool{}
	for seed := range uint64(4) {
		var first uint32
		for again := range 2 {
			b := load(t, metaltest.Options{Checked: true, Seed: seed}, source, "last")
			out := b.buffer(1)
			if err := b.run(metal.Dispatch{Kernel: "last", Buffers: []metal.Binding{whole(out)}, Groups: [3]int{50, 1, 1}, Threads: 64}); err != nil {
				t.Fatal(err)
			}
			got := words(out)[0]
			results[got] = true
			if again == 0 {
				first = got
			} else if got != first {
				t.Errorf("seed %d: %d, and then %d", seed, first, got)
			}
		}
	}
	if len(results) < 3 {
		t.Errorf("the last thread of four orders is one of %v", results)
	}
	if !results[50*64-1] {
		t.Error("without a seed, the last thread is not the last to run")
	}
}

// refusal is a source that does not compile.
type refusal struct{ name, source, want string }

var refusals = []refusal{
	{"syntax", "kernel void k(device uint* x [[buffer(1)]]) {\n    x[0] = ;\n}\n", `metal:6:12: error: expected expression`},
	{"unknown name", "kernel void k(device uint* x [[buffer(1)]]) { x[0] = nothing; }\n", `use of undeclared identifier 'nothing'`},
	{"macro", "#define K(\nkernel void k() {}\n", `error`},
	{"no kernel", "kernel void other(device uint* x [[buffer(1)]]) { x[0] = 1; }\n", `there is no kernel k`},
	{"two kernels", "kernel void k(device uint* x [[buffer(1)]]) {}\nkernel void k(device uint* x [[buffer(1)]]) {}\n", `line 6: there are two kernels k`},
	{"twice the same buffer", "kernel void k(device uint* x [[buffer(1)]], device uint* y [[buffer(1)]]) {}\n", `two parameters`},
	{"attribute of a parameter", "kernel void k(device uint* x [[texture(1)]]) {}\n", `unknown attribute`},
	{"no attribute", "kernel void k(device uint* x) {}\n", `TYPE NAME \[\[ATTRIBUTE\]\]`},
	{"limit of threads that is no number", "[[max_total_threads_per_threadgroup(many)]] kernel void k(device uint* x [[buffer(1)]]) {}\n", `takes a number`},
	{"attribute of a function", "[[early_fragment_tests]] kernel void k(device uint* x [[buffer(1)]]) {}\n", `unknown attribute "early_fragment_tests"`},
	{"a word as a name", "kernel void k(device uint* x [[buffer(1)]], uint thread [[thread_index_in_threadgroup]]) {}\n", `thread is no name`},
	{"a value as a buffer", "kernel void k(uint x [[buffer(1)]]) {}\n", `a buffer is a pointer or a reference`},
	{"type of a builtin", "kernel void k(float x [[thread_index_in_threadgroup]]) {}\n", `is a uint or ushort`},
	{"buffer 31", "kernel void k(device uint* x [[buffer(31)]]) {}\n", `up to 30`},
	{"second threadgroup memory", "kernel void k(threadgroup uint* x [[threadgroup(1)]]) {}\n", `number 0 only`},
	{"no address space", "inline uint first(const uint* x) { return x[0]; }\nkernel void k(device uint* x [[buffer(1)]]) {}\n", `line 5: uint\*: a pointer or reference names its address space`},
	{"wrong address space", "inline void set(threadgroup uint* x) { x[0] = 1; }\nkernel void k(device uint* x [[buffer(1)]]) { set(x); }\n", `no matching function`},
	{"cast of the address space", "kernel void k(device uint* x [[buffer(1)]]) { threadgroup uint* y = reinterpret_cast<threadgroup uint*>(x); y[0] = 1; }\n", `reinterpret_cast`},
	{"write to constant", "kernel void k(constant uint* x [[buffer(1)]]) { x[0] = 1; }\n", `read-only|const`},
	{"double", "kernel void k(device uint* x [[buffer(1)]]) { x[0] = uint(double(1)); }\n", `double is not in the Metal Shading Language`},
	{"goto", "kernel void k(device uint* x [[buffer(1)]]) { goto end; end: x[0] = 1; }\n", `goto is not in`},
	{"cast to a vector", "kernel void k(device float4* x [[buffer(1)]]) { x[0] = (float4)x[1]; }\n", `convert with float4\(x\)`},
	{"half as a name", "kernel void k(device uint* x [[buffer(1)]]) { uint half = 1; x[0] = half; }\n", `error`},
	{"vertex as a name", "kernel void k(device uint* vertex [[buffer(1)]]) {}\n", `vertex is no name`},
	{"variable outside", "const uint Four = 4;\nkernel void k(device uint* x [[buffer(1)]]) { x[0] = Four; }\n", `line 5: a variable outside of functions is constant`},
	{"static in a type", "struct S { static constexpr uint Four = 4; };\nkernel void k(device uint* x [[buffer(1)]]) { x[0] = S::Four; }\n", `a variable outside of functions is constant`},
	{"static in a function", "kernel void k(device uint* x [[buffer(1)]]) { static uint y = 1; x[0] = y; }\n", `are not static`},
	{"name of a function", "inline float mix(float x) { return x; }\nkernel void k(device float* x [[buffer(1)]]) { x[0] = mix(x[0]); }\n", `mix is a function of the language`},
	{"mixed minimum", "kernel void k(device uint* x [[buffer(1)]]) { x[0] = min(x[1], 1); }\n", `ambiguous`},
	{"too few for a vector", "kernel void k(device float4* x [[buffer(1)]]) { x[0] = float4(1, 2); }\n", `as many numbers`},
	{"shuffle of 64 bits", "kernel void k(device ulong* x [[buffer(1)]]) { x[0] = simd_shuffle(x[1], 1); }\n", `up to 32 bits`},
	{"unknown function", "kernel void k(device float* x [[buffer(1)]]) { x[0] = exp(x[1]); }\n", `undeclared identifier 'exp'`},
	{"no return", "inline uint f(uint x) { if (x > 1) { return x; } }\nkernel void k(device uint* x [[buffer(1)]]) { x[0] = f(x[1]); }\n", `non-void function`},
}

func TestRefusals(t *testing.T) {
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			b := open(t, metaltest.Options{})
			err := b.device.Load(t.Context(), head+r.source, []string{"k"})
			if !errors.Is(err, metal.ErrKernel) || !regexp.MustCompile(r.want).MatchString(err.Error()) {
				t.Errorf("%v\nis not like %s", err, r.want)
			}
		})
	}
}

// TestLoadCancelled gives up while the compiler works.
func TestLoadCancelled(t *testing.T) {
	b := open(t, metaltest.Options{})
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := b.device.Load(ctx, head+"kernel void k(device uint* x [[buffer(1)]]) { x[0] = 12345; }\n", []string{"k"}); !errors.Is(err, cause) {
		t.Error(err)
	}
}
