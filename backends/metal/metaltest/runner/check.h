// Checking every access of a kernel. The compiler is told to call a function
// for each (AddressSanitizer's calls under other names); these functions, and
// the little of its runtime that keeps local arrays apart, are in sanitize.h.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <unordered_map>

#include "group.h"
#include "memory.h"

namespace zoo {

// Cell is what is known of who touched a byte last. Threads that touched it at
// a time when nothing put them in an order are several.
struct Cell {
    uint32_t time;
    uint16_t who;  // the thread and the flags below
    uint16_t site;

    static constexpr uint16_t Thread = 0x3ff;
    static constexpr uint16_t Lanes = 0x400;    // several threads of that thread's SIMD group
    static constexpr uint16_t Threads = 0x800;  // several threads of the group
    static constexpr uint16_t Groups = 0x1000;  // threads of other groups as well
    static constexpr uint16_t Atomic = 0x2000;

    unsigned thread() const { return who & Thread; }
    bool is(uint16_t flag) const { return (who & flag) != 0; }
};

struct Cells {
    Cell written, read;
};

// Kind is how memory is touched.
enum class Kind { Read, Write, AtomicLoad, AtomicStore, AtomicChange };

inline bool reads(Kind kind) { return kind != Kind::Write && kind != Kind::AtomicStore; }
inline bool writes(Kind kind) { return kind != Kind::Read && kind != Kind::AtomicLoad; }
inline bool atomic(Kind kind) { return kind != Kind::Read && kind != Kind::Write; }

// Checker knows what a group may touch and what it touched. There is one worker.
class Checker {
public:
    Checker(const Space& space, size_t shared_bytes)
        : space_(space), cells_(reserve(WindowBytes)), shared_cells_(reserve(shared_bytes)) {
        uint64_t at = space_.window(SharedWindow);
        map(at, shared_bytes);
        map(space_.window(0), args_room);
    }

    // begin makes known what a dispatch binds. The arguments are copied to where buffer 0 is.
    void begin(Call& call, const Kernel& kernel, const std::vector<uint8_t>& args, size_t shared_bytes) {
        time_++;
        dispatch_ = time_;
        for (Bound& b : bound_) b = Bound{};
        for (unsigned i = 0; i < MaxBuffers; i++) bound_[i].writable = kernel.writable >> i & 1;
        uint64_t at = space_.window(0) + args_room - round_up(args.size(), 16);
        memcpy(reinterpret_cast<void*>(at), args.data(), args.size());
        call.buffers[0] = reinterpret_cast<void*>(at);
        bound_[0].set(at, args.size(), false);
        at = space_.window(SharedWindow);
        call.shared = shared_bytes > 0 ? reinterpret_cast<void*>(at) : nullptr;
        bound_[SharedWindow].writable = bound_[SharedWindow].tracked = true;
        bound_[SharedWindow].set(at, shared_bytes, false);
    }

    // bind makes a part of a buffer known at an index.
    void bind(unsigned index, const Buffer& buffer, const void* part, uint64_t size) {
        bound_[index].set(reinterpret_cast<uint64_t>(part), size, !buffer.writable);
    }

    // bound is called when all is bound: who touches memory that the dispatch may write is followed.
    void bound() {
        for (unsigned i = 1; i < MaxBuffers; i++) {
            for (unsigned j = 1; j < MaxBuffers && bound_[i].high > 0; j++) {
                uint64_t low = space_.offset(bound_[i].low), other = space_.offset(bound_[j].low);
                if (bound_[j].writable && low < other + bound_[j].size() && other < low + bound_[i].size()) bound_[i].tracked = true;
            }
        }
    }

    // forget drops what is known of a buffer.
    void forget(uint64_t place, uint64_t size) { madvise(cells_ + place, size * sizeof(Cells), MADV_DONTNEED); }

    // begin_group makes all that was touched before belong to other groups.
    void begin_group() {
        time_++;
        group_ = time_;
        device_.begin(time_, dispatch_);
        shared_.begin(time_, time_);
    }

    // barrier and simd_barrier order what threads touch before and after.
    void barrier(unsigned order) {
        time_++;
        if (order & OrderDevice) device_.barrier = time_;
        if (order & OrderShared) shared_.barrier = time_;
    }
    void simd_barrier(unsigned order, unsigned simd) {
        time_++;
        if (order & OrderDevice) device_.simd[simd] = time_;
        if (order & OrderShared) shared_.simd[simd] = time_;
    }

    // touch checks an access of the running thread.
    __attribute__((always_inline)) void touch(uint64_t address, uint64_t size, Kind kind, const void* site) {
        uint64_t window = space_.index(address);
        if (__builtin_expect(window < Windows, 1)) {
            const Bound& b = bound_[window];
            if (__builtin_expect(address >= b.low && address + size <= (writes(kind) ? b.write_high : b.high), 1)) {
                if (b.tracked) track(unsigned(window), address, size, kind, site);
                return;
            }
        }
        refuse(window, address, size, kind, site);
    }

private:
    static constexpr uint64_t args_room = 64 << 10;

    // Bound is the part of memory that an index may touch.
    struct Bound {
        uint64_t low = 0, high = 0;
        uint64_t write_high = 0;  // high if it may be written, or else 0
        bool writable = false, tracked = false, mapped = false;
        uint64_t size() const { return high - low; }
        void set(uint64_t from, uint64_t bytes, bool read_only) {
            low = from;
            high = from + bytes;
            mapped = read_only;
            write_high = writable && !mapped ? high : 0;
        }
    };

    // Order is since when things are in order: for all memory of a kind.
    struct Order {
        uint32_t start;    // what is older is of no interest
        uint32_t group;    // what is older is of another group
        uint32_t barrier;  // what is older was before the last barrier
        uint32_t simd[MaxThreads / SIMDWidth];
        void begin(uint32_t time, uint32_t since) {
            start = since;
            group = barrier = time;
            for (uint32_t& s : simd) s = time;
        }
    };

    // Moment is when a thread touches something.
    struct Moment {
        uint32_t time;
        uint16_t thread, simd, site;
    };

    // track follows who touches bytes of an index.
    void track(unsigned window, uint64_t address, uint64_t size, Kind kind, const void* site) {
        Worker& w = *Worker::running();
        bool shared = window == SharedWindow;
        Cells* cells = shared ? shared_cells_ + (address - bound_[window].low) : cells_ + space_.offset(address);
        const Order& order = shared ? shared_ : device_;
        Moment now;
        now.thread = uint16_t(w.current->index);
        now.simd = now.thread / SIMDWidth;
        now.time = std::max(order.barrier, order.simd[now.simd]);
        now.site = intern(site);
        Cells before = {}, after = {};
        for (uint64_t i = 0; i < size; i++) {
            Cells& c = cells[i];
            if (i > 0 && memcmp(&c, &before, sizeof c) == 0) {
                c = after;  // as most often
                continue;
            }
            before = c;
            if (__builtin_expect(shared && reads(kind) && c.written.time < group_, 0)) uninitialised(w, address + i, size, site);
            const Cell* other = nullptr;
            if (conflicts(order, c.written, now) && !(atomic(kind) && c.written.is(Cell::Atomic))) {
                other = &c.written;
            } else if (writes(kind) && conflicts(order, c.read, now)) {
                other = &c.read;
            }
            if (__builtin_expect(other != nullptr, 0)) race(w, window, address + i, kind, *other, other == &c.read, site);
            if (kind == Kind::Write) {
                c.written = {now.time, now.thread, now.site};
            } else if (kind == Kind::Read) {
                merge(order, c.read, now, 0);
            } else {
                merge(order, c.written, now, Cell::Atomic);
            }
            after = c;
        }
    }

    // conflicts tells whether somebody else touched a byte and nothing says that it was before.
    static bool conflicts(const Order& order, const Cell& c, const Moment& now) {
        if (c.time < order.start) return false;
        if (c.is(Cell::Groups) || c.time < order.group) return true;
        if (c.time < order.barrier) return false;
        if (c.is(Cell::Threads)) return true;
        if (c.thread() / SIMDWidth == now.simd) return c.time >= order.simd[now.simd] && (c.is(Cell::Lanes) || c.thread() != now.thread);
        return true;
    }

    // merge adds an access to others of the same kind.
    static void merge(const Order& order, Cell& c, const Moment& now, uint16_t flags) {
        if (c.time >= order.start && (flags == 0 || c.is(Cell::Atomic))) {
            if (c.is(Cell::Groups) || c.time < order.group) flags |= Cell::Groups;
            if (c.time >= order.group && conflicts_within(order, c, now)) {
                bool lanes = !c.is(Cell::Threads) && c.thread() / SIMDWidth == now.simd;
                flags |= lanes ? Cell::Lanes : Cell::Threads;
            }
        }
        c = {now.time, uint16_t(now.thread | flags), now.site};
    }
    static bool conflicts_within(const Order& order, Cell c, const Moment& now) {
        c.who &= uint16_t(~Cell::Groups);
        return conflicts(order, c, now);
    }

    // intern returns a short number for a place in the code.
    uint16_t intern(const void* site) {
        uint64_t key = reinterpret_cast<uint64_t>(site);
        Known& k = known_[(key ^ key >> 12) % std::size(known_)];
        if (k.site == site) return k.number;
        auto [it, fresh] = numbers_.try_emplace(site, uint16_t(sites_.size()));
        if (fresh) {
            if (sites_.size() > UINT16_MAX) {
                it->second = 0;
            } else {
                sites_.push_back(site);
            }
        }
        k = {site, it->second};
        return it->second;
    }

    static Cells* reserve(uint64_t bytes) {
        void* at = mmap(nullptr, bytes * sizeof(Cells), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) {
            perror("reserve addresses");
            _exit(1);
        }
        return static_cast<Cells*>(at);
    }
    static void map(uint64_t at, uint64_t bytes) {
        if (mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
            perror("map memory of the runner");
            _exit(1);
        }
    }

    // refuse finds out what is wrong with an access, if anything is.
    __attribute__((noinline)) void refuse(uint64_t window, uint64_t address, uint64_t size, Kind kind, const void* site) {
        Worker& w = *Worker::running();
        if (window >= Windows) {
            elsewhere(w, address, size, kind, site);
        } else if (address < bound_[window].low || address + size > bound_[window].high) {
            outside(w, unsigned(window), address, size, kind, site);
        } else {
            read_only(w, unsigned(window), address, size, kind, site);
        }
    }

    void elsewhere(Worker& w, uint64_t address, uint64_t size, Kind kind, const void* site);
    void outside(Worker& w, unsigned window, uint64_t address, uint64_t size, Kind kind, const void* site);
    void read_only(Worker& w, unsigned window, uint64_t address, uint64_t size, Kind kind, const void* site);
    void uninitialised(Worker& w, uint64_t address, uint64_t size, const void* site);
    void race(Worker& w, unsigned window, uint64_t address, Kind kind, const Cell& other, bool read, const void* site);
    std::string name(unsigned window) const;

    const Space& space_;
    Cells* const cells_;
    Cells* const shared_cells_;
    Bound bound_[Windows];
    Order device_, shared_;
    uint32_t time_ = 0, dispatch_ = 0, group_ = 0;
    struct Known {
        const void* site;
        uint16_t number;
    };
    Known known_[4096] = {};
    std::unordered_map<const void*, uint16_t> numbers_;
    std::vector<const void*> sites_{nullptr};
};

// verb and such words are for reports.
inline const char* verb(Kind kind) {
    static const char* const verbs[] = {"reads", "writes", "atomically reads", "atomically writes", "atomically changes"};
    return verbs[int(kind)];
}

inline std::string Checker::name(unsigned window) const {
    if (window == SharedWindow) return "threadgroup memory";
    return window == 0 ? "the arguments" : "buffer " + std::to_string(window);
}

inline void Checker::outside(Worker& w, unsigned window, uint64_t address, uint64_t size, Kind kind, const void* site) {
    const Bound& b = bound_[window];
    if (b.high == 0) {
        w.fail("%s %lu bytes of %s, which is not bound, at %s", verb(kind), size, name(window).c_str(), place(site).c_str());
    }
    w.fail("%s %lu bytes at offset %ld of %s, of which %lu bytes are bound, at %s", verb(kind), size, long(address - b.low), name(window).c_str(),
           b.size(), place(site).c_str());
}

inline void Checker::read_only(Worker& w, unsigned window, uint64_t address, uint64_t size, Kind kind, const void* site) {
    w.fail("%s %lu bytes at offset %ld of %s, which is %s, at %s", verb(kind), size, long(address - bound_[window].low), name(window).c_str(),
           bound_[window].mapped ? "mapped for reading" : "const", place(site).c_str());
}

inline void Checker::uninitialised(Worker& w, uint64_t address, uint64_t size, const void* site) {
    w.fail("reads %lu bytes of threadgroup memory of which that at offset %lu was never written, at %s", size,
           address - bound_[SharedWindow].low, place(site).c_str());
}

inline void Checker::race(Worker& w, unsigned window, uint64_t address, Kind kind, const Cell& other, bool read, const void* site) {
    const Order& order = window == SharedWindow ? shared_ : device_;
    std::string who = other.is(Cell::Groups) || other.time < order.group ? "another group" : "thread " + std::to_string(other.thread());
    w.fail("%s the byte at offset %ld of %s at %s, which %s %s at %s, and nothing orders the two", verb(kind), long(address - bound_[window].low),
           name(window).c_str(), place(site).c_str(), who.c_str(), read ? "reads" : other.is(Cell::Atomic) ? "atomically touches" : "writes",
           place(sites_[other.site]).c_str());
}

}  // namespace zoo
