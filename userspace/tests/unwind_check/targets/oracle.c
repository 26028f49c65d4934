/* Preloaded into a program: at each allocation it walks the stack by libgcc's unwinder, computes
 * the id that the BPF programs must give to that stack, and returns it from a function that is
 * probed. So one record holds both: what was expected as the pointer, and what was found. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>
#include <unwind.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

enum { MAX_FRAMES = 1024, SEEN = 1 << 20 };

struct stack {
    uint64_t id, count, frames[MAX_FRAMES];
};

#define THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))
static THREAD_LOCAL int busy;
static THREAD_LOCAL struct stack current;
static uint64_t seen[SEEN];
static int log_file = -1;

/* The hash of htrace_ebpf::unwind::Walk::stack_id. */
static uint64_t mix(uint64_t hash, uint64_t word) {
    uint64_t product = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return product ^ product >> 32;
}

static _Unwind_Reason_Code add(struct _Unwind_Context *context, void *unused) {
    (void)unused;
    uint64_t address = _Unwind_GetIP(context);
    if (address == 0 || current.count == MAX_FRAMES)
        return _URC_END_OF_STACK;
    current.frames[current.count++] = address;
    return _URC_NO_REASON;
}

/* Probed: its entry takes the stack, its return gives what was expected. */
__attribute__((noinline, noclone)) void *unwind_oracle(size_t bytes, uint64_t expected) {
    __asm__ volatile("" : "+r"(expected) : "r"(bytes) : "memory");
    return (void *)expected;
}

/* Writes down a stack that is new. */
static void note(void) {
    uint64_t slot = current.id % SEEN;
    if (__atomic_exchange_n(&seen[slot], current.id, __ATOMIC_RELAXED) == current.id)
        return;
    if (log_file < 0) {
        const char *path = getenv("UNWIND_ORACLE_LOG");
        log_file = open(path ? path : "/dev/null", O_WRONLY | O_APPEND | O_CLOEXEC);
    }
    size_t length = offsetof(struct stack, frames) + current.count * sizeof(uint64_t);
    if (write(log_file, &current, length) < 0)
        abort();
}

/* Where unwind_oracle returns to: the innermost frame of what the programs see. */
extern char oracle_return[] __attribute__((visibility("hidden")));

__attribute__((noinline, noclone)) static void compare(size_t bytes) {
    if (busy)
        return;
    busy = 1;
    current.count = 0;
    _Unwind_Backtrace(add, 0);
    current.frames[0] = (uint64_t)oracle_return;
    uint64_t hash = 0;
    for (uint64_t i = 0; i < current.count; i++)
        hash = mix(hash, current.frames[i]);
    current.id = mix(hash, current.count << 8);
    note();
    uint64_t argument = bytes ? bytes : 1, expected = current.id;
    __asm__ volatile("call unwind_oracle\n.globl oracle_return\n.hidden oracle_return\noracle_return:"
                     : "+D"(argument), "+S"(expected)
                     :
                     : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc");
    busy = 0;
}

void *malloc(size_t bytes) {
    compare(bytes);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    compare(bytes);
    return __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes) {
    compare(bytes);
    return __libc_realloc(block, bytes);
}
