// Barriers and the operations of a SIMD group.
#pragma once

namespace metal {

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }

__attribute__((convergent)) ZOO_INLINE void threadgroup_barrier(mem_flags flags) { ::zoo_barrier(unsigned(flags)); }
__attribute__((convergent)) ZOO_INLINE void simdgroup_barrier(mem_flags flags) { ::zoo_simd_barrier(unsigned(flags)); }

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

// zoo_lanes is what all threads of the SIMD group hand in, and which of them is asking.
template <typename T>
struct zoo_lanes {
    const T* of;
    unsigned lane;
};

template <typename T>
__attribute__((convergent)) ZOO_INLINE zoo_lanes<T> zoo_exchange(ZOO_TEXT operation, T value) {
    static_assert(sizeof(T) <= ::zoo::SlotBytes, "a value fits into its slot");
    ::zoo::Turn turn = ::zoo_turn();
    T* slots = static_cast<T*>(turn.slots);
    slots[turn.lane] = value;
    ::zoo_sync(operation);
    return {slots, turn.lane};
}

#define ZOO_PERMUTE(NAME, PARAM, LANE)                                                              \
    template <typename T>                                                                           \
    __attribute__((convergent)) ZOO_INLINE T NAME(T data, ushort PARAM) {                           \
        static_assert(zoo_simd<T>::valid, #NAME " takes numbers of up to 32 bits and vectors of them"); \
        zoo_lanes<T> all = zoo_exchange(#NAME, data);                                               \
        unsigned own = all.lane;                                                                    \
        unsigned from = LANE;                                                                       \
        if (from >= ::zoo::SIMDWidth) {                                                             \
            ::zoo_misuse(#NAME " names no thread of the SIMD group");                               \
            return data;                                                                            \
        }                                                                                           \
        return all.of[from];                                                                        \
    }
ZOO_PERMUTE(simd_shuffle, lane, (void(own), lane))
ZOO_PERMUTE(simd_broadcast, lane, (void(own), lane))
ZOO_PERMUTE(simd_shuffle_xor, mask, own ^ mask)
ZOO_PERMUTE(simd_shuffle_down, delta, own + delta < ::zoo::SIMDWidth ? own + delta : own)
ZOO_PERMUTE(simd_shuffle_up, delta, own >= delta ? own - delta : own)
ZOO_PERMUTE(simd_shuffle_rotate_down, delta, (own + delta) % ::zoo::SIMDWidth)
ZOO_PERMUTE(simd_shuffle_rotate_up, delta, (own + ::zoo::SIMDWidth - delta % ::zoo::SIMDWidth) % ::zoo::SIMDWidth)

template <typename T>
__attribute__((convergent)) ZOO_INLINE T simd_broadcast_first(T data) {
    static_assert(zoo_simd<T>::valid, "simd_broadcast_first takes numbers of up to 32 bits and vectors of them");
    return zoo_exchange("simd_broadcast_first", data).of[0];
}

#define ZOO_REDUCE(NAME, VALID, FROM, TO, STEP)                                                    \
    template <typename T>                                                                          \
    __attribute__((convergent)) ZOO_INLINE T NAME(T data) {                                        \
        static_assert(VALID, #NAME " does not take this type");                                    \
        zoo_lanes<T> all = zoo_exchange(#NAME, data);                                              \
        T r = all.of[0];                                                                           \
        for (unsigned i = 1; i < ::zoo::SIMDWidth; i++) {                                          \
            T x = all.of[i];                                                                       \
            r = STEP;                                                                              \
        }                                                                                          \
        return r;                                                                                  \
    }
ZOO_REDUCE(simd_sum, zoo_simd<T>::valid, 0, 32, T(r + x))
ZOO_REDUCE(simd_product, zoo_simd<T>::valid, 0, 32, T(r * x))
ZOO_REDUCE(simd_min, zoo_simd<T>::valid, 0, 32, min(r, x))
ZOO_REDUCE(simd_max, zoo_simd<T>::valid, 0, 32, max(r, x))
ZOO_REDUCE(simd_and, zoo_simd<T>::integer, 0, 32, T(r & x))
ZOO_REDUCE(simd_or, zoo_simd<T>::integer, 0, 32, T(r | x))
ZOO_REDUCE(simd_xor, zoo_simd<T>::integer, 0, 32, T(r ^ x))

template <typename T>
__attribute__((convergent)) ZOO_INLINE T simd_prefix_exclusive_sum(T data) {
    static_assert(zoo_simd<T>::valid, "simd_prefix_exclusive_sum does not take this type");
    zoo_lanes<T> all = zoo_exchange("simd_prefix_exclusive_sum", data);
    T r = T(0);
    for (unsigned i = 0; i < all.lane; i++) r = T(r + all.of[i]);
    return r;
}

template <typename T>
__attribute__((convergent)) ZOO_INLINE T simd_prefix_inclusive_sum(T data) {
    static_assert(zoo_simd<T>::valid, "simd_prefix_inclusive_sum does not take this type");
    zoo_lanes<T> all = zoo_exchange("simd_prefix_inclusive_sum", data);
    T r = T(0);
    for (unsigned i = 0; i <= all.lane; i++) r = T(r + all.of[i]);
    return r;
}

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

__attribute__((convergent)) ZOO_INLINE uint zoo_votes(ZOO_TEXT operation, bool mine) {
    zoo_lanes<uint> all = zoo_exchange(operation, uint(mine));
    uint votes = 0;
    for (unsigned i = 0; i < ::zoo::SIMDWidth; i++) votes |= all.of[i] << i;
    return votes;
}

__attribute__((convergent)) ZOO_INLINE simd_vote simd_ballot(bool x) { return simd_vote(zoo_votes("simd_ballot", x)); }
__attribute__((convergent)) ZOO_INLINE bool simd_any(bool x) { return zoo_votes("simd_any", x) != 0; }
__attribute__((convergent)) ZOO_INLINE bool simd_all(bool x) { return zoo_votes("simd_all", x) == 0xffffffffu; }

}  // namespace metal
