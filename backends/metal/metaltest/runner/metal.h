// The Metal Shading Language as far as kernels need it, in C++. Vectors are
// clang's, as in Apple's compiler; their constructors and attributes are
// rewritten before this header sees them.
//
// With ZOO_SPACES it is for a second look only, at the address spaces, by
// clang's OpenCL C++, which knows them.
#pragma once

#if defined(ZOO_SPACES)
#define atomic_uint zoo_atomic_uint
#define atomic_int zoo_atomic_int
#define ZOO_EACH_SPACE(FUNCTIONS) FUNCTIONS(__global) FUNCTIONS(__local)
#else
#define ZOO_EACH_SPACE(FUNCTIONS) FUNCTIONS()
#endif

#include "abi.h"

// Functions of this header have no lines of their own: what they do is done by the line that calls them.
#define ZOO_INLINE inline __attribute__((always_inline, nodebug))
// ZOO_APART is for functions whose accesses to memory are not those of kernels.
#if defined(ZOO_CHECKED)
#define ZOO_APART __attribute__((noinline, nodebug, no_sanitize("address", "undefined")))
#else
#define ZOO_APART __attribute__((nodebug))
#endif
// ZOO_CALLER is for the functions that call kernels.
#if defined(ZOO_CHECKED)
#define ZOO_CALLER __attribute__((no_sanitize("address", "undefined")))
#else
#define ZOO_CALLER
#endif
// ZOO_TOGETHER is for functions that all threads of a SIMD group or of a group call.
#define ZOO_TOGETHER __attribute__((convergent, nomerge)) ZOO_INLINE

#if defined(ZOO_SPACES)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#else
typedef _Float16 half;
constexpr half operator""h(long double x) { return half(float(x)); }
#endif
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;

// zoo_vec tells of what a vector consists.
template <typename V>
struct zoo_vec {
    typedef V scalar;
    static constexpr int n = 1;
};

template <typename T, int N>
struct zoo_vec_of;

#define ZOO_VECTOR(T, N)                                                \
    typedef T T##N __attribute__((ext_vector_type(N)));                 \
    template <>                                                         \
    struct zoo_vec<T##N> {                                              \
        typedef T scalar;                                               \
        static constexpr int n = N;                                     \
    };                                                                  \
    template <>                                                         \
    struct zoo_vec_of<T, N> {                                           \
        typedef T##N type;                                              \
    };
#define ZOO_VECTORS(T) ZOO_VECTOR(T, 2) ZOO_VECTOR(T, 3) ZOO_VECTOR(T, 4)
ZOO_VECTORS(char)
ZOO_VECTORS(uchar)
ZOO_VECTORS(short)
ZOO_VECTORS(ushort)
ZOO_VECTORS(int)
ZOO_VECTORS(uint)
ZOO_VECTORS(long)
ZOO_VECTORS(ulong)
ZOO_VECTORS(half)
ZOO_VECTORS(float)

// Packed vectors are aligned as their elements are.
#define ZOO_PACKED(T)                                                   \
    typedef T##2 packed_##T##2 __attribute__((aligned(sizeof(T))));     \
    typedef T##4 packed_##T##4 __attribute__((aligned(sizeof(T))));
ZOO_PACKED(char)
ZOO_PACKED(uchar)
ZOO_PACKED(short)
ZOO_PACKED(ushort)
ZOO_PACKED(int)
ZOO_PACKED(uint)
ZOO_PACKED(half)
ZOO_PACKED(float)

// zoo_make is a vector's constructor: one scalar for all, a vector to convert, or parts in order.
template <typename V, typename A, int Own, int Given>
struct zoo_one;
template <typename V, typename A, int Own>
struct zoo_one<V, A, Own, 1> {
    static ZOO_INLINE constexpr V make(A a) { return (V)(typename zoo_vec<V>::scalar)(a); }
};
template <typename V, typename A, int Own>
struct zoo_one<V, A, Own, Own> {
    static ZOO_INLINE constexpr V make(A a) { return __builtin_convertvector(a, V); }
};

template <typename V>
ZOO_INLINE void zoo_append(V&, int&) {}
template <typename V, typename A, typename... Rest>
ZOO_INLINE void zoo_append(V& v, int& n, A a, Rest... rest);

template <typename V, typename A, int N>
struct zoo_part {
    static ZOO_INLINE void put(V& v, int& n, A a) {
        for (int i = 0; i < N; i++) v[n++] = (typename zoo_vec<V>::scalar)(a[i]);
    }
};
template <typename V, typename A>
struct zoo_part<V, A, 1> {
    static ZOO_INLINE void put(V& v, int& n, A a) { v[n++] = (typename zoo_vec<V>::scalar)(a); }
};

template <typename V, typename A, typename... Rest>
ZOO_INLINE void zoo_append(V& v, int& n, A a, Rest... rest) {
    zoo_part<V, A, zoo_vec<A>::n>::put(v, n, a);
    zoo_append(v, n, rest...);
}

constexpr int zoo_total() { return 0; }
template <typename... Rest>
constexpr int zoo_total(int n, Rest... rest) {
    return n + zoo_total(rest...);
}

template <typename V, bool Scalars>
struct zoo_many {
    template <typename... A>
    static ZOO_INLINE constexpr V make(A... a) {
        return V{(typename zoo_vec<V>::scalar)(a)...};
    }
};
template <typename V>
struct zoo_many<V, false> {
    template <typename... A>
    static ZOO_INLINE V make(A... a) {
        V v = {};
        int n = 0;
        zoo_append(v, n, a...);
        return v;
    }
};

#if defined(ZOO_SPACES)
template <typename V, typename... A>
constexpr V zoo_make(A...) {
    return V{};
}
#else
template <typename V, typename A>
ZOO_INLINE constexpr V zoo_make(A a) {
    return zoo_one<V, A, zoo_vec<V>::n, zoo_vec<A>::n>::make(a);
}
template <typename V, typename A, typename B, typename... Rest>
ZOO_INLINE constexpr V zoo_make(A a, B b, Rest... rest) {
    static_assert(zoo_total(zoo_vec<A>::n, zoo_vec<B>::n, zoo_vec<Rest>::n...) == zoo_vec<V>::n,
                  "a vector's constructor takes as many numbers as it has");
    return zoo_many<V, sizeof...(Rest) + 2 == zoo_vec<V>::n>::make(a, b, rest...);
}
#endif

template <typename To, typename From>
ZOO_INLINE constexpr To as_type(From x) {
    static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
    return __builtin_bit_cast(To, x);
}

namespace metal {

using ::int8_t;
using ::uint8_t;
using ::int16_t;
using ::uint16_t;
using ::int32_t;
using ::uint32_t;
using ::int64_t;
using ::uint64_t;

template <typename T, int N>
using vec = typename ::zoo_vec_of<T, N>::type;

// A function of each element of one, two or three vectors, as overloads, since
// Apple's are and the choice between them matters to mixed arguments.
#define ZOO_MAP1(T, N, F)                        \
    ZOO_INLINE T##N F(T##N x) {                  \
        T##N r;                                  \
        for (int i = 0; i < N; i++) r[i] = F(x[i]); \
        return r;                                \
    }
#define ZOO_MAP2(T, N, F)                        \
    ZOO_INLINE T##N F(T##N x, T##N y) {          \
        T##N r;                                  \
        for (int i = 0; i < N; i++) r[i] = F(x[i], y[i]); \
        return r;                                \
    }
#define ZOO_MAP3(T, N, F)                        \
    ZOO_INLINE T##N F(T##N x, T##N y, T##N z) {  \
        T##N r;                                  \
        for (int i = 0; i < N; i++) r[i] = F(x[i], y[i], z[i]); \
        return r;                                \
    }
#define ZOO_FN1(T, F, E) ZOO_INLINE T F(T x) { return T(E); } ZOO_MAP1(T, 2, F) ZOO_MAP1(T, 3, F) ZOO_MAP1(T, 4, F)
#define ZOO_FN2(T, F, E) ZOO_INLINE T F(T x, T y) { return T(E); } ZOO_MAP2(T, 2, F) ZOO_MAP2(T, 3, F) ZOO_MAP2(T, 4, F)
#define ZOO_FN3(T, F, E) ZOO_INLINE T F(T x, T y, T z) { return T(E); } ZOO_MAP3(T, 2, F) ZOO_MAP3(T, 3, F) ZOO_MAP3(T, 4, F)

#define ZOO_INTEGER(T)                                     \
    ZOO_FN2(T, min, y < x ? y : x)                         \
    ZOO_FN2(T, max, x < y ? y : x)                         \
    ZOO_FN3(T, clamp, min(max(x, y), z))                   \
    ZOO_FN2(T, absdiff, x < y ? y - x : x - y)
ZOO_INTEGER(char)
ZOO_INTEGER(uchar)
ZOO_INTEGER(short)
ZOO_INTEGER(ushort)
ZOO_INTEGER(int)
ZOO_INTEGER(uint)
ZOO_INTEGER(long)
ZOO_INTEGER(ulong)

#define ZOO_SIGNED(T, U) ZOO_FN1(T, abs, x < 0 ? U(0) - U(x) : U(x))
ZOO_SIGNED(char, uchar)
ZOO_SIGNED(short, ushort)
ZOO_SIGNED(int, uint)
ZOO_SIGNED(long, ulong)

// T is the type, U that of its bits, B their number.
#define ZOO_BITS(T, U, B)                                                                   \
    ZOO_FN1(T, popcount, __builtin_popcountll(U(x)))                                        \
    ZOO_FN1(T, clz, U(x) == 0 ? B : __builtin_clzll(U(x)) - (64 - B))                       \
    ZOO_FN1(T, ctz, U(x) == 0 ? B : __builtin_ctzll(U(x)))                                  \
    ZOO_FN2(T, rotate, U(U(x) << (U(y) % B)) | U(U(x) >> ((B - U(y) % B) % B)))
ZOO_BITS(char, uchar, 8)
ZOO_BITS(uchar, uchar, 8)
ZOO_BITS(short, ushort, 16)
ZOO_BITS(ushort, ushort, 16)
ZOO_BITS(int, uint, 32)
ZOO_BITS(uint, uint, 32)
ZOO_BITS(long, ulong, 64)
ZOO_BITS(ulong, ulong, 64)

ZOO_FN1(uint, reverse_bits, __builtin_bitreverse32(x))
ZOO_FN2(int, mulhi, (long(x) * long(y)) >> 32)
ZOO_FN2(uint, mulhi, (ulong(x) * ulong(y)) >> 32)

ZOO_INLINE uint extract_bits(uint x, uint offset, uint bits) {
    return bits == 0 ? 0 : (x >> offset) & (bits >= 32 ? ~0u : (1u << bits) - 1);
}
ZOO_INLINE int extract_bits(int x, uint offset, uint bits) {
    return bits == 0 ? 0 : int(uint(x) << (32 - bits - offset)) >> (32 - bits);
}

#if defined(ZOO_CHECKED)
#define ZOO_NUMBERS(X, Y, NAME) ((X) != (X) || (Y) != (Y) ? ::zoo_misuse("takes the " NAME " of what is not a number, which is undefined") : (void)0)
#else
#define ZOO_NUMBERS(X, Y, NAME) void()
#endif

// Functions of floats: only those whose results are the same everywhere.
#define ZOO_FLOATING(T)                                                                       \
    ZOO_INLINE bool isnan(T x) { return x != x; }                                             \
    ZOO_INLINE bool isinf(T x) { return __builtin_isinf(x); }                                 \
    ZOO_INLINE bool isfinite(T x) { return __builtin_isfinite(x); }                           \
    ZOO_INLINE bool signbit(T x) { return __builtin_signbit(float(x)); }                      \
    ZOO_FN2(T, fmin, __builtin_fminf(x, y))                                                   \
    ZOO_FN2(T, fmax, __builtin_fmaxf(x, y))                                                   \
    ZOO_FN2(T, min, (ZOO_NUMBERS(x, y, "min"), y < x ? y : x))                                \
    ZOO_FN2(T, max, (ZOO_NUMBERS(x, y, "max"), x < y ? y : x))                                \
    ZOO_FN3(T, clamp, fmin(fmax(x, y), z))                                                    \
    ZOO_FN1(T, saturate, fmin(fmax(x, T(0)), T(1)))                                           \
    ZOO_FN1(T, abs, __builtin_fabsf(x))                                                       \
    ZOO_FN1(T, fabs, __builtin_fabsf(x))                                                      \
    ZOO_FN1(T, rint, __builtin_rintf(x))                                                      \
    ZOO_FN1(T, floor, __builtin_floorf(x))                                                    \
    ZOO_FN1(T, ceil, __builtin_ceilf(x))                                                      \
    ZOO_FN1(T, trunc, __builtin_truncf(x))                                                    \
    ZOO_FN1(T, round, __builtin_roundf(x))                                                    \
    ZOO_FN1(T, sqrt, __builtin_sqrtf(x))                                                      \
    ZOO_FN1(T, sign, x > 0 ? 1 : x < 0 ? -1 : x == 0 ? x : 0)                                 \
    ZOO_FN2(T, copysign, __builtin_copysignf(x, y))
ZOO_FLOATING(float)
ZOO_FLOATING(half)
ZOO_FN3(float, fma, __builtin_fmaf(x, y, z))
ZOO_FN3(half, fma, __builtin_fma(double(x), double(y), double(z)))

ZOO_INLINE float ldexp(float x, int k) { return __builtin_ldexpf(x, k); }

template <typename T>
ZOO_INLINE T select(T a, T b, bool c) {
    return c ? b : a;
}
#define ZOO_SELECT(T, C, N)                                        \
    ZOO_INLINE T##N select(T##N a, T##N b, C##N c) {               \
        T##N r;                                                    \
        for (int i = 0; i < N; i++) r[i] = c[i] != 0 ? b[i] : a[i]; \
        return r;                                                  \
    }
#define ZOO_SELECTS(T, C) ZOO_SELECT(T, C, 2) ZOO_SELECT(T, C, 3) ZOO_SELECT(T, C, 4)
ZOO_SELECTS(float, int)
ZOO_SELECTS(int, int)
ZOO_SELECTS(uint, int)
ZOO_SELECTS(half, short)
ZOO_SELECTS(short, short)
ZOO_SELECTS(ushort, short)
ZOO_SELECTS(char, char)
ZOO_SELECTS(uchar, char)

template <typename V>
ZOO_INLINE bool any(V v) {
    for (int i = 0; i < ::zoo_vec<V>::n; i++) {
        if (v[i] != 0) return true;
    }
    return false;
}
template <typename V>
ZOO_INLINE bool all(V v) {
    for (int i = 0; i < ::zoo_vec<V>::n; i++) {
        if (v[i] == 0) return false;
    }
    return true;
}

namespace precise {
using metal::abs;
using metal::ceil;
using metal::clamp;
using metal::fabs;
using metal::floor;
using metal::fma;
using metal::fmax;
using metal::fmin;
using metal::max;
using metal::min;
using metal::rint;
using metal::round;
using metal::sqrt;
using metal::trunc;
}  // namespace precise

}  // namespace metal

#include "simd.h"
#include "atomic.h"
#include "matrix.h"

// Words of the language that C++ does not know. Every function may be one that
// the threads of a group must enter together.
#pragma clang attribute push(__attribute__((convergent, nomerge)), apply_to = function)
#if defined(ZOO_SPACES)
#define device __global
#define thread __private
#define threadgroup __local
#define constant __constant
#else
#define device
#define thread
#define threadgroup
#define constant const
#endif
#define kernel static
