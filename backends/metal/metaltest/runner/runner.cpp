// The runner: a process that runs kernels for another one, which tells it what
// to do through its standard input.

#include <sys/time.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <numeric>
#include <thread>
#include <unordered_map>

#include "group.h"
#include "memory.h"
#include "wire.h"
#if defined(ZOO_CHECKED)
#include "sanitize.h"
#endif
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace zoo {

#if defined(ZOO_CHECKED)
Checker* the_checker;
constexpr bool checked = true;
#else
constexpr bool checked = false;
#endif

// Options are given on the command line, as name=number.
struct Options {
    uint64_t parent = 0, seed = 0, workers = 1, flush = 0, fail_after = 0, seconds = 0;
};

// Part is a bound part of a buffer; id 0 is none.
struct Part {
    uint32_t id;
    uint64_t offset, size;
};

struct Dispatch {
    const Kernel* kernel;
    unsigned threads, shared_bytes, groups[3];
    std::vector<uint8_t> args;
    std::vector<Part> parts;  // from index 1 on
};

typedef std::vector<Dispatch> List;

// Crew is the workers of the system's threads.
class Crew {
public:
    Crew(const Options& options, size_t shared_bytes) : options_(options) {
        for (uint64_t i = 0; i < options.workers; i++) {
            auto m = std::make_unique<Member>(stack_bytes);
            size_t page = size_t(sysconf(_SC_PAGESIZE));
            size_t room = round_up(shared_bytes, page);
            char* memory = static_cast<char*>(mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            if (memory == MAP_FAILED || mprotect(memory + room, page, PROT_NONE) != 0) {
                perror("allocate threadgroup memory");
                _exit(1);
            }
            m->shared_end = memory + room;
            m->worker.order.seed(options.seed);
#if defined(ZOO_CHECKED)
            m->worker.abandoned = [](const Stack& stack) {
                madvise(shadow_of(stack.low()), (stack.high() - stack.low()) >> Shadow::Scale, MADV_DONTNEED);
            };
#endif
            members_.push_back(std::move(m));
        }
        for (size_t i = 1; i < members_.size(); i++) {
            std::thread([this, i] { help(*members_[i]); }).detach();
        }
    }

    // run runs all groups of a dispatch and returns what went wrong, or nothing.
    std::string run(const Dispatch& d, const Call& call) {
        dispatch_ = &d;
        call_ = &call;
        total_ = uint64_t(call.groups[0]) * call.groups[1] * call.groups[2];
        next_ = 0;
        failed_ = false;
        if (options_.seed != 0) permute();
        bool together = members_.size() > 1 && total_ > 1 && total_ * call.threads >= worth_sharing;
        if (together) {
            std::lock_guard<std::mutex> lock(mutex_);
            round_++;
            busy_ = members_.size() - 1;
            wake_.notify_all();
        }
        work(*members_[0]);
        if (together) {
            std::unique_lock<std::mutex> lock(mutex_);
            idle_.wait(lock, [this] { return busy_ == 0; });
        }
        if (!failed_) return "";
        for (auto& m : members_) {
            if (!m->failure.empty()) return m->failure;
        }
        return "";
    }

private:
    static constexpr size_t stack_bytes = checked ? 256 << 10 : 64 << 10;
    static constexpr uint64_t worth_sharing = 2048;  // threads

    struct Member {
        explicit Member(size_t stack) : worker(stack) {}
        Worker worker;
        char* shared_end;
        std::string failure;
    };

    void help(Member& m) {
        prepare_thread(options_);
        for (uint64_t seen = 0;;) {
            {
                std::unique_lock<std::mutex> lock(mutex_);
                wake_.wait(lock, [&] { return round_ != seen; });
                seen = round_;
            }
            work(m);
            std::lock_guard<std::mutex> lock(mutex_);
            if (--busy_ == 0) idle_.notify_one();
        }
    }

    void work(Member& m) {
        m.failure.clear();
        Worker& w = m.worker;
        w.kernel = dispatch_->kernel;
        w.call = *call_;
        if (!checked) w.call.shared = dispatch_->shared_bytes > 0 ? m.shared_end - dispatch_->shared_bytes : nullptr;
        for (uint64_t i; !failed_ && (i = next_++) < total_;) {
            if (options_.seed != 0) {
                i = (i * step_ + first_) % total_;
                w.order.restart(i);
            }
            w.call.group[0] = unsigned(i % call_->groups[0]);
            w.call.group[1] = unsigned(i / call_->groups[0] % call_->groups[1]);
            w.call.group[2] = unsigned(i / call_->groups[0] / call_->groups[1]);
#if defined(ZOO_CHECKED)
            the_checker->begin_group();
#endif
            if (!w.run()) {
                m.failure = w.failure;
                failed_ = true;
            }
        }
    }

    // permute chooses the order of the groups.
    void permute() {
        Order order;
        order.seed(options_.seed);
        order.restart(total_);
        first_ = total_ > 0 ? order.below(unsigned(std::min<uint64_t>(total_, UINT32_MAX))) : 0;
        step_ = 1 + order.below(unsigned(std::min<uint64_t>(total_, UINT32_MAX)));
        while (std::gcd(step_, total_) > 1) step_++;
    }

    const Options& options_;
    std::vector<std::unique_ptr<Member>> members_;
    std::mutex mutex_;
    std::condition_variable wake_, idle_;
    uint64_t round_ = 0;
    size_t busy_ = 0;
    const Dispatch* dispatch_ = nullptr;
    const Call* call_ = nullptr;
    std::atomic<uint64_t> next_{0};
    std::atomic<bool> failed_{false};
    uint64_t total_ = 0, first_ = 0, step_ = 1;

public:
    // prepare_thread sets a thread of the system up.
    static void prepare_thread(const Options& options) {
        stack_t alternate = {};
        alternate.ss_size = 64 << 10;
        alternate.ss_sp = malloc(alternate.ss_size);
        sigaltstack(&alternate, nullptr);
        if (!options.flush) return;
#if defined(__x86_64__)
        _mm_setcsr(_mm_getcsr() | 0x8040);
#else
        uint64_t control;
        asm volatile("mrs %0, fpcr" : "=r"(control));
        asm volatile("msr fpcr, %0" : : "r"(control | 1 << 24));
#endif
    }
};

// Runner does what it is told.
class Runner {
public:
    explicit Runner(const Options& options) : options_(options), memory_(checked), crew_(options, max_shared_bytes) {
#if defined(ZOO_CHECKED)
        the_checker = new Checker(memory_.space, max_shared_bytes);
#endif
    }

    // listen takes messages until there are no more. Buffers are added at once, everything else waits for its turn.
    void listen() {
        for (In in; in.next();) {
            if (in.kind == Request::Buffer) {
                add_buffer(in);
                continue;
            }
            std::lock_guard<std::mutex> lock(mutex_);
            requests_.push_back(std::move(in));
            in = In();
            arrived_.notify_one();
        }
        _exit(0);
    }

    // work does what waits for its turn.
    void work() {
        for (;;) {
            std::unique_lock<std::mutex> lock(mutex_);
            arrived_.wait(lock, [this] { return !requests_.empty(); });
            In in = std::move(requests_.front());
            requests_.pop_front();
            lock.unlock();
            serve(in);
        }
    }

    // crash tells what a thread did that got a signal.
    void crash(int number, uint64_t address) {
        char text[1024];
        int n = snprintf(text, sizeof text, "%s", number == SIGPROF ? "does not end" : strsignal(number));
        if (number == SIGSEGV || number == SIGBUS) {
            n += snprintf(text + n, sizeof text - size_t(n), " at address %#lx", address);
        }
        Worker* w = Worker::running();
        const Kernel* kernel = kernel_;
        std::string where = w ? w->where() : kernel ? std::string("kernel ") + kernel->name : "runner";
        std::string all = where + ": " + text;
        reply(Reply::Crash, 0, 0, all.c_str());
        _exit(2);
    }

private:
    static constexpr size_t max_shared_bytes = 1 << 20;

    void add_buffer(In& in) {
        uint32_t id = in.u32(), file = in.u32();
        uint64_t offset = in.u64(), size = in.u64();
        bool writable = in.u32() != 0;
        std::string path = "/proc/" + std::to_string(options_.parent) + "/fd/" + std::to_string(file);
        int own = open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
        std::string problem = own < 0 ? "open " + path + ": " + strerror(errno) : memory_.add(id, own, offset, size, writable);
        reply(Reply::Buffer, id, 0, problem.c_str());
    }

    void serve(In& in) {
        switch (in.kind) {
            case Request::Release: remove(in.u32()); break;
            case Request::List: record(in); break;
            case Request::Drop: lists_.erase(in.u32()); break;
            case Request::Submit: submit(in); break;
            default: break;
        }
    }

    void remove(uint32_t id) {
        auto b = memory_.find(id);
        if (!b) return;
#if defined(ZOO_CHECKED)
        the_checker->forget(b->place, b->size);
#endif
        memory_.remove(id);
    }

    static Part part(In& in) {
        Part p;
        p.id = in.u32();
        p.offset = in.u64();
        p.size = in.u64();
        return p;
    }

    // kernel returns the one of a name. There is one, or the request would not have been sent.
    static const Kernel* kernel(const std::string& name) {
        const Kernel* k = __start_zoo_kernels;
        while (k->name != name) k++;
        return k;
    }

    void record(In& in) {
        uint32_t id = in.u32(), count = in.u32();
        List list(count);
        for (Dispatch& d : list) {
            auto name = in.bytes(in.u32());
            d.kernel = kernel(std::string(name.begin(), name.end()));
            d.threads = in.u32();
            d.shared_bytes = in.u32();
            for (unsigned& g : d.groups) g = in.u32();
            uint32_t n = in.u32();
            d.args = in.bytes(n);
            d.parts.resize(in.u32());
            for (Part& p : d.parts) p = part(in);
        }
        lists_[id] = std::move(list);
    }

    void submit(In& in) {
        uint64_t id = in.u64();
        uint32_t count = in.u32();
        for (uint32_t i = 0; i < count; i++) {
            for (const Dispatch& d : lists_[in.u32()]) {
                if (options_.fail_after > 0 && ++dispatches_ > options_.fail_after) lost_ = true;
                if (lost_) {
                    reply(Reply::Done, id, uint32_t(Outcome::Lost), "the device went away, as it was told to");
                    return;
                }
                std::string problem = dispatch(d);
                if (!problem.empty()) {
                    reply(Reply::Done, id, uint32_t(Outcome::Failed), problem.c_str());
                    return;
                }
            }
        }
        reply(Reply::Done, id, uint32_t(Outcome::OK), "");
    }

    std::string dispatch(const Dispatch& d) {
        std::string kernel = std::string("kernel ") + d.kernel->name;
        Call call = {};
        call.threads = d.threads;
        std::copy(d.groups, d.groups + 3, call.groups);
        if (d.kernel->args_bytes != 0 && d.args.size() != d.kernel->args_bytes) {
            return kernel + ": its arguments are " + std::to_string(d.kernel->args_bytes) + " bytes and not " + std::to_string(d.args.size());
        }
        args_ = d.args;
        call.buffers[0] = args_.data();
#if defined(ZOO_CHECKED)
        the_checker->begin(call, *d.kernel, d.args, d.shared_bytes);
#endif
        for (size_t i = 0; i < d.parts.size(); i++) {
            const Part& p = d.parts[i];
            if (p.id == 0) continue;
            auto b = memory_.find(p.id);
            if (!b) return kernel + ": buffer " + std::to_string(i + 1) + " is gone";
            char* at = static_cast<char*>(memory_.address(*b, unsigned(i + 1)));
            if (at == nullptr) return kernel + ": buffer " + std::to_string(i + 1) + " cannot be mapped";
            call.buffers[i + 1] = at + p.offset;
#if defined(ZOO_CHECKED)
            the_checker->bind(unsigned(i + 1), *b, at + p.offset, p.size);
#endif
        }
#if defined(ZOO_CHECKED)
        the_checker->bound();
#endif
        itimerval limit = {};
        limit.it_value.tv_sec = time_t(options_.seconds);
        setitimer(ITIMER_PROF, &limit, nullptr);
        kernel_ = d.kernel;
        std::string problem = crew_.run(d, call);
        kernel_ = nullptr;
        return problem;
    }

    const Options& options_;
    Memory memory_;
    Crew crew_;
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<In> requests_;
    std::unordered_map<uint32_t, List> lists_;
    std::vector<uint8_t> args_;
    std::atomic<const Kernel*> kernel_{nullptr};  // that runs
    uint64_t dispatches_ = 0;
    bool lost_ = false;
};

static Runner* the_runner;

static void on_signal(int number, siginfo_t* info, void*) {
    signal(SIGSEGV, SIG_DFL);
    the_runner->crash(number, reinterpret_cast<uint64_t>(info->si_addr));
}

}  // namespace zoo

zoo::Turn zoo_turn() {
    zoo::Fiber& f = *zoo::Worker::running()->current;
    return {f.simd->slots[f.turns % 2], f.lane};
}

void zoo_sync(const char* operation) { zoo::Worker::running()->sync(operation, __builtin_return_address(0)); }

void zoo_simd_barrier([[maybe_unused]] unsigned order) {
    zoo::Worker& w = *zoo::Worker::running();
    [[maybe_unused]] bool last = w.sync("simdgroup_barrier", __builtin_return_address(0));
#if defined(ZOO_CHECKED)
    if (last) zoo::the_checker->simd_barrier(order, w.current->index / zoo::SIMDWidth);
#endif
}

void zoo_barrier([[maybe_unused]] unsigned order) {
    [[maybe_unused]] bool last = zoo::Worker::running()->barrier(__builtin_return_address(0));
#if defined(ZOO_CHECKED)
    if (last) zoo::the_checker->barrier(order);
#endif
}

void zoo_atomic([[maybe_unused]] const volatile void* address, [[maybe_unused]] unsigned bytes, [[maybe_unused]] zoo::Atomic what,
                [[maybe_unused]] const void* site) {
#if defined(ZOO_CHECKED)
    zoo::Kind kind = what == zoo::Atomic::Load ? zoo::Kind::AtomicLoad : what == zoo::Atomic::Store ? zoo::Kind::AtomicStore : zoo::Kind::AtomicChange;
    zoo::the_checker->touch(reinterpret_cast<uint64_t>(address), bytes, kind, site);
#endif
}

void zoo_misuse(const char* what) { zoo::Worker::running()->fail("%s, at %s", what, zoo::place(__builtin_return_address(0)).c_str()); }

int main(int argc, char** argv) {
    static zoo::Options options;
    for (int i = 1; i < argc; i++) {
        char name[32];
        unsigned long value;
        if (sscanf(argv[i], "%31[^=]=%lu", name, &value) != 2) continue;
        for (auto [known, field] : {std::pair<const char*, uint64_t*>{"parent", &options.parent},
                                    {"seed", &options.seed},
                                    {"workers", &options.workers},
                                    {"flush", &options.flush},
                                    {"fail_after", &options.fail_after},
                                    {"seconds", &options.seconds}}) {
            if (strcmp(name, known) == 0) *field = value;
        }
    }
    static zoo::Runner runner(options);
    zoo::the_runner = &runner;
    zoo::Crew::prepare_thread(options);
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGPROF}) {
        struct sigaction action = {};
        action.sa_sigaction = zoo::on_signal;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(number, &action, nullptr);
    }
    std::thread([] { runner.listen(); }).detach();
    zoo::reply(zoo::Reply::Ready, 0, 0, "");
    runner.work();
}
