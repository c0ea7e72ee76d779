// Running the threads of a group: each is a fiber, which runs until it waits
// for others.
#pragma once

#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <string>

#include "abi.h"
#include "fiber.h"

namespace zoo {

constexpr unsigned MaxThreads = 1024;

// place names a place in the code, by the address to which a call returns. Who reads it knows which line that is.
inline std::string place(const void* site) {
    extern char base __asm__("__executable_start");
    char text[32];
    snprintf(text, sizeof text, "<%lx>", reinterpret_cast<uint64_t>(site) - reinterpret_cast<uint64_t>(&base) - 1);
    return text;
}

// SIMD is the state of a SIMD group.
struct SIMD {
    unsigned arrived;      // threads that wait in the current operation
    unsigned ended;        // threads whose kernel has returned
    unsigned first;        // the thread that came to the current operation first
    const char* operation;
    const void* site;
    alignas(64) char slots[2][SIMDWidth * SlotBytes];
};

class Worker;

// Fiber is a thread of a group.
struct Fiber {
    void* sp;
    Worker* worker;
    SIMD* simd;
    unsigned index, lane;
    unsigned turns;          // SIMD operations so far
    const char* waits_for;   // null while it can run
    Stack stack;
};

// Order is the order in which things run: as they come, or permuted.
class Order {
public:
    void seed(uint64_t s) { state_ = seed_ = s; }
    bool permuted() const { return seed_ != 0; }
    // restart makes the order depend on what is run only, and not on what ran before.
    void restart(uint64_t salt) { state_ = seed_ * 0x9e3779b97f4a7c15ull + salt; }
    unsigned below(unsigned n) {
        state_ += 0x9e3779b97f4a7c15ull;
        uint64_t x = state_;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ x >> 27) * 0x94d049bb133111ebull;
        return unsigned(((x ^ x >> 31) >> 32) * n >> 32);
    }

private:
    uint64_t seed_ = 0, state_ = 0;
};

// Worker runs groups, one at a time, on the system's thread that calls it.
class Worker {
public:
    explicit Worker(size_t stack_bytes) {
        fibers_ = new Fiber[MaxThreads]();
        simds_ = new SIMD[MaxThreads / SIMDWidth]();
        for (unsigned i = 0; i < MaxThreads; i++) {
            Fiber& f = fibers_[i];
            f.worker = this;
            f.index = i;
            f.lane = i % SIMDWidth;
            f.simd = &simds_[i / SIMDWidth];
            f.stack.allocate(stack_bytes);
        }
    }

    Order order;
    Call call;  // that of the current dispatch, with this worker's group
    const Kernel* kernel = nullptr;
    Fiber* current = nullptr;

    // run runs the group that call names, and returns whether that went well; if not, failure tells why.
    bool run() {
        failure.clear();
        threads_ = call.threads;
        ready_ = ended_ = arrived_ = 0;
        for (unsigned s = 0; s < threads_ / SIMDWidth; s++) simds_[s].arrived = simds_[s].ended = 0;
        for (unsigned i = threads_; i-- > 0;) {
            Fiber& f = fibers_[i];
            if (f.sp == nullptr) f.sp = f.stack.prepare(begin, &f);
            f.turns = 0;
            f.waits_for = nullptr;
            queue_[ready_++] = uint16_t(i);
        }
        running_ = this;
        current = next();
        zoo_switch(&home_, current->sp);
        current = nullptr;
        running_ = nullptr;
        if (failure.empty()) return true;
        for (unsigned i = 0; i < MaxThreads; i++) {
            // They are in the midst of things.
            if (fibers_[i].sp != nullptr && abandoned != nullptr) abandoned(fibers_[i].stack);
            fibers_[i].sp = nullptr;
        }
        return false;
    }

    // fail ends the group for a reason, of which the kernel, group and thread are told. It does not return to a fiber.
    __attribute__((format(printf, 2, 3))) void fail(const char* format, ...) {
        char text[1024];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        failure = where() + ": " + text;
        zoo_switch(&current->sp, home_);
    }

    // where names the kernel, the group and the thread that runs.
    std::string where() const {
        char text[512];
        snprintf(text, sizeof text, "kernel %s, group (%u, %u, %u), thread %u", kernel->name, call.group[0], call.group[1], call.group[2],
                 current ? current->index : 0);
        return text;
    }

    // sync waits for the SIMD group. It is true for the last thread to come, which goes on first.
    bool sync(const char* operation, const void* site) {
        Fiber& f = *current;
        SIMD& s = *f.simd;
        if (s.arrived == 0) {
            s.operation = operation;
            s.site = site;
            s.first = f.index;
        } else if (s.site != site || s.operation != operation) {
            fail("comes to %s at %s while thread %u of its SIMD group waits for %s at %s", operation, place(site).c_str(), s.first, s.operation,
                 place(s.site).c_str());
        }
        if (s.ended > 0) fail("comes to %s at %s after a thread of its SIMD group has ended", operation, place(site).c_str());
        f.turns++;
        if (++s.arrived < SIMDWidth) {
            f.waits_for = operation;
            leave();
            return false;
        }
        s.arrived = 0;
        unsigned first = f.index / SIMDWidth * SIMDWidth;
        for (unsigned i = first + SIMDWidth; i-- > first;) {
            if (i == f.index) continue;
            fibers_[i].waits_for = nullptr;
            queue_[ready_++] = uint16_t(i);
        }
        return true;
    }

    // barrier waits for the group. It is true for the last thread to come, which goes on first.
    bool barrier(const void* site) {
        Fiber& f = *current;
        if (arrived_ == 0) {
            barrier_site_ = site;
            barrier_first_ = f.index;
        } else if (barrier_site_ != site) {
            fail("comes to a threadgroup_barrier at %s while thread %u waits at that at %s", place(site).c_str(), barrier_first_,
                 place(barrier_site_).c_str());
        }
        if (ended_ > 0) fail("comes to a threadgroup_barrier at %s after a thread of its group has ended", place(site).c_str());
        if (++arrived_ < threads_) {
            f.waits_for = "threadgroup_barrier";
            leave();
            return false;
        }
        arrived_ = 0;
        for (unsigned i = threads_; i-- > 0;) {
            if (i == f.index) continue;
            fibers_[i].waits_for = nullptr;
            queue_[ready_++] = uint16_t(i);
        }
        return true;
    }

    // running is the worker of the calling thread of the system.
    static Worker* running() { return running_; }

    std::string failure;

    // abandoned, unless null, is called for the stacks that a failure leaves as they are.
    void (*abandoned)(const Stack&) = nullptr;

private:
    static void begin(void* fiber) {
        Fiber& f = *static_cast<Fiber*>(fiber);
        for (;;) {
            f.worker->kernel->run(f.worker->call, f.index);
            f.worker->end();
        }
    }

    // end is where a thread goes whose kernel has returned; it returns for the next group.
    void end() {
        Fiber& f = *current;
        if (arrived_ > 0) fail("ends while thread %u waits at the threadgroup_barrier at %s", barrier_first_, place(barrier_site_).c_str());
        if (f.simd->arrived > 0) fail("ends while thread %u of its SIMD group waits for %s at %s", f.simd->first, f.simd->operation, place(f.simd->site).c_str());
        f.simd->ended++;
        if (++ended_ == threads_) {
            zoo_switch(&f.sp, home_);
            return;
        }
        leave();
    }

    // leave runs another thread, until somebody runs this one.
    void leave() {
        Fiber* from = current;
        Fiber* to = next();
        if (to == nullptr) {
            stuck();
            return;
        }
        current = to;
        zoo_switch(&from->sp, to->sp);
    }

    Fiber* next() {
        if (ready_ == 0) return nullptr;
        unsigned last = --ready_;
        if (order.permuted()) {
            unsigned pick = order.below(last + 1);
            uint16_t i = queue_[pick];
            queue_[pick] = queue_[last];
            return &fibers_[i];
        }
        return &fibers_[queue_[last]];
    }

    // stuck fails since every thread waits.
    void stuck() {
        const char* mine = current->waits_for ? current->waits_for : "the end";
        for (unsigned i = 0; i < threads_; i++) {
            const char* other = fibers_[i].waits_for;
            if (other && strcmp(other, mine) != 0) fail("waits for %s while thread %u waits for %s", mine, i, other);
        }
        fail("waits for %s, which not all threads reach", mine);
    }

    static __thread Worker* running_;
    Fiber* fibers_;
    SIMD* simds_;
    uint16_t queue_[MaxThreads];  // threads that can run
    unsigned ready_ = 0, threads_ = 0, ended_ = 0, arrived_ = 0, barrier_first_ = 0;
    const void* barrier_site_ = nullptr;
    void* home_ = nullptr;
};

inline __thread Worker* Worker::running_ = nullptr;

}  // namespace zoo
