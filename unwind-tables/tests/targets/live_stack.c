/* Builds a stack with many kinds of frames and prints it: registers at the entry of a function,
 * the stack's memory, the mappings, and what libgcc's unwinder says about it. Compiled by the
 * test that reads the output; frames are built without frame pointers. */
#define _GNU_SOURCE
#include <alloca.h>
#include <execinfo.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP __attribute__((noinline, noclone))

uintptr_t entry_sp, entry_bp;
static uintptr_t stack_end;
volatile int sink;

/* Notes rsp and rbp as they are at the entry of a function, then becomes `report`. */
void probe(void);
__asm__(".pushsection .text\n.globl probe\n.type probe,@function\nprobe:\n"
        ".cfi_startproc\n"
        "mov %rsp, entry_sp(%rip)\n"
        "mov %rbp, entry_bp(%rip)\n"
        "jmp report\n"
        ".cfi_endproc\n.size probe, .-probe\n.popsection\n");

static void print_mappings(void) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) printf("map %s", line);
    if (maps) fclose(maps);
}

__attribute__((used)) KEEP void report(void) {
    void *frames[256];
    int count = backtrace(frames, 256);
    printf("registers %" PRIxPTR " %" PRIxPTR "\n", entry_sp, entry_bp);
    for (int i = 1; i < count; i++) printf("frame %" PRIxPTR "\n", (uintptr_t)frames[i]);
    for (uintptr_t at = entry_sp; at < stack_end; at += 8)
        printf("word %" PRIxPTR " %" PRIx64 "\n", at, *(uint64_t *)at);
    print_mappings();
    fflush(stdout);
    _Exit(0);
}

/* A frame of 60 KB. */
KEEP static void large_frame(int n) {
    volatile char large[60000];
    large[n] = 1;
    probe();
    sink = large[n];
}

/* The compiler must address this frame through rbp. */
KEEP static void variable_frame(int n) {
    volatile char *bytes = alloca(n);
    bytes[0] = 1;
    large_frame(n);
    sink = bytes[0];
}

/* Realigned and of variable size: GCC describes the CFA by an expression over rbp. */
KEEP static void realigned_frame(int n) {
    volatile char aligned[64] __attribute__((aligned(64)));
    volatile char *bytes = alloca(n);
    aligned[n & 63] = bytes[0] = 1;
    variable_frame(n);
    sink = aligned[n & 63] + bytes[0];
}

KEEP static void handler(int signal) {
    realigned_frame(signal + 100);
    sink = signal;
}

KEEP static int compare(const void *a, const void *b) {
    raise(SIGUSR1);
    return *(const int *)a - *(const int *)b;
}

KEEP static int recurse(int n) {
    if (n) return recurse(n - 1) + sink;
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof *numbers, compare);
    return numbers[0];
}

static void *thread_main(void *unused) {
    pthread_attr_t attributes;
    void *stack;
    size_t size;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &size);
    stack_end = (uintptr_t)stack + size;
    sink = recurse(20);
    return unused;
}

int main(int argc, char **argv) {
    void *warm[4];
    backtrace(warm, 4);
    signal(SIGUSR1, handler);
    if (argc > 1 && !strcmp(argv[1], "thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, thread_main, 0);
        pthread_join(thread, 0);
    }
    thread_main(0);
    return 0;
}
