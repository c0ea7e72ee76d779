// Kernels that show whether a device does what the others rely on. They are for
// the diagnosis, not for models.

// DiagnoseArgs are the arguments of all of them.
struct DiagnoseArgs {
    uint count; // how much the kernel goes through
    uint value; // what it writes or waits for
    uint at;    // where it writes it
};

// DiagnoseFactor spreads the bits of an index over a word.
constant constexpr uint DiagnoseFactor = 2654435761u;

// diagnose_threads writes where each thread finds itself, by way of others: the
// group is turned around in shared memory, then pairs are swapped. A row of
// groups has count of them. Shared memory: a word for each thread.
[[max_total_threads_per_threadgroup(1024)]]
kernel void diagnose_threads(constant DiagnoseArgs& args [[buffer(0)]],
                             device uint* out [[buffer(1)]],
                             threadgroup uchar* shared [[threadgroup(0)]],
                             uint3 group [[threadgroup_position_in_grid]],
                             uint thread_index [[thread_index_in_threadgroup]],
                             uint3 size [[threads_per_threadgroup]],
                             uint lane [[thread_index_in_simdgroup]],
                             uint simd [[simdgroup_index_in_threadgroup]],
                             uint simds [[simdgroups_per_threadgroup]]) {
    threadgroup uint* words = reinterpret_cast<threadgroup uint*>(shared);
    uint index = group.y * args.count + group.x;
    words[thread_index] = index << 16 | simds << 10 | simd << 5 | lane;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint word = simd_shuffle_xor(words[size.x - 1 - thread_index], 1);
    out[index * size.x + thread_index] = word ^ args.value;
}

// diagnose_floats computes with count triples of numbers: out is, for each
// operation in turn, a result for each triple.
[[max_total_threads_per_threadgroup(256)]]
kernel void diagnose_floats(constant DiagnoseArgs& args [[buffer(0)]],
                            device const float* in [[buffer(1)]],
                            device float* out [[buffer(2)]],
                            uint3 group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]],
                            uint3 size [[threads_per_threadgroup]]) {
    uint n = args.count;
    uint i = group.x * size.x + thread_index;
    if (i >= n) {
        return;
    }
    float a = in[i];
    float b = in[n + i];
    float c = in[2 * n + i];
    out[i] = a * b + c; // two roundings
    out[n + i] = a / b;
    out[2 * n + i] = sqrt(a < 0 ? -a : a);
    out[3 * n + i] = rint(a);
    out[4 * n + i] = float(half(a));
    out[5 * n + i] = exp_f(a);
    out[6 * n + i] = gelu_f(a);
}

// diagnose_fill writes words that depend on where they are. Each group has count of them.
[[max_total_threads_per_threadgroup(256)]]
kernel void diagnose_fill(constant DiagnoseArgs& args [[buffer(0)]],
                          device uint* out [[buffer(1)]],
                          uint3 group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]],
                          uint3 size [[threads_per_threadgroup]]) {
    uint first = group.x * args.count;
    for (uint i = first + thread_index; i < first + args.count; i += size.x) {
        out[i] = i * DiagnoseFactor + args.value;
    }
}

// diagnose_read sums words modulo 2^32, one sum for each SIMD group. Each group
// reads count vectors of four, a multiple of four for each thread.
[[max_total_threads_per_threadgroup(256)]]
kernel void diagnose_read(constant DiagnoseArgs& args [[buffer(0)]],
                          device const uint4* in [[buffer(1)]],
                          device uint* sums [[buffer(2)]],
                          uint3 group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]],
                          uint3 size [[threads_per_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simd [[simdgroup_index_in_threadgroup]],
                          uint simds [[simdgroups_per_threadgroup]]) {
    device const uint4* own = in + group.x * args.count + thread_index;
    uint4 sum = uint4(0);
    for (uint i = 0; i < args.count; i += 4 * size.x) {
        // Four loads at a time, so that many are on their way.
        uint4 v0 = own[i];
        uint4 v1 = own[i + size.x];
        uint4 v2 = own[i + 2 * size.x];
        uint4 v3 = own[i + 3 * size.x];
        sum += v0 + v1 + v2 + v3;
    }
    uint total = simd_sum(sum.x + sum.y + sum.z + sum.w);
    if (lane == 0) {
        sums[group.x * simds + simd] = total;
    }
}

// diagnose_chain makes a word of the one that was there, so that the order of dispatches shows.
[[max_total_threads_per_threadgroup(32)]]
kernel void diagnose_chain(constant DiagnoseArgs& args [[buffer(0)]],
                           device uint* word [[buffer(1)]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
    if (thread_index == 0) {
        word[args.at] = word[args.at] * 31 + args.value;
    }
}

// diagnose_tell tells the host a word.
[[max_total_threads_per_threadgroup(32)]]
kernel void diagnose_tell(constant DiagnoseArgs& args [[buffer(0)]],
                          device atomic_uint* words [[buffer(1)]],
                          uint thread_index [[thread_index_in_threadgroup]]) {
    if (thread_index == 0) {
        atomic_store_explicit(words + args.at, args.value, memory_order_relaxed);
    }
}

// diagnose_ask looks up to count times whether the host has made word 0 the
// value. It writes the number of looks that it took, or 0 if it never was.
[[max_total_threads_per_threadgroup(32)]]
kernel void diagnose_ask(constant DiagnoseArgs& args [[buffer(0)]],
                         device atomic_uint* words [[buffer(1)]],
                         uint thread_index [[thread_index_in_threadgroup]]) {
    if (thread_index != 0) {
        return;
    }
    uint looks = 0;
    for (uint i = 0; i < args.count && looks == 0; i++) {
        if (atomic_load_explicit(words, memory_order_relaxed) == args.value) {
            looks = i + 1;
        }
    }
    atomic_store_explicit(words + args.at, looks, memory_order_relaxed);
}
