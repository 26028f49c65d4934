/* generated CALLS [own|foreign]
 *
 * Makes a function at run time, as V8 and the JVM do, in memory without a file: it keeps a frame
 * pointer, has no unwind data, and calls what it is given. Calls it CALLS times, to allocate.
 * Tells its name in a file for perf, which it leaves: one of its own or of another user. */
#define _GNU_SOURCE
#include "truth.h"

#include <fcntl.h>
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

/* False if it cannot. */
static int tell_name(const void *memory, const char *whose) {
    char path[64], line[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    int length = snprintf(line, sizeof line, "%lx 1000 JIT:made_at_run_time\n", (unsigned long)memory);
    int told = file >= 0 && write(file, line, (size_t)length) == length;
    if (told && strcmp(whose, "foreign") == 0)
        told = fchown(file, 65534, (gid_t)-1) == 0;
    close(file);
    return told;
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
    truth("pid", getpid());
    if (argc > 2 && !tell_name(memory, argv[2]))
        return 98;
    call_generated((function *)memory, calls);
    truth("calls", calls);
    return 0;
}
