// Matrices of 8 by 8 that a SIMD group holds together, two elements a thread.
#pragma once

namespace metal {

// zoo_row and zoo_col tell which elements a thread holds: those of column zoo_col and the next.
ZOO_INLINE constexpr unsigned zoo_row(unsigned lane) { return (lane / 4 & 4) + lane / 2 % 4; }
ZOO_INLINE constexpr unsigned zoo_col(unsigned lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }

template <typename T, int Cols, int Rows>
struct simdgroup_matrix {
    static_assert(Cols == 8 && Rows == 8, "there are matrices of 8 by 8 only");
    simdgroup_matrix() = default;
    // This one is diagonal.
    explicit simdgroup_matrix(T value) {
        unsigned lane = ::zoo_turn().lane;
        own = 0;
        if (zoo_row(lane) == zoo_col(lane)) own[0] = value;
        if (zoo_row(lane) == zoo_col(lane) + 1) own[1] = value;
    }
    vec<T, 2>& thread_elements() { return own; }

    vec<T, 2> own;
};
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;

template <typename T, int Cols, int Rows>
ZOO_INLINE simdgroup_matrix<T, Cols, Rows> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, Cols, Rows> m;
    m.own = value;
    return m;
}

#define ZOO_MATRIX_MEMORY(SPACE)                                                                                          \
    template <typename T>                                                                                                 \
    __attribute__((convergent)) ZOO_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& d, const SPACE T* src,          \
                                                               ulong elements_per_row = 8, ulong2 origin = ulong2{0, 0},  \
                                                               bool transpose = false) {                                  \
        ::zoo_sync("simdgroup_load");                                                                                     \
        unsigned lane = ::zoo_turn().lane;                                                                                \
        ulong row = zoo_row(lane), col = zoo_col(lane);                                                                   \
        src += origin.y * elements_per_row + origin.x;                                                                    \
        if (transpose) {                                                                                                  \
            d.own = vec<T, 2>{src[col * elements_per_row + row], src[(col + 1) * elements_per_row + row]};                \
        } else {                                                                                                          \
            d.own = vec<T, 2>{src[row * elements_per_row + col], src[row * elements_per_row + col + 1]};                  \
        }                                                                                                                 \
    }                                                                                                                     \
    template <typename T>                                                                                                 \
    __attribute__((convergent)) ZOO_INLINE void simdgroup_store(simdgroup_matrix<T, 8, 8> a, SPACE T* dst,                \
                                                                ulong elements_per_row = 8, ulong2 origin = ulong2{0, 0}, \
                                                                bool transpose = false) {                                 \
        ::zoo_sync("simdgroup_store");                                                                                    \
        unsigned lane = ::zoo_turn().lane;                                                                                \
        ulong row = zoo_row(lane), col = zoo_col(lane);                                                                   \
        dst += origin.y * elements_per_row + origin.x;                                                                    \
        if (transpose) {                                                                                                  \
            dst[col * elements_per_row + row] = a.own[0];                                                                 \
            dst[(col + 1) * elements_per_row + row] = a.own[1];                                                           \
        } else {                                                                                                          \
            dst[row * elements_per_row + col] = a.own[0];                                                                 \
            dst[row * elements_per_row + col + 1] = a.own[1];                                                             \
        }                                                                                                                 \
    }
ZOO_EACH_SPACE(ZOO_MATRIX_MEMORY)

// zoo_product adds a times b to the elements of sum. The device promises no order of its sums.
template <typename T, typename U>
__attribute__((convergent)) ZOO_INLINE vec<T, 2> zoo_product(ZOO_TEXT operation, vec<U, 2> a, vec<U, 2> b, vec<T, 2> sum) {
    static_assert(sizeof(T) >= sizeof(U), "the sum is no narrower than the factors");
    ::zoo::Turn turn = ::zoo_turn();
    float* left = static_cast<float*>(turn.slots);
    float* right = left + 64;
    unsigned row = zoo_row(turn.lane), col = zoo_col(turn.lane);
    left[row * 8 + col] = a[0];
    left[row * 8 + col + 1] = a[1];
    right[row * 8 + col] = b[0];
    right[row * 8 + col + 1] = b[1];
    ::zoo_sync(operation);
    float first = sum[0], second = sum[1];
    for (unsigned k = 0; k < 8; k++) {
        first += left[row * 8 + k] * right[k * 8 + col];
        second += left[row * 8 + k] * right[k * 8 + col + 1];
    }
    return vec<T, 2>{T(first), T(second)};
}

template <typename T, typename U>
__attribute__((convergent)) ZOO_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<T, 8, 8>& d, simdgroup_matrix<U, 8, 8> a,
                                                                          simdgroup_matrix<U, 8, 8> b, simdgroup_matrix<T, 8, 8> c) {
    d.own = zoo_product<T, U>("simdgroup_multiply_accumulate", a.own, b.own, c.own);
}

template <typename T, typename U>
__attribute__((convergent)) ZOO_INLINE void simdgroup_multiply(simdgroup_matrix<T, 8, 8>& d, simdgroup_matrix<U, 8, 8> a,
                                                               simdgroup_matrix<U, 8, 8> b) {
    d.own = zoo_product<T, U>("simdgroup_multiply", a.own, b.own, vec<T, 2>(0));
}

}  // namespace metal
