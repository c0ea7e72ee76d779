// The memory that kernels see. Each buffer is a file; it has one place in an
// address window, and each index that a kernel can be given it at has its own
// window. So an access tells by its address which index it went through.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "abi.h"

namespace zoo {

constexpr unsigned WindowBits = 39;
constexpr uint64_t WindowBytes = 1ull << WindowBits;
constexpr uint64_t Gap = 64ull << 20;  // between buffers; nothing is mapped there
// The windows of the buffers, and that of the threadgroup's memory.
constexpr unsigned SharedWindow = MaxBuffers;
constexpr unsigned Windows = MaxBuffers + 1;

inline uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

// Space is all windows: addresses only, until something is mapped.
class Space {
public:
    Space() {
        void* all = mmap(nullptr, (Windows + 1) * WindowBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) {
            perror("reserve addresses");
            _exit(1);
        }
        base_ = round_up(reinterpret_cast<uint64_t>(all), WindowBytes);
    }
    uint64_t window(unsigned n) const { return base_ + n * WindowBytes; }
    // index returns the window of an address, or a number that is none.
    uint64_t index(uint64_t address) const { return (address - base_) >> WindowBits; }
    uint64_t offset(uint64_t address) const { return (address - base_) & (WindowBytes - 1); }

private:
    uint64_t base_;
};

// Buffer is a file that is mapped where it is needed.
struct Buffer {
    uint32_t id;
    int file;
    uint64_t file_offset, size, place;  // place is its offset in every window
    bool writable;
    uint32_t mapped = 0;  // a bit for each window
};

// Memory holds the buffers. Its methods may be called by many threads.
class Memory {
public:
    explicit Memory(bool aliases) : aliases_(aliases) {}
    const Space space;

    // add takes over the file and returns what went wrong, or nothing.
    std::string add(uint32_t id, int file, uint64_t file_offset, uint64_t size, bool writable) {
        std::lock_guard<std::mutex> lock(mutex_);
        uint64_t place = Gap;  // what is before belongs to the checks
        for (auto& [at, b] : by_place_) {
            if (at - place >= size + Gap) break;
            place = at + round_up(b->size, Gap) + Gap;
        }
        if (place + size + Gap > WindowBytes) {
            close(file);
            return "no addresses are left";
        }
        auto b = std::make_shared<Buffer>(Buffer{id, file, file_offset, size, place, writable});
        if (!map(*b, 0)) {
            close(file);
            return "map: " + std::string(strerror(errno));
        }
        by_id_[id] = by_place_[place] = b;
        return "";
    }

    // remove forgets a buffer.
    void remove(uint32_t id) {
        std::lock_guard<std::mutex> lock(mutex_);
        auto found = by_id_.find(id);
        if (found == by_id_.end()) return;
        auto b = found->second;
        for (unsigned w = 0; w < Windows; w++) {
            if (!(b->mapped >> w & 1)) continue;
            void* at = reinterpret_cast<void*>(space.window(w) + b->place);
            mmap(at, b->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        }
        close(b->file);
        by_place_.erase(b->place);
        by_id_.erase(found);
    }

    // find returns a buffer, or null.
    std::shared_ptr<Buffer> find(uint32_t id) {
        std::lock_guard<std::mutex> lock(mutex_);
        auto found = by_id_.find(id);
        return found == by_id_.end() ? nullptr : found->second;
    }

    // at returns the buffer at an offset of the windows, or null.
    std::shared_ptr<Buffer> at(uint64_t offset) {
        std::lock_guard<std::mutex> lock(mutex_);
        auto next = by_place_.upper_bound(offset);
        if (next == by_place_.begin()) return nullptr;
        auto b = std::prev(next)->second;
        return offset < b->place + b->size + Gap ? b : nullptr;
    }

    // address returns where a buffer is for an index, and null if it cannot be mapped there.
    void* address(Buffer& b, unsigned window) {
        if (!aliases_) window = 0;
        if (!(b.mapped >> window & 1)) {
            std::lock_guard<std::mutex> lock(mutex_);
            if (!map(b, window)) return nullptr;
        }
        return reinterpret_cast<void*>(space.window(window) + b.place);
    }

private:
    bool map(Buffer& b, unsigned window) {
        void* at = reinterpret_cast<void*>(space.window(window) + b.place);
        int protection = b.writable ? PROT_READ | PROT_WRITE : PROT_READ;
        if (mmap(at, b.size, protection, MAP_SHARED | MAP_FIXED, b.file, off_t(b.file_offset)) == MAP_FAILED) return false;
        b.mapped |= 1u << window;
        return true;
    }

    const bool aliases_;
    std::mutex mutex_;
    std::map<uint32_t, std::shared_ptr<Buffer>> by_id_;
    std::map<uint64_t, std::shared_ptr<Buffer>> by_place_;
};

}  // namespace zoo
