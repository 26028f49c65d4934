/* generated CALLS
 *
 * Makes a function at run time, as V8 and the JVM do, in memory without a file: it keeps a frame
 * pointer, has no unwind data, and calls what it is given. Calls it CALLS times, to allocate. */
#define _GNU_SOURCE
#include "truth.h"

#include <stdlib.h>
#include <sys/mman.h>

__attribute__((noinline)) static void allocate(void) {
    truth_sink = malloc(50);
    free(truth_sink);
}

typedef void function(void (*)(void));

static const unsigned char code[] = {
    0x55,             /* push %rbp */
    0x48, 0x89, 0xe5, /* mov %rsp, %rbp */
    0xff, 0xd7,       /* call *%rdi */
    0x5d,             /* pop %rbp */
    0xc3,             /* ret */
};

__attribute__((noinline)) static void call_generated(function *generated, long calls) {
    for (long i = 0; i < calls; i++)
        generated(allocate);
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 64;
    long calls = atol(argv[1]);
    int access = PROT_READ | PROT_WRITE | PROT_EXEC;
    void *memory = mmap(NULL, 4096, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 97;
    memcpy(memory, code, sizeof code);
    call_generated((function *)memory, calls);
    truth("calls", calls);
    return 0;
}
