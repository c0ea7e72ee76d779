// Switching between stacks.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

extern "C" {
// zoo_switch saves where it was called and goes on where to was saved.
void zoo_switch(void** save, void* to);
// zoo_start is where a new stack begins.
void zoo_start();
}

#if defined(__x86_64__)
asm(R"(
    .text
    .p2align 4
    .globl zoo_switch
    .type zoo_switch, @function
zoo_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size zoo_switch, .-zoo_switch
    .globl zoo_start
    .type zoo_start, @function
zoo_start:
    movq %r12, %rdi
    callq *%r13
    ud2
    .size zoo_start, .-zoo_start
)");
#elif defined(__aarch64__)
asm(R"(
    .text
    .p2align 4
    .globl zoo_switch
    .type zoo_switch, %function
zoo_switch:
    sub sp, sp, #176
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #176
    ret
    .size zoo_switch, .-zoo_switch
    .globl zoo_start
    .type zoo_start, %function
zoo_start:
    mov x0, x19
    blr x20
    brk #1
    .size zoo_start, .-zoo_start
)");
#else
#error "the runner switches stacks on x86-64 and arm64"
#endif

namespace zoo {

// Stack is memory for a fiber, with a page below that nobody may touch.
class Stack {
public:
    void allocate(size_t bytes) {
        size_t page = size_t(sysconf(_SC_PAGESIZE));
        void* all = mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED || mprotect(all, page, PROT_NONE) != 0) {
            perror("allocate a stack");
            _exit(1);
        }
        low_ = reinterpret_cast<uint64_t>(all) + page;
        high_ = low_ + bytes;
    }
    uint64_t low() const { return low_; }
    uint64_t high() const { return high_; }

    // prepare returns what zoo_switch goes to to call entry(argument), which never returns.
    void* prepare(void (*entry)(void*), void* argument) const {
#if defined(__x86_64__)
        void** sp = reinterpret_cast<void**>(high_) - 2;  // entry is called on a stack aligned to 16
        *--sp = reinterpret_cast<void*>(zoo_start);
        sp -= 6;
        sp[0] = sp[1] = sp[4] = sp[5] = nullptr;    // r15, r14, rbx, rbp
        sp[2] = reinterpret_cast<void*>(entry);     // r13
        sp[3] = argument;                           // r12
#else
        void** sp = reinterpret_cast<void**>(high_) - 22;
        for (int i = 0; i < 22; i++) sp[i] = nullptr;
        sp[0] = argument;                               // x19
        sp[1] = reinterpret_cast<void*>(entry);         // x20
        sp[11] = reinterpret_cast<void*>(zoo_start);    // x30
#endif
        return sp;
    }

private:
    uint64_t low_ = 0, high_ = 0;
};

}  // namespace zoo
