// What instrumented kernels call: AddressSanitizer's functions, whose names
// begin with zoo_ by a compiler option, and those of the checks for undefined behaviour.
#pragma once

#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "check.h"

namespace zoo {

extern Checker* the_checker;

// Shadow has a byte for 8 bytes of memory: 0 if all of them may be touched, n if the
// first n may, a negative number if none. Kernels fill it for their local arrays.
class Shadow {
public:
    static constexpr unsigned Scale = 3;
    static uint64_t reserve() {
        uint64_t bytes = 1ull << (48 - Scale);
        void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) {
            perror("reserve addresses");
            _exit(1);
        }
        return reinterpret_cast<uint64_t>(at);
    }
};

}  // namespace zoo

extern "C" uint64_t __asan_shadow_memory_dynamic_address;

namespace zoo {

inline int8_t* shadow_of(uint64_t address) {
    return reinterpret_cast<int8_t*>((address >> Shadow::Scale) + __asan_shadow_memory_dynamic_address);
}

// poisoned tells whether some byte may not be touched.
inline bool poisoned(uint64_t address, uint64_t size) {
    for (uint64_t granule = address & ~7ull; granule < address + size; granule += 8) {
        int8_t k = *shadow_of(granule);
        if (k == 0) continue;
        uint64_t last = std::min(address + size, granule + 8) - granule;  // one past the last byte that is touched
        if (k < 0 || last > uint64_t(k)) return true;
    }
    return false;
}

extern "C" char __executable_start, _end;

inline void Checker::elsewhere(Worker& w, uint64_t address, uint64_t size, Kind kind, const void* site) {
    const Stack& stack = w.current->stack;
    bool local = address >= stack.low() && address + size <= stack.high();
    bool constant = address >= reinterpret_cast<uint64_t>(&__executable_start) && address + size <= reinterpret_cast<uint64_t>(&_end);
    if (local || constant) {
        if (!poisoned(address, size)) return;
        w.fail("%s %lu bytes beyond the end of a %s array, at %s", verb(kind), size, local ? "local" : "constant", place(site).c_str());
    }
    if (address < 1 << 20) {
        w.fail("%s %lu bytes through a null pointer, which is what an unbound buffer is, plus %#lx, at %s", verb(kind), size, address,
               place(site).c_str());
    }
    w.fail("%s %lu bytes of no memory of its own, at %s", verb(kind), size, place(site).c_str());
}

}  // namespace zoo

#define ZOO_SITE __builtin_extract_return_addr(__builtin_return_address(0))

#define ZOO_ACCESS(N)                                                                                                                  \
    extern "C" void zoo_load##N(uint64_t address) { zoo::the_checker->touch(address, N, zoo::Kind::Read, ZOO_SITE); }                   \
    extern "C" void zoo_store##N(uint64_t address) { zoo::the_checker->touch(address, N, zoo::Kind::Write, ZOO_SITE); }
ZOO_ACCESS(1)
ZOO_ACCESS(2)
ZOO_ACCESS(4)
ZOO_ACCESS(8)
ZOO_ACCESS(16)

extern "C" {

void zoo_loadN(uint64_t address, uint64_t size) { zoo::the_checker->touch(address, size, zoo::Kind::Read, ZOO_SITE); }
void zoo_storeN(uint64_t address, uint64_t size) { zoo::the_checker->touch(address, size, zoo::Kind::Write, ZOO_SITE); }

void* zoo_memcpy(void* to, const void* from, uint64_t size) {
    if (size > 0) {
        zoo::the_checker->touch(reinterpret_cast<uint64_t>(from), size, zoo::Kind::Read, ZOO_SITE);
        zoo::the_checker->touch(reinterpret_cast<uint64_t>(to), size, zoo::Kind::Write, ZOO_SITE);
    }
    return memcpy(to, from, size);
}
void* zoo_memmove(void* to, const void* from, uint64_t size) {
    if (size > 0) {
        zoo::the_checker->touch(reinterpret_cast<uint64_t>(from), size, zoo::Kind::Read, ZOO_SITE);
        zoo::the_checker->touch(reinterpret_cast<uint64_t>(to), size, zoo::Kind::Write, ZOO_SITE);
    }
    return memmove(to, from, size);
}
void* zoo_memset(void* to, int value, uint64_t size) {
    if (size > 0) zoo::the_checker->touch(reinterpret_cast<uint64_t>(to), size, zoo::Kind::Write, ZOO_SITE);
    return memset(to, value, size);
}

// The rest of AddressSanitizer's runtime, as far as kernels need it.
uint64_t __asan_shadow_memory_dynamic_address;

void __asan_init() {
    if (__asan_shadow_memory_dynamic_address == 0) __asan_shadow_memory_dynamic_address = zoo::Shadow::reserve();
}
void __asan_version_mismatch_check_v8() {}
void __asan_handle_no_return() {}

#define ZOO_SET_SHADOW(NAME, VALUE) \
    void __asan_set_shadow_##NAME(uint64_t at, uint64_t size) { memset(reinterpret_cast<void*>(at), VALUE, size); }
ZOO_SET_SHADOW(00, 0)
ZOO_SET_SHADOW(01, 1)
ZOO_SET_SHADOW(02, 2)
ZOO_SET_SHADOW(03, 3)
ZOO_SET_SHADOW(04, 4)
ZOO_SET_SHADOW(05, 5)
ZOO_SET_SHADOW(06, 6)
ZOO_SET_SHADOW(07, 7)
ZOO_SET_SHADOW(f1, 0xf1)
ZOO_SET_SHADOW(f2, 0xf2)
ZOO_SET_SHADOW(f3, 0xf3)
ZOO_SET_SHADOW(f5, 0xf5)
ZOO_SET_SHADOW(f8, 0xf8)

// A global variable and the room after it that nobody may touch.
struct zoo_global {
    uint64_t at, size, size_with_room;
    uint64_t rest[5];
};

void __asan_register_elf_globals(uint64_t*, void* start, void* stop) {
    for (auto* g = static_cast<zoo_global*>(start); g != stop; g++) {
        uint64_t whole = g->at + g->size / 8 * 8;
        for (uint64_t a = whole; a < g->at + g->size_with_room; a += 8) {
            *zoo::shadow_of(a) = a < g->at + g->size ? int8_t(g->size % 8) : int8_t(0xf9);
        }
    }
}
void __asan_unregister_elf_globals(uint64_t*, void*, void*) {}

// zoo_exact: all numbers are multiples of the lowest bit that one of them has, so
// that their sums are exact as long as there are no more of these than fit.
void zoo_exact(const char* operation, float start, const float* left, unsigned left_step, const float* right, unsigned right_step, unsigned n,
               unsigned bits) {
    double total = 0;
    int lowest = INT32_MAX;
    for (unsigned i = 0; i <= n; i++) {
        // A product of floats is exact as a double, and no such is below the normal ones.
        double x = i == n ? start : right == nullptr ? left[i * left_step] : double(left[i * left_step]) * right[i * right_step];
        if (x == 0) continue;
        uint64_t word;
        memcpy(&word, &x, sizeof word);
        int exponent = int(word >> 52 & 0x7ff) - 1023;
        if (exponent == 1024) return;  // what is not finite makes the sum so, in any order
        uint64_t digits = word & ((1ull << 52) - 1);
        lowest = std::min(lowest, digits == 0 ? exponent : exponent - 52 + __builtin_ctzll(digits));
        total += std::fabs(x);
    }
    if (total == 0 || total <= std::ldexp(1.0, int(bits) + lowest)) return;
    zoo::Worker& w = *zoo::Worker::running();
    w.fail("rounds in %s at %s, whose order of additions the device does not promise", operation, zoo::place(w.current->simd->site).c_str());
}

// The checks for undefined behaviour begin their data with the place.
struct zoo_place {
    const char* file;
    uint32_t line, column;
};
#define ZOO_UNDEFINED(NAME, WHAT)                                                                                  \
    void __ubsan_handle_##NAME(zoo_place* at) {                                                                    \
        if (strncmp(at->file, "metal-", 6) == 0) {                                                                 \
            zoo::Worker::running()->fail(WHAT ", at <line %u of %s>", at->line, at->file);                         \
        }                                                                                                          \
        zoo::Worker::running()->fail(WHAT ", at %s", zoo::place(ZOO_SITE).c_str());                                 \
    }
ZOO_UNDEFINED(type_mismatch_v1, "touches memory that is not aligned for its type")
ZOO_UNDEFINED(out_of_bounds, "has an index beyond an array")
ZOO_UNDEFINED(shift_out_of_bounds, "shifts by more than there are bits")
ZOO_UNDEFINED(float_cast_overflow, "converts a number that the integer cannot hold")
ZOO_UNDEFINED(divrem_overflow, "divides by 0, or the lowest number by -1")
ZOO_UNDEFINED(add_overflow, "overflows a signed integer with a sum")
ZOO_UNDEFINED(sub_overflow, "overflows a signed integer with a difference")
ZOO_UNDEFINED(mul_overflow, "overflows a signed integer with a product")
ZOO_UNDEFINED(negate_overflow, "negates the lowest number")
}
