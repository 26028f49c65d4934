// pool_alone
//
// A program without any library, and thus without malloc: says "ready", waits
// for a byte, and makes ten blocks of 24 bytes, of which it frees four.
// To be compiled with -nostdlib -static.
typedef unsigned long size_t;

static char pool[4096];
static size_t used;

[[gnu::noinline]] void *operator new(size_t size) {
    void *block = pool + used;
    used += (size + 15) & ~15UL;
    return block;
}
[[gnu::noinline]] void operator delete(void *block) noexcept { *static_cast<volatile char *>(block) = 0; }

static long call(long number, long first, const void *second, long third) {
    long result;
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(number), "D"(first), "S"(second), "d"(third)
                 : "rcx", "r11", "memory");
    return result;
}

// The stack is aligned here as it is nowhere else.
extern "C" [[noreturn]] [[gnu::force_align_arg_pointer]] void _start() {
    const long read = 0, write = 1, exit_group = 231;
    char byte;
    call(write, 1, "ready\n", 6);
    call(read, 0, &byte, 1);
    for (int i = 0; i < 10; i++) {
        void *block = ::operator new(24);
        if (i % 3 == 0)
            ::operator delete(block);
    }
    call(exit_group, 0, nullptr, 0);
    __builtin_unreachable();
}
