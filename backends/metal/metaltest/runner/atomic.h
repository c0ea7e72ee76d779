// Atomic words. The only order is the relaxed one.
#pragma once

namespace metal {

enum memory_order { memory_order_relaxed };

// zoo_atomic_word is a word that is touched by the functions below only.
template <typename T>
struct zoo_atomic_word {
    T word;
};
typedef zoo_atomic_word<uint> atomic_uint;
typedef zoo_atomic_word<int> atomic_int;

#define ZOO_FETCH(SPACE, NAME, BUILTIN)                                                                               \
    template <typename T>                                                                                             \
    ZOO_APART inline T NAME(volatile SPACE zoo_atomic_word<T>* object, decltype(T()) value, memory_order) {           \
        ::zoo_atomic((const volatile void*)object, sizeof(T), ::zoo::Atomic::Change, __builtin_return_address(0));                                                        \
        return BUILTIN(&object->word, value, __ATOMIC_RELAXED);                                                       \
    }
#define ZOO_ATOMICS(SPACE)                                                                                            \
    template <typename T>                                                                                             \
    ZOO_APART inline T atomic_load_explicit(const volatile SPACE zoo_atomic_word<T>* object, memory_order) {          \
        ::zoo_atomic((const volatile void*)object, sizeof(T), ::zoo::Atomic::Load, __builtin_return_address(0));                                                        \
        return __atomic_load_n(&object->word, __ATOMIC_RELAXED);                                                      \
    }                                                                                                                 \
    template <typename T>                                                                                             \
    ZOO_APART inline void atomic_store_explicit(volatile SPACE zoo_atomic_word<T>* object, decltype(T()) value,       \
                                                memory_order) {                                                       \
        ::zoo_atomic((const volatile void*)object, sizeof(T), ::zoo::Atomic::Store, __builtin_return_address(0));                                                        \
        __atomic_store_n(&object->word, value, __ATOMIC_RELAXED);                                                     \
    }                                                                                                                 \
    template <typename T>                                                                                             \
    ZOO_APART inline bool atomic_compare_exchange_weak_explicit(volatile SPACE zoo_atomic_word<T>* object,            \
                                                                decltype(T())* expected, decltype(T()) desired,        \
                                                                memory_order, memory_order) {                         \
        ::zoo_atomic((const volatile void*)object, sizeof(T), ::zoo::Atomic::Change, __builtin_return_address(0));                                                        \
        return __atomic_compare_exchange_n(&object->word, expected, desired, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
    }                                                                                                                 \
    ZOO_FETCH(SPACE, atomic_exchange_explicit, __atomic_exchange_n)                                                   \
    ZOO_FETCH(SPACE, atomic_fetch_add_explicit, __atomic_fetch_add)                                                   \
    ZOO_FETCH(SPACE, atomic_fetch_sub_explicit, __atomic_fetch_sub)                                                   \
    ZOO_FETCH(SPACE, atomic_fetch_and_explicit, __atomic_fetch_and)                                                   \
    ZOO_FETCH(SPACE, atomic_fetch_or_explicit, __atomic_fetch_or)                                                     \
    ZOO_FETCH(SPACE, atomic_fetch_xor_explicit, __atomic_fetch_xor)                                                   \
    ZOO_FETCH(SPACE, atomic_fetch_min_explicit, __atomic_fetch_min)                                                   \
    ZOO_FETCH(SPACE, atomic_fetch_max_explicit, __atomic_fetch_max)
ZOO_EACH_SPACE(ZOO_ATOMICS)

}  // namespace metal
