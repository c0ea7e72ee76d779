// Barriers and the operations of a SIMD group.
#pragma once

namespace metal {

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }

ZOO_TOGETHER void threadgroup_barrier(mem_flags flags) { ::zoo_barrier(unsigned(flags)); }
ZOO_TOGETHER void simdgroup_barrier(mem_flags flags) { ::zoo_simd_barrier(unsigned(flags)); }

// zoo_simd holds for the types that SIMD operations take: no 64-bit ones, no bool.
template <typename T>
struct zoo_simd {
    static constexpr bool valid = false, integer = false;
};
#define ZOO_SIMD(T, I)                                            \
    template <>                                                   \
    struct zoo_simd<T> {                                          \
        static constexpr bool valid = true, integer = I;          \
    };
#define ZOO_SIMDS(T, I) ZOO_SIMD(T, I) ZOO_SIMD(T##2, I) ZOO_SIMD(T##3, I) ZOO_SIMD(T##4, I)
ZOO_SIMDS(char, true)
ZOO_SIMDS(uchar, true)
ZOO_SIMDS(short, true)
ZOO_SIMDS(ushort, true)
ZOO_SIMDS(int, true)
ZOO_SIMDS(uint, true)
ZOO_SIMDS(half, false)
ZOO_SIMDS(float, false)

// zoo_put and zoo_get are how threads hand values to each other.
template <typename T>
ZOO_APART inline void zoo_put(::zoo::Turn turn, T value) {
    static_assert(sizeof(T) <= ::zoo::SlotBytes, "a value fits into its slot");
    static_cast<T*>(turn.slots)[turn.lane] = value;
}
template <typename T>
ZOO_APART inline T zoo_get(::zoo::Turn turn, unsigned lane) {
    return static_cast<T*>(turn.slots)[lane];
}

template <typename T>
ZOO_TOGETHER ::zoo::Turn zoo_exchange(ZOO_TEXT operation, T value) {
    ::zoo::Turn turn = ::zoo_turn();
    zoo_put(turn, value);
    ::zoo_sync(operation);
    return turn;
}

#define ZOO_PERMUTE(NAME, PARAM, LANE)                                                                  \
    template <typename T>                                                                               \
    ZOO_TOGETHER T NAME(T data, ushort PARAM) {                                                         \
        static_assert(zoo_simd<T>::valid, #NAME " takes numbers of up to 32 bits and vectors of them"); \
        ::zoo::Turn turn = zoo_exchange(#NAME, data);                                                   \
        unsigned own = turn.lane;                                                                       \
        unsigned from = LANE;                                                                           \
        if (from >= ::zoo::SIMDWidth) {                                                                 \
            ::zoo_misuse("names no thread of the SIMD group to " #NAME);                                \
            return data;                                                                                \
        }                                                                                               \
        return zoo_get<T>(turn, from);                                                                  \
    }
ZOO_PERMUTE(simd_shuffle, lane, (void(own), lane))
ZOO_PERMUTE(simd_broadcast, lane, (void(own), lane))
ZOO_PERMUTE(simd_shuffle_xor, mask, own ^ mask)
ZOO_PERMUTE(simd_shuffle_down, delta, own + delta < ::zoo::SIMDWidth ? own + delta : own)
ZOO_PERMUTE(simd_shuffle_up, delta, own >= delta ? own - delta : own)
ZOO_PERMUTE(simd_shuffle_rotate_down, delta, (own + delta) % ::zoo::SIMDWidth)
ZOO_PERMUTE(simd_shuffle_rotate_up, delta, (own + ::zoo::SIMDWidth - delta % ::zoo::SIMDWidth) % ::zoo::SIMDWidth)

template <typename T>
ZOO_TOGETHER T simd_broadcast_first(T data) {
    static_assert(zoo_simd<T>::valid, "simd_broadcast_first takes numbers of up to 32 bits and vectors of them");
    return zoo_get<T>(zoo_exchange("simd_broadcast_first", data), 0);
}

// zoo_exact_sum checks that a sum of floats does not depend on its order, of which the device promises nothing.
template <typename T, bool Integer>
struct zoo_exact_sum {
    static ZOO_INLINE void check(ZOO_TEXT, ::zoo::Turn, unsigned) {}
};
#if defined(ZOO_CHECKED)
template <typename T>
struct zoo_exact_sum<T, false> {
    static ZOO_APART void check(ZOO_TEXT operation, ::zoo::Turn turn, unsigned n) {
        constexpr int width = ::zoo_vec<T>::n;
        float all[::zoo::SIMDWidth * width];
        for (unsigned i = 0; i < n; i++) {
            vec<float, 4> v = ::zoo_make<vec<float, 4>>(0.0f);
            int at = 0;
            ::zoo_append(v, at, zoo_get<T>(turn, i));
            for (int c = 0; c < width; c++) all[i * width + c] = v[c];
        }
        constexpr unsigned bits = sizeof(typename ::zoo_vec<T>::scalar) == 2 ? 11 : 24;
        for (int c = 0; c < width; c++) ::zoo_exact(operation, 0, all + c, width, nullptr, 0, n, bits);
    }
};
#endif

#define ZOO_REDUCE(NAME, VALID, STEP)                                                          \
    template <typename T>                                                                      \
    ZOO_APART inline T zoo_##NAME(::zoo::Turn turn) {                                          \
        T r = static_cast<T*>(turn.slots)[0];                                                  \
        for (unsigned i = 1; i < ::zoo::SIMDWidth; i++) {                                      \
            T x = static_cast<T*>(turn.slots)[i];                                              \
            r = STEP;                                                                          \
        }                                                                                      \
        return r;                                                                              \
    }                                                                                          \
    template <typename T>                                                                      \
    ZOO_TOGETHER T NAME(T data) {                                                              \
        static_assert(VALID, #NAME " does not take this type");                                \
        return zoo_##NAME<T>(zoo_exchange(#NAME, data));                                       \
    }
ZOO_REDUCE(simd_product, zoo_simd<T>::integer, T(r * x))
ZOO_REDUCE(simd_min, zoo_simd<T>::valid, min(r, x))
ZOO_REDUCE(simd_max, zoo_simd<T>::valid, max(r, x))
ZOO_REDUCE(simd_and, zoo_simd<T>::integer, T(r & x))
ZOO_REDUCE(simd_or, zoo_simd<T>::integer, T(r | x))
ZOO_REDUCE(simd_xor, zoo_simd<T>::integer, T(r ^ x))

#define ZOO_SUM(NAME, TO)                                                                      \
    template <typename T>                                                                      \
    ZOO_APART inline T zoo_##NAME(::zoo::Turn turn) {                                          \
        zoo_exact_sum<T, zoo_simd<T>::integer>::check(#NAME, turn, TO);                        \
        T r = T(0);                                                                            \
        for (unsigned i = 0; i < TO; i++) r = T(r + static_cast<T*>(turn.slots)[i]);           \
        return r;                                                                              \
    }                                                                                          \
    template <typename T>                                                                      \
    ZOO_TOGETHER T NAME(T data) {                                                              \
        static_assert(zoo_simd<T>::valid, #NAME " takes numbers of up to 32 bits and vectors of them"); \
        return zoo_##NAME<T>(zoo_exchange(#NAME, data));                                       \
    }
ZOO_SUM(simd_sum, ::zoo::SIMDWidth)
ZOO_SUM(simd_prefix_exclusive_sum, turn.lane)
ZOO_SUM(simd_prefix_inclusive_sum, turn.lane + 1)

// simd_vote is a bit for each thread of a SIMD group.
struct simd_vote {
    typedef ulong vote_t;
    explicit simd_vote(vote_t votes) : votes(votes) {}
    explicit operator vote_t() const { return votes; }
    bool any() const { return votes != 0; }
    bool all() const { return votes == 0xffffffffu; }

private:
    vote_t votes;
};

ZOO_APART inline uint zoo_count_votes(::zoo::Turn turn) {
    uint votes = 0;
    for (unsigned i = 0; i < ::zoo::SIMDWidth; i++) votes |= static_cast<uint*>(turn.slots)[i] << i;
    return votes;
}
ZOO_TOGETHER uint zoo_votes(ZOO_TEXT operation, bool mine) { return zoo_count_votes(zoo_exchange(operation, uint(mine))); }
ZOO_TOGETHER simd_vote simd_ballot(bool x) { return simd_vote(zoo_votes("simd_ballot", x)); }
ZOO_TOGETHER bool simd_any(bool x) { return zoo_votes("simd_any", x) != 0; }
ZOO_TOGETHER bool simd_all(bool x) { return zoo_votes("simd_all", x) == 0xffffffffu; }

}  // namespace metal
