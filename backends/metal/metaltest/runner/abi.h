// What the kernels and the runner share. It includes nothing, since the
// kernels see none of the standard library.
#pragma once

#if defined(ZOO_SPACES)
#define ZOO_TEXT const __constant char*
#else
#define ZOO_TEXT const char*
#endif

namespace zoo {

constexpr unsigned MaxBuffers = 31;  // indices of a kernel's buffers
constexpr unsigned SIMDWidth = 32;
constexpr unsigned SlotBytes = 16;   // what a thread hands to the others of its SIMD group at a time, at most

#if !defined(ZOO_SPACES)

// Call is what the threads of a dispatch have in common, but for group, which is that of the worker.
struct Call {
    const void* buffers[MaxBuffers];
    void* shared;
    unsigned group[3];
    unsigned groups[3];
    unsigned threads;
};

// Kernel describes a kernel to the runner.
struct Kernel {
    const char* name;
    void (*run)(const Call&, unsigned index);
    unsigned args_bytes;   // size of what buffer 0 refers to, 0 if that is not known
    unsigned writable;     // a bit for each buffer that is not const
};

#endif

// Turn is a thread's place in the exchange of values within a SIMD group.
struct Turn {
    void* slots;  // SIMDWidth values
    unsigned lane;
};

// What is done to an atomic word.
enum class Atomic : unsigned { Load, Store, Change };

// What a barrier orders.
enum : unsigned { OrderDevice = 1, OrderShared = 2 };

}  // namespace zoo

extern "C" {

#if !defined(ZOO_SPACES)
// All kernels are in a section of their own.
extern const zoo::Kernel __start_zoo_kernels[] __attribute__((weak)), __stop_zoo_kernels[] __attribute__((weak));
#endif

// zoo_turn returns where the calling thread puts its value.
zoo::Turn zoo_turn();

// zoo_sync returns when all threads of the SIMD group have called it for the same operation.
void zoo_sync(ZOO_TEXT operation) __attribute__((convergent, nomerge));

// zoo_simd_barrier and zoo_barrier do so for a barrier that orders what is named.
void zoo_simd_barrier(unsigned order) __attribute__((convergent, nomerge));
void zoo_barrier(unsigned order) __attribute__((convergent, nomerge));

// zoo_atomic tells of an atomic access in a function that was called from site.
void zoo_atomic(const volatile void* address, unsigned bytes, zoo::Atomic what, const void* site);

// zoo_exact checks that a sum, and that of any part of it, is exact in so many
// bits, so that its order does not matter: start and n numbers, or products if
// right is not null. The numbers are so many numbers apart.
void zoo_exact(ZOO_TEXT operation, float start, const float* left, unsigned left_step, const float* right, unsigned right_step, unsigned n,
               unsigned bits);

// zoo_misuse tells that a thread does what the language leaves undefined.
void zoo_misuse(ZOO_TEXT what);
}
