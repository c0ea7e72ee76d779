// Messages between the runner and the process that started it: a kind, a
// length and that many bytes, all little-endian.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace zoo {

// Kinds of requests and of replies.
enum class Request : uint32_t { Buffer = 1, Release, List, Drop, Submit };
enum class Reply : uint32_t { Ready = 1, Buffer, Done, Crash };

// Outcome of a submission.
enum class Outcome : uint32_t { OK, Failed, Lost };

// In reads a request.
class In {
public:
    uint32_t u32() { return number<uint32_t>(); }
    uint64_t u64() { return number<uint64_t>(); }
    std::vector<uint8_t> bytes(size_t n) {
        std::vector<uint8_t> v(data_.begin() + long(at_), data_.begin() + long(at_ + n));
        at_ += n;
        return v;
    }
    Request kind;

    // next waits for a message and returns false when there will be none.
    bool next() {
        uint32_t head[2];
        if (!fill(head, sizeof head)) return false;
        kind = Request(head[0]);
        data_.resize(head[1]);
        at_ = 0;
        return fill(data_.data(), data_.size());
    }

private:
    template <typename T>
    T number() {
        T v;
        memcpy(&v, data_.data() + at_, sizeof v);
        at_ += sizeof v;
        return v;
    }
    static bool fill(void* to, size_t n) {
        for (char* p = static_cast<char*>(to); n > 0;) {
            ssize_t got = read(STDIN_FILENO, p, n);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return false;
            p += got;
            n -= size_t(got);
        }
        return true;
    }
    std::vector<uint8_t> data_;
    size_t at_ = 0;
};

// reply sends a number, a second one and a text.
inline void reply(Reply kind, uint64_t id, uint32_t code, const char* text) {
    static std::mutex mutex;
    size_t n = strnlen(text, 4000);
    char message[4096];
    uint32_t head[2] = {uint32_t(kind), uint32_t(12 + n)};
    memcpy(message, head, 8);
    memcpy(message + 8, &id, 8);
    memcpy(message + 16, &code, 4);
    memcpy(message + 20, text, n);
    // What is not longer than a page is written at once, so a crash needs no lock.
    if (kind == Reply::Crash) {
        (void)!write(STDOUT_FILENO, message, 20 + n);
        return;
    }
    std::lock_guard<std::mutex> lock(mutex);
    (void)!write(STDOUT_FILENO, message, 20 + n);
}

}  // namespace zoo
