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
    ZOO_TOGETHER void simdgroup_load(simdgroup_matrix<T, 8, 8>& d, const SPACE T* src,          \
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
    ZOO_TOGETHER void simdgroup_store(simdgroup_matrix<T, 8, 8> a, SPACE T* dst,                \
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

// zoo_put_factors has the threads hand their elements to each other, as matrices of floats.
template <typename U>
ZOO_APART inline void zoo_put_factors(::zoo::Turn turn, vec<U, 2> a, vec<U, 2> b) {
    float* left = static_cast<float*>(turn.slots) + zoo_row(turn.lane) * 8 + zoo_col(turn.lane);
    left[0] = a[0];
    left[1] = a[1];
    left[64] = b[0];
    left[65] = b[1];
}

// zoo_add_product adds the product to the elements of sum. The device promises no order of its sums.
template <typename T>
ZOO_APART inline vec<T, 2> zoo_add_product(ZOO_TEXT operation, ::zoo::Turn turn, vec<T, 2> sum) {
    float* left = static_cast<float*>(turn.slots) + zoo_row(turn.lane) * 8;
    float* right = static_cast<float*>(turn.slots) + 64 + zoo_col(turn.lane);
#if defined(ZOO_CHECKED)
    for (int i = 0; i < 2; i++) ::zoo_exact(operation, sum[i], left, 1, right + i, 8, 8, sizeof(T) == 2 ? 11 : 24);
#else
    (void)operation;
#endif
    float first = sum[0], second = sum[1];
    for (unsigned k = 0; k < 8; k++) {
        first += left[k] * right[k * 8];
        second += left[k] * right[k * 8 + 1];
    }
    return vec<T, 2>{T(first), T(second)};
}

template <typename T, typename U>
ZOO_TOGETHER vec<T, 2> zoo_product(ZOO_TEXT operation, vec<U, 2> a, vec<U, 2> b, vec<T, 2> sum) {
    static_assert(sizeof(T) >= sizeof(U), "the sum is no narrower than the factors");
    ::zoo::Turn turn = ::zoo_turn();
    zoo_put_factors<U>(turn, a, b);
    ::zoo_sync(operation);
    return zoo_add_product<T>(operation, turn, sum);
}

template <typename T, typename U>
ZOO_TOGETHER void simdgroup_multiply_accumulate(simdgroup_matrix<T, 8, 8>& d, simdgroup_matrix<U, 8, 8> a,
                                                                          simdgroup_matrix<U, 8, 8> b, simdgroup_matrix<T, 8, 8> c) {
    d.own = zoo_product<T, U>("simdgroup_multiply_accumulate", a.own, b.own, c.own);
}

template <typename T, typename U>
ZOO_TOGETHER void simdgroup_multiply(simdgroup_matrix<T, 8, 8>& d, simdgroup_matrix<U, 8, 8> a,
                                                               simdgroup_matrix<U, 8, 8> b) {
    d.own = zoo_product<T, U>("simdgroup_multiply", a.own, b.own, vec<T, 2>(0));
}

}  // namespace metal
