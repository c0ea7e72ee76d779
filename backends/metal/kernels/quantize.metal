// The integers that products with packed codes are made of.

// QuantizeArgs are the arguments of quantize.
struct QuantizeArgs {
    uint cols;   // of the input
    uint padded; // of the digits, a multiple of 64: those past the input's columns are zeros
    uint planes; // digits of an integer, 1 to 3
    float grid;  // the step of a static grid of 8 bits, 0 for fixed point
    float limit; // the largest magnitude of fixed point
};

// largest_magnitude returns max|x|, or not a number if there is one, to all
// threads of a group. As integers, magnitudes are in the same order as floats
// are, and what is not a number is larger than all of them.
inline float largest_magnitude(device const float* x, uint cols, threadgroup uint* tops, uint index, uint threads,
                               uint lane, uint simd, uint simds) {
    uint top = 0;
    for (uint i = index; i < cols; i += threads) {
        top = max(top, as_type<uint>(x[i]) & 0x7fffffffu);
    }
    top = simd_max(top);
    if (lane == 0) {
        tops[simd] = top;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0; i < simds; i++) {
        top = max(top, tops[i]);
    }
    return as_type<float>(top);
}

// quantize turns a row of floats into integers, and these into signed 8-bit
// digits, lowest first: digits is [row][plane][padded]. Grid (1, rows). Shared
// memory: a word for each SIMD group.
[[max_total_threads_per_threadgroup(256)]]
kernel void quantize(constant QuantizeArgs& args [[buffer(0)]],
                     device const float* in [[buffer(1)]],
                     device const Step* step [[buffer(2)]],
                     device uint* digits [[buffer(3)]],
                     device float* steps [[buffer(4)]],
                     threadgroup uchar* shared [[threadgroup(0)]],
                     uint3 group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]],
                     uint3 size [[threads_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simd [[simdgroup_index_in_threadgroup]],
                     uint simds [[simdgroups_per_threadgroup]]) {
    const uint row = group.y;
    if (row >= step->live) {
        return;
    }
    device const float* x = in + ulong(row) * args.cols;
    float scale = args.grid;
    float lo = -128.0f;
    float hi = 127.0f;
    if (scale == 0) {
        threadgroup uint* tops = reinterpret_cast<threadgroup uint*>(shared);
        scale = largest_magnitude(x, args.cols, tops, index, size.x, lane, simd, simds) / args.limit;
        lo = -args.limit;
        hi = args.limit;
    }
    if (index == 0) {
        steps[row] = scale;
    }
    const uint words = args.padded / 4;
    device uint* out = digits + ulong(row) * args.planes * words;
    for (uint w = index; w < words; w += size.x) {
        uint low = 0;
        uint middle = 0;
        uint high = 0;
        for (uint i = 0; i < 4; i++) {
            const uint c = 4 * w + i;
            if (c >= args.cols || scale == 0) {
                continue;
            }
            // Adding half a unit of the digits below makes borrows of negative digits
            // carries: each digit is then a byte with its sign bit turned over.
            const uint n = (uint(to_grid(x[c], scale, lo, hi)) + 0x808080u) ^ 0x808080u;
            low |= (n & 0xffu) << (8 * i);
            middle |= (n >> 8 & 0xffu) << (8 * i);
            high |= (n >> 16 & 0xffu) << (8 * i);
        }
        out[w] = low;
        if (args.planes > 1) {
            out[words + w] = middle;
        }
        if (args.planes > 2) {
            out[2 * words + w] = high;
        }
    }
}
