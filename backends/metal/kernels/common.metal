// What all kernels share. The files of this folder are one library: they are
// joined in the order of source.go and compiled with safe math.

#include <metal_stdlib>
using namespace metal;

// Products are rounded before they are added: the sums are those of every other backend.
#pragma METAL fp contract(off)

// BlockPositions is the number of absolute positions that attention sums as one block.
constant constexpr uint BlockPositions = 256;

// BlockRows is the number of rows that a block of a matrix interleaves, and StepBytes the size of one of its steps.
constant constexpr uint BlockRows = 16;
constant constexpr uint StepBytes = 64;

// Lanes is the number of partial sums of a float sum.
constant constexpr uint Lanes = 16;

// SIMDWidth is the number of threads of a SIMD group.
constant constexpr uint SIMDWidth = 32;

// Thread is a thread's place in its group.
struct Thread {
    uint index; // in the group
    uint count; // of the group's threads
    uint lane;  // in the SIMD group
    uint simd;  // the SIMD group
    uint simds; // of the group
};

// Step heads the list of rows that a step works on.
struct Step {
    uint live; // number of rows
    uint spare[3];
};

// Row is one token.
struct Row {
    int token;
    uint pos;
    uint pages;  // where the slot's part of the page table begins
    uint angles; // which row of the table of sines and cosines is that of pos
};

// rows_of returns the rows behind their head.
inline device const Row* rows_of(device const Step* step) {
    return reinterpret_cast<device const Row*>(step + 1);
}

// is_nan holds for what is not a number, whatever the compiler believes of floats.
inline bool is_nan(float x) {
    return (as_type<uint>(x) & 0x7fffffffu) > 0x7f800000u;
}

// to_grid returns clamp(round_half_even(x/step), lo, hi), and lo for what is not a number.
inline int to_grid(float x, float step, float lo, float hi) {
    float v = x / step;
    if (v > hi) {
        v = hi;
    } else if (!(v >= lo)) {
        v = lo;
    }
    return int(rint(v));
}

// int64_to_float rounds to the nearest float, ties to even, with integers only.
inline float int64_to_float(long value) {
    ulong magnitude = value < 0 ? ulong(-value) : ulong(value);
    if (magnitude < (1ul << 24)) {
        float exact = float(uint(magnitude));
        return value < 0 ? -exact : exact;
    }
    uint high = uint(magnitude >> 32);
    uint top = high != 0 ? 63 - clz(high) : 31 - clz(uint(magnitude)); // the leading bit
    uint shift = top - 23;
    ulong kept = magnitude >> shift;
    ulong rest = magnitude & ((1ul << shift) - 1);
    ulong half_way = 1ul << (shift - 1);
    if (rest > half_way || (rest == half_way && (kept & 1) != 0)) {
        kept++; // 2^24 is fine: the exponent below takes it
    }
    // kept has 24 bits, or is 2^24; both are floats, and a power of two times them is exact.
    float exact = float(uint(kept)) * as_type<float>((shift + 127u) << 23);
    return value < 0 ? -exact : exact;
}

// lane_tree adds the partial sums of 16 neighbouring threads as a tree; each of them gets the sum.
inline float lane_tree(float sum) {
    sum += simd_shuffle_xor(sum, 8);
    sum += simd_shuffle_xor(sum, 4);
    sum += simd_shuffle_xor(sum, 2);
    sum += simd_shuffle_xor(sum, 1);
    return sum;
}

// inverse_rms returns 1/sqrt(mean(x^2) + eps). All threads of a SIMD group call it and get the result.
template <typename Pointer>
inline float inverse_rms(Pointer x, uint cols, float eps, uint lane) {
    float sum = 0;
    uint i = lane % Lanes;
    for (; i + 7 * Lanes < cols; i += 8 * Lanes) { // eight loads at a time
        float y[8];
        #pragma clang loop unroll(full)
        for (uint k = 0; k < 8; k++) {
            y[k] = x[i + k * Lanes];
        }
        #pragma clang loop unroll(full)
        for (uint k = 0; k < 8; k++) {
            float square = y[k] * y[k];
            sum += square;
        }
    }
    for (; i < cols; i += Lanes) {
        float square = x[i] * x[i];
        sum += square;
    }
    float mean = lane_tree(sum) / float(cols);
    return 1.0f / sqrt(mean + eps);
}

// pow2 returns 2^n for n in [-126, 127].
inline float pow2(int n) {
    return as_type<float>(uint(n + 127) << 23);
}

// exp_f is the exponential function of every backend.
inline float exp_f(float x) {
    if (is_nan(x)) {
        return x;
    }
    if (x > 88.72283f) {
        return as_type<float>(0x7f800000u);
    }
    if (x < -87.33654f) {
        return 0;
    }
    const float magic = 12582912.0f;
    float n = x * 1.44269504088896341f;
    n = n + magic;
    n = n - magic;
    float r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    float square = r * r;
    float y = p * square + r;
    y = y + 1.0f;
    int whole = int(n);
    int half_of = whole >> 1;
    return y * pow2(half_of) * pow2(whole - half_of);
}

// tanh_f is the hyperbolic tangent of every backend.
inline float tanh_f(float x) {
    float a = x < 0 ? -x : x;
    if (a < 0.625f) {
        float z = x * x;
        float p = -5.70498872745e-3f;
        p = p * z + 2.06390887954e-2f;
        p = p * z - 5.37397155531e-2f;
        p = p * z + 1.33314422036e-1f;
        p = p * z - 3.33332819422e-1f;
        return p * z * x + x;
    }
    float t = 1.0f - 2.0f / (exp_f(2.0f * a) + 1.0f);
    return x < 0 ? -t : t;
}

// gelu_f is the Gaussian error linear unit in its tanh form.
inline float gelu_f(float x) {
    float cube = x * x * x;
    float t = tanh_f(0.7978845608028654f * (x + 0.044715f * cube));
    return 0.5f * x * (1.0f + t);
}
