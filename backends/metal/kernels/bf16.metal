// Products with bfloat16.

// BF16Args are the arguments of linear_bf16.
struct BF16Args {
    uint cols;       // of the matrix
    uint first_row;  // of the part in the matrix
    uint rows;       // of the part
    uint out_stride; // floats from one row of the result to the next
    float mul;       // multiplied to every product
};

// BF16Batch is how many rows of activations are multiplied at once, and
// BF16Staged how many of their floats are staged in shared memory.
constant constexpr uint BF16Batch = 8;
constant constexpr uint BF16Staged = 2048;

// bf16_float widens a number.
inline float bf16_float(ushort x) {
    return as_type<float>(uint(x) << 16);
}

// bf16_four returns four neighbouring weights, with zeros for those past the
// last. A row of whole fours begins at a multiple of 8 bytes.
inline float4 bf16_four(device const ushort* w, uint left, bool fours) {
    if (fours) {
        const ushort4 x = *reinterpret_cast<device const ushort4*>(w);
        return float4(bf16_float(x.x), bf16_float(x.y), bf16_float(x.z), bf16_float(x.w));
    }
    float4 all = float4(bf16_float(w[0]), 0.0f, 0.0f, 0.0f);
    if (left > 1) {
        all.y = bf16_float(w[1]);
    }
    if (left > 2) {
        all.z = bf16_float(w[2]);
    }
    if (left > 3) {
        all.w = bf16_float(w[3]);
    }
    return all;
}

// bf16_tree adds the 16 lanes of a sum, four of which each of four neighbouring
// threads holds, as the tree of lane_tree: across threads first, then within one.
inline float bf16_tree(float4 sum) {
    float a = sum.x;
    float b = sum.y;
    float c = sum.z;
    float d = sum.w;
    a += simd_shuffle_xor(a, 2);
    b += simd_shuffle_xor(b, 2);
    c += simd_shuffle_xor(c, 2);
    d += simd_shuffle_xor(d, 2);
    a += simd_shuffle_xor(a, 1);
    b += simd_shuffle_xor(b, 1);
    c += simd_shuffle_xor(c, 1);
    d += simd_shuffle_xor(d, 1);
    a += c;
    b += d;
    return a + b;
}

// bf16_product multiplies a row of the matrix for each four threads with live
// rows of x, at most Batch. Padding of zeros changes no lane: none is ever -0.
template <uint Batch>
inline void bf16_product(constant BF16Args& args, device const ushort* weights, device const float* x, uint live,
                         device float* out, threadgroup float* staged, uint first, uint index, uint threads) {
    constexpr uint Cols = BF16Staged / Batch;
    const uint row = first + index / 4;
    const uint quarter = 4 * (index % 4);
    const bool fours = args.cols % 4 == 0;
    // Threads past the last row repeat it, and throw the result away.
    device const ushort* w = weights + ulong(args.first_row + min(row, args.rows - 1)) * args.cols;
    float4 sums[Batch];
    for (uint b = 0; b < Batch; b++) {
        sums[b] = float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    for (uint done = 0; done < args.cols; done += Cols) {
        const uint n = min(Cols, args.cols - done);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = index; i < BF16Staged; i += threads) {
            const uint b = i / Cols;
            const uint c = i % Cols;
            staged[i] = b < live && c < n ? x[ulong(b) * args.cols + done + c] : 0.0f;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint c = quarter; c < n; c += Lanes) {
            const float4 four = bf16_four(w + done + c, n - c, fours);
            for (uint b = 0; b < Batch; b++) {
                const float4 product = *reinterpret_cast<threadgroup const float4*>(staged + b * Cols + c) * four;
                sums[b] += product;
            }
        }
    }
    for (uint b = 0; b < Batch; b++) {
        const float sum = bf16_tree(sums[b]);
        if (quarter == 0 && row < args.rows && b < live) {
            out[ulong(b) * args.out_stride + row] = sum * args.mul;
        }
    }
}

// linear_bf16 multiplies rows of a matrix, which lies row after row, with up to
// BF16Batch rows of activations: each weight is read once for all of them. Grid
// (rows of the part / a quarter of the threads, live rows / BF16Batch), both
// rounded up. Shared memory: BF16Staged floats.
[[max_total_threads_per_threadgroup(256)]]
kernel void linear_bf16(constant BF16Args& args [[buffer(0)]],
                        device const ushort* weights [[buffer(1)]],
                        device const Step* step [[buffer(2)]],
                        device const float* in [[buffer(3)]],
                        device float* out [[buffer(4)]],
                        threadgroup uchar* shared [[threadgroup(0)]],
                        uint3 group [[threadgroup_position_in_grid]],
                        uint index [[thread_index_in_threadgroup]],
                        uint3 size [[threads_per_threadgroup]]) {
    const uint first_row = group.y * BF16Batch;
    if (first_row >= step->live) {
        return;
    }
    const uint live = min(BF16Batch, step->live - first_row);
    device const float* x = in + ulong(first_row) * args.cols;
    device float* y = out + ulong(first_row) * args.out_stride;
    threadgroup float* staged = reinterpret_cast<threadgroup float*>(shared);
    const uint first = group.x * (size.x / 4);
    if (live == 1) {
        bf16_product<1>(args, weights, x, live, y, staged, first, index, size.x);
    } else {
        bf16_product<BF16Batch>(args, weights, x, live, y, staged, first, index, size.x);
    }
}
